//! Rounds on a core whose sibling is busy for milliseconds to minutes: how many pairs count if the sides of a ratio are
//! near each other, and whether their ratios are covered and resolved as they should be.

use lab::experiment::Experiment;
use lab::plan::{self, RoundOrder};
use lab::point::Point;
use lab::sharing::Sharing;
use lab::statistics::{
    Censored, INTERVAL_ROUNDS, LostRounds, Ratio, Resolution, order, paired_ratio, resolve,
};
use lab::summary::{Floors, Observation, Observed, Pairing, Rounds, pairs};

use crate::drift::Machine;
use crate::made_up::MadeUp;
use crate::{REPLICATIONS, share};

/// Number of points of the experiment, one of many in a run.
const POINTS: usize = 60;
/// Rounds of each point.
const ROUNDS: u32 = 20;
/// Time of a sample, s.
const SAMPLE: f64 = 0.005;
/// Time between two rounds, in which the run measures other experiments, s.
const OTHERS: f64 = 15.0;
/// How much longer a sample takes on a shared core.
const SHARED: f64 = 1.4;
/// Numbers of points that are compared with each other; the first of each set has a twin.
const SETS: [usize; 3] = [2, 5, 12];

/// Whether a sibling of the core is busy: the sum of three autoregressions of different duration is positive. Two moments
/// are in the same state in as many cases as on a shared Xeon of 2023.
struct Core([f64; 3]);

/// Variance of each autoregression, and the time after which its correlation is 1/e, s.
const LOADS: [(f64, f64); 3] = [(0.22, 60.0), (0.345, 2.0), (0.435, 0.02)];

impl Core {
    fn new(machine: &mut Machine) -> Self {
        Self(LOADS.map(|(variance, _)| variance.sqrt() * machine.normal()))
    }

    fn pass(&mut self, seconds: f64, machine: &mut Machine) {
        for (load, (variance, duration)) in self.0.iter_mut().zip(LOADS) {
            let memory = (-seconds / duration).exp();
            *load = memory * *load + (variance * (1.0 - memory * memory)).sqrt() * machine.normal();
        }
    }

    fn is_shared(&self) -> bool {
        self.0.iter().sum::<f64>() > 0.0
    }

    /// Returns the state during a sample, and the factor by which the sample takes longer.
    fn measure(&mut self, machine: &mut Machine) -> (Sharing, f64) {
        let before = self.is_shared();
        self.pass(SAMPLE, machine);
        match (before, self.is_shared()) {
            (false, false) => (Sharing::Alone, 1.0),
            (true, true) => (Sharing::Shared, SHARED),
            _ => (Sharing::Changed, SHARED.sqrt()),
        }
    }
}

fn name(point: usize) -> Point {
    Point::from([("level", point.to_string().as_str())])
}

/// Returns the first point of each set.
fn bases() -> [usize; SETS.len()] {
    let mut next = 0;
    SETS.map(|count| {
        next += count;
        next - count
    })
}

/// Returns the experiment.
fn experiment() -> Experiment {
    let mut made_up = MadeUp::new((0..POINTS).map(name).collect());
    made_up.twins = bases().map(name).to_vec();
    let sets = bases().into_iter().zip(SETS);
    let compared = sets.map(|(base, count)| (base..base + count).map(name).collect()).collect();
    Experiment { compared, ..made_up.experiment() }
}

/// Order of the items of a round, given the round and the seed.
type OrderOfRound<'a> = &'a dyn Fn(u32, u64) -> Vec<usize>;

/// Returns the values of a run in an order. The second point of each set, and the last point, take longer by an effect.
fn run(order: OrderOfRound, effect: f64, seed: u64) -> Observed {
    let mut machine = Machine::new(seed);
    let mut core = Core::new(&mut machine);
    let mut rounds = vec![Rounds::new(); POINTS + SETS.len()];
    for round in 0..ROUNDS {
        for item in order(round, seed) {
            let is_changed = item == POINTS - 1 || bases().contains(&item.wrapping_sub(1));
            let truth = if is_changed { 1.0 + effect } else { 1.0 };
            let (sharing, factor) = core.measure(&mut machine);
            let one = Observation {
                value: factor * machine.measure(truth),
                resolution: 0.0,
                class: None,
                session: 1,
                sharing: Some(sharing),
                censored: Censored::default(),
            };
            rounds[item].insert(round, one);
        }
        core.pass(OTHERS, &mut machine);
        machine.pass((OTHERS / SAMPLE) as usize);
    }
    let twins = rounds.split_off(POINTS);
    let named = |of: Vec<(usize, Rounds)>| of.into_iter().map(|(at, it)| (name(at), it)).collect();
    Observed {
        points: named(rounds.into_iter().enumerate().collect()),
        twins: named(bases().into_iter().zip(twins).collect()),
        ..Observed::default()
    }
}

/// Results of a comparison of two points in all replications.
#[derive(Default)]
struct Tally {
    /// Rounds with two values in one state.
    pairs: usize,
    /// Runs with an interval of rounds in one state.
    judged: usize,
    covered: usize,
    /// Runs of equal points that are resolved.
    wrong: usize,
    /// Runs in which an effect is resolved.
    found: usize,
}

impl Tally {
    /// Adds a run. The floor is that of the twins of `twin`.
    fn add(&mut self, observed: &Observed, [above, below]: [usize; 2], twin: usize, effect: f64) {
        let [above, below] = [above, below].map(|point| &observed.points[&name(point)]);
        let pairs = pairs(above, below);
        let Ok(ratio) = pairs.ratio() else { return };
        let floors = Floors::of(observed);
        let resolution = resolve(&ratio, floors.of_point(&name(twin), pairs.state));
        if effect > 0.0 {
            self.found += usize::from(resolution == Resolution::Higher);
            return;
        }
        self.pairs += Pairing::of(above, below).counts().total();
        self.wrong += usize::from(!matches!(resolution, Resolution::Unresolved { .. }));
        if pairs.state.is_some() && ratio.rounds >= INTERVAL_ROUNDS {
            self.judged += 1;
            self.covered += usize::from(ratio.interval.includes(1.0));
        }
    }

    /// Returns the shares of rounds that are paired, of runs that are judged, of those whose interval includes 1, and of
    /// runs in which equal points are resolved and in which an effect is.
    fn shares(&self) -> [f64; 5] {
        let runs = REPLICATIONS as usize;
        [
            share(self.pairs, runs * ROUNDS as usize),
            share(self.judged, runs),
            share(self.covered, self.judged),
            share(self.wrong, runs),
            share(self.found, runs),
        ]
    }
}

/// The model of the core is as persistent as the measured one.
#[test]
fn the_state_of_the_core_lasts_as_long_as_measured() {
    for (seconds, measured) in [(0.01, 0.81), (1.0, 0.64), (10.0, 0.56)] {
        let mut machine = Machine::new(1);
        let of_pair = |_| {
            let mut core = Core::new(&mut machine);
            let before = core.is_shared();
            core.pass(seconds, &mut machine);
            before == core.is_shared()
        };
        let same = (0..20_000).map(of_pair).filter(|is_same| *is_same).count();
        let same = share(same, 20_000);
        println!("two moments {seconds} s apart are in one state in {:.1}%", same * 100.0);
        assert!((same - measured).abs() < 0.02, "{seconds} s: {same}");
    }
}

#[test]
fn compared_points_are_mostly_in_one_state_and_equal_ones_are_rarely_resolved() {
    const EFFECT: f64 = 0.1;
    let items = plan::items(&experiment()).len();
    let in_groups = RoundOrder::new(&experiment());
    let orders: [OrderOfRound; 2] =
        [&|round, seed| order::of_round(items, round as usize, seed), &|round, seed| {
            in_groups.of_round(round, seed)
        }];
    // The two first points of each set, and two points that are in none. The twins are those of the first point.
    let of_sets = bases().map(|base| ([base + 1, base], base));
    let apart = ([POINTS - 1, POINTS / 2], bases()[0]);
    let comparisons: Vec<_> = of_sets.into_iter().chain([apart]).collect();
    let mut tallies: [[Tally; SETS.len() + 1]; 2] = Default::default();
    for (order, tallies) in orders.iter().zip(&mut tallies) {
        for (seed, effect) in (0..REPLICATIONS).flat_map(|seed| [(seed, 0.0), (seed, EFFECT)]) {
            let observed = run(*order, effect, seed);
            for (tally, (points, twin)) in tallies.iter_mut().zip(&comparisons) {
                tally.add(&observed, *points, *twin, effect);
            }
        }
    }
    let names = SETS.map(|count| format!("of {count} compared"));
    let names: Vec<_> = names.into_iter().chain(["not compared".into()]).collect();
    for (order, tallies) in ["random order", "in groups"].into_iter().zip(&tallies) {
        for (name, tally) in names.iter().zip(tallies) {
            let [pairs, judged, covered, wrong, found] = tally.shares();
            println!(
                "{order}, two {name}: {:.0}% of rounds paired, {:.0}% of runs judged, covered {:.1}%, equal ones \
                 resolved in {:.1}%, an effect of 10% in {:.0}%",
                pairs * 100.0,
                judged * 100.0,
                covered * 100.0,
                wrong * 100.0,
                found * 100.0
            );
            assert!((0.935..=0.985).contains(&covered), "{order}, {name}: covered {covered}");
            assert!(wrong <= 0.05, "{order}, {name}: {wrong}");
        }
    }
    let paired = tallies.each_ref().map(|all| all.each_ref().map(|one| one.shares()[0]));
    let [random, grouped] = paired;
    // The more points are compared with each other, the farther apart are two of them.
    for (at, gain) in [0.05, 0.03, 0.01].into_iter().enumerate() {
        let (count, [random, grouped]) = (SETS[at], [random[at], grouped[at]]);
        assert!(grouped > random + gain, "{count}: {grouped} and {random}");
    }
}

/// A heavy point slows the next one by 10%. No point follows one that it is compared with, so that more rounds do not
/// resolve a difference which is not there.
#[test]
fn a_heavy_point_does_not_bias_a_ratio_however_many_rounds() {
    const CARRIED: f64 = 1.1;
    let (plan, items) = (RoundOrder::new(&experiment()), plan::items(&experiment()).len());
    let coverage = |order: OrderOfRound, [heavy, rival]: [usize; 2], rounds: u32| {
        let ratios = (0..REPLICATIONS / 5).map(|seed| {
            let mut machine = Machine::new(seed);
            let (mut values, mut is_after_heavy) = ([Vec::new(), Vec::new()], false);
            for round in 0..rounds {
                for item in order(round, seed) {
                    let factor = if is_after_heavy { CARRIED } else { 1.0 };
                    let value = factor * machine.measure(100.0);
                    is_after_heavy = item == heavy;
                    if let Some(side) = [heavy, rival].iter().position(|point| *point == item) {
                        values[side].push(value);
                    }
                }
                machine.pass((OTHERS / SAMPLE) as usize);
            }
            let pairs = values[0].iter().copied().zip(values[1].iter().copied());
            paired_ratio(&pairs.collect::<Vec<_>>(), LostRounds::default()).unwrap()
        });
        let ratios: Vec<Ratio> = ratios.collect();
        share(ratios.iter().filter(|one| one.interval.includes(1.0)).count(), ratios.len())
    };
    for base in bases() {
        for rounds in [20, 100, 300] {
            let covered =
                coverage(&|round, seed| plan.of_round(round, seed), [base, base + 1], rounds);
            println!("carry-over of 10%, {rounds} rounds: covered {:.1}%", covered * 100.0);
            assert!(covered > 0.9, "{rounds} rounds of {base}: covered {covered}");
        }
    }
    // If a point follows its rival in one of two rounds, the interval excludes the truth.
    let adjacent = |round: u32, seed| {
        let pair = order::of_round(2, round as usize, seed);
        pair.into_iter().chain(2..items).collect()
    };
    let covered = coverage(&adjacent, [0, 1], 20);
    assert!(covered < 0.8, "covered {covered}");
}
