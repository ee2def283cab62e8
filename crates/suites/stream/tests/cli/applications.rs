//! The commands of the applications, with a NIC in another process.

use std::path::Path;

use serde_json::Value;

use super::{Running, alone, folder, generate, has_two_cpus, number};

/// Runs an application over 1000 packets. Returns what generator and application print.
fn run(folder: &Path, words: &str) -> (Value, Value) {
    // The generator expects what the echo changes, so it verifies only the marks of packets.
    let generator = generate(folder, "1Mpps --count 1000 --check none");
    let mut application = Running::start(folder, &format!("{words} --nic nic --json"));
    application.says("ready");
    (generator.ends_with_json(), application.ends_with_json())
}

#[test]
fn each_application_processes_all_packets_and_prints_its_counts() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    // The generator's packets are not requests.
    for (words, name, received) in [
        ("maglev 1 2", "maglev", 1000),
        ("maglev 1 2 --enso --backends 10 --interface descriptors", "maglev-enso", 1000),
        ("key-value 1 2 --keys 1000 --fill", "key-value", 0),
        ("key-value 1 2 --memory 1MiB --interface descriptors", "key-value", 0),
        ("telemetry 1 2 --one-in 1 --seed 5", "telemetry", 1000),
    ] {
        let (sent, processed) = run(folder.path(), words);
        let generated = ["sent", "received", "dropped", "late"].map(|name| number(&sent, name));
        assert_eq!(generated, [1000, received, 0, 0], "{words}: {sent}");
        assert_eq!(processed["application"], name, "{processed}");
        let counts = &processed["counts"];
        let packets = (number(&processed, "packets"), number(counts, "packets"));
        assert_eq!(packets, (1000, 1000), "{words}: {processed}");
        let expected = match name {
            "key-value" => ("wrong-payloads", 1000),
            "telemetry" => ("sampled-packets", 1000),
            // The destinations differ in the address.
            _ => ("cache-misses", 2),
        };
        assert_eq!(number(counts, expected.0), expected.1, "{words}: {counts}");
        assert!(processed["nops"].is_null(), "{processed}");
        assert!(processed["matching_lines"].is_null(), "{processed}");
        let flows = processed["heavy_flows"].as_array();
        assert_eq!(flows.is_some(), name == "telemetry", "{processed}");
        // With one in 1 packet, estimates are exact.
        let flows = flows.into_iter().flatten();
        let flows: Vec<_> =
            flows.map(|flow| (&flow["destination"], number(flow, "packets"))).collect();
        if name == "telemetry" {
            assert_eq!([flows[0].1, flows[1].1], [500; 2], "{flows:?}");
            assert!(flows.len() == 2 && flows[0].0 != flows[1].0, "{flows:?}");
        }
    }
}

#[test]
fn the_log_monitor_sends_nothing() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let rules = "[Definition]\nfailregex = failed for <HOST>\n";
    std::fs::write(folder.path().join("mine.conf"), rules).unwrap();
    let generator = generate(folder.path(), "1Mpps --count 1000");
    let words = "log-monitor 1 2 --rules mine.conf --nic nic --json";
    let application = Running::start(folder.path(), words);
    let (status, output, errors) = application.ends();
    if !status.success() {
        assert!(errors.contains("Hyperscan is not available"), "{errors}");
        machine::untested::note("stream: the command of the log monitor", &errors.trim());
        generator.signal(libc::SIGINT);
        generator.ends_with_json();
        return;
    }
    let sent = generator.ends_with_json();
    assert_eq!(["sent", "received"].map(|name| number(&sent, name)), [1000, 0], "{sent}");
    let line = output.lines().find(|line| line.starts_with('{')).unwrap();
    let processed: Value = serde_json::from_str(line).unwrap();
    let counts = &processed["counts"];
    assert_eq!((number(counts, "packets"), number(counts, "matching-lines")), (1000, 0));
    assert!(number(counts, "scanned-bytes") > 0, "{counts}");
    let files = processed["matching_lines"].as_object().unwrap();
    assert_eq!(files.values().map(Value::as_u64).collect::<Vec<_>>(), [Some(0)], "{files:?}");
    assert!(processed["heavy_flows"].is_null(), "{processed}");
    assert!(processed["options"].as_str().unwrap().contains("1 rule file"), "{processed}");
}
