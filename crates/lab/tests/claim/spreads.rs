//! Spreads of the rounds of a point, in steps of the counter or as a share of the median.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};

use crate::bounds::two_lengths;
use crate::{assert_kind, fail_rounds, reasons};

/// Noise of a sample whose thread waited the given time, in ns, on a CPU without steal time.
fn waited(ns: u64) -> machine::noise::NoiseDelta {
    machine::noise::NoiseDelta { waited_ns: Some(ns), steal_ns: Some(0), ..Default::default() }
}

#[test]
fn rounds_in_steps_of_the_counter_on_an_idle_core() {
    let mut made_up = two_lengths();
    made_up.metric = "latency";
    // 1% of a sample of 250 ms.
    let (idle, busy) = (waited(2_500_000), waited(2_500_001));
    let mut run = made_up.run(|_| 100.0);
    // A step is 1 ns: two ticks of 2 GHz.
    for sample in &mut run.samples {
        let far = sample.round % 2 == 0;
        sample.values.insert("latency".into(), if far { 100.0 } else { 101.0 });
        sample.noise = Some(idle);
    }
    let keys = "expect = { rounds_differ_at_most_steps = 1 }";
    let verdict = assert_kind(keys, &run, Reproduced);
    let value = verdict.values().next().unwrap();
    assert_eq!((value.value, value.unit.as_str(), value.rounds), (Some(1.0), "steps", 20));
    assert!(reasons(&verdict).contains(r#""step":1.0,"recorded":20"#), "{verdict:?}");
    // Only rounds undisturbed by other threads, and with steal time from the kernel, count.
    let unknown = machine::noise::NoiseDelta { steal_ns: None, ..idle };
    for sample in run.samples.iter_mut().filter(|sample| sample.round < 14) {
        sample.values.insert("latency".into(), 150.0);
        sample.noise = Some(if sample.round < 7 { busy } else { unknown });
    }
    assert_eq!(assert_kind(keys, &run, Reproduced).values().next().unwrap().rounds, 6);
    run.samples.iter_mut().for_each(|sample| sample.noise = Some(idle));
    assert_kind(keys, &run, Inconclusive);
    run.samples.iter_mut().for_each(|sample| sample.noise = Some(busy));
    let verdict = assert_kind(keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"never-idle""#), "{verdict:?}");
}

#[test]
fn rounds_as_a_share_of_their_median_on_an_idle_core() {
    let mut run = two_lengths().run(|_| 100.0);
    // A quarter of the rounds may have any value.
    for sample in &mut run.samples {
        let value =
            if sample.round % 5 == 0 { 300.0 } else { 100.0 + 0.4 * f64::from(sample.round % 2) };
        sample.values.insert("throughput".into(), value);
        sample.noise = Some(waited(0));
    }
    let keys = "expect = { rounds_differ_at_most = \"1%\" }";
    let verdict = assert_kind(keys, &run, Reproduced);
    assert!(reasons(&verdict).contains(r#""spread":{"step":null"#), "{verdict:?}");
    let mut failed = run.clone();
    fail_rounds(&mut failed, 12, |_| true);
    let verdict = assert_kind(keys, &failed, Inconclusive);
    assert!(reasons(&verdict).contains("too-many-failed"), "{}", reasons(&verdict));
    run.samples.iter_mut().for_each(|sample| sample.noise = Some(waited(250_000_000)));
    let verdict = assert_kind(keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"never-idle""#), "{verdict:?}");
}

#[test]
fn a_spread_near_its_bound_is_inconclusive() {
    let keys = |max: &str| format!("expect = {{ rounds_differ_at_most = \"{max}\" }}");
    for rounds in [6, 20] {
        let mut made_up = two_lengths();
        made_up.rounds = rounds;
        let mut run = made_up.run(|_| 100.0);
        for sample in &mut run.samples {
            // From 99 to 101 at equal distances: the middle half spans about 1.
            let share = f64::from(sample.round) / f64::from(rounds - 1);
            sample.values.insert("throughput".into(), 99.0 + 2.0 * share);
            sample.noise = Some(waited(0));
        }
        assert_kind(&keys("1.3%"), &run, Inconclusive);
        assert_kind(&keys("0.8%"), &run, Inconclusive);
        assert_kind(&keys("2.1%"), &run, Reproduced);
        assert_kind(&keys("0.1%"), &run, Contradicted);
    }
}

#[test]
fn a_median_of_0_has_no_spread() {
    let mut run = two_lengths().run(|_| 100.0);
    for sample in &mut run.samples {
        sample.values.insert("throughput".into(), 0.0);
        sample.noise = Some(waited(0));
    }
    let verdict = assert_kind("expect = { rounds_differ_at_most = \"1%\" }", &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"zero-median""#), "{verdict:?}");
}
