//! The page of a comparison.

use std::collections::BTreeSet;

use lab::experiment::Profile;
use lab::journal::Run;
use lab::proximity::ROUND_TRIP;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::Bench;
use crate::interactions::{is_barrier_free, picture};
use crate::journal::{empty, measure, metrics_shown, write};

/// Writes `runs` runs to a folder, in which glibc's copies are `faster` times as fast as in [`journal`](crate::journal).
fn side(bench: &Bench, folder: &str, runs: u32, faster: f64) -> Run {
    let mut last = None;
    for number in 1..=runs {
        let is_wanted = |one: &lab::experiment::Experiment| {
            ["copy/functions", "copy/sizes", "bounds/detection"].contains(&one.id().as_str())
        };
        let mut run = empty(Profile::Quick, is_wanted);
        run.record.name = format!("{folder}-quick-{number}");
        run.record.seed = u64::from(number) + u64::from(folder.as_bytes()[0]) * 100;
        measure(&mut run, 6, &metrics_shown);
        for sample in run.samples.iter_mut().filter(|it| it.point.text("function") == "glibc") {
            // The runs of a side differ a little.
            let factor = faster * (1.0 + 0.001 * f64::from(number));
            for name in ["throughput", "time"] {
                if let Some(value) = sample.values.get_mut(name) {
                    *value *= factor;
                }
            }
        }
        // Some points use two cores, which are near in some rounds; others use one, which has no class.
        for sample in run.samples.iter_mut().filter(|it| it.point.text("length") == "4 KiB") {
            let round_trip = if sample.round.is_multiple_of(2) { "60" } else { "400" };
            sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
        }
        write(&run, &bench.path().join(folder));
        last = Some(run);
    }
    last.unwrap()
}

/// Returns the rows of `tollgate compare` that are resolved.
fn resolved(bench: &Bench) -> Vec<Value> {
    let json = bench.json(&["compare", "old", "new", "--json"]);
    let comparisons = json["comparisons"].as_array().unwrap();
    let rows = comparisons.iter().flat_map(|one| one["rows"].as_array().unwrap());
    let is_resolved = |row: &&Value| row["difference"] == "higher" || row["difference"] == "lower";
    rows.filter(is_resolved).cloned().collect()
}

#[test]
fn resolved_differences_come_first_as_compare_finds_them() {
    let bench = Bench::new();
    side(&bench, "old", 3, 1.0);
    side(&bench, "new", 3, 1.5);
    let expected = resolved(&bench);
    assert!(expected.len() > 5, "{expected:?}");
    bench.ok(&["report", "old", "new"]);
    let page = bench.path().join("report.html");
    let text = std::fs::read_to_string(&page).unwrap();
    let (differences, headlines) =
        (text.find("id=\"differences\"").unwrap(), text.find("id=\"headlines\"").unwrap());
    assert!(differences < headlines);
    let list = &text[differences..headlines];
    assert_eq!(list.matches("<td class=\"difference ").count(), expected.len());
    assert!(list.contains("copy/functions") && list.contains("1.5"), "{list}");
    let Some(browser) = Browser::start("the page of a comparison") else { return };
    browser.open(&page, "");
    browser.resize(1280, 900);
    picture(&browser, "comparison-1280");
    browser.open(&page, "#figure-copy-c");
    browser.wait("return document.querySelector('#figure-copy-c [data-drawn]') !== null");
    picture(&browser, "comparison-1280-figure");
    let series = "return [...document.querySelectorAll('#figure-copy-c g.series')].map((one) => one.dataset.series)";
    let series: Vec<String> = serde_json::from_value(browser.run(series)).unwrap();
    assert!(series.contains(&"A glibc".into()) && series.contains(&"B glibc".into()), "{series:?}");
    // Each side is relative to its own values.
    browser.choose("#figure-copy-c [data-control=values]", "relative to glibc");
    let shown = "return document.querySelectorAll('#figure-copy-c g.series .mark').length";
    let relative = browser.run(shown).as_u64().unwrap();
    assert!(relative as usize > series.len(), "{relative}");
    browser.choose("#figure-copy-c [data-control=values]", "absolute");
    browser.click("#figure-copy-c [data-control='rounds as dots']");
    browser.wait("return document.querySelectorAll('#figure-copy-c g.side-1 .dot').length > 0");
    browser.choose("#filter-sides", "differ");
    let differing = browser.count("ul.claims > li:not([hidden])");
    assert!(differing < browser.count("ul.claims > li"));
    assert_eq!(browser.count("#figure-bounds-detection table.grid"), 2);
    // A dash tells a side, whatever the number of the series.
    let dashes =
        "return [...document.querySelectorAll('#figure-copy-c .legend button')].map((one) =>
        [one.dataset.series[0], one.querySelector('.line').getAttribute('stroke-dasharray')])";
    let dashes: BTreeSet<(String, Option<String>)> =
        serde_json::from_value(browser.run(dashes)).unwrap();
    assert_eq!(dashes.len(), 2, "{dashes:?}");
    browser.click("details[data-tables=copy-functions] > summary");
    browser.wait("return document.querySelector('details[data-tables=copy-functions] table.values td') !== null");
    let cores = "return [...document.querySelectorAll('details[data-tables=copy-functions] table.values tbody tr')]
        .map((row) => [...row.cells].map((cell) => [cell.tagName, cell.textContent]))";
    let rows: Vec<Vec<(String, String)>> = serde_json::from_value(browser.run(cores)).unwrap();
    let cells = || rows.iter().flatten();
    assert!(cells().any(|(tag, text)| tag == "TH" && text == "near"), "{rows:?}");
    assert!(cells().any(|(_, text)| text.is_empty()), "{rows:?}");
    assert!(cells().all(|(tag, text)| tag == "TD" || !text.is_empty()), "{rows:?}");
    browser.resize(390, 844);
    browser.open(&page, "");
    picture(&browser, "comparison-390");
    assert_eq!(browser.run("return document.documentElement.scrollWidth"), json!(390));
    is_barrier_free(&browser, "barriers of the page of a comparison");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn single_runs_are_shown_and_not_judged() {
    let bench = Bench::new();
    side(&bench, "old", 1, 1.0);
    side(&bench, "new", 1, 1.5);
    let run = side(&bench, "third", 1, 2.0);
    bench.ok(&["report", "old", "new", "third", "-o", "page.html"]);
    let text = std::fs::read_to_string(bench.path().join("page.html")).unwrap();
    assert!(text.contains("Nothing was judged") && !text.contains("No difference is resolved"));
    // What tells a CPU from others of its brand.
    let cpu = &run.record.environments["e1"].cpu;
    assert_eq!(text.matches(&format!("(family {}, model {}), ", cpu.family, cpu.model)).count(), 6);
    assert!(text.contains("repeat each side at least 3 times"));
    assert!(text.contains("C against A: ") && text.contains("not judged: one run each"));
    // One folder is the page of its newest run.
    bench.ok(&["report", "old", "-o", "one.html"]);
    let text = std::fs::read_to_string(bench.path().join("one.html")).unwrap();
    assert!(text.contains("<h1>old-quick-1</h1>"));
    let error = bench.refused(&["report", "old", "old"], 2);
    assert!(error.contains("copies of one run"), "{error}");
    let error = bench.refused(&["report", "old", "none"], 2);
    assert!(error.contains("none: no run here"), "{error}");
    bench.refused(&["report", "old", "--results", "new"], 2);
}
