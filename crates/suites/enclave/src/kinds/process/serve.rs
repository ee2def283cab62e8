//! The code of the enclave's process after the fork.
//!
//! The host may have many threads, of which the fork copies only one, with locks in any state. So nothing here
//! allocates, panics, or uses a thread-local variable: it consists of atomics, system calls and the trampolines. All
//! signals but faults stay blocked, because the host's handlers are for the host's threads.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;
use rustix::pipe::{PipeFlags, pipe_with};
use seccompiler::BpfProgram;

use super::mailbox::{Mailbox, Mailboxes, READY, State};
use super::{Child, ending_filter, serving_filter};
use crate::region::Region;
use crate::signals;
use crate::system_calls::raw;
use crate::tcs::Tcs;
use crate::thread::{SIGNAL_STACK, use_signal_stack};
use crate::trampoline::tollgate_enclave_enter;

/// The stack of a serving thread outside the enclave.
const STACK: usize = 64 << 10;

/// The mailboxes of the enclave that this process serves: set after the fork, in the enclave's process.
static MAILBOXES: AtomicPtr<Mailbox> = AtomicPtr::new(ptr::null_mut());

/// The arguments of a serving thread.
struct Serving {
    tcs: *const Tcs,
    mailbox: *const Mailbox,
    filter: *const libc::sock_fprog,
    /// Its signal stack, followed by its stack.
    stacks: *mut u8,
}

/// Forks the enclave's process.
pub(super) fn fork(tcs: &[Tcs], mailboxes: &Mailboxes, region: &Region) -> Result<Child, Failure> {
    let failed = |what: &str, why: std::io::Error| {
        Failure::failed(format!("the enclave's process: {what}: {why}"))
    };
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)
        .map(|(read, write)| (write, read))
        .map_err(|why| failed("pipe", why.into()))?;
    let length = (SIGNAL_STACK + STACK) * tcs.len();
    // The child has its own copy.
    let stacks = Mapping::reserved(length)?;
    let (filter, ending) = (serving_filter()?, ending_filter(theirs.as_fd())?);
    let (program, ending) = (program(&filter), program(&ending));
    let serving: Vec<Serving> = tcs
        .iter()
        .zip(mailboxes.all())
        .map(|(tcs, mailbox)| Serving {
            tcs,
            mailbox,
            filter: &raw const program,
            stacks: stacks.as_mut_ptr().wrapping_add(tcs.number * (SIGNAL_STACK + STACK)),
        })
        .collect();
    let signals = block(u64::MAX);
    // SAFETY: the child obeys the rules in the module's documentation.
    let id = unsafe { libc::fork() };
    if id == 0 {
        // SAFETY: this is the child, which has its own copies, and it does not return.
        unsafe { stay(&serving, mailboxes.all(), &ending, theirs.as_raw_fd(), region) };
    }
    let forked = std::io::Error::last_os_error();
    block(signals);
    if id < 0 { Err(failed("fork", forked)) } else { Ok(Child { id, _pipe: File::from(ours) }) }
}

/// Converts a filter to the kernel's structure.
fn program(filter: &BpfProgram) -> libc::sock_fprog {
    // `seccompiler` declares its own type with the layout of the kernel's structure.
    libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() }
}

/// Sets the calling thread's set of blocked signals; returns the previous set.
fn block(signals: u64) -> u64 {
    let mut before = 0u64;
    let words = [
        libc::SIG_SETMASK as u64,
        &raw const signals as u64,
        &raw mut before as u64,
        size_of::<u64>() as u64,
        0,
        0,
    ];
    // SAFETY: the kernel reads one set and writes the other; with a set of the right size it cannot fail.
    unsafe { raw(libc::SYS_rt_sigprocmask, words) };
    before
}

/// Starts the serving threads and waits until the host has exited.
unsafe fn stay(
    serving: &[Serving],
    mailboxes: &[Mailbox],
    ending: &libc::sock_fprog,
    pipe: c_int,
    region: &Region,
) -> ! {
    const THREAD: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    MAILBOXES.store(mailboxes.as_ptr().cast_mut(), Ordering::Relaxed);
    block(signals::FAULTS.iter().fold(u64::MAX, |set, signal| set & !(1 << (signal - 1))));
    // Maps the pages in this process, because a fork does not copy page tables of shared memory. If it fails, pages
    // are mapped when they are first accessed.
    let _ = region.populate();
    // SAFETY: this process does not use the host's files, and each thread has its own stack.
    unsafe {
        let pipe = pipe as u64;
        if pipe > 0 {
            raw(libc::SYS_close_range, [0, pipe - 1, 0, 0, 0, 0]);
        }
        raw(libc::SYS_close_range, [pipe + 1, u32::MAX.into(), 0, 0, 0, 0]);
        for one in serving {
            let top = one.stacks.wrapping_add(SIGNAL_STACK + STACK);
            if libc::clone(serve, top.cast(), THREAD, ptr::from_ref(one).cast_mut().cast()) < 0 {
                raw(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]);
            }
        }
        // From here on, every thread of the process has a filter.
        ready(&mailboxes[serving.len()], confine(ending));
        let mut byte = 0u8;
        // No process writes to the pipe: the read ends when the host ends.
        while raw(libc::SYS_read, [pipe, &raw mut byte as u64, 1, 0, 0, 0])
            == -i64::from(libc::EINTR)
        {}
        loop {
            raw(libc::SYS_exit_group, [0; 6]);
        }
    }
}

/// Serves one TCS.
extern "C" fn serve(given: *mut c_void) -> c_int {
    // SAFETY: `fork` created it and everything that it points to; they live as long as the process.
    let (serving, mailbox) = unsafe {
        let serving = &*given.cast::<Serving>();
        (serving, &*serving.mailbox)
    };
    // SAFETY: the stack belongs to this thread.
    let stack = unsafe { use_signal_stack(serving.stacks) };
    // SAFETY: the filter lives as long as the process.
    ready(mailbox, stack.and_then(|()| confine(unsafe { &*serving.filter })));
    loop {
        mailbox.enclave_waits_for(State::Call);
        let words: [u64; 5] = [1, 2, 3, 4, 5].map(|word| mailbox.word(word));
        // SAFETY: in this process only this thread uses the TCS, and the image runs from its entry point.
        let left = unsafe { tollgate_enclave_enter(serving.tcs, mailbox.word(0), words.as_ptr()) };
        if left.failed == 0 {
            mailbox.put([left.word, 0, 0, 0, 0, 0]);
            mailbox.pass_to_host(State::Answer);
        } else {
            // SAFETY: in this process only this thread uses the TCS, which lives as long as the process.
            let cut = unsafe { &(*serving.tcs).cut };
            let [signal, what, at] =
                [&cut.signal, &cut.what, &cut.at].map(|word| word.load(Ordering::Relaxed));
            mailbox.put([signal, what, at, 0, 0, 0]);
            mailbox.pass_to_host(State::Failed);
        }
    }
}

/// Reports to the host that the calling thread is confined, or the error, after which the host ends the process.
fn ready(mailbox: &Mailbox, confined: Result<(), i32>) {
    let error = confined.err().map_or(0, |errno| errno as u32);
    mailbox.ready.store(READY + error, Ordering::Release);
}

/// Installs a filter on the calling thread.
fn confine(filter: &libc::sock_fprog) -> Result<(), i32> {
    // SAFETY: both only restrict this thread; the kernel reads the filter.
    let result = unsafe {
        match raw(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0]) {
            0 => raw(
                libc::SYS_seccomp,
                [libc::SECCOMP_SET_MODE_FILTER.into(), 0, ptr::from_ref(filter) as u64, 0, 0, 0],
            ),
            error => error,
        }
    };
    if result == 0 { Ok(()) } else { Err(-result as i32) }
}

/// Answers an OCALL in the enclave's process by forwarding it to the host.
///
/// # Safety
/// The calling thread must serve the TCS.
pub(super) unsafe extern "sysv64" fn answer_by_host(
    number: u64,
    w0: u64,
    w1: u64,
    w2: u64,
    w3: u64,
    w4: u64,
    tcs: *const Tcs,
) -> u64 {
    // SAFETY: the caller guarantees that the TCS is valid; there is one mailbox per TCS.
    let mailbox = unsafe { &*MAILBOXES.load(Ordering::Relaxed).add((*tcs).number) };
    mailbox.put([number, w0, w1, w2, w3, w4]);
    mailbox.pass_to_host(State::Ocall);
    mailbox.enclave_waits_for(State::Resume);
    mailbox.word(0)
}
