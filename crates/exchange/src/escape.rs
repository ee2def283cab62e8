//! `results.csv` of ESCAPE's `memcpy_test`, which `tollgate copy` writes too.

use std::collections::{BTreeMap, BTreeSet};

use lab::quantity::format_bytes;

use crate::counterpart::Counterparts;
use crate::error::ExchangeError;
use crate::input::Input;
use crate::source::{ForeignValue, Format, Import, Source, Stated};

/// Columns of the file.
const COLUMNS: [&str; 6] = [
    "Experiment Description",
    "Copy length (Bytes)",
    "Copy Type",
    "Throughput (GBps)",
    "Number of Runs",
    "Number of Threads",
];
/// Maximum number of rows.
const MAX_ROWS: usize = 100_000;
/// End of the names of copy functions.
const MEMCPY: &str = "_memcpy";

/// Reads the rows of a file.
///
/// # Errors
/// Returns the first line that is not a row.
pub(crate) fn import(input: &Input) -> Result<Import, ExchangeError> {
    let counterparts = Counterparts::built_in()?;
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(input.text.as_bytes());
    let error = |line: usize, what: String| ExchangeError::at(&input.file, line, what);
    let headers = reader.headers().map_err(|why| error(1, why.to_string()))?;
    if headers.iter().ne(COLUMNS) {
        let columns = COLUMNS.join(", ");
        let what = format!("not a results.csv of ESCAPE; its first line is '{columns}'");
        return Err(error(1, what));
    }
    let (mut values, mut runs, mut threads) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for record in reader.records() {
        let line = |record: &csv::StringRecord| {
            record.position().and_then(|at| usize::try_from(at.line()).ok()).unwrap_or_default()
        };
        let record = record.map_err(|why| ExchangeError::content(&input.file, why.to_string()))?;
        let row = Row::of(&record).map_err(|what| error(line(&record), what))?;
        let levels = counterparts.escape(row.description);
        let levels = levels.ok_or_else(|| {
            let known = counterparts.escape_descriptions().join(", ");
            let what = format!("unknown experiment '{}'; expected one of {known}", row.description);
            error(line(&record), what)
        })?;
        runs.insert(row.runs);
        threads.insert(row.threads);
        values.push(row.value(levels));
        if values.len() > MAX_ROWS {
            let what = format!("more than {MAX_ROWS} rows; split the file");
            return Err(error(line(&record), what));
        }
    }
    if values.is_empty() {
        let what = "no rows after the header; run memcpy_test or 'tollgate copy' first";
        return Err(ExchangeError::content(&input.file, what));
    }
    let mut source = Source::of(Format::Escape, "memcpy_test", input);
    let list =
        |numbers: &BTreeSet<u64>| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    source.condition("runs", list(&runs));
    source.condition("threads", list(&threads));
    source.condition("method", counterparts.method(Format::Escape));
    Ok(Import::of_values(source, values))
}

/// Row of the file.
struct Row<'a> {
    description: &'a str,
    length: u64,
    function: &'a str,
    /// Throughput in B/s.
    throughput: f64,
    runs: u64,
    threads: u64,
}

impl<'a> Row<'a> {
    fn of(record: &'a csv::StringRecord) -> Result<Self, String> {
        let cells: Vec<&str> = record.iter().collect();
        let [description, length, function, throughput, runs, threads] = cells[..] else {
            return Err(format!("{} columns; expected {}", cells.len(), COLUMNS.len()));
        };
        let count = |text: &str, column: usize| {
            let wrong =
                |_| format!("'{text}': expected a whole number in the column {}", COLUMNS[column]);
            text.parse::<u64>().map_err(wrong)
        };
        let rate = throughput.parse::<f64>().ok().map(|gigabytes| gigabytes * 1e9);
        let rate = rate.filter(|it| it.is_finite() && *it >= 0.0).ok_or_else(|| {
            format!("'{throughput}': expected a number in the column {}", COLUMNS[3])
        })?;
        // A spreadsheet's mark of a text is no part of the name.
        let function = function.strip_prefix('\'').unwrap_or(function);
        Ok(Self {
            description,
            length: count(length, 1)?,
            function,
            throughput: rate,
            runs: count(runs, 4)?,
            threads: count(threads, 5)?,
        })
    }

    fn value(&self, levels: &BTreeMap<String, String>) -> ForeignValue {
        let length = format_bytes(self.length);
        let function = self.function.strip_suffix(MEMCPY).unwrap_or(self.function);
        let mut levels = levels.clone();
        levels.insert("length".into(), length.clone());
        levels.insert("function".into(), function.into());
        levels.insert("threads".into(), self.threads.to_string());
        let threads = match self.threads {
            0 => String::new(),
            1 => ", 1 thread".into(),
            threads => format!(", {threads} threads"),
        };
        let is_zero = self.throughput == 0.0;
        ForeignValue {
            name: format!("{}, {length}, {}{threads}", self.description, self.function),
            key: "row".into(),
            levels,
            metric: "throughput",
            unit: "B/s",
            stated: (!is_zero)
                .then(|| Stated { runs: Some(self.runs), ..Stated::exact(self.throughput) }),
            remark: is_zero.then(|| "below the file's step of 1 MB/s".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Import, String> {
        import(&Input::of("results.csv".into(), text.as_bytes())).map_err(|why| why.to_string())
    }

    fn header() -> String {
        COLUMNS.join(", ") + "\n"
    }

    #[test]
    fn rows_have_the_form_that_escape_documents() {
        let text = format!(
            "  {}  App writes to host-heap,16,glibc_memcpy,5.785,1000,0\n  \
             App reads from escape-mmap,65536, apex_memcpy,0.006,1000,8\n\
             App writes to host-heap,16,'=evil:f,0.000,5,1\n",
            header()
        );
        let read = read(&text).unwrap();
        let [heap, device, zero] = &read.values[..] else { panic!("{read:?}") };
        assert_eq!(heap.name, "App writes to host-heap, 16 B, glibc_memcpy");
        assert_eq!(heap.stated.unwrap().value, 5.785e9);
        assert_eq!(heap.stated.unwrap().runs, Some(1000));
        let level = |value: &ForeignValue, factor: &str| value.levels[factor].clone();
        let factors = ["direction", "memory", "length", "function", "threads"];
        let levels = factors.map(|factor| level(device, factor));
        assert_eq!(levels, ["read", "device", "64 KiB", "apex", "8"]);
        assert!(device.name.ends_with(", 8 threads"), "{}", device.name);
        assert_eq!(zero.stated, None);
        assert_eq!(level(zero, "function"), "=evil:f");
        let names: Vec<_> = read.source.conditions.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["runs", "threads", "method"]);
        assert_eq!(read.source.conditions[0].value, "5, 1000");
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        for (rows, expected) in [
            ("", "no rows after the header"),
            ("App writes to host-heap,16,glibc_memcpy,5.785,1000\n", ":2: 5 columns"),
            (
                "App writes to host-heap,x,glibc_memcpy,5.785,1000,0\n",
                ":2: 'x': expected a whole number in the column Copy length",
            ),
            (
                "App writes to host-heap,16,glibc_memcpy,inf,1000,0\n",
                "'inf': expected a number in the column Throughput",
            ),
            (
                "App writes to tape,16,glibc_memcpy,1,1000,0\n",
                "unknown experiment 'App writes to tape'",
            ),
        ] {
            let error = read(&(header() + rows)).unwrap_err();
            assert!(error.starts_with("results.csv") && error.contains(expected), "{error}");
        }
        let error = read("a,b\n1,2\n").unwrap_err();
        assert!(error.contains(":1: not a results.csv of ESCAPE"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_errors_are_one_line(text in ".{0,200}", has_header: bool) {
            let text = if has_header { header() + &text } else { text };
            if let Err(error) = read(&text) {
                prop_assert!(!error.contains('\n'));
            }
        }

        #[test]
        fn any_row_is_read_back(length in 0u64..1 << 40, throughput in 0.0f64..1e4, threads in 0u64..100) {
            let rate = format!("{throughput:.3}");
            let row = format!("App writes to host-heap,{length},naive_memcpy,{rate},5,{threads}\n");
            let read = read(&(header() + &row)).unwrap();
            let value = &read.values[0];
            prop_assert_eq!(&value.levels["threads"], &threads.to_string());
            prop_assert_eq!(lab::quantity::bytes(&value.levels["length"]), Ok(length));
            let expected = rate.parse::<f64>().unwrap() * 1e9;
            prop_assert_eq!(value.stated.map_or(0.0, |it| it.value), expected);
        }
    }
}
