//! Planted effects on a simulated machine: the method must find them, and its 95% intervals must
//! cover the truth at the nominal rate. The machine drifts (AR(1)) and stalls (heavy positive
//! spikes), as shared machines do. Every replication has a fixed seed; run with `--nocapture` for
//! the values.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

use lab::experiment::Effort;
use lab::run::is_narrow;
use lab::statistics::{
    Estimate, Interval, LostRounds, NoiseFloor, Ratio, Resolution, estimate, median, order,
    paired_ratio, resolve,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const ROUNDS: usize = 20;
const REPLICATIONS: u64 = 1000;
const EFFECTS: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.10, 0.20];

/// The points of an experiment: the two of interest, the twin of the first, and five more.
const POINTS: usize = 8;
const BASE: usize = 0;
const CHANGED: usize = 1;
const TWIN: usize = 2;

/// A machine whose speed drifts from one measurement to the next.
struct Machine {
    random: Pcg64Mcg,
    drift: f64,
}

impl Machine {
    /// Share of the drift that remains at the next measurement.
    const MEMORY: f64 = 0.99;
    /// Long-term standard deviation of the drift, on the log scale: 10%.
    const DRIFT: f64 = 0.10;
    /// The noise of one measurement: 1%.
    const NOISE: f64 = 0.01;
    /// One measurement in 20 stalls.
    const STALLS: f64 = 0.05;

    fn new(seed: u64) -> Self {
        let mut machine = Self { random: Pcg64Mcg::seed_from_u64(seed), drift: 0.0 };
        machine.drift = Self::DRIFT * machine.normal();
        machine
    }

    /// Returns a standard normal number (Box-Muller).
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.random.random(), self.random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Returns the measured duration of work whose true duration is `truth`.
    fn measure(&mut self, truth: f64) -> f64 {
        let step = Self::DRIFT * (1.0 - Self::MEMORY * Self::MEMORY).sqrt();
        self.drift = Self::MEMORY * self.drift + step * self.normal();
        let noise = Self::NOISE * self.normal();
        let stalls = self.random.random::<f64>() < Self::STALLS;
        let stall = if stalls { 1.0 - 5.0 * (1.0 - self.random.random::<f64>()).ln() } else { 1.0 };
        truth * (self.drift + noise).exp() * stall
    }
}

fn truth(point: usize, effect: f64) -> f64 {
    if point == CHANGED { 100.0 * (1.0 + effect) } else { 100.0 }
}

/// Values of each point per round, in the method's order.
fn by_rounds(effect: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut machine = Machine::new(seed);
    let mut values = vec![Vec::new(); POINTS];
    for round in 0..ROUNDS {
        for point in order::of_round(POINTS, round, seed) {
            values[point].push(machine.measure(truth(point, effect)));
        }
    }
    values
}

/// Sequential order, as most tools use: all repetitions of one point, then all of the next.
fn by_blocks(effect: f64, seed: u64) -> Vec<Vec<f64>> {
    let mut machine = Machine::new(seed);
    (0..POINTS)
        .map(|point| (0..ROUNDS).map(|_| machine.measure(truth(point, effect))).collect())
        .collect()
}

fn paired(values: &[Vec<f64>], numerator: usize, denominator: usize) -> Ratio {
    let pairs = values[numerator].iter().copied().zip(values[denominator].iter().copied());
    paired_ratio(&pairs.collect::<Vec<_>>(), LostRounds::default()).unwrap()
}

/// Returns the interval of a difference of two independent log medians, from the interval of each
/// (Zou and Donner, 2008).
fn unpaired(values: &[Vec<f64>]) -> (f64, f64) {
    let of = |point: usize| -> Estimate {
        estimate(&values[point].iter().map(|value| value.ln()).collect::<Vec<_>>()).unwrap()
    };
    let (a, b) = (of(CHANGED), of(BASE));
    let difference = a.median - b.median;
    let below = (a.median - a.interval.low).hypot(b.interval.high - b.median);
    let above = (a.interval.high - a.median).hypot(b.median - b.interval.low);
    ((difference - below).exp(), (difference + above).exp())
}

fn share(hits: usize, of: usize) -> f64 {
    hits as f64 / of as f64
}

fn half_width(Interval { low, high, .. }: &Interval) -> f64 {
    (high - low) / 2.0
}

/// A separate seed for each replication of each effect.
fn seeds(effect: f64) -> impl Iterator<Item = u64> {
    let first = (effect * 1e4) as u64 * 1_000_000;
    first..first + REPLICATIONS
}

#[test]
fn planted_effects_are_found_and_covered() {
    let mut covered_in_all = 0;
    for effect in EFFECTS {
        let truth = 1.0 + effect;
        let ratios: Vec<Ratio> =
            seeds(effect).map(|seed| paired(&by_rounds(effect, seed), CHANGED, BASE)).collect();
        let recovered = median(&ratios.iter().map(|r| r.ratio).collect::<Vec<_>>()).unwrap();
        let widths: Vec<f64> = ratios.iter().map(|r| half_width(&r.interval)).collect();
        let covered = ratios.iter().filter(|r| r.interval.includes(truth)).count();
        covered_in_all += covered;
        println!(
            "effect {:4.1}%: recovered {:6.3}%, covered {:.1}%, half-width {:.2}%",
            effect * 100.0,
            (recovered - 1.0) * 100.0,
            share(covered, ratios.len()) * 100.0,
            median(&widths).unwrap() * 100.0
        );
        assert!((recovered / truth - 1.0).abs() < 0.001, "{effect}: recovered {recovered}");
        let covered = share(covered, ratios.len());
        assert!((0.92..=0.985).contains(&covered), "{effect}: covered {covered}");
    }
    let covered = share(covered_in_all, EFFECTS.len() * REPLICATIONS as usize);
    println!("all effects: covered {:.2}% (one standard error is 0.3 points)", covered * 100.0);
    assert!((0.93..=0.97).contains(&covered), "covered {covered} in all");
}

/// Rounds of one point without drift, whose spread reaches 2% after few or many evaluations.
#[test]
fn a_point_that_stops_when_narrow_covers_the_truth() {
    const TRUTH: f64 = 100.0;
    let (mut covered_in_all, mut stopped_in_all) = (0, 0);
    for spread in [0.03, 0.04, 0.05, 0.06, 0.07] {
        let effort = Effort {
            min_rounds: 20,
            rounds: 640,
            budget: std::time::Duration::from_millis(5),
            resolve: 0.02,
        };
        let (mut covered, mut rounds) = (0, 0);
        for seed in seeds(spread) {
            let mut machine = Machine { random: Pcg64Mcg::seed_from_u64(seed), drift: 0.0 };
            let mut values = Vec::new();
            while values.len() < effort.rounds as usize && !is_narrow(&values, &effort) {
                values.push(TRUTH * (spread * machine.normal()).exp());
            }
            covered += usize::from(estimate(&values).unwrap().interval.includes(TRUTH));
            rounds += values.len();
        }
        covered_in_all += covered;
        stopped_in_all += REPLICATIONS as usize;
        let covered = share(covered, REPLICATIONS as usize);
        let rounds = rounds as f64 / REPLICATIONS as f64;
        println!(
            "spread {:2.0}%: {rounds:.0} rounds, covered {:.1}%",
            spread * 100.0,
            covered * 100.0
        );
        assert!(covered > 0.905, "{spread}: covered {covered}");
    }
    let covered = share(covered_in_all, stopped_in_all);
    println!("stopped when narrow: covered {:.1}%", covered * 100.0);
    assert!(covered >= 0.93, "covered {covered} in all");
}

#[test]
fn without_rounds_and_pairs_the_truth_is_missed_or_blurred() {
    let effect = 0.02;
    let truth = 1.0 + effect;
    let (mut blocked, mut rounds) = (0, 0);
    let (mut unpaired_widths, mut paired_widths) = (Vec::new(), Vec::new());
    for seed in seeds(effect) {
        let (low, high) = unpaired(&by_blocks(effect, seed));
        blocked += usize::from((low..=high).contains(&truth));
        let values = by_rounds(effect, seed);
        let (low, high) = unpaired(&values);
        rounds += usize::from((low..=high).contains(&truth));
        unpaired_widths.push((high - low) / 2.0);
        paired_widths.push(half_width(&paired(&values, CHANGED, BASE).interval));
    }
    let blocked = share(blocked, REPLICATIONS as usize);
    let rounds = share(rounds, REPLICATIONS as usize);
    let widths = (median(&unpaired_widths).unwrap(), median(&paired_widths).unwrap());
    println!("blocks, unpaired: covered {:.1}%", blocked * 100.0);
    println!(
        "rounds, unpaired: covered {:.1}%, half-width {:.2}% vs. {:.2}% paired",
        rounds * 100.0,
        widths.0 * 100.0,
        widths.1 * 100.0
    );
    assert!(blocked < 0.80, "blocks covered {blocked}: the simulation is too benign");
    assert!(rounds > 0.95, "rounds without pairs covered {rounds}");
    assert!(widths.1 < 0.7 * widths.0, "pairs gain too little: {widths:?}");
}

#[test]
fn no_effect_stays_unresolved_and_a_large_one_is_resolved() {
    let resolved = |effect: f64| {
        let found = seeds(effect).map(|seed| {
            let values = by_rounds(effect, seed);
            let floor = NoiseFloor::from_twins(&[paired(&values, TWIN, BASE)]);
            resolve(&paired(&values, CHANGED, BASE), floor.as_ref())
        });
        let found: Vec<Resolution> = found.collect();
        let of = |kind| share(found.iter().filter(|r| **r == kind).count(), found.len());
        (of(Resolution::Higher), of(Resolution::Lower))
    };
    for effect in [0.0].into_iter().chain(EFFECTS) {
        let (higher, lower) = resolved(effect);
        println!(
            "effect {:4.1}%: higher {:5.1}%, lower {:4.1}%",
            effect * 100.0,
            higher * 100.0,
            lower * 100.0
        );
        if effect == 0.0 {
            assert!(higher + lower < 0.05, "resolved {higher} + {lower} without an effect");
        }
        assert!(lower < 0.03, "{effect}: {lower} of the wrong sign");
        if effect >= 0.10 {
            assert!(higher > 0.98, "{effect}: only {higher} found");
        }
    }
}
