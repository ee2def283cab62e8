//! Bottlenecks of real loops: planted work on either side, and honest long iterations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lab::sample::{Failure, FailureKind};
use machine::tsc::Tsc;

use super::metrics::utilisation;
use super::params::Interface;
use super::planted_stall::STALL;
use super::stall;
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{self, Cpus, TestbedConfig};
use super::utilisation::Bottleneck;
use crate::application::sum;
use crate::core_use::CoreUse;
use crate::generator::{Generator, GeneratorCommand};
use crate::nic::ticks;
use crate::steering::Steering;
use crate::wire::traffic::Packet;
use crate::wire::{PacketRef, TxCount, Wire};

pub(super) const INTERFACES: [Interface; 4] =
    [Interface::Pipes, Interface::PipesPerPacket, Interface::PipesPrefetch, Interface::Descriptors];
/// Duration of a trial: short, so that on a busy machine both loops keep their CPUs in some.
pub(super) const BUDGET: Duration = Duration::from_millis(2);
/// Time limit for valid trials: on a busy machine most are void.
const SOON: Duration = Duration::from_secs(60);
/// Number of trials that are judged together.
const TRIALS: usize = 5;
/// Packets in flight: more than one core processes at a time, so that the other one has some too.
pub(super) const WINDOW: u64 = 511;

/// A wire that is slower than its generator by some ticks per packet, and stalls when told to.
struct SlowWire {
    generator: Generator,
    per_packet: u64,
    stall: Arc<AtomicBool>,
}

impl SlowWire {
    fn spend(&self, packets: u64) {
        let end = ticks() + self.per_packet * packets;
        while ticks() < end {
            std::hint::spin_loop();
        }
    }
}

impl Wire for SlowWire {
    type Command = GeneratorCommand;
    type RxBurst<'a> = <Generator as Wire>::RxBurst<'a>;

    fn command(&mut self, command: GeneratorCommand) {
        self.generator.command(command);
    }

    fn packets(&self) -> (u64, &[Packet]) {
        self.generator.packets()
    }

    fn next_burst(&mut self, now: u64, max: u32) -> Self::RxBurst<'_> {
        self.generator.next_burst(now, max)
    }

    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: the caller guarantees the same.
        let taken = unsafe { self.generator.on_transmit(start, bytes) };
        self.spend(taken.packets);
        taken
    }

    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe { self.generator.on_transmit_scattered(packets) };
        self.spend(packets.len() as u64);
    }

    fn on_unread(&mut self, flits: u64) {
        self.generator.on_unread(flits);
    }

    fn end_iteration(&mut self, now: u64) {
        if self.stall.swap(false, Ordering::Relaxed) {
            std::thread::sleep(STALL);
        }
        self.generator.end_iteration(now);
    }
}

/// Returns the level of an interface. One that is added here belongs into [`INTERFACES`] too, unless its application is
/// another process, which does no planted work, or packets pass the kernel, whose work depends on the machine.
pub(super) fn level(interface: Interface) -> &'static str {
    match interface {
        Interface::Pipes => "pipes",
        Interface::PipesPerPacket => "pipes-per-packet",
        Interface::PipesPrefetch => "pipes-prefetch",
        Interface::Descriptors => "descriptors",
        Interface::Dpdk => "dpdk",
        Interface::AfXdp => "af-xdp",
        Interface::AfPacket => "af-packet",
        Interface::Tap => "tap",
    }
}

/// What the tests share: two CPUs and the time-stamp counter; `None` if the machine lacks them.
pub(super) fn machine(what: &str) -> Option<(Cpus, &'static Tsc)> {
    let tsc = machine::untested::tsc(what)?;
    let cpus = Cpus::select(&machine::topology::allowed_cpus(), 1);
    let cpus = cpus.inspect_err(|why| machine::untested::note(what, why)).ok()?;
    Some((cpus, tsc))
}

fn config(levels: &[(&str, &str)]) -> TestbedConfig {
    testbed_config::config(&[&[("depth", "1024")], levels].concat())
}

/// Returns the testbed of a point after its warm-up.
pub(super) fn testbed(
    levels: &[(&str, &str)],
    slower: Duration,
) -> Option<(Testbed, Arc<AtomicBool>)> {
    let (cpus, tsc) = machine("stream: bottlenecks")?;
    let stall = Arc::new(AtomicBool::new(false));
    let per_packet = if slower.is_zero() { 0 } else { tsc.ticks(slower) };
    let wire = |generator| SlowWire { generator, per_packet, stall: Arc::clone(&stall) };
    let start = Instant::now();
    // Void while the core clock is doubtful.
    let check = |why: &Failure| {
        assert!(why.kind == FailureKind::Void && start.elapsed() < SOON, "{why}");
    };
    let mut testbed = loop {
        match Testbed::with_wire(&config(levels), &cpus, tsc.rate(), wire) {
            Ok(testbed) => break testbed,
            Err(why) => check(&why),
        }
    };
    while let Err(why) = testbed.warm_up(|testbed| testbed.closed(WINDOW, BUDGET)) {
        check(&why);
    }
    Some((testbed, stall))
}

/// One test at a time: all use the same CPUs.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns trials until the time limit. Those during which the core clock is doubtful have no report.
pub(super) fn trials(
    run: impl Fn() -> Result<TrialReport, Failure>,
) -> impl Iterator<Item = TrialReport> {
    let start = Instant::now();
    let each = std::iter::repeat_with(run).take_while(move |_| start.elapsed() < SOON);
    each.filter_map(|trial| match trial {
        Ok(trial) => Some(trial),
        Err(why) if why.kind == FailureKind::Void => None,
        Err(why) => panic!("{why}"),
    })
}

/// Maximum share of the time for which either side may stall: the other one looks for packets meanwhile, and is no longer
/// saturated at 5%.
const UNDISTURBED: f64 = 0.01;

/// Returns the first undisturbed trials of a closed loop; `None` if a busy machine does not permit them.
fn valid_trials(testbed: &Testbed) -> Option<Vec<TrialReport>> {
    let all = trials(|| testbed.closed(WINDOW, BUDGET));
    let is_undisturbed = |trial: &TrialReport| stall::stalled_share(trial) <= UNDISTURBED;
    let valid: Vec<_> = all.filter(is_undisturbed).take(TRIALS).collect();
    if valid.len() < TRIALS {
        machine::untested::note("stream: bottlenecks", &"other programs have the CPUs");
    }
    (valid.len() == TRIALS).then_some(valid)
}

/// Returns the bottleneck of most of some trials.
fn bottleneck(trials: &[TrialReport]) -> Bottleneck {
    let all: Vec<_> = trials.iter().map(TrialReport::bottleneck).collect();
    let of = |one: &Bottleneck| all.iter().filter(|other| *other == one).count();
    *all.iter().max_by_key(|one| of(one)).unwrap()
}

/// Returns the least cycles per packet of the application in some trials in which at most a third of the packets were in
/// stalled iterations; `None` if there are not enough in a minute. Other programs stall a loop in few iterations, however
/// busy the machine is; a rule that takes honest iterations for stalls finds them in every trial.
fn cycles(levels: &[(&str, &str)], tsc: &Tsc) -> Option<f64> {
    let (testbed, _) = testbed(levels, Duration::ZERO)?;
    let worked = |trial: &TrialReport| trial.application[0].iterations.packets as f64;
    let is_whole = |trial: &TrialReport| worked(trial) > 0.7 * trial.report.received as f64;
    let all = trials(|| testbed.closed(WINDOW, BUDGET));
    let whole: Vec<_> = all.filter(is_whole).take(TRIALS).collect();
    // Other load on the core only adds to them.
    let cycles = whole.iter().filter_map(|it| it.cycles_per_packet(tsc)).reduce(f64::min);
    cycles.filter(|_| whole.len() == TRIALS)
}

#[test]
fn honest_iterations_are_no_stalls_however_long_and_cost_what_they_do() {
    let _alone = alone();
    let Some((_, tsc)) = machine("stream: NOPs") else { return };
    for interface in INTERFACES.map(level) {
        let of = |nops| cycles(&[("interface", interface), ("nops", nops)], tsc);
        let [Some(none), Some(some), Some(many)] = ["0", "200", "1000"].map(of) else {
            // `the_side_with_planted_work_is_the_bottleneck` finds a rule that takes honest iterations for stalls too.
            machine::untested::note("stream: NOPs", &"stalls in every trial");
            continue;
        };
        // No CPU executes more than 16 NOPs per cycle; 1000 cost five times as much as 200.
        assert!(many - none > 1000.0 / 16.0, "{interface}: {none} and {many} cycles");
        let ratio = (many - none) / (some - none);
        assert!((1.5..20.0).contains(&ratio), "{interface}: {none}, {some} and {many} cycles");
    }
}

#[test]
fn the_side_with_planted_work_is_the_bottleneck() {
    let _alone = alone();
    for interface in INTERFACES.map(level) {
        let of = |nops, slower| {
            let (testbed, _) = testbed(&[("interface", interface), ("nops", nops)], slower)?;
            Some(bottleneck(&valid_trials(&testbed)?))
        };
        let Some(application) = of("1000", Duration::ZERO) else { return };
        assert_eq!(application, Bottleneck::Application, "{interface}, 1000 NOPs per packet");
        let Some(wire) = of("0", Duration::from_nanos(300)) else { return };
        assert_eq!(wire, Bottleneck::Nic, "{interface}, a wire with 300 ns per packet");
    }
}

#[test]
fn what_testpmd_does_not_report_is_absent_and_the_bottleneck_is_that_of_the_known_side() {
    let _alone = alone();
    let Some((_, tsc)) = machine("stream: the bottleneck of testpmd") else { return };
    let interface = level(Interface::Dpdk);
    let levels = [("interface", interface), ("virtqueue", "split"), ("pages", "4 KiB")];
    if let Err(why) = config(&levels).cpus(&machine::topology::allowed_cpus()) {
        return machine::untested::note("stream: the bottleneck of testpmd", &why);
    }
    let of = |slower| {
        let (testbed, _) = testbed(&levels, slower)?;
        valid_trials(&testbed)
    };
    // On a busy machine testpmd loses its CPU, and the NIC waits.
    let slow = (0..5)
        .map(|_| of(Duration::from_nanos(300)))
        .find(|trials| trials.as_ref().is_none_or(|trials| bottleneck(trials) == Bottleneck::Nic));
    let Some(slow) = slow.expect("a wire with 300 ns per packet is never the bottleneck") else {
        return;
    };
    for trial in &slow {
        let known: BTreeMap<_, _> = utilisation(trial, tsc).into_iter().collect();
        let absent = ["polling_application", "packets_per_iteration_application"];
        assert!(absent.iter().all(|name| !known.contains_key(name)), "{known:?}");
        assert!(known["cycles_per_packet"] > 0.0 && known["busy_nic"] > 0.0, "{known:?}");
        let busy = known.get("busy_application");
        assert_eq!(busy.is_some(), trial.testpmd.unwrap().waited.is_some(), "{known:?}");
        assert!(busy.is_none_or(|busy| (0.0..=1.0).contains(busy)), "{known:?}");
    }
    let Some(fast) = of(Duration::ZERO) else { return };
    for trial in fast {
        let full = trial.testpmd.unwrap().forward.full;
        assert!(full.is_none_or(|full| (0.0..=1.0).contains(&full)), "{full:?}");
        let may_be = trial.application_busy().is_none_or(CoreUse::may_be_saturated);
        let is_application = trial.bottleneck() == Bottleneck::Application;
        assert!(may_be || !is_application, "it had time left: {trial:?}");
    }
}

#[test]
fn the_nic_is_the_bottleneck_if_it_compares_every_byte_of_long_packets() {
    let _alone = alone();
    let levels = [("check", "all"), ("packet_bytes", "1518")];
    let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
    let Some(trials) = valid_trials(&testbed) else { return };
    assert_eq!(bottleneck(&trials), Bottleneck::Nic, "{trials:?}");
}

#[test]
fn a_load_that_is_carried_has_no_bottleneck() {
    let _alone = alone();
    let Some((testbed, _)) = testbed(&[], Duration::ZERO) else { return };
    let is_undisturbed =
        |trial: &TrialReport| trial.lost() == 0 && stall::void_rate(trial).is_none();
    let mut all = trials(|| testbed.offer(0.1e9, BUDGET, false));
    let Some(trial) = all.find(is_undisturbed) else {
        return machine::untested::note("stream: bottlenecks", &"other programs have the CPUs");
    };
    assert_eq!(trial.bottleneck(), Bottleneck::Neither);
    let [nic, application] = [trial.report.core_use(), trial.application_use()[0]];
    assert!(!nic.is_saturated() && !application.is_saturated(), "{nic:?} {application:?}");
}

#[test]
fn all_packets_return_with_any_flows_steering_and_sizes_over_any_interface() {
    let _alone = alone();
    let traffic: [&[(&str, &str)]; 5] = [
        &[("flows", "1024"), ("pipes", "1")],
        &[("flows", "100"), ("pipes", "3"), ("packet_bytes", "imix")],
        &[("flows", "64"), ("pipes", "4"), ("steering", "hash")],
        &[("flows", "7"), ("pipes", "4"), ("steering", "hash"), ("packet_bytes", "imix")],
        &[("flows", "5"), ("pipes", "4"), ("steering", "round-robin"), ("packet_bytes", "imix")],
    ];
    let dpdk: &[(&str, &str)] = &[("virtqueue", "split"), ("pages", "4 KiB")];
    for interface in INTERFACES.into_iter().chain([Interface::Dpdk]) {
        for levels in traffic {
            let of_dpdk = if interface == Interface::Dpdk { dpdk } else { &[] };
            let levels = [&[("interface", level(interface))], levels, of_dpdk].concat();
            let config = config(&levels);
            if let Err(why) = config.cpus(&machine::topology::allowed_cpus()) {
                machine::untested::note("stream: steering", &why);
                continue;
            }
            let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
            let window = WINDOW.min(config.max_window());
            // Trials fail if packets are corrupted, duplicated or out of order in their pipe.
            let mut all = trials(|| testbed.closed(window, BUDGET));
            let Some(trial) = all.find(|trial| trial.report.received > 1024) else {
                return machine::untested::note(
                    "stream: steering",
                    &"other programs have the CPUs",
                );
            };
            assert_eq!(trial.lost(), 0, "{levels:?}: {trial:?}");
            let is_ruled = config.steering == Steering::Rules;
            assert_eq!(testbed.flows_without_rule(), is_ruled.then_some(0));
        }
    }
}

#[test]
fn applications_count_the_packets_of_each_trial() {
    let _alone = alone();
    for interface in [Interface::Pipes, Interface::Descriptors] {
        for application in ["maglev-enso", "maglev", "telemetry"] {
            let interface = level(interface);
            let levels =
                [("interface", interface), ("application", application), ("check", "none")];
            let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
            let mut all = trials(|| testbed.closed(WINDOW, BUDGET));
            let Some(trial) = all.find(|trial| trial.report.received > 1024) else {
                let why = "other programs have the CPUs";
                return machine::untested::note("stream: applications in trials", &why);
            };
            assert_eq!(trial.lost(), 0, "{levels:?}: {trial:?}");
            let counts = sum(trial.application.iter().map(|core| core.counts.as_slice()));
            let packets = counts.iter().find(|count| count.name == "packets").unwrap();
            assert_eq!(packets.value, trial.report.received, "{levels:?}: {counts:?}");
        }
    }
}

#[test]
fn flows_without_a_rule_are_counted_and_their_packets_lost() {
    let _alone = alone();
    let levels = [("flows", "8192"), ("steering", "rules"), ("depth", "32768")];
    let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
    let without = testbed.flows_without_rule().unwrap();
    assert!((1..500).contains(&without), "{without}");
    let mut all = trials(|| testbed.closed(WINDOW, 10 * BUDGET));
    let Some(trial) = all.find(|trial| trial.report.sent > 8192) else {
        return machine::untested::note("stream: rules", &"other programs have the CPUs");
    };
    let losses = trial.losses();
    assert_eq!(losses.no_rule, trial.lost(), "{losses:?}");
    // Each round of the traffic loses as many packets as flows have no rule.
    let rounds = trial.report.sent / 8192;
    assert!((rounds * without..=(rounds + 1) * without).contains(&losses.no_rule), "{losses:?}");
}

#[test]
fn a_load_of_mixed_sizes_is_sent_in_time() {
    let _alone = alone();
    let levels = [("packet_bytes", "imix"), ("flows", "64"), ("pipes", "2")];
    let Some((testbed, _)) = testbed(&levels, Duration::ZERO) else { return };
    // Sizes differ by more than a packet is allowed to be late at this load.
    let mut all = trials(|| testbed.offer(0.1e9, BUDGET, false));
    let is_undisturbed = |trial: &TrialReport| stall::void_rate(trial).is_none();
    let Some(trial) = all.find(|trial| is_undisturbed(trial) && trial.lost() == 0) else {
        return machine::untested::note("stream: mixed sizes", &"other programs have the CPUs");
    };
    let expected = 0.1e9 / 8.0 * BUDGET.as_secs_f64();
    let off = trial.report.sent_bytes as f64 - expected;
    assert!(off.abs() <= 1538.0 / 2.0, "{off} of {expected} B");
    assert_eq!(trial.report.received_bytes, trial.report.sent_bytes);
}

#[test]
fn samples_record_the_pages_of_their_memory() {
    let _alone = alone();
    let Some((cpus, tsc)) = machine("stream: pages") else { return };
    let pages = |interface, level, depth| {
        let config = config(&[("interface", interface), ("pages", level), ("depth", depth)]);
        let start = Instant::now();
        loop {
            match Testbed::new(&config, &cpus, tsc.rate()) {
                // The core clock is doubtful.
                Err(why) if why.kind == FailureKind::Void && start.elapsed() < SOON => {}
                testbed => break testbed.map(|testbed| testbed.memory_pages()),
            }
        }
    };
    assert_eq!(pages("pipes", "4 KiB", "ring").unwrap(), "rings 4 KiB, buffers 4 KiB");
    assert_eq!(pages("descriptors", "4 KiB", "1024").unwrap(), "buffers 4 KiB");
    let _pool = crate::tests::more_huge_pages(16);
    for (interface, depth, expected) in [
        ("pipes", "ring", "rings 2 MiB, buffers 2 MiB"),
        ("pipes", "1024", "rings 4 KiB, buffers 2 MiB"),
        ("descriptors", "1024", "buffers 2 MiB"),
    ] {
        match pages(interface, "2 MiB", depth) {
            Ok(found) => assert_eq!(found, expected),
            Err(why) => {
                assert_eq!(why.kind, FailureKind::Unavailable, "{why}");
                machine::untested::note("stream: memory on huge pages", &why);
            }
        }
    }
}

#[test]
fn lost_packets_have_causes() {
    let _alone = alone();
    // An application that is far too slow for the load.
    let Some((testbed, _)) = testbed(&[("nops", "1000")], Duration::ZERO) else { return };
    let trial = trials(|| testbed.offer(50e9, BUDGET, false)).next().expect("a trial in a minute");
    let losses = trial.losses();
    let each = losses.named().map(|(.., packets)| packets);
    assert_eq!(each.iter().sum::<u64>(), trial.lost(), "{losses:?}");
    assert!(losses.ring_full > 0 && losses.no_rule == 0, "{losses:?}");
}
