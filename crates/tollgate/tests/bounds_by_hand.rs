//! `tollgate bounds` as a person meets it: the seed's tables, with ours beside them or why there is none.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::Bench;

/// What a table prints, which no screen is too narrow for.
#[track_caller]
fn printed(words: &[&str]) -> String {
    let text = Bench::new().ok(&[&["bounds"], words].concat());
    for line in text.lines() {
        // The last line is the folder of the run, which is a path.
        let fits = line.chars().count() <= 100 || line.starts_with("results");
        assert!(fits && line.trim_end() == line, "'{line}'\n{text}");
    }
    text
}

/// The words of the row that begins with these.
#[track_caller]
fn row<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines = text.lines().map(str::trim_start);
    let row = lines.find_map(|line| line.strip_prefix(name));
    row.unwrap_or_else(|| panic!("no row '{name}':\n{text}")).split_whitespace().collect()
}

#[test]
fn the_audit_counts_and_lists() {
    if let Err(why) = std::process::Command::new("llvm-mca").arg("--version").output() {
        return machine::untested::note("bounds: the audit by llvm-mca by hand", &why);
    }
    let text =
        printed(&["table", "--audit", "--rounds", "1", "--class", "multiply", "--class", "divide"]);
    // Three cycles and one a cycle, on every processor that has a model.
    let multiplied = row(&text, "imul R64 R64 ");
    assert_eq!(multiplied[multiplied.len() - 2..], ["3.00", "1.00"], "{text}");
    let (before, listed) = text.split_once("\nThey disagree on").unwrap_or((&text, ""));
    let count = before.split_once("llvm-mca by its model of ").unwrap().1;
    // `znver4 agrees on 20 of 26 latencies and 9 of 26 throughputs`
    let numbers: Vec<usize> =
        count.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [latency, latencies, throughput, throughputs, ..] = numbers[..] else { panic!("{text}") };
    assert!(latencies >= 20 && throughputs >= 20, "{text}");
    // Each row ends in a pair, ours and the model's, of latency, of throughput, or of both.
    let figures = |line: &str| {
        let words = line.rsplit(' ').filter(|word| !word.is_empty());
        let figures =
            words.map_while(|word| word.contains('.').then(|| word.parse::<f64>().ok())?);
        figures.collect::<Vec<_>>()
    };
    let rows = listed.lines().filter(|line| line.starts_with("  "));
    let pairs: Vec<Vec<f64>> = rows.map(figures).filter(|it| !it.is_empty()).collect();
    let disagreements: usize = pairs.iter().map(|it| it.len() / 2).sum();
    assert_eq!(disagreements, latencies - latency + throughputs - throughput, "{text}");
    for pair in pairs.iter().flat_map(|it| it.chunks(2)) {
        assert!((pair[0] - pair[1]).abs() > 0.09, "{pair:?}\n{text}");
    }
}
