//! Exports to programs that track values over commits: Bencher Metric Format, and the JSON of
//! github-action-benchmark.

use std::collections::BTreeMap;

use lab::experiment::suite_name;
use lab::format;
use lab::journal::Run;
use lab::terminal;
use serde::Serialize;

use super::ExportError;
use super::value::{Value, Values};

/// Maximum length of the name of a benchmark in Bencher, in characters.
const MAX_NAME: usize = 1024;

/// Metric of a measure of a benchmark in Bencher Metric Format.
#[derive(Debug, Serialize)]
struct BencherMetric {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// Returns Bencher Metric Format: benchmark, then measure, to value and interval. A benchmark is a point of an experiment,
/// and a measure a metric of a suite, e.g. `copy-throughput`. Values are in the metric's unit.
///
/// # Errors
/// Returns an error if there is no value, or if a name is too long.
pub fn bmf(values: &Values) -> Result<String, ExportError> {
    values.check()?;
    let mut benchmarks: BTreeMap<String, BTreeMap<String, BencherMetric>> = BTreeMap::new();
    for value in &values.all {
        let metric = BencherMetric {
            value: value.median,
            lower_value: value.interval.map(|(low, _)| low),
            upper_value: value.interval.map(|(_, high)| high),
        };
        let name = value.name();
        if name.chars().count() > MAX_NAME {
            let line = format!("'{name}' is longer than {MAX_NAME} characters");
            return Err(ExportError::Encode(line));
        }
        benchmarks.entry(name).or_default().insert(measure(value), metric);
    }
    pretty(&benchmarks)
}

/// Returns the slug of a metric of a suite. A metric has one unit and direction within its suite only.
fn measure(value: &Value) -> String {
    let name = format!("{}-{}", suite_name(&value.experiment), value.metric).to_lowercase();
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Entry of the JSON of github-action-benchmark.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    /// `± ` and the larger distance from the median to an end of the interval, in the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    /// Shown next to the value.
    extra: String,
}

/// Returns the JSON of github-action-benchmark, which has one direction: of metrics that are better if higher for its tool
/// `customBiggerIsBetter`, or if lower for `customSmallerIsBetter`.
///
/// # Errors
/// Returns an error if there is no value.
pub fn github_action_benchmark(values: &Values, run: &Run) -> Result<String, ExportError> {
    values.check()?;
    let entry = |value: &Value| Entry {
        name: format!("{}: {}", value.name(), value.metric),
        unit: value.record.unit.clone(),
        value: value.median,
        // The action reads a number only if a second character follows the first digit, as in 5.0.
        range: value.half_width().map(|half| format!("± {half:?}")),
        extra: extra(value, run),
    };
    pretty(&values.all.iter().map(entry).collect::<Vec<_>>())
}

fn pretty(value: &impl Serialize) -> Result<String, ExportError> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(|error| ExportError::Encode(error.to_string()))? + "\n")
}

/// Describes a value for people: `19.7 GB/s; 95% interval 19.5 GB/s to 19.9 GB/s; 20 rounds; CPU`.
fn extra(value: &Value, run: &Run) -> String {
    let precise = |number| format::precise(number, &value.record.unit);
    let interval = value.interval.map_or_else(
        || "too few rounds for an interval".into(),
        |(low, high)| format!("95% interval {} to {}", precise(low), precise(high)),
    );
    let environment = run.record.environments.get(&value.environment);
    let mut parts = vec![precise(value.median), interval, format::count(value.rounds, "round")];
    parts.push(run.record.place());
    parts.extend(environment.map(|it| it.cpu.brand.clone()).filter(|cpu| !cpu.is_empty()));
    terminal::one_line(&parts.join("; ")).into_owned()
}
