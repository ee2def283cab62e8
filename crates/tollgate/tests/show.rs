//! `tollgate show` of the run that the documentation shows.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::Bench;

/// The run of the documentation.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.zip");
const FORMS: &str = "bounds/instructions";

#[test]
fn a_long_table_is_divided_by_the_classes_of_its_forms() {
    let bench = Bench::new();
    let text = bench.ok(&["show", FORMS, "--results", RUN]);
    let lines: Vec<&str> = text.lines().collect();
    let headers: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at].starts_with("form  ")).collect();
    assert!(headers.len() > 10, "{text}");
    for at in &headers {
        assert_eq!(lines[*at], lines[headers[0]]);
        assert!(lines[*at].contains("median in cycles"), "{}", lines[*at]);
        assert!(lines[at + 1].starts_with("────"), "{text}");
    }
    let classes: Vec<&str> = headers.iter().map(|at| lines[at - 1]).collect();
    assert_eq!(classes[..3], ["integer", "shift", "multiply"]);
    let of = |class: &str| {
        let start = lines.iter().position(|line| *line == class).unwrap();
        lines[start..].iter().skip(3).take_while(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    assert!(of("integer")[0].starts_with("add R64 R64 "));
    assert!(of("multiply").iter().all(|line| line.contains("mul")));
    assert!(lines.iter().all(|line| line.chars().count() <= 100));
}

#[test]
fn forms_are_sorted_by_latency_and_cut() {
    let bench = Bench::new();
    let order = ["--sort", "latency", "--reverse", "--top", "5"];
    let arguments = [&["show", FORMS, "--results", RUN][..], &order].concat();
    let text = bench.ok(&arguments);
    assert!(text.contains("sorted by latency, largest first; the first 5 of "), "{text}");
    let (_, table) = text.split_once("─\n").unwrap();
    let table: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(table.len(), 5, "{text}");
    let header = text.lines().find(|line| line.starts_with("form  ")).unwrap();
    assert!(header.contains("latency in cycles  throughput in cycles"), "{header}");
    let json = bench.json(&[&arguments[..], &["--json"]].concat());
    let rows = json["experiments"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for (line, row) in table.iter().zip(rows) {
        assert!(line.starts_with(row["point"]["form"].as_str().unwrap()), "{line}");
    }
    // The metric that is shown is still the experiment's.
    assert_eq!(json["experiments"][0]["metric"], "throughput");
}

#[test]
fn points_of_many_factors_are_named_by_their_differences_from_the_baseline() {
    let bench = Bench::new();
    let order = ["--sort", "value", "--reverse", "--top", "4"];
    let text = bench.ok(&[&["show", "copy/throughput", "--results", RUN][..], &order].concat());
    let header = text.lines().find(|line| line.starts_with("point  ")).unwrap();
    assert!(header.contains("median in GB/s"), "{header}");
    let (_, table) = text.split_once("─\n").unwrap();
    assert_eq!(table.lines().take_while(|line| !line.is_empty()).count(), 4, "{text}");
    let by_factor = bench.ok(&["show", "copy/throughput", "--results", RUN, "--sort", "length"]);
    assert!(by_factor.contains("\nlength  point  "), "{by_factor}");
    assert!(by_factor.lines().any(|line| line.contains(" baseline ")), "{by_factor}");
}

#[test]
fn the_sample_of_the_lab_is_shown_by_its_name() {
    let bench = Bench::new();
    let text = bench.ok(&["show", "lab/session", "--results", RUN]);
    assert!(text.contains("lab/session") && text.contains("outside_samples"), "{text}");
    let line = bench.refused(&["show", "lab/sessions", "--results", RUN], 2);
    assert!(
        line.contains("no samples of 'lab/sessions'; available: ") && line.contains("lab/session")
    );
}

#[test]
fn an_order_needs_something_to_sort_by() {
    let bench = Bench::new();
    let show = |words: &[&'static str]| [&["show", FORMS, "--results", RUN][..], words].concat();
    let line = bench.refused(&show(&["--sort", "speed"]), 2);
    assert!(line.contains("--sort: no selected experiment has a factor or values of 'speed'"));
    assert!(line.contains("expected one of value, "), "{line}");
    for words in [&["--top", "3"][..], &["--reverse"], &["--sort", "value", "--top", "0"]] {
        assert_eq!(bench.run(&show(words)).status.code(), Some(2), "{words:?}");
    }
    let output = bench.run(&["show", "--results", RUN, "--sort", "form", "--top", "1"]);
    assert!(output.status.success());
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("nothing named 'form', so not shown: "), "{messages}");
}

/// The stored run measured each of these claims, whatever its verdict.
#[test]
fn conditions_are_in_the_unit_of_the_metric() {
    let bench = Bench::new();
    for (claim, condition) in [
        ("little-memory", "every sample at most 64 MiB"),
        ("timer-resolves-short-copies", "every sample at most 0.05 ns"),
        ("kernels-software-bounds-catch", "every sample at least 1\n"),
    ] {
        let text = bench.ok(&["claims", claim, "--results", RUN]);
        assert!(text.contains(condition), "{text}");
    }
}

/// The instrument limited both sides, so nothing is known.
#[test]
fn an_open_interval_has_no_half_width() {
    let bench = Bench::new();
    let json = bench.json(&["claims", "--results", RUN, "--json"]);
    let all = json["claims"].as_array().unwrap();
    let is_open = |value: &serde_json::Value| {
        let interval = &value["interval"];
        interval.is_object() && interval["low"].is_null() && interval["high"].is_null()
    };
    let values = |claim: &serde_json::Value| {
        let judgements = claim["judgements"].as_array().unwrap().clone();
        judgements
            .iter()
            .flat_map(|it| it["values"].as_array().unwrap().clone())
            .collect::<Vec<_>>()
    };
    let open: Vec<&str> = all
        .iter()
        .filter(|claim| values(claim).iter().any(is_open))
        .map(|claim| claim["id"].as_str().unwrap())
        .collect();
    assert!(!open.is_empty());
    for id in open {
        let text = bench.ok(&["claims", id, "--results", RUN]);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("unknown") && !text.contains("±0%"), "{text}");
        assert!(text.contains("no number of rounds decides it here"), "{text}");
    }
}
