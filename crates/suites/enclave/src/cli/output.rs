//! The output of the Open Enclave sample, and the speed-up.

use std::io::{self, Write};

use lab::adhoc::PointValues;

use super::Row;
use super::options::Options;
use crate::allocation::CHECKED;

/// The printed metric.
const METRIC: &str = "wall";
/// Width of the sample's names.
const NAME: usize = 32;
/// Width of the text before the sample's equal signs.
const LABEL: usize = 36;

/// Prints the configuration in the sample's format.
pub(super) fn head(out: &mut impl Write, kind: &str, options: &Options) -> io::Result<()> {
    let mode = if kind == "sgx" { "hardware" } else { "simulation" };
    writeln!(out, "Configuration:")?;
    writeln!(out, "{:>LABEL$} = {mode}", "mode")?;
    writeln!(out, "{:>LABEL$} = {}", "num-allocations (per-thread)", options.num_allocations)?;
    writeln!(out, "{:>LABEL$} = {} bytes", "max-allocation-size", options.max_allocation_size)
}

/// Prints the results of one number of threads with each allocator; the first is the default one.
pub(super) fn threads(
    out: &mut impl Write,
    rows: &[Row],
    results: &PointValues,
    cores: usize,
) -> io::Result<()> {
    let Some(default) = rows.first() else { return Ok(()) };
    writeln!(out, "num-threads = {}:", default.threads)?;
    for (index, row) in rows.iter().enumerate() {
        let part = if index == 0 { "default" } else { "pluggable" };
        let name = format!("{:<10} ({part} allocator)", row.allocator);
        match results.median(&row.point, METRIC) {
            Some(wall) => {
                writeln!(out, "    {name:>NAME$} = {:4} milliseconds", (wall / 1e6) as u64)?;
            }
            None => writeln!(out, "    {name:>NAME$} = {}", not_measured(results, row))?,
        }
    }
    for row in &rows[1..] {
        let ratio = results.ratio(&default.point, &row.point, METRIC);
        let Some(speed_up) = ratio else { continue };
        let name = match rows.len() {
            2 => "speed-up".to_owned(),
            _ => format!("speed-up of {}", row.allocator),
        };
        let crowded = match default.threads as f64 / cores.max(1) as f64 {
            crowd if crowd > 1.0 => format!(" ({crowd} threads per core)"),
            _ => String::new(),
        };
        writeln!(out, "    {name:>NAME$} = {speed_up:7.2}{crowded}")?;
    }
    writeln!(out)
}

/// Returns why there is no time: on an emulated CPU the blocks are only counted.
fn not_measured(results: &PointValues, row: &Row) -> String {
    match results.median(&row.point, CHECKED) {
        Some(blocks) => format!("verified, not timed ({blocks} blocks)"),
        None => format!("not measured: {}", results.missing_reason(&row.point)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lab::sample::{Failure, Sample};

    use super::super::rows;
    use super::*;
    use crate::conf::Conf;

    fn printed(words: &[&str], measured: &[&[f64]], cores: usize) -> String {
        let words = [&["enclave"], words].concat();
        let options = Options::try_parse_from(words).unwrap();
        let rows = rows(&options, &Conf::default(), "sgx");
        let measured_ones = rows.iter().zip(measured).flat_map(|(row, rounds)| {
            (0..).zip(*rounds).map(|(round, ms)| {
                let values = [(METRIC.to_owned(), ms * 1e6)].into();
                Sample { point: row.point.clone(), round, values, ..Sample::default() }
            })
        });
        let failed = rows[measured.len()..].iter().map(|row| {
            let why = Failure::check("thread 3: the ECALL failed: out of threads");
            Sample { point: row.point.clone(), error: Some(why), ..Sample::default() }
        });
        let results = PointValues::of(&measured_ones.chain(failed).collect::<Vec<_>>());
        let mut out = Vec::new();
        head(&mut out, "sgx", &options).unwrap();
        for several in rows.chunks(options.allocators.len()) {
            threads(&mut out, several, &results, cores).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_output_has_the_samples_format_and_the_speed_up() {
        let measured: [&[f64]; 4] =
            [&[12.0, 12.9, 12.5], &[12.3, 12.2, 12.1], &[70.0, 72.0, 71.0], &[17.0, 17.9, 17.5]];
        assert_eq!(
            printed(&["--max-threads", "2"], &measured, 8),
            "Configuration:
                                mode = hardware
        num-allocations (per-thread) = 100000
                 max-allocation-size = 16384 bytes
num-threads = 1:
      dlmalloc   (default allocator) =   12 milliseconds
    snmalloc   (pluggable allocator) =   12 milliseconds
                            speed-up =    1.03

num-threads = 2:
      dlmalloc   (default allocator) =   71 milliseconds
    snmalloc   (pluggable allocator) =   17 milliseconds
                            speed-up =    4.06

"
        );
    }

    #[test]
    fn more_threads_than_cores_and_failures_are_reported() {
        let measured: [&[f64]; 3] = [&[10.0], &[10.0], &[20.0]];
        let text = printed(&["--max-threads", "2"], &measured, 1);
        assert!(text.contains("speed-up =    1.00\n"), "{text}");
        assert!(
            text.ends_with("= not measured: check: thread 3: the ECALL failed: out of threads\n\n")
        );
        let measured: [&[f64]; 3] = [&[20.0], &[10.0], &[5.0]];
        let text =
            printed(&["--max-threads", "1", "--allocators", "talc,rlsf,buddy"], &measured, 1);
        assert!(text.contains("             speed-up of rlsf =    2.00\n"), "{text}");
        assert!(text.contains("            speed-up of buddy =    4.00\n"), "{text}");
    }

    #[test]
    fn blocks_that_are_counted_are_not_timed() {
        let options = Options::try_parse_from(["enclave", "--max-threads", "1"]).unwrap();
        let rows = rows(&options, &Conf::default(), "simulate");
        let counted = rows.iter().map(|row| {
            let values = [(CHECKED.to_owned(), 100_000.0)].into();
            Sample { point: row.point.clone(), values, ..Sample::default() }
        });
        let results = PointValues::of(&counted.collect::<Vec<_>>());
        let mut out = Vec::new();
        threads(&mut out, &rows, &results, 8).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("= verified, not timed (100000 blocks)\n").count(), rows.len());
    }
}
