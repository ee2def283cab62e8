//! `tollgate bounds kernels`: overheads and what is caught, in one table.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use lab::experiment::{self, Experiment, Profile};
use lab::journal;
use lab::point::Point;
use lab::quantity::{bytes, format_bytes, format_duration};
use lab::run::{Lab, Unwatched, Wanted};
use lab::suite::Suite;

use super::{kernel, manifest, table};
use crate::SUITE;
use crate::hand::Error;

/// The words of `tollgate bounds kernels`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// These kernels alone
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(kernel::NAMES))]
    kernel: Vec<String>,
    /// These mechanisms alone, and what their overhead is against
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = manifest::spelled)]
    mechanism: Vec<String>,
    /// Bytes of the array of char; the source's is 1 GiB
    #[arg(long, value_name = "BYTES", default_value = "1 MiB", value_parser = size)]
    size: String,
    /// Page faults in the timed part, as in the source
    #[arg(long)]
    fresh: bool,
    /// Rounds, each in a fresh process
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The folder of all results
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

fn size(text: &str) -> Result<String, String> {
    bytes(text).map(format_bytes).map_err(|wrong| wrong.to_string())
}

/// Measures and prints the table. Gives the exit status.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let experiments = experiments(options)?;
    let expected = experiments.iter().map(|one| lab::plan::expected(one, &SUITE)).sum();
    writeln!(std::io::stderr(), "measuring: {} at most", format_duration(expected))?;
    let wanted = Wanted {
        experiments,
        profile: Profile::Standard,
        // Apart from what `run` resumes and `show` shows.
        results: options.results.join("by-hand"),
        fresh: true,
        seed: None,
        options: BTreeMap::new(),
        interrupted: &AtomicBool::new(false),
    };
    let ended = lab.run(&wanted, &mut Unwatched)?;
    let run = journal::open(&ended.folder)?;
    let mut out = std::io::stdout().lock();
    write!(out, "{}", table::write(&run)?)?;
    writeln!(out, "\n{}", ended.folder.display())?;
    // What fails in every round is told once.
    let faults = ended.faults.iter().filter_map(|sample| {
        let failure = sample.error.as_ref()?;
        Some(format!("{} {}: {failure}", sample.experiment, sample.point))
    });
    for fault in faults.collect::<BTreeSet<_>>() {
        writeln!(std::io::stderr(), "{fault}")?;
    }
    Ok(i32::from(!ended.faults.is_empty()))
}

/// The suite's own experiments, as far as they are asked for.
fn experiments(options: &Options) -> Result<Vec<Experiment>, Error> {
    let text = SUITE.data().experiments;
    let file = "bounds/experiments.toml";
    let all = experiment::read(file, text, Some(SUITE.name()), &[&SUITE], Profile::Standard)?;
    let mechanisms = with_baselines(&options.mechanism)?;
    let shown = all.into_iter().filter(|one| ["kernels", "detection"].contains(&one.name.as_str()));
    let asked = |mut one: Experiment| {
        let baseline = one.baseline.clone();
        let is_in =
            |asked: &[String], level: &str| asked.is_empty() || asked.iter().any(|it| it == level);
        let like_the_baseline =
            |point: &Point, factor: &str| point.text(factor) == baseline.text(factor);
        one.keep(|point| {
            is_in(&mechanisms, point.text("mechanism"))
                && (point.text("kernel").is_empty() || is_in(&options.kernel, point.text("kernel")))
                && like_the_baseline(point, "pages")
                && like_the_baseline(point, "size")
        });
        if one.name == "kernels" {
            let pages = if options.fresh { "fresh" } else { super::PREFAULTED };
            let changed =
                |point: &Point| point.with("size", options.size.as_str()).with("pages", pages);
            one.points = one.points.iter().map(changed).collect();
            one.twins = one.twins.iter().map(changed).collect();
            one.baseline = changed(&one.baseline);
            one.effort.rounds = options.rounds;
            one.effort.min_rounds = options.rounds;
        }
        one
    };
    Ok(shown.map(asked).filter(|one| !one.points.is_empty()).collect())
}

/// The mechanisms that are asked for, with those that their overheads are against.
fn with_baselines(asked: &[String]) -> Result<Vec<String>, Error> {
    let mut all = asked.to_vec();
    for name in asked {
        all.extend(manifest::mechanism(name)?.baseline.clone());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        options: Options,
    }

    fn asked(words: &[&str]) -> Result<Vec<Experiment>, clap::Error> {
        let words = [&["kernels"], words].concat();
        Words::try_parse_from(words).map(|words| experiments(&words.options).unwrap())
    }

    #[test]
    fn a_mechanism_brings_its_baseline() {
        let words = ["--mechanism", "gcc-asan", "--kernel", "struct", "--size", "4MiB", "--fresh"];
        let experiments = asked(&words).unwrap();
        let points: Vec<String> = experiments[0].points.iter().map(|it| it.to_string()).collect();
        assert_eq!(
            points,
            [
                "kernel=struct mechanism=gcc pages=fresh size=4 MiB",
                "kernel=struct mechanism=gcc-asan pages=fresh size=4 MiB"
            ]
        );
        assert_eq!(experiments[1].name, "detection");
        assert_eq!(experiments[1].points.len(), 12);
    }

    #[test]
    fn words_that_are_not_known_are_refused() {
        assert!(
            asked(&["--mechanism", "warp"])
                .unwrap_err()
                .to_string()
                .contains("no mechanism 'warp'")
        );
        assert!(asked(&["--kernel", "qsort"]).is_err());
        assert!(asked(&["--size", "big"]).is_err());
    }
}
