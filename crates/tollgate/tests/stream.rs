//! The stream suite run by the program: packets through the software NIC.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Output, Stdio};

use harness::{Bench, TIMEOUT, file, full_device, was_made};
use lab::measure::{BOTTLENECK, LIMITED};
use lab::proximity::ROUND_TRIP;
use lab::sample::{FailureKind, Sample};

/// Returns whether a sample has values; two cores are required.
fn has_values(sample: &Sample) -> bool {
    match &sample.error {
        None => was_made(sample),
        Some(failure) => {
            // A point may be void in every round on a busy machine.
            let is_void = failure.kind == FailureKind::Void;
            assert!(is_void || failure.kind == FailureKind::Unavailable, "{failure}");
            machine::untested::note(
                &format!("{} {}", sample.experiment, sample.point),
                &failure.why,
            );
            false
        }
    }
}

fn value(sample: &Sample, metric: &str) -> f64 {
    *sample.values.get(metric).unwrap_or_else(|| panic!("no {metric}: {sample:?}"))
}

/// One small experiment of each method, with a load that any machine carries.
const SMALL: &str = r#"
[[experiment]]
name = "round"
suite = "stream"
method = "interfaces"
about = "as fast as they are echoed"
metric = "rate"
[experiment.factors]
interface = ["pipes", "pipes-per-packet", "pipes-prefetch"]
pipes = [1, 3]
cores = [1, 64]
check = "all"

[[experiment]]
name = "slow"
suite = "stream"
method = "rtt-vs-load"
about = "a load that any machine carries"
metric = "rtt"
[experiment.factors]
interface = "pipes"
load = 0.1
modelled_doorbell = ["none", "400 ns"]

[[experiment]]
name = "sought"
suite = "stream"
method = "throughput"
about = "a search"
metric = "ndr"
[experiment.factors]
interface = "pipes"
pipes = 2
maximum = 0.2
"#;

#[test]
fn packets_are_echoed_and_samples_have_all_metrics() {
    let bench = Bench::new();
    let small = file(&bench, "small.toml", SMALL).display().to_string();
    let names = ["stream/round", "stream/slow", "stream/sought"];
    bench.ok(&[&["run", "-e", &small, "--rounds", "1", "--quiet"], &names[..]].concat());
    let run = bench.journal();
    let of = |name: &'static str| run.samples.iter().filter(move |s| s.experiment == name);
    for sample in of("stream/round") {
        if sample.point.text("cores") == "64" {
            let failure = sample.error.as_ref().unwrap();
            assert!(
                failure.kind == FailureKind::Unavailable && failure.remedy.is_some(),
                "{failure}"
            );
            continue;
        }
        if has_values(sample) {
            for metric in ["rate", "gap_nic", "gap_application", "busy_nic"] {
                assert!(value(sample, metric) > 0.0, "{metric}");
            }
            for metric in ["busy_application", "polling_nic", "polling_application"] {
                assert!((0.0..=1.0).contains(&value(sample, metric)), "{metric}: {sample:?}");
            }
            // A closed loop is limited unless the application is the bottleneck.
            let bottleneck = sample.covariates[BOTTLENECK].as_str();
            let is_limited = sample.covariates.contains_key(LIMITED);
            assert_eq!(is_limited, bottleneck != "application", "{sample:?}");
            // Both are missing if other processes occupy the CPUs.
            match &sample.void {
                Some(cause) => {
                    machine::untested::note("stream: cycles per packet, the ceiling", cause)
                }
                None => assert!(value(sample, "cycles_per_packet") > 0.0),
            }
            if let Some(ceiling) = sample.values.get("ceiling") {
                let share = value(sample, "rate") / ceiling;
                assert!((value(sample, "of_ceiling") / share - 1.0).abs() < 1e-9, "{sample:?}");
            }
            // Packets in flight are given up if the application has no CPU for a second.
            assert!(value(sample, "lost") == 0.0 || sample.void.is_some(), "{sample:?}");
            assert_eq!(value(sample, "depth"), 32768.0);
            assert!(sample.covariates.contains_key(ROUND_TRIP) || sample.void.is_some());
        }
    }
    for sample in of("stream/slow").filter(|sample| has_values(sample)) {
        let is_modelled = sample.point.text("modelled_doorbell") != "none";
        let modelled = if is_modelled { "doorbell 400 ns" } else { "nothing" };
        assert_eq!(sample.covariates["modelled"].as_str(), modelled);
        if value(sample, "delivered") == 0.0 {
            assert!(sample.void.is_some(), "nothing was echoed, and nothing stalled: {sample:?}");
            continue;
        }
        assert!(value(sample, "rtt") > 0.0 && sample.histograms.contains_key("rtt"));
        // The notification is immediate; the way back requires a doorbell.
        assert!(!is_modelled || value(sample, "rtt") >= 400.0, "{sample:?}");
    }
    for sample in of("stream/sought").filter(|sample| has_values(sample)) {
        assert!(!sample.trials.is_empty());
        assert_eq!(value(sample, "trials"), sample.trials.len() as f64);
        for (less, more) in [("ndr_strict", "ndr"), ("ndr", "pdr")] {
            assert!(value(sample, less) <= value(sample, more), "{less} over {more}");
        }
        // 0.2 Gbps of 84 B on the wire.
        assert!(value(sample, "pdr") <= 0.2e9 / 672.0 + 1.0);
        for trial in &sample.trials {
            let of = |name: &str| trial.values[name];
            let causes = trial.values.keys().filter(|name| name.starts_with("lost_"));
            let lost: f64 = causes.map(|name| of(name)).sum();
            assert_eq!(lost, of("lost"), "{trial:?}");
            assert!(of("bottleneck") == 0.0 || of("lost") > 0.0, "{trial:?}");
        }
    }
}

#[test]
fn search_reports_ndr_and_pdr() {
    let bench = Bench::new();
    let line = bench.refused(&["stream", "search", "--packet-bytes", "63"], 2);
    assert!(line.contains("packet_bytes"), "{line}");
    if machine::topology::allowed_cpus().len() < 2 {
        return machine::untested::note("stream search run directly", &"requires two CPUs");
    }
    for (options, levels) in [
        (&[][..], &[("interface", "pipes"), ("application", "echo")][..]),
        (
            &["--application", "maglev", "--workload", "cached"],
            &[("application", "maglev"), ("workload", "cached")],
        ),
        (
            &["--application", "key-value", "--get-share", "95"],
            &[("workload", "zipf-0.99"), ("get_share", "95")],
        ),
        (
            &["--application", "log-monitor", "--match-share", "20"],
            &[("application", "log-monitor"), ("match_share", "20")],
        ),
    ] {
        search(&bench, options, levels);
    }
}

/// Searches with options, and checks that the point has these levels and all results.
fn search(bench: &Bench, options: &[&str], levels: &[(&str, &str)]) {
    let words = ["stream", "search", "--maximum", "0.2", "--duration", "2 ms", "--json"];
    let output = bench.run(&[&words, options].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        // On a busy machine every sample may be void, and without Hyperscan there is no log monitor.
        let why = errors.lines().last().unwrap_or_default();
        let is_known = why.contains("void") || why.contains("Hyperscan");
        assert!(why.contains("no result: ") && is_known, "{errors}");
        machine::untested::note("stream search run directly", &why);
        return;
    }
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    bench.validate("suite", &found);
    let experiments = found["experiments"].as_array().unwrap();
    let search = experiments.iter().find(|one| one["id"] == "stream/search").unwrap();
    let point = &search["points"][0];
    for metric in ["ndr_strict", "ndr", "pdr", "rfc2544"] {
        assert!(point["values"][metric].is_number(), "{found}");
    }
    for (factor, level) in levels {
        let found = &point["point"][factor];
        let text = found.as_str().map_or(found.to_string(), str::to_owned);
        assert_eq!(text, *level, "{factor}: {point}");
    }
}

#[test]
fn pcap_writes_a_sample_file_and_a_truncated_file_is_an_error() {
    let bench = Bench::new();
    assert_eq!(bench.ok(&["stream", "pcap", "2_64_1_2.pcap"]), "2_64_1_2.pcap\n");
    let line = bench.refused(&["stream", "pcap", "--size", "63"], 2);
    assert!(line.contains("63 B"), "{line}");
    let whole = std::fs::read(bench.path().join("2_64_1_2.pcap")).unwrap();
    // A file header, and per packet a header and the frame without its check sequence.
    assert_eq!(whole.len(), 24 + 2 * (16 + 60));
    std::fs::write(bench.path().join("cut.pcap"), &whole[..whole.len() - 1]).unwrap();
    let output = bench.run(&["stream", "generate", "cut.pcap", "100", "--nic", "nic"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(
        errors.starts_with("error: cut.pcap: packet 2") && errors.contains("cut off"),
        "{errors}"
    );
    assert!(output.stdout.is_empty() && !bench.path().join("nic").exists());
    // An endless file of another format: only its start is read.
    let line = bench.refused(&["stream", "generate", "/dev/zero", "1", "--nic", "nic"], 2);
    assert!(line.contains("not a pcap or pcapng file"), "{line}");
}

#[test]
fn output_errors_state_a_fix() {
    let bench = Bench::new();
    for words in [&["stream", "pcap", "2_64_1_2.pcap"][..], &["list", "stream"]] {
        let Some(full) = full_device("output of stream that cannot be printed") else { return };
        let output = bench.command(words).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let expected = "error: standard output: No space left on device (os error 28); free space or \
                   redirect it elsewhere\n";
        assert_eq!(errors, expected);
    }
}

/// Number of packets that [`sent_and_echoed`] sends.
const COUNT: u64 = 5000;

/// Returns the output of the application and of the NIC, run with additional options of the NIC; `None` if
/// this machine has one CPU.
fn sent_and_echoed(bench: &Bench, options: &[&str]) -> Option<(Output, Output)> {
    if machine::topology::allowed_cpus().len() < 2 {
        machine::untested::note("stream echo and generate run directly", &"requires two CPUs");
        return None;
    }
    bench.ok(&["stream", "pcap", "2_64_1_2.pcap"]);
    let mut echo = bench
        .command(&["stream", "echo", "1", "2", "0", "--nic", "nic", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(echo.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let (pcap, count) = ("2_64_1_2.pcap", COUNT.to_string());
    let words = ["generate", pcap, "0.5Mpps", "--count", &count, "--nic", "nic", "--json"];
    let generated = bench.run(&[&["stream"], &words[..], options].concat());
    if generated.stdout.is_empty() {
        echo.kill().unwrap();
    }
    let echoed = echo.wait_with_output().unwrap();
    assert!(line.starts_with("waiting for a NIC at nic; "), "{line}");
    Some((echoed, generated))
}

#[test]
fn a_histogram_that_cannot_be_written_loses_no_report() {
    let bench = Bench::new();
    let Some(full) = full_device("stream generate --rtt-hist to a full disk") else { return };
    // Through a descriptor of the test: a bug would make root lose /dev/full.
    let name = format!("/proc/{}/fd/{}", std::process::id(), full.as_raw_fd());
    let Some((_, generated)) = sent_and_echoed(&bench, &["--rtt-hist", &name]) else { return };
    let errors = String::from_utf8_lossy(&generated.stderr);
    let sent: serde_json::Value = serde_json::from_slice(&generated.stdout).unwrap();
    assert_eq!((generated.status.code(), &sent["sent"]), (Some(1), &COUNT.into()), "{errors}");
    assert!(errors.contains(&format!("error: {name}: cannot be written (")), "{errors}");
}

#[test]
fn the_application_waits_for_the_nic_and_every_packet_is_echoed() {
    let bench = Bench::new();
    let Some((echoed, generated)) = sent_and_echoed(&bench, &[]) else { return };
    let errors = String::from_utf8_lossy(&generated.stderr);
    assert_eq!((generated.status.code(), echoed.status.code()), (Some(0), Some(0)), "{errors}");
    let sent: serde_json::Value = serde_json::from_slice(&generated.stdout).unwrap();
    bench.validate("stream-generate", &sent);
    let names = ["sent", "received", "lost", "dropped", "corrupted", "late"];
    assert_eq!(names.map(|name| sent[name].as_u64()), [COUNT, COUNT, 0, 0, 0, 0].map(Some));
    assert_eq!(sent["counters"]["IN_PKT"], COUNT);
    let echoed: serde_json::Value = serde_json::from_slice(&echoed.stdout).unwrap();
    bench.validate("stream-application", &echoed);
    assert_eq!(echoed["packets"], COUNT, "{echoed}");
    assert_eq!(echoed["ended"], "the NIC stopped");
    bench.wait_for_no_processes(TIMEOUT);
    assert!(!bench.path().join("nic").exists(), "the socket goes with the NIC");
}

#[test]
fn list_has_the_suite_and_its_claims() {
    let bench = Bench::new();
    let listed = bench.ok(&["list", "stream"]);
    for name in ["throughput-vs-cores", "throughput-vs-pipes", "rtt-vs-load", "line-rate"] {
        assert!(listed.contains(name), "{listed}");
    }
    let claims = bench.ok(&["claims", "stream", "--all"]);
    assert!(
        claims.contains("enso-line-rate") && claims.contains("stream-near-ceiling"),
        "{claims}"
    );
}
