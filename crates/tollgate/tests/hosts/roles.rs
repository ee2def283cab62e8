//! The roles `generator` and `dut` of the stream suite, in two network namespaces that a veth pair connects: both started by
//! the lab, and on two hosts by a real SSH server in each namespace.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Output, Stdio};

use lab::journal::Run;
use lab::sample::{FailureKind, Sample};

use crate::harness::namespace::{self, Namespace, ip};
use crate::harness::{self, Bench, TIMEOUT, was_made};
use crate::sshd::{Options, Sshd};
use crate::{command, counts, exits};

/// The interfaces of the veth pair that carries the packets.
const DATA: &str = "data0";
/// Runs of experiments until each has a sample that was made: on a busy machine all of a run may be void.
const ATTEMPTS: usize = 4;
const EXPERIMENTS: [&str; 2] = ["stream/two-host-rate", "stream/two-host-rtt"];

/// Returns the samples of an experiment that were made.
fn made(run: &Run, experiment: &str) -> Vec<Sample> {
    let samples = run.samples.iter().filter(|sample| sample.experiment == experiment);
    samples.filter(|sample| was_made(sample) && sample.error.is_none()).cloned().collect()
}

/// Runs experiments until each has a sample that was made; notes those that are void in every attempt.
#[track_caller]
fn measured(bench: &Bench, mut run: impl FnMut() -> Output) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut left = EXPERIMENTS.to_vec();
    for _ in 0..ATTEMPTS {
        let output = run();
        let newest = lab::journal::newest(&bench.path().join("results"));
        let errors = String::from_utf8_lossy(&output.stderr);
        harness::succeeded(&output, &newest.unwrap_or_else(|why| panic!("{why}: {errors}")));
        let journal = bench.journal();
        left.retain(|experiment| {
            let found = made(&journal, experiment);
            let is_missing = found.is_empty();
            samples.extend(found);
            is_missing
        });
        if left.is_empty() {
            break;
        }
    }
    left.iter().for_each(|experiment| machine::untested::note(experiment, &"void in every run"));
    samples
}

/// Checks that a sample has the metrics of both roles, and that each lost packet has its place.
#[track_caller]
fn check(sample: &Sample) {
    let value = |metric: &str| {
        *sample.values.get(metric).unwrap_or_else(|| panic!("no {metric}: {sample:?}"))
    };
    assert_eq!(sample.parts.keys().collect::<Vec<_>>(), ["dut", "generator"]);
    for (role, part) in &sample.parts {
        let is_of_dut = role == "dut";
        let mut metrics = part.values.keys();
        assert!(metrics.all(|metric| metric.starts_with("dut_") == is_of_dut), "{role}: {part:?}");
        assert!(!part.values.is_empty(), "{role}");
    }
    let places = ["lost_not_sent", "lost_before_dut", "lost_after_dut"];
    assert_eq!(places.iter().map(|place| value(place)).sum::<f64>(), value("lost"), "{sample:?}");
    let has_returned = value("rate") > 0.0;
    assert!(!has_returned || value("dut_packets") > 0.0, "{sample:?}");
    if sample.experiment == "stream/two-host-rtt" && has_returned {
        assert!(value("rtt") > 0.0 && value("rtt") <= value("rtt_p99"), "{sample:?}");
        assert!(sample.histograms.contains_key("rtt"));
        assert!((0.0..=1.0).contains(&value("delivered")));
    }
    for prefix in ["", "dut_"] {
        let covariate = |name: &str| sample.covariates[&format!("{prefix}{name}")].to_string();
        assert_eq!(covariate("medium"), "veth, a link of the kernel");
        let mode = match sample.point.text("interface") {
            "af-xdp" => "AF_XDP, ",
            _ => "AF_PACKET, ",
        };
        assert!(covariate("link").starts_with(mode), "{}", covariate("link"));
    }
}

/// Returns the arguments of a run of one round, with the interfaces in these namespaces.
fn local([near, far]: &[Namespace; 2]) -> Vec<String> {
    let mut words: Vec<String> = ["run"].into_iter().chain(EXPERIMENTS).map(String::from).collect();
    words.extend(["--rounds", "1", "--quiet", "--allow", "network", "--fresh"].map(String::from));
    for (role, namespace) in [("generator", near), ("dut", far)] {
        words.extend(["--set".into(), format!("{role}-interface={}/{DATA}", namespace.0)]);
    }
    words
}

#[test]
fn two_roles_of_this_host_exchange_packets_between_namespaces() {
    let bench = Bench::new();
    let Some(namespaces) = namespace::pair("two roles between namespaces") else { return };
    let [near, far] = &namespaces;
    namespace::connect(near, far, DATA, None);
    let words = local(&namespaces);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let samples = measured(&bench, || bench.run(&words));
    samples.iter().for_each(check);
    bench.wait_for_no_processes(TIMEOUT);
    // No XDP program stays.
    for namespace in &namespaces {
        let list = ["-n", &namespace.0, "link", "show", DATA];
        let list = std::process::Command::new("ip").args(list).output().unwrap();
        assert!(!String::from_utf8_lossy(&list.stdout).contains("xdp"), "{list:?}");
    }
    // A link without a carrier is what the role reports, with the remedy.
    assert!(ip(&["-n", &far.0, "link", "set", DATA, "down"]));
    bench.run(&words);
    let errors: Vec<_> = bench.journal().samples.into_iter().filter_map(|it| it.error).collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(error.kind, FailureKind::Unavailable, "{error}");
        let remedy = error.remedy.as_deref().unwrap_or_default();
        let has_carrier = remedy.contains("connect its cable");
        assert!(has_carrier || remedy.contains("set it up: ip link set dev data0 up"), "{error}");
        assert!(error.why.starts_with("dut: ") || error.why.starts_with("generator: "), "{error}");
    }
}

#[test]
fn a_role_without_an_interface_is_unavailable_with_the_option() {
    let bench = Bench::new();
    let run = ["run", EXPERIMENTS[0], "--rounds", "1", "--quiet"];
    for (allowed, remedy) in
        [(&[][..], "--allow network"), (&["--allow", "network"], "-interface=")]
    {
        exits(&bench, &[&run[..], allowed, &["--fresh"]].concat(), 0);
        let errors: Vec<_> =
            bench.journal().samples.into_iter().filter_map(|it| it.error).collect();
        assert!(!errors.is_empty());
        for error in errors {
            assert_eq!(error.kind, FailureKind::Unavailable, "{error}");
            assert!(error.remedy.as_ref().unwrap().contains(remedy), "{error}");
        }
    }
}

/// Two hosts in a namespace each, with an SSH server. The lab is in the first one.
struct TwoHosts {
    namespaces: [Namespace; 2],
    _servers: [Sshd; 2],
}

impl TwoHosts {
    /// Starts both and writes `tollgate.toml`.
    fn start(bench: &Bench, test: &str) -> Option<Self> {
        let namespaces = namespace::pair(test)?;
        let [near, far] = &namespaces;
        namespace::connect(near, far, "veth0", Some(["10.112.0.1/24", "10.112.0.2/24"]));
        namespace::connect(near, far, DATA, None);
        let start = |role, namespace| {
            let options =
                Options { folder: Some(role), namespace: Some(namespace), ..Options::default() };
            Sshd::start_with(bench, test, &options)
        };
        let servers =
            [start("generator", (&near.0, "127.0.0.1"))?, start("dut", (&far.0, "10.112.0.2"))?];
        let mut text = String::new();
        for role in ["generator", "dut"] {
            text += &format!(
                "[host.{role}]\nconfig = \"{role}/ssh_config\"\nset = {{ {role}-interface = \"{DATA}\" }}\n"
            );
        }
        fs::write(bench.path().join("tollgate.toml"), text).unwrap();
        Some(Self { namespaces, _servers: servers })
    }

    /// Runs the program in the lab's namespace.
    fn run(&self, bench: &Bench, words: &[&str]) -> Output {
        let roles = ["--host", "generator=generator", "--host", "dut=dut"];
        let mut run = self.namespaces[0].command(&command(bench, &[words, &roles].concat()));
        run.stdin(Stdio::null()).output().unwrap()
    }
}

#[test]
fn roles_on_two_hosts_exchange_packets() {
    let bench = Bench::new();
    let Some(hosts) = TwoHosts::start(&bench, "roles on two hosts") else { return };
    let run = ["run", "--rounds", "1", "--quiet", "--allow", "network", "--fresh"];
    let words = [&run[..1], &EXPERIMENTS, &run[1..]].concat();
    let samples = measured(&bench, || hosts.run(&bench, &words));
    samples.iter().for_each(check);
    let journal = bench.journal();
    let recorded: Vec<_> = journal.record.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(recorded, ["dut=dut", "generator=generator"]);
    assert!(journal.folder.ends_with("results/dut+generator-quick-1") || samples.len() > 2);
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn claims_are_measured_on_two_hosts_and_resume() {
    let bench = Bench::new();
    let Some(hosts) = TwoHosts::start(&bench, "claims on two hosts") else { return };
    // One claim of Ensō: others take minutes.
    let words = ["run", "--claim", "enso-prefetch-latency", "--rounds", "1", "--allow", "network"];
    let run = || {
        let output = hosts.run(&bench, &[&words[..], &["--quiet"]].concat());
        let newest = lab::journal::newest(&bench.path().join("results"));
        let errors = String::from_utf8_lossy(&output.stderr);
        harness::succeeded(&output, &newest.unwrap_or_else(|why| panic!("{why}: {errors}")));
        bench.journal()
    };
    let first = run();
    let experiments: BTreeSet<_> =
        first.samples.iter().map(|sample| sample.experiment.as_str()).collect();
    let expected = [EXPERIMENTS[0], EXPERIMENTS[1], "stream/rtt-vs-load"];
    assert!(expected.iter().all(|one| experiments.contains(one)), "{experiments:?}");
    made(&first, EXPERIMENTS[0]).iter().for_each(check);
    // What has no roles is measured by the worker of the device under test only.
    let alone = made(&first, "stream/rtt-vs-load");
    assert!(alone.iter().all(|sample| sample.parts.is_empty()));
    let log = fs::read_to_string(first.folder.join("logs/generator.log")).unwrap();
    assert!(!log.contains("rtt-vs-load") && log.contains("two-host-rate"), "{log}");
    // Each sample is a checkpoint.
    let again = run();
    assert_eq!(again.record.last_session(), 2);
    let keys = |run: &Run| counts(run, "stream/two-host-rate");
    assert_eq!(keys(&again), keys(&first));
    // On a busy machine all samples may be void.
    if alone.iter().any(|sample| sample.is_valid()) {
        let (output, _) = exits(&bench, &["plot"], 0);
        assert!(output.contains("stream-rtt"), "{output}");
    }
    bench.wait_for_no_processes(TIMEOUT);
}
