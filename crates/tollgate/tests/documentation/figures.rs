//! Figures of the suites: each experiment has one, and each published value is in one.

use std::collections::BTreeSet;

use lab::catalogue::Catalogue;
use lab::claim::{Claim, Condition};
use lab::experiment::Profile;
use lab::figure::{Figure, PublishedValue};
use lab::suite::{Purpose, Suite};

use crate::suites::SUITES;

/// Experiments without a figure, and why none makes sense.
const WITHOUT_FIGURE: &[(&str, &str)] =
    &[("copy/two-host-mediation", "one point, and counts that are 0 or all accesses")];

/// Published values that no figure shows, and why.
const NOT_SHOWN: &[(&str, &str)] = &[];

fn suites() -> impl Iterator<Item = &'static &'static Suite> {
    SUITES.iter().filter(|suite| suite.purpose() == Purpose::Boundary)
}

/// Returns the experiments that a figure shows: its own and those of its side panels.
fn shown(figure: &Figure) -> impl Iterator<Item = &String> {
    let side = figure.side_panels.iter().filter_map(|panel| panel.experiment.as_ref());
    std::iter::once(&figure.experiment).chain(side)
}

#[test]
fn every_experiment_has_a_figure_or_a_reason_for_none() {
    for suite in suites() {
        let catalogue = Catalogue::of_suite(suite).unwrap();
        let figures = catalogue.figures().unwrap();
        let shown: BTreeSet<&String> = figures.iter().flat_map(|it| shown(&it.figure)).collect();
        for experiment in catalogue.experiments(Profile::Full).unwrap() {
            let id = experiment.id();
            let exempt = WITHOUT_FIGURE.iter().any(|(name, why)| *name == id && !why.is_empty());
            assert_ne!(shown.contains(&id), exempt, "{id}: add a figure, or a reason for none");
        }
    }
}

#[test]
fn loads_have_their_unit() {
    let catalogue = Catalogue::of_suite(&stream::SUITE).unwrap();
    let figures = catalogue.figures().unwrap();
    let loads: Vec<&Figure> =
        figures.iter().map(|one| &one.figure).filter(|it| it.x == "load").collect();
    assert!(loads.len() > 5 && loads.iter().all(|figure| figure.x_unit == "Gbps"), "{loads:?}");
}

/// Returns the claims whose published values a figure shows, in curves, cells and lines.
fn claims_of(figure: &Figure) -> impl Iterator<Item = &String> {
    let side = figure.side_panels.iter().flat_map(|panel| &panel.published);
    let lines = figure.lines.iter().flat_map(|line| &line.published);
    let values: Vec<&PublishedValue> = figure.published.iter().chain(side).chain(lines).collect();
    values.into_iter().map(|value| &value.claim)
}

#[test]
fn every_published_value_is_in_a_figure() {
    let is_stated = |claim: &Claim| {
        let condition = claim.expect.as_ref().map(|expect| &expect.kind);
        let is_value =
            matches!(condition, None | Some(Condition::Value(_) | Condition::Ratio { .. }));
        claim.published.is_some() && !claim.is_promise() && is_value
    };
    let mut number = 0;
    for suite in suites() {
        let catalogue = Catalogue::of_suite(suite).unwrap();
        let figures = catalogue.figures().unwrap();
        let shown: BTreeSet<&String> =
            figures.iter().flat_map(|it| claims_of(&it.figure)).collect();
        for claim in catalogue.claims().unwrap().iter().filter(|claim| is_stated(claim)) {
            let exempt = NOT_SHOWN.iter().any(|(id, why)| *id == claim.id && !why.is_empty());
            assert_ne!(
                shown.contains(&claim.id),
                exempt,
                "{}: add a figure of its points",
                claim.id
            );
            number += 1;
        }
    }
    assert!(number > 100, "{number} published values");
}
