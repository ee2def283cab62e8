//! Sorted lists of points.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod synthetic;

use lab::journal::Run;
use lab::point::Point;
use lab::schema::to_value;
use report::table::{Order, Page, ShowOptions, can_sort, measured, show, show_output};

fn options(by: &str, reversed: bool, top: Option<usize>) -> ShowOptions {
    let order = Some(Order { by: by.into(), reversed, top });
    ShowOptions { order, ..ShowOptions::default() }
}

fn text(run: &Run, options: &ShowOptions, width: usize) -> String {
    show(run, &measured(run), options, Page { width, colour: false }).unwrap()
}

/// Returns the points and medians of the JSON output.
fn rows(run: &Run, options: &ShowOptions) -> Vec<(Point, Option<f64>)> {
    let json = to_value(&show_output(run, &measured(run), options).unwrap()).unwrap();
    let row = |row: &serde_json::Value| {
        let point = serde_json::from_value(row["point"].clone()).unwrap();
        (point, row["estimate"]["median"].as_f64())
    };
    json["experiments"][0]["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn points_are_sorted_by_their_values_and_those_without_one_are_last() {
    let run = synthetic::run(12);
    let all = synthetic::experiment().points.len();
    for reversed in [false, true] {
        let rows = rows(&run, &options("value", reversed, None));
        assert_eq!(rows.len(), all);
        let (with, without): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.1.is_some());
        assert!(rows.iter().rev().take(without.len()).all(|row| row.1.is_none()), "{rows:?}");
        assert!(!without.is_empty() && without.iter().all(|row| row.0.text("memory") == "device"));
        for pair in with.windows(2) {
            assert!((pair[0].1 < pair[1].1) != reversed || pair[0].1 == pair[1].1, "{pair:?}");
        }
    }
    let by_name = rows(&run, &options("throughput", true, None));
    assert_eq!(by_name, rows(&run, &options("value", true, None)));
}

#[test]
fn points_are_sorted_by_a_factor_whose_sizes_are_no_texts() {
    let run = synthetic::run(12);
    let lengths = |reversed| {
        let rows = rows(&run, &options("length", reversed, None));
        let mut lengths: Vec<String> =
            rows.iter().map(|row| row.0.text("length").to_owned()).collect();
        lengths.dedup();
        lengths
    };
    assert_eq!(lengths(false), synthetic::LENGTHS);
    let mut reversed = synthetic::LENGTHS;
    reversed.reverse();
    assert_eq!(lengths(true), reversed);
}

#[test]
fn only_the_first_points_are_shown_with_the_unit_in_the_header() {
    let run = synthetic::run(12);
    for width in [80, 100, 140] {
        let text = text(&run, &options("value", true, Some(3)), width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let caption = "sorted by value, largest first; the first 3 of 34 points";
        assert!(words.contains(caption), "{text}");
        if width >= 100 {
            assert!(text.contains("median in GB/s"), "{text}");
            let (_, table) = text.split_once("─\n").unwrap();
            let (table, _) = table.split_once("\n\n").unwrap();
            assert_eq!(table.lines().count(), 3, "{text}");
            assert!(table.lines().next().unwrap().contains(" 301 "), "{text}");
        }
    }
    assert_eq!(rows(&run, &options("value", true, Some(3))).len(), 3);
    assert_eq!(rows(&run, &options("value", true, Some(1000))).len(), 34);
}

#[test]
fn another_metric_is_shown_next_to_the_one_that_is_sorted() {
    let mut run = synthetic::run(12);
    // The latency of a point is the more, the higher its throughput, and one point has none.
    for sample in &mut run.samples {
        let throughput = sample.values.get("throughput").copied();
        if let Some(throughput) = throughput.filter(|_| sample.point.text("threads") != "8") {
            sample.values.insert("latency".into(), throughput / 1e9);
        }
    }
    let order = options("latency", true, None);
    let shown = text(&run, &order, 140);
    assert!(shown.contains("latency in ns"), "{shown}");
    let by_latency = rows(&run, &order);
    let without: Vec<_> =
        by_latency.iter().skip(1).filter(|it| it.0.text("threads") == "8").collect();
    assert_eq!(without.len(), 1);
    let known: Vec<f64> = by_latency.iter().filter_map(|row| row.1).collect();
    let (last, sorted) = known.split_last().unwrap();
    assert!(sorted.is_sorted_by(|a, b| a >= b) && *last > sorted[0], "{known:?}");
}

#[test]
fn unknown_words_are_errors() {
    let run = synthetic::run(3);
    let error = show(&run, &measured(&run), &options("speed", false, None), Page::default());
    let line = error.unwrap_err().to_string();
    assert!(line.contains("'speed'"), "{line}");
    assert!(!can_sort(&run, "copy/throughput", "speed"));
    for word in ["value", "length", "throughput"] {
        assert!(can_sort(&run, "copy/throughput", word), "{word}");
    }
}
