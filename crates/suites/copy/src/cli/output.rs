//! The table of `memcpy_test` and its CSV file.

use std::io::{self, Write};
use std::path::Path;

use lab::adhoc::PointValues;
use lab::spreadsheet;
use lab::suite::UsageError;
use machine::file::{self, Output};

use super::options::{EscapeTest, Options};
use super::{Error, Row};
use crate::metrics::{CHECKED, THROUGHPUT, TIME};

const CSV_HEADER: &str = "Experiment Description, Copy length (Bytes), Copy Type, Throughput (GBps), Number of Runs, Number of Threads";
const RULE: &str =
    "--------------------------------------------------------------------------------------";

/// Returns the name of a function in `memcpy_test`'s output.
fn copy_type(function: &str) -> String {
    if function.contains(':') { function.into() } else { format!("{function}_memcpy") }
}

/// Writes the first line of `memcpy_test`.
pub(super) fn write_head(
    out: &mut impl Write,
    options: &Options,
    tests: &[EscapeTest],
) -> io::Result<()> {
    let ids: Vec<String> = tests.iter().map(|test| test.id.to_string()).collect();
    writeln!(
        out,
        "PAGE_MASK=0x{:08x} data_off={} source_init={} payload_len_num={} runs={} thread count={} sleep={} num_mem_pairs={} [ {} ]",
        machine::mapping::PAGE - 1,
        options.source_offset,
        options.source_init,
        options.lengths().len(),
        options.runs,
        options.threads,
        options.sleep,
        ids.len(),
        ids.join(" "),
    )
}

/// Writes the rows of one experiment, or why it has none.
pub(super) fn write_test(
    out: &mut impl Write,
    test: EscapeTest,
    rows: &[Row],
    values: &PointValues,
    options: &Options,
) -> io::Result<()> {
    writeln!(out, "{RULE}")?;
    let megabytes = test.mapped as f64 / 1e6;
    writeln!(out, "{}) {} (len={megabytes:.6} MB)", test.id, test.description)?;
    let mut reasons: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| row.test == test) {
        let median = |metric| values.median(&row.point, metric);
        if let (Some(rate), Some(time)) = (median(THROUGHPUT), median(TIME)) {
            writeln!(out, "{}", line(row, rate, time, options.copies_per_sample()))?;
        } else if let Some(bytes) = median(CHECKED) {
            writeln!(out, "{}", verified_line(row, bytes))?;
        } else {
            let why = values.missing_reason(&row.point);
            if !reasons.contains(&why) {
                writeln!(out, "    not measured: {why}")?;
                reasons.push(why);
            }
        }
    }
    if let Some(length) = options.lengths().iter().find(|length| **length > test.mapped) {
        let mapped = test.mapped;
        writeln!(
            out,
            "    Cannot run test with payload length (0x{length:x}) > mapped length (0x{mapped:x})"
        )?;
    }
    Ok(())
}

/// `      16 bytes using glibc_memcpy =   5.785 GB/s (1000 runs: ave delta = 0.000000003 secs)`
fn line(row: &Row, rate: f64, time: f64, runs: u64) -> String {
    format!(
        "{:8} bytes using {:>12} = {:7.3} GB/s ({runs} runs: ave delta = {:.9} secs)",
        row.length,
        copy_type(&row.function),
        rate / 1e9,
        time / 1e9,
    )
}

/// `      16 bytes using glibc_memcpy =   verified, not timed (16 bytes)`: there is no clock, as on an emulated CPU.
fn verified_line(row: &Row, bytes: f64) -> String {
    let function = copy_type(&row.function);
    format!("{:8} bytes using {function:>12} = verified, not timed ({bytes} bytes)", row.length)
}

/// Writes `results.csv` for ESCAPE's plotting script. Replaces only files that it wrote.
///
/// # Errors
/// Returns an error if the file has other contents or cannot be written. It is not a usage error:
/// [`check_csv`] has accepted the name.
pub(super) fn write_csv(
    path: &Path,
    rows: &[Row],
    values: &PointValues,
    options: &Options,
) -> Result<(), Error> {
    let mut bytes = Vec::new();
    table(&mut bytes, rows, values, options)?;
    let written = Output::create_over(path, CSV_HEADER.as_bytes()).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.finish()
    });
    written.map_err(|why| no_csv(path, &why).into())
}

/// Checks that the file of the table may be written, before any measurement.
///
/// # Errors
/// Returns an error if the file has other contents or cannot be created.
pub(super) fn check_csv(path: &Path) -> Result<(), UsageError> {
    Output::check_over(path, CSV_HEADER.as_bytes())
        .map_err(|why| UsageError::new(no_csv(path, &why)))
}

fn no_csv(path: &Path, why: &io::Error) -> String {
    format!("cannot write {}: {why}; {} with --csv", path.display(), file::remedy(why))
}

fn table(
    out: &mut impl Write,
    rows: &[Row],
    values: &PointValues,
    options: &Options,
) -> Result<(), csv::Error> {
    writeln!(out, "{CSV_HEADER}")?;
    let mut table = csv::Writer::from_writer(out);
    for row in rows {
        let Some(rate) = values.median(&row.point, THROUGHPUT) else { continue };
        table.write_record([
            row.test.description,
            &row.length.to_string(),
            spreadsheet::cell(&copy_type(&row.function)).as_ref(),
            &format!("{:.3}", rate / 1e9),
            &options.copies_per_sample().to_string(),
            &options.threads.to_string(),
        ])?;
    }
    table.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;
    use clap::Parser;
    use lab::sample::{Failure, Sample};

    fn values_of(rows: &[Row]) -> PointValues {
        let measured = rows[..2].iter().flat_map(|row| {
            (0..).zip([(5.0e9, 3.2), (5.785e9, 2.766), (9.0e9, 1.0)]).map(
                |(round, (rate, time))| {
                    let values = [(THROUGHPUT.to_owned(), rate), (TIME.to_owned(), time)].into();
                    Sample { point: row.point.clone(), round, values, ..Sample::default() }
                },
            )
        });
        let failure = Failure::unavailable("no /dev/mem", "use a kernel with CONFIG_DEVMEM");
        let failed = rows[2..].iter().map(|row| Sample {
            point: row.point.clone(),
            error: Some(failure.clone()),
            ..Sample::default()
        });
        PointValues::of(&measured.chain(failed).collect::<Vec<_>>())
    }

    #[test]
    fn the_csv_equals_that_of_memcpy_test() {
        let options = Options::try_parse_from(["copy", "0", "-r", "1000", "-n", "2"]).unwrap();
        let rows = rows(&options, &options.tests().unwrap());
        let mut out = Vec::new();
        table(&mut out, &rows, &values_of(&rows), &options).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Experiment Description, Copy length (Bytes), Copy Type, Throughput (GBps), Number of Runs, Number of Threads\n\
             App writes to host-heap,16,glibc_memcpy,5.785,1000,0\n\
             App writes to host-heap,16,naive_memcpy,5.785,1000,0\n"
        );
    }

    #[test]
    fn a_function_name_is_escaped_as_a_spreadsheet_cell() {
        let options = Options::try_parse_from(["copy", "0", "-n", "1"]).unwrap();
        let mut rows = rows(&options, &options.tests().unwrap());
        rows.truncate(2);
        for (row, function) in rows.iter_mut().zip(["=cmd()/x.so:f", "-1+1.so:f"]) {
            row.function = function.into();
            row.point = row.point.with("function", function);
        }
        let mut out = Vec::new();
        table(&mut out, &rows, &values_of(&rows), &options).unwrap();
        let text = String::from_utf8(out).unwrap();
        let written: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
        assert_eq!(written, ["'=cmd()/x.so:f", "'-1+1.so:f"]);
    }

    #[test]
    fn the_table_equals_that_of_memcpy_test() {
        let options = Options::try_parse_from(["copy", "2", "-r", "1000"]).unwrap();
        let tests = options.tests().unwrap();
        let rows = rows(&options, &tests);
        let mut out = Vec::new();
        write_head(&mut out, &options, &tests).unwrap();
        write_test(&mut out, tests[0], &rows, &values_of(&rows), &options).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "PAGE_MASK=0x00000fff data_off=0 source_init=0 payload_len_num=9 runs=1000 thread count=0 sleep=0 num_mem_pairs=1 [ 2 ]",
                RULE,
                "2) App writes to host-mmap (len=0.524288 MB)",
                "      16 bytes using glibc_memcpy =   5.785 GB/s (1000 runs: ave delta = 0.000000003 secs)",
                "      16 bytes using naive_memcpy =   5.785 GB/s (1000 runs: ave delta = 0.000000003 secs)",
                "    not measured: unavailable: no /dev/mem (use a kernel with CONFIG_DEVMEM)",
                "    Cannot run test with payload length (0x100000) > mapped length (0x80000)",
            ]
        );
    }

    #[test]
    fn an_unwritable_table_is_refused_before_measuring() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nothing", &link).unwrap();
        for (path, fix) in [
            (folder.path().join("none/x.csv"), "create its folder first"),
            (folder.path().to_owned(), "choose another file with --csv"),
            (link, "choose another file with --csv"),
        ] {
            let line = check_csv(&path).unwrap_err().to_string();
            assert!(line.contains(fix), "{line}");
        }
        check_csv(&folder.path().join("x.csv")).unwrap();
        assert!(!folder.path().join("x.csv").exists(), "the check created the file");
        check_csv(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn only_a_table_with_our_header_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let options = Options::try_parse_from(["copy", "0", "-n", "1"]).unwrap();
        let rows = rows(&options, &options.tests().unwrap());
        let write = || write_csv(&path, &rows, &values_of(&rows), &options);
        for earlier in [
            "",
            CSV_HEADER,
            "Experiment Description, Copy length (Bytes), Copy Type, Throughput (GBps), Number of Runs, Number of Threads\nold row\n",
        ] {
            std::fs::write(&path, earlier).unwrap();
            check_csv(&path).unwrap();
            write().unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().starts_with(CSV_HEADER));
            assert!(!std::fs::read_to_string(&path).unwrap().contains("old row"));
        }
        for foreign in ["salary,name\n1,a\n", &CSV_HEADER[1..], "E"] {
            std::fs::write(&path, foreign).unwrap();
            let line = check_csv(&path).unwrap_err().to_string();
            assert!(line.contains("results.csv") && line.contains("--csv"), "{line}");
            assert!(write().is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
    }
}
