//! Whether a suite's own data go together: what every suite's tests ask.

use std::collections::BTreeSet;

use crate::experiment::{self, Experiment, Profile};
use crate::point::Filter;
use crate::sample::FailureKind;
use crate::suite::{self, Suite};

/// The experiments of a suite under a profile.
///
/// # Errors
/// Where `experiments.toml` is at fault.
pub fn experiments(suite: &dyn Suite, profile: Profile) -> Result<Vec<Experiment>, String> {
    experiment::of_suite(suite, profile).map_err(|fault| fault.to_string())
}

/// How long all experiments of a suite are expected to take at most under a profile, seconds.
///
/// # Errors
/// Where `experiments.toml` is at fault.
pub fn seconds(suite: &dyn Suite, profile: Profile) -> Result<f64, String> {
    let all = experiments(suite, profile)?;
    Ok(all.iter().map(|one| crate::plan::expected(one, suite).as_secs_f64()).sum())
}

/// What is wrong with a suite's experiments, claims, promises and figures; one line each.
///
/// # Errors
/// Where a file cannot be read at all.
pub fn faults(suite: &dyn Suite) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for profile in [Profile::Quick, Profile::Standard, Profile::Full] {
        for one in experiments(suite, profile)? {
            faults.extend(experiment_faults(suite, &one));
        }
    }
    let standard = experiments(suite, Profile::Standard)?;
    let names: BTreeSet<_> = standard.iter().map(Experiment::id).collect();
    if names.len() != standard.len() {
        faults.push("an experiment is declared twice".into());
    }
    faults.extend(claim_faults(suite, &standard)?);
    faults.extend(figure_faults(suite, &standard)?);
    Ok(faults)
}

/// A point that cannot be measured here must say what is lacking. Where only counts are taken there
/// is no noise, and no twin tells it.
fn experiment_faults(suite: &dyn Suite, one: &Experiment) -> Vec<String> {
    let mut faults = Vec::new();
    let method = match suite::method(suite, &one.method) {
        Ok(method) => method,
        Err(why) => return vec![format!("{}: {why}", one.id())],
    };
    let metric = method.metrics().iter().find(|metric| metric.name == one.metric);
    if one.twins.is_empty() && metric.is_some_and(|metric| metric.is_timed()) {
        faults.push(format!("{} has no twins", one.id()));
    }
    for point in &one.points {
        let Err(failure) = method.available(point) else { continue };
        let lacking = [FailureKind::Unavailable, FailureKind::Unsupported];
        if !lacking.contains(&failure.kind) {
            faults.push(format!("{}: {point}: {failure}", one.id()));
        }
    }
    faults
}

fn claim_faults(suite: &dyn Suite, standard: &[Experiment]) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    let data = suite.data();
    for (file, text) in [("claims.toml", data.claims), ("promises.toml", data.promises)] {
        for claim in crate::claim::read(file, text).map_err(|fault| fault.to_string())? {
            let claim = match crate::claim::check(&claim, &[suite], standard) {
                Ok(claim) => claim,
                Err(fault) => {
                    faults.push(fault.to_string());
                    continue;
                }
            };
            if !ids.insert(claim.id.clone()) {
                faults.push(format!("claim {} stands twice", claim.id));
            }
            let needs: usize =
                standard.iter().map(|one| crate::claim::needs(&claim, one).len()).sum();
            if needs == 0 && claim.experiment != crate::run::SESSION {
                faults.push(format!("claim {} needs no point", claim.id));
            }
        }
    }
    Ok(faults)
}

fn figure_faults(suite: &dyn Suite, standard: &[Experiment]) -> Result<Vec<String>, String> {
    /// Fewer make no figure.
    const LEAST: usize = 2;
    let mut faults = Vec::new();
    let file: toml::Table = toml::from_str(suite.data().figures).map_err(|e| e.to_string())?;
    for figure in file.get("figure").and_then(toml::Value::as_array).into_iter().flatten() {
        let text = |key: &str| figure.get(key).and_then(toml::Value::as_str);
        let id = text("id").unwrap_or("without an id");
        let Some(one) = standard.iter().find(|one| Some(one.id().as_str()) == text("experiment"))
        else {
            faults.push(format!("figure {id} is of no experiment"));
            continue;
        };
        let filter = figure.get("where").cloned().unwrap_or(toml::Table::new().into());
        let wanted: Filter = filter.try_into().map_err(|e| format!("figure {id}: {e}"))?;
        let method = suite::method(suite, &one.method)?;
        let wanted = wanted.canonical(method.factors()).map_err(|e| format!("figure {id}: {e}"))?;
        let shown = one.points.iter().filter(|point| wanted.matches(point)).count();
        if shown < LEAST {
            faults.push(format!("figure {id} shows {shown} points"));
        }
        for factor in ["x", "series"].into_iter().filter_map(text) {
            if one.baseline.get(factor).is_none() {
                faults.push(format!("figure {id}: {} has no factor {factor}", one.id()));
            }
        }
    }
    Ok(faults)
}
