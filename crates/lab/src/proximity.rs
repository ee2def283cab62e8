//! Proximity of the CPUs of a sample: measured before and after it, and classified by all samples of the machine.

use machine::proximity::{self, Class, Proximity};
use machine::topology::Topology;
use schemars::JsonSchema;
use serde::Serialize;

use crate::measure::Measurement;
use crate::point::Level;
use crate::sample::{Failure, Sample};
use crate::statistics::{INTERVAL_ROUNDS, median};

/// Covariate of a sample: the time of a cache line from one of its CPUs to the other and back, in ns.
/// The geometric mean of before and after; absent if these differ too much, or if one is unknown.
pub const ROUND_TRIP: &str = "round_trip_ns";
/// Covariate of a sample whose CPUs are threads of one core; its level is `yes`.
pub const SIBLINGS: &str = "smt_siblings";

/// Maximum factor between the round trips before and after a valid sample, and minimum factor between
/// those of near and those of far cores: a sample during which the class changed is void. Between near
/// cores of a VM with three busy threads per CPU, 2% of 588 successive measurements differed by more.
const MAX_CHANGE: f64 = 1.5;
/// Minimum number of samples of each class.
const MIN_SAMPLES: usize = INTERVAL_ROUNDS;
/// Minimum share of the samples of each class: a disturbance lengthens the round trips of fewer.
const MIN_SHARE: f64 = 0.05;
/// One of so many samples may be between the classes: a disturbance lengthens some round trips.
const BETWEEN: usize = 100;
/// Attempts to measure the proximity, in which the two threads may miss each other on a busy machine.
const MAX_ATTEMPTS: usize = 3;

/// Returns the first CPU and the next CPU on another core; if there is no other core, the second CPU.
///
/// # Errors
/// Returns `unavailable` if there are fewer than two CPUs.
pub fn pair(cpus: &[usize]) -> Result<(usize, usize), Failure> {
    let too_few = || {
        Failure::unavailable(
            format!("two CPUs are needed, and {} may be used", cpus.len()),
            "allow two: taskset, cgroup cpuset, or a machine with more cores",
        )
    };
    let (first, others) = cpus.split_first().ok_or_else(too_few)?;
    let topology = Topology::detect();
    let apart = others.iter().find(|cpu| !topology.siblings(*first).contains(cpu));
    let other = apart.or(others.first()).ok_or_else(too_few)?;
    Ok((*first, *other))
}

/// Measures a sample between two measurements of the proximity of the CPUs. If the proximity is unknown or changed, the
/// sample is void. If both are the same CPU, or emulated, the sample has no proximity.
///
/// # Errors
/// Returns `unavailable` without a usable clock, `failed` if the proximity cannot be measured, or the failure of `measure`.
pub fn between(
    first: usize,
    other: usize,
    measure: impl FnOnce() -> Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    among(first, &[other], measure)
}

/// As [`between`] with several other CPUs; the proximity is that of the furthest.
///
/// # Errors
/// See [`between`].
pub fn among(
    first: usize,
    others: &[usize],
    measure: impl FnOnce() -> Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    let others: Vec<usize> = others.iter().copied().filter(|other| *other != first).collect();
    // The distance of emulated CPUs is that of two threads of the emulator.
    if others.is_empty() || machine::cpu::emulated() {
        return measure();
    }
    let before = furthest(first, &others)?;
    let measurement = measure()?;
    Ok(recorded(measurement, before, furthest(first, &others)?))
}

/// Measures the proximity of the furthest CPU; `None` if that of any CPU is unknown.
fn furthest(first: usize, others: &[usize]) -> Result<Option<Proximity>, Failure> {
    let each: Result<Option<Vec<Proximity>>, Failure> =
        others.iter().map(|other| measured(first, *other)).collect();
    let farther = |a: &Proximity, b: &Proximity| a.round_trip_ns.total_cmp(&b.round_trip_ns);
    Ok(each?.and_then(|each| each.into_iter().max_by(farther)))
}

/// Measures the proximity of two CPUs; `None` if other threads kept them busy.
fn measured(first: usize, other: usize) -> Result<Option<Proximity>, Failure> {
    for _ in 0..MAX_ATTEMPTS {
        match proximity::measure(first, other) {
            Ok(proximity) => return Ok(Some(proximity)),
            Err(proximity::Error::TimedOut(..)) => {}
            Err(proximity::Error::Tsc(why)) => return Err(why.into()),
            Err(why) => return Err(Failure::failed(why.to_string())),
        }
    }
    Ok(None)
}

/// Adds the proximity before and after to a measurement, or makes it void.
fn recorded(
    mut measurement: Measurement,
    before: Option<Proximity>,
    after: Option<Proximity>,
) -> Measurement {
    let (Some(before), Some(after)) = (before, after) else {
        measurement.void = Some("CPUs busy: proximity unknown".into());
        return measurement;
    };
    if (after.round_trip_ns / before.round_trip_ns).ln().abs() > MAX_CHANGE.ln() {
        let why =
            format!("the round trip between the CPUs changed by more than {MAX_CHANGE} times");
        measurement.void = Some(why);
        return measurement;
    }
    let mean = (before.round_trip_ns * after.round_trip_ns).sqrt();
    measurement = measurement.covariate(ROUND_TRIP, format!("{mean:.1}"));
    match before.class {
        Class::Same => measurement.covariate(SIBLINGS, "yes"),
        Class::Near | Class::Middle | Class::Far => measurement,
    }
}

/// How the samples of a machine are classified by the round trip between their CPUs, unless these are SMT siblings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Classes {
    /// All samples are of one class.
    One(Class),
    /// Samples are near with a round trip below one limit, far from another, and in the middle between the two limits,
    /// which are equal if there are two classes.
    Several {
        /// Limit of near cores, ns.
        near_below: f64,
        /// Limit of far cores, ns.
        far_from: f64,
    },
}

impl Classes {
    /// Finds the classes of the valid samples of a machine by the gaps between their round trips. The two sides of a
    /// gap differ by a factor of 1.5 or more. At most 1% of the samples are in it, and at least 6 samples and 5% of them
    /// on each side of it, up to the next gap. The limits are in the middle of the first and the last gap on a
    /// logarithmic scale. Without a gap there is one class: near if the median is below 250 ns.
    pub fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let on_two_cores =
            samples.filter(|sample| sample.is_valid() && !sample.covariates.contains_key(SIBLINGS));
        let mut all: Vec<f64> = on_two_cores.filter_map(round_trip).collect();
        all.sort_unstable_by(f64::total_cmp);
        let min = MIN_SAMPLES.max((MIN_SHARE * all.len() as f64).ceil() as usize);
        let limits = limits(&all, min, all.len() / BETWEEN);
        match (limits.first(), limits.last()) {
            (Some(&near_below), Some(&far_from)) => Self::Several { near_below, far_from },
            _ => Self::One(Class::by_prior_limit(median(&all).unwrap_or_default())),
        }
    }

    /// Returns the class of a sample; `None` if it used one CPU, or if its proximity is unknown.
    pub fn class(&self, sample: &Sample) -> Option<Class> {
        let round_trip = round_trip(sample)?;
        Some(match *self {
            _ if sample.covariates.contains_key(SIBLINGS) => Class::Same,
            Self::One(class) => class,
            Self::Several { near_below, .. } if round_trip < near_below => Class::Near,
            Self::Several { far_from, .. } if round_trip >= far_from => Class::Far,
            Self::Several { .. } => Class::Middle,
        })
    }
}

/// Returns the limits between groups of sorted round trips, in ascending order: divides them at the widest gap, and
/// each side again. Each group has at least `min` round trips, and each gap at most `between`.
fn limits(sorted: &[f64], min: usize, between: usize) -> Vec<f64> {
    let ends = min..=sorted.len().saturating_sub(min + between);
    let ratio = |below: usize| sorted[below + between] / sorted[below - 1];
    let widest = ends.max_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    let Some(below) = widest.filter(|below| ratio(*below) >= MAX_CHANGE) else { return Vec::new() };
    let limit = (sorted[below - 1] * sorted[below + between]).sqrt();
    let (nearer, farther) = (&sorted[..below], &sorted[below + between..]);
    let nearer = limits(nearer, min, between);
    nearer.into_iter().chain([limit]).chain(limits(farther, min, between)).collect()
}

/// Returns the round trip between the CPUs of a sample, in ns.
pub fn round_trip(sample: &Sample) -> Option<f64> {
    sample.covariates.get(ROUND_TRIP).and_then(Level::number).filter(|it| *it > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round_trip: f64) -> Sample {
        let covariates = [(ROUND_TRIP.to_string(), Level::from(round_trip.to_string()))].into();
        Sample { covariates, ..Sample::default() }
    }

    fn classes(round_trips: &[(f64, usize)]) -> Classes {
        let of = |(round_trip, count): &(f64, usize)| {
            let spread = (0..*count).map(|at| 1.0 + 0.1 * at as f64 / *count as f64);
            spread.map(|spread| sample(round_trip * spread)).collect::<Vec<_>>()
        };
        Classes::of(round_trips.iter().flat_map(of).collect::<Vec<_>>().iter())
    }

    #[test]
    fn a_pair_needs_two_cpus() {
        assert!(pair(&[]).unwrap_err().why.contains("0 may"));
        assert!(pair(&[0]).unwrap_err().remedy.is_some());
        assert_eq!(pair(&[1, 0]), Ok((1, 0)));
    }

    #[test]
    fn a_sample_with_unknown_or_changed_proximity_is_void() {
        let recorded = |before: Option<f64>, after: Option<f64>| {
            let of = |round_trip_ns| Proximity {
                round_trip_ns,
                class: Class::by_prior_limit(round_trip_ns),
            };
            recorded(Measurement::default(), before.map(of), after.map(of))
        };
        // The prior limit is between these.
        let valid = recorded(Some(225.0), Some(256.0));
        assert_eq!((valid.void, valid.covariates[ROUND_TRIP].as_str()), (None, "240.0"));
        for (before, after) in [(100.0, 151.0), (151.0, 100.0)] {
            let changed = recorded(Some(before), Some(after));
            assert!(changed.void.unwrap().contains("more than 1.5 times"));
            assert!(changed.covariates.is_empty());
        }
        assert!(recorded(None, Some(500.0)).void.is_some());
        let same = between(0, 0, || Ok(Measurement::default())).unwrap();
        assert!(same.covariates.is_empty() && same.void.is_none());
    }

    #[test]
    fn the_limits_are_in_wide_gaps() {
        let limits = |round_trips: &[(f64, usize)]| match classes(round_trips) {
            Classes::Several { near_below, far_from } => (near_below, far_from),
            Classes::One(class) => panic!("{class:?} only"),
        };
        let (near, far) = limits(&[(80.0, 20), (320.0, 7), (110.0, 9)]);
        assert!(near > 121.0 && near < 320.0 && near == far, "{near} {far}");
        // A few samples in the gap do not hide it.
        let (near, far) = limits(&[(80.0, 240), (190.0, 2), (320.0, 158)]);
        assert!(near > 150.0 && near < 200.0 && near == far, "{near} {far}");
        // Nor do a few disturbed samples, whose gap is wider.
        let (near, far) = limits(&[(80.0, 60), (200.0, 231), (900.0, 9)]);
        assert!(near > 88.0 && near < 200.0 && near == far, "{near} {far}");
        let three = classes(&[(80.0, 20), (200.0, 60), (900.0, 20)]);
        let class = |round_trip| three.class(&sample(round_trip)).unwrap();
        let found = [80.0, 200.0, 900.0].map(class);
        assert_eq!(found, [Class::Near, Class::Middle, Class::Far], "{three:?}");
        // Both are far by the prior limit, and one is nearer.
        let classes = classes(&[(300.0, 6), (900.0, 6)]);
        let class = |round_trip| classes.class(&sample(round_trip));
        assert_eq!((class(300.0), class(900.0)), (Some(Class::Near), Some(Class::Far)));
        assert_eq!(classes.class(&Sample::default()), None);
        let mut siblings = sample(900.0);
        siblings.covariates.insert(SIBLINGS.into(), "yes".into());
        assert_eq!(classes.class(&siblings), Some(Class::Same));
    }

    #[test]
    fn without_a_gap_there_is_one_class() {
        assert_eq!(classes(&[(80.0, 20), (110.0, 20)]), Classes::One(Class::Near));
        assert_eq!(classes(&[(400.0, 30), (260.0, 5)]), Classes::One(Class::Far));
        // Five samples are no class, wherever they are.
        assert_eq!(classes(&[(90.0, 30), (400.0, 5)]), Classes::One(Class::Near));
        assert_eq!(classes(&[(90.0, 5), (400.0, 5)]), Classes::One(Class::Near));
        assert_eq!(classes(&[]), Classes::One(Class::Near));
        // Nor are 4% of the samples.
        assert_eq!(classes(&[(90.0, 288), (400.0, 12)]), Classes::One(Class::Near));
    }

    #[test]
    fn void_samples_and_siblings_set_no_limit() {
        let mut samples: Vec<Sample> = (0..20).map(|_| sample(100.0)).collect();
        samples.extend((0..20).map(|_| Sample { void: Some("busy".into()), ..sample(400.0) }));
        let siblings = (0..20).map(|_| {
            let mut sample = sample(25.0);
            sample.covariates.insert(SIBLINGS.into(), "yes".into());
            sample
        });
        samples.extend(siblings);
        assert_eq!(Classes::of(samples.iter()), Classes::One(Class::Near));
    }
}
