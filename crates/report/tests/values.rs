//! Exports of values, read back by their consumers: OpenMetrics by the parser of Prometheus, Markdown by a parser of
//! CommonMark, and JSON as its consumers document it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod synthetic;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use lab::claim::{Claim, Verdict};
use lab::guest::GuestsRecord;
use lab::headline::Filled;
use lab::journal::Run;
use lab::metric::Better;
use lab::proximity::ROUND_TRIP;
use lab::summary::{Summary as Rows, Unit, summarise};
use machine::cpu::CpuClock;
use machine::untested;
use pulldown_cmark::{Event, Options, Parser, Tag};
use report::export::{self, ExportError, Summary, Values};
use serde::Deserialize;

/// Text that is markup, or ends a text, in one of the formats.
const HOSTILE: &str =
    "a\"b\\c\n# EOF\n<img src=x onerror=alert(1)>|`*_[x](y)\u{1b}[31m@me https://x.y {1}";

fn values(run: &Run) -> Values {
    Values::of(run, &run.record.experiments.keys().cloned().collect::<Vec<_>>()).unwrap()
}

fn rows(run: &Run) -> Rows {
    summarise(run, "copy/throughput", "throughput", Unit::default()).unwrap()
}

/// Returns a run whose texts are hostile.
fn hostile() -> Run {
    let mut run = synthetic::run(12);
    run.record.name = HOSTILE.into();
    run.record.host = HOSTILE.into();
    run.record.environments.values_mut().for_each(|it| it.cpu.brand = HOSTILE.into());
    for sample in &mut run.samples {
        if sample.point.text("function") == "naive" {
            sample.point = sample.point.with("function", HOSTILE).with("run", "1").with("__a", "2");
        }
        if let Some(error) = &mut sample.error {
            error.why = HOSTILE.into();
        }
    }
    run
}

/// Metric of Bencher Metric Format, as its schema describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BencherMetric {
    value: f64,
    lower_value: Option<f64>,
    upper_value: Option<f64>,
}

#[test]
fn bencher_metric_format_has_each_value_with_its_interval() {
    let run = synthetic::run(12);
    let text = export::bmf(&values(&run)).unwrap();
    let read: BTreeMap<String, BTreeMap<String, BencherMetric>> =
        serde_json::from_str(&text).unwrap();
    let rows = rows(&run).rows;
    let estimated: Vec<_> = rows.iter().filter(|row| row.estimate.is_some()).collect();
    assert!(estimated.len() < rows.len(), "some points are unavailable");
    assert_eq!(read.len(), estimated.len());
    for row in estimated {
        let measures = &read[&format!("copy/throughput {}", row.point)];
        let [(measure, metric)] = measures.iter().collect::<Vec<_>>()[..] else { panic!() };
        let (estimate, interval) = (row.estimate.unwrap(), row.estimate.unwrap().interval);
        assert_eq!(measure, "copy-throughput");
        assert_eq!(metric.value, estimate.median);
        assert_eq!(
            (metric.lower_value, metric.upper_value),
            (Some(interval.low), Some(interval.high))
        );
    }
    assert_eq!(values(&run).left_out().without_value, rows.len() - read.len());
}

#[test]
fn too_few_rounds_have_a_value_without_an_interval() {
    let text = export::bmf(&values(&synthetic::run(3))).unwrap();
    let read: BTreeMap<String, BTreeMap<String, BencherMetric>> =
        serde_json::from_str(&text).unwrap();
    let metrics: Vec<_> = read.values().flat_map(BTreeMap::values).collect();
    assert!(!metrics.is_empty());
    assert!(metrics.iter().all(|it| it.lower_value.is_none() && it.upper_value.is_none()));
}

#[test]
fn values_of_near_and_far_cores_are_separate() {
    let mut run = synthetic::run(24);
    for sample in &mut run.samples {
        let round_trip = if sample.round % 2 == 0 { "100" } else { "400" };
        sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
    }
    let text = export::bmf(&values(&run)).unwrap();
    let read: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let [near, far] = [" proximity=near", " proximity=far"]
        .map(|end| read.keys().filter(|name| name.ends_with(end)).count());
    assert_eq!((near, near + far), (far, read.len()), "{text}");
}

#[test]
fn values_that_are_not_known_or_not_real_are_not_exported() {
    let mut capped = synthetic::run(12);
    for sample in &mut capped.samples {
        sample.covariates.insert("capped".into(), "throughput".into());
    }
    let all = values(&capped);
    assert!(all.left_out().bounds > 0, "{:?}", all.left_out());
    let error = export::bmf(&all).unwrap_err();
    assert!(matches!(error, ExportError::NoValue(_)), "{error}");
    assert!(error.to_string().contains("values of which only a bound is known"), "{error}");
    let mut planted = synthetic::run(12);
    planted.record.guests = Some(GuestsRecord {
        name: "slow-clock".into(),
        declaration: String::new(),
        accelerator: "tcg".into(),
        clock: CpuClock::Planted,
    });
    let error = export::openmetrics(&values(&planted), &planted, &[]).unwrap_err();
    assert!(error.to_string().contains("planted clock"), "{error}");
    let mut void = synthetic::run(12);
    void.samples.iter_mut().for_each(|sample| sample.void = Some("the clock moved".into()));
    let points = rows(&void).rows.len();
    assert_eq!(values(&void).left_out().without_value, points);
}

/// Entry of github-action-benchmark, as its documentation describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    range: Option<String>,
    extra: String,
}

fn entries(run: &Run, better: Better) -> Vec<Entry> {
    let values = values(run).with_direction(better);
    let text = export::github_action_benchmark(&values, run).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_file_of_github_action_benchmark_has_one_direction() {
    let mut run = synthetic::run(12);
    let other = synthetic::latencies(12);
    run.record.experiments.extend(other.record.experiments);
    run.samples.extend(other.samples);
    for (better, unit, experiment) in
        [(Better::Higher, "B/s", "copy/throughput "), (Better::Lower, "ns", "copy/latency ")]
    {
        let entries = entries(&run, better);
        let names: BTreeSet<_> = entries.iter().map(|entry| &entry.name).collect();
        assert_eq!(names.len(), entries.len(), "the action finds an entry by its name");
        for entry in &entries {
            assert!(entry.unit == unit && entry.name.starts_with(experiment), "{entry:?}");
            // The action parses a number of at least two characters after the sign.
            let half = entry.range.as_ref().unwrap().strip_prefix("± ").unwrap();
            assert!(half.len() >= 2 && half.starts_with(|c: char| c.is_ascii_digit()), "{half}");
            assert!(half.parse::<f64>().unwrap() < entry.value, "{entry:?}");
            assert!(entry.extra.contains(" rounds; host testbed; Test CPU"), "{entry:?}");
        }
    }
    let left_out = values(&run).with_direction(Better::Lower);
    assert!(left_out.left_out().other_direction > 10);
    let error =
        export::github_action_benchmark(&values(&run).with_direction(Better::Neither), &run);
    assert!(error.unwrap_err().to_string().contains("of another direction"));
}

/// Sample as the parser of Prometheus reads it.
#[derive(Debug, Deserialize)]
struct Read {
    family: String,
    kind: String,
    unit: String,
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads OpenMetrics by the parser of Prometheus's client for Python; `None`, with a note, if there is none.
fn parsed(text: &str) -> Option<Vec<Read>> {
    let Some(package) = std::env::var_os("TOLLGATE_PYTHON") else {
        untested::note(
            "OpenMetrics, by prometheus_client",
            &"TOLLGATE_PYTHON names no folder with it",
        );
        return None;
    };
    let program = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
text = sys.stdin.buffer.read().decode()
print(json.dumps([
    dict(family=family.name, kind=family.type, unit=family.unit, name=sample.name, labels=sample.labels, value=sample.value)
    for family in parse(text) for sample in family.samples
]))";
    let mut python = Command::new("python3")
        .args(["-c", program])
        .env("PYTHONPATH", package)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn prometheus_reads_openmetrics() {
    let run = synthetic::run(12);
    let judged = judged(&run, "a claim");
    let text = export::openmetrics(&values(&run), &run, &judged).unwrap();
    assert!(text.ends_with("\n# EOF\n"));
    let Some(read) = parsed(&text) else { return };
    let named = |name: &str| read.iter().filter(|one| one.name == name).collect::<Vec<_>>();
    let stem = "tollgate_copy_throughput";
    let unit = "bytes_per_second";
    let parts = ["", "_lower", "_upper"].map(|part| named(&format!("{stem}{part}_{unit}")));
    for row in rows(&run).rows {
        let is_of = |one: &&&Read| {
            row.point.levels().all(|(factor, level)| one.labels[factor] == level.as_str())
        };
        let found = parts
            .each_ref()
            .map(|part| part.iter().filter(is_of).map(|it| it.value).collect::<Vec<_>>());
        let expected = row.estimate.map(|it| [it.median, it.interval.low, it.interval.high]);
        let expected = expected.map_or([vec![], vec![], vec![]], |all| all.map(|one| vec![one]));
        assert_eq!(found, expected, "{}", row.point);
    }
    assert!(parts[0].iter().all(|one| one.unit == unit && one.kind == "gauge"));
    let rounds = named("tollgate_copy_throughput_measured_rounds");
    assert!(rounds.iter().all(|one| one.value <= 12.0) && rounds.len() == parts[0].len());
    let info = named("tollgate_environment_info");
    assert_eq!(info[0].labels["cpu"], "Test CPU");
    assert_eq!(info[0].labels["environment"], parts[0][0].labels["environment"]);
    let claims = named("tollgate_claims");
    assert_eq!(claims.iter().map(|one| one.value).sum::<f64>(), judged.len() as f64, "{text}");
    assert!(claims.iter().all(|one| one.family == "tollgate_claims"));
}

#[test]
fn times_are_seconds() {
    let run = synthetic::latencies(12);
    let text = export::openmetrics(&values(&run), &run, &[]).unwrap();
    let Some(read) = parsed(&text) else { return };
    let near = |one: &&Read| {
        one.name == "tollgate_copy_latency_seconds" && one.labels["distance"] == "near"
    };
    let near = read.iter().find(near).unwrap();
    assert!((140e-9..160e-9).contains(&near.value), "{near:?}");
}

#[test]
fn hostile_texts_are_only_labels() {
    let run = hostile();
    let text = export::openmetrics(&values(&run), &run, &[]).unwrap();
    let Some(read) = parsed(&text) else { return };
    let info = read.iter().find(|one| one.name == "tollgate_environment_info").unwrap();
    assert_eq!(info.labels["cpu"], HOSTILE);
    let naive =
        read.iter().filter(|one| one.labels.get("function").is_some_and(|it| it == HOSTILE));
    let naive: Vec<_> = naive.collect();
    assert!(!naive.is_empty(), "{text}");
    for one in naive {
        assert_eq!((one.labels["run"].as_str(), one.labels["factor_run"].as_str()), (HOSTILE, "1"));
        assert_eq!(one.labels["factor___a"], "2");
    }
}

/// Returns claims of which one is contradicted and one cannot be measured; `says` is their statement.
fn judged(run: &Run, says: &str) -> Vec<(Claim, Verdict)> {
    let text = r#"
[[claim]]
id = "naive-wins"
says = "SAYS"
source = "a paper"
experiment = "copy/throughput"
where = { length = "16 B", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "naive" }, to = { function = "glibc" }, at_least = 1.5 }

[[claim]]
id = "device-slow"
says = "Device memory is slow"
source = "tollgate"
experiment = "copy/throughput"
where = { length = "16 MiB", function = "glibc", threads = 0, direction = "write" }
expect = { ratio_of = { memory = "heap" }, to = { memory = "device" }, at_least = 100 }
"#;
    let file = lab::catalogue::DataFile::read("claims.toml", text, None).unwrap();
    let judge = |mut claim: Claim| {
        claim.says = claim.says.replace("SAYS", says);
        let verdict = lab::claim::judge(&claim, Some(run), 4);
        (claim, verdict)
    };
    file.claims().to_vec().into_iter().map(judge).collect()
}

fn summary(run: &Run, says: &str) -> String {
    let headlines = [Filled { id: "a".into(), suite: "copy".into(), sentence: says.into() }];
    let judged = judged(run, says);
    let inconsistencies = [says.to_owned()];
    Summary { run, headlines: &headlines, judged: &judged, inconsistencies: &inconsistencies }
        .text()
}

#[test]
fn a_summary_has_headlines_verdicts_and_what_is_lacking() {
    insta::assert_snapshot!(summary(&synthetic::run(12), "a statement"));
}

#[test]
fn hostile_texts_are_no_markup() {
    let mut run = hostile();
    // The claims name the level.
    run.samples = synthetic::run(12).samples;
    if let Some(error) = run.samples.iter_mut().find_map(|sample| sample.error.as_mut()) {
        error.why = HOSTILE.into();
        error.cause = None;
    }
    let text = summary(&run, HOSTILE);
    let (mut texts, mut tables, mut codes) = (String::new(), 0, 0);
    let extensions = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_MATH
        | Options::ENABLE_GFM;
    for event in Parser::new_ext(&text, extensions) {
        match event {
            Event::Text(text) => texts += &text,
            Event::Start(Tag::Table(_)) => tables += 1,
            Event::Code(_) => codes += 1,
            Event::Start(
                Tag::Heading { .. }
                | Tag::Paragraph
                | Tag::List(None)
                | Tag::Item
                | Tag::TableHead
                | Tag::TableRow
                | Tag::TableCell,
            )
            | Event::End(_)
            | Event::SoftBreak => {}
            other => panic!("{other:?} in {text}"),
        }
    }
    // As a heading, a host, a CPU, an inconsistency, a headline, a statement and a cause.
    let shown =
        "a\"b\\c # EOF <img src=x onerror=alert(1)>|`*_[x](y) [31m@\u{2060}me https://x.y {1}";
    assert!(texts.matches(shown).count() >= 6, "{texts}\n{text}");
    assert_eq!((tables, codes), (3, 0), "{text}");
    assert!(!text.contains('\u{1b}'));
}
