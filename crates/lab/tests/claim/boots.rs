//! Factors that are chosen at boot: levels of different boots are compared by boot.

use lab::claim::VerdictKind::{Inconclusive, Reproduced};
use lab::claim::{Reason, Statistic};
use lab::journal::Run;
use machine::environment::Environment;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::assert_kind;
use crate::made_up::{EXPERIMENT, MadeUp, product};

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
fn fewer_than_six_boots_of_a_level_are_inconclusive() {
    let verdict = assert_kind(KEYS, &in_boots([5, 7]), Inconclusive);
    let expected = Reason::TooFewBoots { boots: [5, 7], needed: 6 };
    assert_eq!(verdict.values().next().unwrap().reasons, [expected]);
}
