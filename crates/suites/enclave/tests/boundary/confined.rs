//! Confinement of every thread of an enclave's process, because they share memory.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use enclave::error::EcallError;
use enclave::kinds::EnclaveKind;

use super::built::{FIVE, MARK, POKE};
use super::{available, call, load, process_of, shares};

/// Time limit of the kernel on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn every_thread_of_the_process_is_filtered() {
    if available(&[EnclaveKind::Process]).is_empty() {
        return;
    }
    let enclave = load(EnclaveKind::Process);
    let id = process_of(&*enclave);
    let mut threads = 0;
    for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let line = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("{key} in {status}")).trim().to_owned()
        };
        assert_eq!((&*line("Seccomp:"), &*line("NoNewPrivs:")), ("2", "1"), "{status}");
        // The host's handlers do not run there: only faults are unblocked, 4 ILL, 5 TRAP, 7 BUS, 8 FPE, 11 SEGV, 31
        // SYS.
        let blocked = u64::from_str_radix(&line("SigBlk:"), 16).unwrap();
        let faults = [4, 5, 7, 8, 11, 31].map(|signal| 1u64 << (signal - 1)).iter().sum::<u64>();
        let never = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        assert_eq!(blocked | never, !faults, "{status}");
        threads += 1;
    }
    assert_eq!(threads, 5, "one per TCS, and one that ends the process");
}

#[test]
fn a_process_does_not_have_the_memory_of_another_enclave() {
    if available(&[EnclaveKind::Process]).is_empty() {
        return;
    }
    let (one, other) = (load(EnclaveKind::Process), load(EnclaveKind::Process));
    assert!(!shares(process_of(&*other), one.heap().start));
    assert!(!shares(process_of(&*one), other.heap().start));
}

/// Returns the used range of the stack of the process's first thread, once that thread waits in `read`.
fn stack_of(id: i32) -> std::ops::Range<u64> {
    let start = Instant::now();
    let top = loop {
        assert!(start.elapsed() < LIMIT, "the thread does not wait");
        let state = std::fs::read_to_string(format!("/proc/{id}/syscall")).unwrap();
        let words: Vec<_> = state.split_whitespace().collect();
        if let ["0", .., stack, _] = words[..] {
            break u64::from_str_radix(stack.trim_start_matches("0x"), 16).unwrap();
        }
        std::thread::yield_now();
    };
    let map = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let ranges = map.lines().map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|end| u64::from_str_radix(end, 16).unwrap());
        start..end
    });
    let stack = ranges.into_iter().find(|range| range.contains(&top)).unwrap();
    // Only the innermost frames, because the end of the stack contains variables that all threads share.
    top..stack.end.min(top + 1024)
}

/// Closes the host's end of the pipe to a process.
fn close_pipe_of(id: i32) {
    let pipes = |process: &str| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let named = files.filter_map(|file| {
            let to = std::fs::read_link(file.path()).ok()?.display().to_string();
            let number = file.file_name().to_string_lossy().parse::<i32>().ok()?;
            to.starts_with("pipe:").then_some((to, number))
        });
        named.collect::<Vec<_>>()
    };
    let of_process = pipes(&id.to_string());
    let [(name, _)] = &of_process[..] else { panic!("{of_process:?}") };
    let null = std::fs::File::open("/dev/null").unwrap();
    for (_, number) in pipes("self").into_iter().filter(|(other, _)| other == name) {
        // SAFETY: the descriptor stays open, but nothing reads or writes by it.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
    }
}

#[test]
fn a_hijacked_thread_can_do_nothing() {
    if available(&[EnclaveKind::Process]).is_empty() {
        return;
    }
    let (folder, enclave) = (tempfile::tempdir().unwrap(), load(EnclaveKind::Process));
    let mark = folder.path().join("made-by-an-enclave");
    let name = std::ffi::CString::new(mark.to_str().unwrap()).unwrap();
    let heap = enclave.heap().start;
    let bytes = name.as_bytes_with_nul();
    // SAFETY: the heap is longer, and no thread is inside.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), heap as *mut u8, bytes.len()) };
    let astray = call(&*enclave, MARK, &[heap as u64]).unwrap();
    let id = process_of(&*enclave);
    // Replaces every return address of the thread that waits for the host's end by the enclave's code.
    for at in stack_of(id).step_by(8) {
        assert_eq!(call(&*enclave, POKE, &[at, astray]), Ok(0), "at {at:#x}");
    }
    close_pipe_of(id);
    let start = Instant::now();
    while call(&*enclave, FIVE, &[1, 2, 3, 4, 5]) != Err(EcallError::Gone) {
        assert!(start.elapsed() < LIMIT, "the process does not end");
    }
    assert!(!mark.exists(), "the enclave's code made a system call without a filter");
}
