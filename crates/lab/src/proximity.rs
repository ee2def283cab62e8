//! Two CPUs under a sample: which they are, and how near each other they were while it was taken.

use machine::proximity::{self, Class};
use machine::topology::Topology;

use crate::measure::Measurement;
use crate::sample::Failure;
use crate::summary::CLASS;

/// Tries to learn how near the CPUs are; on a busy machine the two threads may miss each other.
const MAX_ATTEMPTS: usize = 3;

/// The first CPU and the next that is on another core, where there is one, else on the same.
///
/// # Errors
/// Where there are fewer than two CPUs.
pub fn pair(cpus: &[usize]) -> Result<(usize, usize), Failure> {
    let too_few = || {
        Failure::unavailable(
            format!("it takes two CPUs, and {} may be used", cpus.len()),
            "allow two: taskset, cgroup cpuset, or a machine with more cores",
        )
    };
    let (own, others) = cpus.split_first().ok_or_else(too_few)?;
    let topology = Topology::detect();
    let apart = others.iter().find(|cpu| !topology.siblings(*own).contains(cpu));
    let other = apart.or(others.first()).ok_or_else(too_few)?;
    Ok((*own, *other))
}

/// Measures between two looks at how near the CPUs are. Where that is unsure, the sample does not count.
/// One CPU is near itself, and there is nothing to say.
///
/// # Errors
/// Where the distance cannot be measured at all, and what stands in the sample's place.
pub fn between(
    own: usize,
    other: usize,
    measure: impl FnOnce() -> Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    among(own, &[other], measure)
}

/// The same where one CPU has to do with several: the class is that of the one that is furthest away.
///
/// # Errors
/// As for [`between`].
pub fn among(
    own: usize,
    others: &[usize],
    measure: impl FnOnce() -> Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    let others: Vec<usize> = others.iter().copied().filter(|other| *other != own).collect();
    if others.is_empty() {
        return measure();
    }
    let before = furthest(own, &others)?;
    let measurement = measure()?;
    Ok(classed(measurement, before, furthest(own, &others)?))
}

/// How near the furthest of some CPUs is now; none where that is unsure of any.
fn furthest(own: usize, others: &[usize]) -> Result<Option<Class>, Failure> {
    let classes: Result<Option<Vec<Class>>, Failure> =
        others.iter().map(|other| class(own, *other)).collect();
    Ok(classes?.and_then(|classes| classes.into_iter().max()))
}

/// How near they are now; none where others held the CPUs.
///
/// # Errors
/// Where it cannot be measured at all.
pub fn class(own: usize, other: usize) -> Result<Option<Class>, Failure> {
    for _ in 0..MAX_ATTEMPTS {
        match proximity::measure(own, other) {
            Ok(proximity) => return Ok(Some(proximity.class)),
            Err(proximity::Error::TimedOut(..)) => {}
            Err(why) => return Err(Failure::failed(why.to_string())),
        }
    }
    Ok(None)
}

fn classed(
    mut measurement: Measurement,
    before: Option<Class>,
    after: Option<Class>,
) -> Measurement {
    measurement.void = match (before, after) {
        (Some(before), Some(after)) if before == after => measurement.void,
        (Some(before), Some(after)) => {
            Some(format!("the CPUs were {} before and {} after", name(before), name(after)))
        }
        _ => Some("others held the CPUs, so how near they are is unknown".into()),
    };
    match before.or(after) {
        Some(class) => measurement.covariate(CLASS, name(class)),
        None => measurement,
    }
}

/// The word by which samples say a class.
pub fn name(class: Class) -> &'static str {
    match class {
        Class::Same => "same",
        Class::Near => "near",
        Class::Far => "far",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_no_pair() {
        assert!(pair(&[]).unwrap_err().why.contains("0 may"));
        assert!(pair(&[0]).unwrap_err().remedy.is_some());
        assert_eq!(pair(&[1, 0]), Ok((1, 0)));
    }

    #[test]
    fn a_sample_whose_distance_is_unsure_is_void() {
        let classed = |before, after| classed(Measurement::default(), before, after);
        let near = classed(Some(Class::Near), Some(Class::Near));
        assert_eq!((near.void, near.covariates[CLASS].as_str()), (None, "near"));
        assert!(classed(Some(Class::Near), Some(Class::Far)).void.unwrap().contains("near before"));
        assert!(classed(None, Some(Class::Far)).void.is_some());
        let alone = between(0, 0, || Ok(Measurement::default())).unwrap();
        assert!(alone.covariates.is_empty() && alone.void.is_none());
    }
}
