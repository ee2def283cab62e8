//! The list of all instructions in the page, which a reader searches, filters and sorts.

use lab::experiment::Profile;
use lab::journal::Run;
use lab::summary::{Unit, summarise};
use serde_json::json;

use crate::browser::Browser;
use crate::harness::Bench;
use crate::interactions::{is_barrier_free, picture};
use crate::journal::{empty, measure, metrics_shown, write};

const LIST: &str = "#list-bounds-instructions";
/// Rows until a reader requests all.
const FIRST_ROWS: u64 = 200;
/// Enter in WebDriver's keys.
const ENTER: &str = "\u{e007}";

fn within(selector: &str) -> String {
    format!("{LIST} {selector}")
}

/// Returns the visible texts of a column, counted from 0.
fn column(browser: &Browser, at: usize) -> Vec<String> {
    let script = "return [...document.querySelectorAll('#list-bounds-instructions tbody tr')]
        .map((row) => row.cells[arguments[0]].textContent)";
    serde_json::from_value(browser.run_with(script, &[json!(at)])).unwrap()
}

/// Opens the page of a run of all instructions at the list.
fn opened(test: &str) -> Option<(Browser, Bench, Run)> {
    let browser = Browser::start(test)?;
    let bench = Bench::new();
    let mut run = empty(Profile::Standard, |one| one.id() == "bounds/instructions");
    measure(&mut run, 6, &metrics_shown);
    write(&run, &bench.path().join("results"));
    bench.ok(&["report"]);
    let page = bench.path().join("report.html");
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes <= 3_000_000, "{bytes}");
    browser.open(&page, LIST);
    browser.wait("return document.querySelector('#list-bounds-instructions tbody tr') !== null");
    Some((browser, bench, run))
}

#[test]
fn a_reader_finds_an_instruction_by_words_and_by_its_group() {
    let test = "search in the list of instructions";
    let Some((browser, _bench, run)) = opened(test) else { return };
    let points = run.record.experiments["bounds/instructions"].points.len();
    let counted = || browser.text(&within("output"));
    assert_eq!(counted(), format!("{points} of {points} points"));
    assert_eq!(browser.count(&within("tbody tr")), FIRST_ROWS);
    browser.press(&within("input"), "imul r64");
    let forms = column(&browser, 1);
    assert!(!forms.is_empty() && forms.len() < 40, "{forms:?}");
    assert!(forms.iter().all(|it| it.contains("imul") && it.contains("R64")), "{forms:?}");
    assert_eq!(counted(), format!("{} of {points} points", forms.len()));
    browser.choose(&within("select[id$=-sibling]"), "idle");
    let idle = column(&browser, 2);
    assert!(idle.len() < forms.len() && idle.iter().all(|it| it == "idle"), "{idle:?}");
    browser.run("document.querySelector('#list-bounds-instructions input').value = ''");
    browser.choose(&within("select[id$=-group]"), "mpx");
    let groups = column(&browser, 0);
    assert!(!groups.is_empty() && groups.iter().all(|it| it == "mpx"), "{groups:?}");
    assert!(column(&browser, 1).iter().all(|it| it.contains("bnd")));
    browser.press(&within("input"), "no such instruction");
    assert_eq!(counted(), format!("0 of {points} points"));
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn a_reader_sorts_by_a_value_with_the_keyboard() {
    let test = "order in the list of instructions";
    let Some((browser, _bench, run)) = opened(test) else { return };
    let declared = column(&browser, 1);
    let summary = summarise(&run, "bounds/instructions", "throughput", Unit::Own).unwrap();
    let mut medians: Vec<_> = summary
        .rows
        .iter()
        .filter_map(|row| Some((row.estimate?.median, row.point.text("form").to_owned())))
        .collect();
    medians.sort_by(|one, other| one.0.total_cmp(&other.0));
    let button = within("th:nth-child(4) button");
    assert!(browser.text(&button).starts_with("throughput"), "{}", browser.text(&button));
    let sorted = within("th[aria-sort]");
    assert_eq!(browser.count(&sorted), 0);
    for (order, (_, form)) in [("ascending", &medians[0]), ("descending", medians.last().unwrap())]
    {
        browser.press(&button, ENTER);
        assert_eq!(browser.count(&within(&format!("th:nth-child(4)[aria-sort={order}]"))), 1);
        assert_eq!(&column(&browser, 1)[0], form, "{order}");
    }
    browser.press(&button, ENTER);
    assert_eq!((browser.count(&sorted), column(&browser, 1)), (0, declared));
    browser.press(&within("button.more"), ENTER);
    let points = run.record.experiments["bounds/instructions"].points.len();
    assert_eq!(browser.count(&within("tbody tr")), points as u64);
    let focused = "return document.activeElement.tagName";
    assert_eq!(browser.run(focused), json!("TR"));
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn the_list_fits_desktops_and_phones_and_has_no_barrier() {
    let test = "layout of the list of instructions";
    let Some((browser, bench, _)) = opened(test) else { return };
    let page = bench.path().join("report.html");
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.resize(width, 900);
        browser.prefer(scheme);
        browser.open(&page, LIST);
        browser
            .wait("return document.querySelector('#list-bounds-instructions tbody tr') !== null");
        browser.press(&within("input"), "add");
        browser.click(&within("th:nth-child(4) button"));
        picture(&browser, &format!("list-{width}-{scheme}"));
        let wide = "return document.documentElement.scrollWidth";
        assert_eq!(browser.run(wide), json!(width), "{scheme}");
        is_barrier_free(&browser, test);
    }
}
