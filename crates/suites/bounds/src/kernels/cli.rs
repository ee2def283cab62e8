//! `tollgate bounds kernels`: overheads and caught bugs in one table.

use std::collections::BTreeMap;

use lab::adhoc::AdhocRun;
use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::point::Point;
use lab::quantity::{bytes, format_bytes};
use lab::suite::Lab;

use super::programs::Kernel;
use super::{FaultTiming, MAX_SIZE, manifest, table};
use crate::SUITE;
use crate::cli::{Effort, Error, set};

/// Options of `tollgate bounds kernels`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these kernels
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(Kernel::ALL.map(Kernel::name)))]
    kernel: Vec<String>,
    /// Only these mechanisms and their baselines
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = manifest::canonical)]
    mechanism: Vec<String>,
    /// Bytes of the char array; Intel MPX Explained uses 1 GiB [default: 1 MiB]
    #[arg(long, value_name = "BYTES", default_value = "1 MiB", hide_default_value = true, value_parser = size)]
    size: String,
    /// Include page faults in the timing, as in Intel MPX Explained
    #[arg(long)]
    page_faults: bool,
    #[command(flatten)]
    effort: Effort,
}

fn size(text: &str) -> Result<String, String> {
    let size = bytes(text).map_err(|wrong| wrong.to_string())?;
    match (1..=MAX_SIZE).contains(&size) {
        true => Ok(format_bytes(size)),
        false => Err(format!("expected 1 B to {}", format_bytes(MAX_SIZE))),
    }
}

/// Measures and prints the table. Returns the exit status: 0, or 1 if a measurement failed.
///
/// # Errors
/// Returns a usage error, or the reason if nothing can be measured.
pub(crate) fn main(options: &Options, lab: &Lab) -> Result<i32, Error> {
    let adhoc = AdhocRun {
        suite: &SUITE,
        experiments: experiments(options)?,
        profile: Profile::Standard,
        results: &options.effort.results,
        options: BTreeMap::new(),
    };
    adhoc.measure_and_print(lab, options.effort.output.json, table::write)
}

/// Returns the suite's experiments, reduced to the selected points.
fn experiments(options: &Options) -> Result<Vec<Experiment>, Error> {
    let all = Catalogue::of_suite(&SUITE)?.experiments(Profile::Standard)?;
    let mechanisms = with_baselines(&options.mechanism)?;
    let selected =
        all.into_iter().filter(|one| ["kernels", "detection"].contains(&one.name.as_str()));
    let reduce = |mut one: Experiment| {
        let baseline = one.baseline.clone();
        let is_in = |selected: &[String], level: &str| {
            selected.is_empty() || selected.iter().any(|it| it == level)
        };
        let is_baseline = |point: &Point, factor: &str| point.text(factor) == baseline.text(factor);
        one.keep(|point| {
            is_in(&mechanisms, point.text("mechanism"))
                && (point.text("kernel").is_empty() || is_in(&options.kernel, point.text("kernel")))
                && is_baseline(point, "pages")
                && is_baseline(point, "size")
        });
        if one.name == "kernels" {
            let pages =
                if options.page_faults { FaultTiming::Fresh } else { FaultTiming::Prefaulted };
            set(&mut one, "size", &options.size);
            set(&mut one, "pages", pages.name());
            options.effort.apply(&mut one);
        }
        one
    };
    Ok(selected.map(reduce).filter(|one| !one.points.is_empty()).collect())
}

/// Returns the selected mechanisms and their baselines.
fn with_baselines(selected: &[String]) -> Result<Vec<String>, Error> {
    let mut all = selected.to_vec();
    for name in selected {
        all.extend(manifest::mechanism(name)?.baseline.clone());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Result<Vec<Experiment>, clap::Error> {
        let arguments = [&["kernels"], arguments].concat();
        Arguments::try_parse_from(arguments).map(|it| experiments(&it.options).unwrap())
    }

    #[test]
    fn a_selected_mechanism_includes_its_baseline() {
        let arguments = "--mechanism gcc-asan --kernel struct --size 4MiB --page-faults".split(' ');
        let experiments = parse(&arguments.collect::<Vec<_>>()).unwrap();
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
    fn unknown_mechanisms_kernels_and_sizes_are_usage_errors() {
        assert!(
            parse(&["--mechanism", "warp"])
                .unwrap_err()
                .to_string()
                .contains("unknown mechanism 'warp'")
        );
        assert!(parse(&["--kernel", "qsort"]).is_err());
        for size in ["big", "0", "17 GiB", "8192 TiB"] {
            assert!(parse(&["--size", size]).is_err(), "{size}");
        }
    }
}
