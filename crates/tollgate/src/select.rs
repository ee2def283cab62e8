//! Which experiments and points are meant.

use std::path::PathBuf;

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, suite_name};
use lab::method::AnyMethod;
use lab::point::{Filter, Point};
use lab::suite::{Purpose, Suite};

use crate::SUITES;
use crate::arguments::Choice;
use crate::fault::Fault;

/// Loads the data of all suites and of a user's files.
pub(crate) fn catalogue(files: &[PathBuf]) -> Result<Catalogue<'static>, Fault> {
    Ok(Catalogue::load(SUITES, files)?)
}

/// Whether an experiment's id is meant by one of the names; all are, without a name.
pub(crate) fn is_meant(names: &[String], id: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == id || name == suite_name(id))
}

/// The chosen experiments, with the chosen points.
pub(crate) fn chosen(catalogue: &Catalogue, choice: &Choice) -> Result<Vec<Experiment>, Fault> {
    let all = catalogue.experiments(choice.profile.into())?;
    for name in &choice.names {
        if !all.iter().any(|experiment| is_meant(std::slice::from_ref(name), &experiment.id())) {
            let ids: Vec<_> =
                all.iter().filter(|one| is_for_people(one)).map(Experiment::id).collect();
            let line =
                format!("there is no suite or experiment '{name}'; there are: {}", ids.join(", "));
            return Err(Fault::usage(line));
        }
    }
    let claims = crate::commands::claims::wanted(catalogue, &choice.claim)?;
    let mut experiments: Vec<_> = all
        .into_iter()
        .filter(|one| is_meant(&choice.names, &one.id()))
        .filter(|one| !choice.names.is_empty() || !choice.claim.is_empty() || is_for_people(one))
        .collect();
    let mut wanted = Filter::default();
    for text in &choice.levels {
        wanted.add(text).map_err(Fault::usage)?;
    }
    let mut known = wanted.0.is_empty();
    for experiment in &mut experiments {
        let method = method_of(experiment)?;
        if let Some(claims) = &claims {
            claims.keep(experiment);
        }
        if !wanted.0.is_empty() {
            match wanted.canonical(method.factors()) {
                Ok(filter) => {
                    known = true;
                    experiment.keep_with_floor(|point| filter.matches(point));
                }
                Err(_) => experiment.keep(|_| false),
            }
        }
        if let Some(text) = &choice.filter {
            let id = experiment.id();
            // Defaults that the experiment does not name would match everywhere.
            let defaults = experiment.defaults.clone();
            let holds = |point: &Point| point.without_levels(&defaults).to_string().contains(text);
            experiment.keep_with_floor(|point| id.contains(text) || holds(point));
        }
    }
    if !known {
        let method = experiments.first().map(method_of).transpose()?;
        let why = method.and_then(|method| wanted.canonical(method.factors()).err());
        return Err(Fault::usage(format!("--where: {}", why.unwrap_or_default())));
    }
    experiments.retain(|experiment| !experiment.points.is_empty());
    if experiments.is_empty() {
        return Err(Fault::usage(
            "no point is left to measure; see 'tollgate list' for what there is",
        ));
    }
    Ok(experiments)
}

fn is_for_people(experiment: &Experiment) -> bool {
    suite_of(experiment).is_ok_and(|suite| suite.purpose() == Purpose::Boundary)
}

/// The method of an experiment.
pub(crate) fn method_of(experiment: &Experiment) -> Result<&'static dyn AnyMethod, Fault> {
    lab::suite::method(suite_of(experiment)?, &experiment.method).map_err(Fault::failed)
}

/// The suite of an experiment.
pub(crate) fn suite_of(experiment: &Experiment) -> Result<&'static dyn Suite, Fault> {
    lab::suite::find(SUITES, &experiment.suite)
        .ok_or_else(|| Fault::failed(format!("there is no suite '{}'", experiment.suite)))
}
