//! Ratios within rounds: planted effects are found, covered and resolved.

use lab::sharing::Sharing;
use lab::statistics::{
    Censored, LostRounds, NoiseFloor, Ratio, Resolution, estimate, median, paired_ratio, resolve,
};
use lab::summary::{Observation, Rounds};
use rand::RngExt;

use crate::drift::Machine;
use crate::{
    BASE, CHANGED, COUNTS, EFFECTS, REPLICATIONS, TWIN, by_blocks, by_rounds, half_width, paired,
    seeds, share, spread_rounds, unpaired,
};

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

/// Rounds of two points next to a sibling that is busy or idle for two samples on average. `on_shared` is their ratio on a
/// shared core; alone it is 1.
fn next_to_a_sibling(rounds: u32, on_shared: f64, seed: u64) -> [Rounds; 2] {
    let mut machine = Machine::new(seed);
    let mut is_shared = machine.random.random::<f64>() < 0.5;
    let mut points = [Rounds::new(), Rounds::new()];
    for round in 0..rounds {
        for (point, truth) in points.iter_mut().zip([on_shared, 1.0]) {
            is_shared ^= machine.random.random::<f64>() < 0.5;
            let (factor, sharing) =
                if is_shared { (1.4 * truth, Sharing::Shared) } else { (1.0, Sharing::Alone) };
            let value = factor * (0.02 * machine.normal()).exp();
            let one = Observation {
                value,
                resolution: 0.0,
                class: None,
                session: 1,
                sharing: Some(sharing),
                censored: Censored::default(),
            };
            point.insert(round, one);
        }
    }
    points
}

/// If neither state of the core has enough pairs, those of both count. Their ratio is covered if it is the same in both
/// states; if it is not, a bound between the two is hardly ever decided.
#[test]
fn pairs_of_both_states_decide_nothing_on_which_the_states_disagree() {
    for rounds in [10, 12, 16] {
        let (mut mixed, mut covered, mut of_different, mut decided) = (0, 0, 0, 0);
        for seed in seeds(0.9) {
            let ratio = |on_shared: f64| {
                let [above, below] = next_to_a_sibling(rounds, on_shared, seed);
                let pairs = lab::summary::pairs(&above, &below);
                let both = pairs.counts.alone.min(pairs.counts.shared) > 0;
                (pairs.state.is_none() && both && pairs.pairs.len() >= 6)
                    .then(|| pairs.ratio().unwrap())
            };
            if let Some(ratio) = ratio(1.0) {
                mixed += 1;
                covered += usize::from(ratio.interval.includes(1.0));
            }
            if let Some(ratio) = ratio(1.1) {
                of_different += 1;
                decided += usize::from(!ratio.interval.includes(1.05));
            }
        }
        let (covered, decided) = (share(covered, mixed), share(decided, of_different));
        println!(
            "both states, {rounds:2} rounds: {mixed} of {REPLICATIONS}, covered {:.1}%, a bound between decided {:.1}%",
            covered * 100.0,
            decided * 100.0
        );
        assert!(mixed > 50, "{rounds}: {mixed}");
        assert!(covered >= 0.93, "{rounds}: {covered}");
        assert!(decided <= 0.01, "{rounds}: {decided}");
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
