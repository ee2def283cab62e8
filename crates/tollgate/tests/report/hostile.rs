//! Hostile texts in a journal: a page shows them and never executes them.

use lab::experiment::Profile;
use lab::point::{Level, Point};
use serde_json::Value;

use crate::browser::Browser;
use crate::harness::Bench;
use crate::journal::{empty, measure, metrics_shown, write};

/// The figure with curves of a level with such a text.
const FIGURE: &str = "#figure-copy-c";
/// A text that would end elements and scripts.
const TEXT: &str = "x</script><img src=y onerror=\"window.hostile=1\"><script>window.hostile=2</script>\u{2028}&lt;";

/// Replaces a level of a point.
fn with_hostile_level(point: &mut Point) {
    if point.text("function") == "naive" {
        *point = point.with("function", TEXT);
    }
}

#[test]
fn texts_of_a_journal_are_shown_and_never_executed() {
    let Some(browser) = Browser::start("hostile texts in the page") else { return };
    let bench = Bench::new();
    let mut run = empty(Profile::Quick, |one| one.id() == "copy/functions");
    measure(&mut run, 6, &metrics_shown);
    run.record.host = TEXT.into();
    let environment = run.record.environments.get_mut("e1").unwrap();
    environment.cpu.brand = TEXT.into();
    for metric in run.record.metrics.values_mut().flat_map(|all| all.values_mut()) {
        metric.about = TEXT.into();
    }
    for experiment in run.record.experiments.values_mut() {
        experiment.about = TEXT.into();
        let points = experiment.points.iter_mut().chain(&mut experiment.twins);
        points.for_each(with_hostile_level);
    }
    for session in &mut run.record.sessions {
        session.command = vec!["run".into(), TEXT.into()];
    }
    for sample in &mut run.samples {
        with_hostile_level(&mut sample.point);
        sample.covariates.insert("state".into(), Level::from(TEXT));
        sample.void = sample.void.as_ref().map(|_| TEXT.into());
        if let Some(failure) = &mut sample.error {
            (failure.why, failure.remedy) = (TEXT.into(), Some(TEXT.into()));
        }
    }
    write(&run, &bench.path().join("results"));
    bench.ok(&["report"]);
    let page = bench.path().join("report.html");
    browser.open(&page, FIGURE);
    browser.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })");
    browser.wait(
        "return document.querySelectorAll('details[data-tables]:not([data-filled])').length === 0",
    );
    browser
        .run("document.querySelectorAll('details.values').forEach((one) => { one.open = true; })");
    let entry =
        "return [...document.querySelectorAll('details[data-tables] th, details[data-tables] td')]
        .some((one) => one.textContent.includes('<img src=y'))";
    assert_eq!(browser.run(entry), Value::Bool(true));
    browser.click("[data-control='rounds as dots']");
    browser.wait("return document.querySelector('.dot') !== null");
    assert_eq!(browser.run("return window.hostile ?? null"), Value::Null);
    assert_eq!(browser.count("img"), 0);
    // A line separator ends no line of a page, and a terminal's control characters are not in it.
    let visible = "x</script><img src=y onerror=\"window.hostile=1\">";
    for part in
        [".origin", ".experiment .about", ".experiment .notes", "#machine ~ details summary"]
    {
        assert!(browser.text(part).contains(visible), "{part}: {}", browser.text(part));
    }
    assert_eq!(browser.console(), Vec::<String>::new());
}
