//! The CPU of the second thread, and how near it is to the first.

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::proximity::{self, Class};
use machine::topology::Topology;

/// Tries to learn how near the CPUs are; on a busy machine the two threads may miss each other.
const TRIES: usize = 3;

/// The first CPU but one that is on another core, where there is one, else on the same.
pub(super) fn other_cpu(cpus: &[usize]) -> Result<usize, Failure> {
    let [first, others @ ..] = cpus else {
        return Err(too_few(0));
    };
    let topology = Topology::detect();
    let apart = others.iter().find(|cpu| !topology.siblings(*first).contains(cpu));
    apart.or(others.first()).copied().ok_or_else(|| too_few(1))
}

fn too_few(cpus: usize) -> Failure {
    Failure::unavailable(
        format!("the threads take two CPUs, and {cpus} may be used"),
        "allow two: taskset, cgroup cpuset, or a machine with more cores",
    )
}

/// Measures between two looks at how near the CPUs are. Where that is unsure, the sample does not count.
pub(super) fn between(
    own: usize,
    other: usize,
    measure: impl FnOnce() -> Result<Measurement, Failure>,
) -> Result<Measurement, Failure> {
    if own == other {
        return measure();
    }
    let before = class(own, other)?;
    let measurement = measure()?;
    Ok(classed(measurement, before, class(own, other)?))
}

/// How near they are now; none where others held the CPUs.
fn class(own: usize, other: usize) -> Result<Option<Class>, Failure> {
    for _ in 0..TRIES {
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
        (Some(before), Some(after)) if before == after => None,
        (Some(before), Some(after)) => {
            Some(format!("the CPUs were {} before and {} after", name(before), name(after)))
        }
        _ => Some("others held the CPUs, so how near they are is unknown".into()),
    };
    match before.or(after) {
        Some(class) => measurement.covariate("proximity", name(class)),
        None => measurement,
    }
}

fn name(class: Class) -> &'static str {
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
    fn one_cpu_has_no_other() {
        assert!(other_cpu(&[]).unwrap_err().why.contains("and 0 may"));
        assert!(other_cpu(&[0]).unwrap_err().remedy.is_some());
        assert_eq!(other_cpu(&[1, 0]), Ok(0));
    }

    #[test]
    fn a_sample_whose_distance_is_unsure_is_void() {
        let classed = |before, after| classed(Measurement::default(), before, after);
        let near = classed(Some(Class::Near), Some(Class::Near));
        assert_eq!((near.void, near.covariates["proximity"].as_str()), (None, "near"));
        assert!(classed(Some(Class::Near), Some(Class::Far)).void.unwrap().contains("near before"));
        assert!(classed(None, Some(Class::Far)).void.is_some());
        let alone = between(0, 0, || Ok(Measurement::default())).unwrap();
        assert!(alone.covariates.is_empty() && alone.void.is_none());
    }
}
