//! The command that repeats a stored run, derived from its record.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile, suite_name};
use lab::format::count;
use lab::guest::EMULATOR;
use lab::journal::Run;
use lab::option;
use lab::run::is_lab_experiment;
use lab::suite::{OptionValue, SuiteOption};
use report::page::Repetition;

use crate::error::CliError;
use crate::select::{self, arguments_of, quoted};
use crate::suites::SUITES;

/// Returns the commands that measure a run and each of its experiments again, and what they do not repeat.
pub(super) fn repetition(
    run: &Run,
    catalogue: &Catalogue,
    files: &[PathBuf],
) -> Result<Repetition, CliError> {
    let record = &run.record;
    let declared = catalogue.experiments(record.profile)?;
    let measured: Vec<&Experiment> = record
        .experiments
        .values()
        .filter(|one| declared.iter().any(|it| it.id() == one.id()))
        .collect();
    let arguments = arguments(run, &measured, files);
    let names = names(&measured, &declared);
    Ok(Repetition {
        command: format!("tollgate run{names}{arguments} --fresh"),
        arguments,
        limits: limits(run, &measured),
    })
}

/// Returns the names that select the measured experiments; empty if all boundaries are selected.
fn names(measured: &[&Experiment], declared: &[Experiment]) -> String {
    let measured: BTreeSet<String> = measured.iter().map(|one| one.id()).collect();
    let is_boundary = |one: &&Experiment| !select::is_self_test(&one.suite);
    if declared.iter().filter(is_boundary).all(|one| measured.contains(&one.id()))
        && measured.iter().all(|id| !select::is_self_test(suite_name(id)))
    {
        return String::new();
    }
    let is_whole = |suite: &str| {
        declared.iter().filter(|one| one.suite == suite).all(|one| measured.contains(&one.id()))
    };
    let mut names: Vec<&str> = Vec::new();
    for id in &measured {
        let suite = suite_name(id);
        let name = if is_whole(suite) { suite } else { id.as_str() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.iter().map(|name| format!(" {}", quoted(name))).collect()
}

/// Returns the arguments that are common to the run and to each of its experiments.
fn arguments(run: &Run, measured: &[&Experiment], files: &[PathBuf]) -> String {
    let record = &run.record;
    let mut arguments = String::new();
    if record.profile != Profile::Quick {
        arguments += &format!(" --profile {}", record.profile.name());
    }
    if let Some(rounds) = exact_rounds(measured) {
        arguments += &format!(" --rounds {rounds}");
    }
    arguments += &format!(" --seed {}", record.seed);
    if record.nice != 0 {
        arguments += &format!(" --priority {}", record.nice);
    }
    if !record.code.is_empty() {
        arguments += " --allow code";
    }
    for (name, value) in record.options.iter().filter(|(name, value)| is_set(name, value)) {
        arguments += &format!(" --set {}", quoted(&format!("{name}={value}")));
    }
    if let Some(guests) = &record.guests {
        arguments += &format!(" --guest {}", quoted(&guests.name));
        if guests.accelerator != EMULATOR {
            arguments += &format!(" --accelerator {}", quoted(&guests.accelerator));
        }
    }
    for host in &record.hosts {
        arguments += &format!(" --host {}", quoted(&host.to_string()));
    }
    arguments + &arguments_of(Path::new("results"), files)
}

/// Returns the number of rounds if it is the same and exact for all experiments, as with `--rounds`.
fn exact_rounds(measured: &[&Experiment]) -> Option<u32> {
    let first = measured.first()?.effort.rounds;
    let is_exact = |one: &&Experiment| one.effort.rounds == first && one.effort.min_rounds == first;
    measured.iter().all(is_exact).then_some(first)
}

/// Returns whether an option must be set: its recorded value is what `--set` takes and not the default.
fn is_set(name: &str, value: &str) -> bool {
    let is_default = |one: &SuiteOption| match one.value {
        OptionValue::Folder => Path::new(value) == std::env::temp_dir(),
        OptionValue::Content | OptionValue::Text | OptionValue::Number | OptionValue::Address => {
            false
        }
    };
    option_of(name).is_some_and(|one| one.value != OptionValue::Content && !is_default(&one))
}

fn option_of(name: &str) -> Option<SuiteOption> {
    option::known(SUITES).into_iter().find(|one| one.name == name)
}

/// States what the commands do not repeat.
fn limits(run: &Run, measured: &[&Experiment]) -> Vec<String> {
    let record = &run.record;
    let mut limits = Vec::new();
    let skipped: usize = measured.iter().map(|one| one.skipped.len()).sum();
    if skipped > 0 {
        limits.push(format!(
            "The run left out {}: only machines with more cores need them, or --where, -f, --claim or --each-level, \
             which are not recorded, did not select them.",
            count(skipped, "point")
        ));
    }
    if record.sessions.len() > 1 {
        limits.push(format!("The run has {}.", count(record.sessions.len(), "session")));
    }
    limits.push(
        "The time of --for and features enabled by --allow, other than code, are not recorded."
            .into(),
    );
    let of_suites = record.experiments.keys().filter(|id| !is_lab_experiment(id)).count();
    let unknown = of_suites - measured.len();
    if unknown > 0 {
        let experiments = count(unknown, "experiment");
        limits.push(format!("{experiments} of a user's file: name the file with -e."));
    }
    let is_content =
        |name: &&String| option_of(name).is_none_or(|one| one.value == OptionValue::Content);
    let contents = record.options.keys().filter(is_content);
    limits.extend(contents.map(|name| format!("Option {name}: its value is in run.json.")));
    limits
}
