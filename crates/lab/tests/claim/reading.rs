//! Claims read from TOML and checked against a suite.

use lab::catalogue::{Catalogue, DataFile};
use lab::claim::{Claim, Condition, check, needs, needs_of_profiles};
use lab::data::DataError;
use lab::experiment::Profile;
use lab::factor::{LevelType, Levels};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::{Data, Suite};
use machine::proximity::Class;

use crate::claim;
use crate::made_up::{MadeUp, product};

const WHOLE: &str = r#"
[[experiment]]
name = "throughput"
about = "a test"
metric = "throughput"
factors = {}

[[claim]]
id = "threads-help-mapped"
says = "adding worker threads helps mapped memory, but not above 8"
source = "ESCAPE benchmarking, results B"
origin = "figure B"
experiment = "copy/throughput"
where = { function = ["glibc", "apex"], length = "65536" }
published = { value = 23.46e9, unit = "B/s", tolerance = "10%", on = "Xeon hosts" }
requires = { cpu = ["Intel family 6", "AMD family 25 model 97"], hypervisor = false }
cores = 9
profile = "standard"
class = "near"
rounds = 20
expect = { shape = "saturates", along = "threads", beyond = 8, within = "10%" }

[[figure]]
id = "throughput"
title = "Throughput"
experiment = "copy/throughput"
x = "length"
"#;

fn read(file: &str, text: &str) -> Result<Vec<Claim>, DataError> {
    Ok(DataFile::read(file, text, None)?.claims().to_vec())
}

#[test]
fn a_claim_is_read_next_to_other_tables() {
    let claims = read("own.toml", WHOLE).unwrap();
    assert_eq!(claims.len(), 1);
    let claim = &claims[0];
    assert_eq!((claim.location.line, claim.cores, claim.rounds), (8, Some(9), Some(20)));
    assert_eq!(claim.profile, Some(Profile::Standard));
    assert_eq!(claim.class, Some(Class::Near));
    assert_eq!(claim.origin.as_deref(), Some("figure B"));
    assert_eq!(claim.published.as_ref().unwrap().tolerance, Some(0.1));
    assert!(claim.carries_over.is_none() && !claim.is_promise());
    let cpus = claim.requires.as_ref().unwrap().cpu.iter().map(ToString::to_string);
    assert_eq!(cpus.collect::<Vec<_>>(), ["Intel family 6", "AMD family 25 model 97"]);
    let Condition::Shape { beyond, within, .. } = &claim.expect.as_ref().unwrap().kind else {
        panic!("{claim:?}")
    };
    assert_eq!((beyond.as_ref().unwrap().number(), *within), (Some(8.0), Some(0.1)));
}

const TABLE: &str = r#"
[[table]]
source = "a paper"
experiment = "copy/throughput"
where = { threads = 1, length = 64 }
on = "Skylake"
carries_over = "nowhere"
columns = { throughput = { says = "{} bytes per second", unit = "B/s" }, port_0 = { says = "{} on port 0", unit = "1" } }
rows = [
    { id = "glibc", says = "glibc", where = { function = "glibc" }, values = { throughput = 2.5, port_0 = 1 } },
    { id = "apex", says = "apex", where = { function = "apex", length = 128 }, values = { throughput = 3 } },
]
"#;

#[test]
fn a_table_is_a_claim_for_each_value() {
    let claims = read("own.toml", TABLE).unwrap();
    let texts: Vec<_> = claims.iter().map(|one| (one.id.as_str(), one.says.as_str())).collect();
    assert_eq!(
        texts,
        [
            ("glibc-port-0", "glibc: 1 on port 0"),
            ("glibc-throughput", "glibc: 2.5 bytes per second"),
            ("apex-throughput", "apex: 3 bytes per second"),
        ]
    );
    let last = &claims[2];
    let published = last.published.as_ref().unwrap();
    assert_eq!((published.value, published.on.as_deref()), (3.0, Some("Skylake")));
    assert_eq!((last.metric.as_deref(), last.location.line), (Some("throughput"), 11));
    let level = |factor| last.filter.0[factor].levels()[0].as_str();
    assert_eq!([level("threads"), level("length"), level("function")], ["1", "128", "apex"]);
    assert_eq!(claims.iter().filter(|claim| claim.origin.is_some()).count(), 0);
    let refuse = |text: &str| read("own.toml", text).unwrap_err().to_string();
    let unknown = refuse(&TABLE.replace("{ throughput = 3 }", "{ latency = 3 }"));
    let expected =
        "own.toml:11: row 'apex': no column 'latency'; expected one of port_0, throughput";
    assert_eq!(unknown, expected);
    let not_finite = refuse(&TABLE.replace("throughput = 3 ", "throughput = nan "));
    assert!(not_finite.starts_with("own.toml:11: claim 'apex-throughput'"), "{not_finite}");
}

#[test]
fn a_row_has_its_own_origin_or_that_of_its_column() {
    let column = TABLE.replace("unit = \"B/s\" }", "unit = \"B/s\", origin = \"an inverse\" }");
    let both = column
        .replace("{ throughput = 3 }", "{ throughput = 3 }, origin = { throughput = \"a file\" }");
    let origins = |text: &str| -> Vec<_> {
        read("own.toml", text).unwrap().into_iter().map(|claim| claim.origin).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(origins(&column), [None, some("an inverse"), some("an inverse")]);
    assert_eq!(origins(&both), [None, some("an inverse"), some("a file")]);
    let without_value = both.replace("{ throughput = \"a file\" }", "{ port_0 = \"a file\" }");
    let error = read("own.toml", &without_value).unwrap_err().to_string();
    assert_eq!(
        error,
        "own.toml:11: row 'apex': 'origin' of 'port_0', which has no value; remove it"
    );
}

#[test]
fn a_promise_has_no_origin() {
    let promise = WHOLE.replace("ESCAPE benchmarking, results B", "tollgate");
    let error = read("own.toml", &promise).unwrap_err().to_string();
    assert!(error.contains("which a promise has not; remove it"), "{error}");
}

/// Returns the error of a claim with these keys added.
fn refused(keys: &str) -> String {
    let head = "[[claim]]\nid = \"it\"\nsays = \"it does\"\nsource = \"a paper\"\n\
                experiment = \"copy/throughput\"\n";
    let error = read("claims.toml", &format!("{head}{keys}\n")).unwrap_err().to_string();
    assert!(error.starts_with("claims.toml:") && !error.contains('\n'), "{error}");
    error
}

#[test]
fn faults_name_file_line_and_key() {
    for (keys, expected) in [
        ("expcet = 1", "unknown field `expcet`"),
        ("expect = { at_leats = 1 }", "unknown field `at_leats`"),
        ("\nexpect = { at_leats = 1 }", "claims.toml:7: "),
        ("expect = { at_least = 1, along = \"x\" }", "a value takes no 'along'"),
        ("expect = { ratio_of = { a = 1 }, at_least = 1 }", "requires 'to'"),
        ("expect = { ratio_of = { a = 1 }, to = { a = 2 } }", "'at_least' or 'at_most'"),
        ("expect = { ratio_of = { a = 1 }, to = { a = 2 }, at_least = 0 }", "above 0"),
        ("expect = { ratio_of = { a = 1 }, ranking = [] }", "takes no 'ranking'"),
        (
            "expect = { ratio_of = { a = 1 }, to = { a = 2 }, at_least = 1, baselines = [{ a = [3, 4] }, {}] }",
            "a single level of 'a'",
        ),
        ("expect = { ranking = [{ a = 1 }] }", "two filters"),
        ("expect = { winner_changes = \"a\" }", "'along'"),
        ("expect = { shape = \"rises\", along = \"a\", within = \"1%\" }", "takes no 'within'"),
        ("expect = { shape = \"flat\", along = \"a\" }", "requires 'within'"),
        ("expect = { shape = \"bends\", along = \"a\" }", "bends"),
        ("expect = { shape = \"saturates\", along = \"a\", within = \"1%\" }", "requires 'beyond'"),
        ("expect = { at_least = 2, at_most = 1 }", "above 'at_most'"),
        ("expect = { at_least = nan }", "finite"),
        ("expect = { hold = \"some\" }", "'at_least' or 'at_most'"),
        ("expect = { twins_differ_at_most = -1 }", "0 or more"),
        ("expect = { rounds_differ_at_most_steps = -1 }", "0 or more"),
        ("rounds = 0\nexpect = { at_least = 1 }", "rounds must be 1 or more"),
        ("cores = 2", "'published' or 'expect' is missing"),
        ("published = { value = 1, unit = \"B/s\" }", "'carries_over' is missing"),
        (
            "carries_over = \"anywhere\"\npublished = { value = 1, unit = \"B/s\" }",
            "requires 'tolerance'",
        ),
        (
            "carries_over = \"nowhere\"\npublished = { value = 1, unit = \"B/s\", tolerance = \"50%\" }",
            "takes no 'tolerance'",
        ),
        ("carries_over = \"nowhere\"\nexpect = { at_least = 1 }", "remove one"),
        ("carries_over = false", "expected \"anywhere\", \"nowhere\" or the hardware"),
        ("carries_over = \"here\"", "expected \"anywhere\", \"nowhere\" or the hardware"),
        ("carries_over = { cpus = 1 }", "unknown field `cpus`, expected one of `cpu`"),
        ("carries_over = { cpu = \"Skylake\" }", "'Skylake' is not a CPU; write Intel or AMD"),
        ("carries_over = { cpu = \"Intel family six\" }", "is not a CPU"),
        (
            "carries_over = { capability = \"sgx9\" }",
            "unknown capability 'sgx9'; expected one of inv",
        ),
        ("carries_over = { nic = \"eth0\" }", "e.g. \"8086:1572\""),
        ("\ncarries_over = { nic = \"eth0\" }", "claims.toml:7: "),
        ("requires = {}", "expected cpu, capability, nic, hypervisor or where"),
        ("requires = { where = { a = 1 } }\nexpect = { at_least = 1 }", "takes no 'where'"),
        ("expect = { never = {} }", "'below' or 'above' is missing"),
        ("expect = { never = { over = 1 } }", "unknown field `over`"),
        ("expect = { never = { above = 1, below = 2 } }", "'below' 2 is above 'above' 1"),
        ("expect = { never = { above = 1 }, hold = \"some\" }", "never takes no 'hold'"),
        ("expect = { always = { at_least = 1 }, at_most = 1 }", "always takes no 'at_most'"),
        (
            "carries_over = \"anywhere\"\npublished = { value = 1, unit = \"B/s\", tolerance = \"ten\" }",
            "`claim.published.tolerance`",
        ),
        ("profile = \"slow\"\nexpect = { at_least = 1 }", "`claim.profile`"),
        ("origin = \" \"\nexpect = { at_least = 1 }", "'origin' is empty"),
        ("origin = [\"a\"]\nexpect = { at_least = 1 }", "`claim.origin`"),
        (
            "origin = \"a file\"\nexpect = { shape = \"rises\", along = \"a\" }",
            "this claim has not",
        ),
        (
            "origin = \"a file\"\nexpect = { ranking = [{ a = 1 }, { a = 2 }] }",
            "this claim has not",
        ),
    ] {
        let error = refused(keys);
        assert!(error.contains(expected), "{keys}: {error}");
    }
    assert!(read("claims.toml", "[[clam]]\n").unwrap_err().to_string().contains("`clam`"));
    let number = read("own.toml", "[[claim]]\nid = 5\n").unwrap_err().to_string();
    assert!(number.ends_with("in `claim.id`"), "{number}");
    let file = DataFile::read("own.toml", WHOLE, None).unwrap();
    let again = DataFile::read("other.toml", WHOLE, Some("copy")).unwrap();
    let error = Catalogue::of_files(&[&COPY], vec![file, again]).err().unwrap().to_string();
    assert!(error.contains("claim 'threads-help-mapped': own.toml:8 has the same ID"), "{error}");
}

/// A suite without measurements.
static COPY: Suite = Suite::new("copy", "synthetic", Data::EMPTY, &[&Throughput]);

#[derive(Params)]
#[expect(dead_code, reason = "the method has no measurements")]
struct ThroughputParams {
    /// Function
    #[factor(default = "glibc")]
    function: Function,
    /// Bytes
    #[factor(default = "64 KiB", levels = Levels::Bytes(0, u64::MAX))]
    length: u64,
    /// Threads
    #[factor(default = "0")]
    threads: u64,
}

#[derive(Clone, Copy, LevelType)]
enum Function {
    Glibc,
    Apex,
}

/// A method without measurements.
struct Throughput;

impl Method for Throughput {
    type Params = ThroughputParams;

    fn name(&self) -> &'static str {
        "throughput"
    }
    fn how(&self) -> &'static str {
        "A test. Nothing is timed."
    }
    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[
            Metric::new("throughput", "B/s", Better::Higher, ""),
            Metric::new("calls", "1", Better::Neither, ""),
        ];
        METRICS
    }
    fn probe(&self) -> Result<Box<dyn Probe<ThroughputParams>>, Failure> {
        Err(Failure::failed("synthetic"))
    }
}

fn made_up() -> MadeUp {
    MadeUp::new(product(&["glibc", "apex"], &["4 KiB", "64 KiB"], &["0", "2"]))
}

#[test]
fn a_checked_claim_has_canonical_levels() {
    let experiments = [made_up().experiment()];
    let claim = claim(
        "where = { length = 65536 }\n\
         expect = { ratio_of = { function = \"apex\", length = \"0.0625 MiB\" }, to = { function = \"glibc\" }, at_least = 1, each = [\"threads\"] }",
    );
    let checked = check(&claim, &[&COPY], &experiments).unwrap();
    assert_eq!(checked.metric.as_deref(), Some("throughput"));
    let points = needs(&checked, &experiments[0]);
    let texts: Vec<_> = points.iter().map(Point::to_string).collect();
    assert_eq!(
        texts,
        [
            "function=apex length=64 KiB threads=0",
            "function=apex length=64 KiB threads=2",
            "function=glibc length=4 KiB threads=0", // The twin, for the noise floor.
            "function=glibc length=64 KiB threads=0",
            "function=glibc length=64 KiB threads=2",
        ]
    );
    let mut other = experiments[0].clone();
    other.name = "other".into();
    assert!(needs(&checked, &other).is_empty());
}

#[test]
fn levels_that_a_profile_lacks_are_taken_from_the_next() {
    let of_lengths =
        |lengths: &[&str]| MadeUp::new(product(&["glibc", "apex"], lengths, &["0"])).experiment();
    let (quick, full) = (of_lengths(&["4 KiB"]), of_lengths(&["64 KiB", "1 MiB"]));
    let lengths = |keys: &str, profiles: &[&lab::experiment::Experiment]| {
        let claim = check(&claim(keys), &[&COPY], std::slice::from_ref(&full)).unwrap();
        let points = needs_of_profiles(&claim, profiles);
        let lengths: std::collections::BTreeSet<_> =
            points.iter().map(|point| point.text("length").to_owned()).collect();
        (points.len(), lengths.into_iter().collect::<Vec<_>>().join(", "))
    };
    let ratio = "expect = { ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, at_least = 1 }";
    let one = format!("where = {{ length = \"64 KiB\" }}\n{ratio}");
    let both = format!("where = {{ length = [\"4 KiB\", \"64 KiB\"] }}\n{ratio}");
    let rises =
        "where = { function = \"glibc\" }\nexpect = { shape = \"rises\", along = \"length\" }";
    assert_eq!(lengths(ratio, &[&quick, &full]), (2, "4 KiB".into()));
    assert_eq!(lengths(&one, &[&quick]), (0, String::new()));
    assert_eq!(lengths(&one, &[&quick, &full]), (2, "64 KiB".into()));
    assert_eq!(lengths(&both, &[&quick, &full]), (4, "4 KiB, 64 KiB".into()));
    assert_eq!(lengths(rises, &[&quick, &full]), (3, "1 MiB, 4 KiB, 64 KiB".into()));
}

#[test]
fn only_promises_of_few_rounds_may_require_few_rounds() {
    let expected = [
        "{ at_least = 1 }",
        "{ ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, at_least = 1 }",
        "{ rounds_differ_at_most = \"1%\" }",
    ];
    let check = |rounds: usize, expect: &str, source: &str, plan: u32| {
        let mut made_up = made_up();
        made_up.rounds = plan;
        let mut claim = claim(&format!("rounds = {rounds}\nexpect = {expect}"));
        claim.source = source.into();
        check(&claim, &[&COPY], &[made_up.experiment()])
    };
    for expect in expected {
        for rounds in [1, 5] {
            let error = check(rounds, expect, "a paper", 1).unwrap_err().to_string();
            assert!(error.starts_with("claims.toml:1: claim 'it': rounds: "), "{error}");
            assert!(error.contains("6 or more") && !error.contains('\n'), "{error}");
            assert!(check(rounds, expect, "tollgate", 20).is_err());
            assert!(check(rounds, expect, "tollgate", 2).is_ok());
        }
        assert!(check(6, expect, "a paper", 20).is_ok());
    }
}

#[test]
fn a_claim_that_does_not_fit_is_refused() {
    let experiments = [made_up().experiment()];
    for (keys, expected) in [
        (
            "metric = \"speed\"\nexpect = { at_least = 1 }",
            "unknown metric 'speed' of method 'throughput'; expected one of throughput",
        ),
        ("where = { lenght = 16 }\nexpect = { at_least = 1 }", "where: unknown factor 'lenght'"),
        (
            "carries_over = { where = { size = 1 } }\n\
             published = { value = 1, unit = \"B/s\", tolerance = \"1%\" }",
            "carries_over: where: unknown factor 'size'",
        ),
        ("where = { length = \"long\" }\nexpect = { at_least = 1 }", "where: factor 'length'"),
        (
            "carries_over = \"anywhere\"\n\
             published = { value = 1, unit = \"GB/s\", tolerance = \"1%\" }",
            "in GB/s, but 'throughput' is in B/s",
        ),
        (
            "expect = { ratio_of = { function = \"apex\" }, to = { function = \"apex\" }, at_least = 0.9 }",
            "'ratio_of' and 'to' are the same points",
        ),
        (
            "expect = { ranking = [{ function = \"apex\" }, { function = \"apex\" }] }",
            "the same points twice",
        ),
        (
            "expect = { ranking = [{ function = \"apex\" }, { function = \"fast\" }] }",
            "ranking: factor 'function'",
        ),
        (
            "expect = { winner_changes = \"function\", along = \"size\" }",
            "along: unknown factor 'size'",
        ),
        (
            "metric = \"calls\"\nexpect = { winner_changes = \"function\", along = \"length\" }",
            "no better direction",
        ),
        (
            "expect = { ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }, at_least = 1, each = [\"size\"] }",
            "each: unknown factor 'size'",
        ),
    ] {
        let error = check(&claim(keys), &[&COPY], &experiments).unwrap_err().to_string();
        assert!(error.starts_with("claims.toml:1: claim 'it': "), "{error}");
        assert!(error.contains(expected) && !error.contains('\n'), "{keys}: {error}");
    }
    let error = check(&claim("expect = { at_least = 1 }"), &[&COPY], &[]).unwrap_err().to_string();
    assert!(error.contains("unknown experiment 'copy/throughput'"), "{error}");
}
