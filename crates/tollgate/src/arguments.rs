//! Command-line arguments.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use lab::experiment::Profile;
use lab::quantity;
use vm::guest::Accelerator;

use crate::suites::SUITES;

mod export;
mod fleet;
mod hosts;
mod import;
mod show;
mod slurm;

pub(crate) use export::{Direction, Export, ExportFormat};
pub(crate) use fleet::Fleet;
pub(crate) use hosts::{ConfigArgs, HostArgs, HostsCommand, Logs, RunHosts};
pub(crate) use import::Import;
pub(crate) use show::Show;
pub(crate) use slurm::SlurmArgs;

/// Maximum time of a run with `--for`.
const MAX_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Measure what it costs to cross a boundary
#[derive(Parser)]
// Errors name the command by `bin_name`, also if the binary is renamed.
#[command(name = "tollgate", bin_name = "tollgate", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Report what can be measured and how to enable the rest
    Doctor(Doctor),
    /// List experiments with levels and expected times, claims and figures
    List(List),
    /// Describe a suite, experiment, claim, figure, headline, metric, factor, capability or term
    Explain(Explain),
    /// Run experiments or resume a run; end with headlines and verdicts
    Run(Run),
    /// Print the headlines and verdicts of a stored run on one screen
    Summary(Summary),
    /// Print results as tables
    Show(Show),
    /// Draw figures as SVG, PDF and PNG
    Plot(Plot),
    /// Print each published value next to yours with its verdict
    Claims(Claims),
    /// Compare repeated runs, or two builds or settings within one run: ratios with 95% intervals
    Compare(Compare),
    /// Compare the nodes of a fleet: name those that differ, with the setting that differs
    Fleet(Fleet),
    /// Write all results of a run, or a comparison of runs, to one HTML page
    Report(Report),
    /// Export samples, or values with intervals for CI and monitoring
    Export(Export),
    /// Place the results of another program next to those of a run
    Import(Import),
    /// Print the JSON Schema of an output, or list all
    Schema(Schema),
    /// Write a run with everything that follows from it to one file, or check such a file
    Bundle(Bundle),
    /// Print shell completions
    Completions { shell: clap_complete::Shell },
    /// Write manual pages, one for each command
    Man {
        /// Folder to write them into, e.g. /usr/local/share/man/man1
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// List guests, or run a command of tollgate inside one
    Guest(GuestCommand),
    /// Check the hosts of tollgate.toml, print their variables, or remove what was installed there
    Hosts {
        #[command(subcommand)]
        command: HostsCommand,
    },
    /// Print the logs of the hosts of a run
    Logs(Logs),
    /// Run as init of a guest (started by the lab)
    #[command(hide = true)]
    GuestInit,
    /// Execute orders from standard input (started by the lab)
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        probe: bool,
        /// Options of a worker on another host than the lab, in JSON
        #[arg(long, conflicts_with = "probe")]
        remote: Option<String>,
    },
}

/// Returns the clap command of the program, with the commands of the suites.
pub(crate) fn command() -> clap::Command {
    let commands = SUITES.iter().filter_map(|suite| suite.command());
    // 'run' always takes these options, 'compare' with --run only.
    let of_run = |group: clap::ArgGroup| group.requires("run");
    // Without a guest there is nothing that an accelerator or a device's file belongs to.
    let how_requires = |other: &'static str| {
        move |command: clap::Command| command.mut_group("GuestHow", |group| group.requires(other))
    };
    Arguments::command()
        .mut_subcommand("compare", |compare| {
            compare.mut_group("PointArgs", of_run).mut_group("MeasureArgs", of_run)
        })
        .mut_subcommand("compare", |it| it.mut_arg("hosts", |hosts| hosts.requires("run")))
        .mut_subcommand("compare", |it| it.mut_arg("config", |file| file.requires("hosts")))
        .mut_subcommand("run", |run| run.mut_arg("hosts", |hosts| hosts.conflicts_with("guest")))
        .mut_subcommand("run", how_requires("guest"))
        .mut_subcommand("run", |run| run.mut_arg("config", |file| file.requires("hosts")))
        .mut_subcommand("doctor", how_requires("guest"))
        .mut_subcommand("doctor", |it| it.mut_arg("config", |file| file.requires("host")))
        .mut_subcommand("guest", how_requires("command"))
        .subcommands(commands.map(|command| (command.command)()))
}

impl Command {
    /// Returns whether it measures on the machine that executes it, which one run at a time may do.
    fn measures(&self) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Compare(args) => args.run,
            Self::Guest(args) => measures(&args.command),
            Self::Doctor(_)
            | Self::List(_)
            | Self::Explain(_)
            | Self::Summary(_)
            | Self::Show(_)
            | Self::Plot(_)
            | Self::Claims(_)
            | Self::Fleet(_)
            | Self::Report(_)
            | Self::Export(_)
            | Self::Import(_)
            | Self::Schema(_)
            | Self::Bundle(_)
            | Self::Completions { .. }
            | Self::Man { .. }
            | Self::Hosts { .. }
            | Self::Logs(_)
            | Self::GuestInit
            | Self::Worker { .. } => false,
        }
    }
}

/// Returns whether a command line of this program measures; `words` follow the program's name. A wrong one prints an error.
pub(crate) fn measures(words: &[String]) -> bool {
    let words = ["tollgate"].into_iter().chain(words.iter().map(String::as_str));
    let Ok(matches) = command().try_get_matches_from(words) else { return false };
    let is_of_suite = matches.subcommand_name().is_some_and(|name| {
        lab::suite::find(SUITES, name).and_then(|suite| suite.command()).is_some()
    });
    is_of_suite
        || Arguments::from_arg_matches(&matches).is_ok_and(|arguments| arguments.command.measures())
}

/// The guest in which to measure instead of on this host.
#[derive(Args)]
pub(crate) struct GuestArgs {
    /// Guest in which to measure, instead of on this host; 'tollgate guest' lists them
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) guest: Option<String>,
    #[command(flatten)]
    pub(crate) how: GuestHow,
}

/// How a guest runs.
#[derive(Args)]
pub(crate) struct GuestHow {
    /// Accelerator that executes the guest's instructions; emulation by tcg reports no times
    #[arg(long, value_enum, default_value = "tcg")]
    pub(crate) accelerator: Accelerator,
    /// Folder of the files that are the memory of the guest's devices [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) guest_files: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct GuestCommand {
    /// Guest [default: list all]
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) name: Option<String>,
    /// Host on which to run the command, if the guest has several [default: the first]
    #[arg(long, value_name = "HOST", requires = "command")]
    pub(crate) host: Option<String>,
    /// Command of tollgate and its arguments, after '--' [default: print the declaration]
    #[arg(last = true, requires = "name")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) how: GuestHow,
    /// Print JSON
    #[arg(long, conflicts_with = "command")]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Selection of experiments and points.
#[derive(Args, Clone)]
pub(crate) struct SelectionArgs {
    /// Suites or experiments, e.g. copy or copy/throughput [default: all suites]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) points: PointArgs,
    /// Only points that these claims need: an ID, or a source by the first word of its IDs, e.g. enso; that of tollgate's
    /// promises is 'tollgate' (repeatable)
    #[arg(long, value_name = "ID|SOURCE")]
    pub(crate) claim: Vec<String>,
}

/// Selection of the points of experiments.
#[derive(Args, Clone)]
pub(crate) struct PointArgs {
    /// Measuring effort [default: the profile that the selected claims require, or quick]
    #[arg(long, value_enum)]
    pub(crate) profile: Option<Profile>,
    /// Only points whose experiment or level names contain TEXT
    #[arg(short = 'f', long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only points with this level (repeatable)
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
    /// Only points that together have each level of each factor, preferably those that this host can measure, with the
    /// budget of the quick profile
    #[arg(long)]
    pub(crate) each_level: bool,
    /// Extra TOML file of experiments, claims, figures (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// The results folder without --results.
pub(crate) const RESULTS: &str = "results";

/// How a run measures, and where it is stored.
#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// Results folder; the runs of 'compare --run' are in its folder 'compare' [default: that of --host, else results]
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// Exact number of rounds per point
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) rounds: Option<u32>,
    /// Add rounds for this time, e.g. 3m, the last ones for claims that lack rounds [default: the profile's rounds; 3m for
    /// 'tollgate run' without arguments]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "rounds", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Start a new run instead of resuming
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Random seed of a new run
    #[arg(long, allow_negative_numbers = true, value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Wait while another run measures on this machine, instead of failing
    #[arg(long)]
    pub(crate) wait: bool,
    /// Enable an opt-in feature, e.g. 'physical'; see 'tollgate doctor' (repeatable)
    #[arg(long, value_name = "FEATURE")]
    pub(crate) allow: Vec<String>,
    /// Set an option of a suite, e.g. 'file-folder=/mnt'; see 'tollgate doctor' (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

impl MeasureArgs {
    /// Returns the results folder.
    pub(crate) fn results(&self) -> &Path {
        self.results.as_deref().unwrap_or(Path::new(RESULTS))
    }
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Include the self-test suite
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten, next_help_heading = "Options of guests")]
    pub(crate) guest: GuestArgs,
    #[command(flatten, next_help_heading = "Options of hosts")]
    pub(crate) hosts: RunHosts,
    #[command(flatten, next_help_heading = "Options of Slurm")]
    pub(crate) slurm: SlurmArgs,
    /// Measure each point until half of its 95% interval is at most SHARE of the median, e.g. 2%
    // A share such as -2% is not a negative number to clap.
    #[arg(long, value_name = "SHARE", conflicts_with_all = ["rounds", "time"], allow_hyphen_values = true)]
    pub(crate) resolve: Option<String>,
    /// Add rounds until half of each interval of the chosen claims is within --resolve [default: 0.5%] or half of the
    /// published tolerance, for at most this time, e.g. 30m
    #[arg(long, value_name = "TIME", requires = "claim", conflicts_with_all = ["rounds", "time"], value_parser = duration)]
    pub(crate) until_decided: Option<Duration>,
    /// Nice value of the run, from -20 (highest priority) to 19
    #[arg(long, value_name = "NICE", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) priority: Option<i32>,
    /// Do not print results
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print all tables and verdicts instead of one screen
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) tables: bool,
    /// Print headlines, tables and verdicts as JSON
    #[arg(long, conflicts_with_all = ["quiet", "tables"])]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// Name of a suite, experiment, claim, figure, headline, metric, factor, capability or term
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Also print the declaration in TOML
    #[arg(long)]
    pub(crate) source: bool,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Extra TOML file of experiments, claims, figures (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Folder of the results.
#[derive(Args)]
pub(crate) struct ResultsArgs {
    /// Results folder, the folder of one run, or a bundle
    #[arg(long = "results", value_name = "DIR", default_value = "results")]
    pub(crate) folder: PathBuf,
}

#[derive(Args)]
pub(crate) struct Summary {
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Extra TOML file of experiments, claims, figures (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Plot {
    /// Figure IDs, or one experiment with --x [default: all figures with samples]
    pub(crate) figures: Vec<String>,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Output folder
    #[arg(short, long, value_name = "DIR", default_value = "figures")]
    pub(crate) output: PathBuf,
    /// Extra TOML file of figures (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Factor of the horizontal axis
    #[arg(long, value_name = "FACTOR")]
    pub(crate) x: Option<String>,
    /// Metric of the vertical axis
    #[arg(long, value_name = "METRIC")]
    pub(crate) y: Option<String>,
    /// Factor drawn as one line per level
    #[arg(long, value_name = "FACTOR")]
    pub(crate) series: Option<String>,
    /// Use a logarithmic vertical axis, or logarithmic shades with --grid
    #[arg(long)]
    pub(crate) log: bool,
    /// Draw a heat map of --x by --series
    #[arg(long)]
    pub(crate) grid: bool,
    /// Only points with this level (repeatable)
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
    /// Print the files, and the figures that are not drawn with the reasons, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Verdicts that `claims --check` requires.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Requirement {
    /// Every claim is reproduced or contradicted
    Decided,
    /// Every claim is reproduced
    Reproduced,
}

#[derive(Args)]
pub(crate) struct Claims {
    /// Suites, sources or claim IDs [default: all]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Extra TOML file of claims (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print every claim whole, also those that cannot be measured
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with 0 if all judged claims are reproduced, 1 if one is contradicted or doubted by
    /// another environment of the run or the journal was edited, 2 if the run or a file cannot be read, 3 if no claim was judged
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check, also exit with 1 unless all claims have this verdict; still 3 if no claim was judged
    #[arg(long, value_name = "VERDICT", requires = "check")]
    pub(crate) require: Option<Requirement>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Compare {
    /// Folder of a run, or of the repeated runs of side A; with --run the old side
    pub(crate) a: PathBuf,
    /// Folder of a run, or of the repeated runs of side B; with --run the new side
    pub(crate) b: PathBuf,
    /// Suites or experiments [default: all of the run; with --run all suites]
    pub(crate) names: Vec<String>,
    /// Measure both sides within one run, or resume it. A side is the path of a tollgate program, settings of this one
    /// such as 'nice=5 MALLOC_ARENA_MAX=1' (others are environment variables), or '-' for this program unchanged
    #[arg(long)]
    pub(crate) run: bool,
    /// Metric [default: the experiment's]
    #[arg(long)]
    pub(crate) metric: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten, next_help_heading = "Options of --run")]
    pub(crate) points: PointArgs,
    #[command(flatten, next_help_heading = "Options of --run")]
    pub(crate) measure: MeasureArgs,
    #[command(flatten, next_help_heading = "Options of --run")]
    pub(crate) hosts: RunHosts,
}

#[derive(Args)]
pub(crate) struct Report {
    /// Folders or bundles to compare on one page, each of a run or of repeated runs [default: the newest run only]
    #[arg(value_name = "RUN", conflicts_with = "folder")]
    pub(crate) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Output file
    #[arg(short = 'o', long, value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
    /// Extra TOML file of experiments, claims, figures (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Schema {
    /// Output [default: list all]
    pub(crate) name: Option<String>,
}

#[derive(Args)]
pub(crate) struct Bundle {
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Output file
    #[arg(short = 'o', long, value_name = "FILE", default_value = "bundle.zip")]
    pub(crate) output: PathBuf,
    /// Extra TOML file of experiments, claims, figures, which becomes part of the bundle (repeatable)
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Author, for the metadata
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
    /// URL of the licence, for the metadata
    #[arg(long, value_name = "URL", alias = "license")]
    pub(crate) licence: Option<String>,
    /// Report every modification of a bundle instead: exit with 0 if there is none, 1 if there is one, 2 if it cannot be read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folder", "output", "files", "author", "licence"])]
    pub(crate) check: Option<PathBuf>,
    /// SHA-256 digest that the checked file must have, e.g. as published with a paper
    #[arg(long, value_name = "HEX", requires = "check")]
    pub(crate) sha256: Option<String>,
}

/// Parses a time to spend.
fn duration(text: &str) -> Result<Duration, String> {
    let time = quantity::duration(text).map_err(|error| error.to_string())?;
    match time {
        Duration::ZERO => Err("0 s is no time; use e.g. 3m".into()),
        time if time > MAX_TIME => Err("more than 7 days; use a shorter time".into()),
        time => Ok(time),
    }
}

/// Parses a seed.
fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().map_err(|_| format!("'{text}' is not an unsigned integer"))?;
    let max = lab::run::MAX_SEED;
    if seed < max { Ok(seed) } else { Err(format!("{seed} is not below {max}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_are_out_of_range() {
        let error_of = |words: &[&str]| {
            let error = command().try_get_matches_from(words).unwrap_err();
            error.to_string()
        };
        let rounds = error_of(&["tollgate", "run", "--rounds", "-1"]);
        assert!(rounds.contains("'-1' for '--rounds <N>': -1 is not in 0.."), "{rounds}");
        let seed = error_of(&["tollgate", "run", "--seed", "-1"]);
        assert!(seed.contains("invalid value '-1' for '--seed <SEED>'"), "{seed}");
        let sides = ["tollgate", "compare", "-", "-", "copy"];
        assert!(
            command()
                .try_get_matches_from([&sides[..], &["--run", "--rounds", "3"]].concat())
                .is_ok()
        );
        assert!(command().try_get_matches_from(sides).is_ok(), "defaults do not require --run");
        let line = error_of(&[&sides[..], &["--rounds", "3"]].concat());
        assert!(line.contains("--run"), "{line}");
        for command in ["run", "doctor"] {
            let line = error_of(&["tollgate", command, "--config", "tollgate.toml"]);
            assert!(line.contains("--host"), "{line}");
        }
        let words = ["tollgate", "run", "--resolve", "-2%"];
        let read = command().try_get_matches_from(words).unwrap();
        let resolve = read.subcommand().unwrap().1.get_one::<String>("resolve");
        assert_eq!(resolve.map(String::as_str), Some("-2%"), "the command parses the share");
    }
}
