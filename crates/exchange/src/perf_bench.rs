//! Output of `perf bench`, in its default format and in its simple one, which has numbers only.

use std::collections::BTreeMap;

use lab::quantity::format_bytes;

use crate::ImportOptions;
use crate::counterpart::Counterparts;
use crate::error::ExchangeError;
use crate::input::Input;
use crate::source::{ForeignValue, Format, Import, Source, Stated};

/// perf's prefixes of bytes are binary although it writes `GB`.
const KIBI: f64 = 1024.0;

/// Benchmark of perf: its collection and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Benchmark {
    collection: String,
    name: String,
}

impl Benchmark {
    /// Parses `syscall basic` or `syscall/basic`.
    ///
    /// # Errors
    /// Returns one line if the text does not consist of two names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_name = |name: &&str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        let words: Vec<&str> = text.split([' ', '/']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            [collection, name] if is_name(&collection) && is_name(&name) => {
                Ok(Self { collection: collection.into(), name: name.into() })
            }
            _ => Err(format!("'{text}' is not a benchmark of perf, e.g. 'syscall basic'")),
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

/// Reads the results of all benchmarks.
///
/// # Errors
/// Returns the first line that cannot be parsed, and an error if there is no result.
pub(crate) fn import(input: &Input, options: &ImportOptions) -> Result<Import, ExchangeError> {
    let counterparts = Counterparts::built_in()?;
    let is_default = input.text.contains("# Running ");
    let values = match (is_default, &options.benchmark) {
        (true, None) => default_format(input)?,
        (true, Some(_)) => {
            let what = "the output names its benchmarks; omit --benchmark";
            return Err(ExchangeError::content(&input.file, what));
        }
        (false, Some(benchmark)) => simple_format(input, benchmark, options, counterparts)?,
        (false, None) => {
            let what = "no line '# Running ...'; for --format simple add --benchmark, e.g. 'syscall basic'";
            return Err(ExchangeError::content(&input.file, what));
        }
    };
    if values.is_empty() {
        let what =
            "no results of perf bench; expected lines such as '0.1 usecs/op' or '18.8 GB/sec'";
        return Err(ExchangeError::content(&input.file, what));
    }
    let mut source = Source::of(Format::PerfBench, "perf bench", input);
    source.condition("format", if is_default { "default" } else { "simple" });
    source.condition("method", counterparts.method(Format::PerfBench));
    Ok(Import::of_values(source, values))
}

/// State of the output while it is read.
#[derive(Default)]
struct Reading {
    /// e.g. `mem/memcpy`.
    key: String,
    /// Function of a benchmark of memory.
    function: String,
    /// Length of a benchmark of memory.
    length: Option<u64>,
}

impl Reading {
    /// Returns the value with a time or a rate.
    fn value(&self, metric: &'static str, unit: &'static str, value: f64) -> ForeignValue {
        let mut levels = BTreeMap::new();
        let mut name = self.key.replace('/', " ");
        let mut key = self.key.clone();
        if !self.function.is_empty() {
            name += &format!(" {}", self.function);
            key += &format!(" {}", self.function);
        }
        if let Some(length) = self.length {
            let length = format_bytes(length);
            name += &format!(" {length}");
            levels.insert("length".to_owned(), length);
        }
        let is_finite = value.is_finite();
        let remark =
            (!is_finite).then(|| "not finite: the clock of perf bench is too coarse".into());
        let stated = is_finite.then(|| Stated::exact(value));
        ForeignValue { name, key, levels, metric, unit, stated, remark }
    }

    /// Takes what a comment states.
    fn comment(&mut self, comment: &str) {
        let quoted = |text: &str| text.split('\'').nth(1).map(str::to_owned);
        if comment.starts_with("Running ") {
            let name = quoted(comment).unwrap_or_default();
            *self = Self { key: name, ..Self::default() };
        } else if comment.starts_with("function ") {
            self.function = quoted(comment).unwrap_or_default();
        } else if let Some(length) = comment.strip_prefix("Copying ") {
            self.length = length.split_whitespace().next().and_then(binary_bytes);
        }
    }
}

/// Parses the default format.
fn default_format(input: &Input) -> Result<Vec<ForeignValue>, ExchangeError> {
    let mut reading = Reading::default();
    let mut values = Vec::new();
    for (number, line) in input.lines() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("# ") {
            reading.comment(comment);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [value, unit] = words[..] else { continue };
        let wrong =
            |what: &str| ExchangeError::at(&input.file, number, format!("'{line}': {what}"));
        // A fault of perf's prints `12.5d KB/sec`.
        let number = || {
            let value = value.trim_end_matches('d').parse().ok().filter(|it: &f64| *it >= 0.0);
            value.ok_or_else(|| wrong("expected a number of at least 0 before the unit"))
        };
        let value = match unit {
            "usecs/op" => reading.value("time", "ns", number()? * 1e3),
            "bytes/sec" => reading.value("throughput", "B/s", number()?),
            "KB/sec" => reading.value("throughput", "B/s", number()? * KIBI),
            "MB/sec" => reading.value("throughput", "B/s", number()? * KIBI * KIBI),
            "GB/sec" => reading.value("throughput", "B/s", number()? * KIBI * KIBI * KIBI),
            "ops/sec" => continue,
            other if other.ends_with("/sec") || other.ends_with("/op") => {
                return Err(wrong(
                    "expected the unit usecs/op, or bytes/sec, KB/sec, MB/sec or GB/sec",
                ));
            }
            _ => continue,
        };
        values.push(value);
    }
    Ok(values)
}

/// Parses the simple format: the total time in seconds of a number of operations, or bytes per second.
fn simple_format(
    input: &Input,
    benchmark: &Benchmark,
    options: &ImportOptions,
    counterparts: &Counterparts,
) -> Result<Vec<ForeignValue>, ExchangeError> {
    let key = benchmark.key();
    let is_of_memory = benchmark.collection == "mem";
    let mut reading = Reading { key: key.clone(), ..Reading::default() };
    let operations = options.operations.or_else(|| counterparts.operations(&key));
    let mut values = Vec::new();
    for (number, line) in input.lines() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("# ") {
            reading.comment(comment);
        } else if !line.is_empty() {
            let value = line.parse().ok().filter(|it: &f64| *it >= 0.0).ok_or_else(|| {
                let what =
                    format!("'{line}': expected a number of at least 0, as --format simple prints");
                ExchangeError::at(&input.file, number, what)
            })?;
            values.push(if is_of_memory {
                let remark = "--format simple does not state the length; use the default format";
                let value = reading.value("throughput", "B/s", value);
                ForeignValue { remark: value.remark.or_else(|| Some(remark.into())), ..value }
            } else {
                let operations = operations.filter(|count| *count > 0).ok_or_else(|| {
                    let line = format!("--operations is required: perf's number for '{key}' is unknown");
                    ExchangeError::Option(line)
                })?;
                let remark = match options.operations {
                    Some(_) => None,
                    None => Some(format!("if perf bench executed {operations} operations, its default; set --operations otherwise")),
                };
                let value = reading.value("time", "ns", value * 1e9 / operations as f64);
                ForeignValue { remark: value.remark.or(remark), ..value }
            });
        }
    }
    Ok(values)
}

/// Parses a size such as `1MB`, whose prefix is binary.
fn binary_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTPUT: &str = "# Running 'syscall/basic' benchmark:\n# Executed 100000 getppid() calls\n     \
        Total time: 0.011 [sec]\n\n       0.117470 usecs/op\n        8512811 ops/sec\n\
        # Running 'mem/memcpy' benchmark:\n\
        # function 'default' (Default memcpy() provided by glibc)\n# Copying 1MB bytes ...\n\n      \
        40.690104 GB/sec\n# function 'x86-64-movsb' (movsb-based memcpy() in arch/x86/lib/memcpy_64.S)\n\
        # Copying 1KB bytes ...\n\n            inf GB/sec\n\n  12.5d KB/sec\n";

    fn read(text: &str, options: &ImportOptions) -> Result<Import, String> {
        let input = Input::of("perf.txt".into(), text.as_bytes());
        import(&input, options).map_err(|why| why.to_string())
    }

    fn simple(benchmark: &str, operations: Option<u64>) -> ImportOptions {
        let benchmark = Some(Benchmark::parse(benchmark).unwrap());
        ImportOptions { benchmark, operations, ..ImportOptions::default() }
    }

    #[test]
    fn the_default_format_has_times_and_binary_rates() {
        let read = read(OUTPUT, &ImportOptions::default()).unwrap();
        let [getppid, copy, infinite, slow] = &read.values[..] else { panic!("{read:?}") };
        assert_eq!((getppid.key.as_str(), getppid.metric), ("syscall/basic", "time"));
        assert_eq!(getppid.stated, Some(Stated::exact(0.117_470 * 1e3)));
        assert_eq!(copy.key, "mem/memcpy default");
        assert_eq!(copy.levels["length"], "1 MiB");
        assert_eq!(copy.stated, Some(Stated::exact(40.690104 * KIBI * KIBI * KIBI)));
        assert!(infinite.stated.is_none() && infinite.name.ends_with("x86-64-movsb 1 KiB"));
        assert_eq!(slow.stated, Some(Stated::exact(12.5 * KIBI)));
    }

    #[test]
    fn the_simple_format_needs_the_name_of_its_benchmark() {
        let read_simple =
            |text: &str, name: &str, operations| read(text, &simple(name, operations));
        let of = |import: Import| import.values[0].clone();
        let timed = of(read_simple("0.031\n", "syscall basic", Some(100_000)).unwrap());
        assert_eq!((timed.stated, timed.remark), (Some(Stated::exact(0.031 * 1e9 / 1e5)), None));
        let by_default = of(read_simple("2.031\n", "syscall/basic", None).unwrap());
        assert_eq!(by_default.stated, Some(Stated::exact(2.031 * 1e9 / 1e7)));
        assert!(by_default.remark.unwrap().contains("10000000 operations, its default"));
        let text =
            "# function 'default' (Default memcpy() provided by glibc)\n37449142857.142860\n";
        let copied = of(read_simple(text, "mem memcpy", None).unwrap());
        assert_eq!((copied.key.as_str(), copied.metric), ("mem/memcpy default", "throughput"));
        assert_eq!(copied.stated.unwrap().value, 37_449_142_857.142_86);
        for (text, name, expected) in [
            ("0.1\n", "futex hash", "--operations is required"),
            ("fast\n", "syscall basic", "perf.txt:1: 'fast': expected a number of at least 0"),
            ("-1\n", "syscall basic", "perf.txt:1: '-1': expected a number of at least 0"),
            (OUTPUT, "syscall basic", "omit --benchmark"),
        ] {
            let error = read_simple(text, name, None).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for wrong in ["-5 usecs/op", "nan usecs/op", "2.0 TB/sec", "3 weeks/op"] {
            let text = format!("# Running 'syscall/basic' benchmark:\n{wrong}\n");
            let error = read(&text, &ImportOptions::default()).unwrap_err();
            assert!(error.starts_with(&format!("perf.txt:2: '{wrong}': expected ")), "{error}");
        }
        let error = read("0.031\n", &ImportOptions::default()).unwrap_err();
        assert!(error.contains("add --benchmark"), "{error}");
        for wrong in ["syscall", "a b c", "", "a /é"] {
            assert!(Benchmark::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(
            ["1MB", "8KB", "16", "1GB"].map(binary_bytes),
            [1 << 20, 8 << 10, 16, 1 << 30].map(Some)
        );
        assert_eq!(["", "MB", "1XB", "99999999999TB"].map(binary_bytes), [None; 4]);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_errors_are_one_line(text in ".{0,200}", cut in 0usize..700) {
            let mixed = OUTPUT.chars().take(cut).collect::<String>() + &text;
            for text in [&text, &mixed] {
                for options in [ImportOptions::default(), simple("mem memcpy", None)] {
                    if let Err(error) = read(text, &options) {
                        prop_assert!(!error.contains('\n'));
                    }
                }
            }
        }
    }
}
