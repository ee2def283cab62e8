//! Signals that an instruction of our own raises, from user to kernel to handler and back.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::sample::Failure;

use super::batch::Operation;
use super::pages::Pages;

/// Signals that the handler took for its own.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// The address whose touch is our own.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);
/// A process has one handler a signal, and these counts once.
static ALONE: Mutex<()> = Mutex::new(());

/// Which signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// A write to a page that may not be touched; the handler skips it.
    Fault,
    /// A breakpoint instruction, after which the program goes on by itself.
    Breakpoint,
}

impl Signal {
    fn number(self) -> c_int {
        match self {
            Self::Fault => libc::SIGSEGV,
            Self::Breakpoint => libc::SIGTRAP,
        }
    }
}

/// Raises a signal again and again; what stood before is restored when dropped.
pub(super) struct Raising {
    signal: Signal,
    forbidden: Pages,
    former: libc::sigaction,
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Raising {
    /// Installs the handler.
    pub(super) fn new(signal: Signal) -> Result<Self, Failure> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let forbidden = Pages::forbidden(1)?;
        FORBIDDEN.store(forbidden.start() as usize, Ordering::SeqCst);
        let former = install(signal)?;
        Ok(Self { signal, forbidden, former, before: 0, _alone: alone })
    }
}

/// Has the signal go to [`handle`]; what stood before.
fn install(signal: Signal) -> io::Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid one, with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO;
    let mut former = MaybeUninit::uninit();
    // SAFETY: both are valid sigactions that outlive the call; the handler does only what one may.
    match unsafe { libc::sigaction(signal.number(), &action, former.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so that it filled it.
        0 => Ok(unsafe { former.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Raising {
    fn drop(&mut self) {
        // SAFETY: what stood before is a valid sigaction. It was accepted once, so it cannot fail.
        unsafe { libc::sigaction(self.signal.number(), &self.former, std::ptr::null_mut()) };
        FORBIDDEN.store(0, Ordering::SeqCst);
    }
}

/// Counts the signals that our own instructions raise, which carry their address in r14 and where to
/// go on in r15. Any other one ends the process, as if there were no handler.
extern "C" fn handle(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext, which are this handler's alone.
    let (address, registers) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        ((*info).si_addr() as usize, &mut context.uc_mcontext.gregs)
    };
    let [rip, r14, r15] = [libc::REG_RIP, libc::REG_R14, libc::REG_R15].map(|name| name as usize);
    let own = registers[rip] == registers[r14];
    let touched = address == FORBIDDEN.load(Ordering::Relaxed);
    if own && (number == libc::SIGTRAP || touched) {
        registers[rip] = registers[r15];
        HANDLED.fetch_add(1, Ordering::Relaxed);
    } else {
        // SAFETY: both calls are async-signal-safe. The signal waits until this handler has returned.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
    }
}

impl Operation for Raising {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.before = HANDLED.load(Ordering::Relaxed);
        Ok(())
    }

    fn make(&mut self, numbers: Range<usize>) {
        match self.signal {
            Signal::Fault => faults(self.forbidden.start(), numbers.len()),
            Signal::Breakpoint => breakpoints(numbers.len()),
        }
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let handled = HANDLED.load(Ordering::Relaxed) - self.before;
        if handled == made as u64 {
            return Ok(handled);
        }
        Err(Failure::check(format!("{handled} signals were handled of {made} raised")))
    }
}

#[inline(never)]
fn faults(forbidden: *mut u8, count: usize) {
    for _ in 0..count {
        // SAFETY: the write does not happen: the handler goes on at r15, with all registers as they were.
        unsafe {
            asm!(
                "lea r14, [rip + 2f]",
                "lea r15, [rip + 3f]",
                "2: mov byte ptr [{address}], 0",
                "3:",
                address = in(reg) forbidden, out("r14") _, out("r15") _
            );
        }
    }
}

#[inline(never)]
fn breakpoints(count: usize) {
    for _ in 0..count {
        // SAFETY: the instruction after int3 is where it goes on anyway, with all registers as they were.
        unsafe {
            asm!(
                "lea r14, [rip + 2f]",
                "mov r15, r14",
                "int3",
                "2:",
                out("r14") _, out("r15") _
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn every_signal_that_is_raised_is_handled_and_counted() {
        for signal in [Signal::Fault, Signal::Breakpoint] {
            let mut raising = Raising::new(signal).unwrap();
            raising.prepare(10).unwrap();
            raising.make(0..10);
            assert_eq!(raising.check(10), Ok(10));
            assert!(raising.check(11).unwrap_err().why.contains("10 signals"));
        }
    }

    #[test]
    fn what_handled_the_signal_before_does_so_again() {
        let current = || {
            let mut current = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: asks only; the kernel fills it.
            unsafe {
                libc::sigaction(libc::SIGTRAP, std::ptr::null(), current.as_mut_ptr());
                current.assume_init().sa_sigaction
            }
        };
        let raising = Raising::new(Signal::Breakpoint).unwrap();
        let former = raising.former.sa_sigaction;
        assert_eq!(current(), handle as extern "C" fn(_, _, _) as usize);
        drop(raising);
        let _alone = ALONE.lock();
        assert_eq!(current(), former);
    }

    /// Set for the process that is to crash, to what it does.
    const CRASH: &str = "TOLLGATE_TEST_CRASH";

    /// The signal that ends this test's own program when it crashes in this way.
    fn ended_by(way: &str) -> Option<i32> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "trips::signals::tests::a_crash_of_another_kind_stays_one"]);
        command.env(CRASH, way).output().unwrap().status.signal()
    }

    #[test]
    fn a_crash_of_another_kind_stays_one() {
        match std::env::var(CRASH).as_deref() {
            Ok("touch") => {
                let _raising = Raising::new(Signal::Fault).unwrap();
                let elsewhere = Pages::forbidden(1).unwrap();
                // SAFETY: it faults, which is the test.
                unsafe { elsewhere.start().write_volatile(1) };
            }
            Ok("int3") => {
                let _raising = Raising::new(Signal::Breakpoint).unwrap();
                // SAFETY: it traps, which is the test; r14 is not where it is.
                unsafe { asm!("xor r14d, r14d", "int3", out("r14") _) };
            }
            Ok("kill") => {
                let _raising = Raising::new(Signal::Fault).unwrap();
                // SAFETY: it ends the process, which is the test.
                unsafe { libc::raise(libc::SIGSEGV) };
            }
            _ => {
                assert_eq!(ended_by("touch"), Some(libc::SIGSEGV));
                assert_eq!(ended_by("int3"), Some(libc::SIGTRAP));
                assert_eq!(ended_by("kill"), Some(libc::SIGSEGV));
            }
        }
    }
}
