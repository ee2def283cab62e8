//! Consistency checks of a suite's data, for the suites' tests.

use std::ops::RangeInclusive;

use crate::catalogue::Catalogue;
use crate::claim::Claim;
use crate::experiment::{Experiment, Profile};
use crate::metric::Metric;
use crate::point::Level;
use crate::sample::FailureKind;
use crate::suite::{self, Purpose, Suite};

/// Minimum number of points of a figure.
const MIN_POINTS: usize = 2;
/// Permitted number of headlines of a suite that measures a boundary.
const HEADLINES: RangeInclusive<usize> = 2..=4;

/// Returns the experiments of a suite for a profile.
///
/// # Errors
/// Returns the first error in the suite's data.
pub fn experiments(suite: &Suite, profile: Profile) -> Result<Vec<Experiment>, String> {
    let experiments = Catalogue::of_suite(suite).and_then(|data| data.experiments(profile));
    experiments.map_err(|error| error.to_string())
}

/// Returns the inconsistencies of a suite's experiments, claims, figures and headlines, one line each.
///
/// # Errors
/// Returns the first error in the suite's data.
pub fn faults(suite: &Suite) -> Result<Vec<String>, String> {
    let catalogue = Catalogue::of_suite(suite).map_err(|error| error.to_string())?;
    let experiments = |profile| catalogue.experiments(profile).map_err(|error| error.to_string());
    let mut faults = Vec::new();
    for profile in [Profile::Quick, Profile::Standard, Profile::Full] {
        for one in experiments(profile)? {
            faults.extend(experiment_faults(suite, &one));
        }
    }
    let (quick, standard) = (experiments(Profile::Quick)?, experiments(Profile::Standard)?);
    for claim in catalogue.claims().map_err(|error| error.to_string())? {
        let is_needed = |one| !crate::claim::needs(&claim, one).is_empty();
        let is_measured = claim.experiment != crate::run::SESSION && claim.unmeasurable.is_none();
        if is_measured && !standard.iter().any(is_needed) {
            faults.push(format!("claim {} matches no point", claim.id));
        } else if is_measured && claim.profile.is_none() {
            faults.extend(undecided(&claim, &quick, &standard));
        }
    }
    for declared in catalogue.figures().map_err(|error| error.to_string())? {
        let figure = declared.figure;
        let experiments = standard.iter().filter(|one| one.id() == figure.experiment);
        let points = experiments.flat_map(|one| &one.points);
        let shown = points.filter(|point| figure.filter.matches(point)).count();
        if shown < MIN_POINTS {
            faults.push(format!("figure {} shows {shown} points", figure.id));
        }
    }
    let headlines = catalogue.headlines().map_err(|error| error.to_string())?;
    if suite.purpose() == Purpose::Boundary && !HEADLINES.contains(&headlines.len()) {
        faults.push(format!("{} headlines", headlines.len()));
    }
    // A sentence with several slots is left out if one has no value.
    let needs_several = headlines.iter().filter(|one| one.fewest_slots() > 1);
    faults.extend(
        needs_several.map(|one| format!("no sentence of headline {} has one slot", one.id)),
    );
    Ok(faults)
}

/// `run` without arguments decides every claim that names no other profile: the quick profile measures
/// each number that the claim lists, and one of its names, which are alternatives. Levels that no
/// profile measures are imported.
fn undecided(claim: &Claim, quick: &[Experiment], standard: &[Experiment]) -> Vec<String> {
    let measures = |experiments: &[Experiment], factor: &str, level: &Level| {
        let claimed = experiments.iter().filter(|one| one.id() == claim.experiment);
        claimed.flat_map(|one| &one.points).any(|point| point.get(factor) == Some(level))
    };
    let mut faults = Vec::new();
    for (factor, levels) in claim.filters().iter().flat_map(|filter| &filter.0) {
        let is_quick = |level: &&Level| measures(quick, factor, level);
        let has_alternative = levels.levels().iter().any(|level| is_quick(&level));
        let mut missing = levels.levels().iter().filter(|level| {
            !is_quick(level)
                && measures(standard, factor, level)
                && (level.number().is_some() || !has_alternative)
        });
        if let Some(level) = missing.next() {
            faults.push(format!(
                "claim {}: {factor}={level} is not in the quick profile; add it there, or set 'profile'",
                claim.id
            ));
        }
    }
    faults
}

/// A timed experiment needs twins, and a point that cannot be measured must name what the machine
/// lacks.
fn experiment_faults(suite: &Suite, one: &Experiment) -> Vec<String> {
    let mut faults = Vec::new();
    let method = match suite::method(suite, &one.method) {
        Ok(method) => method,
        Err(why) => return vec![format!("{}: {why}", one.id())],
    };
    if one.twins.is_empty() && method.metric(&one.metric).is_ok_and(Metric::is_timed) {
        faults.push(format!("{} has no twins", one.id()));
    }
    for point in &one.points {
        let Err(failure) = method.available(point) else { continue };
        if !matches!(failure.kind, FailureKind::Unavailable | FailureKind::Unsupported) {
            faults.push(format!("{}: {point}: {failure}", one.id()));
        }
    }
    faults
}
