//! Properties of the summaries, intervals and ratios, compared with an oracle if one exists.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

use lab::statistics::{
    Interval, IntervalKind, LostRounds, MAX_PROJECTED_ROUNDS, NoiseFloor, Ratio, Resolution,
    StatisticsError, Unresolved, clock_drift, estimate, holm, interval_rounds, mad, median,
    minimum, paired_ratio, paired_ratio_at, quantile, resolve, rounds_needed, sign_test,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, DiscreteCDF, Normal};
use statrs::statistics::{Data, Median};

/// Noise floor of twins without noise.
const NONE: NoiseFloor = NoiseFloor {
    interval: Interval {
        low: 1.0,
        high: 1.0,
        kind: IntervalKind::Confidence,
        coverage: 0.95,
        drift: 0.0,
    },
    floor: 0.0,
};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-300)
}

fn values(rounds: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    vec(0.1..1e6f64, rounds)
}

fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
    vec((0.1..1e6f64, 0.1..1e6f64), 1..40)
}

proptest! {
    #[test]
    fn the_median_equals_that_of_statrs(values in values(1..60)) {
        let found = median(&values).unwrap();
        prop_assert!(close(found, Data::new(values.clone()).median()));
        let deviations: Vec<f64> = values.iter().map(|value| (value - found).abs()).collect();
        let expected = Data::new(deviations).median();
        prop_assert!((mad(&values).unwrap() - expected).abs() < 1e-6);
    }

    #[test]
    fn quantiles_increase_from_the_minimum_through_the_median(values in values(1..60), q in 0.0..=1.0f64, r in 0.0..=1.0f64) {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        prop_assert_eq!(quantile(&sorted, 0.0), minimum(&values));
        prop_assert_eq!(quantile(&sorted, 1.0), sorted.last().copied());
        prop_assert!(close(quantile(&sorted, 0.5).unwrap(), median(&values).unwrap()));
        prop_assert!(quantile(&sorted, q.min(r)).unwrap() <= quantile(&sorted, q.max(r)).unwrap());
        prop_assert_eq!(quantile(&sorted, 1.1), None);
    }

    #[test]
    fn an_estimate_scales(values in values(1..60), scale in 0.01..100.0f64, turn in 0usize..60) {
        let one = estimate(&values).unwrap();
        let mut scaled: Vec<f64> = values.iter().map(|value| value * scale).collect();
        let other = estimate(&scaled).unwrap();
        prop_assert!(close(one.median * scale, other.median));
        prop_assert!(close(one.interval.low * scale, other.interval.low));
        prop_assert!(close(one.interval.high * scale, other.interval.high));
        prop_assert_eq!((one.interval.kind, one.lag_1), (other.interval.kind, other.lag_1));
        prop_assert!(one.interval.includes(one.median));
        prop_assert!(one.minimum <= one.interval.low);
        // The order of rounds affects only the width.
        scaled.rotate_left(turn % values.len());
        prop_assert!(close(one.median * scale, estimate(&scaled).unwrap().median));
    }

    #[test]
    fn correlation_only_widens_an_interval(values in values(6..60)) {
        // Highest and lowest in turn are correlated negatively, ascending values positively.
        let mut ascending = values.clone();
        ascending.sort_by(f64::total_cmp);
        let (lower, upper) = ascending.split_at(values.len() / 2);
        let mut turns: Vec<f64> = lower.iter().zip(upper).flat_map(|(a, b)| [*a, *b]).collect();
        turns.extend(&upper[lower.len()..]);
        let (narrow, wide) = (estimate(&turns).unwrap(), estimate(&ascending).unwrap());
        prop_assert!(narrow.lag_1.unwrap() < 0.4 && wide.lag_1.unwrap() > narrow.lag_1.unwrap());
        prop_assert!(wide.interval.low <= narrow.interval.low);
        prop_assert!(wide.interval.high >= narrow.interval.high);
        prop_assert!(wide.interval.coverage <= narrow.interval.coverage);
    }

    #[test]
    fn swapping_a_ratio_inverts_it(pairs in pairs()) {
        let turned: Vec<(f64, f64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let lost = LostRounds { missing: 1, other_session: 2, ..LostRounds::default() };
        let (one, other) = (paired_ratio(&pairs, lost).unwrap(), paired_ratio(&turned, lost).unwrap());
        prop_assert!(close(one.ratio, 1.0 / other.ratio));
        prop_assert!(close(one.interval.low, 1.0 / other.interval.high));
        prop_assert!(close(one.interval.high, 1.0 / other.interval.low));
        prop_assert_eq!((one.rounds, one.lost.total()), (pairs.len(), 3));
        let mirrored = match resolve(&other, Some(&NONE)) {
            Resolution::Higher => Resolution::Lower,
            Resolution::Lower => Resolution::Higher,
            unresolved => unresolved,
        };
        prop_assert_eq!(resolve(&one, Some(&NONE)), mirrored);
    }

    #[test]
    fn drift_shared_by_a_round_cancels_in_the_ratio(pairs in pairs(), drift in vec(0.01..100.0f64, 40)) {
        let drifted: Vec<(f64, f64)> =
            pairs.iter().zip(&drift).map(|(&(a, b), by)| (a * by, b * by)).collect();
        let (one, other) = (paired_ratio(&pairs, LostRounds::default()).unwrap(), paired_ratio(&drifted, LostRounds::default()).unwrap());
        prop_assert!(close(one.ratio, other.ratio));
        prop_assert!(close(one.interval.low, other.interval.low));
    }
}

/// The numbers from 1 to `rounds` in an order without positive correlation.
fn uncorrelated(rounds: usize) -> Vec<f64> {
    let half = rounds / 2;
    let numbers = (0..rounds).map(|at| if at % 2 == 0 { at / 2 + half } else { at / 2 });
    numbers.map(|number| (number + 1) as f64).collect()
}

#[test]
fn the_drift_of_the_clock_widens_intervals_in_quadrature() {
    let values: Vec<f64> = uncorrelated(20).iter().map(|value| 100.0 + value / 10.0).collect();
    let rounds = estimate(&values).unwrap();
    let drift = 0.03;
    let drifting = rounds.with_drift(drift);
    assert_eq!(drifting.interval.drift, drift);
    let [narrow, wide] = [rounds, drifting].map(|one| one.relative_half_width());
    assert!(close(wide, narrow.hypot(drift)), "{narrow} {wide}");
    assert!(close(drifting.interval.half_width_of_rounds(drifting.median), narrow));
    assert_eq!(rounds.with_drift(0.0), rounds);
    // Counts do not depend on the clock.
    let equal = estimate(&[7.0; 20]).unwrap();
    assert_eq!(equal.with_drift(0.01), equal);
}

#[test]
fn the_drift_of_a_clock_is_the_difference_of_two_moments() {
    let normal = |at: usize| {
        let probability = (at as f64 + 0.5) / 1000.0;
        3.9e9 * (0.01 * Normal::standard().inverse_cdf(probability)).exp()
    };
    let drift = clock_drift((0..1000).map(normal));
    assert!((drift / (1.96 * 2f64.sqrt() * 0.01) - 1.0).abs() < 0.05, "{drift}");
    // Of two states, in any shares, two moments often differ by the whole distance.
    for slow in [100, 300, 500] {
        let drift = clock_drift((0..1000).map(|at| if at < slow { 3.6e9 } else { 3.9e9 }));
        assert!(close(drift, (3.9f64 / 3.6).ln()), "{slow}: {drift}");
    }
    assert_eq!(clock_drift(std::iter::empty()), 0.0);
    assert_eq!(clock_drift([4e9].into_iter()), 0.0);
}

#[test]
fn the_rule_of_intervals_follows_the_rounds() {
    for rounds in 1..=200usize {
        let Interval { low, high, kind, coverage, .. } =
            estimate(&uncorrelated(rounds)).unwrap().interval;
        let expected = match rounds {
            1 => IntervalKind::Single,
            2..=5 => IntervalKind::Range,
            _ => IntervalKind::Confidence,
        };
        assert_eq!(kind, expected, "{rounds}");
        assert!(close(low + high, rounds as f64 + 1.0), "{rounds}: {low} {high} is lopsided");
        let coin = statrs::distribution::Binomial::new(0.5, rounds as u64).unwrap();
        let covers = |rank: u64| 1.0 - 2.0 * coin.cdf(rank - 1);
        match kind {
            IntervalKind::Single => assert!(close(coverage, 0.0)),
            IntervalKind::Range => assert!(close(coverage, covers(1)), "{rounds}: {coverage}"),
            IntervalKind::Confidence => {
                assert!(close(coverage, 0.95), "{rounds}: {coverage}");
                // Between the ranks whose coverage is next to 95%.
                let rank = low.floor() as u64;
                assert!(covers(rank) >= 0.95 && covers(rank + 1) <= 0.95, "{rounds}: {low}");
            }
        }
    }
    // Hettmansperger and Sheather: 5/14 of the way from the first to the second of six values.
    let six = estimate(&uncorrelated(6)).unwrap().interval;
    assert!(close(six.low, 1.0 + 5.0 / 14.0) && close(six.high, 6.0 - 5.0 / 14.0), "{six:?}");
    // The extremes of six correlated rounds cover too rarely for an interval.
    let ascending = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap().interval;
    assert_eq!((ascending.low, ascending.high, ascending.kind), (1.0, 6.0, IntervalKind::Range));
    assert!(ascending.coverage < 0.9, "{ascending:?}");
}

#[test]
fn intervals_have_their_coverage() {
    const REPLICATIONS: usize = 4000;
    let mut random = Pcg64Mcg::seed_from_u64(7);
    for rounds in [2usize, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 20, 21, 30, 50] {
        let (mut stated, mut covered) = (0.0, 0);
        for _ in 0..REPLICATIONS {
            // Skewed: the square of a uniform variable, whose median is a quarter.
            let values: Vec<f64> = (0..rounds).map(|_| random.random::<f64>().powi(2)).collect();
            let interval = estimate(&values).unwrap().interval;
            covered += usize::from(interval.includes(0.25));
            stated += interval.coverage / REPLICATIONS as f64;
        }
        let covered = covered as f64 / REPLICATIONS as f64;
        println!(
            "{rounds:2} rounds: stated {:.1}%, covered {:.1}%",
            stated * 100.0,
            covered * 100.0
        );
        if rounds < 6 {
            let error = (stated * (1.0 - stated) / REPLICATIONS as f64).sqrt();
            assert!((covered - stated).abs() < 4.0 * error, "{rounds}: {stated} {covered}");
        } else {
            assert!((0.94..=0.975).contains(&covered), "{rounds}: {covered}");
        }
    }
}

#[test]
fn a_sign_test_counts_the_rounds_of_one_direction() {
    let pairs = |above: usize, below: usize, equal: usize| {
        // In turns, so that the rounds are not correlated.
        let mut signs = vec![1.0; above];
        (0..below).for_each(|at| signs.insert((2 * at + 1).min(signs.len()), -1.0));
        (0..equal).for_each(|_| signs.push(0.0));
        signs.iter().map(|sign: &f64| (sign.exp(), 1.0)).collect::<Vec<_>>()
    };
    let p = |above, below, equal| sign_test(&pairs(above, below, equal)).unwrap();
    assert!(close(p(6, 0, 0), 2.0 / 64.0) && close(p(0, 10, 0), 2.0 / 1024.0));
    assert!(close(p(3, 3, 0), 1.0) && close(p(0, 0, 6), 1.0));
    // A pair without a difference counts against one.
    assert!(p(9, 0, 1) > 0.02148 && p(10, 0, 0) < 0.002);
    assert!(sign_test(&[]).is_err());
    // 18 rounds above, then two below: as probable as in fewer independent rounds.
    let runs: Vec<_> = (0..20).map(|at| (if at < 18 { 2.0 } else { 0.5 }, 1.0)).collect();
    assert!(sign_test(&runs).unwrap() > 5.0 * p(18, 2, 0));
}

#[test]
fn holm_rejects_in_steps() {
    assert_eq!(holm(&[0.04, 0.011, 0.03, 0.005], 0.05), [false, true, false, true]);
    assert_eq!(holm(&[0.01, 0.04, 0.02], 0.05), [true, true, true]);
    assert_eq!(holm(&[0.2, 0.03, 0.02], 0.05), [false, false, false]);
    assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
}

#[test]
fn bad_values_are_errors() {
    assert_eq!(estimate(&[]), Err(StatisticsError::Empty));
    assert_eq!(paired_ratio(&[], LostRounds::default()), Err(StatisticsError::Empty));
    assert_eq!((median(&[]), mad(&[f64::NAN]), minimum(&[f64::INFINITY])), (None, None, None));
    let infinite = estimate(&[1.0, f64::INFINITY]);
    assert_eq!(infinite, Err(StatisticsError::NotFinite { index: 1, value: f64::INFINITY }));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for pair in [(bad, 1.0), (1.0, bad)] {
            let refused = paired_ratio(&[(1.0, 1.0), pair], LostRounds::default());
            assert!(matches!(refused, Err(StatisticsError::NotPositive { index: 1, .. })));
        }
    }
}

#[test]
fn a_higher_confidence_takes_more_rounds() {
    assert_eq!([0.95, 0.975, 0.99, 0.995].map(interval_rounds), [6, 6, 7, 8]);
    let kind = |rounds, confidence| {
        let pairs: Vec<_> = uncorrelated(rounds).into_iter().map(|value| (value, 1.0)).collect();
        let ratio = paired_ratio_at(confidence, &pairs, LostRounds::default());
        ratio.unwrap().interval.kind
    };
    assert_eq!(kind(6, 0.99), IntervalKind::Range);
    assert_eq!(kind(7, 0.99), IntervalKind::Confidence);
}

#[test]
fn a_projection_follows_the_root_of_the_rounds() {
    let values: Vec<f64> = uncorrelated(20).iter().map(|value| 99.0 + value).collect();
    let estimate_of_20 = estimate(&values).unwrap();
    let width = estimate_of_20.relative_half_width();
    assert_eq!(rounds_needed(&estimate_of_20, width), Some(20));
    assert_eq!(rounds_needed(&estimate_of_20, width * 2.0), Some(20));
    let fourfold = rounds_needed(&estimate_of_20, width / 2.0).unwrap();
    assert!((80..=81).contains(&fourfold), "{fourfold}");
    assert_eq!(rounds_needed(&estimate_of_20, 1e-9), Some(MAX_PROJECTED_ROUNDS));
    assert_eq!(rounds_needed(&estimate_of_20, 0.0), None);
    assert_eq!(rounds_needed(&estimate(&[1.0]).unwrap(), 0.02), None);
    assert_eq!(
        rounds_needed(&estimate(&[1.0, 1.0]).unwrap(), 0.02),
        Some(6),
        "a range is no interval"
    );
}

/// Rounds whose ratios are spread uniformly by `spread` percent about `centre`.
fn ratio(centre: f64, spread: f64) -> Ratio {
    let pairs = uncorrelated(21)
        .into_iter()
        .map(|rank| (centre * (1.0 + spread / 100.0 * (rank - 11.0) / 10.0), 1.0));
    paired_ratio(&pairs.collect::<Vec<_>>(), LostRounds::default()).unwrap()
}

#[test]
fn a_ratio_is_resolved_only_beyond_one_and_the_floor() {
    let unresolved = |why| Resolution::Unresolved { why };
    assert_eq!(resolve(&ratio(1.1, 1.0), Some(&NONE)), Resolution::Higher);
    assert_eq!(resolve(&ratio(0.9, 1.0), Some(&NONE)), Resolution::Lower);
    assert_eq!(resolve(&ratio(1.1, 1.0), None), unresolved(Unresolved::NoFloor));
    assert_eq!(resolve(&ratio(1.01, 50.0), None), unresolved(Unresolved::IncludesOne));
    let single = paired_ratio(&[(2.0, 1.0)], LostRounds::default()).unwrap();
    assert_eq!(resolve(&single, None), unresolved(Unresolved::SingleRound));

    let floor =
        NoiseFloor::from_twins(&[ratio(1.0, 1.0), ratio(0.97, 1.0), ratio(1.01, 1.0)]).unwrap();
    assert!(
        floor.floor > -(0.97f64.ln()) && floor.floor < 0.04,
        "the most distant pair: {floor:?}"
    );
    assert_eq!(resolve(&ratio(1.03, 1.0), Some(&floor)), unresolved(Unresolved::BelowFloor));
    assert_eq!(resolve(&ratio(1.05, 1.0), Some(&floor)), Resolution::Higher);
    assert_eq!(NoiseFloor::from_twins(&[]), None);
    for rounds in 1..=20 {
        let few = paired_ratio(&vec![(2.0, 1.0); rounds], LostRounds::default()).unwrap();
        let expected = match rounds {
            1 => unresolved(Unresolved::SingleRound),
            2..=5 => unresolved(Unresolved::TooFewRounds),
            _ => Resolution::Higher,
        };
        assert_eq!(resolve(&few, Some(&NONE)), expected, "{rounds}");
        assert_eq!(NoiseFloor::from_twins(&[few]).is_some(), rounds >= 6, "{rounds}");
    }
}
