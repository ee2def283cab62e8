//! Commands that continue after a run, with the same selection.

use std::collections::{BTreeMap, BTreeSet};

use lab::claim::{Claim, Verdict};
use lab::experiment::{Experiment, Profile};
use lab::journal::Run;
use lab::sample::{FailureKind, Sample};
use lab::statistics::INTERVAL_ROUNDS;
use vm::guest::Accelerator;

use super::run::is_default;
use crate::arguments::{self, GuestArgs, GuestHow, RunHosts};
use crate::select::{arguments_of, quoted};

/// Progress of the experiments of a request towards the rounds that verdicts need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    /// Number of experiments with enough rounds.
    pub(super) complete: usize,
    /// Number of experiments.
    pub(super) experiments: usize,
    /// Number of samples that the others lack.
    pub(super) missing: usize,
    /// Number of claims that lack rounds in one state of the core.
    pub(super) claims: usize,
}

impl Rounds {
    /// Counts the rounds of a run. An experiment with fewer declared rounds needs these only.
    pub(super) fn of(
        run: &Run,
        experiments: &[Experiment],
        args: &arguments::Run,
        judged: &[(Claim, Verdict)],
    ) -> Self {
        let claims = judged.iter().filter(|(_, verdict)| verdict.lacks_rounds()).count();
        let mut rounds = Self { experiments: experiments.len(), claims, ..Self::default() };
        for experiment in experiments {
            // `--rounds` replaced the declared number.
            let declared =
                args.measure.rounds.map_or(experiment.effort.rounds as usize, |_| usize::MAX);
            let needed = INTERVAL_ROUNDS.min(declared);
            let missing: usize =
                measured(run, experiment).values().map(|found| needed.saturating_sub(*found)).sum();
            rounds.complete += usize::from(missing == 0);
            rounds.missing += missing;
        }
        rounds
    }

    /// Returns whether every experiment has enough rounds.
    pub(super) fn is_complete(self) -> bool {
        self.missing == 0
    }
}

/// Returns the number of rounds of each point, without those that the machine cannot measure or that are always void.
fn measured<'e>(run: &Run, experiment: &'e Experiment) -> BTreeMap<&'e lab::point::Point, usize> {
    let id = experiment.id();
    let (mut rounds, mut absent) = (BTreeMap::<_, BTreeSet<u32>>::new(), BTreeSet::new());
    let is_absent = |sample: &Sample| {
        let kind = sample.error.as_ref().map(|failure| failure.kind);
        kind.is_some_and(|kind| !kind.is_fault() || kind == FailureKind::Void)
    };
    for sample in run.samples.iter().filter(|one| one.experiment == id && !one.twin) {
        if is_absent(sample) {
            absent.insert(&sample.point);
        } else if sample.is_final() {
            rounds.entry(&sample.point).or_default().insert(sample.round);
        }
    }
    let points = experiment.points.iter().filter(|point| !absent.contains(point));
    points.map(|point| (point, rounds.get(point).map_or(0, BTreeSet::len))).collect()
}

/// Returns commands that continue after a run, with their purposes.
pub(super) fn commands(
    args: &arguments::Run,
    profile: Profile,
    rounds: Rounds,
    claims: &[&str],
) -> Vec<(String, &'static str)> {
    let names: String =
        args.selection.names.iter().map(|name| format!(" {}", quoted(name))).collect();
    let files = args.selection.points.files.as_slice();
    let results = arguments_of(args.measure.results(), &[]);
    let with_files = arguments_of(args.measure.results(), files);
    let verdicts = match claims {
        [] => (
            format!("tollgate claims{with_files}"),
            "each verdict with its reason; 'explain ID' for one",
        ),
        [id] => (
            format!("tollgate explain {id}{with_files}"),
            "the claim, its reason and its experiment",
        ),
        _ => {
            let names: String =
                args.selection.claim.iter().map(|name| format!(" {}", quoted(name))).collect();
            (format!("tollgate claims{names}{with_files}"), "each verdict with its reason")
        }
    };
    let more = if !rounds.is_complete() {
        (run(args, profile, ""), "resume this run, for the rounds that verdicts need")
    } else if rounds.claims > 0 && claims.is_empty() {
        // Without arguments, a run takes its time again; with a selection, all of its rounds are measured.
        let effort = if is_default(args) { "" } else { " --for 5m" };
        (run(args, profile, effort), "more rounds, which verdicts lack in one state of the core")
    } else if !claims.is_empty() {
        (run(args, profile, " --until-decided 30m"), "more rounds, to decide these claims")
    } else if profile == Profile::Quick {
        (run(args, Profile::Standard, ""), "more rounds and points, to decide more claims")
    } else {
        (run(args, profile, " --fresh"), "another run, to see how much they differ")
    };
    let logs = (format!("tollgate logs{results}"), "what the workers on other hosts reported");
    let mut commands =
        vec![(format!("tollgate show{names}{results}"), "all values as tables"), verdicts];
    commands.extend((!args.hosts.hosts.is_empty()).then_some(logs));
    commands.push(more);
    commands
}

/// Returns the command that measures the same selection with a profile.
fn run(args: &arguments::Run, profile: Profile, effort: &str) -> String {
    let selection = &args.selection;
    let mut command = String::from("tollgate run");
    for name in &selection.names {
        command += &format!(" {}", quoted(name));
    }
    if profile != Profile::Quick {
        command += &format!(" --profile {}", profile.name());
    }
    let repeated = [
        ("--where", &selection.points.levels),
        ("--claim", &selection.claim),
        ("--allow", &args.measure.allow),
        ("--set", &args.measure.set),
    ];
    command += &guest_of(&args.guest);
    command += &hosts_of(&args.hosts);
    let filter = selection.points.filter.iter().map(|text| ("-f", text));
    let repeated =
        repeated.into_iter().flat_map(|(name, all)| all.iter().map(move |it| (name, it)));
    for (name, value) in filter.chain(repeated) {
        command += &format!(" {name} {}", quoted(value));
    }
    command + effort + &arguments_of(args.measure.results(), &selection.points.files)
}

/// Returns the arguments of the guest in which a run is measured.
fn guest_of(args: &GuestArgs) -> String {
    let Some(name) = &args.guest else { return String::new() };
    let GuestHow { accelerator, guest_files } = &args.how;
    let accelerator = match accelerator {
        Accelerator::Kvm => " --accelerator kvm",
        Accelerator::Tcg => "",
    };
    let files = guest_files.as_ref().map(|folder| quoted(&folder.to_string_lossy()));
    let files = files.map_or_else(String::new, |folder| format!(" --guest-files {folder}"));
    format!(" --guest {}{accelerator}{files}", quoted(name))
}

/// Returns the arguments of the hosts on which a run is measured.
fn hosts_of(args: &RunHosts) -> String {
    let hosts = args.hosts.iter().map(|host| format!(" --host {}", quoted(host)));
    let config = args.config.config.iter();
    let config = config.map(|file| format!(" --config {}", quoted(&file.to_string_lossy())));
    hosts.chain(config).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn last_command(words: &[&str], rounds: Rounds, claims: &[&str]) -> String {
        let matches = arguments::command().try_get_matches_from(words).unwrap();
        let Command::Run(args) = Arguments::from_arg_matches(&matches).unwrap().command else {
            panic!("not a run: {words:?}")
        };
        let profile = args.selection.points.profile.unwrap_or_default();
        commands(&args, profile, rounds, claims).pop().unwrap().0
    }

    #[test]
    fn a_run_on_a_host_has_logs_in_its_results_folder() {
        let words = ["tollgate", "run", "copy", "--host", "dut", "--results", "results/dut"];
        let matches = arguments::command().try_get_matches_from(words).unwrap();
        let Command::Run(args) = Arguments::from_arg_matches(&matches).unwrap().command else {
            panic!("not a run")
        };
        let commands: Vec<_> = commands(&args, Profile::Quick, Rounds::default(), &[])
            .into_iter()
            .map(|(command, _)| command)
            .collect();
        assert!(
            commands.contains(&"tollgate logs --results results/dut".to_owned()),
            "{commands:?}"
        );
        assert!(commands.contains(&"tollgate show copy --results results/dut".to_owned()));
    }

    #[test]
    fn commands_keep_the_selection() {
        let complete = Rounds { complete: 1, experiments: 1, ..Rounds::default() };
        let incomplete = Rounds { missing: 5, ..complete };
        let words = [
            "tollgate",
            "run",
            "copy",
            "-f",
            "a b",
            "--where",
            "length=64 KiB",
            "--for",
            "60s",
            "--results",
            "my r",
            "--allow",
            "code",
            "-e",
            "mine.toml",
        ];
        let same = "copy -f 'a b' --where 'length=64 KiB' --allow code";
        assert_eq!(
            last_command(&words, incomplete, &[]),
            format!("tollgate run {same} --results 'my r' -e mine.toml")
        );
        let standard = same.replacen("copy", "copy --profile standard", 1);
        assert_eq!(
            last_command(&words, complete, &[]),
            format!("tollgate run {standard} --results 'my r' -e mine.toml")
        );
        // The machine was busy in some rounds.
        let lacking = Rounds { claims: 2, ..complete };
        assert_eq!(
            last_command(&words, lacking, &[]),
            format!("tollgate run {same} --for 5m --results 'my r' -e mine.toml")
        );
        assert_eq!(last_command(&["tollgate", "run"], lacking, &[]), "tollgate run");
        let guest = "--guest pool --accelerator kvm --guest-files 'a b'";
        let words: Vec<_> = "tollgate run copy --guest pool --accelerator kvm --guest-files"
            .split(' ')
            .chain(["a b"])
            .collect();
        assert_eq!(last_command(&words, incomplete, &[]), format!("tollgate run copy {guest}"));
        let words = ["tollgate", "run", "--claim", "x", "--rounds", "1"];
        assert_eq!(last_command(&words, incomplete, &["x"]), "tollgate run --claim x");
        assert_eq!(
            last_command(&words, complete, &["x"]),
            "tollgate run --claim x --until-decided 30m"
        );
    }
}
