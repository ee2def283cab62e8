//! `tollgate bounds kernels`: overheads and what is caught, in one table.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use lab::adhoc::{AdhocRun, Measured};
use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::point::Point;
use lab::quantity::{bytes, format_bytes};
use lab::run::Lab;

use super::{MAX_SIZE, kernel, manifest, table};
use crate::SUITE;
use crate::hand::Error;
use crate::hand::measured::{Effort, set};

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
    #[command(flatten)]
    effort: Effort,
}

fn size(text: &str) -> Result<String, String> {
    let size = bytes(text).map_err(|wrong| wrong.to_string())?;
    match (1..=MAX_SIZE).contains(&size) {
        true => Ok(format_bytes(size)),
        false => Err(format!("it is not from 1 B to {}", format_bytes(MAX_SIZE))),
    }
}

/// Measures and prints the table. Gives the exit status.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: experiments(options)?,
        profile: Profile::Standard,
        results: &options.effort.results,
        options: BTreeMap::new(),
    };
    let Measured { run, status } = adhoc.measure(lab, Duration::ZERO)?;
    let mut out = lab::terminal::stdout();
    writeln!(out, "{}\n{}", table::write(&run)?, run.folder.display())?;
    Ok(status)
}

/// The suite's own experiments, as far as they are asked for.
fn experiments(options: &Options) -> Result<Vec<Experiment>, Error> {
    let all = Catalogue::of_suite(&SUITE)?.experiments(Profile::Standard)?;
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
            set(&mut one, "size", &options.size);
            set(&mut one, "pages", if options.fresh { "fresh" } else { super::PREFAULTED });
            options.effort.apply(&mut one);
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
        for size in ["big", "0", "17 GiB", "8192 TiB"] {
            assert!(asked(&["--size", size]).is_err(), "{size}");
        }
    }
}
