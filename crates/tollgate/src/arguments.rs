//! The command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use lab::adhoc::SuiteCommand;
use lab::experiment::Profile;

/// What does it cost to cross a boundary?
#[derive(Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// What this machine can measure; what it cannot, why, and how to enable it
    Doctor(Doctor),
    /// Suites, experiments, factors, points, expected time
    List(List),
    /// Measure; resumes what was begun; ends with tables, verdicts and paths
    Run(Run),
    /// The results as tables
    Show(Show),
    /// Figures as SVG, PDF and PNG
    Plot(Plot),
    /// Each published value beside ours, and the verdict
    Claims(Claims),
    /// Two runs or hosts: ratios with intervals, unresolved where they are
    Compare(Compare),
    /// The samples as CSV, JSON or Parquet
    Export(Export),
    /// Completions for a shell, to standard output
    Completions { shell: clap_complete::Shell },
    /// Carry out orders from standard input (the lab starts this itself)
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        probe: bool,
    },
}

/// The program's command with the commands of the suites as subcommands.
pub(crate) fn command(suites: &[&dyn SuiteCommand]) -> clap::Command {
    let subcommands = suites.iter().filter_map(|suite| suite.command());
    Arguments::command().subcommands(subcommands)
}

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much is measured.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ProfileName {
    /// A look: minutes for everything
    Quick,
    /// Figures to rely on
    Standard,
    /// Figures to publish
    Full,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Quick => Self::Quick,
            ProfileName::Standard => Self::Standard,
            ProfileName::Full => Self::Full,
        }
    }
}

/// Which experiments and points.
#[derive(Args)]
pub(crate) struct Choice {
    /// Suites or experiments: copy, copy/throughput [default: all suites]
    pub(crate) names: Vec<String>,
    /// How much is measured
    #[arg(long, value_enum, default_value = "quick")]
    pub(crate) profile: ProfileName,
    /// Only points whose experiment or levels hold this text
    #[arg(short = 'f', long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only points with this level; repeatable
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
    /// Only what these claims need: a claim's id, or a source; our own promises are 'tollgate'
    #[arg(long, value_name = "ID|SOURCE")]
    pub(crate) claim: Vec<String>,
    /// Own experiments, claims and figures; repeatable
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Also what tests the instrument itself
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) choice: Choice,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Rounds at each point, neither more nor fewer
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) rounds: Option<u32>,
    /// Stop a point when its 95% interval is this narrow: half its width as a share of the median
    // A share in per cent is no number to clap.
    #[arg(long, value_name = "SHARE", conflicts_with = "rounds", allow_hyphen_values = true)]
    pub(crate) resolve: Option<String>,
    /// Begin a new run instead of resuming
    #[arg(long)]
    pub(crate) fresh: bool,
    /// The seed of a new run
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Enable an opt-in feature, e.g. 'physical'; 'tollgate doctor' lists all; repeatable
    #[arg(long, value_name = "WHAT")]
    pub(crate) allow: Vec<String>,
    /// Set an option of a suite, e.g. 'file-folder=/mnt'; 'tollgate doctor' lists all; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Run at this priority, as nice does: -20 is the highest
    #[arg(long, value_name = "NICE", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) priority: Option<i32>,
    /// Measure only: no tables and verdicts at the end
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print the tables and verdicts at the end as JSON
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
}

/// Where results lie.
#[derive(Args)]
pub(crate) struct Place {
    /// The folder of all runs, or that of one
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(crate) results: PathBuf,
}

#[derive(Args)]
pub(crate) struct Show {
    /// Suites or experiments [default: all in the run]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Another metric than the experiment's own
    #[arg(long)]
    pub(crate) metric: Option<String>,
    /// Only points with this level; repeatable
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
    /// Times in this unit
    #[arg(long, value_enum, default_value = "own")]
    pub(crate) unit: UnitName,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The unit of times.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum UnitName {
    /// As the suite declares: nanoseconds
    Own,
    /// Ticks of the time-stamp counter
    Ticks,
    /// Cycles of the core
    Cycles,
}

#[derive(Args)]
pub(crate) struct Plot {
    /// Figures by id, or an experiment with --x [default: all figures that the run has samples for]
    pub(crate) figures: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The folder for the files
    #[arg(long, value_name = "DIR", default_value = "figures")]
    pub(crate) output: PathBuf,
    /// Own figures; repeatable
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The factor along the horizontal axis
    #[arg(long, value_name = "FACTOR")]
    pub(crate) x: Option<String>,
    /// The metric along the vertical axis
    #[arg(long, value_name = "METRIC")]
    pub(crate) y: Option<String>,
    /// The factor that makes the lines
    #[arg(long, value_name = "FACTOR")]
    pub(crate) series: Option<String>,
    /// A logarithmic vertical axis, with --x; logarithmic shades, with --grid
    #[arg(long)]
    pub(crate) log: bool,
    /// A cell for each level of --x and --series, in place of lines
    #[arg(long)]
    pub(crate) grid: bool,
    /// Only points with this level; repeatable
    #[arg(long = "where", value_name = "FACTOR=LEVEL")]
    pub(crate) levels: Vec<String>,
}

/// What `claims --check` requires of every claim.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Requirement {
    /// Each is reproduced or contradicted
    Decided,
    /// Each is reproduced
    Reproduced,
}

#[derive(Args)]
pub(crate) struct Claims {
    /// Suites, sources or claims by id [default: all]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Own claims; repeatable
    #[arg(short = 'e', long = "experiments", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Exit 0 if all judged claims are reproduced, 1 if one is contradicted, 2 if the run or a file cannot be read,
    /// 3 if none was judged
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check, also exit 1 unless every claim is decided (reproduced or contradicted) or reproduced; where none
    /// was judged, the status is 3 all the same
    #[arg(long, value_name = "WHAT", requires = "check")]
    pub(crate) require: Option<Requirement>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Compare {
    /// The folder of one run
    pub(crate) a: PathBuf,
    /// The folder of another
    pub(crate) b: PathBuf,
    /// Only these suites or experiments
    pub(crate) names: Vec<String>,
    /// Another metric than the experiment's own
    #[arg(long)]
    pub(crate) metric: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The form of an export.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Form {
    Csv,
    Json,
    Parquet,
}

#[derive(Args)]
pub(crate) struct Export {
    /// The form
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) place: Place,
    /// The file [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Only these suites or experiments
    pub(crate) names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_a_value_out_of_range() {
        let told = |words: &[&str]| {
            let told = command(crate::COMMANDS).try_get_matches_from(words).unwrap_err();
            told.to_string()
        };
        let rounds = told(&["tollgate", "run", "--rounds", "-1"]);
        assert!(rounds.contains("'-1' for '--rounds <ROUNDS>': -1 is not in 0.."), "{rounds}");
        let seed = told(&["tollgate", "run", "--seed", "-1"]);
        assert!(seed.contains("invalid value '-1' for '--seed <SEED>'"), "{seed}");
        let words = ["tollgate", "run", "--resolve", "-2%"];
        let read = command(crate::COMMANDS).try_get_matches_from(words).unwrap();
        let resolve = read.subcommand().unwrap().1.get_one::<String>("resolve");
        assert_eq!(resolve.map(String::as_str), Some("-2%"), "the command says what a share is");
    }
}
