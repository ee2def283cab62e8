//! Resuming of runs that were killed or interrupted.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Bench, Started, TIMEOUT};
use lab::journal::{self, Run};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const RUN: [&str; 5] = ["run", "planted/delay", "--rounds", "40", "--quiet"];

/// Returns the number of valid samples per point, twin and round.
fn valid_samples(run: &Run) -> BTreeMap<String, u32> {
    let mut times = BTreeMap::new();
    for sample in run.samples.iter().filter(|sample| sample.experiment == "planted/delay") {
        if sample.is_complete() {
            let key = format!("{} {} {}", sample.point, sample.twin, sample.round);
            *times.entry(key).or_default() += 1;
        }
    }
    times
}

/// Returns, for each round, the sessions of the samples that count.
fn sessions_by_round(run: &Run) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut last = BTreeMap::new();
    for sample in run.samples.iter().filter(|sample| sample.experiment == "planted/delay") {
        last.insert((sample.round, sample.point.to_string(), sample.twin), sample.session);
    }
    let mut sessions: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for ((round, ..), session) in last {
        sessions.entry(round).or_default().insert(session);
    }
    sessions
}

#[test]
fn a_run_killed_ten_times_repeats_at_most_one_round_each_time() {
    let bench = Bench::new();
    let mut random = Pcg64Mcg::seed_from_u64(7);
    for time in 1..=10 {
        let mut child = bench.start(&RUN);
        std::thread::sleep(Duration::from_millis(random.random_range(20..220)));
        if time == 10 {
            // A busy machine may have measured nothing yet.
            bench.wait_for_sample();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        bench.wait_for_no_processes(TIMEOUT);
    }
    let before = valid_samples(&bench.journal()).len();
    assert!(bench.samples() > 0, "no kill hit a measurement");
    bench.ok(&RUN);
    let all = valid_samples(&bench.journal());
    // Seven effects and one twin.
    assert_eq!(all.len(), 8 * 40, "{before} before the last run");
    let run = bench.journal();
    let repeated: u32 = all.values().map(|times| times - 1).sum();
    assert!(repeated <= 10 * 7, "{repeated} samples were repeated");
    let sessions = 1..=run.record.last_session();
    assert!(run.samples.iter().all(|sample| sessions.contains(&sample.session)));
    assert!(sessions_by_round(&run).values().all(|sessions| sessions.len() == 1));
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn an_interrupted_run_exits_with_130_and_resumes() {
    let bench = Bench::new();
    let mut child = bench.start(&["run", "planted/delay", "--rounds", "2000", "--quiet"]);
    bench.wait_for_sample();
    send(&child, libc::SIGINT);
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    bench.wait_for_no_processes(TIMEOUT);
    let before = valid_samples(&bench.journal()).len();
    assert!(before > 0);
    bench.ok(&RUN);
    let after = valid_samples(&bench.journal());
    let repeated = after.values().filter(|times| **times > 1).count();
    assert!(after.len() >= 320 && repeated <= 7, "{repeated} samples were repeated");
}

/// Returns the experiment and round of each sample, in the order of the journal, without repetitions.
fn visits(run: &Run) -> Vec<(&str, u32)> {
    let samples = run.samples.iter().filter(|sample| sample.experiment.starts_with("planted/"));
    let mut visits: Vec<_> = samples.map(|one| (one.experiment.as_str(), one.round)).collect();
    visits.dedup();
    visits
}

#[test]
fn explain_states_the_verdict_in_each_environment() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/delay", "--rounds", "6", "--quiet"]);
    let whole = bench.ok(&["explain", "planted-20"]);
    assert!(!whole.contains("another environment"), "{whole}");
    let mut elsewhere = bench.command(&["run", "planted/delay", "--rounds", "6", "--quiet"]);
    elsewhere.env("GLIBC_TUNABLES", "glibc.cpu.x86_non_temporal_threshold=0x404040");
    elsewhere.output().unwrap();
    let text = bench.ok(&["explain", "planted-20"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<_> =
        text.split("in another environment (differing in libc tunables): ").collect();
    assert_eq!(parts.len(), 2, "{text}");
    let ratio = "effect=20% over effect=0%";
    // On a busy machine all samples of an environment may be void.
    let has_ratio = |part: &&str| part.contains(ratio) || part.contains("void: in every round");
    assert!(parts.iter().all(has_ratio), "{text}");
    assert!(
        parts[0].contains(
            "rounds of another environment (differing in libc tunables) are judged separately"
        ),
        "{text}"
    );
    assert!(!parts[1].contains("judged separately"), "{text}");
}

#[test]
fn a_run_passes_through_its_experiments_round_by_round() {
    let bench = Bench::new();
    let two = MINE.replace("rounds = 2", "rounds = 6")
        + &MINE.replace("rounds = 2", "rounds = 3").replace("\"mine\"", "\"few\"");
    std::fs::write(bench.path().join("mine.toml"), two).unwrap();
    bench.ok(&["run", "-e", "mine.toml", "planted/mine", "planted/few", "--quiet"]);
    let run = bench.journal();
    let visits = visits(&run);
    let rounds_of = |id: &str| -> Vec<u32> {
        visits.iter().filter(|one| one.0 == id).map(|one| one.1).collect()
    };
    assert_eq!(rounds_of("planted/mine"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(rounds_of("planted/few"), [0, 1, 2]);
    // The three rounds of one are spread over the six of the other.
    let is_few = |(at, visit): (usize, &(&str, u32))| (visit.0 == "planted/few").then_some(at);
    let few: Vec<_> = visits.iter().enumerate().filter_map(is_few).collect();
    assert!(few.windows(2).all(|pair| pair[1] - pair[0] >= 2), "{visits:?}");
}

#[test]
fn a_run_for_a_time_adds_rounds_and_ends_in_time() {
    let bench = Bench::new();
    let two =
        MINE.replace("disturbance = \"calm\"", "disturbance = [\"calm\", \"drift-and-stalls\"]");
    std::fs::write(bench.path().join("mine.toml"), two.replace("1 ms", "20 ms")).unwrap();
    bench.ok(&["run", "-e", "mine.toml", "planted/mine", "--for", "2s", "--quiet"]);
    let run = bench.journal();
    let rounds = visits(&run).len();
    let most = run.samples.last().unwrap().at - run.samples[0].at;
    assert!(rounds > 2, "{rounds} rounds");
    // It ends before if all points are narrow.
    assert!(most < 4.0, "{most} s of samples");
    // The points stop together, whatever the width of each; only the last round may be incomplete.
    let mut of_point: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for sample in run.samples.iter().filter(|one| one.round + 1 < rounds as u32) {
        of_point.entry(sample.point.to_string()).or_default().insert(sample.round);
    }
    let counts: BTreeSet<_> = of_point.values().map(BTreeSet::len).collect();
    assert_eq!((of_point.len(), counts.len()), (2, 1), "{of_point:?}");
    let line = bench.refused(&["run", "planted/delay", "--for", "0s"], 2);
    assert!(line.contains("--for") && line.contains("0 s is no time"), "{line}");
    let other = Bench::new();
    let line = other.refused(&["run", "planted/delay", "--for", "1ns"], 2);
    assert!(line.contains("is too short for one round, about"), "{line}");
    assert!(!other.path().join("results").exists(), "a run was created");
}

/// An experiment of 40 points, of which a claim requires more rounds of one than there is time for rounds of all.
const MANY: &str = r#"
[[experiment]]
name = "mine"
suite = "planted"
method = "delay"
about = "many points"
metric = "time"
baseline = { effect = "0%" }
sweeps = [["effect"]]
twins = [{ effect = "0%" }]
rounds = 2
min_rounds = 2
budget = "20 ms"
[experiment.factors]
effect = [EFFECTS]

[[claim]]
id = "always-a-time"
says = "Each time is positive"
source = "me"
experiment = "planted/mine"
where = { effect = "7%" }
rounds = 16
expect = { always = { at_least = 0 } }
"#;

#[test]
fn a_claim_that_lacks_rounds_gets_further_ones() {
    let bench = Bench::new();
    let effects = (0..40).map(|effect| format!("\"{effect}%\"")).collect::<Vec<_>>().join(", ");
    std::fs::write(bench.path().join("mine.toml"), MANY.replace("EFFECTS", &effects)).unwrap();
    let words = ["run", "-e", "mine.toml", "planted/mine", "--for", "10s", "--quiet"];
    let output = bench.run(&words);
    let errors = String::from_utf8_lossy(&output.stderr);
    let run = bench.journal();
    if run.samples.iter().map(|one| one.round).max() < Some(3) {
        machine::untested::note("further rounds", &"the machine is too busy for three rounds");
        return;
    }
    assert!(errors.contains("further rounds for 1 claim, planted/mine"), "{errors}");
    let further = &run.record.sessions[0].further_rounds["planted/mine"];
    assert!(!further.is_empty());
    let items_of = |round: u32| -> BTreeSet<(String, bool)> {
        let of_round = run.samples.iter().filter(|one| one.round == round);
        let of_round = of_round.filter(|one| one.experiment == "planted/mine");
        of_round.map(|one| (one.point.text("effect").to_owned(), one.twin)).collect()
    };
    for round in 0..*further.first().unwrap() {
        assert_eq!(items_of(round).len(), 41, "round {round}");
    }
    // The claimed point with those next to it; the twin, because it may be the nearest.
    for round in further {
        let items = items_of(*round);
        assert!(items.contains(&("7%".into(), false)) && items.len() < 41 / 4, "{items:?}");
    }
    let claims = bench.json(&["claims", "always-a-time", "-e", "mine.toml", "--json"]);
    let claim = &claims["claims"][0];
    let rounds = claim["judgements"][0]["values"][0]["rounds"].as_u64().unwrap();
    match rounds {
        16.. => assert_eq!(claim["verdict"], "reproduced", "{claim}"),
        _ => machine::untested::note("enough further rounds", &"too many samples are void"),
    }
    assert!(run.samples.last().unwrap().at - run.samples[0].at < 13.0);
}

#[test]
fn a_session_measures_the_rounds_of_another_selection_whole() {
    let bench = Bench::new();
    let all = ["run", "planted/delay", "--rounds", "6", "--quiet"];
    let part = [&all[..], &["--where", "effect=0%"]].concat();
    bench.ok(&part);
    bench.ok(&all);
    let run = bench.journal();
    assert_eq!(run.record.sessions.len(), 2);
    let sessions = sessions_by_round(&run);
    assert_eq!(sessions.len(), 6);
    assert!(sessions.values().all(|sessions| *sessions == BTreeSet::from([2])), "{sessions:?}");
    // Every round has the points of the smaller selection in one session.
    bench.ok(&part);
    assert_eq!(bench.journal().samples.len(), run.samples.len());
}

/// Starts a command with the given action for SIGHUP.
fn start_with_hangup(mut command: Command, action: libc::sighandler_t) -> Started {
    // SAFETY: signal is async-signal-safe and changes only the child's action.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGHUP, action);
            Ok(())
        });
    }
    Started::new(command)
}

fn send(child: &Started, signal: i32) {
    // SAFETY: kill takes numbers only; the child is not reaped yet.
    unsafe { libc::kill(child.id() as i32, signal) };
}

#[test]
fn an_interrupt_before_the_first_sample_is_not_an_error() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        for more in [&[][..], &["--json"], &["--quiet"]] {
            let bench = Bench::new();
            let mine = MINE.replace("1 ms", "20 s");
            std::fs::write(bench.path().join("mine.toml"), mine).unwrap();
            let run = [&["run", "-e", "mine.toml", "planted/mine"][..], more].concat();
            let mut command = bench.command(&run);
            let errors = bench.path().join("errors");
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&errors).unwrap());
            let mut child = start_with_hangup(command, libc::SIG_DFL);
            let start = Instant::now();
            while journal::newest(&bench.path().join("results")).is_err() {
                assert!(start.elapsed() < TIMEOUT, "the run does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
            send(&child, signal);
            let status = child.wait().unwrap();
            let message = std::fs::read_to_string(errors).unwrap();
            assert_eq!(status.code(), Some(130), "signal {signal}, {more:?}: {message}");
            assert!(!message.contains("error"), "signal {signal}, {more:?}: {message}");
            assert_eq!(bench.samples(), 0);
            bench.wait_for_no_processes(TIMEOUT);
        }
    }
}

#[test]
fn a_run_that_ignores_sighup_continues() {
    let bench = Bench::new();
    let mut command = bench.command(&["run", "planted/delay", "--rounds", "2000", "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = start_with_hangup(command, libc::SIG_IGN);
    bench.wait_for_sample();
    send(&child, libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn a_complete_run_measures_nothing_again() {
    let bench = Bench::new();
    let run = ["run", "planted/delay", "--rounds", "6", "--quiet"];
    bench.ok(&run);
    let first = bench.journal().samples.len();
    bench.ok(&run);
    assert_eq!(bench.journal().samples.len(), first, "an idle session adds no sample");
    bench.ok(&["run", "planted/delay", "--rounds", "6", "--quiet", "--fresh"]);
    assert!(bench.journal().folder.ends_with(format!("{}-quick-2", bench.journal().record.host)));
}

#[test]
fn a_folder_has_one_running_run() {
    let bench = Bench::new();
    let mut first = bench.start(&["run", "planted/delay", "--rounds", "2000", "--quiet"]);
    bench.wait_for_sample();
    let other_lock = bench.command(&RUN).env("TOLLGATE_LOCK", bench.path().join("other")).output();
    let line = String::from_utf8(other_lock.unwrap().stderr).unwrap();
    assert!(line.contains("another run writes here") && line.contains("--fresh"), "{line}");
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_machine_has_one_running_run() {
    let (bench, other) = (Bench::new(), Bench::new());
    let mut first = bench.start(&["run", "planted/delay", "--rounds", "2000", "--quiet"]);
    bench.wait_for_sample();
    let second = |words: &[&str]| {
        let mut command = other.command(words);
        command.env("TOLLGATE_LOCK", bench.path().join("lock"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let refused = second(&RUN).output().unwrap();
    let line = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{line}");
    let holder = format!("pid {}, since 20", first.id());
    let results = format!("results in {}", bench.path().join("results").display());
    assert!(line.contains(&holder) && line.contains(&results), "{line}");
    assert!(line.contains("tollgate run --wait") && other.samples() == 0, "{line}");
    // The other one waits, and measures once the first has ended.
    let mut waiting = Started::new(second(&[&RUN[..], &["--wait"]].concat()));
    let expected = format!("waiting for another run on this machine: {holder}");
    let mut output = BufReader::new(waiting.stderr.take().unwrap());
    let mut errors = String::new();
    while !errors.contains(&expected) {
        assert!(output.read_line(&mut errors).unwrap() > 0, "{errors}");
    }
    assert_eq!(other.samples(), 0);
    first.kill().unwrap();
    first.wait().unwrap();
    output.read_to_string(&mut errors).unwrap();
    waiting.wait().unwrap();
    assert!(other.samples() > 0, "{errors}");
}

#[test]
fn a_run_that_waits_can_be_interrupted() {
    let bench = Bench::new();
    let mut first = bench.start(&["run", "planted/delay", "--rounds", "2000", "--quiet"]);
    bench.wait_for_sample();
    let other = bench.path().join("other");
    let words = [&RUN[..], &["--wait", "--results", other.to_str().unwrap()]].concat();
    let mut command = bench.command(&words);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waiting = Started::new(command);
    let mut line = String::new();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap());
    while !line.contains("waiting for another run") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it did not wait");
    }
    send(&waiting, libc::SIGINT);
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    assert!(!other.exists());
    first.kill().unwrap();
    first.wait().unwrap();
}

const MINE: &str = r#"
[[experiment]]
name = "mine"
suite = "planted"
method = "delay"
about = "a delay"
metric = "time"
rounds = 2
budget = "1 ms"
factors = { effect = ["0%"], disturbance = "calm" }
"#;

#[test]
fn samples_of_another_definition_are_not_resumed() {
    let bench = Bench::new();
    let write = |text: &str| std::fs::write(bench.path().join("mine.toml"), text).unwrap();
    let run = ["run", "-e", "mine.toml", "planted/mine", "--quiet"];
    write(MINE);
    bench.ok(&run);
    let other_method = MINE
        .replace("\"delay\"", "\"artefact\"")
        .replace("effect = [\"0%\"], disturbance = \"calm\"", "artefact = \"table\"");
    for (changed, message) in [
        (other_method, "method: the run has 'delay', now it is 'artefact'"),
        (MINE.replace("1 ms", "1.4 ms"), "budget: the run has '1ms', now it is '1.4ms'"),
        (format!("{MINE}limit = \"5 s\"\n"), "limit: the run has 'default', now it is '5s'"),
    ] {
        write(&changed);
        let line = bench.refused(&run, 2);
        assert!(line.contains(message) && line.contains("--fresh"), "{line}");
        bench.ok(&[&run[..], &["--fresh"]].concat());
        // Make the newest run one of the original definition.
        write(MINE);
        bench.ok(&[&run[..], &["--fresh"]].concat());
    }
    let nice = bench.refused(&[&run[..], &["--priority", "19"]].concat(), 2);
    assert!(nice.contains("nice value: the run has ") && nice.contains(", now it is 19"), "{nice}");
    let line = bench.refused(&[&run[..], &["--set", "file-folder=/nowhere"]].concat(), 2);
    let default = std::env::temp_dir();
    let expected =
        format!("--set file-folder: the run has {}, now it is /nowhere", default.display());
    assert!(line.contains(&expected) && line.contains("--fresh"), "{line}");
    let seed = bench.journal().record.seed;
    bench.ok(&[&run[..], &["--seed", &seed.to_string()]].concat());
    let line = bench.refused(&[&run[..], &["--seed", "7"]].concat(), 2);
    let expected = format!("--seed: the run has {seed}, now it is 7; start a new run with --fresh");
    assert!(line.contains(&expected), "{line}");
}

#[test]
fn experiment_ids_are_unique() {
    let bench = Bench::new();
    let write = |name: &str, text: &str| std::fs::write(bench.path().join(name), text).unwrap();
    write("mine.toml", MINE);
    write("again.toml", MINE);
    write("delay.toml", &MINE.replace("\"mine\"", "\"delay\""));
    for command in ["list", "run"] {
        let line = bench.refused(&[command, "-e", "delay.toml", "planted/delay"], 2);
        let message = "delay.toml:2: experiment 'planted/delay': planted/experiments.toml:3 has the same ID; choose another";
        assert!(line.contains(message), "{line}");
        let line = bench.refused(&[command, "-e", "mine.toml", "-e", "again.toml"], 2);
        let message =
            "again.toml:2: experiment 'planted/mine': mine.toml:2 has the same ID; choose another";
        assert!(line.contains(message), "{line}");
    }
}

#[test]
fn an_unknown_method_is_reported_before_measuring() {
    let bench = Bench::new();
    let text = MINE.replace("method = \"delay\"", "method = \"nope\"");
    std::fs::write(bench.path().join("mine.toml"), text).unwrap();
    let line = bench.refused(&["run", "-e", "mine.toml", "planted/mine"], 2);
    assert!(line.contains("unknown method 'nope' of suite 'planted'; expected one of delay, "));
    assert!(!bench.path().join("results").exists());
}

#[test]
fn an_invalid_claim_is_reported_before_measuring() {
    let bench = Bench::new();
    let claim = "[[claim]]\nid = \"bad\"\nsource = \"me\"\nsays = \"x\"\n\
                 experiment = \"planted/nope\"\nmetric = \"time\"\nexpect = { at_least = 1.0 }\n";
    std::fs::write(bench.path().join("mine.toml"), format!("{MINE}{claim}")).unwrap();
    let line = bench.refused(&["run", "-e", "mine.toml", "planted/mine", "--quiet"], 2);
    assert!(line.contains("mine.toml"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing is measured");
}

#[test]
fn a_run_without_record_and_a_run_in_a_run_are_errors() {
    let bench = Bench::new();
    let run = ["run", "planted/delay", "--rounds", "1", "--quiet"];
    bench.ok(&run);
    let folder = bench.journal().folder;
    let inside = ["--results", folder.to_str().unwrap()];
    let line = bench.refused(&[&run[..], &inside].concat(), 2);
    assert!(line.contains("the folder of one run"), "{line}");
    std::fs::remove_file(folder.join("run.json")).unwrap();
    let line = bench.refused(&run, 1);
    assert!(line.contains("run.json is missing"), "{line}");
}
