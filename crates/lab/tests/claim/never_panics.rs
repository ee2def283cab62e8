//! Every claim on every run gets a one-line verdict.

use std::fs;
use std::sync::LazyLock;

use lab::claim::judge;
use lab::compare::compare;
use lab::journal::{Journal, RECORD, Run, SAMPLES, open};
use lab::measure::Measurement;
use lab::point::Point;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, Sample};
use lab::summary::{Unit, summarise};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::claim;
use crate::made_up::{EXPERIMENT, MadeUp, product};
use crate::mutation::{bounded, edits, is_one_line, mutated};

const EXPECTED: [&str; 26] = [
    "expect = { sometimes = { above = 2, below = 1 } }",
    "expect = { at_least = 1 }",
    "expect = { at_least = 0, at_most = 5, hold = \"some\" }",
    "expect = { never = { above = 2, below = 0 } }",
    "expect = { always = { at_least = 1 } }",
    "carries_over = \"anywhere\"\npublished = { value = 2, unit = \"B/s\", tolerance = \"10%\" }",
    "carries_over = \"nowhere\"\npublished = { value = 2, unit = \"B/s\" }",
    "carries_over = { cpu = \"AMD family 25\" }\npublished = { value = 2, unit = \"B/s\", tolerance = \"50%\" }",
    "carries_over = { where = { function = \"a\" } }\npublished = { value = 2, unit = \"B/s\", tolerance = \"50%\" }",
    "requires = { hypervisor = true, capability = \"sgx\" }\nexpect = { at_least = 1 }",
    "expect = { ratio_of = { function = \"a\" }, to = { function = \"b\" }, at_least = 1 }",
    "expect = { ratio_of = { function = [\"a\", \"b\"] }, to = { function = \"c\" }, at_most = 2, each = [\"length\"] }",
    "expect = { ratio_of = {}, to = { length = \"1\" }, at_most = 2, each = [\"length\"] }",
    "expect = { ratio_of = { function = \"a\" }, to = { function = \"b\" }, baselines = [{ function = \"c\" }, { length = \"1\" }], at_least = 1 }",
    "expect = { ratio_of = {}, to = {}, at_most = 2, each = [\"nothing\"], hold = \"some\" }",
    "expect = { ratio_of = {}, to = {}, at_least = 1 }",
    "expect = { ranking = [{ function = \"a\" }, { function = \"b\" }, { function = \"c\" }] }",
    "expect = { ranking = [{}, { function = \"b\" }], each = [\"length\"], hold = \"some\" }",
    "expect = { winner_changes = \"function\", along = \"length\" }",
    "expect = { winner_changes = \"length\", along = \"length\" }",
    "expect = { shape = \"rises\", along = \"length\", each = [\"function\"] }",
    "expect = { shape = \"flat\", along = \"length\", within = \"5%\" }",
    "expect = { shape = \"saturates\", along = \"length\", beyond = 2, within = \"5%\", each = [\"function\"] }",
    "expect = { twins_differ_at_most = 1 }",
    "expect = { rounds_differ_at_most_steps = 1 }",
    "expect = { rounds_differ_at_most = \"1%\", hold = \"95%\" }",
];
const WHERE: [&str; 4] = [
    "",
    "where = { function = \"a\" }",
    "where = { function = [\"a\", \"b\"], length = 2 }",
    "where = { nothing = 1 }",
];
const METRICS: [&str; 5] =
    ["", "metric = \"latency\"", "metric = \"calls\"", "metric = \"unknown\"", "rounds = 1"];

/// Contents of one sample.
#[derive(Debug, Clone)]
struct Any {
    point: (&'static str, &'static str),
    twin: bool,
    round: u32,
    value: f64,
    round_trip: Option<&'static str>,
    fate: u8,
}

fn any_sample() -> impl Strategy<Value = Any> {
    let point = (select(vec!["a", "b", "c"]), select(vec!["1", "2", "3", "x"]));
    let value = prop_oneof![
        5 => 0.5..5.0f64,
        1 => select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300, f64::MIN_POSITIVE]),
    ];
    let round_trip = select(vec![None, Some("100"), Some("400"), Some("-1"), Some("far")]);
    (point, any::<bool>(), 0u32..14, value, round_trip, 0u8..20).prop_map(
        |(point, twin, round, value, round_trip, fate)| Any {
            point,
            twin,
            round,
            value,
            round_trip,
            fate,
        },
    )
}

fn run(samples: &[Any], metric: &'static str) -> lab::journal::Run {
    let mut made_up = MadeUp::new(Vec::new());
    made_up.metric = metric;
    made_up.points =
        ["1", "2"].map(|length| Point::from([("function", "a"), ("length", length)])).into();
    made_up.rounds = 0;
    let mut run = made_up.run(|_| 1.0);
    for any in samples {
        let point = Point::from([("function", any.point.0), ("length", any.point.1)]);
        let mut sample = made_up.sample(&point, any.twin, any.round, any.value);
        let round_trip = any.round_trip.map(|time| (ROUND_TRIP.to_string(), time.into()));
        sample.covariates.extend(round_trip);
        match any.fate {
            0 => sample.error = Some(Failure::unsupported("lacks\nit", "use another machine")),
            1 => sample.error = Some(Failure::failed("broke")),
            2 => sample.void = Some("moved".into()),
            3 => sample.values.clear(),
            4 => sample.environment = "e2".into(),
            5 => sample.point = Point::default(),
            6 => sample.clock = None,
            _ => {}
        }
        run.samples.push(sample);
    }
    run
}

proptest! {
    #[test]
    fn there_is_always_a_verdict(
        samples in vec(any_sample(), 0..150),
        metric in select(vec!["throughput", "latency", "calls"]),
        others in vec(any_sample(), 0..60),
        place in select(WHERE.to_vec()),
        named in select(METRICS.to_vec()),
    ) {
        let run = run(&samples, metric);
        for expected in EXPECTED {
            let claim = claim(&format!("{place}\n{named}\n{expected}"));
            let verdict = judge(&claim, Some(&run), 2);
            crate::assert_reasons(&verdict);
            prop_assert_eq!(&verdict, &judge(&claim, Some(&run), 2));
        }
        for unit in [Unit::Own, Unit::Ticks, Unit::Cycles] {
            if let Ok(summary) = summarise(&run, EXPERIMENT, metric, unit) {
                let rounds = |row: &lab::summary::Row| row.estimate.map_or(0, |e| e.rounds);
                prop_assert!(summary.rows.iter().all(|row| row.rounds == rounds(row)));
            }
            let repeated = |run: &Run, seed| {
                let mut run = run.clone();
                run.record.seed = seed;
                run
            };
            let a = [1, 2, 3].map(|seed| repeated(&run, seed));
            let other = repeated(&self::run(&others, metric), 4);
            prop_assert!(compare(&a, &a, &[EXPERIMENT], None, unit).is_err());
            let _ = compare(&a, &[4, 5, 6].map(|seed| repeated(&run, seed)), &[EXPERIMENT], None, unit);
            let _ = compare(&a, &[other], &[EXPERIMENT], None, unit);
        }
    }
}

/// The record and samples of a run with histograms, as stored on disk.
static JOURNAL: LazyLock<[String; 2]> = LazyLock::new(|| {
    let made_up = MadeUp { rounds: 12, ..MadeUp::new(product(&["a", "b"], &["1", "2"], &["1"])) };
    let run = made_up.run(|_| 2.0);
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    (1..20u64).for_each(|value| histogram.record(value * 1000).unwrap());
    let histograms = Measurement::default().histogram("latency", &histogram).unwrap().histograms;
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), || run.record).unwrap();
    for sample in run.samples {
        let covariates = [(ROUND_TRIP.to_string(), "100".into())].into();
        let histograms = histograms.clone();
        journal.append(&Sample { histograms, covariates, ..sample }).unwrap();
    }
    [RECORD, SAMPLES].map(|name| fs::read_to_string(folder.path().join(name)).unwrap())
});

/// Judges, summarises and compares these files; returns whether they could be read.
fn judge_all(texts: [&str; 2]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [RECORD, SAMPLES].into_iter().zip(texts) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let run = match open(folder.path()) {
        Ok(run) => run,
        Err(why) => {
            is_one_line(&why);
            return false;
        }
    };
    for expected in EXPECTED {
        for place in [WHERE[0], WHERE[1]] {
            let verdict = judge(&claim(&format!("{place}\n{expected}")), Some(&run), 2);
            crate::assert_reasons(&verdict);
        }
    }
    for unit in [Unit::Own, Unit::Ticks, Unit::Cycles] {
        let _ = summarise(&run, EXPERIMENT, "throughput", unit);
        let mut other = run.clone();
        other.record.seed ^= 1;
        let _ = compare(std::slice::from_ref(&run), &[other], &[EXPERIMENT], None, unit);
    }
    true
}

#[test]
fn the_unedited_journal_is_read() {
    assert!(judge_all([&JOURNAL[0], &JOURNAL[1]]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(3), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn an_edited_journal_is_judged_or_refused(record: bool, edits in edits()) {
        let [whole, samples] = &*JOURNAL;
        if record {
            bounded(|| judge_all([&mutated(whole, &edits), samples]));
        } else {
            bounded(|| judge_all([whole, &mutated(samples, &edits)]));
        }
    }
}
