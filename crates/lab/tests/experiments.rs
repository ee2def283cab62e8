//! Experiments from TOML: sweeps, exclusions, twins, profiles, and refusals.

use std::collections::BTreeSet;
use std::time::Duration;

use lab::catalogue::{Catalogue, DataFile};
use lab::data::DataError;
use lab::experiment::{Experiment, Profile};
use lab::factor::{LevelType, Levels};
use lab::method::{AnyMethod, Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::plan::{self, RoundOrder};
use lab::point::{Filter, Point};
use lab::sample::Failure;
use lab::suite::{Data, Suite};
use proptest::prelude::*;

static TOY: Suite = Suite::new("toy", "for tests", Data::EMPTY, &[&One, &CopyMethod]);

#[derive(Params)]
#[expect(dead_code, reason = "the method measures nothing")]
struct OneParams {
    /// Bytes
    #[factor(default = "64 KiB", levels = Levels::Bytes(0, u64::MAX))]
    length: u64,
    /// Threads
    #[factor(default = "0")]
    threads: u64,
    /// Memory
    #[factor(default = "heap")]
    memory: OneMemory,
}

#[derive(Clone, Copy, LevelType)]
enum OneMemory {
    Heap,
    Shared,
}

struct One;

impl Method for One {
    type Params = OneParams;

    fn name(&self) -> &'static str {
        "one"
    }
    fn how(&self) -> &'static str {
        "A test. Nothing is timed."
    }
    fn metrics(&self) -> &'static [Metric] {
        const { &[Metric::new("time", "ns", Better::Lower, "")] }
    }
    fn probe(&self) -> Result<Box<dyn Probe<OneParams>>, Failure> {
        Err(Failure::failed("a toy"))
    }
}

const SUITES: &[&Suite] = &[&TOY];

const WHOLE: &str = r#"
[[experiment]]
name = "one"
about = "a test"
metric = "time"
baseline = { memory = "heap", length = "64 KiB", threads = 0 }
sweeps = [["length"], ["threads", "memory"]]
exclude = [{ memory = "shared", threads = [4, 8] }]
[experiment.factors]
memory = ["heap", "shared"]
length = ["16 B", "65536", "1 MiB"]
threads = [0, 4, 8]
[experiment.quick]
rounds = 3
budget = "1 ms"
length = ["64 KiB"]
"#;

fn read(text: &str, suite: Option<&str>, profile: Profile) -> Result<Vec<Experiment>, DataError> {
    let file = DataFile::read("my.toml", text, suite)?;
    Catalogue::of_files(SUITES, vec![file])?.experiments(profile)
}

fn one(text: &str, profile: Profile) -> Result<Experiment, String> {
    read(text, Some("toy"), profile)
        .map(|mut experiments| experiments.remove(0))
        .map_err(|e| e.to_string())
}

#[test]
fn sweeps_vary_around_the_baseline() {
    let experiment = one(WHOLE, Profile::Standard).unwrap();
    let words: BTreeSet<_> = experiment.points.iter().map(Point::to_string).collect();
    let expected = [
        "length=16 B memory=heap threads=0",
        "length=64 KiB memory=heap threads=0",
        "length=1 MiB memory=heap threads=0",
        "length=64 KiB memory=heap threads=4",
        "length=64 KiB memory=heap threads=8",
        "length=64 KiB memory=shared threads=0",
    ];
    assert_eq!(words, expected.map(String::from).into());
    assert_eq!(experiment.points.len(), expected.len(), "no point twice");
    assert_eq!(experiment.twins, std::slice::from_ref(&experiment.baseline));
}

#[test]
fn a_profile_overrides_levels_rounds_and_budget() {
    let experiment = one(WHOLE, Profile::Quick).unwrap();
    assert_eq!(experiment.effort.rounds, 3);
    assert_eq!(experiment.effort.budget.as_micros(), 1000);
    assert!(experiment.points.iter().all(|point| point.text("length") == "64 KiB"));
}

#[test]
fn errors_have_their_location() {
    let cases = [
        ("threads = [0, 4, 8]", "threads = [0, -4]", "'-4' is not a whole number"),
        ("threads = [0, 4, 8]", "thread = [0]", "unknown factor 'thread'"),
        ("\"16 B\"", "\"16 Q\"", "a number of bytes"),
        (
            "metric = \"time\"",
            "metric = \"speed\"",
            "unknown metric 'speed' of method 'one'; expected one of time",
        ),
        ("\"threads\", \"memory\"]]", "\"cores\"]]", "'cores' is not a factor"),
        ("memory = \"heap\"", "memory = \"tape\"", "'tape' is not one of heap, shared"),
        ("about = \"a test\"", "abuot = \"a test\"", "abuot"),
        ("budget = \"1 ms\"", "budget = \"fast\"", "'fast' is not a time"),
        ("rounds = 3", "rounds = 0", "rounds: 0 is out of range; use 1 to 10000"),
        ("rounds = 3", "rounds = 4000000000", "rounds: 4000000000 is out of range; use 1 to 10000"),
        ("rounds = 3", "rounds = 3\nmin_rounds = 0\nresolve = \"100%\"", "'100%' is not a share"),
        ("budget = \"1 ms\"", "budget = \"15000000000000000000 s\"", "budget: "),
        ("rounds = 3", "rounds = 3\nmin_rounds = 4", "min_rounds = 4 exceeds the 3 rounds"),
        ("budget = \"1 ms\"", "budget = \"0 s\"", "budget: 0 s is not above 0 s"),
        ("budget = \"1 ms\"", "budget = \"-1 s\"", "'-1 s' is not a time"),
        ("budget = \"1 ms\"", "budget = \"nan s\"", "'nan s' is not a time"),
        ("budget = \"1 ms\"", "budget = \"inf s\"", "'inf s' is not a time"),
        ("about = \"a test\"", "about = \"\"\nlimit = \"900000000 s\"", "limit: 900000000 s"),
        ("about = \"a test\"", "about = \"\"\nbatch = 0", "batch: 0 is out of range; use 1 to"),
        (
            "about = \"a test\"",
            "about = \"\"\nbatch = 99999",
            "batch: 99999 is out of range; use 1 to",
        ),
        ("[[\"length\"]", "[[\"length\", \"length\"]", "sweeps: 'length' is listed twice"),
        ("threads = [0, 4, 8]", "threads = [0]\nthreads = [1]", "duplicate key"),
        ("threads = 0 }", "threads = 0, threads = 1 }", "duplicate key"),
        ("[4, 8] }", "[4, 8], threads = 1 }", "duplicate key"),
        ("threads = [0, 4, 8]", "threads = []", "levels of 'threads': 0 is out of range; use 1 to"),
        ("\"heap\", length", "\"he\\nap\", length", "'he\u{fffd}ap' is not one of"),
        (
            "about = \"a test\"",
            "about = \"\"\nroles = [\"a\", \"a\"]",
            "roles: 'a' is listed twice",
        ),
        ("about = \"a test\"", "about = \"\"\nroles = [\"\"]", "roles: '': use 1 to 64"),
    ];
    for (right, wrong, why) in cases {
        assert!(WHOLE.contains(right), "{right}");
        let line = one(&WHOLE.replace(right, wrong), Profile::Quick).unwrap_err();
        assert!(line.starts_with("my.toml:") && line.contains(why), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

/// Returns `n` levels of a factor of counts, as TOML.
fn counts(n: usize) -> String {
    (0..n).map(|count| count.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn too_many_points_are_refused_before_allocation() {
    let of = |threads: usize, lengths: usize, sweeps: &str| {
        format!(
            "[[experiment]]\nname = \"one\"\nabout = \"\"\nmetric = \"time\"\nsweeps = {sweeps}\n\
             [experiment.factors]\nthreads = [{}]\nlength = [{}]\n",
            counts(threads),
            counts(lengths)
        )
    };
    let refused = |text: &str| one(text, Profile::Quick).unwrap_err();
    let line = refused(&of(400, 400, "\"all\""));
    assert!(line.contains("make 160000 points, and the maximum per file is 100000"), "{line}");
    // The points of several sweeps add up, even if they are the same points.
    let sweep = "[\"threads\", \"length\"]";
    let line = refused(&of(200, 200, &format!("[{sweep}, {sweep}, {sweep}]")));
    assert!(line.contains("make 120000 points"), "{line}");
    let line = refused(&of(20_000, 1, "\"all\""));
    assert!(line.contains("levels of 'threads': 20000 is out of range; use 1 to 10000"), "{line}");
    // The points of all experiments of a file add up too.
    let three = [1, 2, 3].map(|number| {
        of(200, 200, "\"all\"")
            .replace("\"one\"", &format!("\"number-{number}\"\nmethod = \"one\""))
    });
    assert!(refused(&three.concat()).contains("'number-3': the sweeps make 40000 points"));
    let names: Vec<_> = (0..101).map(|_| "[\"threads\"]").collect();
    let line = refused(&of(1, 1, &format!("[{}]", names.join(","))));
    assert!(line.contains("sweeps: 101 is out of range; use 1 to 100"), "{line}");
    let line = refused(&" ".repeat((1 << 20) + 1));
    assert!(line.contains("longer than 1048576 bytes"), "{line}");
    let figures = "[[figure]]\nid = \"f\"\ntitle = \"\"\nexperiment = \"\"\n".repeat(1001);
    assert!(refused(&figures).contains("more than 1000 figures"));
}

#[test]
fn a_missing_suite_is_an_error_with_a_fix() {
    let line = read(WHOLE, None, Profile::Quick).unwrap_err().to_string();
    assert!(line.contains("'suite' is missing"), "{line}");
}

#[test]
fn names_are_plain_and_unique() {
    let refused = |text: &str| one(text, Profile::Quick).unwrap_err();
    let named = |name: &str| WHOLE.replacen("name = \"one\"", &format!("name = \"{name}\""), 1);
    for name in ["", "../../../x", "mi\\u001b[31mne", "a b", &"x".repeat(65)] {
        assert!(refused(&named(name)).contains("use 1 to 64 letters, digits"), "{name}");
    }
    let line = refused(&WHOLE.repeat(2));
    assert!(line.contains("experiment 'toy/one': my.toml:2 has the same ID"), "{line}");
}

#[test]
fn a_filter_reads_as_written_on_the_command_line() {
    let mut filter = Filter::default();
    filter.add("length=65536,16 B").unwrap();
    filter.add("memory=heap").unwrap();
    let filter = filter.canonical(OneParams::FACTORS).unwrap();
    let experiment = one(WHOLE, Profile::Standard).unwrap();
    let kept = experiment.points.iter().filter(|point| filter.matches(point)).count();
    assert_eq!(kept, 4);
    assert!(Filter::default().add("length").is_err());
    let mut twice = Filter::default();
    twice.add("length=16 B").unwrap();
    let line = twice.add(" length =64 KiB").unwrap_err();
    assert!(line.contains("'length' is named twice; list its levels together"), "{line}");
}

proptest! {
    #[test]
    fn every_round_measures_every_item_once(seed: u64, round in 0u32..500) {
        let experiment = one(WHOLE, Profile::Standard).unwrap();
        let items = plan::items(&experiment);
        let order = RoundOrder::new(&experiment).of_round(round, seed);
        let distinct: BTreeSet<_> = order.iter().collect();
        prop_assert_eq!(distinct.len(), items.len());
        prop_assert_eq!(order.len(), items.len());
        prop_assert_eq!(&order, &RoundOrder::new(&experiment).of_round(round, seed));
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in ".*") {
        if let Err(error) = read(&text, Some("toy"), Profile::Quick) {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }

    #[test]
    fn any_edit_is_read_or_refused_in_one_line(at in 0usize..600, with in "[\\[\\]{}=\"'a-z0-9 \n]{0,4}") {
        let at = at.min(WHOLE.len());
        let text = format!("{}{with}{}", &WHOLE[..at], &WHOLE[(at + 1).min(WHOLE.len())..]);
        if let Err(error) = read(&text, Some("toy"), Profile::Quick) {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
            prop_assert!(error.to_string().starts_with("my.toml:"), "{}", error);
        }
    }
}

/// The memory that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Memory {
    Heap,
    HeapHuge,
    #[level("/dev/shm")]
    Shared,
}

#[derive(Debug, PartialEq, Params)]
struct CopyParams {
    /// Bytes per call
    #[factor(default = "64 KiB", levels = Levels::Bytes(1, 1 << 30))]
    length: u64,
    /// The memory that is copied.
    #[factor(default = "heap")]
    memory: Memory,
    /// Threads besides the first
    #[factor(default = "0", levels = Levels::Count(0, 64))]
    threads: u32,
}

struct CopyMethod;

impl Method for CopyMethod {
    type Params = CopyParams;

    fn name(&self) -> &'static str {
        "copy"
    }
    fn how(&self) -> &'static str {
        "A test. Nothing is timed."
    }
    fn metrics(&self) -> &'static [Metric] {
        Method::metrics(&One)
    }
    fn available(&self, params: &CopyParams) -> Result<(), Failure> {
        match params.memory {
            Memory::Shared => Err(Failure::unavailable("it is not mounted", "mount it")),
            Memory::Heap | Memory::HeapHuge => Ok(()),
        }
    }
    fn expected(&self, params: &CopyParams, budget: Duration) -> Duration {
        budget * params.threads
    }
    fn probe(&self) -> Result<Box<dyn Probe<CopyParams>>, Failure> {
        Err(Failure::failed("a toy"))
    }
}

#[test]
fn a_struct_declares_factors_and_reads_points() {
    let factors = CopyParams::FACTORS;
    let declared: Vec<_> = factors.iter().map(|one| (one.name, one.about, one.default)).collect();
    let expected = [
        ("length", "Bytes per call", "64 KiB"),
        ("memory", "The memory that is copied", "heap"),
        ("threads", "Threads besides the first", "0"),
    ];
    assert_eq!(declared, expected);
    for factor in factors {
        assert_eq!(
            factor.level(factor.default).unwrap().as_str(),
            factor.default,
            "{}",
            factor.name
        );
    }
    assert_eq!(
        Memory::ALL.iter().map(|one| one.name()).collect::<Vec<_>>(),
        ["heap", "heap-huge", "/dev/shm"]
    );
    assert!(factors[1].level("tape").unwrap_err().contains("not one of heap, heap-huge, /dev/shm"));
    let point = Point::from([("length", "4 KiB"), ("memory", "heap-huge"), ("threads", "2")]);
    let params = CopyParams::from_point(&point).unwrap();
    assert_eq!(params, CopyParams { length: 4096, memory: Memory::HeapHuge, threads: 2 });
    let method: &dyn AnyMethod = &CopyMethod;
    assert_eq!(method.expected(&point, Duration::from_secs(1)), Duration::from_secs(2));
    assert!(method.available(&point).is_ok());
    assert!(method.available(&point.with("memory", "/dev/shm")).is_err());
    for (point, why) in [
        (point.without(["memory"]), "the point has no factor 'memory'"),
        (
            point.with("memory", "tape"),
            "factor 'memory': 'tape' is not one of heap, heap-huge, /dev/shm",
        ),
        (
            point.with("threads", "4294967296"),
            "factor 'threads': '4294967296' is not a whole number from 0 to 64",
        ),
    ] {
        assert_eq!(method.available(&point).unwrap_err().why, why);
    }
}

#[test]
fn points_name_every_factor_of_their_method() {
    const DEFAULTS: &str = "[[experiment]]\nname = \"copy\"\nabout = \"\"\nmetric = \"time\"\n\
                            sweeps = [[\"threads\"]]\n[experiment.factors]\nthreads = [1, 2]\n";
    let experiment = one(DEFAULTS, Profile::Quick).unwrap();
    let words: Vec<_> = experiment.points.iter().map(Point::to_string).collect();
    assert_eq!(
        words,
        ["length=64 KiB memory=heap threads=1", "length=64 KiB memory=heap threads=2"]
    );
    // Users see only the factors that the experiment names.
    assert_eq!(experiment.brief(&experiment.points[0]).to_string(), "threads=1");
    let line = one(&DEFAULTS.replace("threads", "cores"), Profile::Quick).unwrap_err();
    assert!(
        line.contains("unknown factor 'cores'; expected one of length, memory, threads"),
        "{line}"
    );
}

#[derive(Debug, PartialEq, Params)]
struct PausedParams {
    #[factor(flatten)]
    copy: CopyParams,
    /// Microseconds between calls
    #[factor(default = "0")]
    pause: u64,
}

#[test]
fn params_contain_those_that_methods_share() {
    let names: Vec<_> = PausedParams::FACTORS.iter().map(|one| one.name).collect();
    assert_eq!(names, ["length", "memory", "threads", "pause"]);
    let point = Point::from([("threads", "3"), ("pause", "7")]);
    let copy = CopyParams { length: 65536, memory: Memory::Heap, threads: 3 };
    let params = PausedParams::with_defaults(&point).unwrap();
    assert_eq!(params, PausedParams { copy, pause: 7 });
}
