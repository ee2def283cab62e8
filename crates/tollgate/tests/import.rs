//! `tollgate import` of real programs' output, next to the run that the documentation shows.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use harness::{Bench, file};
use machine::untested;
use serde_json::Value;

/// The run of the documentation, with copies, crossings and instructions.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.zip");

/// Returns the output of a program; `None`, with a note, if it cannot run here.
fn output(test: &str, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.inspect_err(|why| untested::note(test, &format!("{program}: {why}"))).ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        untested::note(test, &format!("{program}: {}", errors.trim()));
        return None;
    }
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Imports a text, and returns the JSON output.
fn import(bench: &Bench, format: &str, text: &str, words: &[&str]) -> Value {
    file(bench, "input", text);
    let arguments = ["import", format, "input", "--results", RUN, "--json"];
    bench.json(&[&arguments[..], words].concat())
}

/// Returns the values of an output whose names start with a text.
fn named<'a>(output: &'a Value, start: &str) -> Vec<&'a Value> {
    let values = output["values"].as_array().unwrap().iter();
    values.filter(|value| value["name"].as_str().unwrap().starts_with(start)).collect()
}

fn experiment(value: &Value) -> &str {
    value["counterpart"]["experiment"].as_str().unwrap_or_default()
}

#[test]
fn results_of_mbw_are_next_to_those_of_two_experiments() {
    let bench = Bench::new();
    let Some(text) = output("import of mbw", "mbw", &["-n", "3", "16"]) else { return };
    let imported = import(&bench, "mbw", &text, &[]);
    let digest = imported["source"]["sha256"].as_str().unwrap();
    assert_eq!(digest.len(), 64);
    assert_eq!(imported["source"]["bytes"], text.len());
    let memcpy = named(&imported, "MEMCPY 16 MiB");
    let experiments: Vec<_> = memcpy.iter().map(|value| experiment(value)).collect();
    assert_eq!(experiments, ["copy/limit", "copy/throughput"]);
    for value in memcpy {
        let theirs = &value["theirs"];
        assert_eq!(theirs["runs"], 3);
        let number = |name: &str| theirs[name].as_f64().unwrap();
        assert!(number("low") <= number("value") && number("value") <= number("high"), "{value}");
        let ours = value["ours"]["estimate"]["median"].as_f64().unwrap();
        let ratio = value["ratio"].as_f64().unwrap();
        assert!((ratio * number("value") / ours - 1.0).abs() < 1e-9, "{value}");
        assert_eq!(value["ours"]["point"]["length"], "16 MiB");
    }
    let block = named(&imported, "MCBLOCK")[0];
    assert!(block["counterpart"].is_null() && block["ours"].is_null());
    assert!(block["remarks"][0].as_str().unwrap().contains("reads one block again and again"));
    // The values are never samples of the run.
    assert!(imported["notes"][0].as_str().unwrap().contains("not samples of this run"));
}

#[test]
fn a_length_that_is_not_measured_has_no_value_of_ours() {
    let bench = Bench::new();
    let Some(text) = output("import of mbw", "mbw", &["-q", "-n", "2", "-t0", "3"]) else { return };
    file(&bench, "input", &text);
    let shown = bench.ok(&["import", "mbw", "input", "--results", RUN]);
    assert!(shown.contains("MEMCPY 3 MiB"), "{shown}");
    assert!(shown.contains("copy/limit has no such point in this run"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}

#[test]
fn results_of_perf_bench_are_read_in_both_formats() {
    let bench = Bench::new();
    let perf =
        |words: &[&str]| output("import of perf bench", "perf", &[&["bench"], words].concat());
    let basic = ["syscall", "basic", "--loop", "100000"];
    let pipe = ["sched", "pipe", "--loop", "1000"];
    let copy = ["mem", "memcpy", "--size", "1MB", "--function", "default"];
    let outputs = [&basic[..], &pipe, &copy].map(perf);
    let [Some(basic_text), Some(pipe_text), Some(copy_text)] = outputs else { return };
    let imported = import(&bench, "perf-bench", &(basic_text + &pipe_text + &copy_text), &[]);
    let basic_values = named(&imported, "syscall basic");
    let experiments: Vec<_> = basic_values.iter().map(|value| experiment(value)).collect();
    assert_eq!(experiments, ["crossing/round-trips", "crossing/peers"]);
    for value in &basic_values {
        // A system call takes from 10 ns to 1 ms on any machine that runs this test.
        assert!((10.0..1e6).contains(&value["theirs"]["value"].as_f64().unwrap()), "{value}");
        assert!(value["ours"]["estimate"]["median"].is_number(), "{value}");
    }
    let pipes = named(&imported, "sched pipe");
    let cpus = |value: &&Value| value["counterpart"]["levels"]["cpus"].as_str().unwrap().to_owned();
    assert_eq!(pipes.iter().map(cpus).collect::<Vec<_>>(), ["one", "two"]);
    let copies = named(&imported, "mem memcpy default 1 MiB");
    assert_eq!(copies.len(), 1, "{imported}");
    assert_eq!(copies[0]["ours"]["point"]["function"], "glibc");

    let Some(simple) = perf(&[&["--format", "simple"], &basic[..]].concat()) else { return };
    let words = ["--benchmark", "syscall basic", "--operations", "100000"];
    let imported = import(&bench, "perf-bench", &simple, &words);
    let seconds: f64 = simple.trim().parse().unwrap();
    let stated = named(&imported, "syscall basic")[0]["theirs"]["value"].as_f64().unwrap();
    assert!((stated - seconds * 1e9 / 1e5).abs() < 1e-6 * stated.max(1.0), "{stated} {simple}");
    let line = bench.refused(&["import", "perf-bench", "input", "--results", RUN], 2);
    assert!(line.contains("add --benchmark"), "{line}");
}

#[test]
fn rows_that_tollgate_copy_writes_agree_with_its_journal() {
    let bench = Bench::new();
    bench.ok(&["copy", "0", "1", "-r", "100", "-n", "2", "--rounds", "3"]);
    let results = bench.path().join("results/adhoc");
    let arguments = ["import", "escape", "results.csv", "--results", results.to_str().unwrap()];
    let imported = bench.json(&[&arguments[..], &["--json"]].concat());
    let rows = std::fs::read_to_string(bench.path().join("results.csv")).unwrap();
    let values = imported["values"].as_array().unwrap();
    assert_eq!(values.len(), rows.lines().count() - 1, "{imported}");
    assert!(!values.is_empty(), "{rows}");
    for value in values {
        let theirs = value["theirs"]["value"].as_f64().unwrap();
        let ours = value["ours"]["estimate"]["median"].as_f64().unwrap();
        // The file has steps of 1 MB/s.
        assert!((theirs - ours).abs() <= 0.51e6, "{value}");
    }
}

#[test]
fn standard_input_and_csv_are_supported() {
    let bench = Bench::new();
    let line = "AVG\tMethod: MEMCPY\tElapsed: 0.01\tMiB: 16.00000\tCopy: 16000.000 MiB/s\n";
    let mut command = bench.command(&["import", "mbw", "-", "--results", RUN, "--csv"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("name,metric,unit,theirs,"), "{text}");
    assert!(lines[1].starts_with("MEMCPY 16 MiB,throughput,B/s,16777216000,"), "{text}");
}

/// Returns the median of each form of the run, by metric.
fn our_forms(bench: &Bench) -> BTreeMap<String, BTreeMap<&'static str, f64>> {
    let mut forms: BTreeMap<String, BTreeMap<&'static str, f64>> = BTreeMap::new();
    for metric in ["latency", "throughput"] {
        let show = ["show", "bounds/instructions", "--results", RUN, "--metric", metric, "--json"];
        let json = bench.json(&show);
        for row in json["experiments"][0]["rows"].as_array().unwrap() {
            if let Some(median) = row["estimate"]["median"].as_f64() {
                let form = row["point"]["form"].as_str().unwrap().to_owned();
                forms.entry(form).or_default().insert(metric, median);
            }
        }
    }
    forms
}

/// Returns a file of the run of the documentation.
fn stored(name: &str) -> String {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(RUN).unwrap()).unwrap();
    let mut text = String::new();
    archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Returns the lines of a dump of InstLatX64 that name the CPU of the run, with its signature (CPUID leaf 1, EAX).
fn dump_of_our_cpu() -> String {
    let record: Value = serde_json::from_str(&stored("run.json")).unwrap();
    let environments = record["environments"].as_object().unwrap();
    let cpu = &environments.values().next().unwrap()["cpu"];
    let number = |key: &str| cpu[key].as_u64().unwrap();
    let [family, model, stepping] = ["family", "model", "stepping"].map(number);
    let extended = family.saturating_sub(15) << 20 | (model >> 4) << 16;
    let signature = extended | family.min(15) << 8 | (model & 15) << 4 | stepping;
    format!(
        "aida_bench64.dll build: 4.3.790.0 Oct 17 2018 09:21:32\n\
         CPU#000 Vendor: {} Family: {family:x} Model: {model:x} Stepping: {stepping:x} CoreType:0x{signature:08x}\n\
         CPU#000 Type: \"Example CPU\"\n",
        cpu["vendor"].as_str().unwrap()
    )
}

#[test]
fn a_dump_of_instlatx64_agrees_except_where_it_differs() {
    let bench = Bench::new();
    let forms = our_forms(&bench);
    let mut dump = dump_of_our_cpu();
    for (number, (form, text)) in [
        ("add R64 R64", "ADD r1_64, r2_64"),
        ("imul R64 R64", "IMUL r64, r64"),
        ("vaddpd YMM YMM YMM", "VADDPD ymm, ymm, ymm"),
        ("xor R64 R64", "XOR r64, r64"),
        ("popcnt R64 R64", "POPCNT r64, r64"),
    ]
    .into_iter()
    .enumerate()
    {
        let value = |metric| match (form, metric) {
            // As a zero idiom, and as a fault of one of both.
            ("xor R64 R64", "latency") => 0.25,
            ("popcnt R64 R64", "latency") => 17.0,
            (_, metric) => forms[form][metric],
        };
        let [latency, throughput] = ["latency", "throughput"].map(value);
        dump += &format!(
            "{number:4} AMD64    :{text:<38}L:   0.25ns= {latency:5.2}c  T:   0.06ns= {throughput:6.3}c\n"
        );
    }
    let imported = import(&bench, "instlatx64", &dump, &[]);
    let result = |form: &str, metric: &str| {
        let values = imported["values"].as_array().unwrap().iter();
        let mut found = values.filter(|value| {
            value["counterpart"]["levels"]["form"] == form && value["metric"] == metric
        });
        let value = found.next().unwrap();
        let agreement = value["agreement"].as_str().unwrap_or("none").to_owned();
        (agreement, value["reason"].as_str().map(str::to_owned))
    };
    for form in ["add R64 R64", "imul R64 R64", "vaddpd YMM YMM YMM"] {
        assert_eq!(result(form, "latency").0, "agrees", "{form}");
        assert_eq!(result(form, "throughput").0, "agrees", "{form}");
    }
    let (agreement, reason) = result("xor R64 R64", "latency");
    assert!(agreement == "differs" && reason.unwrap().contains("zero"));
    assert_eq!(result("popcnt R64 R64", "latency"), ("differs".into(), None));
    let latency = &imported["agreement"][0];
    assert_eq!((&latency["differs"], &latency["differs_with_reason"]), (&1.into(), &1.into()));
    // The signature is that of the run's CPU.
    assert_eq!(imported["notes"].as_array().unwrap().len(), 1, "{}", imported["notes"]);
    let shown = bench.ok(&["import", "instlatx64", "input", "--results", RUN]);
    assert!(shown.contains("popcnt R64 R64") && !shown.contains("imul R64 R64"), "{shown}");
    assert!(
        bench.ok(&["import", "instlatx64", "input", "--results", RUN, "--all"]).contains("imul")
    );
}

#[test]
fn an_exported_table_is_read_back_with_the_same_values() {
    let bench = Bench::new();
    let output = bench.run(&["export", "uops-xml", "--results", RUN, "-o", "table.xml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("whose operands the format does not express"), "{messages}");
    let arguments = ["import", "uops-info", "table.xml", "--results", RUN];
    let imported = bench.json(&[&arguments[..], &["--json"]].concat());
    for count in imported["agreement"].as_array().unwrap() {
        assert!(count["agrees"].as_u64().unwrap() > 300, "{count}");
        for name in ["differs", "differs_with_reason", "unresolved"] {
            assert_eq!(count[name], 0, "{count}: {imported}");
        }
    }
    let architecture = imported["source"]["conditions"][1]["value"].as_str().unwrap();
    let ours = architecture.strip_suffix(", that of this run's CPU").unwrap();
    let named = [&arguments[..], &["--arch", "SKL"]].concat();
    let line = bench.refused(&named, 2);
    let expected = format!("no measurements of 'SKL'; choose one with --arch: {ours}");
    assert!(line.contains(&expected), "{line}");
    let twice = bench.ok(&["export", "uops-xml", "--results", RUN, "--arch", "MINE"]);
    assert!(twice.contains("<architecture name=\"MINE\">"));
    assert_eq!(
        twice.replace("MINE", ours),
        std::fs::read_to_string(bench.path().join("table.xml")).unwrap()
    );
}

/// Ports of single micro-operations, which the run of the documentation does not have: its CPU shows no counters. OSACA does
/// not tell the widths of general registers apart.
const PORTS: [(&str, &[&str]); 3] = [
    ("imul R64 R64", &["port_1"]),
    ("imul R32 R32", &["port_1"]),
    ("vaddpd YMM YMM YMM", &["port_0", "port_5"]),
];

/// Writes the run of the documentation with counts of ports, and returns its folder.
fn run_with_ports(bench: &Bench) -> String {
    let folder = bench.path().join("with-ports");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("run.json"), stored("run.json")).unwrap();
    let with_ports = |line: &str| {
        let mut sample: Value = serde_json::from_str(line).unwrap();
        let form = sample["point"]["form"].as_str().unwrap_or_default();
        let ports = PORTS.iter().find(|(known, _)| *known == form).map(|(_, ports)| *ports);
        let throughput = sample["values"]["throughput"].as_f64();
        if let (Some(ports), Some(throughput)) = (ports, throughput) {
            let values = sample["values"].as_object_mut().unwrap();
            values.insert("uops".into(), 1.0.into());
            for port in ports {
                let per_cycle = 1.0 / throughput / ports.len() as f64;
                values.insert((*port).into(), per_cycle.into());
            }
        }
        format!("{sample}\n")
    };
    let samples: String = stored("samples.jsonl").lines().map(with_ports).collect();
    std::fs::write(folder.join("samples.jsonl"), samples).unwrap();
    folder.display().to_string()
}

#[test]
fn osaca_reads_the_exported_table() {
    let test = "osaca_reads_the_exported_table";
    let Some(library) = std::env::var_os("TOLLGATE_PYTHON") else {
        return untested::note(test, &"TOLLGATE_PYTHON names no folder with osaca");
    };
    let bench = Bench::new();
    let run = run_with_ports(&bench);
    bench.ok(&["export", "uops-xml", "--results", &run, "--arch", "OURS", "-o", "table.xml"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machine_model.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["table.xml", "OURS"])
        .current_dir(bench.path())
        // OSACA writes caches into the home folder.
        .env("HOME", bench.path())
        .env("PYTHONPATH", library)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let latencies: BTreeMap<&str, &str> =
        lines.lines().filter_map(|line| line.split_once(' ')).collect();
    let forms: usize = latencies["forms"].parse().unwrap();
    assert!(forms > 300, "{lines}");
    // OSACA's model has our value for an instruction in its assembler text.
    let ours = our_forms(&bench);
    for (text, form) in [("imulq", "imul R64 R64"), ("vaddpd", "vaddpd YMM YMM YMM")] {
        let latency: f64 = latencies[text].parse().unwrap();
        assert!((latency - ours[form]["latency"]).abs() <= 0.5, "{text}: {lines}");
    }
    assert_eq!(latencies["with-ports"], PORTS.len().to_string(), "{lines}");
    assert_eq!(latencies["imulq-ports"], "[[1, '1']]", "{lines}");
    assert_eq!(latencies["vaddpd-ports"], "[[1, '05']]", "{lines}");
}

#[test]
fn wrong_files_and_options_are_refused_in_one_line() {
    let bench = Bench::new();
    file(&bench, "other.txt", "hello\n");
    file(&bench, "deep.xml", &"<a>".repeat(1000));
    for (words, expected) in [
        (&["mbw", "other.txt"][..], "other.txt: no results of mbw"),
        (&["escape", "other.txt"], "other.txt:1: not a results.csv of ESCAPE"),
        (&["perf-bench", "other.txt"], "other.txt: no line '# Running"),
        (&["instlatx64", "other.txt"], "other.txt: no instructions of InstLatX64"),
        (&["uops-info", "other.txt"], "other.txt: no instructions"),
        (&["uops-info", "deep.xml"], "deep.xml: more than 16 nested elements"),
        (&["mbw", "missing.txt"], "missing.txt: No such file"),
        (&["mbw", "other.txt", "--arch", "SKL"], "--arch: only uops-info"),
        (
            &["uops-info", "other.txt", "--benchmark", "syscall basic"],
            "--benchmark: only perf-bench",
        ),
        (&["mbw", "other.txt", "--all"], "--all: only instlatx64"),
        (
            &["perf-bench", "other.txt", "--benchmark", "syscall"],
            "'syscall' is not a benchmark of perf",
        ),
        (&["speed", "other.txt"], "invalid value 'speed'"),
    ] {
        let line = bench.refused(&[&["import"], words, &["--results", RUN]].concat(), 2);
        assert!(line.contains(expected), "{words:?}: {line}");
    }
    let line = bench.refused(&["import", "mbw", "other.txt"], 2);
    assert!(line.contains("no run here"), "{line}");
    let line = bench.refused(&["export", "bmf", "--arch", "SKL", "--results", RUN], 2);
    assert!(line.contains("--arch: only uops-xml"), "{line}");
}
