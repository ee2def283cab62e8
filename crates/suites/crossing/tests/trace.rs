//! User to the kernel's first tracepoint, on the real tracefs and the real BPF, and nothing left behind.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossing::trace::instance::{Instance, instances};
use crossing::trace::{Crossed, Event, Through, Tracepoint, allowed, bpf, cross, thread_id};
use lab::method::AnyMethod;
use lab::point::Point;
use lab::sample::{Failure, FailureKind};
use machine::tsc::Tsc;
use machine::untested;

/// Set in the process that is to hold an instance until it is killed.
const HOLD: &str = "TOLLGATE_TEST_HOLDS_AN_INSTANCE";
/// How long the removal of an instance may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const CROSSINGS: usize = 3000;

fn point(through: &str) -> Point {
    [("event", "page-fault"), ("through", through), ("crossings", "3000")].into()
}

/// The counter, where this way of tracing can be had; else the test is noted.
fn counter(test: &str, through: &str) -> Option<&'static Tsc> {
    let tsc = AnyMethod::available(&Tracepoint, &point(through)).map_err(|why| why.to_string());
    match tsc.and_then(|()| Tsc::get().map_err(|why| why.to_string())) {
        Ok(tsc) => Some(tsc),
        Err(why) => {
            untested::note(test, &why);
            None
        }
    }
}

/// Runs on a thread that is held to one CPU, as a probe is.
fn pinned<T: Send + 'static>(body: impl FnOnce(usize) -> T + Send + 'static) -> T {
    let cpu = *machine::topology::allowed_cpus().last().unwrap();
    machine::pin::spawn_pinned(cpu, move || body(cpu)).unwrap().join().unwrap()
}

fn holds(crossed: &Crossed, tsc: &Tsc, count: usize) {
    let count = count as u64;
    assert_eq!((crossed.made, crossed.matched, crossed.ticks.count()), (count, count, count));
    let median = tsc.nanoseconds(crossed.ticks.median() as f64);
    println!("median {median:.0} ns, ±{:.1} ns", crossed.uncertainty);
    assert!((1.0..100_000.0).contains(&median), "{median} ns");
}

/// Where tracefs is mounted, for this process and for the first one.
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
            let crossed = cross(&mut recording, event, CROSSINGS, tsc).unwrap();
            holds(&crossed, tsc, CROSSINGS);
        }
        // More than a batch, and more than the buffer holds at once.
        let mut recording = instance.record(Event::Syscall, thread_id(), cpu).unwrap();
        holds(&cross(&mut recording, Event::Syscall, 30_001, tsc).unwrap(), tsc, 30_001);
        drop(recording);
        assert!(instances().unwrap().iter().any(|name| name == instance.name()));
        assert_eq!(mounts(), before, "the mount hangs nowhere");
        instance.name().to_owned()
    });
    assert!(!instances().unwrap().contains(&name), "{name} is left");
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
            let crossed = cross(&mut program, event, CROSSINGS, tsc).unwrap();
            assert!(crossed.uncertainty > 0.0, "a conversion is never exact");
            holds(&crossed, tsc, CROSSINGS);
        }
    });
}

/// A tracer that listens to another event than the one that happens sees nothing, and that is said.
#[test]
fn crossings_that_the_tracer_does_not_see_are_a_failed_check() {
    let test = "crossings_that_the_tracer_does_not_see_are_a_failed_check";
    let Some(tsc) = counter(test, "tracefs") else { return };
    pinned(move |cpu| {
        let instance = Instance::create().unwrap();
        let mut recording = instance.record(Event::Syscall, thread_id(), cpu).unwrap();
        let why = cross(&mut recording, Event::PageFault, CROSSINGS, tsc).err().unwrap();
        assert_eq!(why.kind, FailureKind::Check);
        assert!(why.why.contains("saw 0 of"), "{why}");
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
        assert!(instances().unwrap().iter().any(|name| name == one.name()), "it is in use");
        holds(&cross(&mut first, Event::PageFault, CROSSINGS, tsc).unwrap(), tsc, CROSSINGS);
    });
}

/// Not a test of its own: the process that [`held`] starts.
#[test]
fn hold_an_instance() {
    if std::env::var_os(HOLD).is_none() {
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
    println!("\nholding {name}");
    std::thread::sleep(PATIENCE * 3);
}

/// A process in the middle of recording, and the name of its instance.
fn held() -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["hold_an_instance", "--exact", "--nocapture", "--test-threads=1"])
        .env(HOLD, "yes")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // Who runs the tests in the background has SIGINT ignored, which would be handed on.
    // SAFETY: between fork and exec only one system call runs.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let name = lines.into_iter().find_map(|line| line.strip_prefix("holding ").map(str::to_owned));
    (child, name.expect("it holds an instance"))
}

fn gone(name: &str) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if !instances().unwrap().iter().any(|there| there == name) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn signalled(process: u32, signal: i32) {
    // SAFETY: kill takes numbers only; the process is one of ours that nobody has reaped.
    assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
}

#[test]
fn however_the_process_ends_its_instance_goes() {
    if counter("however_the_process_ends_its_instance_goes", "tracefs").is_none() {
        return;
    }
    let before = mounts();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGABRT] {
        let (mut child, name) = held();
        assert!(instances().unwrap().contains(&name));
        signalled(child.id(), signal);
        assert!(!child.wait().unwrap().success());
        assert!(gone(&name), "{name} is left after signal {signal}");
    }
    assert_eq!(mounts(), before);
}

/// The worker kills a probe with all that it started: then nothing is left that could clean up.
#[test]
fn what_was_killed_with_its_cleaner_is_removed_by_the_next() {
    let test = "what_was_killed_with_its_cleaner_is_removed_by_the_next";
    if counter(test, "tracefs").is_none() {
        return;
    }
    let (mut child, name) = held();
    let cleaners = children(child.id());
    assert_eq!(cleaners.len(), 1);
    signalled(cleaners[0], libc::SIGKILL);
    assert!(instances().unwrap().contains(&name));
    signalled(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    pinned(|_| drop(Instance::create().unwrap()));
    assert!(!instances().unwrap().contains(&name), "{name} is left");
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
fn a_panic_leaves_nothing() {
    if counter("a_panic_leaves_nothing", "tracefs").is_none() {
        return;
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let ended = std::thread::spawn(move || {
        let instance = Instance::create().unwrap();
        sender.send(instance.name().to_owned()).unwrap();
        panic!("on purpose");
    });
    assert!(ended.join().is_err());
    assert!(!instances().unwrap().contains(&receiver.recv().unwrap()));
}

#[test]
fn nothing_is_traced_unless_allowed_by_name() {
    let options = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let refused = |through, options| -> Failure { allowed(through, &options).unwrap_err() };
    for (through, name) in [(Through::Tracefs, "tracefs"), (Through::Bpf, "bpf")] {
        let why = refused(through, BTreeMap::new());
        assert_eq!(why.kind, FailureKind::Unavailable);
        let remedy = why.remedy.unwrap();
        assert_eq!(remedy, format!("tollgate run crossing/tracepoint --allow {name}"));
        assert!(allowed(through, &options(&format!("allow-{name}"), "yes")).is_ok());
        assert!(allowed(through, &options(&format!("allow-{name}"), "no")).is_err());
    }
    refused(Through::Bpf, options("allow-tracefs", "yes"));
}
