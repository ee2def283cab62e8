//! The proximity of the CPUs of a sample, measured before and after it.

use machine::proximity::{self, Class};
use machine::topology::Topology;

use crate::measure::Measurement;
use crate::sample::Failure;
use crate::summary::CLASS;

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
/// sample is void. If both are the same CPU, the sample has no proximity.
///
/// # Errors
/// Returns `failed` if the proximity cannot be measured, or the failure of `measure`.
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
    if others.is_empty() {
        return measure();
    }
    let before = furthest(first, &others)?;
    let measurement = measure()?;
    Ok(classed(measurement, before, furthest(first, &others)?))
}

/// Measures the proximity of the furthest CPU; `None` if that of any CPU is unknown.
fn furthest(first: usize, others: &[usize]) -> Result<Option<Class>, Failure> {
    let classes: Result<Option<Vec<Class>>, Failure> =
        others.iter().map(|other| class(first, *other)).collect();
    Ok(classes?.and_then(|classes| classes.into_iter().max()))
}

/// Measures the proximity of two CPUs; `None` if other threads kept them busy.
///
/// # Errors
/// Returns `failed` if it cannot be measured.
pub fn class(first: usize, other: usize) -> Result<Option<Class>, Failure> {
    for _ in 0..MAX_ATTEMPTS {
        match proximity::measure(first, other) {
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
        (Some(before), Some(after)) => Some(format!(
            "the CPUs were {} before the sample and {} after it",
            name(before),
            name(after)
        )),
        _ => Some("CPUs busy: proximity unknown".into()),
    };
    match before.or(after) {
        Some(class) => measurement.covariate(CLASS, name(class)),
        None => measurement,
    }
}

/// Returns the level of a class in samples.
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
    fn a_pair_needs_two_cpus() {
        assert!(pair(&[]).unwrap_err().why.contains("0 may"));
        assert!(pair(&[0]).unwrap_err().remedy.is_some());
        assert_eq!(pair(&[1, 0]), Ok((1, 0)));
    }

    #[test]
    fn a_sample_with_unknown_proximity_is_void() {
        let classed = |before, after| classed(Measurement::default(), before, after);
        let near = classed(Some(Class::Near), Some(Class::Near));
        assert_eq!((near.void, near.covariates[CLASS].as_str()), (None, "near"));
        assert!(classed(Some(Class::Near), Some(Class::Far)).void.unwrap().contains("near before"));
        assert!(classed(None, Some(Class::Far)).void.is_some());
        let same = between(0, 0, || Ok(Measurement::default())).unwrap();
        assert!(same.covariates.is_empty() && same.void.is_none());
    }
}
