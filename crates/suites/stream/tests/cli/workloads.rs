//! Each application with its traffic: `generate --application` in one process and, in another, the command that it prints.

use std::path::Path;

use serde_json::Value;

use super::{Running, alone, has_two_cpus, number};

/// Number of packets of a run: fewer than fit the rings of two pipes, whatever their sizes.
const PACKETS: u64 = 1000;

/// Starts a generator with the traffic of an application. Returns it with the application's command that it prints.
fn generate(folder: &Path, words: &str) -> (Running, String) {
    let words = format!("generate --application {words} 1Mpps --count {PACKETS} --nic nic");
    let mut running = Running::start(folder, &words);
    let line = running.says("NIC at");
    let (_, command) = line.trim_end().split_once("tollgate stream ").unwrap();
    (running, command.to_owned())
}

/// Sends the traffic of an application to the command that the generator prints, with more options. Returns what both print.
fn run(folder: &Path, traffic: &str, options: &str) -> (Value, Value) {
    let (generator, command) = generate(folder, &format!("{traffic} --json"));
    let mut application = Running::start(folder, &format!("{command} {options} --json"));
    application.says("ready");
    (generator.ends_with_json(), application.ends_with_json())
}

#[test]
fn each_application_returns_what_its_traffic_expects() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for (traffic, options, counted) in [
        ("echo --pipes 2 --packet-bytes imix", "", None),
        ("maglev --workload cached --pipes 2", "", Some(("cache-misses", 16))),
        (
            "maglev-enso --workload syn-flood --pipes 2 --backends 10",
            "--interface descriptors",
            Some(("cache-misses", PACKETS)),
        ),
        (
            "maglev --workload syn-flood --pipes 2 --steering hash",
            "",
            Some(("cache-misses", PACKETS)),
        ),
        (
            "key-value --keys 1000 --requests-per-packet 3 --get-share 90 --pipes 2",
            "",
            Some(("refused-requests", 0)),
        ),
        (
            "key-value --workload uniform --keys 1000 --get-share 0",
            "--interface pipes-prefetch",
            Some(("sets", PACKETS)),
        ),
        (
            "telemetry --workload zipf-0.99 --pipes 2",
            "--one-in 1",
            Some(("sampled-packets", PACKETS)),
        ),
        ("telemetry --pipes 3 --steering round-robin --flows 6", "", None),
    ] {
        let (sent, processed) = run(folder.path(), traffic, options);
        let of = ["sent", "received", "lost", "dropped", "corrupted", "late"];
        let of = of.map(|name| number(&sent, name));
        assert_eq!(of, [PACKETS, PACKETS, 0, 0, 0, 0], "{traffic}: {sent}");
        assert_eq!(sent["application"], processed["application"], "{sent}");
        assert!(sent["matching_lines"].is_null(), "{sent}");
        assert_eq!(number(&processed, "packets"), PACKETS, "{traffic}: {processed}");
        let counts = &processed["counts"];
        assert!(traffic.starts_with("echo") || number(counts, "packets") == PACKETS, "{counts}");
        if let Some((name, value)) = counted {
            assert_eq!(number(counts, name), value, "{traffic}: {counts}");
        }
        if traffic.starts_with("key-value") {
            let [gets, found] = ["gets", "found-keys"].map(|name| number(counts, name));
            assert_eq!(number(&sent, "missing"), gets - found, "{traffic}: {sent} {counts}");
        } else {
            assert_eq!(number(&sent, "missing"), 0);
        }
    }
}

#[test]
fn values_that_were_never_stored_are_missing_and_not_corrupted() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (generator, command) = generate(folder.path(), "key-value --keys 10000 --json");
    let command = command.replace(" --fill", " --json");
    let mut application = Running::start(folder.path(), &command);
    application.says("ready");
    let (sent, processed) = (generator.ends_with_json(), application.ends_with_json());
    let counts = &processed["counts"];
    let [gets, found] = ["gets", "found-keys"].map(|name| number(counts, name));
    assert!(gets > found && found > 0, "{counts}");
    assert_eq!(number(&sent, "missing"), gets - found, "{sent}");
    assert_eq!(["received", "corrupted"].map(|name| number(&sent, name)), [PACKETS, 0], "{sent}");
}

#[test]
fn an_application_that_returns_something_else_is_found_out() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for (traffic, other) in [
        ("maglev --workload cached", "maglev 1 1 --flows 16 --backends 10"),
        ("maglev --workload cached", "maglev 1 1 --flows 16 --enso"),
        ("telemetry", "echo"),
        ("echo", "telemetry"),
        ("key-value --keys 100", "telemetry"),
    ] {
        let (generator, _) = generate(folder.path(), &format!("{traffic} --json"));
        let application = Running::start(folder.path(), &format!("{other} --nic nic --json"));
        let (status, output, errors) = generator.ends();
        assert_eq!(status.code(), Some(1), "{traffic}: {output} {errors}");
        let line = output.lines().find(|line| line.starts_with('{')).unwrap();
        let sent: Value = serde_json::from_str(line).unwrap();
        let [received, corrupted] = ["received", "corrupted"].map(|name| number(&sent, name));
        assert!(received == PACKETS && corrupted > PACKETS / 2, "{traffic}: {sent}");
        assert_eq!(number(&application.ends_with_json(), "packets"), PACKETS);
    }
}

#[test]
fn a_log_monitor_returns_nothing_and_finds_the_matching_lines() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    for options in ["", "--interface descriptors"] {
        let traffic = "log-monitor --pipes 2 --match-share 30 --json";
        let (generator, command) = generate(folder.path(), traffic);
        let monitor = Running::start(folder.path(), &format!("{command} {options} --json"));
        let (status, output, errors) = monitor.ends();
        if !status.success() {
            assert!(errors.contains("Hyperscan is not available"), "{errors}");
            machine::untested::note("stream: the log monitor and its traffic", &errors.trim());
            generator.signal(libc::SIGINT);
            generator.ends_with_json();
            return;
        }
        let sent = generator.ends_with_json();
        let of = ["sent", "received", "dropped", "corrupted"].map(|name| number(&sent, name));
        assert_eq!(of, [PACKETS, 0, 0, 0], "{sent}");
        // The number of packets that the application has not read is unknown here.
        assert!(sent["lost"].is_null(), "{sent}");
        assert!(sent["lost_by_cause"].get("not echoed").is_none(), "{sent}");
        let line = output.lines().find(|line| line.starts_with('{')).unwrap();
        let processed: Value = serde_json::from_str(line).unwrap();
        let counts = &processed["counts"];
        assert_eq!(number(counts, "packets"), PACKETS, "{counts}");
        assert_eq!(number(counts, "scanned-bytes"), PACKETS * 1448, "{counts}");
        let (expected, found) = (number(&sent, "matching_lines"), number(counts, "matching-lines"));
        let files = processed["matching_lines"].as_object().unwrap();
        assert_eq!(files.len(), 10, "{files:?}");
        assert_eq!(files.values().filter_map(Value::as_u64).sum::<u64>(), found, "{files:?}");
        // The last line of each of two streams may match before it ends.
        assert!(
            expected > PACKETS && (expected..=expected + 2).contains(&found),
            "{counts} {sent}"
        );
    }
}

#[test]
fn packets_that_return_from_a_log_monitor_are_an_error() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (mut generator, _) = generate(folder.path(), "log-monitor --interval 100ms");
    let echo = "echo 1 1 0 --steering hash --interface descriptors --nic nic --json";
    let echo = Running::start(folder.path(), echo);
    // Without pipes the generator does not know when packets are consumed, and waits.
    let progress = generator.says(" s  sent");
    assert!(progress.contains("returned") && !progress.contains("in flight"), "{progress}");
    let (status, output, errors) = generator.ends();
    assert_eq!(status.code(), Some(1), "{output} {errors}");
    assert!(output.contains("returned 1000 packets; none should"), "{output}");
    assert!(output.contains("matching lines end in the sent packets"), "{output}");
    assert!(output.contains("traffic of log-monitor, workload in-turn, 1 flow"), "{output}");
    assert_eq!(number(&echo.ends_with_json(), "packets"), PACKETS);
}
