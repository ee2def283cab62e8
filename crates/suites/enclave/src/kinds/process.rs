//! An enclave in another process, under seccomp, called through shared memory.
//!
//! The process is forked after the region is loaded, so addresses are the same on both sides. It has one serving
//! thread per TCS, and one that ends the process when the host's end of a pipe is closed.
//!
//! All these threads share memory, so code inside can change the stack and the code pointers of each. Therefore each
//! is under a filter before the first call: regardless of what a serving thread executes, it can only sleep and wake;
//! the other can only read the pipe and end the process. The process does not have the memory of another enclave's
//! process.

mod mailbox;
mod serve;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use enclave_interface::Ecall;
use lab::sample::Failure;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use self::mailbox::{Mailboxes, State};
use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::faults::{self, Watched};
use crate::ocalls;
use crate::region::{Region, Sharing};
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;
use crate::trampoline::tollgate_enclave_ocall;

/// Time limit for the process to start serving.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A loaded enclave of kind `process`.
pub(super) struct Process {
    tcs: TcsSet,
    mailboxes: Mailboxes,
    gone: AtomicBool,
    child: Child,
    _watched: Watched,
    region: Region,
}

/// The enclave's process. It is killed and reaped when this is dropped; if the host process ends, the pipe ends it.
struct Child {
    id: libc::pid_t,
    _pipe: File,
}

/// Checks that this kernel supports seccomp filters.
pub(super) fn available() -> Result<(), Failure> {
    let actions =
        std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split_whitespace().any(|action| action == "trap") {
        return Ok(());
    }
    Err(Failure::unavailable(
        "this kernel has no seccomp filters",
        "build Linux with CONFIG_SECCOMP_FILTER=y",
    ))
}

/// Returns the filter of a serving thread, which may only use a futex and return from a signal handler. Any other
/// system call raises SIGSYS.
fn serving_filter() -> Result<BpfProgram, Failure> {
    let allowed = [libc::SYS_futex, libc::SYS_rt_sigreturn].map(|call| (call, Vec::new()));
    filter(allowed.into_iter().collect(), SeccompAction::Trap)
}

/// Returns the filter of the thread that ends the process, which may only read the pipe and exit. Any other system
/// call ends the process, because only a hijacked thread would make one.
fn ending_filter(pipe: BorrowedFd<'_>) -> Result<BpfProgram, Failure> {
    let number = pipe.as_raw_fd().unsigned_abs().into();
    let from_pipe = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|why| no_filter(&why))?;
    let allowed = [(libc::SYS_read, vec![from_pipe]), (libc::SYS_exit_group, Vec::new())];
    filter(allowed.into_iter().collect(), SeccompAction::KillProcess)
}

fn filter(
    allowed: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
) -> Result<BpfProgram, Failure> {
    SeccompFilter::new(allowed, otherwise, SeccompAction::Allow, TargetArch::x86_64)
        .and_then(BpfProgram::try_from)
        .map_err(|why| no_filter(&why))
}

fn no_filter(why: &seccompiler::BackendError) -> Failure {
    Failure::failed(format!("cannot build the seccomp filter: {why}"))
}

impl Process {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        // A process that is forked concurrently by another load would inherit this region.
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let region = Region::load(elf, conf, Sharing::Forked)?;
        let tcs = TcsSet::new(
            &region,
            conf.tcs,
            tollgate_enclave_ocall as *const () as usize,
            serve::answer_by_host,
        );
        let watched = faults::watch(region.range())?;
        // One per TCS, and one by which the thread that ends the process reports that it is confined.
        let mailboxes = Mailboxes::new(conf.tcs + 1)?;
        let child = serve::fork(tcs.all(), &mailboxes, &region)?;
        let kept = region.keep_from_forks().map_err(std::io::Error::from);
        let kept = kept.and_then(|()| mailboxes.keep_from_forks());
        kept.map_err(|why| {
            Failure::failed(format!("cannot unshare the enclave's memory from later forks: {why}"))
        })?;
        drop(one);
        let process =
            Self { tcs, mailboxes, gone: AtomicBool::new(false), child, _watched: watched, region };
        process.wait_until_served()?;
        Ok(process)
    }

    fn wait_until_served(&self) -> Result<(), Failure> {
        let start = Instant::now();
        for mailbox in self.mailboxes.all() {
            loop {
                match mailbox.ready.load(Ordering::Acquire) {
                    mailbox::READY => break,
                    0 if self.child.lives() && start.elapsed() < START_LIMIT => {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    0 => {
                        return Err(Failure::failed(
                            "the enclave's process does not start serving",
                        ));
                    }
                    error => {
                        let errno = error - mailbox::READY;
                        let why = format!(
                            "cannot install the seccomp filter in the enclave's process: errno {errno}"
                        );
                        return Err(Failure::unavailable(
                            why,
                            "allow seccomp filters on this machine",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Answers OCALLs until the call ends.
    fn attend(&self, tcs: &Tcs) -> Result<u64, EcallError> {
        let mailbox = &self.mailboxes.all()[tcs.number];
        loop {
            let waiting = |state| matches!(state, State::Call | State::Resume);
            let Some(state) = mailbox.host_waits_while(waiting, || self.child.lives()) else {
                self.gone.store(true, Ordering::Relaxed);
                return Err(EcallError::Gone);
            };
            match state {
                State::Answer => return Ok(mailbox.word(0)),
                State::Failed => {
                    let [signal, what, at] = [0, 1, 2].map(|word| mailbox.word(word));
                    tcs.cut.signal.store(signal, Ordering::Relaxed);
                    tcs.cut.what.store(what, Ordering::Relaxed);
                    tcs.cut.at.store(at, Ordering::Relaxed);
                    return Err(self.tcs.cut(tcs, self.region.stack(tcs.number)));
                }
                State::Idle | State::Call | State::Ocall | State::Resume => {
                    let words = [1, 2, 3, 4, 5].map(|word| mailbox.word(word));
                    tcs.ocalls.fetch_add(1, Ordering::Relaxed);
                    let result = ocalls::answer_for(tcs, mailbox.word(0), words);
                    mailbox.put([result, 0, 0, 0, 0, 0]);
                    mailbox.pass_to_enclave(State::Resume);
                }
            }
        }
    }
}

impl Enclave for Process {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        let tcs = self.tcs.bind(&Thread::current(false)?.last)?;
        if self.gone.load(Ordering::Relaxed) {
            return Err(EcallError::Gone);
        }
        let mailbox = &self.mailboxes.all()[tcs.number];
        let [w0, w1, w2, w3, w4] = words;
        mailbox.put([call as u64, w0, w1, w2, w3, w4]);
        mailbox.pass_to_enclave(State::Call);
        self.attend(&tcs)
    }

    fn counts(&self) -> CallCounts {
        self.tcs.counts()
    }

    fn heap(&self) -> Range<usize> {
        self.region.heap()
    }

    fn own_cpu_ns(&self) -> f64 {
        self.child.cpu_ns()
    }
}

impl Child {
    /// Returns the CPU time of all its threads, in ns.
    fn cpu_ns(&self) -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both calls write their arguments. A process has a CPU clock until it is reaped.
        unsafe {
            let mut clock = 0;
            if libc::clock_getcpuclockid(self.id, &raw mut clock) == 0 {
                libc::clock_gettime(clock, &raw mut time);
            }
        }
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }

    fn lives(&self) -> bool {
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: all zero is a valid siginfo; the call writes it and does not change the child's state.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::waitid(libc::P_PID, self.id.unsigned_abs(), &raw mut info, flags);
            result == 0 && info.si_pid() == 0
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is a child of this one and not yet reaped, so its ID is still valid.
        unsafe {
            libc::kill(self.id, libc::SIGKILL);
            libc::waitpid(self.id, std::ptr::null_mut(), 0);
        }
    }
}
