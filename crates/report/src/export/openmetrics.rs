//! OpenMetrics 1.0 text: gauges in base units, and the environments as an `_info` metric.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use lab::claim::{Claim, Verdict};
use lab::experiment::suite_name;
use lab::journal::Run;
use lab::point::Point;
use machine::environment::Environment;

use super::ExportError;
use super::value::{Value, Values};

/// Labels that are not factors. A factor of such a name gets a prefix.
const LABELS: [&str; 4] = ["experiment", "environment", "run", "cores"];
/// That prefix.
const PREFIX: &str = "factor_";

/// A family of gauges with one unit.
struct Family {
    unit: String,
    help: String,
    /// Lines without the name of the family: labels and value.
    samples: Vec<String>,
}

/// Families by name. Suites, metrics and suffixes are parts of a name, and other characters than letters and digits become
/// underscores, so that names of a journal from others may collide. The later family gets a number.
#[derive(Default)]
struct Families {
    all: BTreeMap<String, Family>,
    /// The name of each family, by what it is: suite, metric, part and unit.
    names: BTreeMap<[String; 4], String>,
}

impl Families {
    /// Adds a sample to the family of a part (e.g. `_lower`) of a metric of a suite.
    fn add(&mut self, of: [&str; 4], help: String, sample: String) {
        let of = of.map(str::to_owned);
        let name = match self.names.get(&of) {
            Some(name) => name.clone(),
            None => {
                let name = self.unused_name(&of);
                self.names.insert(of.clone(), name.clone());
                name
            }
        };
        let [_, _, _, unit] = of;
        let new = || Family { unit, help, samples: Vec::new() };
        self.all.entry(name).or_insert_with(new).samples.push(sample);
    }

    /// Returns a name that no family has. It ends with the unit.
    fn unused_name(&self, [suite, metric, part, unit]: &[String; 4]) -> String {
        let is_used =
            |name: &String| RESERVED.contains(&name.as_str()) || self.all.contains_key(name);
        let numbered = |number: usize| {
            let number = if number == 1 { String::new() } else { format!("_{number}") };
            metric_name(&format!("tollgate_{suite}_{metric}{part}{number}"), unit)
        };
        let names = (1..).map(numbered);
        names.into_iter().find(|name| !is_used(name)).unwrap_or_default()
    }
}

/// Name of the family of environments. A gauge: Prometheus' text format, which node_exporter reads, has no type `info`.
const ENVIRONMENT: &str = "tollgate_environment_info";
/// Name of the family of verdicts.
const CLAIMS: &str = "tollgate_claims";
/// Names of families that are not metrics.
const RESERVED: [&str; 2] = [ENVIRONMENT, CLAIMS];

/// Returns the exposition of values, verdicts and environments.
///
/// # Errors
/// Returns an error if there is no value.
pub fn openmetrics(
    values: &Values,
    run: &Run,
    judged: &[(Claim, Verdict)],
) -> Result<String, ExportError> {
    values.check()?;
    let mut families = Families::default();
    for value in &values.all {
        add(&mut families, value, run);
    }
    let mut text = environments(values, run) + &claims(run, judged);
    for (name, family) in &families.all {
        text += &head(name, "gauge", &family.unit, &family.help);
        for sample in &family.samples {
            let _ = writeln!(text, "{name}{sample}");
        }
    }
    Ok(text + "# EOF\n")
}

/// Adds the median, the ends of its interval, and the number of rounds.
fn add(families: &mut Families, value: &Value, run: &Run) {
    let (unit, factor) = base_unit(&value.record.unit);
    let (suite, metric) = (suite_name(&value.experiment), value.metric.as_str());
    let labels = labels(value, run);
    let about = &value.record.about;
    let parts = [
        ("", Some(value.median), "median over rounds"),
        ("_lower", value.interval.map(|(low, _)| low), "lower end of the 95% interval"),
        ("_upper", value.interval.map(|(_, high)| high), "upper end of the 95% interval"),
    ];
    let mut add = |part, unit: &str, what: &str, number: f64| {
        let sample = format!("{labels} {number:?}");
        families.add([suite, metric, part, unit], format!("{about}: {what}"), sample);
    };
    for (part, number, what) in parts {
        if let Some(number) = number {
            add(part, &unit, what, number * factor);
        }
    }
    add("_measured", "rounds", "number of rounds", value.rounds as f64);
}

/// Returns the unit in words, and the factor from the metric's unit to it. Times are in seconds and amounts in bytes;
/// empty for plain numbers.
fn base_unit(unit: &str) -> (String, f64) {
    let (unit, factor) = match unit {
        "1" | "" => ("", 1.0),
        "ns" => ("seconds", 1e-9),
        "us" => ("seconds", 1e-6),
        "ms" => ("seconds", 1e-3),
        "s" => ("seconds", 1.0),
        "B" => ("bytes", 1.0),
        "B/s" => ("bytes_per_second", 1.0),
        "bit/s" => ("bytes_per_second", 0.125),
        "Hz" => ("hertz", 1.0),
        "share" => ("ratio", 1.0),
        "1/s" => ("per_second", 1.0),
        other => {
            let words = other.replace("1/", "per_").replace("/s", "_per_second");
            return (sanitised(&words.replace('/', "_per_")), 1.0);
        }
    };
    (unit.into(), factor)
}

/// Returns a valid name that ends with its unit.
fn metric_name(stem: &str, unit: &str) -> String {
    let stem = sanitised(stem);
    match unit.is_empty() || stem.ends_with(&format!("_{unit}")) {
        true => stem,
        false => format!("{stem}_{unit}"),
    }
}

/// Replaces what a name may not contain by underscores.
fn sanitised(name: &str) -> String {
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    match name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// Returns the labels of a value in braces: its experiment, run, environment and levels.
fn labels(value: &Value, run: &Run) -> String {
    let mut labels: BTreeMap<String, &str> = BTreeMap::from([
        ("experiment".into(), value.experiment.as_str()),
        ("run".into(), run.record.name.as_str()),
        ("environment".into(), value.environment.as_str()),
    ]);
    labels.extend(value.class.map(|class| ("cores".into(), class.name())));
    factor_labels(&mut labels, &value.point, &LABELS);
    in_braces(labels)
}

/// Adds the levels of a point to labels; a factor whose name is taken gets a prefix, or also a number.
pub(super) fn factor_labels<'a>(
    labels: &mut BTreeMap<String, &'a str>,
    point: &'a Point,
    others: &[&str],
) {
    for (factor, level) in point.levels() {
        let name = sanitised(factor);
        // Two leading underscores are reserved.
        let is_free = |name: &String| {
            let is_reserved = others.contains(&name.as_str()) || name.starts_with("__");
            !is_reserved && !labels.contains_key(name)
        };
        let numbered = (2..).map(|number| format!("{PREFIX}{name}_{number}"));
        let mut names = [name.clone(), format!("{PREFIX}{name}")].into_iter().chain(numbered);
        if let Some(name) = names.find(is_free) {
            labels.insert(name, level.as_str());
        }
    }
}

pub(super) fn in_braces<'a>(labels: impl IntoIterator<Item = (String, &'a str)>) -> String {
    let labels = labels.into_iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(","))
}

/// Escapes the text of a label or of a help line.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Returns the lines of a family before its samples.
pub(super) fn head(name: &str, kind: &str, unit: &str, help: &str) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!("# UNIT {name} {unit}\n") };
    format!("# TYPE {name} {kind}\n{unit}# HELP {name} {}\n", escaped(help))
}

/// Returns the environments of the values, one sample each.
fn environments(values: &Values, run: &Run) -> String {
    let mut text = head(ENVIRONMENT, "gauge", "", "Machine and program that measured the values");
    for id in values.environments() {
        let Some(environment) = run.record.environments.get(id) else { continue };
        let labels = in_braces(properties(id, environment, run));
        let _ = writeln!(text, "{ENVIRONMENT}{labels} 1");
    }
    text
}

fn properties<'a>(
    id: &'a str,
    environment: &'a Environment,
    run: &'a Run,
) -> impl Iterator<Item = (String, &'a str)> {
    let record = &run.record;
    let cpu = &environment.cpu;
    let guests = record.guests.as_ref();
    let properties: [(&str, &str); 16] = [
        ("environment", id),
        ("run", &record.name),
        ("profile", record.profile.name()),
        ("start", &record.start),
        ("host", &record.host),
        ("guest", guests.map_or("", |guests| guests.name.as_str())),
        ("accelerator", guests.map_or("", |guests| guests.accelerator.as_str())),
        ("cpu", &cpu.brand),
        ("cpu_vendor", &cpu.vendor),
        ("microcode", cpu.microcode.as_deref().unwrap_or_default()),
        ("hypervisor", cpu.hypervisor.as_deref().unwrap_or_default()),
        ("kernel", &environment.kernel_release),
        ("governor", environment.governor.as_deref().unwrap_or_default()),
        ("libc", environment.libc.as_deref().unwrap_or_default()),
        ("program_version", &environment.program_version),
        ("program_blake3", environment.program_hash.as_deref().unwrap_or_default()),
    ];
    // An empty label is the same as none.
    let known = properties.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (name.to_owned(), text))
}

/// Returns the number of claims by verdict, of published claims and of promises.
fn claims(run: &Run, judged: &[(Claim, Verdict)]) -> String {
    if judged.is_empty() {
        return String::new();
    }
    let mut text = head(CLAIMS, "gauge", "", "Number of claims by verdict");
    let kinds: BTreeSet<_> = judged.iter().map(|(_, verdict)| verdict.kind.name()).collect();
    for (source, is_promise) in [("published", false), ("tollgate", true)] {
        for kind in &kinds {
            let is_counted = |(claim, verdict): &&(Claim, Verdict)| {
                claim.is_promise() == is_promise && verdict.kind.name() == *kind
            };
            let number = judged.iter().filter(is_counted).count();
            let labels = [("run", run.record.name.as_str()), ("source", source), ("verdict", kind)];
            let labels = labels.map(|(name, text)| (name.to_owned(), text));
            let _ = writeln!(text, "{CLAIMS}{} {number}", in_braces(labels));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_base_units_at_the_end_of_names() {
        for (unit, words, factor) in [
            ("ns", "seconds", 1e-9),
            ("B/s", "bytes_per_second", 1.0),
            ("bit/s", "bytes_per_second", 0.125),
            ("share", "ratio", 1.0),
            ("1", "", 1.0),
            ("packets/s", "packets_per_second", 1.0),
            ("1/cycle", "per_cycle", 1.0),
            ("cycles", "cycles", 1.0),
        ] {
            assert_eq!(base_unit(unit), (words.to_owned(), factor), "{unit}");
        }
        assert_eq!(metric_name("tollgate_copy_wall", "seconds"), "tollgate_copy_wall_seconds");
        assert_eq!(metric_name("tollgate_a-b cycles", "cycles"), "tollgate_a_b_cycles");
        assert_eq!(metric_name("tollgate_lost", ""), "tollgate_lost");
        assert_eq!(sanitised("1 \"x\""), "_1__x_");
    }

    #[test]
    fn families_of_different_metrics_have_different_names() {
        let mut families = Families::default();
        let all = [
            ["copy", "a-b", "", "seconds"],
            ["copy", "a_b", "", "seconds"],
            ["copy", "a.b", "", "seconds"],
            ["copy_a", "b", "", "seconds"],
            ["copy", "a_b_lower", "", "seconds"],
            ["copy", "a_b", "_lower", "seconds"],
            // One metric may have another unit in another suite of the same name.
            ["copy", "a_b", "", "bytes"],
            ["environment", "info", "", ""],
            ["claims", "", "", ""],
        ];
        for (at, of) in all.into_iter().enumerate() {
            families.add(of, format!("help {at}"), format!("{{}} {at}"));
            families.add(of, format!("help {at}"), format!("{{}} {at}.5"));
        }
        assert_eq!(families.all.len(), all.len());
        for (name, family) in &families.all {
            assert_eq!(family.samples.len(), 2, "{name}");
            assert!(!RESERVED.contains(&name.as_str()) && name.ends_with(&family.unit), "{name}");
        }
        assert!(families.all.contains_key("tollgate_copy_a_b_seconds"));
        assert!(families.all.contains_key("tollgate_copy_a_b_2_seconds"));
    }

    #[test]
    fn texts_are_escaped() {
        let labels = [("a".to_owned(), "b\"} 1\n# EOF\\")];
        assert_eq!(in_braces(labels), r##"{a="b\"} 1\n# EOF\\"}"##);
    }
}
