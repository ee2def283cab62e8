//! Values and spreads of single points: coverage with correlated rounds, with stopping and with repeated looks.

use lab::experiment::Effort;
use lab::run::is_narrow;
use lab::statistics::{
    CONFIDENCE, Estimate, Interval, IntervalKind, confidence_of_look, estimate, estimate_at,
    median, spread,
};
use rand::RngExt;

use crate::drift::Machine;
use crate::{BASE, COUNTS, REPLICATIONS, coverage, seeds, share, spread_rounds};

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
pub(crate) fn correlated(correlation: f64, seed: u64) -> impl FnMut() -> f64 {
    let mut machine = Machine::new(seed);
    let mut now = machine.normal();
    move || {
        now = correlation * now + f64::sqrt(1.0 - correlation * correlation) * machine.normal();
        now
    }
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
        assert!(widened < 0.085, "{name}: {widened}");
        assert!(looks == 1 || plain > 1.3 * widened, "{name}: {plain} {widened}");
    }
}

/// The interval of the spread of rounds covers the true one, and a spread 1.3 times above or below a bound is rarely
/// judged to be on the other side, whatever the number of rounds.
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
            assert!(low < 0.05 && high < 0.05, "{name}, {rounds} rounds: wrong {low} {high}");
        }
    }
}
