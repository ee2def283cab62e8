//! Factors that are chosen at boot: levels of different boots are compared by boot.

use std::collections::BTreeSet;

use lab::claim::VerdictKind::{Inconclusive, NotMeasured, Reproduced};
use lab::claim::{Reason, Statistic};
use lab::journal::Run;
use lab::sample::Sample;
use machine::environment::Environment;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::made_up::{EXPERIMENT, MadeUp, product};
use crate::sharing::share;
use crate::{assert_kind, verdict};

const KEYS: &str =
    "expect = { ratio_of = { length = \"64 KiB\" }, to = { length = \"4 KiB\" }, at_least = 1.5 }";

/// Returns a run whose lengths are each measured by some boots; the machine differs from boot to boot.
fn in_boots(boots: [usize; 2]) -> Run {
    let made_up = MadeUp::new(product(&["glibc"], &["64 KiB", "4 KiB"], &["0"]));
    let mut run = made_up.run(|_| 10e9);
    run.samples.clear();
    run.record.experiments.get_mut(EXPERIMENT).unwrap().blocking = vec!["length".into()];
    let mut random = Pcg64Mcg::seed_from_u64(3);
    for (at, truth) in [20e9, 10e9].into_iter().enumerate() {
        for boot in 0..boots[at] {
            let mut environment = Environment::capture();
            environment.boot_id.push_str(&format!("{at}-{boot}"));
            let of_boot = truth * (1.0 + 0.1 * random.random::<f64>());
            for (round, twin) in (0..8).flat_map(|round| [(round, false), (round, true)]) {
                let value = of_boot * (1.0 + 1e-4 * random.random::<f64>());
                let mut sample = made_up.sample(&made_up.points[at], twin, round, value);
                sample.environment = environment.id();
                sample.session = run.record.environments.len() as u32 + 1;
                run.samples.push(sample);
            }
            run.record.environments.insert(environment.id(), environment);
        }
    }
    run
}

#[test]
fn each_boot_counts_as_one_value() {
    let verdict = assert_kind(KEYS, &in_boots([6, 7]), Reproduced);
    let value = verdict.values().next().unwrap();
    assert_eq!((value.rounds, value.statistic.clone()), (6, Some(Statistic::BetweenBoots)));
    let interval = value.interval.unwrap();
    // Within a boot the rounds differ by a ten-thousandth; between boots by up to a tenth.
    assert!(interval.includes(2.0) && interval.high - interval.low > 0.02, "{interval:?}");
}

#[test]
fn all_boots_are_compared_in_one_state_of_the_core() {
    // On a shared core, in most rounds of the boots with 64 KiB, both lengths are equally fast.
    let mut run = in_boots([7, 6]);
    let is_long = |sample: &Sample| sample.point.text("length") == "64 KiB";
    for sample in &mut run.samples {
        let is_shared = is_long(sample) && sample.round < 6;
        share(sample, is_shared);
        let factor = if is_shared { 0.5 } else { 1.0 };
        sample.values.values_mut().for_each(|value| *value *= factor);
    }
    assert_kind(KEYS, &run, Reproduced);
    // In two of these boots the core was never alone.
    let lost: Vec<u32> = run.samples.iter().filter(|it| is_long(it)).map(|it| it.session).collect();
    let lost: Vec<u32> = BTreeSet::from_iter(lost).into_iter().take(2).collect();
    for sample in run.samples.iter_mut().filter(|it| lost.contains(&it.session)) {
        share(sample, true);
    }
    let verdict = assert_kind(KEYS, &run, Inconclusive);
    let expected = Reason::TooFewBoots { boots: [5, 6], needed: 6 };
    assert_eq!(verdict.values().next().unwrap().reasons, [expected]);
}

#[test]
fn fewer_than_six_boots_of_a_level_are_inconclusive() {
    let verdict = assert_kind(KEYS, &in_boots([5, 7]), Inconclusive);
    let expected = Reason::TooFewBoots { boots: [5, 7], needed: 6 };
    assert_eq!(verdict.values().next().unwrap().reasons, [expected]);
}

#[test]
fn settings_that_change_without_a_boot_do_not_make_more_boots() {
    let mut run = in_boots([6, 7]);
    let boots: Vec<String> =
        run.record.environments.values().map(|it| it.boot_id.clone()).collect();
    for (number, environment) in run.record.environments.values_mut().enumerate() {
        environment.boot_id.clone_from(&boots[0]);
        environment.governor = Some(format!("governor {number}"));
    }
    let verdict = assert_kind(KEYS, &run, NotMeasured);
    assert_eq!(verdict.elsewhere.len(), 12, "{:?}", verdict.elsewhere);
    // Boots with another setting are other machines.
    for (environment, boot) in run.record.environments.values_mut().zip(&boots) {
        environment.boot_id.clone_from(boot);
    }
    let verdict = assert_kind(KEYS, &run, NotMeasured);
    let other = &verdict.elsewhere[0].environment;
    assert_eq!((verdict.elsewhere.len(), other.rounds), (12, 8));
    assert_eq!(other.differences, ["boot", "governor"]);
}

#[test]
fn a_rerun_in_another_environment_states_the_rounds_that_it_replaces() {
    let mut run = in_boots([1, 1]);
    run.record.experiments.get_mut(EXPERIMENT).unwrap().blocking.clear();
    let verdict = verdict(KEYS, &run);
    let [other] = verdict.elsewhere.as_slice() else { panic!("{:?}", verdict.elsewhere) };
    let other = &other.environment;
    assert_eq!((other.rounds, other.differences.as_slice()), (8, ["boot".to_string()].as_slice()));
    let keys = "where = { length = \"4 KiB\" }\nexpect = { at_least = 1.0 }";
    assert_eq!(crate::verdict(keys, &run).elsewhere, []);
}
