//! Rounds in different states of the core, and rounds that were not requested.

use lab::claim::VerdictKind::{self, Contradicted, Inconclusive, Reproduced};
use lab::claim::{MeasuredValue, Reason, Statistic};
use lab::journal::Run;
use lab::sample::Sample;

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, reasons, verdict};

const VALUE: &str = "where = { function = \"glibc\", length = \"4 KiB\" }\nexpect";
const WINNER: &str = "expect = { winner_changes = \"function\", along = \"length\" }";

/// Records that the core of a sample was shared or alone.
pub(crate) fn share(sample: &mut Sample, is_shared: bool) {
    let rate = Some(if is_shared { 4.0 } else { 5.1 });
    let clock = sample.clock.as_mut().unwrap();
    (clock.issue_before, clock.issue_after) = (rate, rate);
}

/// Returns a run of some rounds of glibc at 100 and apex at 50 GB/s. The core is shared in those that are not `alone`;
/// there, values are multiplied by `factor`.
fn run(rounds: u32, alone: impl Fn(u32) -> bool, factor: impl Fn(&Sample) -> f64) -> Run {
    let points = product(&["glibc", "apex"], &["4 KiB", "64 KiB"], &["0"]);
    let made_up = MadeUp { rounds, ..MadeUp::new(points) };
    let is_glibc = |function: &str| function == "glibc";
    let truth = |function: &str| if is_glibc(function) { 100e9 } else { 50e9 };
    let mut run = made_up.run(|point| truth(point.text("function")));
    for sample in &mut run.samples {
        let is_shared = !alone(sample.round);
        share(sample, is_shared);
        let factor = if is_shared { factor(sample) } else { 1.0 };
        sample.values.values_mut().for_each(|value| *value *= factor);
    }
    run
}

fn only(run: &Run, keys: &str, kind: VerdictKind) -> MeasuredValue {
    assert_kind(keys, run, kind).values().next().unwrap().clone()
}

fn many_lost(value: &MeasuredValue) -> Option<(usize, usize, bool)> {
    value.reasons.iter().find_map(|reason| match reason {
        Reason::ManyLost { lost, rounds, agrees, .. } => Some((*lost, *rounds, *agrees)),
        _ => None,
    })
}

#[test]
fn a_candidate_with_few_rounds_does_not_mix_the_states_of_the_others() {
    // Alone, apex has 0.5 of the rate of glibc, and on a shared core twice as much.
    let mut run = run(
        60,
        |round| round % 3 == 0,
        |sample| {
            if sample.point.text("function") == "apex" { 4.0 } else { 1.0 }
        },
    );
    let mut few = run.samples.clone();
    few.retain(|sample| sample.point.text("function") == "apex" && sample.round < 5);
    for sample in &mut few {
        sample.point = sample.point.with("function", "naive");
        sample.values.values_mut().for_each(|value| *value *= 0.5);
    }
    run.samples.extend(few.into_iter().filter(|sample| !sample.twin));
    let keys = "where = { length = \"4 KiB\" }\nexpect = { ratio_of = { function = [\"apex\", \"naive\"] }, \
                to = { function = \"glibc\" }, at_least = 1.2 }";
    let value = only(&run, keys, Inconclusive);
    assert!((value.value.unwrap() - 0.5).abs() < 0.05, "{value:?}");
    assert_eq!((value.rounds, value.lost), (20, 40));
}

#[test]
fn rounds_in_the_other_state_are_lost_and_must_not_decide() {
    let run = run(60, |round| round % 5 == 0, |_| 0.4);
    let value = only(&run, &format!("{VALUE} = {{ at_least = 80e9 }}"), Inconclusive);
    assert_eq!((value.rounds, value.lost), (12, 48));
    let expected = Statistic::Median { failed: 0, void: 0, other_sharing: 48 };
    assert_eq!(
        (value.statistic.clone(), many_lost(&value)),
        (Some(expected), Some((48, 60, false)))
    );
    // The same result with them.
    let value = only(&run, &format!("{VALUE} = {{ at_least = 20e9 }}"), Reproduced);
    assert_eq!(many_lost(&value), Some((48, 60, true)));
}

#[test]
fn both_states_are_stated_only_if_both_have_rounds() {
    // In the last of five rounds the state changes, so no state is chosen.
    let states_both = |alone: u32| {
        let mut run = run(5, |round| round < alone, |_| 1.0);
        for sample in run.samples.iter_mut().filter(|sample| sample.round == 4) {
            let clock = sample.clock.as_mut().unwrap();
            (clock.issue_before, clock.issue_after) = (Some(4.0), Some(5.1));
        }
        let value = only(&run, &format!("{VALUE} = {{ at_least = 1 }}"), Inconclusive);
        value.reasons.iter().any(|reason| matches!(reason, Reason::BothStates { .. }))
    };
    assert_eq!([0, 2, 4].map(states_both), [false, true, false]);
}

#[test]
fn a_fifth_of_lost_rounds_is_not_stated() {
    let run = run(60, |round| round % 10 > 0, |_| 0.4);
    let value = only(&run, &format!("{VALUE} = {{ at_least = 80e9 }}"), Reproduced);
    assert_eq!((value.rounds, value.lost, many_lost(&value)), (54, 6, None));
}

#[test]
fn a_projection_expects_as_many_lost_rounds() {
    let run = run(60, |round| round % 5 == 0, |_| 0.4);
    let median = only(&run, &format!("{VALUE} = {{ at_least = 1 }}"), Reproduced).value.unwrap();
    let bound = median * 0.999;
    let value = only(&run, &format!("{VALUE} = {{ at_least = {bound} }}"), Inconclusive);
    let Some(Reason::Leans { rounds: Some(rounds), .. }) = value.reasons.last() else {
        panic!("{value:?}")
    };
    // Of five further rounds, one is alone.
    assert!(*rounds >= 5 && rounds.is_multiple_of(5), "{value:?}");
}

#[test]
fn lost_rounds_must_not_change_the_winner() {
    // Alone, the winner changes; on a shared core glibc is best at both lengths.
    let changing = |is_apex_best: bool| {
        let mut run = run(60, |round| round % 4 == 0, |_| 1.0);
        let is_apex = |sample: &&mut Sample| {
            sample.point.text("function") == "apex" && sample.point.text("length") == "4 KiB"
        };
        for sample in run.samples.iter_mut().filter(is_apex) {
            let is_best = sample.round % 4 == 0 || is_apex_best;
            let factor = if is_best { 3.0 } else { 1.0 };
            sample.values.values_mut().for_each(|value| *value *= factor);
        }
        run
    };
    let verdict = assert_kind(WINNER, &changing(false), Inconclusive);
    let lost = r#""reason":"many-lost","lost":45,"rounds":60,"value":null,"unit":null,"agrees":"#;
    assert!(reasons(&verdict).contains(&format!("{lost}false")), "{verdict:?}");
    assert!(verdict.values().all(|value| value.lost == 45), "{verdict:?}");
    let verdict = assert_kind(WINNER, &changing(true), Reproduced);
    assert!(reasons(&verdict).contains(&format!("{lost}true")), "{verdict:?}");
}

#[test]
fn rounds_that_were_not_requested_are_not_lost() {
    let keys = "expect = { ratio_of = { function = \"glibc\" }, to = { function = \"apex\" }, \
                each = [\"length\"], at_least = 1.5 }";
    let mut run = run(20, |_| true, |_| 1.0);
    let is_late_apex =
        |sample: &Sample| sample.round >= 10 && sample.point.text("function") == "apex";
    let mut failed = run.clone();
    run.samples.retain(|sample| !is_late_apex(sample));
    let value = only(&run, keys, Reproduced);
    assert_eq!((value.rounds, value.lost, many_lost(&value)), (10, 0, None));
    // Void rounds are.
    for sample in failed.samples.iter_mut().filter(|sample| is_late_apex(sample)) {
        sample.void = Some("busy".into());
    }
    let value = only(&failed, keys, Reproduced);
    assert_eq!((value.rounds, value.lost, many_lost(&value)), (10, 10, Some((10, 20, true))));
    assert_kind(&keys.replace("1.5", "3"), &run, Contradicted);
}

/// Returns a run of 24 rounds in which a longer copy is faster, but not on a core alone, and longest ones are never
/// measured alone.
fn rising_on_a_shared_core() -> Run {
    let points = product(&["glibc"], &["4 KiB", "64 KiB", "1 MiB"], &["0"]);
    let made_up = MadeUp { rounds: 24, ..MadeUp::new(points) };
    let mut run = made_up.run(|point| match point.text("length") {
        "4 KiB" => 10e9,
        "64 KiB" => 20e9,
        _ => 40e9,
    });
    for sample in &mut run.samples {
        let length = sample.point.text("length").to_owned();
        let is_shared = sample.round % 2 == 0 || length == "1 MiB";
        share(sample, is_shared);
        if length == "4 KiB" && !is_shared {
            sample.values.values_mut().for_each(|value| *value *= 4.0);
        }
    }
    run
}

#[test]
fn all_pairs_of_a_trend_are_judged_in_one_state() {
    let run = rising_on_a_shared_core();
    let trend = "expect = { shape = \"rises\", along = \"length\" }";
    let verdict = assert_kind(trend, &run, Reproduced);
    assert!(verdict.values().all(|value| value.rounds == 12), "{verdict:?}");
    // In a ranking, too, although the lost rounds leave it open.
    let ranking = "expect = { ranking = [{ length = \"1 MiB\" }, { length = \"64 KiB\" }, { length = \"4 KiB\" }] }";
    let verdict = assert_kind(ranking, &run, Inconclusive);
    for value in verdict.values() {
        assert!((value.value.unwrap() - 2.0).abs() < 0.1 && value.rounds == 12, "{value:?}");
    }
    // Without the longest, there are enough rounds alone, and the values fall.
    let keys = format!("where = {{ length = [\"4 KiB\", \"64 KiB\"] }}\n{trend}");
    let falls = assert_kind(&keys, &run, Inconclusive);
    assert!(falls.values().next().unwrap().value.unwrap() < 0.6, "{falls:?}");
}

#[test]
fn all_levels_of_a_contest_are_compared_in_one_state() {
    let mut run = rising_on_a_shared_core();
    let points = run.samples.clone();
    for mut sample in points {
        let is_long = sample.point.text("length") == "1 MiB";
        sample.point = sample.point.with("threads", "2");
        // With two threads, copies of 4 KiB are fastest on a shared core.
        let factor = if is_long { 0.1 } else { 1.0 };
        sample.values.values_mut().for_each(|value| *value *= factor);
        if !sample.twin {
            run.samples.push(sample);
        }
    }
    let verdict = verdict("expect = { winner_changes = \"length\", along = \"threads\" }", &run);
    let rounds: Vec<_> = verdict.values().map(|value| value.rounds).collect();
    assert_eq!(rounds, [24, 12], "{verdict:?}");
    let best = |at: &str| {
        let statistic = |value: &MeasuredValue| match value.statistic.clone() {
            Some(Statistic::Best { at: of, candidates }) if of == at => Some(candidates),
            _ => None,
        };
        verdict.values().find_map(statistic).unwrap()
    };
    assert_eq!((best("0"), best("2")), (vec!["1 MiB".into()], vec!["64 KiB".into()]));
}

#[test]
fn the_noise_floor_is_of_the_state_of_the_ratio() {
    // Twins differ on a shared core only; apex is never measured alone, and 1.2 times as fast as glibc.
    let mut run = run(24, |round| round % 2 == 0, |_| 1.0);
    for sample in &mut run.samples {
        let is_apex = sample.point.text("function") == "apex";
        let is_shared = sample.round % 2 == 1 || is_apex;
        share(sample, is_shared);
        let factor = match (is_apex, sample.twin && is_shared) {
            (true, _) => 2.4,
            (_, true) => 1.4,
            _ => 1.0,
        };
        sample.values.values_mut().for_each(|value| *value *= factor);
    }
    let keys = "where = { length = \"4 KiB\" }\nexpect = { ratio_of = { function = \"apex\" }, to = { \
                function = \"glibc\" }, at_least = 1.0 }";
    let value = only(&run, keys, Inconclusive);
    assert!(value.interval.unwrap().low > 1.1, "{value:?}");
    assert!(value.reasons.iter().any(|it| matches!(it, Reason::NearBound { .. })), "{value:?}");
    // Twins without rounds on a shared core give no floor of them.
    run.samples.retain(|sample| !sample.twin || sample.round % 2 == 0);
    let value = only(&run, keys, Inconclusive);
    let is_no_floor = |it: &Reason| matches!(it, Reason::NoFloor { rounds: Some(0), .. });
    assert!(value.reasons.iter().any(is_no_floor), "{value:?}");
}
