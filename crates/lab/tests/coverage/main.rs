//! Planted effects on a simulated machine: the method must find them, and its 95% intervals must
//! cover the truth at the nominal rate. The machine drifts (AR(1)) and stalls (heavy positive
//! spikes), as shared machines do. Every replication has a fixed seed; run with `--nocapture` for
//! the values, some of which docs/method.md states.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

mod contests;
#[path = "../drift/mod.rs"]
mod drift;
mod further;
#[path = "../claim/made_up.rs"]
#[allow(dead_code, reason = "the tests of claims use the other parts")]
mod made_up;
mod ratios;
mod states;
mod values;
mod wide;

use drift::Machine;
use lab::statistics::{
    Estimate, Interval, LostRounds, NOTABLE_CORRELATION, Ratio, estimate, median, order,
    paired_ratio,
};

pub(crate) const ROUNDS: usize = 20;

pub(crate) const REPLICATIONS: u64 = 1000;

pub(crate) const EFFECTS: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.10, 0.20];

/// The points of an experiment: the two of interest, the twin of the first, and five more.
pub(crate) const POINTS: usize = 8;

pub(crate) const BASE: usize = 0;

pub(crate) const CHANGED: usize = 1;

pub(crate) const TWIN: usize = 2;

pub(crate) fn truth(point: usize, effect: f64) -> f64 {
    if point == CHANGED { 100.0 * (1.0 + effect) } else { 100.0 }
}

/// Values of each point per round, in the method's order. `others` points of other experiments are
/// measured between two rounds.
pub(crate) fn spread_rounds(effect: f64, rounds: usize, others: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut machine = Machine::new(seed);
    let mut values = vec![Vec::new(); POINTS];
    for round in 0..rounds {
        for point in order::of_round(POINTS, round, seed) {
            values[point].push(machine.measure(truth(point, effect)));
        }
        machine.pass(others);
    }
    values
}

/// Values of one experiment whose rounds follow each other.
pub(crate) fn by_rounds(effect: f64, seed: u64) -> Vec<Vec<f64>> {
    spread_rounds(effect, ROUNDS, 0, seed)
}

/// Sequential order, as most tools use: all repetitions of one point, then all of the next.
pub(crate) fn by_blocks(effect: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut machine = Machine::new(seed);
    (0..POINTS)
        .map(|point| (0..ROUNDS).map(|_| machine.measure(truth(point, effect))).collect())
        .collect()
}

pub(crate) fn paired(values: &[Vec<f64>], numerator: usize, denominator: usize) -> Ratio {
    let pairs = values[numerator].iter().copied().zip(values[denominator].iter().copied());
    paired_ratio(&pairs.collect::<Vec<_>>(), LostRounds::default()).unwrap()
}

/// Returns the interval of a difference of two independent log medians, from the interval of each
/// (Zou and Donner, 2008).
pub(crate) fn unpaired(values: &[Vec<f64>]) -> (f64, f64) {
    let of = |point: usize| -> Estimate {
        estimate(&values[point].iter().map(|value| value.ln()).collect::<Vec<_>>()).unwrap()
    };
    let (a, b) = (of(CHANGED), of(BASE));
    let difference = a.median - b.median;
    let below = (a.median - a.interval.low).hypot(b.interval.high - b.median);
    let above = (a.interval.high - a.median).hypot(b.median - b.interval.low);
    ((difference - below).exp(), (difference + above).exp())
}

pub(crate) fn share(hits: usize, of: usize) -> f64 {
    hits as f64 / of as f64
}

pub(crate) fn half_width(Interval { low, high, .. }: &Interval) -> f64 {
    (high - low) / 2.0
}

/// A separate seed for each replication of each effect.
pub(crate) fn seeds(effect: f64) -> impl Iterator<Item = u64> {
    let first = (effect * 1e4) as u64 * 1_000_000;
    first..first + REPLICATIONS
}

/// Numbers of rounds whose coverage is asserted.
pub(crate) const COUNTS: [usize; 5] = [6, 8, 10, 20, 50];

/// Returns the coverage of `truth` by the intervals of some values per replication, their share
/// with a notable correlation, and the median of their half-widths as shares.
pub(crate) fn coverage(truth: f64, values: impl Iterator<Item = Vec<f64>>) -> (f64, f64, f64) {
    let estimates: Vec<Estimate> = values.map(|values| estimate(&values).unwrap()).collect();
    let of = |is: &dyn Fn(&Estimate) -> bool| {
        share(estimates.iter().filter(|one| is(one)).count(), estimates.len())
    };
    let widths: Vec<f64> = estimates.iter().map(Estimate::relative_half_width).collect();
    (
        of(&|one| one.interval.includes(truth)),
        of(&|one| one.lag_1.is_some_and(|lag_1| lag_1 > NOTABLE_CORRELATION)),
        median(&widths).unwrap(),
    )
}
