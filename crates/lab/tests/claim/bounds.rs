//! Values against bounds and published values, and the verdicts that need no values.

use lab::claim::VerdictKind::{
    Contradicted, Incomparable, Inconclusive, NotMeasured, Reproduced, Unmeasurable,
};
use lab::claim::{Reason, judge};
use lab::experiment::Profile;
use lab::journal::Run;
use lab::sample::{Failure, Sample};

use crate::made_up::{MadeUp, fail, product};
use crate::{assert_kind, claim, fail_rounds, place, reasons, verdict};

pub(crate) fn two_lengths() -> MadeUp {
    MadeUp::new(product(&["glibc"], &["4 KiB", "64 KiB"], &["0"]))
}

#[test]
fn a_value_within_bounds() {
    let run = two_lengths().run(|point| if point.text("length") == "4 KiB" { 10e9 } else { 20e9 });
    let short = "where = { length = \"4 KiB\" }\nexpect";
    assert_kind(&format!("{short} = {{ at_least = 9e9 }}"), &run, Reproduced);
    assert_kind(&format!("{short} = {{ at_least = 13e9 }}"), &run, Contradicted);
    assert_kind(&format!("{short} = {{ at_least = 11e9 }}"), &run, Inconclusive);
    assert_kind(&format!("{short} = {{ at_most = 13e9 }}"), &run, Reproduced);
    assert_kind(&format!("{short} = {{ at_most = 9e9 }}"), &run, Contradicted);
    assert_kind(&format!("{short} = {{ at_least = 9e9, at_most = 13e9 }}"), &run, Reproduced);
    assert_kind(&format!("{short} = {{ at_least = 5e9, at_most = 9e9 }}"), &run, Contradicted);
    let all = assert_kind("expect = { at_least = 15e9 }", &run, Contradicted);
    assert_eq!(all.values().count(), 2);
    let kinds: Vec<_> = all.judgements.iter().map(|judgement| judgement.kind).collect();
    assert!(kinds.contains(&Reproduced) && kinds.contains(&Contradicted), "{all:?}");
    assert!(reasons(&all).contains(r#""at_least":15000000000.0"#), "{all:?}");
    assert_kind("expect = { at_least = 15e9, hold = \"some\" }", &run, Reproduced);
    assert_kind("expect = { at_least = 35e9, hold = \"some\" }", &run, Contradicted);
}

#[test]
fn a_published_value_that_carries_over() {
    let run = two_lengths().run(|_| 10e9);
    let published = |value: &str| {
        format!(
            "carries_over = \"anywhere\"\n\
             published = {{ value = {value}, unit = \"B/s\", tolerance = \"10%\" }}"
        )
    };
    assert_kind(&published("11e9"), &run, Reproduced);
    let off = assert_kind(&published("20e9"), &run, Contradicted);
    assert_eq!(off.published.unwrap().value, 20e9);
    assert_kind(&published("5e9"), &run, Contradicted);
}

#[test]
fn the_whole_interval_lies_within_the_tolerance() {
    let run = two_lengths().run(|_| 10e9);
    let published = |value: f64, tolerance: f64| {
        format!(
            "carries_over = \"anywhere\"\nwhere = {{ length = \"4 KiB\" }}\n\
             published = {{ value = {value:e}, unit = \"B/s\", tolerance = \"{tolerance}%\" }}"
        )
    };
    let ours =
        assert_kind(&published(11e9, 20.0), &run, Reproduced).values().next().unwrap().clone();
    let (low, high) = ours.interval.map(|it| (it.low, it.high)).unwrap();
    // The interval overlaps the tolerance from below or above, or encloses it.
    assert_kind(&published(high * 1.05, 5.0), &run, Inconclusive);
    assert_kind(&published(low / 1.05, 5.0), &run, Inconclusive);
    assert_kind(&published((low + high) / 2.0, 0.01), &run, Inconclusive);
    assert_kind(&published(high * 1.1, 5.0), &run, Contradicted);
    assert_kind(&published(low / 1.1, 5.0), &run, Contradicted);
}

#[test]
fn a_value_of_other_hardware_is_shown_and_not_judged() {
    let mut run = two_lengths().run(|_| 10e9);
    let published = "published = { value = 23.46e9, unit = \"B/s\", on = \"Xeon hosts\" }";
    let keys = &format!("carries_over = \"nowhere\"\n{published}");
    let shown = assert_kind(keys, &run, Incomparable);
    assert_eq!(shown.published.as_ref().unwrap().on.as_deref(), Some("Xeon hosts"));
    assert!(shown.values().all(|ours| ours.value.is_some() && ours.kind == Incomparable));
    // Other expectations are still judged.
    assert_kind(&format!("{published}\nexpect = {{ at_least = 1e9 }}"), &run, Reproduced);
    let absent = Failure::unavailable("no such memory", "attach it");
    fail(&mut run, &absent, |_| true);
    assert_kind(keys, &run, Unmeasurable);
}

#[test]
fn an_unmeasurable_point_has_its_remedy() {
    let keys = "expect = { at_least = 9e9 }";
    let whole = two_lengths().run(|_| 10e9);
    let absent = Failure::unavailable("no huge pages", "reserve some");
    let mut run = whole.clone();
    fail(&mut run, &absent, |_| true);
    let verdict = assert_kind(keys, &run, Unmeasurable);
    assert!(
        reasons(&verdict).contains(r#""why":"no huge pages","remedy":"reserve some""#),
        "{verdict:?}"
    );
    // Half of the points are available: they decide, and the verdict reports the others.
    let mut run = whole.clone();
    fail(&mut run, &absent, |point| point.text("length") == "4 KiB");
    let verdict = assert_kind(keys, &run, Reproduced);
    assert!(reasons(&verdict).contains(r#""kind":"unmeasurable""#), "{verdict:?}");
    assert_kind("expect = { at_least = 90e9, hold = \"some\" }", &run, Inconclusive);
    // A failure does not count as missing.
    let mut run = whole;
    fail(&mut run, &Failure::failed("broke"), |_| true);
    let verdict = assert_kind(keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""kind":"failed","why":"broke""#), "{verdict:?}");
}

#[test]
fn a_void_point_has_no_value() {
    let mut run = two_lengths().run(|_| 10e9);
    for sample in &mut run.samples {
        sample.void = Some("the core clock moved".into());
    }
    let verdict = assert_kind("expect = { at_least = 9e9 }", &run, Inconclusive);
    assert!(reasons(&verdict).contains("the core clock moved"), "{verdict:?}");
}

#[test]
fn too_few_cores_are_unmeasurable() {
    let run = two_lengths().run(|_| 10e9);
    let keys = |cores: u32| format!("cores = {cores}\nexpect = {{ at_least = 9e9 }}");
    assert_kind(&keys(4), &run, Reproduced);
    let verdict = assert_kind(&keys(9), &run, Unmeasurable);
    assert!(reasons(&verdict).contains(r#""needed":9,"cores":4"#), "{verdict:?}");
    // Detected before measuring.
    assert_eq!(judge(&claim(&keys(9)), None, 4).kind, Unmeasurable);
}

#[test]
fn the_cores_are_those_of_the_machine_that_measured() {
    let mut run = two_lengths().run(|_| 10e9);
    let mut environment = machine::environment::Environment::capture();
    let core = machine::topology::Core { package: 0, id: 0, cpus: vec![0, 1] };
    environment.topology.cores = vec![core];
    environment.topology.online = vec![0, 1];
    run.record.environments.insert("e1".into(), environment);
    let verdict = assert_kind("cores = 2\nexpect = { at_least = 9e9 }", &run, Unmeasurable);
    assert!(reasons(&verdict).contains(r#""cores":1,"threads_per_core":2.0"#), "{verdict:?}");
}

#[test]
fn an_unmeasured_claim_names_the_command() {
    let keys = "expect = { at_least = 9e9 }";
    let unmeasured = judge(&claim(keys), None, 4);
    assert_eq!(unmeasured.kind, NotMeasured);
    let why = r#""reasons":[{"reason":"not-measured","command":"tollgate run --claim it"}]"#;
    assert!(reasons(&unmeasured).contains(why), "{unmeasured:?}");
    let mut run = two_lengths().run(|_| 10e9);
    let elsewhere = verdict("where = { length = \"1 KiB\" }\nexpect = { at_least = 1 }", &run);
    assert_eq!(elsewhere.kind, NotMeasured);
    assert_eq!(elsewhere.judgements, unmeasured.judgements);
    run.samples.clear();
    assert_eq!(verdict(keys, &run).judgements, unmeasured.judgements);
}

#[test]
fn only_runs_of_the_profile_count() {
    let mut made_up = two_lengths();
    let keys = "profile = \"full\"\nexpect = { at_least = 9e9 }";
    let verdict = assert_kind(keys, &made_up.run(|_| 10e9), NotMeasured);
    assert!(reasons(&verdict).contains("--claim it --profile full"), "{verdict:?}");
    made_up.profile = Profile::Full;
    assert_kind(keys, &made_up.run(|_| 10e9), Reproduced);
}

#[test]
fn few_rounds_are_inconclusive_unless_the_claim_permits_them() {
    let mut made_up = two_lengths();
    let keys = |rounds: &str| format!("{rounds}\nexpect = {{ at_least = 9e9 }}");
    made_up.rounds = 5;
    let five = made_up.run(|_| 10e9);
    let verdict = assert_kind(&keys(""), &five, Inconclusive);
    let few = r#""reason":"too-few-rounds","rounds":5,"needed":6"#;
    assert!(reasons(&verdict).contains(few) && reasons(&verdict).contains("range"), "{verdict:?}");
    assert_kind(&keys("rounds = 5"), &five, Reproduced);
    made_up.rounds = 6;
    assert_kind(&keys(""), &made_up.run(|_| 10e9), Reproduced);
    assert_kind(&keys("rounds = 20"), &made_up.run(|_| 10e9), Inconclusive);
    made_up.rounds = 1;
    let one = made_up.run(|_| 10e9);
    assert_kind(&keys(""), &one, Inconclusive);
    let verdict = assert_kind(&keys("rounds = 1"), &one, Reproduced);
    assert!(verdict.values().next().unwrap().interval.is_none(), "one round has no interval");
    assert_kind("rounds = 1\nexpect = { at_most = 9e9 }", &one, Contradicted);
}

#[test]
fn twins_in_the_metrics_unit() {
    let mut made_up = two_lengths();
    made_up.metric = "latency";
    let mut run = made_up.run(|_| 100.0);
    let keys = |most: &str| format!("expect = {{ twins_differ_at_most = {most} }}");
    assert_kind(&keys("1"), &run, Reproduced);
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("latency").unwrap() += 5.0;
    }
    let verdict = assert_kind(&keys("1"), &run, Contradicted);
    assert!(reasons(&verdict).contains(r#""statistic":"twin-difference""#), "{verdict:?}");
    assert_kind(&keys("5"), &run, Inconclusive);
    assert_kind(&keys("10"), &run, Reproduced);
    let mut failed = run.clone();
    fail_rounds(&mut failed, 12, |_| true);
    let verdict = assert_kind(&keys("10"), &failed, Inconclusive);
    assert!(reasons(&verdict).contains("too-many-failed"), "{}", reasons(&verdict));
    run.samples.retain(|sample| !sample.twin);
    let verdict = assert_kind(&keys("10"), &run, Inconclusive);
    assert!(reasons(&verdict).contains("twin"), "{verdict:?}");
}

#[test]
fn ticks_and_cycles_are_compared_in_the_published_unit() {
    let mut made_up = two_lengths();
    made_up.metric = "latency";
    // 100 ns are 200 ticks of 2 GHz and 400 cycles of 4 GHz.
    let run = made_up.run(|_| 100.0);
    for (unit, ours) in [("ticks", 200.0), ("cycles", 400.0), ("ns", 100.0)] {
        let keys = format!(
            "carries_over = \"anywhere\"\npublished = {{ value = {ours}, unit = \"{unit}\", tolerance = \"20%\" }}"
        );
        let verdict = assert_kind(&keys, &run, Reproduced);
        assert_eq!(verdict.values().next().unwrap().unit, unit);
    }
    let keys = "carries_over = \"nowhere\"\npublished = { value = 600, unit = \"ticks\" }";
    assert_kind(keys, &run, Incomparable);
}

#[test]
fn a_rate_has_the_resolution_of_its_time() {
    let mut made_up = MadeUp::new(product(&["a", "b"], &["4 KiB"], &["0"]));
    made_up.noise = 1e-6;
    let mut run = made_up.run(|point| if point.text("function") == "a" { 10e9 } else { 9.5e9 });
    // Without the drift of the synthetic machine, and with times of 100 ns.
    for sample in &mut run.samples {
        let truth = if sample.point.text("function") == "a" { 10e9 } else { 9.5e9 };
        let value = truth * (1.0 + 1e-6 * f64::from(sample.round % 5));
        sample.values.insert("throughput".into(), value);
        sample.values.insert("time".into(), 100.0);
    }
    let value = "where = { function = \"a\" }\nexpect = { at_least = 9.6e9 }";
    let ratio =
        "expect = { ratio_of = { function = \"a\" }, to = { function = \"b\" }, at_least = 1.01 }";
    assert_kind(value, &run, Reproduced);
    assert_kind(ratio, &run, Reproduced);
    // One step is 5% of a time.
    for sample in &mut run.samples {
        sample.values.insert("resolution".into(), 5.0);
    }
    let verdict = assert_kind(value, &run, Inconclusive);
    let interval = verdict.values().next().unwrap().interval.unwrap();
    assert!((interval.low / 9.5e9 - 1.0).abs() < 1e-3, "{interval:?}");
    assert_kind(ratio, &run, Inconclusive);
    // A count of the same samples is no rate.
    for sample in &mut run.samples {
        sample.values.insert("calls".into(), 100.0);
    }
    assert_kind("metric = \"calls\"\nexpect = { at_least = 99 }", &run, Reproduced);
}

#[test]
fn a_value_closer_to_its_bound_than_the_floor_of_its_twins_is_inconclusive() {
    let mut run = two_lengths().run(|_| 10e9);
    for sample in &mut run.samples {
        let value = 10e9 * (1.0 + 1e-4 * f64::from(sample.round % 5));
        sample.values.insert("throughput".into(), if sample.twin { 1.08 * value } else { value });
    }
    let twin = run.samples.iter().find(|sample| sample.twin).unwrap().point.clone();
    let keys = |length: &str, least: &str| {
        format!("where = {{ length = \"{length}\" }}\nexpect = {{ at_least = {least} }}")
    };
    let verdict = assert_kind(&keys(twin.text("length"), "9.5e9"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"near-bound""#), "{verdict:?}");
    assert_kind(&keys(twin.text("length"), "9.2e9"), &run, Reproduced);
    assert_kind(&keys(twin.text("length"), "11e9"), &run, Contradicted);
    // A bound of 0 is infinitely far.
    assert_kind(&keys(twin.text("length"), "0"), &run, Reproduced);
    // The other length has no twins.
    let other = run.samples.iter().find(|sample| sample.point != twin).unwrap().point.clone();
    assert_kind(&keys(other.text("length"), "9.9e9"), &run, Reproduced);
}

#[test]
fn sessions_that_could_have_decided_widen_the_interval() {
    let whole = two_lengths().run(|_| 10e9);
    let keys = "where = { length = \"64 KiB\" }\nexpect = { at_least = 1e9 }";
    let with_sessions = |session: &dyn Fn(u32) -> u32| {
        let mut run = whole.clone();
        run.samples.iter_mut().for_each(|sample| sample.session = session(sample.round));
        let verdict = assert_kind(keys, &run, Reproduced);
        let interval = verdict.values().next().unwrap().interval.unwrap();
        (interval.high - interval.low, interval.coverage, reasons(&verdict))
    };
    let (width, coverage, why) = with_sessions(&|_| 1);
    assert!(coverage == 0.95 && !why.contains("repeated-looks"), "{why}");
    // Sessions with fewer than 6 rounds in all decided nothing.
    assert_eq!(with_sessions(&|round| 1 + round.min(5)), (width, coverage, why));
    let (wider, coverage, why) = with_sessions(&|round| 1 + round / 7);
    assert!(wider > 1.1 * width && (coverage - (1.0 - 0.05 / 3.0)).abs() < 1e-9, "{why}");
    assert!(why.contains(r#""reason":"repeated-looks","looks":3"#), "{why}");
}

#[test]
fn failed_rounds_are_counted_and_may_change_the_verdict() {
    let keys = |least: &str| format!("where = {{ length = \"4 KiB\" }}\nexpect = {{ {least} }}");
    let whole = two_lengths().run(|_| 10e9);
    let with = |failed: u32| {
        let mut run = whole.clone();
        fail_rounds(&mut run, failed, |_| true);
        run
    };
    let verdict = assert_kind(&keys("at_least = 9e9"), &with(2), Reproduced);
    assert!(reasons(&verdict).contains(r#""failed":2,"void":0"#), "{verdict:?}");
    assert_eq!(verdict.values().next().unwrap().lost, 2);
    let verdict = assert_kind(&keys("at_least = 9e9"), &with(3), Inconclusive);
    assert!(reasons(&verdict).contains(r#""failed":3,"rounds":20,"max":0.1"#), "{verdict:?}");
    assert_kind(&keys("at_least = 90e9"), &with(2), Contradicted);
    assert_kind(&keys("at_least = 90e9"), &with(3), Inconclusive);
    // Values barely within the bound: as many slow rounds as failed would move an end over the bound.
    let ours =
        assert_kind(&keys("at_least = 1e9"), &with(2), Reproduced).values().next().unwrap().clone();
    let close = format!("at_least = {:e}", ours.interval.unwrap().low * 0.9999);
    let verdict = assert_kind(&keys(&close), &with(2), Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"failures-may-decide""#), "{verdict:?}");
    // A later session that repeats the failed rounds does not undo the failures.
    let mut run = with(3);
    let again: Vec<_> = whole.samples.iter().filter(|sample| sample.round < 3).cloned().collect();
    run.samples.extend(again.into_iter().map(|sample| Sample { session: 2, ..sample }));
    let verdict = assert_kind(&keys("at_least = 9e9"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""failed":3,"rounds":20,"max":0.1"#), "{verdict:?}");
    assert_eq!(verdict.values().next().unwrap().rounds, 20);
    // Void samples caused by the host are reported but do not prevent a verdict.
    let mut run = whole.clone();
    for sample in run.samples.iter_mut().filter(|sample| sample.round < 8) {
        sample.void = Some("the core clock moved".into());
    }
    let verdict = assert_kind(&keys("at_least = 9e9"), &run, Reproduced);
    assert!(reasons(&verdict).contains(r#""failed":0,"void":8"#), "{verdict:?}");
}

#[test]
fn the_cost_of_the_lab_is_judged_by_one_row() {
    let mut run = two_lengths().run(|_| 10e9);
    let mut session = run.samples[0].clone();
    session.experiment = "lab/session".into();
    session.point = [("profile", "standard")].into();
    session.values = [("outside_samples".to_string(), 0.02)].into();
    run.samples.push(session);
    let latency = run.record.metrics["copy"]["latency"].clone();
    run.record.metrics.insert("lab".into(), [("outside_samples".to_string(), latency)].into());
    let mut claim = claim("metric = \"outside_samples\"\nrounds = 1\nexpect = { at_most = 0.05 }");
    claim.experiment = "lab/session".into();
    assert_eq!(judge(&claim, Some(&run), 4).kind, Reproduced);
    run.samples.last_mut().unwrap().values.insert("outside_samples".into(), 0.5);
    assert_eq!(judge(&claim, Some(&run), 4).kind, Contradicted);
}

#[test]
fn a_claim_without_a_method_is_unmeasurable_whatever_was_measured() {
    let run = MadeUp::new(product(&["glibc"], &["4 KiB"], &["0"])).run(|_| 10e9);
    let keys = "unmeasurable = \"no machine has it\"\nexpect = { at_most = 1 }";
    let verdict = assert_kind(keys, &run, Unmeasurable);
    assert!(reasons(&verdict).contains("no machine has it"), "{verdict:?}");
}

#[test]
fn an_inconclusive_value_leans_and_states_the_rounds_that_would_decide() {
    let mut made_up = MadeUp::new(product(&["glibc"], &["64 KiB"], &["0"]));
    made_up.rounds = 6;
    made_up.noise = 0.2;
    let mut run = made_up.run(|_| 10e9);
    // Half of the session's time is spent outside of samples.
    let mut session = run.samples[0].clone();
    session.experiment = "lab/session".into();
    session.values = [("outside_samples".to_string(), 0.5)].into();
    run.samples.push(session);
    let median = judge(&claim("expect = { at_least = 1.0 }"), Some(&run), 1)
        .values()
        .next()
        .and_then(|value| value.value)
        .unwrap();
    for (bound, to) in [(0.99, "reproduced"), (1.01, "contradicted")] {
        let bound = bound * median;
        let verdict =
            assert_kind(&format!("expect = {{ at_least = {bound} }}"), &run, Inconclusive);
        let leans = format!(r#""reason":"leans","to":"{to}","rounds":"#);
        assert!(reasons(&verdict).contains(&leans), "{verdict:?}");
        let Some(Reason::Leans { rounds: Some(rounds), seconds: Some(seconds), .. }) =
            verdict.values().next().and_then(|value| value.reasons.last())
        else {
            panic!("{verdict:?}");
        };
        // A round takes the point and its twin 0.25 s each, and as long outside of samples.
        assert!(*rounds > 10 && (seconds / *rounds as f64 - 1.0).abs() < 1e-9, "{verdict:?}");
        assert!(!verdict.is_precise(&claim("expect = { at_least = 1.0 }"), 0.005));
        assert!(verdict.is_precise(&claim("expect = { at_least = 1.0 }"), 0.9));
    }
    // A killed session did not record it.
    run.samples.pop();
    let keys = format!("expect = {{ at_least = {} }}", 0.99 * median);
    let verdict = assert_kind(&keys, &run, Inconclusive);
    let last = verdict.values().next().and_then(|value| value.reasons.last());
    assert!(
        matches!(last, Some(Reason::Leans { rounds: Some(_), seconds: None, .. })),
        "{verdict:?}"
    );
}

#[test]
fn a_claim_without_a_value_is_precise_only_if_none_can_be_measured() {
    let run = two_lengths().run(|_| 10e9);
    let is_precise = |keys: &str, run: &Run| verdict(keys, run).is_precise(&claim(keys), 0.9);
    let keys = "expect = { at_least = 1.0 }";
    assert!(is_precise(keys, &run));
    let mut void = run.clone();
    void.samples.iter_mut().for_each(|sample| sample.void = Some("busy".into()));
    assert!(!is_precise(keys, &void), "the next rounds may be valid");
    let mut failed = run.clone();
    fail_rounds(&mut failed, u32::MAX, |_| true);
    assert!(!is_precise(keys, &failed), "the next rounds may not fail");
    // The cores of the next rounds may be far.
    let mut near = run.clone();
    near.samples.iter_mut().for_each(|sample| place(sample, false));
    assert!(!is_precise(&format!("class = \"far\"\n{keys}"), &near));
    let mut absent = run;
    fail(&mut absent, &Failure::unavailable("no NIC", "add one"), |_| true);
    assert!(is_precise(keys, &absent));
}
