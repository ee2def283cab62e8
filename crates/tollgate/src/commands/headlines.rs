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
    on_measured(declared, measured).filter_map(|one| headline::fill(one, run)).collect()
}

/// Returns the headlines whose experiments are all measured.
fn on_measured<'d>(
    declared: &'d [Headline],
    measured: &[String],
) -> impl Iterator<Item = &'d Headline> {
    let is_measured =
        |one: &&Headline| one.experiments().iter().all(|id| measured.iter().any(|it| it == id));
    declared.iter().filter(is_measured)
}

/// Returns why a suite has no headline; `None` if it has one, or if none is declared on the measured experiments.
pub(super) fn missing(
    declared: &[Headline],
    filled: &[Filled],
    (run, measured): (&Run, &[String]),
    suite: &str,
) -> Option<NoHeadline> {
    if filled.iter().any(|one| one.suite == suite) {
        return None;
    }
    let of_suite = on_measured(declared, measured).filter(|one| one.suite() == suite);
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
        missing: missing(declared, &all, (run, measured), suite),
    };
    suites(measured).map(of_suite).collect()
}
