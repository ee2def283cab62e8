//! Output of `tollgate bounds`: published values next to measured ones, or the reason if one is missing.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::sync::{Mutex, PoisonError};

use harness::Bench;

/// Serialises the measurements: threads of other tests make samples void.
static MEASURING: Mutex<()> = Mutex::new(());

/// Maximum number of measurements of a table with void values.
const MAX_ATTEMPTS: usize = 3;

/// Returns the output of a command and checks that its lines fit 100 columns.
#[track_caller]
fn printed(words: &[&str]) -> String {
    let _guard = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let print = || Bench::new().ok(&[&["bounds"], words].concat());
    let mut text = print();
    for _ in 1..MAX_ATTEMPTS {
        if is_void(&text) {
            text = print();
        }
    }
    for line in text.lines() {
        // The last line is the path of the run.
        let fits = line.chars().count() <= 100 || line.starts_with("results");
        assert!(fits && line.trim_end() == line, "'{line}'\n{text}");
    }
    text
}

/// Returns whether a value is missing because the machine was busy.
fn is_void(text: &str) -> bool {
    text.lines().any(|line| line.starts_with('[') && line.contains("] void "))
}

/// Returns the words after `name` in the first row that starts with its words. A dash with the mark of
/// its footnote is one word.
#[track_caller]
fn row(text: &str, name: &str) -> Vec<String> {
    let words = |line: &str| -> Vec<String> {
        line.replace("— [", "[").split_whitespace().map(String::from).collect()
    };
    let name = words(name);
    let row = text.lines().find_map(|line| Some(words(line).strip_prefix(&name[..])?.to_vec()));
    row.unwrap_or_else(|| panic!("no row {name:?}:\n{text}"))
}

#[test]
fn user_forms_run_only_with_allow_code() {
    let bench = Bench::new();
    let list = "[[class]]\nname = \"mine\"\nforms = [{ form = \"xor R64, R64\" }]\n";
    std::fs::write(bench.path().join("mine.toml"), list).unwrap();
    let words = ["bounds", "table", "--list", "mine.toml", "--rounds", "1"];
    let line = bench.refused(&words, 2);
    assert!(line.starts_with("error: --list: mine.toml is code"), "{line}");
    assert!(line.contains("--allow code"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing was measured");
    let text = bench.ok(&[&words[..], &["--allow", "code"]].concat());
    assert!(!row(&text, "xor R64 R64").is_empty(), "{text}");
}

#[test]
fn the_audit_counts_and_lists_disagreements() {
    let starts = |name: &&str| std::process::Command::new(name).arg("--version").output().is_ok();
    if !["llvm-mca-19", "llvm-mca"].iter().any(starts) {
        return machine::untested::note("bounds table --audit", &"no llvm-mca");
    }
    let text =
        printed(&["table", "--audit", "--rounds", "1", "--class", "multiply", "--class", "divide"]);
    // The predicted latency and throughput.
    let multiplied = row(&text, "imul R64 R64 ");
    let predicted = &multiplied[multiplied.len() - 2..];
    assert!(predicted.iter().all(|word| word.parse::<f64>().unwrap() > 0.0), "{text}");
    let (before, listed) = text.split_once("\nDisagreements").unwrap_or((&text, ""));
    let count = before.split_once("llvm-mca with its model of ").unwrap().1;
    // `znver4 agrees on 20 of 26 latencies and 9 of 26 throughputs`
    let numbers: Vec<usize> =
        count.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [latency, latencies, throughput, throughputs, ..] = numbers[..] else { panic!("{text}") };
    if latencies == 0 || throughputs == 0 {
        return machine::untested::note("bounds table --audit", &"other programs have the CPUs");
    }
    assert!(latency <= latencies && throughput <= throughputs, "{text}");
    // Each row ends with pairs of a measured and a predicted value, of latency, throughput or both.
    let values = |line: &str| {
        let words = line.rsplit(' ').filter(|word| !word.is_empty());
        let values =
            words.map_while(|word| word.contains('.').then(|| word.parse::<f64>().ok())?);
        values.collect::<Vec<_>>()
    };
    let rows = listed.lines().filter(|line| line.starts_with("  "));
    let pairs: Vec<Vec<f64>> = rows.map(values).filter(|it| !it.is_empty()).collect();
    let disagreements: usize = pairs.iter().map(|it| it.len() / 2).sum();
    assert_eq!(disagreements, latencies - latency + throughputs - throughput, "{text}");
    for pair in pairs.iter().flat_map(|it| it.chunks(2)) {
        assert!((pair[0] - pair[1]).abs() > 0.09, "{pair:?}\n{text}");
    }
}

/// Returns whether a word is a number, with or without a unit.
fn is_number(word: &str) -> bool {
    let number = word.trim_end_matches(['%', '×']).trim_start_matches('+').replace(',', "");
    number.parse::<f64>().is_ok()
}

/// Returns whether a cell has a value. A missing value must be void because the machine was busy.
#[track_caller]
fn is_measured(text: &str, cell: &str) -> bool {
    if !is_number(cell) {
        let note = text.lines().find_map(|line| line.strip_prefix(&format!("{cell} ")));
        let why = note
            .filter(|note| note.starts_with("void "))
            .unwrap_or_else(|| panic!("'{cell}': {text}"));
        machine::untested::note("bounds: a value of a table", &why);
    }
    is_number(cell)
}

/// Returns the mark of the footnote that starts with `start`.
#[track_caller]
fn note(text: &str, start: &str) -> String {
    let numbers = text.lines().filter_map(|line| Some(line.split_once(&format!(" {start}"))?.0));
    let mut numbers = numbers.filter(|number| number.starts_with('[') && number.ends_with(']'));
    numbers.next().unwrap_or_else(|| panic!("no note '{start}': {text}")).into()
}

#[test]
fn the_instruction_table_has_published_and_measured_values() {
    let text = printed(&["table", "--class", "mpx", "--rounds", "1"]);
    // The source states only the latency of a round trip by `bndstx` and `bndldx`.
    for (form, published) in [
        ("bndmk BND [BASE+R64]", &["2.00", "1.00", "0.50"][..]),
        ("bndcl BND R64", &["1.00", "1.00", "0.50"]),
        ("bndldx BND [BASE+R64]", &["8.00", "2.34"]),
        ("bndstx [BASE+R64] BND", &["8.00", "3.00"]),
    ] {
        let row = row(&text, form);
        let (measured, last) = row.split_at(row.len() - published.len());
        assert_eq!(last, published, "{text}");
        match machine::cpu::has_mpx() {
            true => assert!(measured.iter().all(|word| is_number(word) || word == "-"), "{row:?}"),
            false => assert_eq!(measured, [note(&text, "unsupported: this CPU has no MPX")]),
        }
    }
    assert!(text.contains("\nmpx\n") && !text.contains("\ndivide\n"), "{text}");
    let counted = machine::capability::find("performance-counters").unwrap().state.is_present();
    let message = "Micro-operations and ports are not counted: perf_event_open(";
    assert!(counted || text.contains(message), "{text}");
}

#[test]
fn check_sequences_have_published_and_measured_values() {
    let text = printed(&["checks", "--rounds", "1"]);
    let (first, second) = text.split_once("\n\n").unwrap();
    let title = "Instructions per core cycle of check sequences\n";
    assert!(first.starts_with(title) && second.contains("Core cycles per check sequence"));
    let plain = row(first, "no check load");
    assert_eq!((plain[0].as_str(), plain.len()), ("2.00", 2), "{text}");
    is_measured(&text, &plain[1]);
    let both = row(first, "bndcl m + bndcu m + store");
    // The published value, MPX, and four mechanisms of any CPU.
    assert_eq!((both[0].as_str(), both.len()), ("1.50", 6), "{text}");
    if !machine::cpu::has_mpx() {
        assert_eq!(both[1], note(&text, "this CPU has no MPX"));
    }
    for cell in &both[2..] {
        is_measured(&text, cell);
    }
    assert_eq!(row(second, "bndcl r + load").len(), 5, "{text}");
}

#[test]
fn tables_has_times_ratios_and_faults() {
    let text = printed(&["tables", "--rounds", "1", "--count", "300"]);
    assert!(text.starts_with("300 bounds tables of 4 MiB"), "{text}");
    let (kept, freed) = text.split_once("Allocation and de-allocation").unwrap();
    for (part, ratio, kernel) in [(kept, "2.33×", "+160.0%"), (freed, "2.25×", "+139.0%")] {
        let published = row(part, "published: MPX, in the kernel");
        assert_eq!([&published[0], &published[2]], [ratio, kernel], "{text}");
        // Without a compiler of MPX, a footnote contains the reason.
        let added = &row(part, "MPX by GCC, no tables made")[0];
        match added.strip_prefix('+').and_then(|share| share.strip_suffix('%')) {
            Some(share) => assert!(share.parse::<f64>().unwrap() > 1.0, "{text}"),
            None => assert_eq!(*added, note(&text, "the compiler gcc-mpx is not installed")),
        }
        for strategy in ["inline", "trap", "arena"] {
            let row = row(part, strategy);
            // Differences of times may be negative on a busy machine.
            row[..4].iter().for_each(|cell| _ = is_measured(&text, cell));
            // A table and the memory of its pointer each cause a page fault.
            assert!(
                !is_measured(&text, &row[4]) || row[4].parse::<f64>().unwrap() >= 2.0,
                "{row:?}"
            );
        }
    }
    if !machine::capability::find("performance-counters").unwrap().state.is_present() {
        note(&text, "instructions cannot be counted: ");
    }
}

/// Checks that two claims on instructions are decided: counts need neither performance counters nor MPX, so only a
/// program that is missing prevents it, whose verdict contains `absence`. Every measured ratio of the instructions with
/// tables to those without is within `ratios`.
#[track_caller]
fn are_decided(claims: [&str; 2], absence: &str, ratios: std::ops::Range<f64>) {
    let bench = Bench::new();
    let selected = claims.iter().flat_map(|claim| ["--claim", claim]);
    let arguments: Vec<_> = ["run", "--quiet"].into_iter().chain(selected).collect();
    let output = bench.command_with_user_cache(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = bench.json(&[&["claims", "--json"], &claims[..]].concat());
    let all = json["claims"].as_array().unwrap();
    assert_eq!(all.len(), claims.len(), "{json}");
    for claim in all {
        match claim["verdict"].as_str().unwrap() {
            "reproduced" | "contradicted" => {
                for value in claim["judgements"].as_array().unwrap() {
                    for measured in value["values"].as_array().unwrap() {
                        let ratio = measured["value"].as_f64().unwrap();
                        assert!(ratios.contains(&ratio), "{ratio}: {claim}");
                    }
                }
            }
            "unmeasurable" => {
                let text = claim.to_string();
                assert!(text.contains(absence), "{text}");
                machine::untested::note(claims[0], &absence);
            }
            verdict => panic!("{verdict}: {claim}"),
        }
    }
}

#[test]
fn claims_on_instructions_in_user_mode_are_decided() {
    let claims = ["mpx-tables-kept-user-instructions", "mpx-tables-freed-user-instructions"];
    // Published: 1.075 and 1.1. How many instructions a store takes without tables depends on the C library.
    are_decided(claims, "is not installed", 1.01..1.5);
}

#[test]
#[ignore = "builds a patched kernel and boots it 30 times"]
fn long_claims_on_instructions_in_the_kernel_are_decided() {
    let claims = ["mpx-tables-kept-kernel-instructions", "mpx-tables-freed-kernel-instructions"];
    // Published: 2.6 and 2.39.
    are_decided(claims, "QEMU cannot load a plugin", 1.5..10.0);
}

#[test]
fn races_has_both_cases_and_their_fixes() {
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note("bounds races", &"they need two CPUs");
    }
    let text = printed(&["races", "--rounds", "1", "--pointers", "100"]);
    assert!(text.starts_with("Two threads share 100 pointers"), "{text}");
    let (cases, fixes) = text.split_once("Fixes of the software model").unwrap();
    let (negative, positive) = cases.split_once("False positive").unwrap();
    for case in [negative, positive] {
        let row = row(case, "directory and tables in software");
        // Without a concurrent writer no access is misjudged.
        assert_eq!(row.len(), 4, "{text}");
        row[..3].iter().for_each(|cell| _ = is_measured(&text, cell));
        assert!(!is_measured(&text, &row[3]) || row[3] == "0", "{row:?}");
    }
    for fix in ["none", "lock", "vector-entry", "cmpxchg-entry"] {
        let row = row(fixes, fix);
        assert_eq!(row.len(), 5, "{row:?}\n{text}");
    }
    let locked = &row(fixes, "lock")[0];
    assert!(!is_measured(&text, locked) || locked == "0", "{text}");
    if !machine::cpu::has_mpx() {
        let number = note(&text, "not in CPUID or not in XCR0; ");
        assert!(row(negative, "MPX of this CPU").contains(&number), "{text}");
    }
}

#[test]
fn kernels_has_overheads_and_caught_bugs() {
    let words = ["kernels", "--kernel", "struct", "--size", "64KiB", "--rounds", "5"];
    let text = printed(&[&words[..], &["--mechanism", "gcc-registers,gcc-mpx"]].concat());
    if text.contains(" void: in every round") {
        return machine::untested::note("the table of kernels", &"void samples: the CPU was busy");
    }
    let row = |name: &str| {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no row {name}: {text}"))
    };
    assert!(text.lines().next().unwrap().ends_with("; 64 KiB of prefaulted pages"), "{text}");
    assert!(row("gcc").ends_with("· · · · · ·"), "{text}");
    // A ratio, and five of the six bugs.
    assert!(row("gcc-registers").ends_with("H S M F · C"), "{text}");
    // On a busy machine a single round may be valid, which has no range.
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    match lines.find(|words| words.first() == Some(&"range")) {
        Some(range) => {
            let (low, high) = range[1].split_once('–').unwrap();
            assert!(low.parse::<f64>().unwrap() <= high.parse::<f64>().unwrap(), "{text}");
        }
        None => machine::untested::note("the range of a kernel", &"one valid round"),
    }
    assert!(text.lines().any(|line| line.split_whitespace().eq(["published", "2.80"])), "{text}");
}

#[test]
fn an_unknown_mechanism_is_refused() {
    let line = Bench::new().refused(&["bounds", "kernels", "--mechanism", "warp"], 2);
    assert!(line.contains("unknown mechanism 'warp'"), "{line}");
}
