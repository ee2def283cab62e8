//! The headlines of a run, and why suites have none.

use lab::experiment::suite_name;
use lab::headline::{self, Filled, Headline};
use lab::journal::Run;
use lab::statistics::INTERVAL_ROUNDS;
use report::page::SuiteHeadlines;
use report::table::NoHeadline;

use crate::suites::SUITES;

/// Returns the headlines that have values, of those on measured experiments.
pub(super) fn filled(declared: &[Headline], run: &Run, measured: &[String]) -> Vec<Filled> {
    let is_measured =
        |one: &&Headline| one.experiments().iter().all(|id| measured.iter().any(|it| it == id));
    declared.iter().filter(is_measured).filter_map(|one| headline::fill(one, run)).collect()
}

/// Returns why a suite has no headline; `None` if it has one, or if none is declared.
pub(super) fn missing(
    declared: &[Headline],
    filled: &[Filled],
    run: &Run,
    suite: &str,
) -> Option<NoHeadline> {
    if filled.iter().any(|one| one.suite == suite) {
        return None;
    }
    let of_suite = declared.iter().filter(|one| one.suite() == suite);
    let rounds = of_suite.map(|one| headline::rounds(one, run)).max()?;
    Some(match rounds {
        0 => NoHeadline::NoValues,
        few if few < INTERVAL_ROUNDS => NoHeadline::TooFewRounds(few),
        _ => NoHeadline::TooWide,
    })
}

/// Returns the suites of measured experiments, in the order of lists.
pub(super) fn suites(measured: &[String]) -> impl Iterator<Item = &'static str> {
    let is_measured = |suite: &str| measured.iter().any(|id| suite_name(id) == suite);
    SUITES.iter().map(|suite| suite.name()).filter(move |name| is_measured(name))
}

/// Returns the headlines of each measured suite.
pub(super) fn by_suite(
    declared: &[Headline],
    run: &Run,
    measured: &[String],
) -> Vec<SuiteHeadlines> {
    let all = filled(declared, run, measured);
    let of_suite = |suite: &'static str| SuiteHeadlines {
        suite: suite.into(),
        filled: all.iter().filter(|one| one.suite == suite).cloned().collect(),
        missing: missing(declared, &all, run, suite),
    };
    suites(measured).map(of_suite).collect()
}
