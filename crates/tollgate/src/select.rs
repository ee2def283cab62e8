//! Selection of experiments, points and claims by the command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lab::catalogue::Catalogue;
use lab::claim::{self, Claim};
use lab::experiment::{Experiment, suite_name};
use lab::method::AnyMethod;
use lab::point::{Filter, Point};
use lab::suite::{Purpose, Suite};

use crate::arguments::SelectionArgs;
use crate::error::CliError;
use crate::suites::SUITES;

/// Loads the data of all suites and of a user's files.
pub(crate) fn catalogue(files: &[PathBuf]) -> Result<Catalogue<'static>, CliError> {
    Ok(Catalogue::load(SUITES, files)?)
}

/// Returns whether `names` select an experiment, by its ID or suite. No names select every experiment.
pub(crate) fn is_selected(names: &[String], id: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == id || name == suite_name(id))
}

/// Returns the selected experiments with the selected points.
pub(crate) fn select_experiments(
    catalogue: &Catalogue,
    selection: &SelectionArgs,
) -> Result<Vec<Experiment>, CliError> {
    let all = catalogue.experiments(selection.profile.into())?;
    for name in &selection.names {
        let name = std::slice::from_ref(name);
        if !all.iter().any(|experiment| is_selected(name, &experiment.id())) {
            let known = all.iter().filter(|one| !is_self_test(&one.suite)).map(Experiment::id);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(CliError::usage(format!(
                "unknown suite or experiment '{}'; expected one of {known}",
                name[0]
            )));
        }
    }
    let claims = match selection.claim.as_slice() {
        [] => None,
        names => Some(SelectedClaims(select_claims(catalogue, names)?)),
    };
    let is_explicit = !selection.names.is_empty() || claims.is_some();
    let mut experiments: Vec<_> = all
        .into_iter()
        .filter(|one| is_selected(&selection.names, &one.id()))
        .filter(|one| is_explicit || !is_self_test(&one.suite))
        .collect();
    let mut levels = Filter::default();
    for text in &selection.levels {
        levels.add(text).map_err(CliError::usage)?;
    }
    let mut is_known = levels.0.is_empty();
    for experiment in &mut experiments {
        let method = method_of(experiment)?;
        if let Some(claims) = &claims {
            claims.keep_points(experiment);
        }
        if !levels.0.is_empty() {
            match levels.canonical(method.factors()) {
                Ok(filter) => {
                    is_known = true;
                    experiment.keep_with_floor(|point| filter.matches(point));
                }
                Err(_) => experiment.keep(|_| false),
            }
        }
        if let Some(text) = &selection.filter {
            let id = experiment.id();
            // Defaults that the experiment does not name would match everywhere.
            let defaults = experiment.defaults.clone();
            let contains =
                |point: &Point| point.without_levels(&defaults).to_string().contains(text);
            experiment.keep_with_floor(|point| id.contains(text) || contains(point));
        }
    }
    if !is_known {
        let method = experiments.first().map(method_of).transpose()?;
        let why = method.and_then(|method| levels.canonical(method.factors()).err());
        return Err(CliError::usage(format!("--where: {}", why.unwrap_or_default())));
    }
    experiments.retain(|experiment| !experiment.points.is_empty());
    if experiments.is_empty() {
        return Err(CliError::usage("no point is selected; 'tollgate list' lists all"));
    }
    Ok(experiments)
}

/// Returns the method of an experiment.
pub(crate) fn method_of(experiment: &Experiment) -> Result<&'static dyn AnyMethod, CliError> {
    lab::suite::method(suite_of(experiment)?, &experiment.method).map_err(CliError::failed)
}

/// Returns the suite of an experiment.
pub(crate) fn suite_of(experiment: &Experiment) -> Result<&'static Suite, CliError> {
    lab::suite::find(SUITES, &experiment.suite)
        .ok_or_else(|| CliError::failed(format!("unknown suite '{}'", experiment.suite)))
}

/// Returns the claims selected by names: a suite, a source or an ID. No names select all claims but
/// those on the self-test suites.
pub(crate) fn select_claims(
    catalogue: &Catalogue,
    names: &[String],
) -> Result<Vec<Claim>, CliError> {
    let all = catalogue.claims()?;
    let matches = |claim: &Claim, name: &String| {
        let suite = suite_name(&claim.experiment);
        // The source 'tollgate' selects the promises on boundaries only.
        let is_on_instrument = claim.is_promise() && is_self_test(suite);
        let is_source = claim.source == *name && !is_on_instrument;
        claim.id == *name || suite == name || is_source
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|claim| matches(claim, name))) {
        let line =
            format!("unknown claim, source or suite '{name}'; 'tollgate claims' lists all claims");
        return Err(CliError::usage(line));
    }
    let is_selected = |claim: &Claim| match names {
        [] => !is_self_test(suite_name(&claim.experiment)),
        names => names.iter().any(|name| matches(claim, name)),
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

fn is_self_test(suite: &str) -> bool {
    lab::suite::find(SUITES, suite).is_some_and(|suite| suite.purpose() == Purpose::SelfTest)
}

/// Claims selected by `--claim`.
struct SelectedClaims(Vec<Claim>);

impl SelectedClaims {
    /// Keeps the points that the claims need.
    fn keep_points(&self, experiment: &mut Experiment) {
        // Claims on the lab itself can be judged by any run of a boundary.
        if self.0.iter().all(|claim| claim.experiment.starts_with("lab/")) {
            let is_boundary = !is_self_test(&experiment.suite);
            return experiment.keep(|_| is_boundary);
        }
        let points: BTreeSet<_> =
            self.0.iter().flat_map(|claim| claim::needs(claim, experiment)).collect();
        experiment.keep(|point| points.contains(point));
    }
}
