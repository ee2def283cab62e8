//! Checks of the sample that a worker or probe sends: whether it can be journalled.

use std::collections::BTreeMap;

use crate::histogram::decode_histogram;
use crate::metric::Metric;
use crate::point::Level;
use crate::proximity::ROUND_TRIP;
use crate::sample::{Failure, GUEST, MAX_ATTEMPTS, POSSIBLE_HERTZ, Part, Sample};
use crate::search::DURATION;
use crate::terminal::one_line;

/// Maximum length of a text in a sample, in characters: a reason, or the level of a covariate.
const MAX_TEXT: usize = 400;
/// Maximum length of the name of a covariate or of a role, in characters.
const MAX_NAME: usize = 60;
/// Maximum number of covariates of a sample or of a part.
const MAX_COVARIATES: usize = 100;
/// How much longer than the sample a time may be: the clocks of the two are different.
const CLOCK_DIFFERENCE: f64 = 1.1;
/// Time by which it may be longer in any case, in seconds.
const CLOCK_STEP: f64 = 0.01;
/// Maximum number of values of a trial. Suites do not declare them.
const MAX_TRIAL_VALUES: usize = 100;
/// Maximum of any value, whatever its unit: above it only a wrong calculation is.
const MAX_VALUE: f64 = 1e24;

/// Permitted content of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permitted<'m> {
    /// The metrics of its method.
    pub(crate) metrics: &'m [Metric],
    /// Whether no time is measured where the worker runs, whatever the worker sends.
    pub(crate) lacks_time: bool,
    /// Whether it may have no value: as the part of a role, others of which have values.
    pub(crate) may_be_empty: bool,
}

/// Returns the sample as it can be journalled. Invalid contents are dropped and make it an error of its point; a void
/// sample that will be repeated stays void, so that its point gets one final row.
pub(crate) fn checked(mut sample: Sample, permitted: Permitted) -> Sample {
    if permitted.lacks_time {
        without_times_of_noise(&mut sample);
    }
    shorten_texts(&mut sample);
    if let Err(why) = check_contents(&sample, permitted) {
        sample.values.clear();
        sample.histograms.clear();
        sample.trials.clear();
        sample.covariates.clear();
        sample.parts.clear();
        sample.clock = None;
        for number in [&mut sample.seconds, &mut sample.at] {
            *number = if number.is_finite() { number.max(0.0) } else { 0.0 };
        }
        match &mut sample.void {
            Some(void) if sample.error.is_none() && sample.attempt < MAX_ATTEMPTS => {
                void.push_str(&format!("; {why}"));
            }
            _ => {
                sample.void = None;
                sample.error.get_or_insert(Failure::check(why));
            }
        }
    }
    sample
}

/// Shortens the reasons of a sample, which tables and messages repeat.
fn shorten_texts(sample: &mut Sample) {
    let of_trials = sample.trials.iter_mut().filter_map(|trial| trial.void.as_mut());
    let of_error = sample.error.iter_mut().flat_map(|Failure { why, cause, remedy, .. }| {
        std::iter::once(why).chain(cause.as_mut()).chain(remedy.as_mut())
    });
    for text in of_error.chain(sample.void.as_mut()).chain(of_trials) {
        if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
            text.truncate(end);
            text.push('…');
        }
    }
}

/// Removes the times from the counts of disturbances.
fn without_times_of_noise(sample: &mut Sample) {
    let parts = sample.parts.values_mut().filter_map(|part| part.noise.as_mut());
    for noise in sample.noise.iter_mut().chain(parts) {
        (noise.steal_ns, noise.waited_ns) = (None, None);
    }
}

/// Returns what in a sample is a time or derives from one; `None` without any. The duration of the sample itself is no
/// measurement.
pub(crate) fn time_in(sample: &Sample, metrics: &[Metric]) -> Option<String> {
    let is_timed = |name: &str| metrics.iter().any(|one| one.name == name && one.is_timed());
    let of_parts = || sample.parts.values();
    let mut values = sample.values.keys().chain(of_parts().flat_map(|part| part.values.keys()));
    let mut covariates =
        sample.covariates.iter().chain(of_parts().flat_map(|part| &part.covariates));
    let covariate = |(name, _): &(&String, &Level)| name.as_str() == ROUND_TRIP;
    // The levels of trials with a duration are loads.
    let mut of_trials = sample.trials.iter().flat_map(|trial| trial.values.keys());
    let first = || sample.histograms.keys().next();
    if let Some(name) = values.find(|name| is_timed(name)).or_else(first) {
        Some(format!("'{name}'"))
    } else if let Some((name, _)) = covariates.find(covariate) {
        Some(format!("the covariate '{name}'"))
    } else if let Some(name) = of_trials.find(|name| is_timed(name) || *name == DURATION) {
        Some(format!("'{name}' of a trial"))
    } else {
        let of_parts = of_parts().find_map(|part| part.clock);
        sample.clock.or(of_parts).map(|_| "a clock".into())
    }
}

fn check_contents(sample: &Sample, permitted: Permitted) -> Result<(), String> {
    let Permitted { metrics, lacks_time, may_be_empty } = permitted;
    let declared = |name: &str| {
        metrics.iter().find(|metric| metric.name == name).ok_or_else(|| {
            let name: String = name.chars().take(60).collect();
            format!("'{name}' is not a metric of its method")
        })
    };
    let finite = |what: &str, value: f64| match value.is_finite() {
        true => Ok(()),
        false => Err(format!("'{what}' is {value}")),
    };
    if let Some(time) = time_in(sample, metrics).filter(|_| lacks_time) {
        return Err(format!("{time} is a time, and the CPU that sent it is emulated"));
    }
    let is_settled = sample.error.is_none() && sample.void.is_none();
    if is_settled && sample.values.is_empty() && !may_be_empty {
        return Err("it has no value".into());
    }
    check_parts(&sample.parts)?;
    let of_parts = sample.parts.values().flat_map(|part| &part.values);
    for (metric, value) in sample.values.iter().chain(of_parts) {
        let declared = declared(metric)?;
        finite(metric, *value)?;
        if *value < 0.0 && !declared.may_be_negative() {
            return Err(format!("'{metric}' is {value}, which is below zero"));
        }
        check_size(declared, *value, sample.seconds)?;
    }
    for covariates in all_covariates(sample) {
        check_covariates(covariates)?;
    }
    for (metric, text) in &sample.histograms {
        declared(metric)?;
        decode_histogram(text).map_err(|why| format!("the histogram '{metric}' is {why}"))?;
    }
    for trial in &sample.trials {
        finite("a trial's level", trial.level)?;
        if trial.values.len() > MAX_TRIAL_VALUES {
            return Err(format!("a trial has {} values", trial.values.len()));
        }
        check_names(trial.values.keys(), "a value of a trial")?;
        trial.values.iter().try_for_each(|(name, value)| finite(name, *value))?;
    }
    sample.check_ranges()
}

/// Largest possible time in seconds: a value may be a moment since the start of the machine.
const MAX_TIME: f64 = 100.0 * 365.0 * 86400.0;

/// Checks that a value is possible. A time may be negative by an error of the clock, but not by more than the sample took.
fn check_size(metric: &Metric, value: f64, seconds: f64) -> Result<(), String> {
    let Metric { name, unit, .. } = metric;
    let per_second = match *unit {
        "ns" => 1e9,
        "us" => 1e6,
        "ticks" | "cycles" => *POSSIBLE_HERTZ.end(),
        _ if value.abs() > MAX_VALUE => return Err(format!("'{name}' is {value:e}")),
        _ => return Ok(()),
    };
    let lowest = -(seconds * CLOCK_DIFFERENCE + CLOCK_STEP) * per_second;
    match !(lowest..=MAX_TIME * per_second).contains(&value) {
        true => Err(format!("'{name}' is {value:e} {unit}, and the sample took {seconds} s")),
        false => Ok(()),
    }
}

/// Returns the covariates of a sample and of its parts.
fn all_covariates(sample: &Sample) -> impl Iterator<Item = &BTreeMap<String, Level>> {
    let of_parts = sample.parts.values().map(|part| &part.covariates);
    std::iter::once(&sample.covariates).chain(of_parts)
}

/// Checks the parts of a worker's sample: those of roles are samples of their own, so it may have that of a guest only.
fn check_parts(parts: &BTreeMap<String, Part>) -> Result<(), String> {
    if let Some(name) = parts.keys().find(|name| *name != GUEST) {
        let start: String = name.chars().take(MAX_NAME).collect();
        return Err(format!("'{}' is no part of one worker's sample", one_line(&start)));
    }
    let is_long = |text: &str| text.chars().count() > MAX_TEXT;
    match parts.values().any(|part| is_long(&part.host) || is_long(&part.environment)) {
        true => Err("the host or environment of a part is too long".into()),
        false => Ok(()),
    }
}

/// Checks that names are short and have no special characters.
fn check_names<'n>(names: impl Iterator<Item = &'n String>, of: &str) -> Result<(), String> {
    let is_name = |name: &str| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '/');
        name.chars().all(is_part) && name.chars().count() <= MAX_NAME
    };
    let mut names = names;
    match names.find(|name| !is_name(name)) {
        Some(name) => {
            let start: String = name.chars().take(MAX_NAME).collect();
            Err(format!("'{}' is no name of {of}", one_line(&start)))
        }
        None => Ok(()),
    }
}

/// Checks the number and the lengths of covariates. Suites do not declare them.
fn check_covariates(covariates: &BTreeMap<String, Level>) -> Result<(), String> {
    if covariates.len() > MAX_COVARIATES {
        return Err(format!("it has {} covariates", covariates.len()));
    }
    check_names(covariates.keys(), "a covariate")?;
    let is_long = |level: &Level| level.to_string().chars().count() > MAX_TEXT;
    match covariates.iter().find(|(_, level)| is_long(level)) {
        Some((name, _)) => Err(format!("the covariate '{name}' is too long")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Better;
    use crate::sample::{Clock, FailureKind, Trial};
    use machine::noise::NoiseDelta;

    const METRICS: [Metric; 4] = [
        Metric::time("time", ""),
        Metric::count("calls", ""),
        Metric::count("ratio", "").from_time(),
        Metric::count("difference", "").signed(),
    ];

    const PERMITTED: Permitted =
        Permitted { metrics: &METRICS, lacks_time: false, may_be_empty: false };

    fn sample(attempt: u32) -> Sample {
        Sample { attempt, ..Sample::default() }
    }

    #[test]
    fn a_void_sample_with_invalid_contents_is_an_error_at_its_last_attempt() {
        let wrong = |attempt| Sample {
            values: [("speed".to_string(), 1.0)].into(),
            void: Some("a stall".into()),
            ..sample(attempt)
        };
        for attempt in 1..MAX_ATTEMPTS {
            let void = checked(wrong(attempt), PERMITTED);
            assert!(void.error.is_none() && void.values.is_empty() && !void.is_final(), "{void:?}");
            assert_eq!(void.void.unwrap(), "a stall; 'speed' is not a metric of its method");
        }
        let last = checked(wrong(MAX_ATTEMPTS), PERMITTED);
        assert!(
            last.void.is_none() && last.error.unwrap().why.starts_with("'speed' is not a metric")
        );
    }

    #[test]
    fn invalid_contents_are_an_error_of_their_point() {
        let fine = Sample { values: [("time".to_string(), 1.0)].into(), ..sample(1) };
        assert_eq!(checked(fine.clone(), PERMITTED), fine);
        // An overhead is subtracted from times.
        let negative = [("time".into(), -1.0), ("difference".into(), -0.5)].into();
        let negative = Sample { values: negative, ..fine.clone() };
        assert_eq!(checked(negative.clone(), PERMITTED), negative);
        let clock = Clock {
            tsc_hertz: 1e9,
            core_before: 1e9,
            core_after: 1e9,
            second_after: Some(f64::NAN),
            ..Clock::default()
        };
        let trial = |level| Trial { level, holds: None, void: None, values: Default::default() };
        let wrong: [(Sample, &str); 9] = [
            (Sample { values: [("calls".into(), -3.0)].into(), ..fine.clone() }, "below zero"),
            (
                Sample { values: [("speed".into(), 1.0)].into(), ..fine.clone() },
                "'speed' is not a metric",
            ),
            (Sample { values: [("time".into(), f64::NAN)].into(), ..fine.clone() }, "is NaN"),
            (
                Sample { histograms: [("time".into(), "@".into())].into(), ..fine.clone() },
                "not base64",
            ),
            (
                Sample { histograms: [("time".into(), "AAAA".into())].into(), ..fine.clone() },
                "not an HdrHistogram",
            ),
            (
                Sample { histograms: [("x".into(), "".into())].into(), ..fine.clone() },
                "not a metric",
            ),
            (Sample { trials: vec![trial(f64::INFINITY)], ..fine.clone() }, "level' is inf"),
            (Sample { seconds: 1e300, ..fine.clone() }, "'seconds' is"),
            (Sample { clock: Some(clock), ..fine.clone() }, "a clock is NaN Hz"),
        ];
        for (sample, expected) in wrong {
            let sample = checked(sample, PERMITTED);
            let error = sample.error.unwrap();
            assert_eq!(error.kind, FailureKind::Check);
            assert!(error.why.contains(expected), "{error}");
            assert_eq!(sample.point, fine.point);
            assert!(sample.values.is_empty() && sample.histograms.is_empty());
        }
    }

    #[test]
    fn impossible_times_and_values_are_refused() {
        const CYCLES: Metric = Metric::new("cycles", "cycles", Better::Lower, "");
        const RATE: Metric = Metric::new("rate", "B/s", Better::Higher, "");
        let metrics = [METRICS[0], CYCLES, RATE];
        let permitted = Permitted { metrics: &metrics, ..PERMITTED };
        let refused = |name: &str, value: f64| {
            let values = [(name.to_owned(), value)].into();
            let sample = checked(Sample { values, seconds: 0.002, ..sample(1) }, permitted);
            assert_eq!(sample.values.is_empty(), sample.error.is_some());
            sample.error.map(|error| error.why)
        };
        for (name, value) in [("time", 2e6), ("time", -20.0), ("cycles", 1e7), ("rate", 1e13)] {
            assert_eq!(refused(name, value), None, "{name} {value}");
        }
        for (name, value) in
            [("time", -4.6e10), ("time", 1.7e308), ("cycles", -1e13), ("rate", 1.7e308)]
        {
            assert!(refused(name, value).is_some(), "{name} {value}");
        }
        assert_eq!(
            refused("time", -4.6e10).as_deref(),
            Some("'time' is -4.6e10 ns, and the sample took 0.002 s")
        );
    }

    #[test]
    fn texts_and_covariates_are_limited() {
        let long = "ü".repeat(3_000_000);
        let failure = Failure::unavailable(long.clone(), long.clone()).with_cause(long.clone());
        let error = checked(Sample { error: Some(failure), ..sample(1) }, PERMITTED).error.unwrap();
        assert_eq!(error.why.chars().count(), MAX_TEXT + 1);
        assert!(error.why.ends_with("ü…") && error.to_string().len() < 5 * MAX_TEXT);
        assert!(error.cause().len() < 3 * MAX_TEXT);
        let void = checked(Sample { void: Some(long.clone()), ..sample(1) }, PERMITTED).void;
        assert_eq!(void.unwrap().chars().count(), MAX_TEXT + 1);
        let with = |covariates: BTreeMap<String, Level>| {
            let values = [("time".to_string(), 1.0)].into();
            checked(Sample { values, covariates, ..sample(1) }, PERMITTED)
        };
        let of = |count: usize| (0..count).map(|at| (format!("k{at}"), Level::from("1"))).collect();
        assert_eq!(with(of(MAX_COVARIATES)).covariates.len(), MAX_COVARIATES);
        for wrong in [
            of(MAX_COVARIATES + 1),
            [("k\u{1b}[2J".to_owned(), Level::from("1"))].into(),
            ["k".repeat(MAX_NAME + 1)].map(|name| (name, Level::from("1"))).into(),
            [("k".to_owned(), Level::from(long.as_str()))].into(),
        ] {
            let sample = with(wrong);
            assert!(sample.covariates.is_empty());
            let why = sample.error.unwrap().why;
            assert!(why.contains("covariate") && !why.contains('\u{1b}'), "{why}");
        }
    }

    #[test]
    fn parts_and_trials_of_a_worker_are_limited() {
        let values = || BTreeMap::from([("time".to_owned(), 1.0)]);
        let fine = Sample { values: values(), ..sample(1) };
        let with_part = |name: &str, part: Part| {
            checked(Sample { parts: [(name.to_owned(), part)].into(), ..fine.clone() }, PERMITTED)
        };
        let part = || Part { values: values(), ..Part::default() };
        assert_eq!(with_part("guest", part()).error, None);
        let long = Part { host: "x".repeat(MAX_TEXT + 1), ..part() };
        let clock = Part { clock: Some(Clock::default()), ..part() };
        for (name, part) in
            [("dut", part()), ("\u{1b}[2J", part()), ("guest", long), ("guest", clock)]
        {
            let refused = with_part(name, part);
            let why = refused.error.unwrap().why;
            assert!(refused.parts.is_empty() && !why.contains('\u{1b}'), "{why}");
        }
        let with_values = |values: BTreeMap<String, f64>| {
            let trial = Trial { level: 1.0, holds: None, void: None, values };
            checked(Sample { trials: vec![trial], ..fine.clone() }, PERMITTED).error
        };
        let many = |count| (0..count).map(|at| (format!("v{at}"), 1.0)).collect();
        assert_eq!(with_values(many(MAX_TRIAL_VALUES)), None);
        assert!(with_values(many(MAX_TRIAL_VALUES + 1)).is_some());
        assert!(with_values([("a\nb".to_owned(), 1.0)].into()).is_some());
    }

    #[test]
    fn whatever_an_emulated_cpu_sends_no_time_is_journalled() {
        let values = |name: &str| BTreeMap::from([(name.to_owned(), 1.0)]);
        let counts = Sample { values: values("calls"), ..sample(1) };
        let trial = |name| Trial { level: 1.0, holds: None, void: None, values: values(name) };
        let counts = Sample { trials: vec![trial("nulls")], ..counts };
        let covariates = BTreeMap::from([(ROUND_TRIP.to_owned(), Level::from("98.1"))]);
        let clock = Clock { tsc_hertz: 1e9, core_before: 1e9, core_after: 1e9, ..Clock::default() };
        let histograms = BTreeMap::from([("calls".to_owned(), String::new())]);
        let part = |part: Part| BTreeMap::from([("guest".to_owned(), part)]);
        let lacking = Permitted { lacks_time: true, ..PERMITTED };
        for (sample, time) in [
            (Sample { values: values("time"), ..counts.clone() }, "'time'"),
            (Sample { values: values("ratio"), ..counts.clone() }, "'ratio'"),
            (Sample { histograms, ..counts.clone() }, "'calls'"),
            (Sample { clock: Some(clock), ..counts.clone() }, "a clock"),
            (Sample { trials: vec![trial("time")], ..counts.clone() }, "'time' of a trial"),
            (Sample { trials: vec![trial(DURATION)], ..counts.clone() }, "'duration' of a trial"),
            (
                Sample { covariates: covariates.clone(), ..counts.clone() },
                "the covariate 'round_trip_ns'",
            ),
            (
                Sample {
                    parts: part(Part { values: values("time"), ..Part::default() }),
                    ..counts.clone()
                },
                "'time'",
            ),
            (
                Sample { parts: part(Part { covariates, ..Part::default() }), ..counts.clone() },
                "the covariate 'round_trip_ns'",
            ),
        ] {
            assert_eq!(time_in(&sample, &METRICS).as_deref(), Some(time));
            let refused = checked(sample, lacking);
            let failure = refused.error.as_ref().unwrap();
            assert_eq!(failure.kind, FailureKind::Check);
            let expected = format!("{time} is a time, and the CPU that sent it is emulated");
            assert_eq!(failure.why, expected);
            assert_eq!(time_in(&refused, &METRICS), None, "{refused:?}");
        }
        assert_eq!(checked(counts.clone(), lacking), counts);
        let noise = NoiseDelta { waited_ns: Some(5), steal_ns: Some(5), ..NoiseDelta::default() };
        let noisy = Sample { noise: Some(noise), ..counts };
        assert_eq!(checked(noisy, lacking).noise, Some(NoiseDelta::default()));
    }

    #[test]
    fn a_valid_sample_has_a_value_unless_another_role_may_have_it() {
        let empty = sample(1);
        let failure = checked(empty.clone(), PERMITTED).error.unwrap();
        assert_eq!(failure, Failure::check("it has no value"));
        let of_role = Permitted { may_be_empty: true, ..PERMITTED };
        assert_eq!(checked(empty.clone(), of_role), empty);
        let void = Sample { void: Some("a stall".into()), ..empty };
        assert_eq!(checked(void.clone(), PERMITTED), void);
    }
}
