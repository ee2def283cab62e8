//! Tables of synthetic runs: contents and widths.

#![allow(clippy::unwrap_used)]

mod synthetic;

use lab::claim::{Claim, Verdict};
use lab::guest::GuestsRecord;
use lab::journal::Run;
use lab::measure::{BOTTLENECK, LIMITED};
use lab::method::{Method, Params, Probe};
use lab::point::{Filter, Point};
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, Sample};
use lab::schema::to_value;
use lab::side::{self, FACTOR, LEVELS, Side, SideRecord};
use lab::suite::Suite;
use lab::summary::Unit;
use machine::capability::{Capability, State};
use machine::cpu::CpuClock;
use proptest::prelude::*;
use report::table::{
    CompareOutput, Declared, Lack, Page, ShowOptions, compare, describe, doctor, doctor_output,
    judged_claims, list, list_output, measured, show, show_output, sides, sides_output, verdicts,
};

fn shown(run: &Run, options: &ShowOptions, page: Page) -> String {
    show(run, &measured(run), options, page).unwrap()
}

#[test]
fn sweeps_as_tables() {
    let run = synthetic::run(12);
    insta::assert_snapshot!(shown(&run, &ShowOptions::default(), Page::default()));
}

#[test]
fn a_table_states_the_guest_and_a_planted_clock() {
    let mut run = synthetic::run(3);
    for (accelerator, clock, place) in [
        ("kvm", CpuClock::Real, "guest mine, executed by KVM ("),
        ("kvm", CpuClock::Untimed, "guest mine, executed by KVM on an emulated CPU"),
        ("tcg", CpuClock::Untimed, "guest mine, emulated by TCG"),
        ("tcg", CpuClock::Planted, "guest mine, emulated by TCG, with a planted clock"),
    ] {
        let (name, declaration) = ("mine".into(), String::new());
        let accelerator = accelerator.into();
        run.record.guests = Some(GuestsRecord { name, declaration, accelerator, clock });
        let text = shown(&run, &ShowOptions::default(), Page { width: 1000, ..Page::default() });
        assert!(text.contains(place), "{text}");
        let is_planted = clock == CpuClock::Planted;
        assert_eq!(text.contains("planted clock: its times are not real"), is_planted, "{text}");
    }
    run.record.guests = None;
    run.record.environments.values_mut().for_each(|it| it.emulated = true);
    let text = shown(&run, &ShowOptions::default(), Page { width: 1000, ..Page::default() });
    assert!(text.contains(", emulated)"), "{text}");
}

#[test]
fn only_alternatives_have_a_best_one() {
    let stars = |alternatives: Option<&str>| {
        let mut run = synthetic::run(12);
        for experiment in run.record.experiments.values_mut() {
            experiment.alternatives = alternatives.map(String::from);
        }
        let text = shown(&run, &ShowOptions::default(), Page::default());
        text.lines().filter(|line| line.starts_with(char::is_numeric) && line.contains('*')).count()
    };
    assert_eq!([stars(None), stars(Some("direction"))], [0, 0]);
    // A function is the best in a row of lengths, a length in a column of functions.
    let (of_rows, of_columns) = (stars(Some("function")), stars(Some("length")));
    assert!(of_rows > 1 && of_columns == 1, "{of_rows} {of_columns}");
}

#[test]
fn values_that_the_instrument_limited_are_marked_and_not_beaten() {
    let mut run = synthetic::run(12);
    let text = shown(&run, &ShowOptions::default(), Page::default());
    assert!(!text.contains('≥') && text.contains('*'), "{text}");
    for sample in &mut run.samples {
        let limited = format!("other {}", "throughput");
        sample.covariates.insert(LIMITED.into(), limited.as_str().into());
        sample.covariates.insert(BOTTLENECK.into(), "NIC".into());
    }
    let text = shown(&run, &ShowOptions::default(), Page::default());
    for part in [
        "≥ at least: the search or the instrument",
        "bottleneck: NIC (all points)\n",
        "the instrument may have limited the value in ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Any point may be the best.
    assert!(!text.contains('*') && !text.contains(LIMITED), "{text}");
    // A single round is no more than a bound either.
    run.samples.retain(|sample| sample.round == 0);
    let text = shown(&run, &ShowOptions::default(), Page::default());
    assert!(text.contains('≥'), "{text}");
}

#[test]
fn points_with_another_bottleneck_are_named() {
    let mut run = synthetic::run(12);
    for sample in &mut run.samples {
        let of = if sample.point.text("length") == "64 KiB" { "application" } else { "NIC" };
        sample.covariates.insert(BOTTLENECK.into(), of.into());
    }
    let mut options = ShowOptions::default();
    for one in ["threads=0,2", "memory=heap", "function=glibc", "direction=write"] {
        options.filter.add(one).unwrap();
    }
    let text = shown(&run, &options, Page::default());
    let line = text.lines().find(|line| line.starts_with("bottleneck: ")).unwrap();
    assert!(
        line.contains("NIC (") && line.ends_with("application (baseline; 2 threads)"),
        "{line}"
    );
    let all = shown(&run, &ShowOptions::default(), Page::default());
    assert!(all.contains("bottleneck: NIC (") && all.contains(" points), application ("), "{all}");
}

#[test]
fn unnamed_default_levels_are_not_shown() {
    let run = synthetic::run(12);
    let mut complete = run.clone();
    let with_default = |point: &mut Point| *point = point.with("mode", "jobs");
    for experiment in complete.record.experiments.values_mut() {
        experiment.defaults = Point::from([("mode", "jobs")]);
        let points = experiment.points.iter_mut().chain(&mut experiment.twins);
        points.chain([&mut experiment.baseline]).for_each(with_default);
    }
    complete.samples.iter_mut().for_each(|sample| with_default(&mut sample.point));
    let text = |run| shown(run, &ShowOptions::default(), Page::default());
    assert_eq!(text(&complete), text(&run));
}

#[test]
fn few_rounds_give_a_range() {
    let run = synthetic::run(3);
    let filter = "threads=0,2,8";
    let mut options = ShowOptions::default();
    options.filter.add(filter).unwrap();
    options.filter.add("length=64 KiB").unwrap();
    options.filter.add("memory=heap").unwrap();
    insta::assert_snapshot!(shown(&run, &options, Page { width: 80, colour: false }));
}

#[test]
fn short_times_show_their_minimum_and_cycles() {
    let run = synthetic::latencies(10);
    let options = ShowOptions { unit: Unit::Cycles, ..ShowOptions::default() };
    let default = shown(&run, &ShowOptions::default(), Page::default());
    insta::assert_snapshot!(default + "\n" + &shown(&run, &options, Page::default()));
}

#[test]
fn differences_below_the_noise_floor_are_not_marked() {
    let text = shown(&synthetic::run(12), &ShowOptions::default(), Page::default());
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("4 KiB ").contains('*'), "{text}");
    assert!(!line("64 KiB ").contains('*'), "{text}");
}

#[test]
fn memory_does_not_grow_with_the_round_number() {
    let mut run = synthetic::run(12);
    let last = Sample { round: u32::MAX, ..run.samples[0].clone() };
    run.samples.push(last);
    let text = shown(&run, &ShowOptions::default(), Page::default());
    assert!(text.lines().any(|line| line.starts_with("4 KiB ") && line.contains('*')), "{text}");
}

#[test]
fn each_cause_is_noted_once() {
    let text = shown(&synthetic::run(12), &ShowOptions::default(), Page::default());
    assert_eq!(text.matches("there is no /dev/mem").count(), 1, "{text}");
    assert_eq!(text.matches("CONFIG_DEVMEM").count(), 1);
}

#[test]
fn unmeasured_points_are_marked() {
    let mut run = synthetic::run(6);
    run.samples.retain(|sample| sample.point.text("threads") != "8");
    let text = shown(&run, &ShowOptions::default(), Page::default());
    assert!(text.contains("… not measured yet"), "{text}");
}

#[test]
fn colour_does_not_change_the_text() {
    let run = synthetic::run(12);
    let plain = shown(&run, &ShowOptions::default(), Page::default());
    let colour = shown(&run, &ShowOptions::default(), Page { width: 100, colour: true });
    assert_ne!(plain, colour);
    let stripped = anstream::adapter::strip_str(&colour).to_string();
    let lines = |text: &str| text.lines().map(|l| l.trim_end().to_string()).collect::<Vec<_>>();
    assert_eq!(lines(&stripped), lines(&plain));
}

#[test]
fn json_has_every_point() {
    let run = synthetic::run(12);
    let shown = show_output(&run, &measured(&run), &ShowOptions::default()).unwrap();
    let json = to_value(&shown).unwrap();
    let experiment = &json["experiments"][0];
    let rows = experiment["rows"].as_array().unwrap();
    assert_eq!(rows.len(), synthetic::experiment().points.len());
    assert_eq!(rows[0]["point"]["length"], "16 B");
    assert_eq!(rows[0]["estimate"]["rounds"], 12);
    assert_eq!(experiment["record"]["unit"], "B/s");
}

#[test]
fn missing_data_is_a_one_line_error() {
    let run = synthetic::run(2);
    let error = show(&run, &["copy/frames".into()], &ShowOptions::default(), Page::default());
    insta::assert_snapshot!(error.unwrap_err(), @"testbed-quick-1: no samples of 'copy/frames'; measure first with 'tollgate run copy/frames'");
    let options = ShowOptions { metric: Some("speed".into()), ..ShowOptions::default() };
    let error = show(&run, &measured(&run), &options, Page::default());
    insta::assert_snapshot!(error.unwrap_err(), @"testbed-quick-1: 'copy/throughput' has no metric 'speed'; expected one of latency, throughput");
    let options = ShowOptions { unit: Unit::Cycles, ..ShowOptions::default() };
    let error = show(&run, &measured(&run), &options, Page::default());
    insta::assert_snapshot!(error.unwrap_err(), @"'throughput' is in B/s: only times in ns can be shown in ticks or cycles");
}

const CLAIMS: &str = r#"
[[claim]]
id = "rep-ahead"
says = "rep movsb is ahead of glibc at 4 KiB by 1.3 or more"
source = "tollgate"
experiment = "copy/throughput"
where = { length = "4 KiB", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "rep" }, to = { function = "glibc" }, at_least = 1.3 }

[[claim]]
id = "memory-limit"
says = "With no threads a copy on the heap reaches the limit of the memory bus"
source = "ESCAPE benchmarking, page 4"
experiment = "copy/throughput"
where = { length = "16 MiB", memory = "heap", direction = "write", function = "glibc", threads = 0 }
metric = "throughput"
published = { value = 23.46e9, unit = "B/s", on = "Xeon hosts with DDR4-2933" }
carries_over = "nowhere"

[[claim]]
id = "device-slow"
says = "Device memory is two orders of magnitude slower than the heap"
source = "ESCAPE benchmarking, page 4"
experiment = "copy/throughput"
where = { length = "16 MiB", function = "glibc", threads = 0, direction = "write" }
expect = { ratio_of = { memory = "heap" }, to = { memory = "device" }, at_least = 100 }

[[claim]]
id = "naive-wins"
says = "The naive loop is the fastest at 16 B"
source = "ESCAPE benchmarking, page 6"
experiment = "copy/throughput"
where = { length = "16 B", memory = "heap", direction = "write", threads = 0 }
expect = { ratio_of = { function = "naive" }, to = { function = "glibc" }, at_least = 1.5 }
"#;

fn judged(run: &Run) -> Vec<(Claim, Verdict)> {
    let file = lab::catalogue::DataFile::read("claims.toml", CLAIMS, None).unwrap();
    let claims = file.claims().to_vec();
    let judge = |claim: Claim| {
        let verdict = lab::claim::judge(&claim, Some(run), 4);
        (claim, verdict)
    };
    claims.into_iter().map(judge).collect()
}

#[test]
fn claims_have_verdicts() {
    let judged = judged(&synthetic::run(12));
    insta::assert_snapshot!(verdicts(&judged, false, Page::default()));
    let json = serde_json::to_value(judged_claims(&judged)).unwrap();
    assert_eq!(json[0]["verdict"], "reproduced");
    assert_eq!(json[3]["verdict"], "contradicted");
    assert_eq!(json[1]["published"]["value"], 23.46e9);
    assert_eq!(verdicts(&[], false, Page::default()), "no claims\n");
}

#[test]
fn claims_on_near_and_far_cores_are_explained() {
    let why = |is_far: &dyn Fn(u32) -> bool, factor: f64| {
        let mut run = synthetic::run(20);
        for sample in &mut run.samples {
            let is_far = is_far(sample.round);
            let round_trip = if is_far { "400" } else { "100" };
            sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
            if is_far && sample.point.text("function") == "rep" {
                sample.values.values_mut().for_each(|value| *value *= factor);
            }
        }
        let json = serde_json::to_value(judged_claims(&judged(&run))).unwrap();
        json[0]["why"].as_str().unwrap().to_owned()
    };
    let differ = why(&|round| round % 2 == 1, 0.8);
    assert!(differ.starts_with("reproduced with near cores and contradicted with far cores: "));
    assert!(differ.contains("10 rounds with near cores, claimed at least 1.3; "), "{differ}");
    assert!(differ.contains("10 rounds with far cores, claimed at least 1.3"), "{differ}");
    let agree = why(&|round| round % 2 == 1, 1.0);
    assert!(agree.contains("10 rounds with near cores, claimed at least 1.3; "), "{agree}");
    assert!(agree.contains("10 rounds with far cores, claimed at least 1.3"), "{agree}");
    let few = why(&|round| round % 5 == 1, 0.8);
    assert!(few.contains("16 rounds with near cores, claimed at least 1.3"), "{few}");
    assert!(few.ends_with("; 4 rounds with far cores: too few to judge"), "{few}");
}

#[test]
fn the_limit_of_near_cores_is_shown_if_there_are_both() {
    let shown_with = |is_far: &dyn Fn(u32) -> bool| {
        let mut run = synthetic::run(20);
        for sample in &mut run.samples {
            let round_trip = if is_far(sample.round) { "400" } else { "100" };
            sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
        }
        let text = shown(&run, &ShowOptions::default(), Page::default());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let both = shown_with(&|round| round < 8);
    assert!(both.contains("near if a round trip between them takes less than 200 ns"), "{both}");
    assert!(both.contains("~ median over rounds with near and with far cores"), "{both}");
    assert!(!shown_with(&|_| true).contains("round trip"));
}

#[test]
fn levels_of_covariates_are_shown_with_their_points() {
    let mut run = synthetic::run(6);
    for sample in &mut run.samples {
        let is_rep = sample.point.text("function") == "rep";
        let given = if is_rep { "write-combining" } else { "uncached-minus" };
        sample.covariates.insert("memory_type".into(), given.into());
    }
    let rep = |sample: &&lab::sample::Sample| sample.point.text("function") == "rep";
    let points: std::collections::BTreeSet<_> =
        run.samples.iter().filter(|sample| !sample.twin).filter(rep).map(|s| &s.point).collect();
    let expected = format!("write-combining ({} points)", points.len());
    let text = shown(&run, &ShowOptions::default(), Page::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("memory_type: uncached-minus (") && text.contains(&expected), "{text}");
}

#[test]
fn comparison_of_two_runs() {
    // Runs differ by 1%, and naive copies of B are faster by 25%.
    let run = |number: usize, faster: f64| {
        let mut run = synthetic::run(12);
        run.record.name = format!("testbed-quick-{number}");
        run.record.seed = (number as f64 * faster * 100.0) as u64;
        for sample in &mut run.samples {
            let naive = sample.point.text("function") == "naive";
            let factor = (1.0 + number as f64 / 100.0) * if naive { faster } else { 1.0 };
            sample.values.values_mut().for_each(|value| *value *= factor);
        }
        run
    };
    let side = |numbers: [usize; 3], faster| numbers.map(|number| run(number, faster));
    let (a, mut b) = (side([1, 2, 3], 1.0), side([2, 3, 1], 1.25));
    let comparison = |a: &[Run], b: &[Run]| {
        lab::compare::compare(a, b, &["copy/throughput"], None, Unit::Own).unwrap()
    };
    let all = comparison(&a, &b);
    insta::assert_snapshot!(compare(&all, &a[0], Page::default()));
    let json = to_value(&CompareOutput { comparisons: &all }).unwrap();
    assert_eq!(json["comparisons"][0]["rows"].as_array().unwrap().len(), all[0].rows.len());
    b[0].record.nice = 7;
    let text = compare(&comparison(&a[..1], &b[..1]), &a[0], Page::default());
    assert!(text.contains("note: the nice value is 0 in A and 7 in B"), "{text}");
    assert!(text.contains("26 not judged: one run each"), "{text}");
    // Rounds with near and with far cores are separate rows, each shown once.
    let mut a = a;
    for sample in a.iter_mut().chain(&mut b).flat_map(|run| &mut run.samples) {
        let round_trip = if sample.round % 2 == 0 { "100" } else { "400" };
        sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
    }
    let text = compare(&comparison(&a, &b), &a[0], Page::default());
    for row in ["16 B    naive     near ", "16 B    naive     far "] {
        assert_eq!(text.matches(row).count(), 1, "{text}");
    }
}

/// Returns a run with sides. The new side is a fifth slower at 4 KiB, and cannot measure the function 'rep'.
fn run_with_sides() -> Run {
    let mut run = synthetic::run(12);
    let experiment = run.record.experiments.get_mut("copy/throughput").unwrap();
    side::cross(experiment);
    let side_of = |sample: &Sample, level: &str| {
        let point = sample.point.with(FACTOR, level);
        let mut sample = Sample { point, ..sample.clone() };
        if level == LEVELS[1] && sample.point.text("length") == "4 KiB" {
            sample.values.values_mut().for_each(|value| *value *= 0.8);
        }
        if level == LEVELS[1] && sample.point.text("function") == "rep" {
            sample.values.clear();
            sample.error = Some(Failure::unavailable("unknown level 'rep'", "build it again"));
        }
        sample
    };
    let samples = run.samples.iter();
    run.samples = samples.flat_map(|one| LEVELS.map(|level| side_of(one, level))).collect();
    run.record.sides = ["-", "nice=5 MALLOC_ARENA_MAX=1"]
        .map(|text| SideRecord {
            side: Side::parse(text).unwrap(),
            version: "0.1.0".into(),
            digest: Some("0123456789abcdef".into()),
        })
        .to_vec();
    run
}

#[test]
fn comparison_of_two_sides() {
    let run = run_with_sides();
    let compared = [lab::compare::compare_sides(&run, "copy/throughput", None).unwrap()];
    insta::assert_snapshot!(sides(&compared, &run, Page::default()));
    let json = to_value(&sides_output(&compared, &run)).unwrap();
    assert_eq!(json["sides"]["new"]["nice"], 5);
    assert_eq!(json["comparisons"][0]["rows"].as_array().unwrap().len(), compared[0].rows.len());
}

#[test]
fn doctor_lists_capabilities() {
    let capability = |name: &str, state| Capability {
        name: name.into(),
        about: "what it is in a few words".into(),
        state,
    };
    let present = State::Present { detail: "512 pages of 2 MiB".into() };
    let absent = State::Absent {
        reason: "this kernel has no /dev/mem".into(),
        remedy: "boot a kernel with CONFIG_DEVMEM=y and iomem=relaxed on its command line".into(),
    };
    let groups = [
        ("machine".to_string(), vec![capability("huge-pages-2m", present)]),
        ("copy".to_string(), vec![capability("dev-mem", absent)]),
        ("bounds".to_string(), Vec::new()),
    ];
    let lacks = [Lack {
        cause: "no /dev/mem".into(),
        remedy: Some("boot another kernel".into()),
        claims: 12,
    }];
    insta::assert_snapshot!(doctor(&groups, &lacks, Page { width: 80, colour: false }));
    let json = to_value(&doctor_output(&groups, &lacks, &[])).unwrap();
    assert_eq!(json["groups"][1]["capabilities"][0]["state"]["state"], "absent");
}

/// A suite without device memory.
static COPY: Suite = Suite::new("copy", "memory copies", lab::suite::Data::EMPTY, &[&Throughput]);

struct ThroughputParams {
    memory: String,
}

impl Params for ThroughputParams {
    const FACTORS: &'static [lab::factor::Factor] = &[lab::factor::Factor {
        name: "length",
        about: "How many bytes are copied at once",
        unit: "",
        levels: lab::factor::Levels::Bytes(0, u64::MAX),
        default: "64 KiB",
    }];

    fn from_point(point: &Point) -> Result<Self, Failure> {
        Ok(Self { memory: point.text("memory").to_owned() })
    }
}

struct Throughput;

impl Method for Throughput {
    type Params = ThroughputParams;

    fn name(&self) -> &'static str {
        "throughput"
    }
    fn how(&self) -> &'static str {
        "A test. Nothing is timed."
    }

    fn metrics(&self) -> &'static [lab::metric::Metric] {
        &[]
    }

    fn available(&self, params: &ThroughputParams) -> Result<(), Failure> {
        match params.memory.as_str() {
            "device" => Err(Failure::unavailable("there is no /dev/mem", "boot another kernel")),
            _ => Ok(()),
        }
    }

    fn probe(&self) -> Result<Box<dyn Probe<ThroughputParams>>, Failure> {
        Err(Failure::failed("synthetic"))
    }
}

#[test]
fn list_shows_experiments_and_factors() {
    let suites: [&Suite; 1] = [&COPY];
    let experiments = [synthetic::experiment()];
    let file = lab::catalogue::DataFile::read("claims.toml", CLAIMS, None).unwrap();
    let figure = lab::figure::Figure::adhoc("copy/throughput", "length");
    let declared = Declared { claims: file.claims().to_vec(), figures: vec![figure] };
    let text = list(&suites, &experiments, &declared, Page::default());
    let more = describe("copy/throughput", &suites, &experiments[0], Page::default());
    let named = declared.text(&experiments, Page::default());
    insta::assert_snapshot!(text + "\n" + &more + "\n" + &named);
    let json = to_value(&list_output(&suites, &experiments, &declared)).unwrap();
    let json = &json["suites"];
    assert_eq!(json[0]["experiments"][0]["available"], 26);
    assert_eq!(json[0]["claims"].as_array().unwrap().len(), file.claims().len());
    assert_eq!(json[0]["figures"][0]["id"], "copy-throughput-length");
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(6)))]

    #[test]
    fn no_table_is_wider_than_its_page(
        width in 60usize..200,
        rounds in 1u32..14,
        long in "[a-z]{1,90}",
        many in 1usize..40,
    ) {
        let mut run = synthetic::run(rounds);
        let baseline = synthetic::experiment().baseline;
        let experiment = run.record.experiments.get_mut("copy/throughput").unwrap();
        for number in 0..many {
            let point = baseline.with("function", format!("{long}{number}"));
            experiment.points.push(point.clone());
            run.samples.push(synthetic::sample(&point, false, 0));
        }
        let page = Page { width, colour: false };
        let (judged, suites) = (judged(&run), [&COPY]);
        prop_assert!(widest(&verdicts(&judged, false, page)) <= width);
        let mut other = run.clone();
        other.record.seed += 1;
        let comparisons =
            lab::compare::compare(&[run.clone()], &[other], &["copy/throughput"], None, Unit::Own).unwrap();
        prop_assert!(widest(&compare(&comparisons, &run, page)) <= width);
        let experiment = run.record.experiments["copy/throughput"].clone();
        prop_assert!(widest(&describe("an experiment", &suites, &experiment, page)) <= width);
        prop_assert!(widest(&list(&suites, &[experiment], &Declared::default(), page)) <= width);
        let mut whole = Filter::default();
        whole.add("memory=heap,shared").unwrap();
        for filter in [Filter::default(), whole] {
            let options = ShowOptions { filter, ..ShowOptions::default() };
            let text = shown(&run, &options, page);
            prop_assert!(widest(&text) <= width, "{width}:\n{text}");
        }
    }
}
