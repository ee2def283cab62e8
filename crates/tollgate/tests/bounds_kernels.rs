//! Output and errors of `tollgate bounds kernels`.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::Bench;

#[test]
fn the_table_has_overheads_and_caught_bugs() {
    let bench = Bench::new();
    let words = ["bounds", "kernels", "--kernel", "struct", "--size", "64KiB", "--rounds", "5"];
    let words = [&words[..], &["--mechanism", "gcc-registers,gcc-mpx"]].concat();
    let text = bench.ok(&words);
    if text.contains(" void: in every round") {
        return machine::untested::note("the table of kernels", &"void samples: the CPU was busy");
    }
    let row = |name: &str| {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no row {name}: {text}"))
    };
    assert!(text.lines().next().unwrap().ends_with("; 64 KiB of prefaulted pages"), "{text}");
    assert!(row("gcc").ends_with("· · · · · ·"), "{text}");
    // A ratio with its range, if rounds are valid, and five of the six bugs.
    assert!(row("gcc-registers").ends_with("H S M F · C"), "{text}");
    let range = row("range").split_whitespace().nth(1).unwrap();
    let (low, high) = range.split_once('–').unwrap();
    assert!(low.parse::<f64>().unwrap() <= high.parse::<f64>().unwrap(), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["published", "2.80"])), "{text}");
}

#[test]
fn an_unknown_mechanism_is_an_error() {
    let error = Bench::new().refused(&["bounds", "kernels", "--mechanism", "warp"], 2);
    assert!(error.contains("unknown mechanism 'warp'"), "{error}");
}
