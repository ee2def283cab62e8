//! Further rounds for claims that lack some: they are chosen by counts and correlation, so that as many intervals cover the
//! truth, and as few false claims are reproduced, as without.

use lab::statistics::{IntervalKind, LostRounds, estimate, paired_ratio, rate_upper_limit};
use rand::RngExt;

use crate::drift::Machine;
use crate::{REPLICATIONS, order, share};

/// Rounds of the main part of a run, and with the further ones.
const MAIN: usize = 7;
const ALL: usize = 16;
/// Rounds that a verdict requires.
const NEEDED: usize = 6;
/// Share of void rounds.
const VOID: f64 = 0.1;

/// A round of two points and the twin of the first; `None` if it is void.
struct Round {
    is_far: bool,
    times: Option<[f64; 3]>,
}

/// A machine whose cores are near each other for some rounds and far apart for others.
struct Cores {
    machine: Machine,
    is_far: bool,
    /// Points of other experiments between two rounds.
    others: usize,
    /// Share of the rounds that keep the proximity.
    stay: f64,
    rounds: usize,
}

impl Cores {
    /// Time of the two points with near and with far cores: the ratio differs too.
    const TRUE: [[f64; 2]; 2] = [[100.0, 110.0], [130.0, 125.0]];

    fn new(others: usize, stay: f64, seed: u64) -> Self {
        let mut machine = Machine::new(seed);
        let is_far = machine.random.random::<f64>() < 0.4;
        Self { machine, is_far, others, stay, rounds: 0 }
    }

    fn round(&mut self, seed: u64) -> Round {
        if self.machine.random.random::<f64>() > self.stay {
            self.is_far = self.machine.random.random::<f64>() < 0.4;
        }
        let [first, second] = Self::TRUE[usize::from(self.is_far)];
        let truths = [first, second, first];
        let mut times = [0.0; 3];
        for point in order::of_round(3, self.rounds, seed) {
            times[point] = self.machine.measure(truths[point]);
        }
        self.machine.pass(self.others);
        self.rounds += 1;
        let is_void = self.machine.random.random::<f64>() < VOID;
        Round { is_far: self.is_far, times: (!is_void).then_some(times) }
    }
}

/// Result of one class: whether each of the value, the ratio and the ratio of twins has an interval that covers the truth;
/// `None` without an interval.
type Covered = [Option<bool>; 3];

fn of_class(rounds: &[Round], is_far: bool, long_term: f64) -> Option<Covered> {
    let times = rounds.iter().filter(|one| one.is_far == is_far).filter_map(|one| one.times);
    let times: Vec<[f64; 3]> = times.collect();
    if times.len() < NEEDED {
        return None;
    }
    let [first, second] = Cores::TRUE[usize::from(is_far)];
    let value = estimate(&times.iter().map(|one| one[0]).collect::<Vec<_>>()).unwrap().interval;
    let ratio = |above: usize, below: usize| {
        let pairs: Vec<_> = times.iter().map(|one| (one[above], one[below])).collect();
        paired_ratio(&pairs, LostRounds::default()).unwrap().interval
    };
    let truths = [first * long_term, second / first, 1.0];
    let intervals = [value, ratio(1, 0), ratio(2, 0)];
    Some(std::array::from_fn(|at| {
        let is_interval = intervals[at].kind == IntervalKind::Confidence;
        is_interval.then(|| intervals[at].includes(truths[at]))
    }))
}

/// Returns the results of the classes with enough rounds.
fn judged(rounds: &[Round], long_term: f64) -> Vec<Covered> {
    [false, true].into_iter().filter_map(|is_far| of_class(rounds, is_far, long_term)).collect()
}

/// Returns the shares of runs with an interval, and of the intervals that cover the truth, of values, ratios and twins.
fn shares(runs: &[Vec<Covered>]) -> [(f64, f64); 3] {
    std::array::from_fn(|at| {
        let has = |run: &&Vec<Covered>| run.iter().any(|one| one[at].is_some());
        let known: Vec<bool> = runs.iter().flatten().filter_map(|one| one[at]).collect();
        let covered = known.iter().filter(|is_covered| **is_covered).count();
        (share(runs.iter().filter(has).count(), runs.len()), share(covered, known.len().max(1)))
    })
}

#[test]
fn further_rounds_keep_the_coverage() {
    let mut machine = Machine::new(1);
    let long_term: Vec<f64> = (0..200_000)
        .map(|_| {
            machine.pass(1000);
            machine.measure(1.0)
        })
        .collect();
    let long_term = lab::statistics::median(&long_term).unwrap();
    // The proximity is drawn anew for each round, stays for a few, or for most of the run.
    for (others, stay) in [(250, 0.0), (250, 0.7), (250, 0.95), (1000, 0.7)] {
        let (mut before, mut after, mut taken) = (Vec::new(), Vec::new(), 0);
        for seed in 0..REPLICATIONS {
            let mut cores = Cores::new(others, stay, seed);
            let mut rounds: Vec<Round> = (0..MAIN).map(|_| cores.round(seed)).collect();
            before.push(judged(&rounds, long_term));
            let lacks = |rounds: &[Round]| {
                let classes = judged(rounds, long_term);
                classes.is_empty() || classes.iter().flatten().any(Option::is_none)
            };
            while lacks(&rounds) && rounds.len() < ALL {
                rounds.push(cores.round(seed));
            }
            taken += rounds.len() - MAIN;
            after.push(judged(&rounds, long_term));
        }
        let (before, after) = (shares(&before), shares(&after));
        println!(
            "{others} points between rounds, proximity kept in {:.0}%: {:.1} further rounds",
            stay * 100.0,
            taken as f64 / REPLICATIONS as f64
        );
        let least = [0.92, 0.93, 0.93];
        for (at, name) in ["values", "ratios", "twins"].into_iter().enumerate() {
            let ((had, covered_before), (has, covered)) = (before[at], after[at]);
            println!(
                "  {name}: an interval in {:.0}% of runs, covered {:.1}%; with further rounds {:.0}%, {:.1}%",
                had * 100.0,
                covered_before * 100.0,
                has * 100.0,
                covered * 100.0
            );
            assert!(covered >= least[at], "{others}, {stay}: {name} covered in {covered}");
            assert!(has >= 0.9 && has > had + 0.1, "{others}, {stay}: {name}: {had}, {has}");
        }
    }
}

/// A claim that something never happens requires 10 valid rounds. If further ones replace those that are void, it is
/// reproduced as seldom as its limit states although the thing happens.
#[test]
fn further_rounds_reproduce_few_false_claims_that_something_never_happens() {
    const REQUIRED: usize = 10;
    let rate = rate_upper_limit(0, REQUIRED);
    let mut decided = [0, 0];
    let mut reproduced = [0, 0];
    for seed in 0..10 * REPLICATIONS {
        let mut machine = Machine::new(seed);
        let mut random = || machine.random.random::<f64>();
        // Whether each valid round shows it.
        let (mut rounds, mut shown) = (0, Vec::new());
        for (at, max) in [REQUIRED, ALL].into_iter().enumerate() {
            while rounds < max && shown.len() < REQUIRED {
                rounds += 1;
                let (is_void, happens) = (random() < VOID, random() < rate);
                shown.extend((!is_void).then_some(happens));
            }
            let has_enough = shown.len() >= REQUIRED;
            decided[at] += usize::from(has_enough || shown.contains(&true));
            reproduced[at] += usize::from(has_enough && !shown.contains(&true));
        }
    }
    let of = |count: [usize; 2]| count.map(|count| share(count, 10 * REPLICATIONS as usize));
    let (decided, reproduced) = (of(decided), of(reproduced));
    println!(
        "never, at a rate of {rate:.3}: decided in {:.3}, with further rounds {:.3}; reproduced in {:.3} and {:.3}",
        decided[0], decided[1], reproduced[0], reproduced[1]
    );
    assert!(reproduced[1] < 0.056 && reproduced[0] <= reproduced[1], "{reproduced:?}");
    assert!(decided[1] > 0.99, "{decided:?}");
}
