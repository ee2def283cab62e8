//! Checks of hosts, and runs on them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lab::journal::Run;
use lab::sample::Sample;
use serde_json::Value;

use crate::harness::{Bench, TIMEOUT, succeeded, was_made};
use crate::sshd::Sshd;
use crate::{command, counts, exits, failures, measure};

const RUN: [&str; 6] = ["run", "planted/delay", "--rounds", "3", "--quiet", "--host"];

/// Returns the files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(self::files(&entry.path())),
            false => files.push(entry.path().display().to_string()),
        }
    }
    files
}

#[test]
fn a_check_installs_the_program_once_and_clean_removes_it() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "hosts check") else { return };
    let check = |is_new: bool| {
        let (output, _) = exits(&bench, &["hosts", "check", "--json"], 0);
        let output: Value = serde_json::from_str(&output).unwrap();
        bench.validate("hosts", &output);
        let host = &output["hosts"][0];
        assert_eq!((&host["name"], &host["error"]), (&"dut".into(), &Value::Null));
        assert_eq!(host["system"], "Linux x86_64");
        assert_eq!(host["program"]["is_new"], is_new);
        // Features that doctor finds missing here are missing there: it is the same machine.
        let doctor: Value = serde_json::from_str(&bench.ok(&["doctor", "--json"])).unwrap();
        let machine = doctor["groups"][0]["capabilities"].as_array().unwrap();
        let absent = machine.iter().filter(|one| one["state"]["state"] == "absent").count();
        let missing = host["missing"].as_array().unwrap();
        let of_machine = missing.iter().filter(|one| one["of"] == "machine").count();
        // A busy machine has a stable core clock or its own core at one moment and not at another.
        assert!(of_machine.abs_diff(absent) <= 2, "{of_machine} and {absent}");
    };
    check(true);
    let installed = files(&Sshd::cache(&bench).join("tollgate/programs"));
    assert_eq!(installed.len(), 1, "{installed:?}");
    check(false);
    let (output, _) = exits(&bench, &["hosts", "check", "dut"], 0);
    assert!(output.starts_with("dut: ready, Linux x86_64, tollgate "), "{output}");
    let (output, _) = exits(&bench, &["doctor", "--host", "dut"], 0);
    assert!(output.contains("opt-in features"), "{output}");
    // A damaged program is replaced.
    fs::write(&installed[0], "damaged").unwrap();
    check(true);
    let (output, _) = exits(&bench, &["hosts", "clean"], 0);
    assert_eq!(output, "dut: removed 1 program\n");
    assert!(!Sshd::cache(&bench).join("tollgate/programs").exists());
    bench.wait_for_no_processes(TIMEOUT);
    let sockets = files(&bench.path().join("tollgate-ssh"));
    assert!(sockets.is_empty(), "{sockets:?}");
}

#[test]
fn a_run_on_a_host_is_journalled_here_and_resumes() {
    let bench = Bench::new();
    let Some(sshd) = Sshd::start(&bench, "run --host") else { return };
    measure(&bench, &[&RUN[..], &["dut"]].concat());
    let run = bench.journal();
    assert!(run.folder.ends_with("results/dut-quick-1"), "{}", run.folder.display());
    assert_eq!(run.record.hosts.len(), 1);
    assert_eq!((run.record.hosts[0].name.as_str(), run.record.host.as_str()), ("dut", "dut"));
    let [environment] = run.record.environments.keys().collect::<Vec<_>>()[..] else { panic!() };
    let here = machine::environment::hostname();
    assert!(
        run.samples.iter().all(|sample| sample.host == here && sample.environment == *environment)
    );
    assert_eq!(failures(&run), Vec::<String>::new());
    let measured = counts(&run, "planted/delay");
    assert!(measured.len() >= 8 * 3, "{measured:?}");
    // The log is one file per host.
    let (logs, _) = exits(&bench, &["logs"], 0);
    assert!(logs.contains(" tollgate ") && logs.contains("planted/delay, round 3"), "{logs}");
    let (logs, _) = exits(&bench, &["logs", "other"], 2);
    assert_eq!(logs, "");
    // Nothing is measured twice.
    measure(&bench, &[&RUN[..], &["dut"]].concat());
    let run = bench.journal();
    assert_eq!(run.record.last_session(), 2);
    assert_eq!(counts(&run, "planted/delay"), measured);
    // Other CPUs or variables are another definition.
    let text = fs::read_to_string(bench.path().join("tollgate.toml")).unwrap();
    fs::write(
        bench.path().join("tollgate.toml"),
        format!("{text}environment = {{ X = \"y z'\" }}\n"),
    )
    .unwrap();
    let (_, errors) = exits(&bench, &[&RUN[..], &["dut"]].concat(), 2);
    assert!(errors.contains("host 'dut': its 'cpus' or 'environment' changed"), "{errors}");
    bench.wait_for_no_processes(TIMEOUT);
    drop(sshd);
}

#[test]
fn what_is_unavailable_names_its_host() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "unavailable on a host") else { return };
    let point = ["run", "copy/caching", "--where", "memory=pci-bar", "--rounds", "1", "--quiet"];
    let arguments = [&point[..], &["--host", "dut"]].concat();
    let output = command(&bench, &arguments).output().unwrap();
    let run = bench.journal();
    let errors: Vec<_> = run.samples.iter().filter_map(|sample| sample.error.as_ref()).collect();
    if errors.is_empty() {
        machine::untested::note("unavailable on a host", &"this machine can measure all");
        return;
    }
    let status = output.status;
    assert!(
        errors.iter().all(|error| error.why.starts_with("host 'dut': ")),
        "{status}: {errors:?}"
    );
}

#[test]
fn cpus_and_variables_of_a_host_apply_to_its_workers() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "cpus of a host") else { return };
    let path = bench.path().join("tollgate.toml");
    let text = fs::read_to_string(&path).unwrap();
    let cpu = machine::topology::allowed_cpus()[0].to_string();
    let tunable = "glibc.cpu.x86_non_temporal_threshold=0x404040";
    let table = format!(
        "{text}cpus = \"{cpu}\"\nresults = \"mine\"\nenvironment = {{ GLIBC_TUNABLES = \"{tunable}\" }}\n"
    );
    fs::write(&path, table).unwrap();
    let mut started =
        command(&bench, &["run", "planted/delay", "--rounds", "200", "--quiet", "--host", "dut"]);
    let mut started = crate::harness::Started::new({
        started.stdout(std::process::Stdio::null());
        started
    });
    let start = std::time::Instant::now();
    let worker = loop {
        assert!(start.elapsed() < TIMEOUT, "no worker");
        let is_worker = |process: &String| {
            process.contains("/tollgate worker --remote") && !process.contains("/bin/sh")
        };
        if let Some(process) = bench.processes().into_iter().find(is_worker) {
            break process.split(' ').next().unwrap().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let allowed = || {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    while allowed() != cpu {
        assert!(start.elapsed() < TIMEOUT, "{}", allowed());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    while lab::journal::newest(&bench.path().join("mine")).is_err() {
        assert!(start.elapsed() < TIMEOUT, "no run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    crate::sshd::signal(started.id(), libc::SIGINT);
    started.wait().unwrap();
    let run =
        lab::journal::open(&lab::journal::newest(&bench.path().join("mine")).unwrap()).unwrap();
    let environment = run.record.environments.values().next().unwrap();
    let threshold = environment.libc_tunables.get("x86_non_temporal_threshold");
    assert_eq!(threshold.map(String::as_str), Some("0x404040"));
    assert_eq!(run.record.hosts[0].cpus.as_ref(), Some(&cpu));
    // A CPU that the host does not have is refused.
    fs::write(&path, format!("{text}cpus = \"1023\"\n")).unwrap();
    let (_, errors) = exits(&bench, &[&RUN[..], &["dut"]].concat(), 1);
    assert!(errors.contains("'cpus': CPU 1023 is not online here"), "{errors}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn roles_run_on_a_host_each() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "roles on hosts") else { return };
    let path = bench.path().join("tollgate.toml");
    let text = fs::read_to_string(&path).unwrap();
    // One machine with two names, which may have different variables: its lock is taken once.
    let tunable = "glibc.cpu.x86_non_temporal_threshold=0x404040";
    let other = format!("[host.other.environment]\nGLIBC_TUNABLES = \"{tunable}\"\n");
    fs::write(&path, format!("{text}{other}")).unwrap();
    let roles = ["--host", "dut=dut", "--host", "generator=other"];
    measure(&bench, &[&["run", "planted/roles", "--rounds", "2", "--quiet"][..], &roles].concat());
    let run = bench.journal();
    let hosts: Vec<_> = run.record.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.contains(&"dut=dut".to_owned()) && hosts.contains(&"generator=other".to_owned()));
    assert_eq!(failures(&run), Vec::<String>::new());
    assert!(run.folder.join("logs/dut.log").exists() && run.folder.join("logs/other.log").exists());
    assert_eq!(run.record.environments.len(), 2);
    let log = fs::read_to_string(run.folder.join("logs/other.log")).unwrap();
    assert!(log.contains("another worker of the run has the lock of this machine"), "{log}");
    // What has no roles is measured on the device under test.
    let both = ["run", "planted/delay", "planted/roles", "--rounds", "1", "--quiet"];
    measure(&bench, &[&both[..], &roles, &["--fresh"]].concat());
    let run = bench.journal();
    assert_eq!(failures(&run), Vec::<String>::new());
    assert!(!counts(&run, "planted/delay").is_empty());
    assert!(!counts(&run, "planted/roles").is_empty());
    let wrong = ["run", "copy/two-host-frames", "--host", "dut=dut", "--host", "generator=other"];
    let (_, errors) = exits(&bench, &wrong, 2);
    assert!(errors.contains("--host writer=HOST --host reader=HOST"), "{errors}");
    let wrong = ["run", "planted/delay", "--host", "writer=dut", "--host", "reader=other"];
    let (_, errors) = exits(&bench, &wrong, 2);
    assert!(errors.contains("it has no roles, and --host names writer, reader"), "{errors}");
    bench.wait_for_no_processes(TIMEOUT);
}

/// Returns the newest run of a comparison.
#[track_caller]
fn compared(bench: &Bench) -> Run {
    let newest = lab::journal::newest(&bench.path().join("results/compare"));
    lab::journal::open(&newest.unwrap()).unwrap()
}

/// Compares two sides on the host `dut`, in a run that may fail only because a busy machine made points void.
#[track_caller]
fn compare(bench: &Bench, old: &str, new: &str, more: &[&str]) -> Value {
    let words = ["compare", "--run", old, new, "planted/delay", "--rounds", "2", "--json"];
    let output = command(bench, &[&words[..], &["--host", "dut"], more].concat()).output().unwrap();
    let newest = lab::journal::newest(&bench.path().join("results/compare"));
    let errors = String::from_utf8_lossy(&output.stderr);
    succeeded(&output, &newest.unwrap_or_else(|why| panic!("{why}: {errors}")));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn two_sides_are_compared_on_a_host() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "compare --run --host") else { return };
    let printed = compare(&bench, "-", "nice=5 TOLLGATE_PLANTED_EFFECT=20%", &[]);
    bench.validate("compare-run", &printed);
    let run = compared(&bench);
    assert!(run.folder.ends_with("results/compare/dut-quick-1"), "{}", run.folder.display());
    assert_eq!(failures(&run), Vec::<String>::new());
    assert_eq!((run.record.hosts.len(), run.record.sides.len()), (1, 2));
    assert_eq!(run.record.sides[0].digest, run.record.sides[1].digest);
    assert_eq!(run.record.sides[1].side.nice, Some(5));
    // The variable has its effect there.
    let median = |side: &str| {
        let of_side = |sample: &&Sample| was_made(sample) && sample.point.text("side") == side;
        let times = run.samples.iter().filter(of_side).map(|sample| sample.values["time"]);
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    };
    match (median("old"), median("new")) {
        (Some(old), Some(new)) => assert!(new > old, "{new} and {old}"),
        missing => machine::untested::note("sides on a host", &format!("void: {missing:?}")),
    }
    let log = fs::read_to_string(run.folder.join("logs/dut.log")).unwrap();
    assert!(log.contains("another worker of the run has the lock of this machine"), "{log}");
    // Another build is copied to the host.
    let mut program = fs::read(env!("CARGO_BIN_EXE_tollgate")).unwrap();
    program.push(0);
    let other = bench.path().join("tollgate-old");
    fs::write(&other, program).unwrap();
    fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    compare(&bench, "./tollgate-old", "-", &["--fresh"]);
    let run = compared(&bench);
    assert_eq!(failures(&run), Vec::<String>::new());
    let [old, new] = &run.record.sides[..] else { panic!() };
    assert!(old.digest.is_some() && old.digest != new.digest, "{old:?}");
    assert_eq!(files(&Sshd::cache(&bench).join("tollgate/programs")).len(), 2);
    fs::write(&other, "no program").unwrap();
    let words = ["compare", "--run", "./tollgate-old", "-", "planted/delay", "--host", "dut"];
    let (_, errors) = exits(&bench, &words, 1);
    assert!(errors.contains("host 'dut': the program does not run there"), "{errors}");
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
fn variables_of_hosts_connect_from_a_shell() {
    let bench = Bench::new();
    let Some(_sshd) = Sshd::start(&bench, "hosts env") else { return };
    let (output, _) = exits(&bench, &["hosts", "env"], 0);
    let script = format!(
        "{output}[ \"$TOLLGATE_HOSTS\" = dut ] && $TOLLGATE_SSH_DUT -o BatchMode=yes echo connected"
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "connected\n", "{errors}");
}
