//! The boundary of each kind of enclave: a violation is reported with its cause, the host survives, and no later
//! ECALL enters the enclave.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also in functions that tests share.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use enclave::conf::Conf;
use enclave::error::{EcallError, FaultLocation};
use enclave::images::Image;
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::Ecall;

#[path = "boundary/built.rs"]
mod built;
#[path = "boundary/confined.rs"]
mod confined;
#[path = "boundary/registers.rs"]
mod registers;
#[path = "boundary/signals.rs"]
mod signals;

use built::{FIVE, LET_GO, REMEMBER, STAY, SUM, WIDE};

/// The kinds whose memory the host can read, as these tests do; the other kinds have their own tests.
const SEEN: [EnclaveKind; 5] = [
    EnclaveKind::None,
    EnclaveKind::Simulate,
    EnclaveKind::ArchPrctl,
    EnclaveKind::Process,
    EnclaveKind::Kvm,
];

/// The kinds with a separate stack.
const BOUND: [EnclaveKind; 4] =
    [EnclaveKind::Simulate, EnclaveKind::ArchPrctl, EnclaveKind::Process, EnclaveKind::Kvm];

/// The kinds that block system calls.
const BLOCKING: [EnclaveKind; 3] = [EnclaveKind::Simulate, EnclaveKind::Process, EnclaveKind::Kvm];

/// Returns those of `kinds` that run here, regardless of their cost; notes the others as untested.
fn available(kinds: &[EnclaveKind]) -> Vec<EnclaveKind> {
    let runs = |kind: &EnclaveKind| match kinds::runs(*kind) {
        Ok(()) => true,
        Err(why) => {
            machine::untested::note(&format!("the boundary of kind {}", kind.name()), &why);
            false
        }
    };
    kinds.iter().copied().filter(runs).collect()
}

fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| Image { allocator: "of the test", bytes: built::bytes(), wasm: None })
}

fn load(kind: EnclaveKind) -> Box<dyn Enclave> {
    let conf = Conf { heap_pages: 16, tcs: 4, ..Conf::default() };
    kinds::load_untimed(kind, image(), &conf).unwrap()
}

fn call(enclave: &dyn Enclave, call: Ecall, words: &[u64]) -> Result<u64, EcallError> {
    let mut five = [0; 5];
    five[..words.len()].copy_from_slice(words);
    enclave.ecall(call, five)
}

/// Returns the error of a misbehaving ECALL, and checks that no later ECALL enters, on this thread or another.
fn misbehave(enclave: &dyn Enclave, how: u64, address: u64) -> EcallError {
    let why = call(enclave, Ecall::misbehave, &[how, address]).unwrap_err();
    assert!(!why.to_string().contains('\n'));
    let refused = || {
        for _ in 0..2 {
            let next = call(enclave, FIVE, &[1, 2, 3, 4, 5]);
            assert_eq!(next, Err(EcallError::Aborting), "after {why}");
        }
    };
    refused();
    std::thread::scope(|scope| scope.spawn(refused).join().unwrap());
    why
}

fn fault(why: EcallError) -> (i32, u64, FaultLocation) {
    let EcallError::Fault { signal, address, place, .. } = why else { panic!("{why}") };
    (signal, address, place)
}

#[test]
fn every_kind_passes_words_and_counts_ocalls() {
    for kind in available(&SEEN) {
        let enclave = load(kind);
        assert_eq!(call(&*enclave, FIVE, &[1, 2, 3, 4, 5]), Ok(55), "{kind:?}");
        assert_eq!(call(&*enclave, Ecall::leave, &[100]), Ok(100), "{kind:?}");
        assert_eq!((enclave.ocalls(), enclave.blocked()), (100, 0), "{kind:?}");
        assert_eq!(enclave.repeat(Ecall::leave, [3, 0, 0, 0, 0], 5), Ok(3), "{kind:?}");
        assert_eq!(enclave.repeat(Ecall::leave, [3, 0, 0, 0, 0], 0), Ok(0), "{kind:?}");
        assert_eq!(enclave.ocalls(), 115, "{kind:?}");
        assert_eq!(enclave.heap().len(), 16 * 4096);
        assert_eq!(enclave.heap().start % 4096, 0);
    }
}

#[test]
fn wide_vectors_are_usable_if_the_processor_has_them() {
    if !machine::cpu::has_avx2() {
        return machine::untested::note("wide vectors inside", &"the CPU has none");
    }
    for kind in available(&SEEN) {
        let enclave = load(kind);
        for word in [7, u64::MAX] {
            assert_eq!(call(&*enclave, WIDE, &[word]), Ok(word), "{kind:?}");
        }
    }
}

#[test]
fn a_kind_is_measurable_or_states_why_not() {
    for kind in available(&SEEN) {
        let loaded = kinds::load(kind, image(), &Conf::default());
        match kinds::available(kind) {
            Ok(()) => assert!(loaded.is_ok(), "{kind:?}"),
            Err(failure) => {
                machine::untested::note(&format!("times of kind {}", kind.name()), &failure);
                assert_eq!(loaded.err(), Some(failure.clone()));
                assert!(failure.remedy.is_some() && !failure.why.contains('\n'), "{failure}");
            }
        }
    }
}

#[test]
fn each_tcs_has_its_own_thread_local_variables() {
    for kind in available(&SEEN) {
        let enclave = load(kind);
        assert_eq!(call(&*enclave, SUM, &[1]), Ok(8), "{kind:?}");
        // The same thread uses the same TCS.
        assert_eq!(call(&*enclave, SUM, &[1]), Ok(9), "{kind:?}");
    }
}

#[test]
fn a_system_call_is_blocked_and_counted() {
    for kind in available(&BLOCKING) {
        let enclave = load(kind);
        let why = misbehave(&*enclave, 0, 0);
        assert!(matches!(why, EcallError::SystemCall { number: 39, .. }), "{kind:?}: {why}");
        assert_eq!(enclave.blocked(), 1, "{kind:?}");
        // The host's own system calls work.
        assert!(std::fs::read("/proc/self/stat").is_ok());
    }
    let id = u64::from(std::process::id());
    for kind in available(&[EnclaveKind::None, EnclaveKind::ArchPrctl]) {
        let enclave = load(kind);
        assert_eq!(call(&*enclave, Ecall::misbehave, &[0]), Ok(id), "{kind:?} blocks nothing");
        assert_eq!(enclave.blocked(), 0, "{kind:?}");
    }
}

#[test]
fn a_stack_overflow_hits_the_guard_page() {
    for kind in available(&BOUND) {
        let enclave = load(kind);
        let why = misbehave(&*enclave, 1, 0);
        assert_eq!(
            (fault(why).0, fault(why).2),
            (libc::SIGSEGV, FaultLocation::Guard),
            "{kind:?}: {why}"
        );
        assert!(why.to_string().contains("raise NumStackPages"), "{why}");
    }
}

#[test]
fn wild_pointers_and_forbidden_instructions_end_the_call() {
    for kind in available(&SEEN) {
        // Runs an operation on an address of a new enclave; returns the fault.
        let wild = |how, address: &dyn Fn(&dyn Enclave) -> u64| {
            let enclave = load(kind);
            let address = address(&*enclave);
            let (signal, touched, place) = fault(misbehave(&*enclave, how, address));
            assert_eq!(enclave.blocked(), 0, "{kind:?}");
            (signal, touched == address, place)
        };
        let segv = |place| (libc::SIGSEGV, true, place);
        let heap = |enclave: &dyn Enclave| enclave.heap().start as u64;
        assert_eq!(wild(2, &|_| 0x18), segv(FaultLocation::Outside), "{kind:?}");
        let past = |enclave: &dyn Enclave| enclave.heap().end as u64;
        assert_eq!(wild(2, &past), segv(FaultLocation::Guard), "{kind:?}");
        assert_eq!(wild(3, &|_| 0).0, libc::SIGILL, "{kind:?}");
        assert_eq!(wild(4, &|_| 0).0, libc::SIGFPE, "{kind:?}");
        assert_eq!(wild(5, &|_| 0), segv(FaultLocation::Outside), "{kind:?}");
        assert_eq!(wild(7, &|_| 0).0, libc::SIGSEGV, "{kind:?}");
        // The heap is not executable, and the code is not writable.
        assert_eq!(wild(5, &heap), segv(FaultLocation::Inside), "{kind:?}");
        assert_eq!(wild(6, &|_| 0).2, FaultLocation::Inside, "{kind:?}");
    }
}

/// Keeps threads inside until a word of the heap is 100; returns the word after all of them have entered.
fn keep_inside<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    enclave: &'scope dyn Enclave,
    threads: u32,
) -> (&'scope AtomicU32, Vec<std::thread::ScopedJoinHandle<'scope, Result<u64, EcallError>>>) {
    let word = enclave.heap().start;
    // SAFETY: the heap is mapped as long as the enclave, and is page-aligned.
    let inside = unsafe { AtomicU32::from_ptr(word as *mut u32) };
    inside.store(0, Ordering::SeqCst);
    let staying = (0..threads)
        .map(|_| scope.spawn(move || call(enclave, STAY, &[word as u64, 100])))
        .collect();
    let start = Instant::now();
    while inside.load(Ordering::SeqCst) != threads {
        assert!(start.elapsed() < Duration::from_secs(60), "the threads do not enter");
        std::thread::yield_now();
    }
    (inside, staying)
}

/// Lets the threads that wait for a word leave, from outside.
fn let_go(word: &AtomicU32) {
    word.store(100, Ordering::SeqCst);
    // SAFETY: it wakes threads that sleep on the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1000) };
}

#[test]
fn threads_inside_during_a_fault_may_leave() {
    for kind in available(&SEEN) {
        let enclave = load(kind);
        std::thread::scope(|scope| {
            let (word, staying) = keep_inside(scope, &*enclave, 2);
            misbehave(&*enclave, 3, 0);
            let_go(word);
            for one in staying {
                assert!(one.join().unwrap().is_ok(), "{kind:?}");
            }
        });
        assert_eq!(call(&*enclave, Ecall::nothing, &[]), Err(EcallError::Aborting), "{kind:?}");
    }
}

#[test]
fn an_enclave_finishes_once_and_not_after_a_fault() {
    // A virtual machine does not map the host's page.
    for kind in available(&[
        EnclaveKind::None,
        EnclaveKind::Simulate,
        EnclaveKind::ArchPrctl,
        EnclaveKind::Process,
    ]) {
        // Shared with the process of kind `process`.
        // SAFETY: it creates a new mapping at an address of the kernel's choice.
        let ended = unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            AtomicU64::from_ptr(page.cast())
        };
        for (fault, times) in [(false, 1), (true, 1), (false, 2)] {
            let enclave = load(kind);
            assert_eq!(call(&*enclave, REMEMBER, &[ended.as_ptr() as u64]), Ok(0));
            if fault {
                misbehave(&*enclave, 3, 0);
            }
            drop(enclave);
            assert_eq!(ended.load(Ordering::SeqCst), times, "{kind:?}, fault {fault}");
        }
    }
}

#[test]
fn an_extra_thread_is_refused() {
    for kind in available(&SEEN) {
        let enclave = load(kind);
        let enclave = &*enclave;
        std::thread::scope(|scope| {
            let (word, staying) = keep_inside(scope, enclave, 4);
            let refused = call(enclave, Ecall::nothing, &[]).unwrap_err();
            assert_eq!(refused, EcallError::OutOfThreads { tcs: 4 }, "{kind:?}");
            assert!(refused.to_string().contains("raise NumTCS"), "{refused}");
            let_go(word);
            let mut tcs: Vec<_> =
                staying.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
            tcs.sort_unstable();
            assert_eq!(tcs, [0, 1, 2, 3], "{kind:?}");
            // Again, woken from inside.
            let (word, staying) = keep_inside(scope, enclave, 3);
            assert_eq!(call(enclave, LET_GO, &[word.as_ptr() as u64, 100]), Ok(0), "{kind:?}");
            assert!(staying.into_iter().all(|one| one.join().unwrap().is_ok()), "{kind:?}");
        });
        assert!(enclave.ocalls() >= 8, "{kind:?}");
    }
}

#[test]
fn eight_threads_are_inside_at_once() {
    const CALLS: u64 = 2000;
    for kind in available(&SEEN) {
        let enclave = kinds::load_untimed(kind, image(), &Conf::default()).unwrap();
        let enclave = &*enclave;
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                scope.spawn(move || {
                    for time in 0..CALLS {
                        let words = [thread, time, 1, 2, 3];
                        let expected = thread + 2 * time + 3 + 8 + 15;
                        assert_eq!(enclave.ecall(FIVE, words), Ok(expected), "{kind:?}");
                        if time % 100 == 0 {
                            assert_eq!(call(enclave, Ecall::leave, &[3]), Ok(3), "{kind:?}");
                        }
                    }
                });
            }
        });
        assert_eq!(enclave.ocalls(), 8 * CALLS / 100 * 3, "{kind:?}");
    }
}

#[test]
fn an_ended_process_is_reported_as_gone() {
    if available(&[EnclaveKind::Process]).is_empty() {
        return;
    }
    let enclave = load(EnclaveKind::Process);
    let id = process_of(&*enclave);
    // SAFETY: it ends a process that this test started.
    unsafe { libc::kill(id, libc::SIGKILL) };
    for _ in 0..2 {
        assert_eq!(call(&*enclave, FIVE, &[1]), Err(EcallError::Gone));
    }
    drop(enclave);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "the process is reaped");
}

/// Returns the process of an enclave of kind `process`.
fn process_of(enclave: &dyn Enclave) -> i32 {
    let start = Instant::now();
    loop {
        let with: Vec<_> =
            children().into_iter().filter(|id| shares(*id, enclave.heap().start)).collect();
        if let [id] = with[..] {
            return id;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "processes with its memory: {with:?}");
        std::thread::yield_now();
    }
}

/// Returns the child processes of this one.
fn children() -> Vec<i32> {
    let me = std::process::id();
    let tasks = std::fs::read_dir(format!("/proc/{me}/task")).unwrap();
    let of = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("children")).unwrap_or_default()
    };
    let all: String = tasks.flatten().map(of).collect();
    all.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Returns whether a process shares the memory that this one has at an address.
fn shares(id: i32, address: usize) -> bool {
    // Other memory may be mapped there, but the same memory has the same inode.
    let inode = |process: &str| {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        maps.lines().find_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-').unwrap();
            let [start, end] = [start, end].map(|end| usize::from_str_radix(end, 16).unwrap());
            (start..end).contains(&address).then(|| (words[3].to_owned(), words[4].to_owned()))
        })
    };
    let inode_of_self = inode("self");
    assert!(inode_of_self.is_some(), "{address:#x} is mapped");
    inode(&id.to_string()) == inode_of_self
}

/// Runs a test in a separate process; returns its output.
fn separately(test: &str) -> std::process::Output {
    let program = std::env::current_exe().unwrap();
    Command::new(program).args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap()
}

#[test]
fn a_crash_of_the_host_is_still_a_crash() {
    use std::os::unix::process::ExitStatusExt;
    if available(&[EnclaveKind::Simulate]).is_empty() {
        return;
    }
    assert_eq!(separately("crashes").status.signal(), Some(libc::SIGSEGV));
}

#[test]
#[ignore = "it crashes; another test runs it in a separate process"]
fn crashes() {
    let enclave = load(EnclaveKind::Simulate);
    misbehave(&*enclave, 2, 8);
    // SAFETY: this is the wild pointer that the test is about.
    unsafe { std::ptr::without_provenance_mut::<u64>(8).write_volatile(1) };
}
