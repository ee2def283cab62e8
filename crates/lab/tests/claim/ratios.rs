//! Ratios within rounds, and rankings.

use lab::claim::Statistic;
use lab::claim::VerdictKind::{
    Contradicted, Incomparable, Inconclusive, NotMeasured, Reproduced, Unmeasurable,
};
use lab::sample::{Failure, Sample};
use lab::statistics::LostRounds;

use crate::made_up::{MadeUp, fail, product};
use crate::{assert_kind, fail_rounds, reasons};

const RATIO: &str = "ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }";

fn functions(names: &[&str]) -> MadeUp {
    MadeUp::new(product(names, &["4 KiB", "64 KiB"], &["0"]))
}

#[test]
fn a_ratio_within_rounds() {
    let made_up = functions(&["glibc", "apex"]);
    let keys = |bounds: &str| format!("expect = {{ {RATIO}, each = [\"length\"], {bounds} }}");
    let faster = made_up.run(|point| if point.text("function") == "apex" { 12e9 } else { 10e9 });
    let verdict = assert_kind(&keys("at_least = 1.1"), &faster, Reproduced);
    assert_eq!(verdict.values().count(), 2, "one ratio per length");
    for ours in verdict.values() {
        assert!((ours.value.unwrap() - 1.2).abs() < 0.02, "drift affects both sides and cancels");
        assert!(ours.label.contains("function=apex over function=glibc"), "{}", ours.label);
    }
    assert!(verdict.values().next().unwrap().label.starts_with("length=4 KiB"));
    assert_kind(&keys("at_least = 1.3"), &faster, Contradicted);
    assert_kind(&keys("at_most = 1.1"), &faster, Contradicted);
    assert_kind(&keys("at_least = 1.1, at_most = 1.3"), &faster, Reproduced);
    let slower = made_up.run(|point| if point.text("function") == "apex" { 10e9 } else { 12e9 });
    assert_kind(&keys("at_least = 1.1"), &slower, Contradicted);
}

#[test]
fn a_ratio_of_times_is_the_plain_ratio() {
    let mut made_up = functions(&["glibc", "apex"]);
    made_up.metric = "latency";
    let slower = made_up.run(|point| if point.text("function") == "apex" { 20.0 } else { 10.0 });
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.8 }}");
    assert_kind(&keys, &slower, Reproduced);
}

#[test]
fn a_result_contrary_to_a_one_sided_claim_is_no_evidence_against_it() {
    let made_up = functions(&["glibc", "apex"]);
    let keys = |bounds: &str, hold: &str| {
        let expect = format!("{{ {RATIO}, each = [\"length\"], {bounds}, hold = \"{hold}\" }}");
        format!("one_sided = \"it has 8 threads\"\nexpect = {expect}")
    };
    let run = made_up.run(|point| match (point.text("function"), point.text("length")) {
        ("apex", "4 KiB") => 12e9,
        ("apex", _) => 9e9,
        _ => 10e9,
    });
    // One length agrees and does not make up for the other.
    let verdict = assert_kind(&keys("at_least = 1.1", "all"), &run, Incomparable);
    assert!(reasons(&verdict).contains("it has 8 threads"), "{verdict:?}");
    assert_kind(&keys("at_least = 1.1", "some"), &run, Reproduced);
    assert_kind(&keys("at_least = 1.3", "some"), &run, Incomparable);
}

#[test]
fn equal_sides_decide_nothing_about_which_is_better() {
    let made_up = MadeUp { noise: 0.0, ..functions(&["glibc", "apex"]) };
    let run = made_up.run(|_| 10e9);
    let keys = |bounds: &str| format!("expect = {{ {RATIO}, each = [\"length\"], {bounds} }}");
    assert_kind(&keys("at_least = 1.0"), &run, Inconclusive);
    assert_kind(&keys("at_most = 1.0"), &run, Inconclusive);
    assert_kind(&keys("at_least = 0.9, at_most = 1.1"), &run, Reproduced);
}

#[test]
fn each_level_counts() {
    let run = functions(&["glibc", "apex"]).run(|point| {
        let fast = point.text("function") == "apex" && point.text("length") == "64 KiB";
        if fast { 12e9 } else { 10e9 }
    });
    let keys = |hold: &str| {
        format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.1, hold = \"{hold}\" }}")
    };
    assert_kind(&keys("all"), &run, Contradicted);
    assert_kind(&keys("some"), &run, Reproduced);
}

#[test]
fn a_side_that_fixes_a_level_is_compared_with_each_level_of_the_other() {
    let run = functions(&["glibc", "apex"]).run(|point| {
        match (point.text("function"), point.text("length")) {
            ("glibc", "4 KiB") => 10e9,
            ("apex", "4 KiB") => 12e9,
            ("apex", _) => 15e9,
            _ => 1e9,
        }
    });
    let keys = |bound: f64| {
        let to = "{ function = \"glibc\", length = \"4 KiB\" }";
        let of = "{ function = \"apex\" }";
        let each = "each = [\"length\"]";
        format!("expect = {{ ratio_of = {of}, to = {to}, {each}, at_least = {bound} }}")
    };
    let verdict = assert_kind(&keys(1.1), &run, Reproduced);
    let ratios: Vec<f64> = verdict.values().map(|ours| ours.value.unwrap()).collect();
    assert_eq!(ratios.len(), 2, "{verdict:?}");
    assert!((ratios[0] - 1.2).abs() < 0.03 && (ratios[1] - 1.5).abs() < 0.03, "{ratios:?}");
    // All must be true, so one level decides.
    assert_kind(&keys(1.35), &run, Contradicted);
}

#[test]
fn overheads_are_compared_by_their_baselines() {
    let mut made_up = functions(&["a", "a-plain", "b", "b-plain"]);
    made_up.metric = "latency";
    let run = made_up.run(|point| match point.text("function") {
        "a" => 30.0,
        "b" => 40.0,
        "a-plain" => 10.0,
        _ => 20.0,
    });
    let keys = |second: &str, bounds: &str| {
        let baselines =
            format!("baselines = [{{ function = \"a-plain\" }}, {{ function = \"{second}\" }}]");
        let sides = "ratio_of = { function = \"a\" }, to = { function = \"b\" }";
        format!(
            "metric = \"latency\"\nwhere = {{ length = \"4 KiB\" }}\n\
             expect = {{ {sides}, {baselines}, {bounds} }}"
        )
    };
    // 3 times its baseline against 2 times; the plain ratio is 0.75.
    let verdict = assert_kind(&keys("b-plain", "at_least = 1.4, at_most = 1.6"), &run, Reproduced);
    let label = &verdict.values().next().unwrap().label;
    assert!(label.ends_with("relative to function=a-plain and function=b-plain"), "{label}");
    assert_kind(&keys("b-plain", "at_most = 1.2"), &run, Contradicted);
    // Both by one baseline: the plain ratio.
    assert_kind(&keys("a-plain", "at_most = 0.8"), &run, Reproduced);
    let missing = assert_kind(&keys("c-plain", "at_most = 0.8"), &run, NotMeasured);
    assert!(reasons(&missing).contains("not-measured"), "{missing:?}");
}

#[test]
fn a_round_of_overheads_is_lost_for_the_cause_of_any_of_its_values() {
    let mut made_up = functions(&["a", "a-plain", "b", "b-plain"]);
    made_up.metric = "latency";
    let mut run = made_up.run(|point| if point.text("function") == "a" { 30.0 } else { 20.0 });
    let keys = "metric = \"latency\"\nwhere = { length = \"4 KiB\" }\n\
                expect = { ratio_of = { function = \"a\" }, to = { function = \"b\" }, \
                baselines = [{ function = \"a-plain\" }, { function = \"b-plain\" }], at_least = 1.3 }";
    let lost = |run: &_| {
        let verdict = crate::verdict(keys, run);
        let value = verdict.values().next().unwrap().clone();
        let Some(Statistic::Ratio { lost, .. }) = value.statistic else { panic!("{value:?}") };
        (value.rounds, lost)
    };
    assert_eq!(lost(&run), (20, LostRounds::default()));
    for sample in run.samples.iter_mut().filter(|sample| !sample.twin) {
        match (sample.point.text("function"), sample.round) {
            // Of both overheads, whose rounds are then lost once.
            ("a-plain" | "b-plain", 0..2) => sample.session = 2,
            ("b-plain", 2..5) => sample.session = 2,
            ("a-plain", 5) => sample.values.clear(),
            _ => {}
        }
    }
    let expected = LostRounds { other_session: 5, missing: 1, ..LostRounds::default() };
    assert_eq!(lost(&run), (14, expected));
}

#[test]
fn the_floor_of_a_ratio_of_overheads_includes_the_baselines() {
    let mut made_up = functions(&["a", "a-plain", "b", "b-plain"]);
    made_up.metric = "latency";
    let mut run = made_up.run(|point| if point.text("function") == "a" { 30.0 } else { 20.0 });
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("latency").unwrap() *= 1.08;
    }
    let keys = |second: &str| {
        format!(
            "metric = \"latency\"\nwhere = {{ length = \"4 KiB\" }}\n\
             expect = {{ ratio_of = {{ function = \"a\" }}, to = {{ function = \"b\" }}, \
             baselines = [{{ function = \"a-plain\" }}, {{ function = \"{second}\" }}], at_least = 1.33 }}"
        )
    };
    // The ratio is 1.5 and the floor is 8% for each pair; a common baseline has no effect.
    assert_kind(&keys("a-plain"), &run, Reproduced);
    let verdict = assert_kind(&keys("b-plain"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"near-bound","floor":0.1"#), "{verdict:?}");
}

#[test]
fn a_difference_below_the_noise_floor_is_not_resolved() {
    let mut made_up = functions(&["glibc", "apex"]);
    let truth = |point: &lab::point::Point| {
        if point.text("function") == "apex" { 10.5e9 } else { 10e9 }
    };
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.0 }}");
    let mut run = made_up.run(truth);
    assert_kind(&keys, &run, Reproduced);
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("throughput").unwrap() *= 1.08;
    }
    assert_kind(&keys, &run, Inconclusive);
    assert_kind(
        "expect = { ranking = [{ function = \"apex\", length = \"4 KiB\" }, { function = \"glibc\", length = \"4 KiB\" }] }",
        &run,
        Inconclusive,
    );
    made_up.twins.clear();
    let verdict = assert_kind(&keys, &made_up.run(truth), Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"no-floor","rounds":null"#), "{verdict:?}");
}

#[test]
fn twins_that_differ_raise_an_alarm() {
    let mut run = functions(&["glibc", "apex"]).run(|_| 10e9);
    assert_eq!(crate::verdict("expect = { at_least = 0 }", &run).alarms, []);
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("throughput").unwrap() *= 1.08;
    }
    // Also for a claim on other points than the twins.
    let keys = "where = { function = \"apex\" }\nexpect = { at_least = 0 }";
    let alarms = assert_kind(keys, &run, Reproduced).alarms;
    let [alarm] = alarms.as_slice() else { panic!("{alarms:?}") };
    assert!((alarm.ratio.ratio - 1.0 / 1.08).abs() < 0.01, "{alarm}");
    let text = alarm.to_string();
    assert!(text.starts_with("warning: the twins of copy/throughput at function=glibc"), "{text}");
}

#[test]
fn the_noise_floor_is_slack_on_every_bound() {
    let truth = |point: &lab::point::Point| {
        if point.text("function") == "apex" { 10.5e9 } else { 10e9 }
    };
    let mut run = functions(&["glibc", "apex"]).run(truth);
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("throughput").unwrap() *= 1.08;
    }
    let kind = |bound: &str, value: f64| {
        let keys = format!("expect = {{ {RATIO}, each = [\"length\"], {bound} = {value:.3} }}");
        crate::verdict(&keys, &run)
    };
    // The ratio is 1.05, and twins differ by 8% or more.
    for near in [0.999, 1.0, 1.001, 1.05, 1.1] {
        for bound in ["at_least", "at_most"] {
            let verdict = kind(bound, near);
            assert_eq!(verdict.kind, Inconclusive, "{bound} {near}: {verdict:?}");
        }
    }
    assert!(reasons(&kind("at_least", 1.001)).contains("near-bound"));
    assert_eq!(kind("at_least", 0.9).kind, Reproduced);
    assert_eq!(kind("at_least", 1.2).kind, Contradicted);
    assert_eq!(kind("at_most", 1.2).kind, Reproduced);
    assert_eq!(kind("at_most", 0.9).kind, Contradicted);
    // A stricter bound is never easier to satisfy.
    let ease = |bound: &str, value: f64| match kind(bound, value).kind {
        Reproduced => 2,
        Inconclusive => 1,
        _ => 0,
    };
    let bounds: Vec<f64> = (0..60).map(|at| 0.85 + f64::from(at) * 0.007).collect();
    assert!(bounds.is_sorted_by(|a, b| ease("at_least", *a) >= ease("at_least", *b)));
    assert!(bounds.is_sorted_by(|a, b| ease("at_most", *a) <= ease("at_most", *b)));
}

#[test]
fn sides_that_two_sessions_measured_are_inconclusive() {
    let mut run = functions(&["glibc", "apex"]).run(|point| match point.text("function") {
        "apex" => 20e9,
        _ => 10e9,
    });
    for sample in run.samples.iter_mut().filter(|one| one.point.text("function") == "apex") {
        sample.session = 2;
    }
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.5 }}");
    let verdict = assert_kind(&keys, &run, Inconclusive);
    let lost = r#""lost":{"missing":0,"other_class":0,"other_sharing":0,"other_session":20}"#;
    assert!(reasons(&verdict).contains(lost), "{verdict:?}");
    assert!(reasons(&verdict).contains("tollgate run --claim"), "{verdict:?}");
}

#[test]
fn a_side_that_cannot_be_measured() {
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 0.5 }}");
    let mut run = functions(&["glibc", "apex"]).run(|_| 10e9);
    fail(
        &mut run,
        &Failure::unsupported("this CPU has no AVX-512", "use another machine"),
        |point| point.text("function") == "apex",
    );
    let verdict = assert_kind(&keys, &run, Unmeasurable);
    assert!(reasons(&verdict).contains("no AVX-512"), "{verdict:?}");
}

#[test]
fn a_ranking() {
    let run = functions(&["glibc", "apex", "naive"]).run(|point| match point.text("function") {
        "apex" => 15e9,
        "glibc" => 12e9,
        _ => 10e9,
    });
    let keys = |order: [&str; 3]| {
        let filters = order.map(|name| format!("{{ function = \"{name}\" }}")).join(", ");
        format!("expect = {{ ranking = [{filters}], each = [\"length\"] }}")
    };
    let verdict = assert_kind(&keys(["apex", "glibc", "naive"]), &run, Reproduced);
    assert_eq!(verdict.values().count(), 4, "two neighbours at two lengths");
    assert_kind(&keys(["glibc", "apex", "naive"]), &run, Contradicted);
    let even = functions(&["glibc", "apex", "naive"]).run(|_| 10e9);
    assert_kind(&keys(["apex", "glibc", "naive"]), &even, Inconclusive);
    // The same values as times: the order reverses.
    let mut made_up = functions(&["glibc", "apex", "naive"]);
    made_up.metric = "latency";
    let times = made_up.run(|point| match point.text("function") {
        "apex" => 15.0,
        "glibc" => 12.0,
        _ => 10.0,
    });
    assert_kind(&keys(["naive", "glibc", "apex"]), &times, Reproduced);
    assert_kind(&keys(["apex", "glibc", "naive"]), &times, Contradicted);
}

#[test]
fn a_ratio_above_the_limit_of_the_machine_is_unmeasurable() {
    let made_up = functions(&["glibc", "apex", "stores"]);
    let run = |apex: f64, stores: f64| {
        made_up.run(|point| match point.text("function") {
            "apex" => apex,
            "stores" => stores,
            _ => 10e9,
        })
    };
    let keys = format!(
        "expect = {{ {RATIO}, each = [\"length\"], at_least = 1.3, limit = {{ function = \"stores\" }} }}"
    );
    let verdict = assert_kind(&keys, &run(10.5e9, 11.5e9), Unmeasurable);
    assert!(
        reasons(&verdict).contains(r#""reason":"machine-limit","ratio":{"ratio":1.1"#),
        "{verdict:?}"
    );
    assert_kind(&keys, &run(11e9, 20e9), Contradicted);
    assert_kind(&keys, &run(14e9, 20e9), Reproduced);
}

#[test]
fn without_a_noise_floor_there_is_no_verdict() {
    let truth =
        |point: &lab::point::Point| if point.text("function") == "apex" { 12e9 } else { 10e9 };
    let ratio = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.1 }}");
    let ranking = "expect = { ranking = [{ function = \"apex\" }, { function = \"glibc\" }], each = [\"length\"] }";
    let winner = "expect = { winner_changes = \"function\", along = \"length\" }";
    let made_up = functions(&["glibc", "apex"]);
    let whole = made_up.run(truth);
    let keys = [(ratio.as_str(), Reproduced), (ranking, Reproduced), (winner, Contradicted)];
    for (keys, kind) in keys {
        let with = |twins: u32| {
            let mut run = whole.clone();
            run.samples.retain(|sample| !sample.twin || sample.round < twins);
            run
        };
        assert_kind(keys, &with(6), kind);
        for twins in [0, 1, 5] {
            let verdict = assert_kind(keys, &with(twins), Inconclusive);
            assert!(reasons(&verdict).contains(r#""reason":"no-floor""#), "{verdict:?}");
        }
        // An experiment without twins has no floor either.
        let mut counts = with(0);
        counts.record.experiments.values_mut().for_each(|one| one.twins.clear());
        let verdict = assert_kind(keys, &counts, Inconclusive);
        assert!(reasons(&verdict).contains(r#""reason":"no-floor","rounds":null"#), "{verdict:?}");
    }
}

#[test]
fn a_limit_needs_rounds_and_is_clear_of_the_bound() {
    let run = functions(&["glibc", "apex", "stores"]).run(|point| match point.text("function") {
        "apex" => 10.5e9,
        "stores" => 11.5e9,
        _ => 10e9,
    });
    let keys = format!(
        "expect = {{ {RATIO}, each = [\"length\"], at_least = 1.3, limit = {{ function = \"stores\" }} }}"
    );
    let with = |rounds: u32| {
        let mut run = run.clone();
        run.samples
            .retain(|sample| sample.point.text("function") != "stores" || sample.round < rounds);
        run
    };
    assert_kind(&keys, &with(10), Unmeasurable);
    assert_kind(&keys, &with(1), Contradicted);
    assert_kind(&keys, &with(5), Contradicted);
    // The ratio of 1.05 differs from the bound by more than the noise floor; the limit of 1.15 does not.
    let mut noisy = run.clone();
    for sample in noisy.samples.iter_mut().filter(|sample| sample.twin) {
        *sample.values.get_mut("throughput").unwrap() *= 1.15;
    }
    assert_kind(&keys, &noisy, Contradicted);
}

#[test]
fn a_ratio_of_points_that_often_fail_is_inconclusive() {
    let whole = functions(&["glibc", "apex"])
        .run(|point| if point.text("function") == "apex" { 12e9 } else { 10e9 });
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.1 }}");
    let with = |failed: u32| {
        let mut run = whole.clone();
        crate::fail_rounds(&mut run, failed, |point| point.text("function") == "glibc");
        run
    };
    assert_kind(&keys, &with(2), Reproduced);
    let verdict = assert_kind(&keys, &with(3), Inconclusive);
    assert!(reasons(&verdict).contains(r#""failed":3,"rounds":20,"max":0.1"#), "{verdict:?}");
}

#[test]
fn many_lost_rounds_must_not_decide() {
    let made_up = functions(&["glibc", "apex"]);
    let whole = made_up.run(|point| if point.text("function") == "apex" { 12e9 } else { 10e9 });
    let keys = format!("expect = {{ {RATIO}, each = [\"length\"], at_least = 1.1 }}");
    // Another session measures one side of the first rounds, at a time when it is as slow as the other.
    let lose = |rounds: u32, slower: f64| {
        let mut run = whole.clone();
        let is_apex =
            |one: &&mut Sample| one.point.text("function") == "apex" && one.round < rounds;
        for sample in run.samples.iter_mut().filter(is_apex) {
            sample.session = 2;
            *sample.values.get_mut("throughput").unwrap() /= slower;
        }
        run
    };
    assert!(!reasons(&assert_kind(&keys, &lose(4, 2.0), Reproduced)).contains("many-lost"));
    let agrees = r#""reason":"many-lost","lost":12,"rounds":20,"#;
    assert!(reasons(&assert_kind(&keys, &lose(12, 1.0), Reproduced)).contains(agrees));
    let verdict = assert_kind(&keys, &lose(12, 2.0), Inconclusive);
    assert!(reasons(&verdict).contains(r#""agrees":false"#), "{verdict:?}");
}

#[test]
fn failures_of_a_point_are_not_diluted_by_the_rounds_of_the_other() {
    let made_up =
        MadeUp { rounds: 60, ..MadeUp::new(product(&["glibc", "apex"], &["4 KiB"], &["0"])) };
    let mut run = made_up.run(|point| if point.text("function") == "apex" { 20e9 } else { 10e9 });
    let is_apex = |point: &lab::point::Point| point.text("function") == "apex";
    run.samples.retain(|sample| !is_apex(&sample.point) || sample.round < 12);
    let keys = "expect = { ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, at_least = 1.5 }";
    assert_kind(keys, &run, Reproduced);
    fail_rounds(&mut run, 3, is_apex);
    let verdict = assert_kind(keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""failed":3,"rounds":12"#), "{}", reasons(&verdict));
}
