//! The enclave's process: what runs after the fork.
//!
//! The host may have many threads, of which the fork copies one, with locks as they happened to be. So
//! nothing here allocates, panics, or uses a thread-local variable: it is atomics, system calls and the
//! trampolines. All signals but faults stay blocked, because the host's handlers are for the host's threads.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use lab::sample::Failure;
use rustix::mm::{self, MapFlags, ProtFlags};
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

/// What a serving thread itself needs below the trampoline.
const STACK: usize = 64 << 10;

/// The mailboxes of the enclave that this process serves: set after the fork, in the enclave's process.
static MAILBOXES: AtomicPtr<Mailbox> = AtomicPtr::new(ptr::null_mut());

/// What a serving thread is given.
struct Serving {
    tcs: *const Tcs,
    mailbox: *const Mailbox,
    filter: *const libc::sock_fprog,
    /// Its signal stack, then its stack.
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
    let (access, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping, wherever the kernel finds room.
    let stacks = unsafe { mm::mmap_anonymous(ptr::null_mut(), length, access, flags) }
        .map_err(|why| failed("mmap", why.into()))?;
    let (filter, ending) = (serving_filter()?, ending_filter(theirs.as_fd())?);
    let (program, ending) = (program(&filter), program(&ending));
    let serving: Vec<Serving> = tcs
        .iter()
        .zip(mailboxes.all())
        .map(|(tcs, mailbox)| Serving {
            tcs,
            mailbox,
            filter: &raw const program,
            stacks: stacks.cast::<u8>().wrapping_add(tcs.number * (SIGNAL_STACK + STACK)),
        })
        .collect();
    let signals = block(u64::MAX);
    // SAFETY: the child keeps to what this file's head says.
    let id = unsafe { libc::fork() };
    if id == 0 {
        // SAFETY: this is the child, which alone has these copies, and it does not return.
        unsafe { stay(&serving, mailboxes.all(), &ending, theirs.as_raw_fd(), region) };
    }
    let forked = std::io::Error::last_os_error();
    block(signals);
    // SAFETY: the child has its own copy.
    let _ = unsafe { mm::munmap(stacks, length) };
    if id < 0 { Err(failed("fork", forked)) } else { Ok(Child { id, _pipe: File::from(ours) }) }
}

/// A filter as the kernel reads it.
fn program(filter: &BpfProgram) -> libc::sock_fprog {
    // `seccompiler` declares the kernel's structure as its own.
    libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() }
}

/// Blocks a set of signals for the calling thread, and no others; returns the set that was blocked before.
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
    // SAFETY: the kernel reads one set and writes the other; it cannot fail with a set of its own size.
    unsafe { raw(libc::SYS_rt_sigprocmask, words) };
    before
}

/// Starts the serving threads and stays until the host has gone.
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
    // The memory is there; what it is mapped by is not copied. Without it pages are mapped as they are touched.
    let _ = region.populate();
    // SAFETY: the host's files are not this process's to keep; stacks are each thread's own.
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
        // From here no thread of the process is without a filter.
        ready(&mailboxes[serving.len()], confine(ending));
        let mut byte = 0u8;
        // Nobody writes: it ends with the host.
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
    // SAFETY: `fork` made it and everything that it names; they live as long as the process.
    let (serving, mailbox) = unsafe {
        let serving = &*given.cast::<Serving>();
        (serving, &*serving.mailbox)
    };
    // SAFETY: the stack is this thread's own.
    let stack = unsafe { use_signal_stack(serving.stacks) };
    // SAFETY: the filter lives as long as the process.
    ready(mailbox, stack.and_then(|()| confine(unsafe { &*serving.filter })));
    loop {
        mailbox.enclave_waits_for(State::Call);
        let words: [u64; 5] = [1, 2, 3, 4, 5].map(|word| mailbox.word(word));
        // SAFETY: the TCS is this thread's alone in this process, and the image is entered at its entry.
        let left = unsafe { tollgate_enclave_enter(serving.tcs, mailbox.word(0), words.as_ptr()) };
        if left.failed == 0 {
            mailbox.put([left.word, 0, 0, 0, 0, 0]);
            mailbox.pass_to_host(State::Answer);
        } else {
            // SAFETY: as above.
            let cut = unsafe { &(*serving.tcs).cut };
            let [signal, what, at] =
                [&cut.signal, &cut.what, &cut.at].map(|word| word.load(Ordering::Relaxed));
            mailbox.put([signal, what, at, 0, 0, 0]);
            mailbox.pass_to_host(State::Failed);
        }
    }
}

/// Tells the host that the calling thread is confined, or why not; then the host ends the process.
fn ready(mailbox: &Mailbox, confined: Result<(), i32>) {
    let error = confined.err().map_or(0, |errno| errno as u32);
    mailbox.ready.store(READY + error, Ordering::Release);
}

/// Puts the calling thread under a filter.
fn confine(filter: &libc::sock_fprog) -> Result<(), i32> {
    // SAFETY: both take rights from this thread alone; the kernel reads the filter.
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

/// Answers an OCALL in the enclave's process: by asking the host.
///
/// # Safety
/// The TCS is served by the calling thread.
pub(super) unsafe extern "sysv64" fn answer_by_host(
    number: u64,
    w0: u64,
    w1: u64,
    w2: u64,
    w3: u64,
    w4: u64,
    tcs: *const Tcs,
) -> u64 {
    // SAFETY: the caller's; there is a mailbox a TCS.
    let mailbox = unsafe { &*MAILBOXES.load(Ordering::Relaxed).add((*tcs).number) };
    mailbox.put([number, w0, w1, w2, w3, w4]);
    mailbox.pass_to_host(State::Ocall);
    mailbox.enclave_waits_for(State::Resume);
    mailbox.word(0)
}
