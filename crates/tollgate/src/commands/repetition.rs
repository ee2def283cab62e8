//! The commands that repeat a stored run: the one that started it, and one per experiment, derived from its record.

use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::format::count;
use lab::guest::EMULATOR;
use lab::journal::Run;
use lab::option;
use lab::run::is_lab_experiment;
use lab::suite::{OptionValue, SuiteOption};
use report::page::Repetition;

use crate::error::CliError;
use crate::select::{arguments_of, quoted};
use crate::suites::SUITES;

/// Options of `tollgate run` that a repetition has with another value, and whether a value follows each.
const REPLACED: [(&str, bool); 3] = [("--fresh", false), ("--seed", true), ("--wait", false)];

/// Returns the command that measures a run again, those of its experiments, and what they do not repeat.
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
    let mut commands = record.sessions.iter().map(|one| repeated(&one.command, record.seed));
    let command = commands.next().unwrap_or_default();
    let mut limits = limits(run, &measured);
    limits.extend(
        commands
            .filter(|later| *later != command)
            .map(|later| format!("A later session was started by: {later}")),
    );
    Ok(Repetition { command, arguments: arguments(run, &measured, files), limits })
}

/// Returns the command of a session, for a shell. A run is made anew with its seed.
fn repeated(words: &[String], seed: u64) -> String {
    let is_run = words.first().is_some_and(|word| word == "run");
    let mut command = vec!["tollgate".to_owned()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        match REPLACED.iter().find(|(replaced, _)| is_run && *replaced == name) {
            Some((_, has_value)) if *has_value && name == word => drop(words.next()),
            Some(_) => {}
            None => command.push(quoted(word)),
        }
    }
    if is_run {
        command.push(format!("--seed {seed} --fresh"));
    }
    command.join(" ")
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
    arguments += &format!(" --seed {} --fresh", record.seed);
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
            "The commands of single experiments also measure {} that the run left out.",
            count(skipped, "point")
        ));
    }
    if record.sessions.len() > 1 {
        limits.push(format!("The run has {}.", count(record.sessions.len(), "session")));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_repeated_by_its_command_with_its_seed() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let run =
            "run copy --where length=4 --allow code --seed 3 --for 3m --seed=4 --fresh --wait";
        let expected =
            "tollgate run copy --where 'length=4' --allow code --for 3m --seed 7 --fresh";
        assert_eq!(repeated(&words(run), 7), expected);
        let words = ["copy".to_owned(), "-f".into(), "a b".into(), "--seed".into()];
        assert_eq!(repeated(&words, 7), "tollgate copy -f 'a b' --seed");
    }
}
