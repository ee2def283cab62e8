//! The fresh process that carries out one order, and dies with it.

use std::io::{BufReader, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use machine::core_clock;
use machine::noise::Noise;
use machine::tsc::Tsc;

use crate::measure::{Context, Measurement};
use crate::message::{Answer, Answered, Order, Ordered, Rendezvous, Request, WAITING, receive};
use crate::method::{AnyMethod, Probe};
use crate::metric::Metric;
use crate::option;
use crate::plan::seed_of;
use crate::sample::{Clock, Failure, FailureKind, MAX_ATTEMPTS, Sample, UNKNOWN_LATENCIES, over};
use crate::suite::{self, Suite};

/// A sample is void when the host ran something else on one of its CPUs for more than this share of it, as
/// far as the kernel's count shows that surely.
const STOLEN: f64 = 0.05;

/// Carries out the order on standard input; gives the exit status.
pub fn main(suites: &[&dyn Suite]) -> i32 {
    match serve(suites) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(crate::terminal::stderr(), "{failure}");
            1
        }
    }
}

fn serve(suites: &[&dyn Suite]) -> Result<(), Failure> {
    let answers = private_output()?;
    let mut rendezvous = Rendezvous::new(requests(), Box::new(answers));
    let Some(Request::Order(order)) = rendezvous.request() else {
        return Err(Failure::failed("a probe wants an order on its standard input"));
    };
    let method =
        suite::find_method(suites, &order.suite, &order.method).map_err(Failure::failed)?;
    let mut cpus = machine::topology::allowed_cpus();
    // The last CPU first: the first ones serve most interrupts.
    cpus.reverse();
    if let Some(&cpu) = cpus.first() {
        machine::pin::pin_to(cpu)?;
    }
    carry_out(&order, method, &cpus, &mut rendezvous)?;
    rendezvous.answer(&Answer::Done { id: order.id })
}

/// Keeps standard output for answers alone: whatever else the process prints goes to the errors.
fn private_output() -> Result<std::fs::File, Failure> {
    let answers = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)
        .map_err(|e| Failure::failed(format!("standard output: {e}")))?;
    // SAFETY: both descriptors are open; dup2 replaces 1 with a copy of 2.
    if unsafe { libc::dup2(std::io::stderr().as_raw_fd(), 1) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(answers.into())
}

fn requests() -> mpsc::Receiver<Request> {
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        while let Ok(Some(request)) = receive(&mut input) {
            if sender.send(request).is_err() {
                break;
            }
        }
    });
    receiver
}

fn carry_out(
    order: &Order,
    method: &dyn AnyMethod,
    cpus: &[usize],
    rendezvous: &mut Rendezvous,
) -> Result<(), Failure> {
    let mut probe = method.probe();
    let allowed = |point| option::check_point(method, point, &order.options);
    for ordered in &order.points {
        for attempt in order.attempt..=MAX_ATTEMPTS {
            let mut sample = blank(order, ordered, attempt);
            let begun = Instant::now();
            let outcome = match &mut probe {
                Ok(probe) => allowed(&ordered.point)
                    .and_then(|()| {
                        measured(order, ordered, cpus, rendezvous, &mut **probe, &mut sample)
                    })
                    .and_then(|()| timeless_where_emulated(method, &sample)),
                Err(failure) => Err(failure.clone()),
            };
            if outcome.is_err() {
                sample.values.clear();
                sample.histograms.clear();
            }
            sample.seconds = begun.elapsed().as_secs_f64();
            sample.error = outcome.err();
            let last = order.is_last(&sample);
            let answered = Answered { order: order.id, role: order.role.clone(), sample };
            rendezvous.answer(&Answer::Sample(Box::new(answered)))?;
            if last {
                break;
            }
        }
    }
    Ok(())
}

/// The time-stamp counter, or why no time may be taken here.
fn counter(order: &Order) -> Result<&'static Tsc, Failure> {
    if machine::cpu::emulated() {
        return Err(emulated());
    }
    order.host.tsc.map_or_else(Tsc::get, Tsc::known).map_err(|why| {
        Failure::unavailable(why.to_string(), "use a machine with an invariant time-stamp counter")
    })
}

fn emulated() -> Failure {
    Failure::unavailable(
        "this CPU is emulated, and emulated time is never a cost",
        "run on real hardware or under hardware virtualisation",
    )
}

/// Lets counts pass from an emulated CPU, and nothing with a time in it.
fn timeless_where_emulated(method: &dyn AnyMethod, sample: &Sample) -> Result<(), Failure> {
    let timed = |metric: &Metric| sample.values.contains_key(metric.name) && metric.is_timed();
    let emits = !sample.histograms.is_empty() || method.metrics().iter().any(timed);
    if machine::cpu::emulated() && emits { Err(emulated()) } else { Ok(()) }
}

/// A sample of an order's point before anything is measured.
pub(crate) fn blank(order: &Order, ordered: &Ordered, attempt: u32) -> Sample {
    Sample {
        experiment: format!("{}/{}", order.suite, order.experiment),
        point: ordered.point.clone(),
        twin: ordered.twin,
        round: order.round,
        position: ordered.position,
        attempt,
        at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64()),
        ..Sample::default()
    }
}

fn measured(
    order: &Order,
    ordered: &Ordered,
    cpus: &[usize],
    rendezvous: &mut Rendezvous,
    probe: &mut dyn Probe,
    sample: &mut Sample,
) -> Result<(), Failure> {
    let tsc = counter(order);
    let name = format!("{} {} {}", ordered.point, order.round, ordered.twin);
    let mut context = Context {
        budget: order.budget,
        round: order.round,
        seed: seed_of(&name, order.seed),
        cpus,
        tsc: tsc.clone(),
        role: &order.role,
        inside: order.inside,
        options: &order.options,
        artefacts: &order.host.artefacts,
        rendezvous,
    };
    let tsc = tsc.ok();
    let noise = Noise::snapshot();
    let before = tsc.map(|_| core_clock()).transpose()?;
    let begun = Instant::now();
    let outcome = counting(probe.measure(&mut context, &ordered.point));
    let took = begun.elapsed();
    let after = tsc.map(|_| core_clock()).transpose()?;
    let noise = Noise::snapshot().since(&noise);
    let measurement = outcome?;
    if let Some((metric, value)) = measurement.values.iter().find(|(_, value)| !value.is_finite()) {
        return Err(Failure::check(format!("'{metric}' came out as {value}")));
    }
    let is_guess = [before, after].iter().flatten().any(|clock| !clock.is_known);
    let guessed = || is_guess.then(|| UNKNOWN_LATENCIES.to_owned());
    let clock = tsc.zip(before.zip(after)).map(|(tsc, (before, after))| Clock {
        tsc_hertz: tsc.hertz,
        tsc_step: tsc.step,
        tsc_overhead: tsc.overhead,
        core_before: before.hertz,
        core_after: after.hertz,
        second_before: Some(before.second_hertz),
        second_after: Some(after.second_hertz),
    });
    let disturbance = || disturbed(clock.as_ref(), &noise, took);
    sample.void = measurement.void.clone().or_else(guessed).or_else(disturbance);
    fill(sample, measurement);
    sample.clock = clock;
    sample.noise = Some(noise);
    Ok(())
}

/// Turns the failure of a try that does not count into a void sample, which is tried again.
fn counting(outcome: Result<Measurement, Failure>) -> Result<Measurement, Failure> {
    match outcome {
        Err(failure) if failure.kind == FailureKind::Void => {
            Ok(Measurement { void: Some(failure.why), ..Measurement::default() })
        }
        outcome => outcome,
    }
}

/// Why a sample does not count. By how much stands in its clock and noise.
fn disturbed(
    clock: Option<&Clock>,
    noise: &machine::noise::NoiseDelta,
    took: std::time::Duration,
) -> Option<String> {
    // The kernel counts in steps: one step more may be next to nothing that was stolen.
    let step = machine::noise::steal_step().as_nanos() as f64;
    // Steal that is unknown voids nothing.
    let stolen = noise.steal_ns.map_or(0.0, |steal| steal as f64 - step);
    let stolen = stolen / (took.as_nanos().max(1) as f64);
    clock.and_then(Clock::void).or_else(|| over(stolen, STOLEN, "the host took"))
}

fn core_clock() -> Result<core_clock::CoreClock, Failure> {
    core_clock::calibrate().map_err(|why| Failure::failed(format!("the core clock: {why}")))
}

fn fill(sample: &mut Sample, measurement: Measurement) {
    sample.values = measurement.values;
    sample.histograms = measurement.histograms;
    sample.covariates = measurement.covariates;
    sample.trials = measurement.trials;
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::noise::NoiseDelta;
    use std::time::Duration;

    fn clock(before: f64, after: f64) -> Clock {
        Clock {
            tsc_hertz: 1e9,
            tsc_step: 1,
            tsc_overhead: 1,
            core_before: before,
            core_after: after,
            second_before: Some(before),
            second_after: Some(after),
        }
    }

    #[test]
    fn a_moved_clock_or_a_stolen_cpu_voids() {
        let took = Duration::from_millis(10);
        let calm = NoiseDelta::default();
        assert_eq!(disturbed(Some(&clock(4e9, 4.01e9)), &calm, took), None);
        let moved = clock(4e9, 3.5e9);
        assert!(disturbed(Some(&moved), &calm, took).unwrap().contains("moved by over 3%"));
        let stolen =
            |ms: u64| NoiseDelta { steal_ns: Some(ms * 1_000_000), ..NoiseDelta::default() };
        assert_eq!(disturbed(None, &stolen(20), took).unwrap(), "the host took over 5%");
        // One step of the kernel's count may be one nanosecond that was stolen.
        assert_eq!(disturbed(None, &stolen(10), took), None);
        // Of a second, two steps prove a hundredth, seven six hundredths.
        let second = Duration::from_secs(1);
        assert_eq!(disturbed(None, &stolen(20), second), None);
        assert!(disturbed(None, &stolen(70), second).is_some());
        let unknown = NoiseDelta { steal_ns: None, ..NoiseDelta::default() };
        assert_eq!(disturbed(None, &unknown, took), None);
    }

    #[test]
    fn a_doubtful_clock_inside_a_sample_voids_it() {
        use machine::core_clock::Doubtful;
        let void = |doubtful: Doubtful| counting(Err(doubtful.into())).unwrap().void.unwrap();
        // By how much they differ is in no cause, so that causes can be counted.
        assert_eq!(void(Doubtful::Differ(0.031)), void(Doubtful::Differ(0.5)));
        assert!(void(Doubtful::Differ(0.5)).contains("differ by over 2%"));
        assert_eq!(void(Doubtful::NotLearnt), UNKNOWN_LATENCIES);
        let failed = Failure::failed("it broke");
        assert_eq!(counting(Err(failed.clone())), Err(failed));
    }

    #[test]
    fn chains_that_differ_void_before_or_after() {
        let took = Duration::from_millis(10);
        let void = |clock: Clock| disturbed(Some(&clock), &NoiseDelta::default(), took);
        let agreed = clock(4e9, 4e9);
        let near = Clock { second_before: Some(4.07e9), ..agreed };
        assert_eq!(void(near), None);
        for apart in [
            Clock { second_before: Some(4.1e9), ..agreed },
            Clock { second_after: Some(3.9e9), ..agreed },
        ] {
            let why = void(apart).unwrap();
            assert_eq!(why, "the two fastest chains of the core clock differ by over 2%");
        }
        // One chain alone proves nothing, and disproves nothing.
        let alone = Clock { second_before: None, second_after: None, ..agreed };
        assert_eq!(void(alone), None);
    }
}
