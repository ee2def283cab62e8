//! Output of `mbw`, a benchmark of memory bandwidth.

use std::collections::BTreeMap;

use lab::quantity::format_bytes;
use lab::statistics::median;

use crate::counterpart::Counterparts;
use crate::error::ExchangeError;
use crate::input::Input;
use crate::source::{ForeignValue, Format, Import, Source, Stated};

const MIB: f64 = 1_048_576.0;
/// Maximum size of mbw's arrays in MiB: 2^30 MiB are 1 PiB.
const MAX_MEBIBYTES: f64 = (1 << 30) as f64;

/// Method and size of the array, in MiB.
type Test = (String, u64);

/// Results of one test.
#[derive(Default)]
struct Rates {
    /// Rate of each run in B/s, in the order of the file.
    runs: Vec<f64>,
    /// mbw's average in B/s.
    average: Option<f64>,
}

/// Reads the results of all tests.
///
/// # Errors
/// Returns the first result that cannot be parsed, and an error if there is none.
pub(crate) fn import(input: &Input) -> Result<Import, ExchangeError> {
    let mut order: Vec<Test> = Vec::new();
    let mut tests: BTreeMap<Test, Rates> = BTreeMap::new();
    let mut block = "";
    for (number, line) in input.lines() {
        if !line.contains("Method:") {
            block =
                line.strip_suffix(" bytes as blocks for memcpy block copy test.").unwrap_or(block);
            continue;
        }
        let result = parse_line(line).ok_or_else(|| {
            let what = format!(
                "'{}' is not a result of mbw; expected e.g. '0 Method: MEMCPY Elapsed: 0.01 MiB: 64.0 Copy: 6400.0 MiB/s'",
                line.trim()
            );
            ExchangeError::at(&input.file, number, what)
        })?;
        let rates = tests.entry(result.test.clone()).or_insert_with(|| {
            order.push(result.test);
            Rates::default()
        });
        match result.is_average {
            true => rates.average = Some(result.rate),
            false => rates.runs.push(result.rate),
        }
    }
    if order.is_empty() {
        let what =
            "no results of mbw; its lines contain 'Method: MEMCPY Elapsed: ... Copy: ... MiB/s'";
        return Err(ExchangeError::content(&input.file, what));
    }
    let values = order.iter().filter_map(|test| Some(value(test, tests.get(test)?))).collect();
    let mut source = Source::of(Format::Mbw, "mbw", input);
    let counterparts = Counterparts::built_in()?;
    source.condition("method", counterparts.method(Format::Mbw));
    if let Some(bytes) = block.strip_prefix("Using ") {
        source.condition("block of MCBLOCK", format!("{bytes} bytes"));
    }
    Ok(Import::of_values(source, values))
}

/// Result in one line.
struct RunResult {
    test: Test,
    rate: f64,
    is_average: bool,
}

/// Parses `0 Method: MEMCPY Elapsed: 0.01386 MiB: 256.00000 Copy: 18470.418 MiB/s`.
fn parse_line(line: &str) -> Option<RunResult> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [run, "Method:", method, "Elapsed:", _, "MiB:", size, "Copy:", rate, "MiB/s"] = words[..]
    else {
        return None;
    };
    let is_average = run == "AVG";
    if !is_average {
        run.parse::<u64>().ok()?;
    }
    let size: f64 = size.parse().ok().filter(|size| (1.0..=MAX_MEBIBYTES).contains(size))?;
    // `inf` is what a clock that is too coarse gives.
    let rate: f64 = rate.parse().ok().filter(|rate| *rate >= 0.0)?;
    let in_bytes = rate * MIB;
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    let overflows = rate.is_finite() && !in_bytes.is_finite();
    if size.fract() != 0.0 || overflows || !method.chars().all(is_name) {
        return None;
    }
    Some(RunResult { test: (method.to_owned(), size as u64), rate: in_bytes, is_average })
}

/// Returns the median over the runs, or the average if the file has no runs.
fn value((method, mebibytes): &Test, rates: &Rates) -> ForeignValue {
    let finite = |rate: &&f64| rate.is_finite();
    let runs: Vec<f64> = rates.runs.iter().filter(finite).copied().collect();
    let is_whole = runs.len() == rates.runs.len();
    let average = rates.average.filter(|rate| rate.is_finite()).map(Stated::exact);
    let stated = match median(&runs).filter(|_| is_whole) {
        Some(value) => Some(Stated {
            value,
            low: runs.iter().copied().fold(f64::INFINITY, f64::min),
            high: runs.iter().copied().fold(0.0, f64::max),
            runs: Some(runs.len() as u64),
            is_upper_bound: false,
        }),
        None => average,
    };
    let remark = match (is_whole, median(&runs), &stated) {
        (false, ..) | (_, None, None) => {
            Some("a rate is not finite: the clock of mbw is too coarse")
        }
        (true, None, Some(_)) => Some("average only: the file has no runs"),
        (true, Some(_), _) => None,
    };
    let length = format_bytes(mebibytes.saturating_mul(1 << 20));
    ForeignValue {
        name: format!("{method} {length}"),
        key: method.clone(),
        levels: [("length".to_owned(), length)].into(),
        metric: "throughput",
        unit: "B/s",
        stated,
        remark: remark.map(String::from),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTPUT: &str = "Long uses 8 bytes. Allocating 2*1048576 elements = 16777216 bytes of memory.\n\
        Using 262144 bytes as blocks for memcpy block copy test.\n\
        Getting down to business... Doing 2 runs per test.\n\
        0\tMethod: MEMCPY\tElapsed: 0.00036\tMiB: 8.00000\tCopy: 22000.000 MiB/s\n\
        1\tMethod: MEMCPY\tElapsed: 0.00033\tMiB: 8.00000\tCopy: 24000.000 MiB/s\n\
        AVG\tMethod: MEMCPY\tElapsed: 0.00035\tMiB: 8.00000\tCopy: 22900.000 MiB/s\n\
        0\tMethod: MCBLOCK\tElapsed: 0.00000\tMiB: 8.00000\tCopy: inf MiB/s\n\
        AVG\tMethod: DUMB\tElapsed: 0.00020\tMiB: 8.00000\tCopy: 39119.804 MiB/s\n";

    fn read(text: &str) -> Result<Import, String> {
        import(&Input::of("mbw.txt".into(), text.as_bytes())).map_err(|why| why.to_string())
    }

    #[test]
    fn each_test_has_the_median_and_the_range_of_its_runs() {
        let read = read(OUTPUT).unwrap();
        let [memcpy, block, dumb] = &read.values[..] else { panic!("{read:?}") };
        let stated = memcpy.stated.unwrap();
        assert_eq!((stated.value, stated.runs), (23000.0 * MIB, Some(2)));
        assert_eq!((stated.low, stated.high), (22000.0 * MIB, 24000.0 * MIB));
        assert_eq!((memcpy.key.as_str(), memcpy.levels["length"].as_str()), ("MEMCPY", "8 MiB"));
        assert!(block.stated.is_none() && block.remark.as_ref().unwrap().contains("not finite"));
        assert_eq!(dumb.stated, Some(Stated::exact(39119.804 * MIB)));
        assert!(dumb.remark.as_ref().unwrap().contains("average only"));
        assert!(read.source.conditions.iter().any(|it| it.value == "262144 bytes"));
    }

    #[test]
    fn other_output_is_refused() {
        assert!(read("hello\n").unwrap_err().contains("no results of mbw"));
        let line = "0 Method: MEMCPY Elapsed: 1 MiB: 8.5 Copy: 1 MiB/s";
        let overflow = "0 Method: MEMCPY Elapsed: 1 MiB: 8 Copy: 1e308 MiB/s";
        for wrong in [line, overflow] {
            let error = read(wrong).unwrap_err();
            let expected = format!("mbw.txt:1: '{wrong}' is not a result of mbw; expected e.g. ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_errors_are_one_line(text in ".{0,200}", cut in 0usize..800) {
            let mixed = OUTPUT.chars().take(cut).collect::<String>() + &text;
            for text in [text, mixed] {
                if let Err(error) = read(&text) {
                    prop_assert!(!error.contains('\n'));
                }
            }
        }
    }
}
