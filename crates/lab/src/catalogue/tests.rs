//! Tests of the catalogue with a toy suite.

use super::*;
use crate::method::{Method, Params, Probe};
use crate::metric::{Better, Metric};
use crate::sample::Failure;
use crate::suite::Data;

#[derive(Params)]
#[expect(dead_code, reason = "the methods measure nothing")]
struct CopyParams {
    /// bytes
    #[factor(default = "64 B")]
    length: u64,
    /// threads
    #[factor(default = "1")]
    threads: u64,
}

#[derive(Params)]
#[expect(dead_code, reason = "the methods measure nothing")]
struct FaultParams {
    /// threads
    #[factor(default = "1")]
    threads: u64,
    /// pages
    #[factor(default = "1")]
    pages: u64,
}

macro_rules! methods {
    ($($method:ident, $name:literal, $params:ty, $metric:literal;)*) => {$(
        struct $method;

        impl Method for $method {
            type Params = $params;

            fn name(&self) -> &'static str {
                $name
            }
            fn how(&self) -> &'static str {
                "A test. Nothing is timed."
            }
            fn metrics(&self) -> &'static [Metric] {
                const { &[Metric::new($metric, "ns", Better::Lower, "")] }
            }
            fn probe(&self) -> Result<Box<dyn Probe<$params>>, Failure> {
                Err(Failure::failed("a toy"))
            }
        }
    )*};
}
methods! {
    Copy, "copy", CopyParams, "time";
    Faults, "faults", FaultParams, "latency";
}

static TOY: Suite = Suite::new("toy", "for tests", Data::EMPTY, &[&Copy, &Faults]);

const EXPERIMENTS: &str = r#"
[[experiment]]
name = "copy"
about = ""
metric = "time"
factors = { length = [64, 128], threads = [1, 2] }
quick = { skip = true }

[[experiment]]
name = "faults"
about = ""
metric = "latency"
factors = { pages = [1, 2], threads = [1, 2] }
"#;

const FIGURES: &str = r#"
[[figure]]
id = "curves"
title = "Curves"
experiment = "toy/copy"
metric = "time"
x = "length"
where = { threads = [1, 2] }
series = "threads"
lines = [{ label = "limit", experiment = "toy/faults", metric = "latency", where = { pages = 1 } }]

[[figure]]
id = "grid"
title = "Grid"
experiment = "toy/copy"
kind = "grid"
x = "length"
series = "threads"
groups = [["01", "2"]]
side_panels = [{ experiment = "toy/faults", metric = "latency", x = "pages", where = { pages = 2 } }]
"#;

const CLAIM: &str = r#"
[[claim]]
id = "it"
says = "it does"
source = "a paper"
experiment = "toy/copy"
metric = "time"
where = { length = 64 }
expect = { ratio_of = { threads = 1 }, to = { threads = 2 }, at_least = 1 }
"#;

fn catalogue(text: &str) -> Catalogue<'static> {
    let experiments = DataFile::read("toy/experiments.toml", EXPERIMENTS, Some("toy"));
    let file = DataFile::read("my.toml", text, None);
    Catalogue::of_files(&[&TOY], vec![experiments.unwrap(), file.unwrap()]).unwrap()
}

#[test]
fn a_valid_figure_has_canonical_levels() {
    let figures = catalogue(FIGURES).figures().unwrap();
    assert_eq!(figures[1].figure.groups, [["1".into(), "2".into()]]);
}

#[test]
fn unknown_names_in_figures_are_refused() {
    let no_experiment = "; expected one of toy/copy, toy/faults";
    let of_copy = "; expected one of length, threads";
    let of_faults = "; expected one of threads, pages";
    for (right, wrong, line, what, known) in [
        ("\"toy/copy\"", "\"toy/cpoy\"", 2, "unknown experiment 'toy/cpoy'", no_experiment),
        ("\"toy/copy\"", "\"tyo/copy\"", 2, "unknown experiment 'tyo/copy'", no_experiment),
        // Names of another method of the suite.
        ("\"time\"", "\"latency\"", 2, "unknown metric 'latency' of method 'copy'", " time"),
        ("\"length\"", "\"pages\"", 2, "x: unknown factor 'pages'", of_copy),
        ("{ threads = [1", "{ pages = [1", 2, "where: unknown factor 'pages'", of_copy),
        ("series = \"threads\"", "series = \"pages\"", 2, "series: unknown factor", of_copy),
        ("/faults\", m", "/none\", m", 2, "line 'limit': unknown experiment", no_experiment),
        ("\"latency\", w", "\"time\", w", 2, "line 'limit': unknown metric", " latency"),
        ("{ pages = 1 }", "{ length = 1 }", 2, "line 'limit': where: unknown", of_faults),
        ("[1, 2]", "[1, \"many\"]", 2, "where: factor 'threads': 'many'", "whole number"),
        ("\"01\"", "\"one\"", 12, "groups: factor 'threads': 'one'", "whole number"),
        ("/faults\", metric = \"latency\", x", "/f\", x", 12, "side_panels: unknown exp", "faults"),
        ("\"latency\", x", "\"time\", x", 12, "side_panels: unknown metric 'time'", " latency"),
        ("x = \"pages\"", "x = \"length\"", 12, "side_panels: x: unknown factor", of_faults),
        ("{ pages = 2 }", "{ length = 2 }", 12, "side_panels: where: unknown", of_faults),
    ] {
        assert!(FIGURES.contains(right), "{right}");
        let text = FIGURES.replacen(right, wrong, 1);
        let error = catalogue(&text).figures().unwrap_err().to_string();
        let id = if line == 2 { "curves" } else { "grid" };
        let place = format!("my.toml:{line}: figure '{id}': {what}");
        assert!(error.starts_with(&place) && error.contains(known), "{error}");
    }
}

/// Published values of points of [`FIGURES`], and a promise, which is not published.
const PUBLISHED: &str = r#"
[[table]]
source = "a paper"
experiment = "toy/copy"
where = { length = "0064" }
on = "a Xeon"
carries_over = "nowhere"
columns = { time = { says = "time", unit = "ns" } }
rows = [
    { id = "one", says = "1 thread", where = { threads = 1 }, values = { time = 12 } },
    { id = "all", says = "all", values = { time = 70 } },
]

[[claim]]
id = "ratio"
says = "Two threads take three times as long"
source = "a paper"
experiment = "toy/copy"
where = { length = 128 }
published = { value = 3, unit = "1", on = "a Xeon" }
expect = { ratio_of = { threads = 2 }, to = { threads = 1 }, at_least = 2 }

[[claim]]
id = "ticks"
says = "It takes 30 ticks"
source = "a paper"
experiment = "toy/copy"
where = { length = 128, threads = 1 }
published = { value = 30, unit = "ticks" }
carries_over = "nowhere"

[[claim]]
id = "limit"
says = "A page takes 5 ns"
source = "another paper"
experiment = "toy/faults"
where = { pages = 1 }
published = { value = 5, unit = "ns" }
carries_over = "nowhere"

[[claim]]
id = "promise"
says = "It takes 1 ns"
source = "tollgate"
experiment = "toy/copy"
where = { length = 64, threads = 1 }
published = { value = 1, unit = "ns" }
carries_over = "nowhere"
"#;

#[test]
fn figures_have_the_published_values_that_claims_state() {
    let twins = EXPERIMENTS.replacen("factors", "twins = [{ threads = 1 }]\nfactors", 1);
    let twins = twins.replacen("length = [64, 128]", "length = [64, 128, 256]", 1);
    let text = format!("{FIGURES}{PUBLISHED}");
    let read = |text: &str| {
        let experiments = DataFile::read("toy/experiments.toml", &twins, Some("toy")).unwrap();
        let file = DataFile::read("my.toml", text, None).unwrap();
        Catalogue::of_files(&[&TOY], vec![experiments, file]).unwrap().figures()
    };
    let figures = read(&text).unwrap();
    let values = |id: &str| -> Vec<String> {
        let figure = &figures.iter().find(|one| one.figure.id == id).unwrap().figure;
        let text = |value: &crate::figure::PublishedValue| {
            let base = value.relative_to.as_ref();
            let base = base.map_or(String::new(), |(series, x)| format!(" to {series} {x}"));
            format!("{} {} {} {}{base}", value.claim, value.series, value.x, value.value)
        };
        figure.published.iter().map(text).collect()
    };
    let expected =
        ["one-time 1 64 12", "all-time 1 64 70", "all-time 2 64 70", "ratio 2 128 3 to 1 128"];
    assert_eq!(values("curves"), expected);
    assert_eq!(values("grid"), expected);
    let figure = &figures[0].figure;
    assert_eq!(figure.published[0].described(), "a paper, on a Xeon");
    assert_eq!(figure.lines[0].published[0].value, 5.0);
    assert_eq!(figure.lines[0].published[0].described(), "another paper");
    // A figure in ticks has the values in ticks, and ratios.
    let in_ticks = text.replacen("title = \"Curves\"", "title = \"Curves\"\nunit = \"ticks\"", 1);
    let figure = read(&in_ticks).unwrap().swap_remove(0).figure;
    let ids: Vec<&str> = figure.published.iter().map(|value| value.claim.as_str()).collect();
    assert_eq!(ids, ["ratio", "ticks"]);
}

#[test]
fn units_and_levels_of_published_values_must_agree() {
    let twins = EXPERIMENTS.replacen("factors", "twins = [{ threads = 1 }]\nfactors", 1);
    let text = format!("{FIGURES}{PUBLISHED}");
    for (right, wrong, what) in [
        (
            "{ value = 3, unit = \"1\"",
            "{ value = 3, unit = \"ns\"",
            "claim 'ratio': published in ns, but a ratio is in 1",
        ),
        (
            "unit = \"ns\" } }",
            "unit = \"B\" } }",
            "claim 'one-time': published in B, but 'time' is in ns",
        ),
        (
            "where = { threads = 1 }, values",
            "where = { threads = \"x\" }, values",
            "claim 'one-time': where: factor 'threads': 'x'",
        ),
        (
            "title = \"Curves\"",
            "title = \"Curves\"\nunit = \"days\"",
            "figure 'curves': unit: 'time' is in ns; expected that, or ticks or cycles of a time, not 'days'",
        ),
    ] {
        assert!(text.contains(right), "{right}");
        let experiments = DataFile::read("toy/experiments.toml", &twins, Some("toy")).unwrap();
        let file = DataFile::read("my.toml", &text.replacen(right, wrong, 1), None).unwrap();
        let catalogue = Catalogue::of_files(&[&TOY], vec![experiments, file]).unwrap();
        let error = catalogue.figures().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

const HEADLINE: &str = r#"
# Of a paper,
# table 1.
[[headline]]
id = "threads"
experiment = "toy/copy"
says = ["Two threads take {two}, {times} times as long", "One takes {one} and {pages}"]
[headline.slots]
one = { value = { threads = 1 }, metric = "time" }
two = { value = { threads = 2 } }
times = { ratio_of = { threads = 2, length = 128 }, to = { threads = "01" } }
pages = { every = { pages = 2 }, experiment = "toy/faults", at_most = 1 }

# The next.
[[claim]]
"#;

#[test]
fn a_headline_is_resolved() {
    let text = HEADLINE.replace("[[claim]]\n", "");
    let headlines = catalogue(&text).headlines().unwrap();
    let [headline] = headlines.as_slice() else { panic!("{headlines:?}") };
    assert_eq!(headline.slots["two"].metric.as_deref(), Some("time"));
    assert_eq!(headline.slots["pages"].metric.as_deref(), Some("latency"));
    assert_eq!(headline.experiments(), ["toy/copy", "toy/faults"].into());
    assert_eq!(headline.suite(), "toy");
}

#[test]
fn a_declaration_has_its_comments_and_not_the_next_ones() {
    let text = declaration(HEADLINE, 4);
    assert!(text.starts_with("# Of a paper,\n# table 1.\n[[headline]]"), "{text}");
    assert!(text.ends_with("at_most = 1 }"), "{text}");
    assert_eq!(declaration(HEADLINE, 8), "[headline.slots]", "a line inside a table");
    let text = HEADLINE.replace("[[claim]]\n", "");
    let catalogue = catalogue(&text);
    let declarations = catalogue.declarations("threads");
    assert_eq!(declarations[0].kind, "headline");
    assert_eq!(declarations[0].location.to_string(), "my.toml:4");
    assert_eq!(catalogue.declarations("toy/copy")[0].kind, "experiment");
    assert!(catalogue.declarations("toy").is_empty());
}

#[test]
fn unknown_names_in_headlines_are_refused() {
    let valid = HEADLINE.replace("[[claim]]\n", "");
    for (right, wrong, what) in [
        ("= \"toy/copy\"", "= \"toy/cpoy\"", "slot 'one': unknown experiment 'toy/cpoy'; exp"),
        ("\"toy/faults\"", "\"toy/none\"", "slot 'pages': unknown experiment 'toy/none'; exp"),
        ("\"time\"", "\"latency\"", "slot 'one': unknown metric 'latency' of method 'copy'"),
        ("{ threads = 2 }", "{ pages = 2 }", "slot 'two': value: unknown factor 'pages'; exp"),
        ("\"01\"", "\"one\"", "slot 'times': to: factor 'threads': 'one' is not a whole"),
        ("= \"01\"", "= [1, 2]", "slot 'times': to: several levels of 'threads'; name one"),
        (
            "length = 128",
            "length = 256",
            "slot 'times': ratio_of: 'toy/copy' measures no such point",
        ),
        ("pages = 2", "threads = 3", "slot 'pages': every: 'toy/faults' measures no such point"),
    ] {
        assert!(valid.contains(right), "{right}");
        let error = catalogue(&valid.replacen(right, wrong, 1)).headlines().unwrap_err();
        let place = format!("my.toml:4: headline 'threads': {what}");
        assert!(error.to_string().starts_with(&place), "{error}");
    }
}

#[test]
fn unknown_names_in_claims_are_refused() {
    assert_eq!(catalogue(CLAIM).claims().unwrap().len(), 1);
    for (right, wrong, what) in [
        ("toy/copy", "toy/cpoy", "unknown experiment 'toy/cpoy'; expected one of toy/copy"),
        ("\"time\"", "\"latency\"", "unknown metric 'latency' of method 'copy'; expected"),
        ("{ length", "{ pages", "where: unknown factor 'pages'; expected one of length"),
        ("{ threads = 1", "{ pages = 1", "ratio_of: unknown factor 'pages'; expected one"),
        ("{ threads = 2", "{ threads = \"x\"", "to: factor 'threads': 'x' is not a whole"),
    ] {
        assert!(CLAIM.contains(right), "{right}");
        let error = catalogue(&CLAIM.replacen(right, wrong, 1)).claims().unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(&format!("my.toml:2: claim 'it': {what}")), "{error}");
    }
}
