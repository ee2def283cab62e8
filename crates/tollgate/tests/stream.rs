//! The stream suite as a person meets it: real packets through the real NIC.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use harness::{Bench, file};
use lab::sample::{FailureKind, Sample};

/// Whether a sample has values. What it says of two cores needs two.
fn has_values(sample: &Sample) -> bool {
    match &sample.error {
        None => true,
        Some(failure) => {
            assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
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

/// One experiment of each kind, small: a load that any machine carries, and a search up to it.
const SMALL: &str = r#"
[[experiment]]
name = "round"
suite = "stream"
measured_as = "interfaces"
about = "as fast as they come back"
metric = "rate"
[experiment.factors]
interface = ["pipes", "pipes-per-packet", "pipes-prefetch"]
pipes = [1, 3]
cores = [1, 64]
check = "all"

[[experiment]]
name = "slow"
suite = "stream"
measured_as = "rtt-vs-load"
about = "a load that any machine carries"
metric = "rtt"
[experiment.factors]
interface = "pipes"
load = 0.1
modelled_doorbell = ["none", "400 ns"]

[[experiment]]
name = "sought"
suite = "stream"
measured_as = "throughput"
about = "a search"
metric = "ndr"
[experiment.factors]
interface = "pipes"
pipes = 2
maximum = 0.2
"#;

#[test]
fn packets_come_round_and_samples_say_how() {
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
            for metric in ["rate", "gap_nic", "gap_application"] {
                assert!(value(sample, metric) > 0.0, "{metric}");
            }
            // Where others have the CPUs all the time there is neither.
            match &sample.void {
                Some(cause) => {
                    machine::untested::note("stream: cycles a packet, the ceiling", cause)
                }
                None => assert!(value(sample, "cycles_per_packet") > 0.0),
            }
            if let Some(ceiling) = sample.values.get("ceiling") {
                let share = value(sample, "rate") / ceiling;
                assert!((value(sample, "of_ceiling") / share - 1.0).abs() < 1e-9, "{sample:?}");
            }
            assert_eq!((value(sample, "lost"), value(sample, "depth")), (0.0, 32768.0));
            assert!(sample.covariates.contains_key("proximity") || sample.void.is_some());
        }
    }
    for sample in of("stream/slow").filter(|sample| has_values(sample)) {
        let is_modelled = sample.point.text("modelled_doorbell") != "none";
        let told = if is_modelled { "doorbell 400 ns" } else { "nothing" };
        assert_eq!(sample.covariates["modelled"].as_str(), told);
        if value(sample, "delivered") == 0.0 {
            assert!(sample.void.is_some(), "nothing came back, and nothing stalled: {sample:?}");
            continue;
        }
        assert!(value(sample, "rtt") > 0.0 && sample.histograms.contains_key("rtt"));
        // The notification of a packet is there at once; its way back takes a doorbell.
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
        assert!(sample.trials.iter().all(|trial| trial.values.contains_key("lost")));
    }
}

#[test]
fn by_hand_a_search_gives_ndr_and_pdr() {
    let bench = Bench::new();
    let words = ["stream", "search", "--maximum", "0.2", "--duration", "2 ms", "--json"];
    let output = bench.run(&words);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        // A machine that others use may leave no sample that counts, and says so.
        let why = told.lines().last().unwrap_or_default();
        assert!(why.contains("nothing was found: ") && why.contains("void"), "{told}");
        machine::untested::note("stream search by hand", &why);
        return;
    }
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["ndr_mpps", "pdr_mpps", "rfc2544_mpps"] {
        assert!(found[name].is_number(), "{found}");
    }
    assert_eq!(found["interface"], "pipes");
    let line = bench.refused(&["stream", "search", "--packet-bytes", "63"], 1);
    assert!(line.contains("packet_bytes"), "{line}");
}

#[test]
fn the_suite_is_listed_with_its_claims() {
    let bench = Bench::new();
    let listed = bench.ok(&["list", "stream"]);
    for name in ["throughput-vs-cores", "throughput-vs-pipes", "rtt-vs-load", "line-rate"] {
        assert!(listed.contains(name), "{listed}");
    }
    let claims = bench.ok(&["claims"]);
    assert!(
        claims.contains("enso-line-rate") && claims.contains("stream-near-ceiling"),
        "{claims}"
    );
}
