//! Copies between two hosts on one memory: two processes on a file, and two emulated guests. All that the guests report
//! is also checked in the files that back their memory.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::{Bench, file, was_made};
use lab::sample::{FailureKind, Sample};
use rustix::process::{Pid, Signal, kill_process};
use vm::rules::{Access, Rules};

/// Time limit of what takes seconds on an idle machine, e.g. the boot of two guests and a few samples.
const LIMIT: Duration = Duration::from_secs(600);
/// Content of the backing files before a run.
const BEFORE: u8 = 0xee;

/// Runs an experiment in the bench's folder.
fn run(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command_with_user_cache(&[&["run"], arguments].concat()).output().unwrap()
}

/// Runs of experiments until each has a sample: on a busy machine all of a run may be void.
const ATTEMPTS: usize = 3;

/// Runs experiments, which must succeed, until each has a sample that was made.
#[track_caller]
fn measure(bench: &Bench, arguments: &[&str]) {
    let names: Vec<_> = arguments.iter().take_while(|word| !word.starts_with('-')).collect();
    for _ in 0..ATTEMPTS {
        let output = run(bench, &[arguments, &["--fresh"]].concat());
        harness::succeeded(&output, &lab::journal::newest(&bench.path().join("results")).unwrap());
        let samples = bench.journal().samples;
        let is_made =
            |name: &&&str| samples.iter().any(|one| one.experiment == **name && is_made(one));
        if names.iter().all(is_made) {
            return;
        }
    }
}

/// Returns whether a sample was made: the row of a point that is void in every round has no values.
fn is_made(sample: &Sample) -> bool {
    was_made(sample) && !is_void_in_every_round(sample)
}

/// Returns the samples of an experiment that were made; checks that each has both roles and no error. If a busy machine
/// made none in any attempt, this is noted.
#[track_caller]
fn passed(bench: &Bench, experiment: &str) -> Vec<Sample> {
    let samples = bench.journal().samples.into_iter();
    let samples = samples.filter(|sample| sample.experiment == experiment);
    let (made, void): (Vec<_>, Vec<_>) = samples.partition(is_made);
    match (made.is_empty(), void.first()) {
        (true, None) => panic!("no sample of {experiment}"),
        (true, Some(void)) => {
            machine::untested::note(experiment, &format!("void: {:?}", void.point))
        }
        (false, _) => {}
    }
    for sample in &made {
        assert_eq!(sample.error, None, "{:?}", sample.point);
        assert_eq!(sample.parts.keys().collect::<Vec<_>>(), ["reader", "writer"]);
    }
    made
}

fn is_void_in_every_round(sample: &Sample) -> bool {
    sample.error.as_ref().is_some_and(|error| error.kind == FailureKind::Void)
}

#[track_caller]
fn value(sample: &Sample, metric: &str) -> f64 {
    *sample.values.get(metric).unwrap_or_else(|| panic!("no {metric}: {sample:?}"))
}

#[track_caller]
fn all_bytes_arrived(samples: &[Sample]) {
    for sample in samples {
        let length = lab::quantity::bytes(sample.point.text("length")).unwrap() as f64;
        assert_eq!(value(sample, "checked"), value(sample, "copies") * length, "{sample:?}");
        for metric in ["missing", "reverted", "foreign"] {
            assert_eq!(value(sample, metric), 0.0, "{metric}: {sample:?}");
        }
    }
}

#[track_caller]
fn all_frames_arrived(samples: &[Sample]) {
    for sample in samples {
        let length = lab::quantity::bytes(sample.point.text("length")).unwrap() as f64;
        assert_eq!(value(sample, "checked"), value(sample, "frames") * length, "{sample:?}");
        for metric in ["lost", "torn", "repeated"] {
            assert_eq!(value(sample, metric), 0.0, "{metric}: {sample:?}");
        }
    }
}

/// Writes experiments of slow copies: one of 16 B, and frames of 64 B.
fn slow_experiments(bench: &Bench, memory: &str) -> String {
    let roles = "about = 'slow copies'\nroles = ['writer', 'reader']\nsweeps = 'all'\ntwins = []\nlimit = '10 min'\n\
                 metric = 'checked'\n";
    let text = format!(
        "[[experiment]]\nname = 'slow-delivery'\nsuite = 'copy'\nmethod = 'two-host-delivery'\n{roles}\
         factors = {{ memory = ['{memory}'], length = ['16 B'] }}\n\
         [[experiment]]\nname = 'slow-frames'\nsuite = 'copy'\nmethod = 'two-host-frames'\n{roles}\
         factors = {{ memory = ['{memory}'], length = ['64 B'] }}\n"
    );
    file(bench, "slow.toml", &text).display().to_string()
}

/// Waits until a frame of 64 B is half written in the file of the memory, and returns the words of the slot.
#[track_caller]
fn wait_for_half_a_frame(path: &Path) -> [u64; 8] {
    let start = Instant::now();
    loop {
        let bytes = std::fs::read(path).unwrap_or_default();
        let word = |at: usize| {
            bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()))
        };
        // The data follows a page of control cells.
        let slot = std::array::from_fn(|index| word(4096 + index * 8));
        if slot[1] == 64 && slot[7] == 0 {
            return slot;
        }
        assert!(start.elapsed() < LIMIT, "no frame in {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn kill(bench: &Bench, is_wanted: impl Fn(&str) -> bool) {
    let processes = bench.processes();
    let wanted = processes.iter().find(|process| is_wanted(process));
    let wanted = wanted.unwrap_or_else(|| panic!("no such process: {processes:?}"));
    let process = wanted.split(' ').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
}

/// Checks that the first round failed and the second passed. A core clock that changes voids attempts of the second, but
/// harms no frame.
#[track_caller]
fn only_the_first_round_failed(bench: &Bench, why: &str) {
    let samples = bench.journal().samples.into_iter();
    let frames = samples.filter(|one| one.experiment == "copy/slow-frames" && is_made(one));
    let (second, first): (Vec<_>, Vec<_>) = frames.partition(|sample| sample.round == 1);
    assert_eq!(first.len(), 1, "{first:?}");
    let error = first[0].error.as_ref().unwrap();
    assert!(error.kind.is_fault() && error.to_string().contains(why), "{error}");
    assert!(!second.is_empty(), "the run goes on");
    for sample in &second {
        assert_eq!(sample.error, None);
    }
    all_frames_arrived(&second);
}

#[test]
fn bytes_and_frames_pass_between_two_processes_on_one_file() {
    let bench = Bench::new();
    let folder = format!("file-folder={}", bench.path().display());
    let names = ["copy/two-host-delivery", "copy/two-host-frames"];
    let how = ["--where", "memory=file", "--rounds", "1", "--set", &folder];
    measure(&bench, &[&names[..], &how].concat());
    all_bytes_arrived(&passed(&bench, names[0]));
    let frames = passed(&bench, names[1]);
    all_frames_arrived(&frames);
    for sample in &frames {
        assert_eq!(sample.values.contains_key("throughput"), sample.clock.is_some(), "{sample:?}");
    }
    assert!(!bench.path().join("tollgate-two-hosts").exists(), "the file is removed");
}

#[test]
fn a_slow_copy_becomes_visible_in_order_and_a_role_killed_within_it_costs_one_sample() {
    let bench = Bench::new();
    let experiments = slow_experiments(&bench, "file");
    let folder = format!("file-folder={}", bench.path().display());
    let how = ["-e", &experiments, "--rounds", "1", "--set", &folder, "--set", "pause=1"];
    measure(&bench, &[&["copy/slow-delivery"], &how[..]].concat());
    seen_in_order(&passed(&bench, "copy/slow-delivery"));

    let how =
        ["-e", &experiments, "--rounds", "2", "--fresh", "--set", &folder, "--set", "pause=1"];
    let mut running = bench.start(&[&["run", "copy/slow-frames"], &how[..]].concat());
    let memory = bench.path().join("tollgate-two-hosts");
    wait_for_half_a_frame(&memory);
    kill(&bench, |process| process.contains("worker --probe"));
    assert_eq!(running.wait().unwrap().code(), Some(1), "one sample failed");
    only_the_first_round_failed(&bench, "SIGKILL");
    assert!(!memory.exists(), "the next sample replaces the file and removes it");
}

#[track_caller]
fn seen_in_order(samples: &[Sample]) {
    all_bytes_arrived(samples);
    for sample in samples {
        assert_eq!(value(sample, "copies"), 1.0);
        // 4, 8 and 12 B; the last 4 are visible just before the copy is published.
        assert!(value(sample, "stages") >= 2.0, "{sample:?}");
        assert!(value(sample, "early") >= 8.0, "{sample:?}");
        assert_eq!(value(sample, "unordered"), 0.0, "{sample:?}");
    }
}

#[test]
fn without_a_filter_forbidden_accesses_are_counted() {
    let bench = Bench::new();
    let experiment = "[[experiment]]\nname = 'unfiltered'\nsuite = 'copy'\nmethod = 'two-host-mediation'\nabout = 'a leak'\n\
        roles = ['writer', 'reader']\nsweeps = 'all'\ntwins = []\nmetric = 'stopped'\nfactors = { memory = ['file'] }\n";
    let path = file(&bench, "mine.toml", experiment).display().to_string();
    let folder = format!("file-folder={}", bench.path().display());
    let run_with = |rules: &str| {
        let rules = format!("rules={}", file(&bench, "rules.toml", rules).display());
        let how = ["copy/unfiltered", "-e", &path, "--rounds", "1", "--fresh"];
        let output = run(&bench, &[&how[..], &["--set", &folder, "--set", &rules]].concat());
        let sample =
            bench.journal().samples.into_iter().find(|it| it.experiment == "copy/unfiltered");
        (output.status.code(), sample.unwrap())
    };
    let range = |read: &str, write: &str| {
        format!("[[range]]\nname = 'a'\nlength = '64 KiB'\nread = {read}\nwrite = {write}\n")
    };
    let (status, sample) = run_with(&range("[0, 1]", "[0, 1]"));
    assert_eq!((status, sample.error.as_ref()), (Some(0), None));
    assert_eq!([value(&sample, "allowed"), value(&sample, "stopped")], [32.0, 0.0]);
    // Both see the other's 8 words, and one stores its own although it may only read.
    let (status, sample) = run_with(&range("[1]", "[0]"));
    let error = sample.error.unwrap();
    assert_eq!((status, error.kind), (Some(1), FailureKind::Check));
    assert!(error.why.contains("forbidden accesses succeeded"), "{error}");
    let output = run(&bench, &["copy/unfiltered", "-e", &path, "--set", "rules=/no/such"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Rules with every combination of rights that the test can observe.
const RULES: &str = "
[[range]]
name = 'shared'
length = '4 MiB'
read = [0, 1]
write = [0, 1]
[[range]]
name = 'outbox'
length = '64 KiB'
read = [1]
write = [0]
[[range]]
name = 'inbox'
length = '64 KiB'
read = [0]
write = [1]
[[range]]
name = 'published'
length = '8 KiB'
read = [0, 1]
write = [0]
[[range]]
name = 'private'
length = '4 KiB'
read = [0]
write = [0]
[[range]]
name = 'fixed'
length = '12 KiB'
read = [0, 1]
write = []
[[range]]
name = 'hidden'
length = '4 KiB'
read = []
write = []
";

/// Returns how many accesses the rules allow and forbid.
fn expected_accesses(rules: &Rules) -> [f64; 2] {
    let mut counts = [0.0; 2];
    for range in &rules.ranges {
        for (actor, other) in [(0, 1), (1, 0)] {
            let [mine, theirs] = [actor, other].map(|host| range.permissions[host]);
            let stores = mine.allows(Access::Store);
            let mut count = |is_allowed: bool| counts[usize::from(!is_allowed)] += 8.0;
            count(stores && theirs.allows(Access::Load));
            // The actor loads its own store, unless it sees nothing else.
            if !stores || mine.allows(Access::Load) {
                count(stores);
            }
        }
    }
    counts
}

/// Creates the backing files of the pool before the run.
fn backing_files(bench: &Bench, rules: &Rules) -> PathBuf {
    let folder = bench.path().join("memory");
    std::fs::create_dir(&folder).unwrap();
    for (index, range) in rules.ranges.iter().enumerate() {
        std::fs::write(folder.join(format!("range-{index}")), vec![BEFORE; range.length]).unwrap();
    }
    folder
}

#[test]
#[ignore = "boots two guests"]
fn long_two_guests_exchange_bytes_and_frames_and_a_filter_outside_of_them_enforces_rules() {
    let bench = Bench::new();
    let rules = Rules::read("rules.toml", RULES, 1).unwrap();
    let folder = backing_files(&bench, &rules);
    let set = format!("rules={}", file(&bench, "rules.toml", RULES).display());
    let names = ["copy/two-host-mediation", "copy/two-host-delivery", "copy/two-host-frames"];
    let how = ["--guest", "pool", "--guest-files", folder.to_str().unwrap(), "--set", &set];
    let points = ["--where", "memory=device", "--rounds", "1"];
    measure(&bench, &[&names[..], &how, &points].concat());

    let delivered = passed(&bench, names[1]);
    all_bytes_arrived(&delivered);
    let frames = passed(&bench, names[2]);
    all_frames_arrived(&frames);
    for sample in delivered.iter().chain(&frames) {
        let hosts = ["writer", "reader"].map(|role| sample.parts[role].host.as_str());
        assert_eq!(hosts, ["pool-writer", "pool-reader"]);
        let timed =
            ["round_trip", "throughput"].iter().any(|name| sample.values.contains_key(*name));
        assert!(!timed, "an emulated CPU has no time: {sample:?}");
        for part in sample.parts.values() {
            assert_eq!(part.covariates["memory_type"], "uncached-minus".into(), "{sample:?}");
        }
    }

    let Some(mediated) = passed(&bench, names[0]).into_iter().next() else {
        // The machine was busy throughout, which is noted.
        return;
    };
    assert_eq!(mediated.parts["reader"].covariates["memory_type"], "uncached-minus".into());
    let counts = ["allowed", "stopped", "leaked", "forwarded"].map(|name| value(&mediated, name));
    let [allowed, stopped] = expected_accesses(&rules);
    assert_eq!(counts, [allowed, stopped, 0.0, 16.0], "{mediated:?}");
    assert_eq!(value(&mediated, "checked"), 2.0 * (1 << 20) as f64 + 2.0 * 65536.0 + 8192.0);
    let content = |name: &str| std::fs::read(folder.join(name)).unwrap();
    for (index, range) in rules.ranges.iter().enumerate() {
        let bytes = content(&format!("range-{index}"));
        assert_eq!(bytes.len(), range.length);
        let is_written = range.permissions.iter().any(|one| one.allows(Access::Store));
        assert_eq!(bytes.iter().any(|byte| *byte != BEFORE), is_written, "range '{}'", range.name);
    }
    // The store of a host that may only write is in its copy, and the range.
    assert_eq!(content("range-1"), content("range-1-of-0"));
    assert_eq!(content("range-2"), content("range-2-of-1"));
}

/// Kills the guest of a role while the writer copies a frame slowly.
fn killed_within_a_frame(role: &str) {
    let bench = Bench::new();
    let experiments = slow_experiments(&bench, "device");
    let folder = bench.path().join("memory");
    std::fs::create_dir(&folder).unwrap();
    let how = ["--guest", "escape", "--guest-files", folder.to_str().unwrap(), "--rounds", "2"];
    let names =
        ["run", "copy/slow-frames", "copy/slow-delivery", "-e", &experiments, "--set", "pause=1"];
    let command = bench.command_with_user_cache(&[&names[..], &how].concat());
    let mut running = harness::Started::new(command);
    wait_for_half_a_frame(&folder.join("escape"));
    let name = format!("-name escape-{role}");
    kill(&bench, |process| process.contains(&name));
    assert_eq!(running.wait().unwrap().code(), Some(1), "one sample failed");
    only_the_first_round_failed(&bench, role);
    seen_in_order(&passed(&bench, "copy/slow-delivery"));
    bench.wait_for_no_processes(harness::TIMEOUT);
}

#[test]
#[ignore = "boots guests three times and copies slowly"]
fn long_a_guest_killed_within_a_frame_harms_nothing() {
    killed_within_a_frame("writer");
}

#[test]
#[ignore = "boots guests three times and copies slowly"]
fn long_a_guest_killed_while_it_waits_for_a_frame_harms_nothing() {
    killed_within_a_frame("reader");
}

#[test]
#[ignore = "boots two guests and passes frames of all lengths"]
fn long_bytes_and_frames_pass_through_the_bars_of_two_guests() {
    let bench = Bench::new();
    let names = ["copy/two-host-delivery", "copy/two-host-frames"];
    let how = ["--guest", "shared-bar", "--where", "memory=pci-bar", "--profile", "standard"];
    measure(&bench, &[&names[..], &how, &["--rounds", "2"]].concat());
    all_bytes_arrived(&passed(&bench, names[0]));
    all_frames_arrived(&passed(&bench, names[1]));
}

/// Returns a command that copies by `memcpy_test`'s options on one host of `escape`, whose memory is in the folder.
fn copy_command(bench: &Bench, memory: &Path, host: &str, arguments: &[&str]) -> Command {
    let files = ["--guest-files", memory.to_str().unwrap()];
    let guest = [&["guest", "escape", "--host", host], &files[..], &["--", "copy"]].concat();
    let how = ["-n", "1", "--rounds", "1", "--results", "/tmp/r", "--csv", "/tmp/r.csv"];
    bench.command_with_user_cache(&[&guest[..], arguments, &how].concat())
}

fn status_and_table(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads in a guest what another one writes, which sleeps these seconds before each store: three copies of 16 B, 4 at a time.
/// Returns whether the writer was still writing when the reader ended.
fn reads_while_another_writes(pause: &str) -> bool {
    let bench = Bench::new();
    let memory = bench.path().join("memory");
    std::fs::create_dir(&memory).unwrap();
    let mut command = copy_command(&bench, &memory, "writer", &["4", "-o", "3", "-z", pause]);
    command.stdout(Stdio::piped());
    let mut writer = harness::Started::new(command);
    let start = Instant::now();
    let file = memory.join("escape");
    let stored = || {
        let mut bytes = [0; 16];
        File::open(&file).and_then(|file| file.read_exact_at(&mut bytes, 0)).map(|()| bytes)
    };
    while !stored().is_ok_and(|bytes| bytes.starts_with(&[3, 4, 5, 6])) {
        assert!(start.elapsed() < LIMIT, "no store in {}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    // It compares what it copied with the memory, which a store between the two would change; so it reads without sleeps.
    let mut reader = copy_command(&bench, &memory, "reader", &["5", "-i", "1", "-o", "3"]);
    let (status, table) = status_and_table(&reader.output().unwrap());
    let is_writing = writer.try_wait().unwrap().is_none();
    assert_eq!((status, table.matches("verified").count()), (Some(0), 3), "{table}");
    let mut table = String::new();
    let mut printed = writer.stdout.take().unwrap();
    std::io::Read::read_to_string(&mut printed, &mut table).unwrap();
    let status = writer.wait().unwrap().code();
    assert_eq!((status, table.matches("verified").count()), (Some(0), 3), "{table}");
    assert!(stored().unwrap().into_iter().eq(3..19));
    is_writing
}

#[test]
#[ignore = "boots two guests and copies slowly"]
fn long_a_guest_reads_while_another_one_writes_slowly() {
    // The boot of the reader fits; on a busy machine the writer waits longer.
    let both_ran = ["10", "40"].into_iter().any(reads_while_another_writes);
    assert!(both_ran, "the writer ended before the reader did, twice");
}

#[test]
#[ignore = "boots a guest twice and copies slowly"]
fn long_a_guest_reads_what_another_one_wrote_slowly() {
    let bench = Bench::new();
    let memory = bench.path().join("memory");
    std::fs::create_dir(&memory).unwrap();
    let copy = |host: &str, arguments: &[&str]| {
        let slowly = [arguments, &["-z", "1"]].concat();
        status_and_table(&copy_command(&bench, &memory, host, &slowly).output().unwrap())
    };
    let (status, table) = copy("writer", &["4", "-o", "3"]);
    assert_eq!((status, table.matches("verified").count()), (Some(0), 3), "{table}");
    let bytes = std::fs::read(memory.join("escape")).unwrap();
    assert!(bytes[..16].iter().copied().eq(3..19), "{:?}", &bytes[..16]);
    let (status, table) = copy("reader", &["5", "-i", "1", "-o", "3"]);
    assert_eq!((status, table.matches("verified").count()), (Some(0), 3), "{table}");
    assert_eq!(std::fs::read(memory.join("escape")).unwrap(), bytes, "a reader writes nothing");
}
