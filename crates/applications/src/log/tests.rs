//! Tests of the monitor with Hyperscan, our own lines and those of fail2ban.

use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::application::tests::run;
use crate::packet::tests::Spec;

/// The variable that names the folder with the sample logs of fail2ban's tests.
const SAMPLES: &str = "TOLLGATE_FAIL2BAN_LOGS";

/// Records what cannot be tested, as the crate `machine` does.
fn note(test: &str, why: &dyn std::fmt::Display) {
    println!("not tested: {test}: {why}");
    let Some(path) = std::env::var_os("TOLLGATE_UNTESTED") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
}

fn library() -> Option<Arc<Hyperscan>> {
    Hyperscan::load().inspect_err(|why| note("log monitor", why)).ok()
}

/// Returns a monitor with the rule files of the names that are given, or all.
fn monitor(library: &Arc<Hyperscan>, names: &[&str]) -> LogMonitor {
    let mut filters = filters().unwrap();
    filters.retain(|filter| names.is_empty() || names.contains(&filter.name.as_str()));
    LogMonitor::new(&Rules::new(library, &filters).unwrap()).unwrap()
}

fn segment(port: u16, bytes: &[u8]) -> Vec<u8> {
    Spec { protocol: TCP, source: ([10, 0, 0, 1], port), payload: bytes.into(), ..Spec::default() }
        .frame()
}

fn total(monitor: &LogMonitor) -> u64 {
    monitor.matches().map(|(_, lines)| lines).sum()
}

/// Returns whether a rule file matches a line.
fn matches(monitor: &mut LogMonitor, line: &str) -> bool {
    let before = total(monitor);
    run(monitor, &mut [segment(1, line.as_bytes()), segment(1, b"\n")]);
    total(monitor) > before
}

#[test]
fn rules_match_our_lines() {
    let Some(library) = library() else { return };
    for (name, lines) in SAMPLE_FILES {
        let (mut monitor, mut found) = (monitor(&library, &[name]), [0, 0]);
        for line in lines.lines() {
            let (sign, line) = line.split_once(' ').unwrap();
            let is_failure = sign == "+";
            assert_eq!(matches(&mut monitor, line), is_failure, "{name}: {line}");
            found[usize::from(is_failure)] += 1;
        }
        assert!(found.iter().all(|lines| *lines >= 2), "{name}: {found:?}");
    }
}

/// The sample logs of fail2ban, by service: the file, and the lowest share of failures that our rules find. fail2ban's own
/// rules have more modes.
const FAIL2BAN: [(&str, &str, f64); 11] = [
    ("apache", "apache-auth", 0.9),
    ("asterisk", "asterisk", 1.0),
    ("dovecot", "dovecot", 1.0),
    ("mysqld", "mysqld-auth", 1.0),
    ("named", "named-refused", 1.0),
    ("nginx", "nginx-http-auth", 1.0),
    ("nginx", "nginx-limit-req", 1.0),
    ("postfix", "postfix", 1.0),
    ("proftpd", "proftpd", 1.0),
    ("sshd", "sshd", 0.85),
    ("vsftpd", "vsftpd", 1.0),
];

#[test]
fn rules_match_the_sample_logs_of_fail2ban() {
    let Some(library) = library() else { return };
    let Some(folder) = std::env::var_os(SAMPLES).map(PathBuf::from) else {
        return note("log monitor: sample logs of fail2ban", &format!("{SAMPLES} is not set"));
    };
    let mut errors = vec![];
    for (name, file, least) in FAIL2BAN {
        let mut monitor = monitor(&library, &[name]);
        let (mut failures, mut found, mut wrong) = (0, 0, vec![]);
        for (is_failure, line) in samples(&folder.join(file)) {
            let is_found = matches(&mut monitor, &line);
            if is_failure {
                failures += 1;
                found += usize::from(is_found);
                if !is_found {
                    println!("{file}: not found: {line}");
                }
            } else if is_found {
                wrong.push(line);
            }
        }
        println!("{file}: {found} of {failures} failures found");
        if failures == 0 || (found as f64) < least * failures as f64 || !wrong.is_empty() {
            errors.push((file, found, failures, wrong));
        }
    }
    assert!(errors.is_empty(), "file, found, failures, other lines found: {errors:#?}");
}

/// Returns the lines of a sample log until other options of fail2ban's filter are tested, and whether each is a failure.
fn samples(file: &Path) -> Vec<(bool, String)> {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    let (mut samples, mut is_failure, mut is_normal) = (vec![], None, true);
    for line in text.lines() {
        let comment = line.strip_prefix('#').map(str::trim_start);
        if let Some(options) = comment.and_then(|text| text.strip_prefix("filterOptions:")) {
            let options = options.to_lowercase();
            is_normal = options.contains("{}")
                || options.contains("\"normal\"")
                || options.contains("\"fallback\"");
        } else if let Some(json) = comment.and_then(|text| text.strip_prefix("failJSON:")) {
            is_failure = Some(json.replace(' ', "").contains("\"match\":true"));
        } else if comment.is_none()
            && !line.is_empty()
            && let Some(is_failure) = is_failure.take()
            && is_normal
        {
            samples.push((is_failure, line.to_string()));
        }
    }
    samples
}

const FAILURE: &str =
    "Jan  5 01:31:41 www sshd[1643]: Failed password for root from 192.0.2.7 port 40 ssh2\n";
const OTHER: &str =
    "Jan  5 01:31:41 www sshd[1643]: Accepted password for root from 192.0.2.7 port 40 ssh2\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn matches_do_not_depend_on_packets(
        lines in proptest::collection::vec(any::<bool>(), 1..30),
        cuts in proptest::collection::vec(1usize..200, 1..40),
        flows in 1u16..4,
    ) {
        let Some(library) = library() else { return Ok(()) };
        let mut monitor = monitor(&library, &["sshd", "vsftpd"]);
        let text: String = lines.iter().map(|fails| if *fails { FAILURE } else { OTHER }).collect();
        let (mut rest, mut packets, mut cuts) = (text.as_bytes(), vec![], cuts.iter().cycle());
        while !rest.is_empty() {
            let (packet, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            // Flows are independent, though their packets alternate.
            packets.extend((0..flows).map(|flow| segment(flow, packet)));
            rest = after;
        }
        let decisions = run(&mut monitor, &mut packets);
        prop_assert!(decisions.iter().all(|decision| *decision == Decision::Consume));
        let expected = lines.iter().filter(|fails| **fails).count() as u64 * u64::from(flows);
        let found: Vec<_> = monitor.matches().collect();
        prop_assert_eq!(found, [("sshd", expected), ("vsftpd", 0)]);
    }

    #[test]
    fn any_bytes_are_scanned_or_counted(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..20)) {
        let Some(library) = library() else { return Ok(()) };
        let mut monitor = monitor(&library, &["vsftpd"]);
        let mut packets = frames;
        run(&mut monitor, &mut packets);
        prop_assert_eq!(monitor.failed, 0);
    }
}

#[test]
fn a_datagram_ends_its_line() {
    let Some(library) = library() else { return };
    let mut monitor = monitor(&library, &["sshd"]);
    let datagram = |text: &str| Spec { payload: text.into(), ..Spec::default() }.frame();
    let (first, second) = FAILURE.trim_end().split_at(50);
    run(&mut monitor, &mut [datagram(first), datagram(second)]);
    assert_eq!(total(&monitor), 0, "two datagrams are two lines");
    run(&mut monitor, &mut [datagram(FAILURE.trim_end()), datagram(&format!("<13>{FAILURE}"))]);
    assert_eq!(total(&monitor), 2);
}

#[test]
fn a_new_connection_begins_a_new_stream() {
    let Some(library) = library() else { return };
    let mut monitor = monitor(&library, &["sshd"]);
    let (first, second) = FAILURE.split_at(50);
    let mut syn = segment(5, b"");
    syn[47] |= 2;
    run(&mut monitor, &mut [segment(5, first.as_bytes()), syn, segment(5, second.as_bytes())]);
    assert_eq!((total(&monitor), monitor.replaced), (0, 1));
    run(&mut monitor, &mut [segment(6, first.as_bytes()), segment(6, second.as_bytes())]);
    assert_eq!(total(&monitor), 1);
}

#[test]
fn more_flows_than_streams_replace_the_oldest() {
    let Some(library) = library() else { return };
    let mut monitor = monitor(&library, &["vsftpd"]);
    let mut packets: Vec<_> = (0..10_000).map(|port| segment(port, b"a line\n")).collect();
    run(&mut monitor, &mut packets);
    assert!(monitor.replaced as usize >= packets.len() - STREAMS, "{}", monitor.replaced);
    assert_eq!(monitor.failed, 0);
}

#[test]
fn a_pattern_that_hyperscan_refuses_is_named() {
    let Some(library) = library() else { return };
    let pattern = hyperscan::Pattern { text: "a(?=b)".into(), caseless: false };
    let error = Database::new(&library, &[pattern]).unwrap_err().to_string();
    assert!(
        error.starts_with("pattern \"a(?=b)\": ") && error.ends_with("without the construct"),
        "{error}"
    );
}

#[test]
fn our_rule_files_are_complete() {
    let filters = filters().unwrap();
    assert_eq!(filters.len(), 10);
    assert!(filters.iter().all(|filter| !filter.patterns.is_empty()));
    let failures = super::samples().filter(|(is_failure, _)| *is_failure).count();
    assert!((20..super::samples().count() - 15).contains(&failures), "{failures}");
    assert_eq!(
        filters.iter().map(|filter| filter.name.as_str()).collect::<Vec<_>>(),
        SAMPLE_FILES.map(|(name, _)| name)
    );
}
