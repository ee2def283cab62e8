use super::*;
use crate::sample::MAX_ATTEMPTS;
use proptest::prelude::*;

const NDR: Goal = Goal { ratio: 0.0, width: 0.005 };
const PDR: Goal = Goal { ratio: 0.005, width: 0.005 };
const FULL: Duration = Duration::from_secs(1);
const SENT: u64 = 1_000_000_000;

fn search() -> LossRatios {
    LossRatios {
        goals: vec![NDR, PDR],
        min_load: 1e6,
        max_load: 150e6,
        duration: FULL,
        confirmations: 2,
        min_duration: Duration::from_millis(50),
        shorter_phases: 3,
    }
}

fn lost(share: f64) -> TrialOutcome {
    TrialOutcome {
        sent: SENT,
        lost: (share * SENT as f64).ceil() as u64,
        ..TrialOutcome::default()
    }
}

fn stalled(share: f64) -> TrialOutcome {
    TrialOutcome { void: Some("the host stalled".into()), ..lost(share) }
}

/// Returns the loss ratio of a system without a queue that forwards at most `edge`.
fn over(edge: f64, load: f64) -> f64 {
    (1.0 - edge / load).max(0.0)
}

impl LossRatios {
    /// Returns an upper bound of the number of trials, regardless of their outcomes.
    fn max_trials(&self, has_void: bool) -> usize {
        let trials = u64::from(self.shorter_phases + 1 + (1 + self.confirmations));
        let indices = self.grid().top.unsigned_abs() + 2;
        if has_void {
            return (indices * trials * u64::from(MAX_ATTEMPTS)) as usize;
        }
        // A phase tries the largest load and the bound of the last phase; from there each load either
        // doubles the step or halves the gap.
        let loads = u64::from(2 + 2 * (indices.ilog2() + 1));
        self.goals.len() * (loads * trials) as usize
    }
}

/// Asserts what is true of every result.
fn assert_sound(search: &LossRatios, edges: &LossRatioResult) {
    let has_void = edges.trials.iter().any(|trial| trial.void.is_some());
    assert!(edges.trials.len() <= search.max_trials(has_void), "{} trials", edges.trials.len());
    for (goal, result) in search.goals.iter().zip(&edges.goals) {
        let counts = |trial: &&Trial| trial.void.is_none();
        let within = |trial: &Trial| trial.values["lost"] / trial.values["sent"] <= goal.ratio;
        for (bounds, is_strict) in [(result.valid, false), (result.strict, true)] {
            match (bounds.lower, bounds.upper) {
                (Some(lower), Some(upper)) => {
                    assert!(lower < upper && (upper - lower) / upper <= goal.width * 1.000_001);
                }
                (Some(lower), None) => assert_eq!(lower, search.max_load),
                (None, upper) => {
                    assert_eq!(upper, Some(search.min_load), "the smallest load failed")
                }
            }
            let Some(lower) = bounds.lower else { continue };
            // No trial that counts lost too much at the bound or below, and as many full ones as
            // required did not.
            let mut up_to = edges.trials.iter().filter(|trial| trial.level <= lower);
            assert!(up_to.all(|trial| within(trial) || !is_strict && !counts(&trial)));
            let full = |trial: &&Trial| trial.values["duration"] == FULL.as_secs_f64();
            let at = edges.trials.iter().filter(|trial| trial.level == lower).filter(full);
            assert!(at.filter(|trial| within(trial)).count() > search.confirmations as usize);
        }
        assert!(result.strict.lower.unwrap_or(0.0) <= result.valid.lower.unwrap_or(0.0));
        assert!(has_void || result.strict == result.valid);
    }
    let mut pairs: Vec<_> = search.goals.iter().zip(&edges.goals).collect();
    pairs.sort_by(|a, b| a.0.ratio.total_cmp(&b.0.ratio));
    for pair in pairs.windows(2) {
        let (stricter, looser) = (pair[0].1, pair[1].1);
        assert!(stricter.valid.lower.unwrap_or(0.0) <= looser.valid.lower.unwrap_or(0.0));
        assert!(stricter.strict.lower.unwrap_or(0.0) <= looser.strict.lower.unwrap_or(0.0));
    }
}

/// Returns the listed answers cyclically.
fn rounds(search: &LossRatios, list: &[TrialOutcome]) -> LossRatioResult {
    let mut next = list.iter().cycle();
    loss_ratios(search, |_, _| Ok(next.next().unwrap().clone())).unwrap()
}

fn answer() -> impl Strategy<Value = TrialOutcome> {
    let share = prop_oneof![4 => Just(0.0), 2 => Just(0.001), 1 => Just(0.3)];
    (share, prop::bool::weighted(0.3))
        .prop_map(|(share, void)| if void { stalled(share) } else { lost(share) })
}

proptest! {
    #[test]
    fn a_sharp_edge_is_found_within_the_width(
        edge in 1e6f64..160e6, ndr in 0.001f64..0.05, pdr in 0.001f64..0.05,
    ) {
        let goals = vec![Goal { width: ndr, ..NDR }, Goal { width: pdr, ..PDR }];
        let search = LossRatios { goals, ..search() };
        let edges = loss_ratios(&search, |load, _| Ok(lost(over(edge, load)))).unwrap();
        assert_sound(&search, &edges);
        for (goal, result) in search.goals.iter().zip(&edges.goals) {
            let edge = edge / (1.0 - goal.ratio);
            let lower = result.valid.lower.unwrap();
            prop_assert!(lower <= edge && result.valid.upper.is_none_or(|upper| upper > edge));
            prop_assert!(lower >= edge.min(search.max_load) * (1.0 - goal.width * 1.000_001));
        }
        // Bisecting once for each goal takes some 25 full trials.
        let full = |trial: &&Trial| trial.values["duration"] == FULL.as_secs_f64();
        let full = edges.trials.iter().filter(full).count();
        prop_assert!(full <= 12, "{full} full trials of {}", edges.trials.len());
    }

    #[test]
    fn a_noisy_edge_gives_a_bound_that_held(edge in 2e6f64..160e6, noise in 0.0f64..0.3, seed: u64) {
        use rand::{RngExt, SeedableRng};
        let search = search();
        let run = || {
            let mut random = rand_pcg::Pcg64::seed_from_u64(seed);
            loss_ratios(&search, |load, _| {
                let edge = edge * (1.0 - noise * random.random::<f64>());
                let stall = random.random_bool(0.1);
                Ok(if stall { stalled(over(edge, load).max(0.004)) } else { lost(over(edge, load)) })
            })
            .unwrap()
        };
        let edges = run();
        assert_sound(&search, &edges);
        prop_assert_eq!(edges, run());
    }

    #[test]
    fn any_answers_end_the_search(
        list in prop::collection::vec(answer(), 1..60),
        (confirmations, shorter_phases, span) in (0u32..4, 0u32..5, 1.0f64..1e4),
        (ndr, pdr) in (0.001f64..0.9, 0.001f64..0.9),
    ) {
        let goals = vec![Goal { width: pdr, ..PDR }, Goal { width: ndr, ..NDR }];
        let search = LossRatios {
            goals, min_load: 150e6 / span, confirmations, shorter_phases, ..search()
        };
        assert_sound(&search, &rounds(&search, &list));
    }
}

#[test]
fn a_largest_load_that_passes_takes_one_trial_per_phase_and_its_confirmations() {
    let edges = rounds(&search(), &[lost(0.0)]);
    assert_eq!(edges.trials.len(), 3 + 1 + 2);
    assert!(edges.trials.iter().all(|trial| trial.level == 150e6 && trial.holds == Some(true)));
    for result in &edges.goals {
        let bounds = LoadInterval { lower: Some(150e6), upper: None };
        assert_eq!(*result, GoalResult { valid: bounds, strict: bounds });
    }
    let durations: Vec<f64> = edges.trials.iter().map(|trial| trial.values["duration"]).collect();
    assert_eq!(durations[0], 0.05);
    assert!((durations[1] / durations[0] - 20f64.powf(1.0 / 3.0)).abs() < 1e-6);
    assert_eq!(durations[3..], [1.0, 1.0, 1.0]);
}

#[test]
fn the_second_load_is_what_passed_through_at_the_first() {
    let edges = loss_ratios(&search(), |load, _| Ok(lost(over(60e6, load)))).unwrap();
    let loads: Vec<f64> = edges.trials.iter().map(|trial| trial.level).collect();
    assert_eq!(loads[0], 150e6);
    assert!(loads[1] <= 60e6 && loads[1] > 60e6 * 0.994, "{}", loads[1]);
    assert_eq!(loads.len(), 13, "for both goals");
}

#[test]
fn a_first_guess_that_is_far_off_costs_few_trials() {
    // Offered too much, this system forwards almost no packets.
    let search = LossRatios { goals: vec![NDR], shorter_phases: 0, ..search() };
    let system = |load| if load > 100e6 { 0.98 } else { over(60e6, load) };
    let edges = loss_ratios(&search, |load, _| Ok(lost(system(load)))).unwrap();
    assert_sound(&search, &edges);
    assert!(edges.goals[0].valid.lower.is_some_and(|lower| lower > 60e6 * 0.995));
    // The top, the guess, as many steps up as halves back, and two confirmations.
    assert!(edges.trials.len() <= 21, "{} trials", edges.trials.len());
}

#[test]
fn the_largest_load_is_tried_in_full_even_if_a_bound_close_to_it_passed() {
    // The first trial loses what only one goal allows; no other trial loses packets.
    let search = LossRatios {
        goals: vec![Goal { width: 0.001, ..NDR }, Goal { width: 0.5, ..PDR }],
        shorter_phases: 1,
        ..search()
    };
    let mut first = true;
    let edges =
        loss_ratios(&search, |_, _| Ok(lost(if std::mem::take(&mut first) { 0.001 } else { 0.0 })))
            .unwrap();
    assert_sound(&search, &edges);
    assert_eq!(edges.goals[0].valid.upper, Some(150e6));
    assert!(edges.goals[1].valid.lower.is_some() && edges.goals[1].valid.upper.is_none());
}

#[test]
fn no_lower_bound_is_found_if_every_load_loses() {
    let search = search();
    let edges = rounds(&search, &[lost(0.3)]);
    assert_sound(&search, &edges);
    assert_eq!(edges.goals[0].valid.lower, None);
    let edges = rounds(&search, &[lost(0.001)]);
    assert_eq!(edges.goals[0].valid.lower, None, "one in a thousand is too much for the one goal");
    assert_eq!(edges.goals[1].valid.lower, Some(150e6), "and not for the other");
}

#[test]
fn a_load_that_fails_its_confirmation_is_given_up() {
    // Sharp at 60 but for full trials: the second at any load over 50 loses.
    let search = search();
    let mut seen = std::collections::BTreeMap::new();
    let edges = loss_ratios(&search, |load, duration| {
        let full = seen.entry(load.to_bits()).or_insert(0);
        *full += u32::from(duration == FULL);
        let edge = if *full >= 2 { 50e6 } else { 60e6 };
        Ok(lost(over(edge, load)))
    })
    .unwrap();
    assert_sound(&search, &edges);
    let lower = edges.goals[0].valid.lower.unwrap();
    assert!(lower <= 50e6 && lower > 50e6 * 0.995, "{lower}");
}

#[test]
fn a_loss_below_what_held_above_is_not_passed() {
    // 60 passes, but packets are lost from 30 to 40: the lower bound is below 30.
    let odd = |load: f64| (30e6..40e6).contains(&load) || load > 60e6;
    let search = LossRatios { goals: vec![NDR], ..search() };
    let edges = loss_ratios(&search, |load, _| {
        // Packets that pass lead the search into the gap.
        Ok(lost(if load == 150e6 { 0.76 } else { f64::from(u8::from(odd(load))) * 0.01 }))
    })
    .unwrap();
    assert_sound(&search, &edges);
    let lower = edges.goals[0].valid.lower.unwrap();
    assert!(lower < 30e6 && lower > 30e6 * 0.995, "{lower}");
}

#[test]
fn a_void_trial_is_repeated_whether_or_not_it_lost() {
    let search = LossRatios { goals: vec![NDR], ..search() };
    for share in [0.0, 0.1] {
        let held = rounds(&search, &[stalled(share), stalled(share), lost(0.0)]);
        assert_eq!(held.goals[0].valid, LoadInterval { lower: Some(150e6), upper: None });
        let strict = if share == 0.0 { Some(150e6) } else { None };
        assert_eq!(held.goals[0].strict.lower, strict);
        let at_top = held.trials.iter().filter(|trial| trial.level == 150e6);
        let (valid, void): (Vec<_>, Vec<_>) = at_top.partition(|trial| trial.void.is_none());
        assert_eq!((valid.len(), void.len()), (6, 12));
        assert!(void.iter().all(|trial| trial.holds.is_none()));
    }
}

#[test]
fn the_third_void_trial_counts_by_its_loss() {
    let search = LossRatios { goals: vec![NDR], ..search() };
    let held = rounds(&search, &[stalled(0.0)]);
    assert_eq!(held.goals[0].valid.lower, Some(150e6));
    assert_eq!(held.trials.iter().filter(|trial| trial.holds == Some(true)).count(), 6);
    let failed = rounds(&search, &[stalled(0.1)]);
    let nothing = LoadInterval { lower: None, upper: Some(1e6) };
    assert_eq!(failed.goals[0], GoalResult { valid: nothing, strict: nothing });
}

/// A ring that loses packets in a stall, and one that does not.
#[test]
fn a_small_ring_that_loses_packets_in_stalls_has_a_lower_strict_bound() {
    let search = LossRatios { goals: vec![NDR], ..search() };
    let find = |rides_out: f64| {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        let system = |load: f64, _| {
            let is_stall = random.random_bool(0.2);
            let edge = if is_stall { rides_out } else { 60e6 };
            Ok(if is_stall { stalled(over(edge, load)) } else { lost(over(edge, load)) })
        };
        let found = loss_ratios(&search, system).unwrap();
        assert_sound(&search, &found);
        found
    };
    let (small, large) = (find(20e6), find(60e6));
    let near = |load: Option<f64>, edge: f64| {
        assert!(load.is_some_and(|load| load <= edge && load > edge * 0.994), "{load:?}");
    };
    near(small.goals[0].valid.lower, 60e6);
    near(large.goals[0].valid.lower, 60e6);
    assert_eq!(large.goals[0].strict, large.goals[0].valid);
    // At each load up to the one found, all of three or more trials happened to be calm.
    assert!(small.goals[0].strict.lower < small.goals[0].valid.lower, "{:?}", small.goals[0]);
    assert!(small.trials.len() < 60, "{} trials", small.trials.len());
}

#[test]
fn errors_pass_and_nonsense_is_refused() {
    let error = loss_ratios(&search(), |_, _| Err(Failure::failed("no generator"))).unwrap_err();
    assert_eq!(error.why, "no generator");
    let refused = |change: fn(&mut LossRatios)| {
        let mut search = search();
        change(&mut search);
        loss_ratios(&search, |_, _| panic!("a trial ran")).is_err()
    };
    assert!(refused(|search| search.goals.clear()));
    assert!(refused(|search| search.goals[0].width = 0.0));
    assert!(refused(|search| search.goals[1].ratio = f64::NAN));
    assert!(refused(|search| search.min_load = 0.0));
    assert!(refused(|search| search.max_load = 1.0));
    assert!(refused(|search| search.min_duration = Duration::from_secs(2)));
    assert!(refused(|search| search.shorter_phases = 17));
}

proptest! {
    #[test]
    fn adjacent_loads_are_close_and_have_their_index(
        min in 0.1f64..100.0, factor in 1.0f64..1e5, width in 0.001f64..0.5,
    ) {
        let grid = LoadGrid::new(min, min * factor, width);
        prop_assert_eq!(grid.load(grid.top), min * factor);
        prop_assert!(grid.load(0) == min || grid.top == 0);
        for index in 0..=grid.top {
            prop_assert_eq!(grid.index(grid.load(index)), index);
        }
        for index in 1..=grid.top {
            let (below, load) = (grid.load(index - 1), grid.load(index));
            prop_assert!(below < load && (load - below) / load <= width * 1.000_001);
        }
    }

    #[test]
    fn a_width_is_as_many_steps_as_fit(width in 0.001f64..0.1, times in 1.0f64..9.0) {
        let grid = LoadGrid::new(1.0, 1000.0, width);
        let wide = width * times;
        let steps = grid.steps(wide);
        let apart = |steps| 1.0 - grid.load(grid.top - steps) / grid.load(grid.top);
        prop_assert!(apart(steps) <= wide * 1.000_001 && apart(steps + 1) > wide);
    }
}
