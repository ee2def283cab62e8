//! Time to the first tracepoint with the real tracefs and BPF, and cleanup of trace instances.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also in functions that tests share.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossing::trace::instance::{Instance, instances};
use crossing::trace::{
    Event, TraceBackend, TracedTimes, Tracepoint, bpf, check_allowed, cross, thread_id,
};
use lab::method::AnyMethod;
use lab::point::Point;
use lab::sample::{Failure, FailureKind};
use machine::tsc::Tsc;
use machine::untested;

/// Variable set in the child process that keeps an instance until it is killed.
const KEEP: &str = "TOLLGATE_TEST_KEEP_INSTANCE";
/// Maximum time to remove an instance on a busy machine.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(20);
const CROSSINGS: usize = 3000;

fn point(backend: &str) -> Point {
    [("event", "page-fault"), ("through", backend), ("crossings", "3000")].into()
}

/// Returns the counter if the backend is available; otherwise notes the test as not run.
fn counter(test: &str, backend: &str) -> Option<&'static Tsc> {
    let tsc = AnyMethod::available(&Tracepoint, &point(backend)).map_err(|why| why.to_string());
    match tsc.and_then(|()| Tsc::get().map_err(|why| why.to_string())) {
        Ok(tsc) => Some(tsc),
        Err(why) => {
            untested::note(test, &why);
            None
        }
    }
}

/// Runs `body` on a thread pinned to one CPU, like a probe.
fn pinned<T: Send + 'static>(body: impl FnOnce(usize) -> T + Send + 'static) -> T {
    let cpu = *machine::topology::allowed_cpus().last().unwrap();
    machine::pin::spawn_pinned(cpu, move || body(cpu)).unwrap().join().unwrap()
}

fn check_times(times: &TracedTimes, tsc: &Tsc, count: usize) {
    let count = count as u64;
    assert_eq!((times.made, times.matched, times.ticks.count()), (count, count, count));
    let centre = tsc.nanoseconds(times.ticks.trimmed_mean());
    println!("trimmed mean {centre:.0} ns, ±{:.1} ns", times.uncertainty);
    assert!((1.0..100_000.0).contains(&centre), "{centre} ns");
}

/// Returns the mounts of tracefs, for this process and for process 1.
fn mounts() -> [Vec<String>; 2] {
    ["/proc/self/mountinfo", "/proc/1/mountinfo"].map(|path| {
        let all = std::fs::read_to_string(path).unwrap_or_default();
        all.lines().filter(|line| line.contains("tracefs")).map(str::to_owned).collect()
    })
}

#[test]
fn tracefs_sees_every_crossing() {
    let Some(tsc) = counter("tracefs_sees_every_crossing", "tracefs") else { return };
    let before = mounts();
    let name = pinned(move |cpu| {
        let instance = Instance::create().unwrap();
        for event in [Event::PageFault, Event::Syscall, Event::PageFault] {
            let mut recording = instance.record(event, thread_id(), cpu).unwrap();
            let times = cross(&mut recording, event, CROSSINGS, tsc).unwrap();
            check_times(&times, tsc, CROSSINGS);
        }
        // More than a batch, and more than the capacity of the buffer.
        let mut recording = instance.record(Event::Syscall, thread_id(), cpu).unwrap();
        check_times(&cross(&mut recording, Event::Syscall, 30_001, tsc).unwrap(), tsc, 30_001);
        drop(recording);
        assert!(instances().unwrap().iter().any(|name| name == instance.name()));
        assert_eq!(mounts(), before, "the mount is detached");
        instance.name().to_owned()
    });
    assert!(!instances().unwrap().contains(&name), "{name} still exists");
}

#[test]
fn bpf_sees_every_crossing() {
    let Some(tsc) = counter("bpf_sees_every_crossing", "bpf") else { return };
    pinned(move |_| {
        for event in [Event::PageFault, Event::Syscall] {
            let mut program = match bpf::Program::attach(event) {
                Ok(program) => program,
                Err(why) if why.kind == FailureKind::Unavailable => {
                    untested::note("bpf_sees_every_crossing", &why);
                    return;
                }
                Err(why) => panic!("{why}"),
            };
            let times = cross(&mut program, event, CROSSINGS, tsc).unwrap();
            assert!(times.uncertainty > 0.0, "a conversion has an error");
            check_times(&times, tsc, CROSSINGS);
        }
    });
}

#[test]
fn crossings_without_events_fail_the_check() {
    let test = "crossings_without_events_fail_the_check";
    let Some(tsc) = counter(test, "tracefs") else { return };
    pinned(move |cpu| {
        let instance = Instance::create().unwrap();
        let mut recording = instance.record(Event::Syscall, thread_id(), cpu).unwrap();
        let why = cross(&mut recording, Event::PageFault, CROSSINGS, tsc).err().unwrap();
        assert_eq!(why.kind, FailureKind::Check);
        assert!(why.why.contains("0 of"), "{why}");
    });
}

#[test]
fn two_instances_do_not_disturb_each_other() {
    let Some(tsc) = counter("two_instances_do_not_disturb_each_other", "tracefs") else { return };
    pinned(move |cpu| {
        let (one, other) = (Instance::create().unwrap(), Instance::create().unwrap());
        let mut first = one.record(Event::PageFault, thread_id(), cpu).unwrap();
        let second = other.record(Event::PageFault, thread_id(), cpu).unwrap();
        drop(second);
        drop(other);
        drop(Instance::create().unwrap());
        assert!(instances().unwrap().iter().any(|name| name == one.name()), "an instance in use");
        check_times(&cross(&mut first, Event::PageFault, CROSSINGS, tsc).unwrap(), tsc, CROSSINGS);
    });
}

/// Not a test: the body of the child process of [`start_child`].
#[test]
fn keep_an_instance() {
    if std::env::var_os(KEEP).is_none() {
        return;
    }
    let name = pinned(|cpu| {
        let instance = Instance::create().unwrap();
        let recording = instance.record(Event::PageFault, thread_id(), cpu).unwrap();
        std::mem::forget(recording);
        let name = instance.name().to_owned();
        std::mem::forget(instance);
        name
    });
    println!("\nkeeping {name}");
    std::thread::sleep(REMOVAL_TIMEOUT * 3);
}

/// Starts a process that records; returns it and the name of its instance.
fn start_child() -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["keep_an_instance", "--exact", "--nocapture", "--test-threads=1"])
        .env(KEEP, "yes")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // Tests that run in the background ignore SIGINT, which the child would inherit.
    // SAFETY: signal is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let name = lines.into_iter().find_map(|line| line.strip_prefix("keeping ").map(str::to_owned));
    (child, name.expect("the name of the instance"))
}

fn is_removed(name: &str) -> bool {
    let end = Instant::now() + REMOVAL_TIMEOUT;
    while Instant::now() < end {
        if !instances().unwrap().iter().any(|existing| existing == name) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn send_signal(process: u32, signal: i32) {
    // SAFETY: kill takes only numbers; the process is a child or grandchild that has not been reaped.
    assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
}

#[test]
fn an_instance_is_removed_however_its_process_ends() {
    if counter("an_instance_is_removed_however_its_process_ends", "tracefs").is_none() {
        return;
    }
    let before = mounts();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGABRT] {
        let (mut child, name) = start_child();
        assert!(instances().unwrap().contains(&name));
        send_signal(child.id(), signal);
        assert!(!child.wait().unwrap().success());
        assert!(is_removed(&name), "{name} still exists after signal {signal}");
    }
    assert_eq!(mounts(), before);
}

/// The worker kills a probe together with its restorer, so neither cleans up.
#[test]
fn the_next_instance_removes_one_whose_restorer_was_killed() {
    let test = "the_next_instance_removes_one_whose_restorer_was_killed";
    if counter(test, "tracefs").is_none() {
        return;
    }
    let (mut child, name) = start_child();
    let restorers = children(child.id());
    assert_eq!(restorers.len(), 1);
    send_signal(restorers[0], libc::SIGKILL);
    assert!(instances().unwrap().contains(&name));
    send_signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    pinned(|_| drop(Instance::create().unwrap()));
    assert!(!instances().unwrap().contains(&name), "{name} still exists");
}

fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task");
    let tasks = std::fs::read_dir(path).unwrap().flatten();
    let listed = tasks.map(|task| {
        std::fs::read_to_string(task.path().join("children")).expect("CONFIG_PROC_CHILDREN")
    });
    listed
        .flat_map(|text| text.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_panic_removes_the_instance() {
    if counter("a_panic_removes_the_instance", "tracefs").is_none() {
        return;
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let instance = Instance::create().unwrap();
        sender.send(instance.name().to_owned()).unwrap();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert!(!instances().unwrap().contains(&receiver.recv().unwrap()));
}

#[test]
fn each_backend_must_be_allowed_by_name() {
    let options = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let refused = |backend, options| -> Failure { check_allowed(backend, &options).unwrap_err() };
    for (backend, name) in [(TraceBackend::Tracefs, "tracefs"), (TraceBackend::Bpf, "bpf")] {
        let why = refused(backend, BTreeMap::new());
        assert_eq!(why.kind, FailureKind::Unavailable);
        let remedy = why.remedy.unwrap();
        assert_eq!(remedy, format!("tollgate run crossing/tracepoint --allow {name}"));
        assert!(check_allowed(backend, &options(&format!("allow-{name}"), "yes")).is_ok());
        assert!(check_allowed(backend, &options(&format!("allow-{name}"), "no")).is_err());
    }
    refused(TraceBackend::Bpf, options("allow-tracefs", "yes"));
}
