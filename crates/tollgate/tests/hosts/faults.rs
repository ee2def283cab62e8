//! Faults during runs on hosts: each costs at most the sample in flight, and nothing is measured twice or left on the host.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::namespace::{self, ip};
use crate::harness::{Bench, Started, TIMEOUT};
use crate::sshd::{Options, Sshd, signal};
use crate::{command, counts, exits, failures, measure};

const RUN: [&str; 7] = ["run", "planted/delay", "--rounds", "60", "--quiet", "--host", "dut"];
/// The samples of that run: seven effects and a twin.
const SAMPLES: usize = 8 * 60;
/// How long a lost lab or connection may take to be noticed, on a busy machine.
const NOTICED: Duration = Duration::from_secs(90);

/// Starts a run on the host, with its messages in a file.
fn start(bench: &Bench) -> Started {
    start_with(bench, &RUN)
}

fn start_with(bench: &Bench, arguments: &[&str]) -> Started {
    let errors = fs::File::create(bench.path().join("errors")).unwrap();
    let mut command = command(bench, arguments);
    command.stdout(Stdio::null()).stderr(errors);
    Started::new(command)
}

fn errors(bench: &Bench) -> String {
    fs::read_to_string(bench.path().join("errors")).unwrap()
}

/// Waits until the newest run has more samples than `count`.
#[track_caller]
fn wait_for_samples(bench: &Bench, run: &mut Started, count: usize) {
    let start = Instant::now();
    while bench.samples() <= count {
        assert!(run.try_wait().unwrap().is_none(), "the run ended: {}", errors(bench));
        assert!(start.elapsed() < NOTICED, "no sample: {}", errors(bench));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the worker on the host.
fn worker(bench: &Bench) -> Option<u32> {
    let is_worker = |process: &String| {
        process.contains("/tollgate worker --remote") && !process.contains("/bin/sh")
    };
    let found = bench.processes().into_iter().find(is_worker)?;
    found.split(' ').next()?.parse().ok()
}

/// Checks that each sample was measured once.
#[track_caller]
fn assert_complete(bench: &Bench) {
    let counts = counts(&bench.journal(), "planted/delay");
    let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    assert_eq!(counts.len(), SAMPLES);
}

#[test]
fn a_lost_connection_is_made_again_and_loses_nothing() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a lost connection") else { return };
    let mut run = start(&bench);
    for _ in 0..3 {
        let before = bench.samples();
        wait_for_samples(&bench, &mut run, before + 20);
        sshd.break_connections();
    }
    let status = run.wait().unwrap();
    let journal = bench.journal();
    assert_eq!(failures(&journal), Vec::<String>::new(), "{status}: {}", errors(&bench));
    assert!(
        errors(&bench).contains("the worker on 'dut' lost its connection"),
        "{}",
        errors(&bench)
    );
    assert_complete(&bench);
    assert_eq!(journal.record.last_session(), 1);
    let (logs, _) = exits(&bench, &["logs"], 0);
    assert!(logs.matches(" started as process ").count() >= 2, "{logs}");
    assert!(logs.contains("lost its connection"), "{logs}");
    bench.wait_for_no_processes(NOTICED);
}

#[test]
fn a_program_that_was_removed_during_a_break_is_installed_again() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a program that was removed") else { return };
    let mut run = start(&bench);
    wait_for_samples(&bench, &mut run, 20);
    // The running worker has its file open; the next connection finds none.
    fs::remove_dir_all(Sshd::cache(&bench)).unwrap();
    sshd.break_connections();
    let status = run.wait().unwrap();
    assert_eq!(failures(&bench.journal()), Vec::<String>::new(), "{status}: {}", errors(&bench));
    assert_complete(&bench);
    assert!(Sshd::cache(&bench).exists());
    bench.wait_for_no_processes(NOTICED);
}

#[test]
fn a_killed_worker_costs_one_sample_and_is_replaced() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "a killed worker on a host") else { return };
    let mut run = start(&bench);
    wait_for_samples(&bench, &mut run, 20);
    // Killed between two orders it costs nothing; then the next one is.
    while failures(&bench.journal()).is_empty() {
        let before = bench.samples();
        if let Some(worker) = worker(&bench) {
            signal(worker, libc::SIGKILL);
        }
        wait_for_samples(&bench, &mut run, before + 9);
    }
    assert_eq!(run.wait().unwrap().code(), Some(1));
    let failures = failures(&bench.journal());
    let expected = "the worker on 'dut' was killed by SIGKILL";
    assert!(failures.iter().all(|failure| failure.contains(expected)), "{failures:?}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_killed_lab_leaves_nothing_on_the_host_and_resumes() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a killed lab of a host") else { return };
    let mut run = start(&bench);
    wait_for_samples(&bench, &mut run, 20);
    run.kill().unwrap();
    run.wait().unwrap();
    bench.wait_for_no_processes(NOTICED);
    // Only the program is left.
    let mut list = Command::new("find");
    let list = list.arg(Sshd::cache(&bench)).args(["-type", "f"]).output().unwrap();
    let files = String::from_utf8(list.stdout).unwrap();
    let is_program =
        |line: &str| line.contains("/tollgate/programs/") && line.ends_with("/tollgate");
    assert!(files.lines().count() == 1 && files.lines().all(is_program), "{files}");
    measure(&bench, &RUN);
    let journal = bench.journal();
    assert_eq!(journal.record.last_session(), 2);
    assert_eq!(failures(&journal), Vec::<String>::new());
    // The round in which it was killed is measured again from its start, so that its ratios are of one session.
    let keys = counts(&journal, "planted/delay");
    assert_eq!(keys.len(), SAMPLES);
    assert!(keys.values().filter(|count| **count > 1).count() <= 8, "{keys:?}");
    bench.wait_for_no_processes(TIMEOUT);
    drop(sshd);
}

#[test]
fn a_second_lab_is_refused_by_the_host_or_waits() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "two labs of a host") else { return };
    let endless = RUN.map(|word| if word == "60" { "4000" } else { word });
    let mut first = start_with(&bench, &endless);
    wait_for_samples(&bench, &mut first, 0);
    let second =
        ["run", "planted/delay", "--rounds", "1", "--quiet", "--results", "other", "--host", "dut"];
    let (_, errors) = exits(&bench, &second, 1);
    assert!(errors.contains("another run measures on this machine: pid "), "{errors}");
    assert!(errors.contains("/results on "), "{errors}");
    // In the same folder too, and at once: it does not wait for the workers of the first.
    let start = Instant::now();
    let (_, errors) = exits(&bench, &endless, 1);
    assert!(errors.contains("another run writes here"), "{errors}");
    let (_, errors) = exits(&bench, &[&endless[..], &["--fresh"]].concat(), 1);
    assert!(errors.contains("another run measures on this machine: results in "), "{errors}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let mut waiting = command(&bench, &[&second[..], &["--wait"]].concat());
    let messages = bench.path().join("waiting");
    waiting.stdout(Stdio::null()).stderr(fs::File::create(&messages).unwrap());
    let mut waiting = Started::new(waiting);
    let text = || fs::read_to_string(&messages).unwrap();
    let start = Instant::now();
    while !text().contains("the worker on 'dut' waits for another run: pid ") {
        assert!(start.elapsed() < NOTICED, "{}", text());
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(first.id(), libc::SIGINT);
    assert_eq!(first.wait().unwrap().code(), Some(130), "{}", self::errors(&bench));
    // A busy machine may make a point void in its only round.
    let other = bench.path().join("other");
    let status = waiting.wait().unwrap();
    assert!(lab::journal::newest(&other).is_ok(), "{status}: {}", text());
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_worker_takes_the_lock_when_the_one_that_had_it_has_ended() {
    let bench = Bench::new();
    let worker = |purpose: &str, run: &str, name: &str| {
        let options = format!(
            r#"{{"purpose":"{purpose}","takes_lock":true,"waits":false,"nice":0,"cpus":[],"max_silence":600000,"run":"{run}","worker":"{name}"}}"#
        );
        let mut worker = bench.command(&["worker", "--remote", &options]);
        worker.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        worker.spawn().unwrap()
    };
    let start = |name| {
        let mut started = worker("a test", "0123456789abcdef", name);
        let mut output = std::io::BufReader::new(started.stdout.take().unwrap());
        let mut greeting = String::new();
        output.read_line(&mut greeting).unwrap();
        assert!(greeting.starts_with("{\"greeting\""), "{greeting}");
        (started, output)
    };
    let holder = || fs::read_to_string(bench.path().join("lock")).unwrap();
    let (mut first, _output) = start("0.0");
    assert!(holder().starts_with(&format!("pid {}, ", first.id())), "{}", holder());
    // The other name of the machine.
    let (mut second, mut answers) = start("0.1");
    assert!(holder().starts_with(&format!("pid {}, ", first.id())), "{}", holder());
    let refused = worker("another", "fedcba9876543210", "0.1").wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(errors.contains("another run measures on this machine: pid "), "{errors}");
    first.kill().unwrap();
    first.wait().unwrap();
    let order = lab::message::Order {
        id: 1,
        suite: "planted".into(),
        experiment: "delay".into(),
        method: "delay".into(),
        round: 0,
        points: Vec::new(),
        budget: Duration::from_millis(1),
        role: String::new(),
        attempt: 1,
        seed: 0,
        options: Default::default(),
        host: Default::default(),
        inside: false,
    };
    let order = lab::message::Request::Order(Box::new(order));
    writeln!(second.stdin.as_mut().unwrap(), "{}", serde_json::to_string(&order).unwrap()).unwrap();
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"done\""), "{answer}");
    assert!(holder().starts_with(&format!("pid {}, ", second.id())), "{}", holder());
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success());
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_worker_whose_lab_is_silent_ends_with_all_that_it_started() {
    let bench = Bench::new();
    let options = |silence: u64| {
        format!(
            r#"{{"purpose":"a test","takes_lock":true,"waits":false,"nice":0,"cpus":[],"max_silence":{silence}}}"#
        )
    };
    let start = |silence| {
        let mut worker = bench.command(&["worker", "--remote", &options(silence)]);
        worker.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        worker.spawn().unwrap()
    };
    // Its input stays open, as that of a half-open connection.
    let silent = start(1000);
    let begun = Instant::now();
    let output = silent.wait_with_output_open();
    assert!(output.1.contains("the lab is silent; the worker ends"), "{}", output.1);
    assert!(begun.elapsed() < TIMEOUT);
    assert_eq!(output.0, Some(0));
    // Heartbeats keep it alive.
    let mut alive = start(2000);
    let mut input = alive.stdin.take().unwrap();
    for _ in 0..8 {
        writeln!(input, "\"heartbeat\"").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(alive.try_wait().unwrap().is_none());
    }
    drop(input);
    assert!(alive.wait().unwrap().success());
    let mut wrong = bench.command(&["worker", "--remote", "{}"]);
    let output = wrong.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    bench.wait_for_no_processes(TIMEOUT);
}

/// A child whose input stays open while it is waited for.
trait WaitOpen {
    fn wait_with_output_open(self) -> (Option<i32>, String);
}

impl WaitOpen for std::process::Child {
    fn wait_with_output_open(mut self) -> (Option<i32>, String) {
        let input = self.stdin.take();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.stderr.take().unwrap(), &mut text).unwrap();
        let status = self.wait().unwrap().code();
        drop(input);
        (status, text)
    }
}

#[test]
fn a_full_disk_here_ends_the_run_with_one_line() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "a full disk of the lab") else { return };
    // A limit of file sizes cuts a write as a full disk does.
    let arguments = RUN.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = format!("ulimit -f 60; exec '{}' {arguments}", env!("CARGO_BIN_EXE_tollgate"));
    // The program is installed before, because the limit is inherited by all that the lab starts.
    exits(&bench, &["hosts", "check"], 0);
    let mut limited = command(&bench, &[]);
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(bench.path());
    for (name, value) in limited.stdin(Stdio::null()).get_envs() {
        shell.env(name, value.unwrap());
    }
    let output = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!((output.status.code(), lines.len()), (Some(1), 1), "{errors}");
    assert!(lines[0].contains("samples.jsonl") || lines[0].contains("run.json"), "{errors}");
    bench.wait_for_no_processes(TIMEOUT);
    measure(&bench, &RUN);
    assert_eq!(counts(&bench.journal(), "planted/delay").len(), SAMPLES);
}

#[test]
#[ignore = "waits until both sides notice a link that is down, about a minute"]
fn long_a_link_that_is_down_for_a_minute_loses_nothing() {
    let bench = Bench::new();
    let Some([near, far]) = namespace::pair("a link that is down") else { return };
    namespace::connect(&near, &far, "veth0", Some(["10.111.0.1/24", "10.111.0.2/24"]));
    let options = Options { namespace: Some((&far.0, "10.111.0.2")), ..Options::default() };
    let Some(_sshd) = Sshd::start_with(&bench, "a link that is down", &options) else { return };
    let mut run = near.command(&command(&bench, &RUN));
    let errors = fs::File::create(bench.path().join("errors")).unwrap();
    run.stdout(Stdio::null()).stderr(errors);
    let mut run = Started::new(run);
    wait_for_samples(&bench, &mut run, 20);
    let before = worker(&bench).unwrap();
    assert!(ip(&["-n", &near.0, "link", "set", "veth0", "down"]));
    // Neither side gets a message: the lab notices by ssh, the worker by its heartbeat.
    let down = Instant::now();
    while std::path::Path::new(&format!("/proc/{before}")).exists() {
        assert!(down.elapsed() < NOTICED, "the worker does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(down.elapsed() > Duration::from_secs(5));
    while !self::errors(&bench).contains("connecting again") {
        assert!(down.elapsed() < NOTICED, "{}", self::errors(&bench));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(run.try_wait().unwrap().is_none());
    assert!(ip(&["-n", &near.0, "link", "set", "veth0", "up"]));
    let status = run.wait().unwrap();
    assert_eq!(
        failures(&bench.journal()),
        Vec::<String>::new(),
        "{status}: {}",
        self::errors(&bench)
    );
    assert_complete(&bench);
    bench.wait_for_no_processes(NOTICED);
}

#[test]
#[ignore = "waits until the lab gives up, about half a minute"]
fn long_a_host_that_does_not_come_back_ends_the_run_and_it_resumes() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "a host that does not come back") else { return };
    let path = bench.path().join("tollgate.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}reconnect = \"10 s\"\n")).unwrap();
    let mut run = start(&bench);
    wait_for_samples(&bench, &mut run, 20);
    let connections = sshd.connections();
    let port = sshd.port;
    drop(sshd);
    connections.iter().for_each(|process| signal(*process, libc::SIGKILL));
    assert_eq!(run.wait().unwrap().code(), Some(1));
    let errors = errors(&bench);
    let line = errors.lines().last().unwrap();
    assert!(
        line.contains("Connection refused") && line.ends_with("run again to resume"),
        "{port}: {errors}"
    );
    bench.wait_for_no_processes(NOTICED);
    let before = counts(&bench.journal(), "planted/delay").len();
    fs::remove_dir_all(bench.path().join("ssh")).unwrap();
    let Some(_again) = Sshd::start(&bench, "a host that comes back") else { return };
    measure(&bench, &RUN);
    assert!(counts(&bench.journal(), "planted/delay").len() > before);
}
