//! `run`: its last screen, tables and JSON, selections and forecasts.

use crate::harness::Bench;
use crate::keep_last_attempts;

#[test]
fn run_ends_with_one_screen() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--rounds", "6", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    let output = bench.run(&["run", "planted/search", "--rounds", "7"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().count() <= 40, "{text}");
    let headline = "A search finds the edge at 70 in ";
    for part in [
        &format!("planted       {headline}"),
        "\nmeasured      ",
        "\nrun           results/",
        ": samples.csv\nnext          tollgate show planted/search",
        "\n              tollgate claims",
        "\n              tollgate run planted/search --profile standard",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(bench.journal().folder.join("samples.csv").is_file());
    // It is also shown when it becomes known.
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_headline = |line: &&str| line.starts_with(&format!("planted: {headline}"));
    assert_eq!(errors.lines().filter(is_headline).count(), 1, "{errors}");
    assert!(errors.contains(", planted/search\n"), "{errors}");
}

#[test]
fn run_prints_tables_and_json() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/search", "--quiet", "--seed", "1"]);
    keep_last_attempts(&bench);
    let text = bench.ok(&["run", "planted/search", "--tables"]);
    // `show_prints_tables` compares whole tables.
    for line in ["planted/search\n", "A search for a known edge", "\nrun: results/"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = bench.json(&["run", "planted/search", "--json"]);
    assert_eq!(json["samples"], 0, "nothing was left to measure");
    assert_eq!(json["tables"]["experiments"].as_array().unwrap().len(), 1);
    assert_eq!(json["headlines"], serde_json::json!([]), "there are 3 rounds");
    let one = ["run", "planted/search", "--where", "edge=30", "--rounds", "1", "--fresh"];
    let output = bench.run(&one);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("1 point in 1 experiment: about "), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("no headline"), "the points of headlines are not selected: {text}");
    for part in ["\nincomplete    0 of 1 experiment measured in the 6 rounds", "--where 'edge=30'"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = bench.ok(&["run", "planted/search", "--rounds", "1", "--fresh"]);
    assert!(
        text.contains("planted       no headlines: 1 of 6 rounds in one state of the core\n"),
        "{text}"
    );
    let line = bench.refused(&["run", "planted/search", "--tables", "--json"], 2);
    assert!(line.contains("cannot be used with"), "{line}");
}

#[test]
fn a_text_filter_ignores_default_levels() {
    let bench = Bench::new();
    // Its points have disturbance=calm by default.
    let line = bench.refused(&["run", "planted/roles", "-f", "calm"], 2);
    assert!(line.contains("no point is selected"), "{line}");
    bench.ok(&["run", "planted/roles", "-f", "wait=2", "--rounds", "1", "--quiet"]);
}

#[test]
fn the_duration_of_a_target_interval_is_forecast() {
    let bench = Bench::new();
    let words = ["run", "planted/delay", "--resolve", "20%", "--quiet"];
    for forecast in ["for all rounds; a better estimate follows", "estimated from earlier rounds"] {
        let output = bench.run(&words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.contains("intervals within 20%"), "{errors}");
        assert!(errors.contains(forecast), "{errors}");
    }
}
