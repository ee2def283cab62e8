//! The probe: a fresh process that executes one order and exits.

use std::io::{BufReader, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use machine::core_clock::{self, CoreClock};
use machine::issue_rate;
use machine::noise::Noise;
use machine::timed_code;
use machine::tsc::Tsc;

use crate::answer::time_in;
use crate::measure::{Context, Measurement};
use crate::message::{
    Answer, CodeAnswer, Order, OrderedPoint, QUEUE_LENGTH, Rendezvous, Request, SampleAnswer,
    receive,
};
use crate::method::{AnyMethod, Probe};
use crate::metric::Metric;
use crate::option;
use crate::plan::seed_of;
use crate::sample::{Clock, Failure, FailureKind, MAX_ATTEMPTS, Sample, UNKNOWN_LATENCIES, over};
use crate::suite::{self, Suite};
use crate::timed_code::encode;

/// The maximum steal time on the CPUs of a sample, as a share of its duration; above it the sample is void.
const MAX_STEAL: f64 = 0.05;

/// Executes the order on standard input; returns the exit status.
pub fn main(suites: &[&Suite]) -> i32 {
    match serve(suites) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(crate::terminal::stderr(), "{failure}");
            1
        }
    }
}

fn serve(suites: &[&Suite]) -> Result<(), Failure> {
    let answers = redirect_output()?;
    let mut rendezvous = Rendezvous::new(requests(), Box::new(answers));
    let Some(Request::Order(order)) = rendezvous.request() else {
        return Err(Failure::failed("a probe requires an order on its standard input"));
    };
    let method =
        suite::find_method(suites, &order.suite, &order.method).map_err(Failure::failed)?;
    let mut cpus = machine::topology::allowed_cpus();
    // The last CPU first, because the first CPUs serve most interrupts.
    cpus.reverse();
    if let Some(&cpu) = cpus.first() {
        machine::pin::pin_to(cpu)?;
    }
    execute(&order, method, &cpus, &mut rendezvous)?;
    rendezvous.answer(&Answer::Done { id: order.id })
}

/// Returns a private copy of standard output for answers, and redirects standard output to standard error for
/// everything else that the process prints.
fn redirect_output() -> Result<std::fs::File, Failure> {
    let answers = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)
        .map_err(|e| Failure::failed(format!("standard output: {e}")))?;
    // SAFETY: `dup2` takes two integers; both descriptors are open, and descriptor 1 is owned by no Rust object that
    // closes it.
    if unsafe { libc::dup2(std::io::stderr().as_raw_fd(), 1) } < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(answers.into())
}

fn requests() -> mpsc::Receiver<Request> {
    let (sender, receiver) = mpsc::sync_channel(QUEUE_LENGTH);
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

fn execute(
    order: &Order,
    method: &dyn AnyMethod,
    cpus: &[usize],
    rendezvous: &mut Rendezvous,
) -> Result<(), Failure> {
    let mut probe = method.probe();
    let allowed = |point| option::check_point(method, point, &order.options);
    for ordered in &order.points {
        for attempt in order.attempt..=MAX_ATTEMPTS {
            let mut sample = empty_sample(order, ordered, attempt);
            let start = Instant::now();
            if order.round == 0 {
                timed_code::collect();
            }
            let outcome = match &mut probe {
                Ok(probe) => allowed(&ordered.point)
                    .and_then(|()| {
                        let clocked = has_times(method);
                        let probe = &mut **probe;
                        measure(order, ordered, cpus, rendezvous, probe, clocked, &mut sample)
                    })
                    .and_then(|()| check_emulation(method, &sample)),
                Err(failure) => Err(failure.clone()),
            };
            if outcome.is_err() {
                sample.values.clear();
                sample.histograms.clear();
                sample.covariates.clear();
                sample.trials.clear();
            }
            sample.seconds = start.elapsed().as_secs_f64();
            send_code(order, ordered, rendezvous)?;
            sample.error = outcome.err();
            let is_last = order.is_last(&sample);
            let answer = SampleAnswer { order: order.id, role: order.role.clone(), sample };
            rendezvous.answer(&Answer::Sample(Box::new(answer)))?;
            if is_last {
                break;
            }
        }
    }
    Ok(())
}

/// Sends the generated code that a sample timed, if it was collected: outside of all samples.
fn send_code(
    order: &Order,
    ordered: &OrderedPoint,
    rendezvous: &mut Rendezvous,
) -> Result<(), Failure> {
    let (loops, omitted) = encode(&timed_code::take());
    if loops.is_empty() && omitted == 0 {
        return Ok(());
    }
    let (role, point) = (order.role.clone(), ordered.point.clone());
    let code = CodeAnswer { order: order.id, role, point, loops, omitted };
    rendezvous.answer(&Answer::Code(Box::new(code)))
}

/// Returns the time-stamp counter; fails on an emulated CPU.
fn counter(order: &Order) -> Result<&'static Tsc, Failure> {
    if machine::cpu::lacks_time() {
        return Err(emulated());
    }
    let counter = order.host.counter.as_ref();
    Ok(counter.map_or_else(Tsc::get, |counter| Tsc::known(counter.tsc))?)
}

fn emulated() -> Failure {
    Failure::unavailable(
        "this CPU is emulated, so its times are meaningless",
        "run on real hardware or under hardware virtualisation",
    )
}

/// Returns whether the samples of a method may contain times. Counts do not depend on the clock, on a busy sibling or on
/// steal time.
fn has_times(method: &dyn AnyMethod) -> bool {
    method.metrics().iter().any(Metric::is_timed)
}

/// Refuses samples with times from an emulated CPU; counts are valid.
fn check_emulation(method: &dyn AnyMethod, sample: &Sample) -> Result<(), Failure> {
    let is_refused = machine::cpu::lacks_time() && time_in(sample, method.metrics()).is_some();
    if is_refused { Err(emulated()) } else { Ok(()) }
}

/// Returns an empty sample of an ordered point.
pub(crate) fn empty_sample(order: &Order, ordered: &OrderedPoint, attempt: u32) -> Sample {
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

/// Measures one sample and records its noise and, if it is `clocked`, its clock.
fn measure(
    order: &Order,
    ordered: &OrderedPoint,
    cpus: &[usize],
    rendezvous: &mut Rendezvous,
    probe: &mut dyn Probe,
    clocked: bool,
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
    let tsc = tsc.ok().filter(|_| clocked);
    let noise = Noise::snapshot();
    let before = tsc.map(core_state).transpose()?;
    let start = Instant::now();
    let outcome = void_as_sample(probe.measure(&mut context, &ordered.point));
    let duration = start.elapsed();
    let after = tsc.map(core_state).transpose()?;
    let noise = Noise::snapshot().since(&noise);
    let measurement = outcome?;
    if let Some((metric, value)) = measurement.values.iter().find(|(_, value)| !value.is_finite()) {
        return Err(Failure::check(format!("'{metric}' is {value}")));
    }
    let is_guessed = [before, after].iter().flatten().any(|(clock, _)| !clock.is_known);
    let guessed = || is_guessed.then(|| UNKNOWN_LATENCIES.to_owned());
    let clock = tsc.zip(before.zip(after)).map(|(tsc, states)| {
        let ((before, issue_before), (after, issue_after)) = states;
        Clock {
            tsc_hertz: tsc.hertz,
            tsc_step: tsc.step,
            tsc_overhead: tsc.overhead,
            core_before: before.hertz,
            core_after: after.hertz,
            second_before: Some(before.second_hertz),
            second_after: Some(after.second_hertz),
            issue_before: Some(issue_before),
            issue_after: Some(issue_after),
        }
    });
    let disturbance = || disturbed(clock.as_ref(), &noise, duration).filter(|_| clocked);
    sample.void = measurement.void.clone().or_else(guessed).or_else(disturbance);
    fill(sample, measurement);
    sample.clock = clock;
    sample.noise = Some(noise);
    Ok(())
}

/// Turns a failure of kind `Void` into a void sample, which is repeated.
fn void_as_sample(outcome: Result<Measurement, Failure>) -> Result<Measurement, Failure> {
    match outcome {
        Err(failure) if failure.kind == FailureKind::Void => {
            Ok(Measurement { void: Some(failure.why), ..Measurement::default() })
        }
        outcome => outcome,
    }
}

/// Returns why a sample is void; `None` if it is valid. The amounts are in its clock and noise.
fn disturbed(
    clock: Option<&Clock>,
    noise: &machine::noise::NoiseDelta,
    duration: std::time::Duration,
) -> Option<String> {
    // The kernel counts steal time in steps, so that one step may be almost no time.
    let step = machine::noise::steal_step().as_nanos() as f64;
    let steal = noise.steal_ns.map_or(0.0, |steal| steal as f64 - step);
    let steal = steal / (duration.as_nanos().max(1) as f64);
    clock.and_then(Clock::void).or_else(|| over(steal, MAX_STEAL, "steal time"))
}

/// Measures the core clock, and the independent adds per cycle.
fn core_state(tsc: &Tsc) -> Result<(CoreClock, f64), Failure> {
    let clock = core_clock::calibrate();
    let clock = clock.map_err(|why| Failure::failed(format!("the core clock: {why}")))?;
    Ok((clock, issue_rate::measure(tsc, clock.hertz)))
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
            core_before: before,
            core_after: after,
            second_before: Some(before),
            second_after: Some(after),
            ..Clock::default()
        }
    }

    #[test]
    fn a_changed_clock_or_steal_time_voids_a_sample() {
        let duration = Duration::from_millis(10);
        let calm = NoiseDelta::default();
        assert_eq!(disturbed(Some(&clock(4e9, 4.01e9)), &calm, duration), None);
        let moved = clock(4e9, 3.5e9);
        assert!(disturbed(Some(&moved), &calm, duration).unwrap().contains("moved by over 5%"));
        let steal =
            |ms: u64| NoiseDelta { steal_ns: Some(ms * 1_000_000), ..NoiseDelta::default() };
        assert_eq!(disturbed(None, &steal(20), duration).unwrap(), "steal time over 5%");
        // One step of the kernel's count may be one nanosecond of steal time.
        assert_eq!(disturbed(None, &steal(10), duration), None);
        // Within a second, two steps prove 1% of steal time, seven prove 6%.
        let second = Duration::from_secs(1);
        assert_eq!(disturbed(None, &steal(20), second), None);
        assert!(disturbed(None, &steal(70), second).is_some());
        let unknown = NoiseDelta { steal_ns: None, ..NoiseDelta::default() };
        assert_eq!(disturbed(None, &unknown, duration), None);
    }

    #[test]
    fn a_doubtful_clock_voids_a_sample() {
        use machine::core_clock::Doubtful;
        let void = |doubtful: Doubtful| void_as_sample(Err(doubtful.into())).unwrap().void.unwrap();
        // The cause does not contain the difference, so that causes can be counted.
        assert_eq!(void(Doubtful::Differ(0.031)), void(Doubtful::Differ(0.5)));
        assert!(void(Doubtful::Differ(0.5)).contains("differ by over 2%"));
        assert_eq!(void(Doubtful::NotLearnt), UNKNOWN_LATENCIES);
        let failed = Failure::failed("it broke");
        assert_eq!(void_as_sample(Err(failed.clone())), Err(failed));
    }

    #[test]
    fn chains_that_differ_before_or_after_void_a_sample() {
        let duration = Duration::from_millis(10);
        let void = |clock: Clock| disturbed(Some(&clock), &NoiseDelta::default(), duration);
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
        // One chain cannot be compared.
        let single = Clock { second_before: None, second_after: None, ..agreed };
        assert_eq!(void(single), None);
    }
}
