//! Planted effects on a simulated machine: the method must find them, and its 95% intervals must
//! cover the truth at the nominal rate. The machine drifts (AR(1)) and stalls (heavy positive
//! spikes), as shared machines do. Every replication has a fixed seed; run with `--nocapture` for
//! the values, some of which docs/method.md states.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

mod drift;

use drift::Machine;
use lab::experiment::Effort;
use lab::metric::Better;
use lab::point::Point;
use lab::run::is_narrow;
use lab::statistics::{
    CONFIDENCE, Estimate, Interval, IntervalKind, LostRounds, NOTABLE_CORRELATION, NoiseFloor,
    Ratio, Resolution, confidence_of_look, estimate, estimate_at, median, order, paired_ratio,
    resolve, spread,
};
use lab::summary::{Contest, Floors, Observation, Observed, Rounds};
use rand::RngExt;

const ROUNDS: usize = 20;
const REPLICATIONS: u64 = 1000;
const EFFECTS: [f64; 6] = [0.005, 0.01, 0.02, 0.05, 0.10, 0.20];

/// The points of an experiment: the two of interest, the twin of the first, and five more.
const POINTS: usize = 8;
const BASE: usize = 0;
const CHANGED: usize = 1;
const TWIN: usize = 2;

fn truth(point: usize, effect: f64) -> f64 {
    if point == CHANGED { 100.0 * (1.0 + effect) } else { 100.0 }
}

/// Values of each point per round, in the method's order. `others` points of other experiments are
/// measured between two rounds.
fn spread_rounds(effect: f64, rounds: usize, others: usize, seed: u64) -> Vec<Vec<f64>> {
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
fn by_rounds(effect: f64, seed: u64) -> Vec<Vec<f64>> {
    spread_rounds(effect, ROUNDS, 0, seed)
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
    assert!((0.94..=0.98).contains(&covered), "covered {covered} in all");
}

/// Rounds of one point whose spread reaches 2% after few or many evaluations, independent or
/// correlated.
#[test]
fn a_point_that_stops_when_narrow_covers_the_truth() {
    const TRUTH: f64 = 100.0;
    const SPREADS: [f64; 5] = [0.03, 0.04, 0.05, 0.06, 0.07];
    let effort = Effort {
        min_rounds: 20,
        rounds: 640,
        budget: std::time::Duration::from_millis(5),
        resolve: 0.02,
    };
    for (correlation, least) in [(0.0, 0.93), (0.3, 0.9), (0.6, 0.85)] {
        let (mut covered, mut rounds) = (0, 0);
        for (spread, seed) in SPREADS.into_iter().flat_map(|s| seeds(s).map(move |seed| (s, seed)))
        {
            let mut next = correlated(correlation, seed);
            let mut values = Vec::new();
            while values.len() < effort.rounds as usize && !is_narrow(&values, &effort) {
                values.push(TRUTH * (spread * next()).exp());
            }
            covered += usize::from(estimate(&values).unwrap().interval.includes(TRUTH));
            rounds += values.len();
        }
        let all = SPREADS.len() * REPLICATIONS as usize;
        let (covered, rounds) = (share(covered, all), rounds as f64 / all as f64);
        println!(
            "stopped when narrow, rounds correlated by {correlation}: {rounds:.0} rounds, covered {:.1}%",
            covered * 100.0
        );
        assert!(covered >= least, "{correlation}: covered {covered}");
    }
}

/// Standard normal values of which each is correlated with the one before.
fn correlated(correlation: f64, seed: u64) -> impl FnMut() -> f64 {
    let mut machine = Machine::new(seed);
    let mut now = machine.normal();
    move || {
        now = correlation * now + f64::sqrt(1.0 - correlation * correlation) * machine.normal();
        now
    }
}

/// Numbers of rounds whose coverage is asserted.
const COUNTS: [usize; 5] = [6, 8, 10, 20, 50];

/// Returns the coverage of `truth` by the intervals of some values per replication, their share
/// with a notable correlation, and the median of their half-widths as shares.
fn coverage(truth: f64, values: impl Iterator<Item = Vec<f64>>) -> (f64, f64, f64) {
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

/// A value drifts with the machine: its interval describes the machine's long-term state only if the
/// rounds are spread over a long time. The interval is widened for the correlation that remains.
#[test]
fn values_are_covered_if_rounds_are_spread_over_the_run() {
    let mut machine = Machine::new(1);
    let long_term: Vec<f64> = (0..200_000)
        .map(|_| {
            machine.pass(1000);
            machine.measure(100.0)
        })
        .collect();
    let truth = median(&long_term).unwrap();
    // The least coverage at each number of rounds, with as many other points between two rounds.
    for (others, least) in [
        (0, [0.35, 0.4, 0.45, 0.5, 0.55]),
        (50, [0.75, 0.8, 0.82, 0.85, 0.86]),
        (100, [0.85, 0.88, 0.88, 0.89, 0.9]),
        (250, [0.93, 0.93, 0.93, 0.93, 0.93]),
    ] {
        for (rounds, least) in COUNTS.into_iter().zip(least) {
            let values =
                seeds(0.5).map(|seed| spread_rounds(0.0, rounds, others, seed).swap_remove(BASE));
            let (covered, notable, width) = coverage(truth, values);
            println!(
                "values, {others:3} points between rounds, {rounds:2} rounds: covered {:.1}%, lag-1 above 0.3 in {:.0}%, half-width {:.1}%",
                covered * 100.0,
                notable * 100.0,
                width * 100.0
            );
            assert!((least..=0.98).contains(&covered), "{others}, {rounds}: covered {covered}");
        }
    }
}

/// Normal values of which each is correlated with the one before.
#[test]
fn values_of_correlated_rounds_are_covered() {
    for (correlation, least) in [
        (0.0, [0.94, 0.94, 0.94, 0.94, 0.94]),
        (0.3, [0.87, 0.88, 0.88, 0.915, 0.92]),
        (0.6, [0.7, 0.77, 0.8, 0.86, 0.9]),
    ] {
        for (rounds, least) in COUNTS.into_iter().zip(least) {
            let values = seeds(correlation).map(|seed| {
                let mut next = correlated(correlation, seed);
                (0..rounds).map(|_| 100.0 + next()).collect()
            });
            let (covered, notable, _) = coverage(100.0, values);
            println!(
                "rounds correlated by {correlation}, {rounds:2} rounds: covered {:.1}%, lag-1 above 0.3 in {:.0}%",
                covered * 100.0,
                notable * 100.0
            );
            assert!((least..=0.98).contains(&covered), "{correlation}, {rounds}: {covered}");
        }
    }
}

/// Returns the share of wrong decisions on a value exactly at its bound, in which each session measures more rounds if
/// the earlier ones left it inconclusive. `rounds` returns the number of all rounds after the next session.
fn wrong_decisions(looks: usize, is_widened: bool, rounds: impl Fn(&Estimate) -> usize) -> f64 {
    let decides = |seed: u64| {
        let mut machine = Machine::new(seed);
        let (mut values, mut needed) = (Vec::new(), 10);
        for look in 1..=looks {
            while values.len() < needed {
                let stall = if machine.random.random::<f64>() < 0.05 { 5.0 } else { 1.0 };
                values.push(stall * machine.normal());
            }
            let confidence = if is_widened { confidence_of_look(look) } else { CONFIDENCE };
            let estimate = estimate_at(&values, confidence).unwrap();
            let is_interval = estimate.interval.kind == IntervalKind::Confidence;
            if is_interval && !estimate.interval.includes(0.0) {
                return true;
            }
            needed = rounds(&estimate).max(values.len() + 1);
            if needed > 400 {
                return false;
            }
        }
        false
    };
    share((0..REPLICATIONS).filter(|seed| decides(*seed)).count(), REPLICATIONS as usize)
}

/// A user who measures more rounds until a claim is decided is rarely wrong.
#[test]
fn repeated_looks_rarely_decide_wrongly() {
    let projected = |one: &Estimate| {
        let end = if one.median > 0.0 { one.interval.low } else { one.interval.high };
        (one.rounds as f64 * ((one.median - end) / one.median).powi(2)).ceil() as usize
    };
    type Rounds = fn(&Estimate) -> usize;
    let more: [(&str, usize, Rounds); 5] = [
        ("one session", 1, |_| 0),
        ("as projected, up to 6 sessions", 6, projected),
        ("twice as many, 6 sessions", 6, |one| 2 * one.rounds),
        ("4 more, 20 sessions", 20, |one| one.rounds + 4),
        ("4 more, 50 sessions", 50, |one| one.rounds + 4),
    ];
    for (name, looks, rounds) in more {
        let [plain, widened] = [false, true].map(|it| wrong_decisions(looks, it, rounds));
        println!("{name}: wrong in {plain:.3}, with widened intervals {widened:.3}");
        assert!(widened < 0.1, "{name}: {widened}");
        assert!(looks == 1 || plain > 1.3 * widened, "{name}: {plain} {widened}");
    }
}

/// The interval of the spread of rounds covers the true one, and a spread 1.3 times above or below a bound is rarely judged
/// to be on the other side, whatever the number of rounds.
#[test]
fn spreads_are_covered() {
    type Next = Box<dyn FnMut() -> f64>;
    type Seeded = fn(u64) -> Next;
    let machines: [(&str, f64, Seeded); 5] = [
        ("independent", 0.9, |seed| Box::new(correlated(0.0, seed))),
        ("correlated by 0.3", 0.89, |seed| Box::new(correlated(0.3, seed))),
        ("correlated by 0.6", 0.8, |seed| Box::new(correlated(0.6, seed))),
        ("stalls in 10%", 0.9, |seed| {
            let mut machine = Machine::new(seed);
            Box::new(move || {
                let stalls = machine.random.random::<f64>() < 0.1;
                let stall = -10.0 * (1.0 - machine.random.random::<f64>()).ln();
                machine.normal() + if stalls { stall } else { 0.0 }
            })
        }),
        ("exponential", 0.76, |seed| {
            let mut machine = Machine::new(seed);
            Box::new(move || -(1.0 - machine.random.random::<f64>()).ln())
        }),
    ];
    for (name, least, machine) in machines {
        let mut next = machine(0);
        let many: Vec<f64> = (0..400_000).map(|_| next()).collect();
        let truth = spread(&many, CONFIDENCE).unwrap().width;
        for rounds in [6, 7, 8, 10, 20, 50] {
            let spreads = (1..=REPLICATIONS).map(|seed| {
                let mut next = machine(seed);
                let values: Vec<f64> = (0..rounds).map(|_| next()).collect();
                spread(&values, CONFIDENCE).unwrap().interval
            });
            let spreads: Vec<Interval> = spreads.collect();
            let of = |is: &dyn Fn(&Interval) -> bool| {
                share(spreads.iter().filter(|one| is(one)).count(), spreads.len())
            };
            let covered = of(&|one| one.includes(truth));
            let (low, high) =
                (of(&|one| one.high <= truth / 1.3), of(&|one| one.low > 1.3 * truth));
            println!("spread, {name}, {rounds} rounds: {covered:.3}, wrong {low:.3} {high:.3}");
            assert!(covered >= least, "{name}, {rounds} rounds: covered {covered}");
            assert!(low < 0.09 && high < 0.05, "{name}, {rounds} rounds: wrong {low} {high}");
        }
    }
}

/// Two regimes, e.g. a busy and an idle sibling, that last ten rounds on average. The ratio of two
/// points that both are in the same regime is covered; the median of a value is one of two.
#[test]
fn regimes_are_covered_by_ratios_only() {
    for rounds in COUNTS {
        let (mut ratios, mut values) = (0, 0);
        for seed in seeds(0.8) {
            let mut machine = Machine::new(seed);
            let mut is_slow = machine.random.random::<f64>() < 0.5;
            let (mut pairs, mut first) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                is_slow ^= machine.random.random::<f64>() < 0.1;
                let regime = if is_slow { 1.4 } else { 1.0 };
                let mut measure = |truth: f64| truth * regime * (0.02 * machine.normal()).exp();
                pairs.push((measure(102.0), measure(100.0)));
                first.push(pairs[pairs.len() - 1].1);
            }
            let ratio = paired_ratio(&pairs, LostRounds::default()).unwrap();
            ratios += usize::from(ratio.interval.includes(1.02));
            // Between the regimes, half of whose values are on either side.
            values += usize::from(estimate(&first).unwrap().interval.includes(120.0));
        }
        let [ratios, values] = [ratios, values].map(|count| share(count, REPLICATIONS as usize));
        println!(
            "regimes, {rounds:2} rounds: ratio covered {:.1}%, value {:.1}%",
            ratios * 100.0,
            values * 100.0
        );
        assert!((0.935..=0.985).contains(&ratios), "{rounds}: {ratios}");
        assert!((0.35..0.9).contains(&values), "{rounds}: {values}");
    }
}

#[test]
fn ratios_are_covered_at_every_number_of_rounds() {
    let truth = 1.02;
    for rounds in COUNTS {
        let ratios =
            seeds(0.6).map(|seed| paired(&spread_rounds(0.02, rounds, 0, seed), CHANGED, BASE));
        let ratios: Vec<Ratio> = ratios.collect();
        let covered = ratios.iter().filter(|ratio| ratio.interval.includes(truth)).count();
        let covered = share(covered, ratios.len());
        let widths: Vec<f64> = ratios.iter().map(|ratio| half_width(&ratio.interval)).collect();
        println!(
            "ratios, {rounds:2} rounds: covered {:.1}%, half-width {:.2}%",
            covered * 100.0,
            median(&widths).unwrap() * 100.0
        );
        assert!((0.935..=0.985).contains(&covered), "{rounds}: covered {covered}");
    }
}

/// The simulated points as the summary of an experiment has them.
struct Simulated {
    levels: Vec<(Point, Rounds)>,
    twins: Observed,
}

fn name(point: usize) -> Point {
    Point::from([("level", point.to_string().as_str())])
}

impl Simulated {
    fn new(values: Vec<Vec<f64>>) -> Self {
        let observed = |values: &Vec<f64>| -> Rounds {
            let one = |value: &f64| Observation {
                value: *value,
                resolution: 0.0,
                class: None,
                session: 1,
                sharing: None,
            };
            (0u32..).zip(values.iter().map(one)).collect()
        };
        let all: Vec<_> = (0..POINTS).map(|at| (name(at), observed(&values[at]))).collect();
        let of = |point: usize| [(name(BASE), all[point].1.clone())].into();
        let twins = Observed { points: of(BASE), twins: of(TWIN), ..Observed::default() };
        let levels = all.into_iter().filter(|(point, _)| *point != name(TWIN)).collect();
        Self { levels, twins }
    }

    /// Compares the levels, of which the highest is the best.
    fn contest(&self) -> Contest<'_> {
        let levels = self.levels.iter().map(|(point, rounds)| (point, rounds)).collect();
        let floors = Floors::of(&self.twins);
        Contest::all(&[levels], Better::Higher, &floors).unwrap().remove(0)
    }
}

/// A best level of equal ones is false, and so is an alarm of equal twins.
#[test]
fn equal_levels_rarely_have_a_best_one() {
    for rounds in [6, 10, 20] {
        let (mut stars, mut eliminated, mut alarms, mut found) = (0, 0, 0, 0);
        for seed in seeds(0.7) {
            let equal = Simulated::new(spread_rounds(0.0, rounds, 0, seed));
            let contest = equal.contest();
            stars += usize::from(contest.best().is_some());
            eliminated += usize::from(contest.candidates().count() < equal.levels.len());
            alarms += usize::from(!equal.twins.twin_ratios()[0].1.interval.includes(1.0));
            let unequal = Simulated::new(spread_rounds(0.2, rounds, 0, seed));
            found += usize::from(unequal.contest().best() == Some(&name(CHANGED)));
        }
        let [stars, eliminated, alarms, found] =
            [stars, eliminated, alarms, found].map(|count| share(count, REPLICATIONS as usize));
        println!(
            "{rounds:2} rounds of 7 equal levels: a best one in {:.1}%, one excluded in {:.1}%, twin alarm in {:.1}%; if one is 20% better, it is found in {:.1}%",
            stars * 100.0,
            eliminated * 100.0,
            alarms * 100.0,
            found * 100.0
        );
        assert!(stars <= 0.05 && eliminated <= 0.05, "{rounds}: {stars} {eliminated}");
        assert!(alarms <= 0.065, "{rounds}: {alarms}");
        assert!(rounds < 20 || found > 0.7, "{rounds}: {found}");
    }
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
