//! A session on the command line: the NIC with its generator in one process, the echo in another.
#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::suite::{Lab, SuiteCommand, UsageError};
use serde_json::Value;

mod applications;
mod traffic;
mod workloads;

static LAB: Lab = Lab { suites: &[&stream::SUITE], version: "test" };

/// The environment variable that holds the arguments of a child process that runs the command.
const WORDS: &str = "TOLLGATE_TEST_WORDS";

/// Reserves the CPUs for a test, since its threads never sleep.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the command with arguments.
fn run(words: &[String]) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
    let SuiteCommand { command, run } = stream::SUITE.command().unwrap();
    let words = std::iter::once("stream").chain(words.iter().map(String::as_str));
    run(&command().try_get_matches_from(words)?, &LAB)
}

#[test]
#[ignore = "what the other tests start in a separate process"]
fn the_command() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words: Vec<String> = words.split('\n').map(String::from).collect();
    let status = run(&words).unwrap_or_else(|why| {
        eprintln!("error: {why}");
        // As `main` does.
        if why.is::<UsageError>() || why.is::<clap::Error>() { 2 } else { 1 }
    });
    std::process::exit(status);
}

/// A running command.
struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    /// Starts a command in a folder; its arguments are separated by spaces.
    fn start(folder: &Path, words: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_command", "--ignored", "--nocapture"])
            .env(WORDS, words.split_whitespace().collect::<Vec<_>>().join("\n"))
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Waits for a line that contains a string, and returns it.
    fn says(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "no '{what}' in {all}");
            if line.contains(what) {
                return line;
            }
            all += &line;
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that no thread has waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for the end. Returns the status, stdout and stderr.
    fn ends(mut self) -> (ExitStatus, String, String) {
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            self.errors.read_to_string(&mut text).unwrap();
            text
        });
        let output = self.child.wait_with_output().unwrap();
        (output.status, String::from_utf8(output.stdout).unwrap(), errors.join().unwrap())
    }

    /// Waits for a successful end. Returns the printed JSON.
    fn ends_with_json(self) -> Value {
        let (status, output, errors) = self.ends();
        assert!(status.success(), "{status}: {errors}");
        let line = output.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{output}"))).unwrap()
    }

    /// Waits for the end with this status and one line of error.
    fn refused(self, with: i32) -> String {
        let (status, _, errors) = self.ends();
        assert_eq!(status.code(), Some(with), "{errors}");
        let lines: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        lines[0].to_owned()
    }
}

/// Returns a folder with a pcap of two destinations.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (status, output, _) = Running::start(folder.path(), "pcap 2_64_1_2.pcap --json").ends();
    assert!(status.success(), "{output}");
    let (start, end) = (output.find('{').unwrap(), output.rfind('}').unwrap());
    let written: Value = serde_json::from_str(&output[start..=end]).unwrap();
    assert_eq!(written["files"][0]["file"], "2_64_1_2.pcap");
    assert_eq!(written["files"][0]["packets"], 2);
    let (status, output, _) = Running::start(folder.path(), "pcap 2_64_1_2.pcap").ends();
    assert!(status.success() && output.contains("2_64_1_2.pcap"), "{output}");
    folder
}

/// Starts a generator that waits for a program.
fn generate(folder: &Path, words: &str) -> Running {
    let words = format!("generate 2_64_1_2.pcap {words} --nic nic --json");
    let mut running = Running::start(folder, &words);
    running.says("NIC at");
    running
}

/// Starts an echo and waits until it is ready.
fn echo(folder: &Path, words: &str) -> Running {
    let mut running = Running::start(folder, &format!("echo {words} --nic nic --json"));
    running.says("ready");
    running
}

/// Returns whether there are two CPUs, one for the NIC and one for an application; both never sleep.
fn has_two_cpus() -> bool {
    let has = machine::topology::allowed_cpus().len() > 1;
    if !has {
        machine::untested::note("stream generate and echo run directly", &"requires two CPUs");
    }
    has
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("{name} of {json}"))
}

#[test]
fn a_thousand_packets_are_echoed() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    for interface in ["pipes", "pipes-per-packet", "pipes-prefetch", "descriptors"] {
        let generator = generate(folder.path(), "1Mpps --count 1000 --rtt --save seconds.csv");
        let echo = echo(folder.path(), &format!("1 2 0 --interface {interface}"));
        let sent = generator.ends_with_json();
        let of = |name| number(&sent, name);
        assert_eq!(
            ["sent", "received", "lost", "dropped"].map(of),
            [1000, 1000, 0, 0],
            "{interface}"
        );
        assert_eq!(["corrupted", "late"].map(of), [0, 0]);
        let counter = |name| number(&sent["counters"], name);
        let counters = ["IN_PKT", "OUT_PKT", "PKT_DROP", "CPU_PKT_BUF_FULL", "CPU_DSC_BUF_FULL"];
        assert_eq!(counters.map(counter), [1000, 1000, 0, 0, 0]);
        let times = &sent["rtt_ns"];
        assert!(
            times["p50"].as_f64().unwrap() > 0.0 && times["max"].as_f64() >= times["p50"].as_f64()
        );
        let echoed = echo.ends_with_json();
        assert_eq!(number(&echoed, "packets"), 1000);
        let core = &echoed["core_use"][0];
        assert!(core["busy"].as_f64().unwrap() > 0.0, "{echoed}");
        assert!(core["packets_per_iteration"].as_f64().unwrap() >= 1.0, "{echoed}");
        assert_eq!(echoed["ended"], "the NIC stopped");
    }
    assert!(
        std::fs::read_to_string(folder.path().join("seconds.csv")).unwrap().starts_with("seconds,")
    );
    assert!(!folder.path().join("nic").exists());
}

#[test]
fn ctrl_c_ends_either_program_and_prints_the_counters() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let mut generator = generate(folder.path(), "0.1Mpps --save seconds.csv");
    let mut echo = echo(folder.path(), "1 2 10");
    assert!(generator.says(" s  sent").contains("received"));
    echo.says("echoed");
    echo.signal(libc::SIGINT);
    let echoed = echo.ends_with_json();
    assert_eq!(echoed["ended"], "interrupted");
    // The NIC continues without a program and reports where packets are dropped.
    while generator.says(" s  sent").contains("dropped by the NIC 0 ") {}
    generator.signal(libc::SIGINT);
    let sent = generator.ends_with_json();
    let of = |name| number(&sent, name);
    assert!(of("sent") > of("received") && of("received") > 0, "{sent}");
    assert!(number(&sent["counters"], "PKT_DROP") > 0, "{sent}");
    assert_eq!(number(&sent["counters"], "IN_PKT"), of("sent"));
    let saved = std::fs::read_to_string(folder.path().join("seconds.csv")).unwrap();
    assert!(saved.lines().count() > 2, "{saved}");
}

#[test]
fn ctrl_c_ends_a_waiting_generator() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let generator = generate(folder.path(), "100");
    generator.signal(libc::SIGINT);
    let sent = generator.ends_with_json();
    assert_eq!((number(&sent, "sent"), number(&sent["counters"], "IN_PKT")), (0, 0));
}

#[test]
fn unsaved_seconds_are_an_error_after_the_report() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    // A FIFO whose reader leaves after the first line.
    let fifo = folder.path().join("seconds");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut first = String::new();
            BufReader::new(std::fs::File::open(fifo).unwrap()).read_line(&mut first).unwrap();
        }
    });
    let mut generator = generate(folder.path(), "0.1Mpps --save seconds");
    reader.join().unwrap();
    let echo = echo(folder.path(), "1 2 0");
    generator.says(" s  sent");
    generator.signal(libc::SIGINT);
    let (status, output, errors) = generator.ends();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(output.lines().any(|line| line.starts_with('{')), "{output}");
    assert!(errors.contains("error: seconds: cannot be written"), "{errors}");
    assert!(errors.contains("--save"), "{errors}");
    echo.ends_with_json();
}

#[test]
fn control_characters_in_a_file_name_are_replaced() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let mut echo = Running::start(folder.path(), "echo 1 2 0 --nic \u{1b}[31mnic");
    let line = echo.says("waiting for a NIC at");
    echo.signal(libc::SIGINT);
    assert!(line.contains("\u{fffd}[31mnic") && !line.contains('\u{1b}'), "{line:?}");
    echo.ends();
}

#[test]
fn the_nic_survives_a_killed_program() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let mut generator = generate(folder.path(), "0.1Mpps");
    for _ in 0..3 {
        let mut echo = echo(folder.path(), "1 2 0");
        generator.says(" s  sent");
        echo.says("echoed");
        echo.signal(libc::SIGKILL);
        assert!(!echo.ends().0.success());
    }
    // The resources of the killed program are available again.
    let mut last = echo(folder.path(), "1 2 0");
    last.says("echoed");
    let before = last.says("echoed");
    assert!(!before.contains(" 0 packets"), "{before}");
    generator.signal(libc::SIGINT);
    let sent = generator.ends_with_json();
    assert!(number(&sent, "received") > 0 && number(&sent, "corrupted") == 0, "{sent}");
    assert_eq!(last.ends_with_json()["ended"], "the NIC stopped");
}

#[test]
fn a_program_survives_a_killed_nic() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let mut generator = generate(folder.path(), "0.1Mpps");
    let mut echo = echo(folder.path(), "1 2 0");
    generator.says(" s  sent");
    echo.says("echoed");
    generator.signal(libc::SIGKILL);
    assert!(!generator.ends().0.success());
    assert_eq!(echo.ends_with_json()["ended"], "the NIC stopped");
    // The socket that it left does not matter.
    let again = generate(folder.path(), "0.1Mpps");
    again.signal(libc::SIGINT);
    again.ends_with_json();
}

#[test]
fn the_application_may_start_first() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let mut echo = Running::start(folder.path(), "echo 1 2 0 --nic nic --json");
    echo.says("waiting for a NIC at nic");
    let generator = generate(folder.path(), "100 --count 1000");
    assert_eq!(number(&generator.ends_with_json(), "received"), 1000);
    assert_eq!(number(&echo.ends_with_json(), "packets"), 1000);

    let mut alone = Running::start(folder.path(), "echo 1 2 0 --nic nic");
    alone.says("waiting for a NIC at nic");
    alone.signal(libc::SIGINT);
    assert!(alone.refused(1).contains("no NIC at nic"));
}

#[test]
fn eight_thousand_pipes_are_ready() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    // No more than their rings hold.
    let generator = generate(folder.path(), "1Mpps --count 100");
    let mut echo = echo(folder.path(), "1 8192 0 --ring 4KiB");
    let warning = echo.says("of 8192 flows have no rule");
    let sent = generator.ends_with_json();
    // The NIC's flow table fills up first.
    let without = number(&sent["counters"], "EVICTION");
    assert!(without > 0 && warning.starts_with(&format!("{without} of 8192 ")), "{warning}");
    assert_eq!(["sent", "received"].map(|name| number(&sent, name)), [100, 100], "{sent}");
    assert_eq!(number(&echo.ends_with_json(), "packets"), 100);
}

#[test]
fn errors_are_one_line() {
    if !has_two_cpus() {
        return;
    }
    let _alone = alone();
    let folder = folder();
    let whole = std::fs::read(folder.path().join("2_64_1_2.pcap")).unwrap();
    std::fs::write(folder.path().join("cut.pcap"), &whole[..whole.len() - 1]).unwrap();
    let refused_with = |status: i32, words: &str, parts: &[&str]| {
        let why = Running::start(folder.path(), words).refused(status);
        assert!(parts.iter().all(|part| why.contains(part)), "{words}: {why}");
    };
    // Usage errors have status 2, runtime errors status 1.
    let refused = |words: &str, parts: &[&str]| refused_with(2, words, parts);
    let failed = |words: &str, parts: &[&str]| refused_with(1, words, parts);
    refused("generate none.pcap 100 --nic nic", &["none.pcap", "cannot be read"]);
    refused("generate cut.pcap 100 --nic nic", &["cut.pcap: packet 2", "cut off"]);
    failed("generate 2_64_1_2.pcap 100 --nic none/nic", &["none/nic", "--nic"]);
    failed("generate 2_64_1_2.pcap 100 --nic nic --save none/csv", &["none/csv", "--save"]);
    failed("generate 2_64_1_2.pcap 100 --nic nic --rtt-hist none/csv", &["none/csv", "--rtt-hist"]);
    refused("generate 2_64_1_2.pcap 100 --nic cut.pcap", &["cut.pcap: a regular file", "--nic"]);
    assert_eq!(std::fs::read(folder.path().join("cut.pcap")).unwrap(), whole[..whole.len() - 1]);
    refused("echo 1 2 0 --nic nic --ring 5000", &["powers of two"]);
    refused("echo 2 8192 0 --nic nic", &["16384", "8192"]);
    failed("echo 1 8192 0 --nic nic --ring 1GiB", &["8 TiB", "smaller"]);
    refused("echo 1 4 0 --nic nic --flows 3", &["--flows", "3 flows leave some of 4 pipes"]);
    refused("echo 1 4 0 --nic nic --flows 8 --steering hash", &["--flows", "hash"]);
    refused("log-monitor --nic nic --rules none.conf", &["none.conf", "readable file"]);
    failed("key-value --nic nic --keys 1099511627776", &["keys need", "fewer keys"]);
    refused("generate 2_64_1_2.pcap 1 --cpu 65535", &["--cpu 65535", "use one of"]);
    refused("generate --nic nic", &["no rate", "--application"]);
    refused("generate --application maglev", &["no rate", "--application"]);
    refused("generate 1Mpps --nic nic", &["only '1Mpps'", "--application"]);
    refused("generate 2_64_1_2.pcap 1 --keys 5", &["--keys", "--application"]);
    refused("generate --application maglev 2_64_1_2.pcap 1", &["2_64_1_2.pcap", "omit"]);
    refused("generate --application maglev fast", &["fast: not a rate"]);
    refused("generate --application maglev 1 --keys 5", &["--keys: only key-value", "omit"]);
    refused("generate --application log-monitor 1 --rtt", &["--rtt", "log-monitor", "omit"]);
    refused("generate --application key-value 1 --workload cached", &["key-value", "zipf-0.99"]);
    refused("generate --application telemetry 1 --workload zipf-9", &["workload", "'zipf-9'"]);
    refused("generate --application echo 1 --workload syn-flood", &["--steering hash"]);
    refused("pcap 2_63_1_2.pcap", &["63 B"]);
    refused("pcap two.pcap", &["two.pcap", "2_64_1_2.pcap"]);
    refused("pcap --size 63", &["63 B", "64 to 1518"]);
    refused("pcap --packets 0", &["packets: 0"]);
    refused("pcap --packets 4294967295", &["4294967295 packets", "16777216"]);
    refused("pcap --destinations 4294967295", &["4294967295"]);
    refused("search --packet-bytes 63", &["packet_bytes"]);
    refused("search --flows 0", &["flows", "per-pipe"]);
    refused("search --steering none", &["steering", "round-robin"]);
    refused("search --nops 4294967296", &["nops", "1000000"]);
    refused("search --pipes 8193", &["pipes", "8192"]);
    refused("search --cores 18446744073709551615", &["cores", "1024"]);
    refused("search --depth 1000", &["depth"]);
    refused("search --maximum 1e99", &["maximum"]);
    refused("search --get-share 5", &["--get-share: only key-value", "omit"]);
    refused("search --application log-monitor --match-share 101", &["match_share", "'101'"]);
    refused("search --application log-monitor --workload uniform", &["use workload in-turn"]);
    refused("search --application maglev --interface dpdk", &["testpmd", "use echo"]);
    refused("search --duration 1000000min", &["--duration", "10 min"]);
    refused("search --duration 0ms", &["--duration", "1 ms"]);
    let generator = generate(folder.path(), "1");
    failed("generate 2_64_1_2.pcap 1 --nic nic", &["another NIC"]);
    failed("echo 1000 2 0 --nic nic", &["1001 CPUs", "1000 for the application"]);
    generator.signal(libc::SIGINT);
    generator.ends_with_json();
}

#[test]
fn invalid_arguments_are_refused() {
    for words in [
        "generate a.pcap 0",
        "generate a.pcap -1",
        "generate a.pcap fast",
        "echo 0 1 0",
        "echo 1 0 0",
        "echo 1 8193 0",
        "generate a.pcap 1 --count 0",
        "echo 1 1 0 --interface dpdk",
        "echo 1 1 0 --interface af-xdp",
        "echo 1 1 1000001",
        "echo 4294967296 1 0",
        "generate a.pcap 1 --modelled-doorbell 2ms",
        "generate a.pcap 1 --modelled-transfer 1000000min",
        "generate a.pcap 1 --modelled-mmio 2ms",
        "generate a.pcap 1 --modelled-link gen2",
        "generate a.pcap 1 --count 18446744073709551616",
        "generate a.pcap 1e-9",
        "generate a.pcap 1 --interval 1ms",
        "generate a.pcap 1 --round-robin 0",
        "generate a.pcap 1 --round-robin 8193",
        "generate --application none 1",
        "generate --application maglev 1 --round-robin 2",
        "generate --application maglev 1 --interface veth0",
        "generate --application maglev 1 --backends 0",
        "generate --application key-value 1 --keys 0",
        "generate --application echo 1 --pipes 8193",
        "search --application none",
        "echo 1 1 0 --flows 8193",
        "echo 1 1 0 --interval 2h",
        "echo 1 1 0 --steering random",
        "maglev --backends 0",
        "maglev --backends 6554",
        "maglev 1 1 0",
        "key-value --keys 10 --memory 1MiB",
        "key-value --keys 0",
        "telemetry --one-in 0",
        "search --rounds 0",
        "search --rounds 4294967295",
        "pcap --packets 4294967296",
        "pcap --size 65536",
    ] {
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let why = run(&words).unwrap_err();
        assert!(why.downcast::<clap::Error>().is_ok(), "{words:?}");
    }
}
