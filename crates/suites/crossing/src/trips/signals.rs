//! Signal trips: an instruction raises a signal, the handler runs and returns.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lab::sample::Failure;
use machine::signal::{Registers, ScopedHandler};

use super::batch::Operation;
use super::pages::Pages;

/// Number of expected signals handled.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Address of the inaccessible page.
static INACCESSIBLE: AtomicUsize = AtomicUsize::new(0);

/// The raised signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGSEGV by a write to an inaccessible page; the handler skips the instruction.
    Fault,
    /// SIGTRAP by a breakpoint instruction, after which execution continues.
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

/// Loop that raises a signal. Dropping it restores the previous action.
pub(super) struct SignalLoop {
    signal: Signal,
    inaccessible: Pages,
    before: u64,
    _handler: ScopedHandler,
}

impl SignalLoop {
    /// Installs the handler.
    pub(super) fn new(signal: Signal) -> Result<Self, Failure> {
        // SAFETY: the handler is async-signal-safe, and the loops expect it to continue at r15.
        let handler = unsafe { ScopedHandler::install(signal.number(), handle, 0) }?;
        let inaccessible = Pages::inaccessible(1)?;
        INACCESSIBLE.store(inaccessible.start() as usize, Ordering::SeqCst);
        Ok(Self { signal, inaccessible, before: 0, _handler: handler })
    }
}

impl Drop for SignalLoop {
    fn drop(&mut self) {
        INACCESSIBLE.store(0, Ordering::SeqCst);
    }
}

/// Counts the signals of this module's instructions, which have their address in r14 and the address to continue at
/// in r15. Any other signal ends the process, as without a handler.
extern "C" fn handle(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext, to which the handler has exclusive access.
    let (address, registers) = unsafe { ((*info).si_addr() as usize, Registers::of(context)) };
    let is_expected = registers[libc::REG_RIP] == registers[libc::REG_R14];
    let is_touch = address == INACCESSIBLE.load(Ordering::Relaxed);
    if is_expected && (number == libc::SIGTRAP || is_touch) {
        registers[libc::REG_RIP] = registers[libc::REG_R15];
        HANDLED.fetch_add(1, Ordering::Relaxed);
    } else {
        // Not `end_process`, because another call would change the code of this measured handler.
        // SAFETY: both calls are async-signal-safe. The signal is pending until this handler returns.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
    }
}

impl Operation for SignalLoop {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        self.before = HANDLED.load(Ordering::Relaxed);
        Ok(())
    }

    fn make(&mut self, numbers: Range<usize>) {
        match self.signal {
            Signal::Fault => faults(self.inaccessible.start(), numbers.len()),
            Signal::Breakpoint => breakpoints(numbers.len()),
        }
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let handled = HANDLED.load(Ordering::Relaxed) - self.before;
        if handled == made as u64 {
            return Ok(handled);
        }
        Err(Failure::check(format!("{handled} of {made} signals handled")))
    }
}

#[inline(never)]
fn faults(inaccessible: *mut u8, count: usize) {
    for _ in 0..count {
        // SAFETY: the write has no effect: the handler continues at r15 with unchanged registers.
        unsafe {
            asm!(
                "lea r14, [rip + 2f]",
                "lea r15, [rip + 3f]",
                "2: mov byte ptr [{address}], 0",
                "3:",
                address = in(reg) inaccessible, out("r14") _, out("r15") _
            );
        }
    }
}

#[inline(never)]
fn breakpoints(count: usize) {
    for _ in 0..count {
        // SAFETY: execution continues after int3 with unchanged registers.
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
    fn every_raised_signal_is_handled_and_counted() {
        for signal in [Signal::Fault, Signal::Breakpoint] {
            let mut trips = SignalLoop::new(signal).unwrap();
            trips.prepare(10).unwrap();
            trips.make(0..10);
            assert_eq!(trips.check(10), Ok(10));
            assert!(trips.check(11).unwrap_err().why.contains("10 of 11 signals"));
        }
    }

    /// Variable that selects how a child process crashes.
    const CRASH: &str = "TOLLGATE_TEST_CRASH";

    /// Runs this test in a child process that crashes; returns the signal that killed it.
    fn crash_signal(crash: &str) -> Option<i32> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "trips::signals::tests::an_unrelated_crash_still_ends_the_process"]);
        command.env(CRASH, crash).output().unwrap().status.signal()
    }

    #[test]
    fn an_unrelated_crash_still_ends_the_process() {
        match std::env::var(CRASH).as_deref() {
            Ok("touch") => {
                let _trips = SignalLoop::new(Signal::Fault).unwrap();
                let other = Pages::inaccessible(1).unwrap();
                // SAFETY: the write faults, as intended.
                unsafe { other.start().write_volatile(1) };
            }
            Ok("int3") => {
                let _trips = SignalLoop::new(Signal::Breakpoint).unwrap();
                // SAFETY: int3 traps, as intended; r14 is not its address.
                unsafe { asm!("xor r14d, r14d", "int3", out("r14") _) };
            }
            Ok("kill") => {
                let _trips = SignalLoop::new(Signal::Fault).unwrap();
                // SAFETY: raise has no memory arguments; it ends the process, as intended.
                unsafe { libc::raise(libc::SIGSEGV) };
            }
            _ => {
                assert_eq!(crash_signal("touch"), Some(libc::SIGSEGV));
                assert_eq!(crash_signal("int3"), Some(libc::SIGTRAP));
                assert_eq!(crash_signal("kill"), Some(libc::SIGSEGV));
            }
        }
    }
}
