//! The start and the end of guests: commands inside, limits, locks, interruptions, and the user's files.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::{Bench, Started, TIMEOUT, file};
use rustix::process::{Pid, Signal, kill_process};

/// Time limit of a boot and of a short command on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
/// A user without rights.
const NOBODY: &str = "65534";

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the artefact of Debian's newest kernel in the user's cache; `None` if no guest was started before.
fn kernel() -> Option<PathBuf> {
    let recipe = vm::debian_linux::recipe();
    let folders = lab::artefact::cached_folders(&recipe.name);
    folders.into_iter().find(|path| path.to_string_lossy().ends_with(&recipe.hash()))
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// Starts the program as another user, with a cache of that user, which has the kernel.
fn as_nobody(bench: &Bench, arguments: &[&str]) -> Option<Command> {
    let is_root = rustix::process::geteuid().is_root();
    let Some(kernel) = kernel().filter(|_| is_root) else {
        machine::untested::note("a guest of another user", &"needs root and a kernel in the cache");
        return None;
    };
    let cache = bench.path().join("cache/tollgate");
    fs::create_dir_all(&cache).unwrap();
    run(Command::new("cp").arg("-a").arg(kernel).arg(&cache));
    run(Command::new("chown").args(["-R", NOBODY]).arg(bench.path()));
    for folder in [bench.path().join("cache"), cache] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let program = bench.command(arguments);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(bench.path());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

/// As root it runs as a user without rights, whose files the guest must reach; otherwise as the current user.
#[test]
fn a_run_inside_a_guest_succeeds_and_sees_the_temporary_files_of_its_user() {
    let bench = Bench::new();
    let experiment = "[[experiment]]\nname = 'mine'\nsuite = 'planted'\nmethod = 'artefact'\nabout = 'a file of the host'\n\
        sweeps = 'all'\ntwins = []\nmetric = 'time'\nfactors = { artefact = ['table'] }\n";
    let mine = file(&bench, "mine.toml", experiment).display().to_string();
    let words = ["guest", "plain", "--", "run", "planted/mine", "-e", &mine, "--rounds", "1"];
    let mut command =
        as_nobody(&bench, &words).unwrap_or_else(|| bench.command_with_user_cache(&words));
    let output = command.output().unwrap();
    let errors = text(&output);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("guest 'plain': files written inside"), "{errors}");
    // No terminal, so no progress bar; and no report of init.
    assert!(!errors.contains(['\u{1b}', '\u{fffd}', '\r']), "{errors:?}");
    assert!(!errors.contains("tollgate: "), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("belongs to the user"), "{printed}{errors}");
}

#[test]
fn kvm_runs_a_guest_or_is_refused_at_once() {
    if File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return machine::untested::note("guests by KVM", &"no /dev/kvm");
    }
    let bench = Bench::new();
    let ring_0 = crossing::guest::ring_0();
    let words = ["guest", "plain", "--accelerator", "kvm", "--", "list"];
    let output = bench.command_with_user_cache(&words).output().unwrap();
    let errors = text(&output);
    if machine::cpu::emulated() {
        // Nothing has a time here, so ring 0 may be emulated too.
        return;
    }
    let Err(why) = ring_0 else {
        assert!(output.status.success(), "{:?}: {errors}", output.status);
        return kvm_times_copies(&bench);
    };
    // An emulated ring 0 would make the times of a guest those of no CPU.
    assert_eq!(output.status.code(), Some(1), "ring 0 is emulated: {errors}");
    let line = errors.lines().last().unwrap();
    assert!(line.starts_with("error: --accelerator kvm: "), "{errors}");
    // Each process tests ring 0 itself and sees other times.
    let without_times = |text: &str| text.replace(|one: char| one.is_ascii_digit(), "");
    assert!(without_times(line).contains(&without_times(&why.why)), "{errors}");
    assert!(line.ends_with("; use --accelerator tcg"), "{errors}");
    let run = ["run", "copy/throughput", "--guest", "plain", "--accelerator", "kvm"];
    assert_eq!(without_times(&bench.refused(&run, 1)), without_times(line));
    machine::untested::note("times in a guest of KVM", &why);
}

/// Measures one point in a guest of KVM whose ring 0 is the CPU's: it has a time.
fn kvm_times_copies(bench: &Bench) {
    let run = ["run", "copy/throughput", "--guest", "plain", "--accelerator", "kvm"];
    let once = ["--rounds", "1", "--quiet", "--fresh"];
    let mut command = bench.command_with_user_cache(&[&run[..], &once].concat());
    for level in ["length=64 KiB", "memory=heap", "function=glibc", "threads=0", "direction=write"]
    {
        command.args(["--where", level]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let run = bench.journal();
    assert_eq!(run.record.guests.unwrap().clock, machine::cpu::CpuClock::Real);
    let samples: Vec<_> =
        run.samples.iter().filter(|one| one.experiment == "copy/throughput").collect();
    assert!(!samples.is_empty());
    for sample in samples {
        assert!(sample.values["throughput"] > 0.0 && sample.clock.is_some(), "{sample:?}");
        assert!(!run.record.environments[&sample.environment].emulated);
    }
    let shown = bench.ok(&["show", "copy/throughput"]);
    assert!(shown.contains("guest plain, executed by KVM"), "{shown}");
}

#[test]
fn a_guest_waits_for_no_other_run_and_leaves_no_file_if_it_is_refused() {
    let bench = Bench::new();
    let files = bench.path().join("files");
    fs::create_dir(&files).unwrap();
    let run = ["run", "copy/throughput", "--guest", "ivshmem", "--guest-files", "files"];
    let unknown = ["run", "no-such", "--guest", "ivshmem", "--guest-files", "files"];
    bench.refused(&unknown, 2);
    let lock = File::create(bench.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let guest = ["guest", "ivshmem", "--guest-files", "files", "--", "copy", "1"];
    let nested = ["guest", "plain", "--", "copy", "1"];
    let nested = [&["guest", "nested", "--"][..], &nested].concat();
    for words in [&run[..], &guest, &nested] {
        let line = bench.refused(words, 1);
        assert!(line.contains("another run measures on this machine"), "{line}");
    }
    assert!(fs::read_dir(&files).unwrap().next().is_none(), "a refused run made files");
}

/// Replaces `apt-get` by a script whose child outlives it.
fn with_slow_download(bench: &Bench) -> Command {
    let folder = bench.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let script = folder.join("apt-get");
    fs::write(&script, "#!/bin/sh\nsleep 300 &\nwait\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = bench.command(&["run", "planted/artefact", "--guest", "plain"]);
    command.env("PATH", path).stderr(std::process::Stdio::null());
    command
}

/// Waits until the download runs; returns `None` if the package lists have no kernel.
fn wait_for_download(bench: &Bench, running: &mut Started) -> Option<()> {
    let start = Instant::now();
    while !bench.processes().iter().any(|process| process.contains("sleep 300")) {
        if running.try_wait().unwrap().is_some() {
            machine::untested::note("an interrupted download", &"no package of Linux 6.12");
            return None;
        }
        assert!(start.elapsed() < LIMIT, "no download");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(())
}

fn leftovers(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".making")).collect()
}

#[test]
fn an_interruption_while_an_artefact_is_made_ends_everything() {
    let bench = Bench::new();
    let mut running = Started::new(with_slow_download(&bench));
    if wait_for_download(&bench, &mut running).is_none() {
        return;
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let ended = machine::child::wait_within(&mut running, TIMEOUT).unwrap();
    assert_eq!(ended.expect("the first SIGINT ends the run").code(), Some(130));
    bench.wait_for_no_processes(TIMEOUT);
    assert_eq!(leftovers(&bench.path().join("cache/tollgate")), Vec::<String>::new());
}

#[test]
fn a_lab_killed_while_an_artefact_is_made_leaves_no_process() {
    let bench = Bench::new();
    let mut running = Started::new(with_slow_download(&bench));
    if wait_for_download(&bench, &mut running).is_none() {
        return;
    }
    running.kill().unwrap();
    running.wait().unwrap();
    bench.wait_for_no_processes(TIMEOUT);
}

#[test]
#[ignore = "builds a kernel, which takes minutes, and boots it"]
fn long_a_declared_guest_with_the_patched_linux_stamps_all_crossings() {
    let bench = Bench::new();
    let words = ["run", "crossing/stamping", "--guest", "stamped", "--where", "route=patched"];
    let how = ["--profile", "standard", "--rounds", "1", "--quiet", "--fresh"];
    let output = bench.command_with_user_cache(&[&words[..], &how].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let run = bench.journal();
    assert!(run.record.guests.unwrap().declaration.contains("# kernel "));
    let samples = run.samples.iter().filter(|one| one.experiment == "crossing/stamping");
    let stamped: Vec<_> = samples.filter(|one| one.error.is_none()).collect();
    assert!(!stamped.is_empty(), "no crossing was stamped: {:?}", run.samples);
    for sample in stamped {
        let [made, stamped] =
            ["crossings_made", "crossings_stamped"].map(|name| sample.values[name]);
        assert!(made > 0.0 && made == stamped, "{sample:?}");
        assert!(sample.clock.is_none(), "an emulated CPU has no time: {sample:?}");
    }
}
