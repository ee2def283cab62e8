//! The page of the stored run of the documentation, which has every suite: what a reader does with the whole page.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::{Bench, TIMEOUT};
use crate::interactions::is_barrier_free;

fn bundle() -> String {
    format!("{}/../../docs/run.zip", env!("CARGO_MANIFEST_DIR"))
}

/// Opens the page of the stored run.
fn opened(test: &str) -> Option<(Browser, Bench, PathBuf)> {
    let browser = Browser::start(test)?;
    let bench = Bench::new();
    bench.ok(&["report", "--results", &bundle()]);
    let page = bench.path().join("report.html");
    browser.open(&page, "");
    Some((browser, bench, page))
}

/// Waits until a browser has saved a file, and returns its text.
#[track_caller]
fn downloaded(file: &Path) -> String {
    let start = Instant::now();
    while !file.exists() {
        assert!(start.elapsed() < TIMEOUT, "no {}", file.display());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn claims_are_counted_and_filtered_by_suite_and_kind() {
    let Some((browser, bench, _page)) = opened("filters of all claims") else { return };
    let claims = bench.json(&["claims", "--json", "--results", &bundle()]);
    let claims = claims["claims"].as_array().unwrap();
    let suite_of =
        |claim: &Value| claim["experiment"].as_str().unwrap().split('/').next().unwrap().to_owned();
    let visible = || browser.count("ul.claims > li:not([hidden])") as usize;
    assert_eq!(visible(), claims.len());
    for suite in ["copy", "crossing", "enclave", "bounds", "stream"] {
        browser.choose("#filter-suite", suite);
        let expected = claims.iter().filter(|one| suite_of(one) == suite).count();
        assert!(expected > 5, "{suite}");
        assert_eq!(visible(), expected, "{suite}");
    }
    browser.choose("#filter-suite", "all");
    let published = claims.iter().filter(|one| one["source"] != "tollgate").count();
    browser.choose("#filter-kind", "published");
    assert_eq!(visible(), published);
    browser.choose("#filter-kind", "promises of tollgate");
    assert_eq!(visible(), claims.len() - published);
    // The same number in every output.
    let summary = bench.json(&["summary", "--json", "--results", &bundle()]);
    assert_eq!(summary["claims"].as_array().unwrap().len(), claims.len());
    let screen = bench.ok(&["summary", "--results", &bundle()]);
    assert!(screen.contains(&format!("{published} claims: ")), "{screen}");
    let markdown = bench.ok(&["export", "markdown", "--results", &bundle()]);
    let rows = markdown.lines().skip_while(|line| !line.starts_with("| verdict ")).skip(2);
    let numbers = rows.take_while(|line| line.starts_with('|')).map(|line| {
        line.split('|').nth(2).and_then(|cell| cell.trim().parse::<usize>().ok()).unwrap()
    });
    assert_eq!(numbers.sum::<usize>(), published, "{markdown}");
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn every_claim_states_what_was_published_or_promised() {
    let Some((browser, _bench, _page)) = opened("published values of all claims") else { return };
    let script = "return [...document.querySelectorAll('ul.claims > li')].map((claim) =>
        [claim.id, claim.querySelector('dd').textContent])";
    let stated: Vec<(String, String)> = serde_json::from_value(browser.run(script)).unwrap();
    assert!(stated.len() > 300);
    let is_bare = |(_, text): &&(String, String)| !text.contains(": ");
    let bare: Vec<_> = stated.iter().filter(is_bare).map(|(id, _)| id).collect();
    // Those that no machine can measure state no condition.
    assert!(bare.len() <= 15, "{bare:?}");
}

#[test]
fn all_samples_and_the_command_are_taken_from_the_page() {
    let Some((browser, bench, _page)) = opened("downloads of the whole page") else { return };
    let folder = bench.path().join("downloads");
    let behaviour = json!({ "behavior": "allow", "downloadPath": folder });
    browser.chromium("Browser.setDownloadBehavior", &behaviour);
    browser.click("button[data-download=all]");
    let named = browser.text("h1");
    let text = downloaded(&folder.join(format!("{named}.csv")));
    let exported = bench.ok(&["export", "csv", "--results", &bundle()]);
    // The page has no section of the lab, whose one sample it leaves out.
    assert_eq!(text.lines().count() + 1, exported.lines().count());

    let command = browser.text("[data-copy]").trim().to_owned();
    assert_eq!(command, "Copy the command");
    let permissions = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
    browser.chromium("Browser.grantPermissions", &permissions);
    browser.click("button[data-copy]");
    browser.run(
        "navigator.clipboard.readText().then((text) => { window.copied = text; },
            (why) => { window.copied = `error: ${why}`; })",
    );
    browser.wait("return window.copied !== undefined");
    let id = browser.run("return document.querySelector('button[data-copy]').dataset.copy");
    let shown = browser.text(&format!("#{}", id.as_str().unwrap()));
    assert_eq!(browser.run("return window.copied"), json!(shown));
    assert!(shown.starts_with("tollgate run") && shown.contains("--fresh"), "{shown}");
}

#[test]
fn a_reader_without_scripts_sees_headlines_verdicts_and_claims() {
    let Some((browser, bench, page)) = opened("the page without scripts") else { return };
    let html = std::fs::read_to_string(&page).unwrap();
    let without = bench.path().join("without.html");
    // A browser without scripts shows what is in `noscript`.
    let start = html.find("<script").unwrap();
    std::fs::write(&without, &html[..start]).unwrap();
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.visit(&without);
    browser.chromium("Emulation.setScriptExecutionDisabled", &json!({ "value": false }));
    for (selector, least) in [
        ("dl.headlines dd", 10),
        ("table.counts td", 10),
        ("ul.claims > li", 300),
        ("noscript p", 3),
    ] {
        assert!(browser.count(selector) >= least, "{selector}: {}", browser.count(selector));
    }
    let hidden = "return [...document.querySelectorAll('ul.claims > li')].filter((one) =>
        one.getBoundingClientRect().height === 0 && one.closest('details.cause:not([open])') === null).length";
    assert_eq!(browser.run(hidden), json!(0));
    // Details open without scripts, too.
    browser.click("details.cause > summary");
    assert_eq!(browser.count("details.cause[open]"), 1);
}

#[test]
fn the_list_of_claims_is_short_and_starts_with_what_the_machine_lacks() {
    let Some((browser, bench, _page)) = opened("length of the list of claims") else { return };
    let screens = |selector: &str| {
        let script = "return document.querySelector(arguments[0]).getBoundingClientRect().height / innerHeight";
        browser.run_with(script, &[json!(selector)]).as_f64().unwrap()
    };
    let closed = screens("section[aria-labelledby=claims]");
    browser
        .run("document.querySelectorAll('details.cause').forEach((one) => { one.open = true; })");
    let open = screens("section[aria-labelledby=claims]");
    assert!(closed < open * 0.7, "{closed} of {open} screens");
    let screen = bench.ok(&["summary", "--results", &bundle()]);
    let line = screen.lines().find(|line| line.starts_with("unmeasurable")).unwrap();
    let first = line.trim_start_matches("unmeasurable").trim().split(" claims)").next().unwrap();
    let shown = browser.text("p.lacking");
    assert!(shown.contains(first), "{shown}: {line}");
    // As many claims as the groups state.
    let totals = "return [...document.querySelectorAll('details.cause')].every((one) =>
        parseInt(one.querySelector('.total').textContent) === one.querySelectorAll('li[id]').length)";
    assert_eq!(browser.run(totals), json!(true));
}

#[test]
fn the_page_of_all_suites_has_no_barrier() {
    let test = "barriers of the page of all suites";
    let Some((browser, _bench, page)) = opened(test) else { return };
    for (scheme, width) in [("dark", 1280), ("light", 390)] {
        browser.prefer(scheme);
        browser.resize(width, 900);
        browser.open(&page, "");
        is_barrier_free(&browser, test);
    }
    assert_eq!(browser.console(), Vec::<String>::new());
}
