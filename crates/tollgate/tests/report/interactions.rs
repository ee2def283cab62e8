//! Actions of a reader on a page, in a browser.

use std::path::{Path, PathBuf};

use lab::experiment::Profile;
use lab::format;
use lab::journal::Run;
use lab::summary::{Unit, summarise};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::Bench;
use crate::journal::{empty, measure, metrics_shown, write};

/// The figure that most tests use: throughput against length, by function.
const FIGURE: &str = "#figure-copy-c";
/// Arrow to the right and End in WebDriver's keys.
const RIGHT: &str = "\u{e014}";

/// A browser with the page of a run of the suite `copy`.
struct Opened {
    bench: Bench,
    browser: Browser,
    run: Run,
    page: PathBuf,
}

impl Opened {
    fn new(test: &str) -> Option<Self> {
        let browser = Browser::start(test)?;
        let bench = Bench::new();
        let mut run = empty(Profile::Quick, |one| one.suite == "copy");
        measure(&mut run, 8, &metrics_shown);
        write(&run, &bench.path().join("results"));
        bench.ok(&["report"]);
        let page = bench.path().join("report.html");
        browser.open(&page, "");
        Some(Self { bench, browser, run, page })
    }

    fn within(selector: &str) -> String {
        format!("{FIGURE} {selector}")
    }

    /// Opens the figure and waits until it is drawn.
    fn figure(&self) -> &Browser {
        self.browser.open(&self.page, FIGURE);
        self.browser.wait("return document.querySelector('#figure-copy-c [data-drawn]') !== null");
        &self.browser
    }

    /// Fails if the browser reported an error or a warning.
    #[track_caller]
    fn is_silent(&self) {
        assert_eq!(self.browser.console(), Vec::<String>::new());
    }
}

/// Returns the visible series of the figure.
fn series(browser: &Browser) -> Vec<String> {
    let script = "return [...document.querySelectorAll('#figure-copy-c g.series')].map((one) => one.dataset.series)";
    serde_json::from_value(browser.run(script)).unwrap()
}

/// Returns the labels of the ticks of the figure.
fn ticks(browser: &Browser) -> Vec<String> {
    let script = "return [...document.querySelectorAll('#figure-copy-c .tick')].map((one) => one.textContent)";
    serde_json::from_value(browser.run(script)).unwrap()
}

/// Returns the centre of the nth mark of a series in the window.
fn mark(browser: &Browser, series: &str, index: usize) -> (f64, f64) {
    let script = "const marks = document.querySelectorAll(`#figure-copy-c g[data-series='${arguments[0]}'] .mark`);
        marks[arguments[1]].scrollIntoView({ block: 'center' });
        const box = marks[arguments[1]].getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]";
    serde_json::from_value(browser.run_with(script, &[json!(series), json!(index)])).unwrap()
}

#[test]
fn a_legend_hides_curves_and_axes_change_their_scale() {
    let Some(opened) = Opened::new("legend and axes of the page") else { return };
    let browser = opened.figure();
    let all = series(browser);
    assert!(all.len() > 3 && all.contains(&"glibc".into()), "{all:?}");
    let entry = Opened::within(".legend button[data-series=glibc]");
    browser.click(&entry);
    assert_eq!(series(browser).len(), all.len() - 1);
    assert!(!series(browser).contains(&"glibc".into()));
    browser.click(&entry);
    assert_eq!(series(browser), all);
    let logarithmic = ticks(browser);
    assert!(logarithmic.contains(&"4 KiB".into()), "{logarithmic:?}");
    browser.click(&Opened::within("[data-control='logarithmic x']"));
    let linear = ticks(browser);
    assert_ne!(linear, logarithmic);
    browser.click(&Opened::within("[data-control='logarithmic y']"));
    assert!(
        ticks(browser).contains(&"0".into()),
        "a linear axis starts at 0: {:?}",
        ticks(browser)
    );
    browser.click(&Opened::within("[data-control='logarithmic x']"));
    browser.click(&Opened::within("[data-control='logarithmic y']"));
    assert_eq!(ticks(browser), logarithmic);
    opened.is_silent();
}

#[test]
fn the_pointer_and_keys_show_values_with_intervals_as_in_the_journal() {
    let Some(opened) = Opened::new("values of the page under the pointer") else { return };
    let browser = opened.figure();
    let summary = summarise(&opened.run, "copy/functions", "throughput", Unit::Own).unwrap();
    let is_shown = |row: &&lab::summary::Row| {
        let point = &row.point;
        point.text("function") == "glibc"
            && point.text("length") == "16 B"
            && row.estimate.is_some()
    };
    let row = summary.rows.iter().find(is_shown).unwrap();
    let estimate = row.estimate.unwrap();
    let value = format::interval(estimate.median, &estimate.interval, &summary.record.unit);
    let (x, y) = mark(browser, "glibc", 0);
    browser.point(x, y);
    let text = browser.text("#tooltip");
    assert!(
        text.contains("16 B") && text.contains(&value) && text.contains("8 rounds"),
        "{text}: {value}"
    );
    browser.press(&Opened::within(".canvas"), RIGHT);
    let first = browser.text("#tooltip");
    browser.press(&Opened::within(".canvas"), RIGHT);
    let second = browser.text("#tooltip");
    assert!(first != second && second.contains("rounds"), "{first} {second}");
    let is_hidden = "return document.getElementById('tooltip').hidden";
    assert_eq!(browser.run(is_hidden), json!(false));
    // Escape
    browser.press(&Opened::within(".canvas"), "\u{e00c}");
    assert_eq!(browser.run(is_hidden), json!(true));
    opened.is_silent();
}

/// Waits until the browser has reported that the page was scrolled, which hides the tooltip.
fn settle(browser: &Browser) {
    browser.run(
        "window.settled = false;
        requestAnimationFrame(() => requestAnimationFrame(() => { window.settled = true; }))",
    );
    browser.wait("return window.settled");
}

#[test]
fn a_tap_shows_a_value_until_a_tap_elsewhere() {
    let Some(opened) = Opened::new("values of the page by a tap") else { return };
    let browser = opened.figure();
    let is_hidden =
        || browser.run("return document.getElementById('tooltip').hidden") == json!(true);
    let tap_mark = || {
        let (x, y) = mark(browser, "glibc", 0);
        settle(browser);
        browser.tap(x, y);
    };
    tap_mark();
    assert!(!is_hidden() && browser.text("#tooltip").contains("16 B"));
    // The same value again, after a scrolled page has hidden it.
    browser.run("window.scrollBy(0, 40)");
    browser.wait("return document.getElementById('tooltip').hidden");
    tap_mark();
    assert!(!is_hidden());
    let elsewhere =
        "const box = document.querySelector('#figure-copy-c h4').getBoundingClientRect();
        return [box.left + 2, box.top + 2]";
    let (left, top): (f64, f64) = serde_json::from_value(browser.run(elsewhere)).unwrap();
    browser.tap(left, top);
    assert!(is_hidden());
    assert_eq!(browser.count(&Opened::within(".chosen")), 0);
    opened.is_silent();
}

#[test]
fn values_relative_to_a_level_are_ratios_within_rounds() {
    let Some(opened) = Opened::new("relative values of the page") else { return };
    let browser = opened.figure();
    browser.choose(&Opened::within("[data-control=values]"), "relative to glibc");
    assert_eq!(browser.text(&Opened::within("svg .label")), "ratio to glibc, within rounds");
    let summary = summarise(&opened.run, "copy/functions", "throughput", Unit::Own).unwrap();
    let rounds = |function: &str| {
        let points = summary.observed.points.iter();
        let mut of = points.filter(|(point, _)| {
            point.text("function") == function && point.text("length") == "16 B"
        });
        of.next().unwrap().1
    };
    let ratio = lab::summary::paired(rounds("naive"), rounds("glibc")).unwrap();
    let (x, y) = mark(browser, "naive", 0);
    browser.point(x, y);
    let text = browser.text("#tooltip");
    let shown: f64 =
        text.split(" times").next().unwrap().rsplit(['B', ' ']).next().unwrap().parse().unwrap();
    assert!((shown / ratio.ratio - 1.0).abs() < 0.01, "{text}: {ratio:?}");
    browser.choose(&Opened::within("[data-control=values]"), "absolute");
    assert_ne!(browser.text(&Opened::within("svg .label")), "ratio to glibc, within rounds");
    opened.is_silent();
}

/// Returns the centre of the nth published value of a curve of the figure of ESCAPE's example run in the window.
fn published_mark(browser: &Browser, name: &str, index: usize) -> (f64, f64) {
    let script = "const marks = document.querySelectorAll(
            `#figure-copy-example-write g[data-published='${arguments[0]}'] .mark`);
        marks[arguments[1]].scrollIntoView({ block: 'center' });
        const box = marks[arguments[1]].getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2]";
    serde_json::from_value(browser.run_with(script, &[json!(name), json!(index)])).unwrap()
}

#[test]
fn published_values_are_hollow_marks_with_their_source() {
    const EXAMPLE: &str = "#figure-copy-example-write";
    let Some(opened) = Opened::new("published values of the page") else { return };
    let browser = &opened.browser;
    browser.open(&opened.page, EXAMPLE);
    let drawn = format!("return document.querySelector('{EXAMPLE} [data-drawn]') !== null");
    browser.wait(&drawn);
    let hollow = format!("{EXAMPLE} g.published .mark");
    let source = "published: ESCAPE benchmarking, on the host of the example run, jaga";
    let keys = || browser.text(&format!("{EXAMPLE} .keys"));
    // Glibc, the naive loop and apex at 16 B and 256 B; apex is not measured.
    assert_eq!(browser.count(&hollow), 6);
    assert!(keys().contains(source) && keys().contains("apex (published only)"), "{}", keys());
    let tooltip = |name: &str, index: usize| {
        let (x, y) = published_mark(browser, name, index);
        browser.point(x, y);
        browser.text("#tooltip")
    };
    let text = tooltip("glibc", 1);
    let expected = "published: 49.09 GB/s; ESCAPE benchmarking, on the host of the example run, jaga; escape-row-write-256-glibc-throughput";
    assert!(text.contains("256 B") && text.contains(expected), "{text}");
    // Hiding our curve does not hide them.
    let entry = format!("{EXAMPLE} .legend button[data-series=glibc]");
    browser.click(&entry);
    assert_eq!(browser.count(&hollow), 6);
    assert!(tooltip("glibc", 0).contains("published: 5.785 GB/s"));
    browser.click(&entry);
    // Relative values exist if the source states the base, too.
    let values = format!("{EXAMPLE} [data-control=values]");
    browser.choose(&values, "relative to naive");
    assert_eq!(browser.count(&hollow), 4);
    let text = tooltip("glibc", 0);
    assert!(text.contains("published: 0.611 times naive; ESCAPE"), "{text}");
    browser.choose(&values, "relative to tollgate");
    assert_eq!(browser.count(&hollow), 0);
    assert!(!keys().contains("published"), "{}", keys());
    browser.choose(&values, "absolute");
    browser.click(&format!("{EXAMPLE} [data-control='published values']"));
    assert_eq!(browser.count(&hollow), 0);
    for (width, height) in [(1280, 900), (390, 844)] {
        browser.resize(width, height);
        browser.open(&opened.page, EXAMPLE);
        browser.wait(&drawn);
        picture(browser, &format!("{width}-published"));
    }
    opened.is_silent();
}

#[test]
fn reference_lines_are_in_the_legend() {
    let Some(opened) = Opened::new("reference lines of the page") else { return };
    let browser = opened.figure();
    browser.resize(390, 844);
    let keys = browser.text(&Opened::within(".keys"));
    assert!(keys.contains("memory limit: "), "{keys}");
    let published = "published: memory limit, ESCAPE benchmarking, on an ESCAPE host, one channel of DDR4-2933, computed: ";
    assert!(keys.contains(published), "{keys}");
    // The texts of the chart are its axes only.
    let texts = browser.count(&Opened::within("svg[viewBox] text"));
    let axes = browser.count(&Opened::within("svg[viewBox] .tick"));
    assert_eq!(texts, axes + 2);
    opened.is_silent();
}

#[test]
fn rounds_are_dots_on_demand() {
    let Some(opened) = Opened::new("rounds of the page as dots") else { return };
    let browser = opened.figure();
    let dots = Opened::within(".dot");
    assert_eq!(browser.count(&dots), 0);
    let marks = browser.count(&Opened::within("g.series .mark"));
    browser.click(&Opened::within("[data-control='rounds as dots']"));
    browser.wait("return document.querySelector('#figure-copy-c .dot') !== null");
    // Void attempts have a value too.
    let voids = opened
        .run
        .samples
        .iter()
        .filter(|one| one.experiment == "copy/functions" && one.void.is_some());
    let drawn = browser.count(&dots);
    let unused = browser.count(&Opened::within(".dot.unused"));
    assert_eq!((drawn - unused, unused <= voids.count() as u64), (8 * marks, true));
    // Ratios are over rounds: there is nothing to draw per round.
    let values = Opened::within("[data-control=values]");
    let box_of = "return document.querySelector(\"#figure-copy-c [data-control='rounds as dots']\").disabled";
    browser.choose(&values, "relative to glibc");
    assert_eq!((browser.count(&dots), browser.run(box_of)), (0, json!(true)));
    browser.choose(&values, "absolute");
    assert_eq!((browser.count(&dots), browser.run(box_of)), (drawn, json!(false)));
    browser.click(&Opened::within("[data-control='rounds as dots']"));
    browser.wait("return document.querySelector('#figure-copy-c .dot') === null");
    opened.is_silent();
}

#[test]
fn claims_are_filtered_and_have_permanent_links() {
    let Some(opened) = Opened::new("claims of the page") else { return };
    let browser = &opened.browser;
    let claims = opened.bench.json(&["claims", "copy", "--json"]);
    let claims = claims["claims"].as_array().unwrap();
    let visible = || browser.count("ul.claims > li:not([hidden])");
    let all = visible();
    assert!(
        all >= claims.len() as u64 && browser.text("#filter-count").starts_with(&format!("{all} "))
    );
    let of = |verdict: &str| claims.iter().filter(|one| one["verdict"] == verdict).count() as u64;
    let contradicted = of("contradicted");
    browser.choose("#filter-verdict", "contradicted");
    assert_eq!(visible(), contradicted);
    browser.choose("#filter-verdict", "all");
    browser.press("#filter-text", "naive loop");
    let mentioned = visible();
    assert!(0 < mentioned && mentioned < all);
    // Claims without a verdict are in closed details by cause, which a filter opens while it applies.
    let causes = browser.count("details.cause");
    assert!(causes > 0 && browser.count("details.cause[open]:not([hidden])") > 0);
    browser.run(
        "document.getElementById('filter-text').value = '';
        document.querySelector('form.filter').dispatchEvent(new Event('input'))",
    );
    assert_eq!((browser.count("details.cause[open]"), visible()), (0, all));
    let grouped = browser.run("return document.querySelector('details.cause li').id");
    let grouped = format!("#{}", grouped.as_str().unwrap());
    browser.open(&opened.page, &grouped);
    let is_shown = "return document.querySelector(arguments[0]).getBoundingClientRect().height > 0";
    assert_eq!(browser.run_with(is_shown, &[json!(grouped)]), json!(true));
    assert_eq!(browser.count("details.cause[open]"), 1);
    // With the keyboard.
    browser.open(&opened.page, "");
    browser.press("details.cause > summary", "\u{e007}");
    assert_eq!(browser.count("details.cause[open]"), 1);
    browser.press("#filter-text", "naive loop");
    // A link to a hidden claim shows it.
    let hidden = browser.run("return document.querySelector('ul.claims > li[hidden]').id");
    browser.run_with("location.hash = arguments[0]", std::slice::from_ref(&hidden));
    let script = "const target = document.getElementById(arguments[0]);
        const box = target.getBoundingClientRect();
        return !target.hidden && box.top > -1 && box.top < innerHeight";
    let shows =
        |browser: &Browser| browser.run_with(script, std::slice::from_ref(&hidden)) == json!(true);
    let start = std::time::Instant::now();
    while !shows(browser) {
        assert!(start.elapsed() < crate::harness::TIMEOUT, "{hidden}");
    }
    assert_eq!(visible(), all);
    browser.open(&opened.page, &format!("#{}", hidden.as_str().unwrap()));
    assert!(shows(browser));
    browser.click("a[data-verdict=unmeasurable]");
    assert!(0 < visible() && visible() < all);
    opened.is_silent();
}

#[test]
fn samples_are_downloaded_as_csv() {
    let Some(opened) = Opened::new("samples of the page") else { return };
    let browser = &opened.browser;
    let folder = opened.bench.path().join("downloads");
    let behaviour = json!({ "behavior": "allow", "downloadPath": folder });
    browser.chromium("Browser.setDownloadBehavior", &behaviour);
    browser.click("button[data-download=copy-sizes]");
    let file = folder.join("testbed-quick-1-copy-sizes.csv");
    let start = std::time::Instant::now();
    while !file.exists() {
        assert!(start.elapsed() < crate::harness::TIMEOUT, "no {}", file.display());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| {
        header.iter().position(|it| *it == name).unwrap_or_else(|| panic!("{name}: {header:?}"))
    };
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let samples = opened.run.samples.iter().filter(|one| one.experiment == "copy/sizes");
    let samples: Vec<_> = samples.collect();
    assert_eq!(rows.len(), samples.len());
    for sample in samples {
        let is_of_sample = |row: &&Vec<&str>| {
            row[column("round")] == sample.round.to_string()
                && row[column("attempt")] == sample.attempt.to_string()
                && row[column("twin")] == u8::from(sample.twin).to_string()
                && sample
                    .point
                    .levels()
                    .all(|(factor, level)| row[column(factor)] == level.as_str())
        };
        let row = rows.iter().find(is_of_sample).unwrap();
        for (metric, value) in &sample.values {
            let written: f64 = row[column(metric)].parse().unwrap();
            assert!((written / value - 1.0).abs() < 1e-5, "{metric}: {written} for {value}");
        }
        let state = if sample.void.is_some() { "void" } else { "used" };
        assert_eq!(row[column("state")], state);
    }
    opened.is_silent();
}

#[test]
fn tables_and_all_parts_are_shown_and_printed() {
    let Some(opened) = Opened::new("tables and print of the page") else { return };
    let browser = &opened.browser;
    assert_eq!(browser.count("table.values"), 0);
    browser.click("details[data-tables=copy-sizes] > summary");
    browser.wait("return document.querySelectorAll('details[data-tables=copy-sizes] table.values td').length > 10");
    let figures = browser.count("[data-figure]");
    assert!(browser.count("[data-drawn]") < figures, "figures far away are not drawn");
    let pdf = browser.chromium("Page.printToPDF", &json!({}));
    assert!(pdf["data"].as_str().unwrap().len() > 100_000);
    assert_eq!(browser.count("[data-drawn]"), figures);
    assert_eq!(
        browser.count("details[data-tables]"),
        browser.count("details[data-filled][data-tables]")
    );
    let script = "return performance.getEntriesByType('resource').map((one) => one.name)";
    assert_eq!(browser.run(script), json!([]), "the page requests nothing");
    opened.is_silent();
}

/// Saves a picture in the folder of temporary files of tests, to be looked at.
pub(crate) fn picture(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    browser.screenshot(&folder.join(format!("{name}.png")));
}

#[test]
fn a_page_fits_desktops_and_phones_in_light_and_dark() {
    let Some(opened) = Opened::new("layout of the page") else { return };
    let browser = &opened.browser;
    for (width, height) in [(1280, 900), (390, 844)] {
        browser.resize(width, height);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for fragment in ["", "#claims", FIGURE, "#machine"] {
                browser.open(&opened.page, fragment);
                let name = fragment.trim_start_matches('#');
                picture(browser, &format!("{width}-{scheme}-{name}"));
            }
            browser.run(
                "document.querySelectorAll('main details').forEach((one) => { one.open = true; })",
            );
            browser.wait("return document.querySelectorAll('details[data-tables]:not([data-filled])').length === 0");
            let wide = "return document.documentElement.scrollWidth";
            assert_eq!(browser.run(wide), json!(width), "{width} {scheme}");
        }
    }
    opened.is_silent();
}

/// Opens all parts of the page and checks it by axe-core; notes if there is none.
#[track_caller]
pub(crate) fn is_barrier_free(browser: &Browser, test: &str) {
    let Some(axe) = std::env::var_os("TOLLGATE_AXE") else {
        return machine::untested::note(test, &"npm cannot fetch axe-core");
    };
    browser.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })");
    browser.wait(
        "return document.querySelectorAll('details[data-tables]:not([data-filled])').length === 0",
    );
    browser.run(&std::fs::read_to_string(axe).unwrap());
    browser.run("axe.run().then((found) => { window.found = found.violations; })");
    browser.wait("return window.found !== undefined");
    let found = browser.run(
        "return window.found.map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html)])",
    );
    assert_eq!(found, Value::Array(Vec::new()));
}

#[test]
fn axe_finds_no_barrier() {
    let test = "barriers of the page";
    let Some(opened) = Opened::new(test) else { return };
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        opened.browser.prefer(scheme);
        opened.browser.resize(width, 900);
        opened.browser.open(&opened.page, FIGURE);
        is_barrier_free(&opened.browser, test);
    }
}
