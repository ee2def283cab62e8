//! Signals that arrive while a thread is inside an enclave.
//!
//! A handler of the host expects the host's FS and GS and makes system calls, but a thread inside has neither. So
//! [`adopt`] puts a function of this module before every handler: it leaves the enclave, calls the handler and enters
//! again. Signals without a handler are unchanged. [`crate::faults`] handles faults.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use machine::signal::Handler;

use crate::region::Top;
use crate::regions;
use crate::system_calls::{raw, selector_here};
use crate::tcs::Tcs;

/// The signals by which code inside an enclave can fault; [`crate::faults`] handles them.
pub(crate) const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// One more than the largest signal number.
const COUNT: usize = 65;
/// How many times the handler of a signal can be replaced and adopted again.
const GENERATIONS: usize = 8;

/// The adopted handlers, by generation and signal. A handler that is adopted later may call the previous one, which
/// is also a function of this module, so each generation has its own function.
static ADOPTED: [[AtomicUsize; COUNT]; GENERATIONS] =
    [const { [const { AtomicUsize::new(0) }; COUNT] }; GENERATIONS];

/// The address to which handlers return, in the C library; 0 if unknown. The code there makes one system call.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// The address after that system call, as the kernel sees it; 0 if unknown.
static RETURN: AtomicUsize = AtomicUsize::new(0);

/// The functions that run before the adopted handlers.
const FORWARD: [Handler; GENERATIONS] = [
    forward::<0>,
    forward::<1>,
    forward::<2>,
    forward::<3>,
    forward::<4>,
    forward::<5>,
    forward::<6>,
    forward::<7>,
];

/// The kernel's `sigaction` structure, with the address to which a handler returns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// `SA_RESTORER`, which `libc` does not declare.
const HAS_RESTORER: u64 = 0x0400_0000;

impl Action {
    fn of(signal: c_int) -> Option<Self> {
        let mut action = Self::default();
        let words = [signal as u64, 0, &raw mut action as u64, 8, 0, 0];
        // SAFETY: the kernel writes the structure; a signal set has 8 bytes.
        (unsafe { raw(libc::SYS_rt_sigaction, words) } == 0).then_some(action)
    }

    fn set(&self, signal: c_int) -> bool {
        let words = [signal as u64, ptr::from_ref(self) as u64, 0, 8, 0, 0];
        // SAFETY: the kernel reads the structure, whose handler forwards to the previous one.
        unsafe { raw(libc::SYS_rt_sigaction, words) == 0 }
    }
}

/// Adopts all handlers of signals that a process or a timer sends, so that they may run while a thread is inside an
/// enclave. This happens when the first enclave is loaded and at each thread's first ECALL; call it after you install
/// a handler later than that. A handler that is not adopted runs with the enclave's FS: it must not use thread-local
/// variables or make system calls.
pub fn adopt() {
    static ONE: Mutex<()> = Mutex::new(());
    // Without a watched region no thread is inside, and FSGSBASE may not be available.
    if allowed_return() == 0 {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in 1..COUNT as c_int {
        if !FAULTS.contains(&signal) {
            adopt_one(signal);
        }
    }
}

fn adopt_one(signal: c_int) {
    let Some(action) = Action::of(signal) else { return };
    let ours = |one: &Handler| *one as usize == action.handler;
    if action.handler == libc::SIG_DFL
        || action.handler == libc::SIG_IGN
        || FORWARD.iter().any(ours)
    {
        return;
    }
    let of_signal = ADOPTED.iter().map(|adopted| &adopted[signal as usize]);
    for (adopted, forward) in of_signal.zip(FORWARD) {
        let known = adopted.load(Ordering::Relaxed);
        if known == 0 || known == action.handler {
            // Stored before the kernel calls the function that reads it.
            adopted.store(action.handler, Ordering::Release);
            let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let flags = action.flags | flags as u64 | HAS_RESTORER;
            let (handler, restorer) = (forward as usize, RESTORER.load(Ordering::Relaxed));
            // The kernel accepts every signal that already has a handler.
            let _ = Action { handler, flags, restorer, ..action }.set(signal);
            return;
        }
    }
}

/// Runs an adopted handler outside the enclave.
unsafe extern "C" fn forward<const GENERATION: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let handler = ADOPTED[GENERATION][signal as usize].load(Ordering::Acquire);
    // SAFETY: a handler is adopted before this function is installed. A handler with fewer parameters ignores the
    // others, by the System V calling convention. FSGSBASE is enabled if regions are watched.
    unsafe {
        let handler: Handler = std::mem::transmute(handler);
        let visit = step_out();
        handler(signal, info, context);
        if let Some(visit) = visit {
            visit.end();
        }
    }
}

/// Finds the address to which handlers return, from a signal whose handler was installed by the C library.
///
/// # Errors
/// Returns an error if the code there is unknown to this program.
pub(crate) fn find_return(signal: c_int) -> Result<(), String> {
    const CALL: [u8; 2] = [0x0f, 0x05];
    let unknown = || "the C library returns from handlers in an unknown way".to_owned();
    let action = Action::of(signal).filter(|action| action.flags & HAS_RESTORER != 0);
    let restorer = action.ok_or_else(unknown)?.restorer;
    // `mov $15, %eax` or `%rax`; `syscall`.
    let begins: [&[u8]; 2] = [&[0xb8, 15, 0, 0, 0], &[0x48, 0xc7, 0xc0, 15, 0, 0, 0]];
    for begin in begins {
        // SAFETY: it reads the C library's code, up to the first byte that differs.
        let matches =
            |(at, byte): (usize, &u8)| unsafe { *byte == ((restorer + at) as *const u8).read() };
        if begin.iter().chain(&CALL).enumerate().all(matches) {
            RESTORER.store(restorer, Ordering::Relaxed);
            RETURN.store(restorer + begin.len() + CALL.len(), Ordering::Release);
            return Ok(());
        }
    }
    Err(unknown())
}

/// Returns the address after the one system call that is allowed inside: the return from a handler. 0 if it is
/// unknown.
pub(crate) fn allowed_return() -> usize {
    RETURN.load(Ordering::Acquire)
}

/// A thread inside an enclave, as seen by a signal handler.
#[derive(Debug)]
pub(crate) struct Inside {
    top: *mut Top,
}

/// The state of a thread inside, while a handler of the host runs.
#[derive(Debug)]
pub(crate) struct Visit {
    /// FS and GS; `None` if they were the host's.
    bases: Option<[u64; 2]>,
    selector: *mut u8,
    blocked: u8,
}

/// Lets the calling thread run a handler of the host, regardless of where it was interrupted. Returns `None` if it
/// was outside.
///
/// # Safety
/// FSGSBASE must be enabled, and the caller must be a signal handler.
pub(crate) unsafe fn step_out() -> Option<Visit> {
    // SAFETY: the caller guarantees it. If FS is not an enclave's, it is that of a thread of this process.
    unsafe {
        if let Some(inside) = Inside::here() {
            return Some(inside.leave());
        }
        // At the end of an ECALL, a thread has the host's FS before its system calls are allowed.
        let selector = selector_here()?;
        let blocked = selector.read_volatile();
        selector.write_volatile(0);
        (blocked != 0).then_some(Visit { bases: None, selector, blocked })
    }
}

impl Inside {
    /// Returns the calling thread if it is inside. Uses no thread-local variables.
    ///
    /// # Safety
    /// FSGSBASE must be enabled, and the caller must be a signal handler.
    #[inline]
    pub(crate) unsafe fn here() -> Option<Self> {
        let top: *mut Top;
        // SAFETY: the caller guarantees that FSGSBASE is enabled.
        unsafe { asm!("rdfsbase {}", out(reg) top, options(nomem, nostack, preserves_flags)) };
        regions::is_inside(top as usize).then_some(Self { top })
    }

    /// Returns the TCS by which the thread is inside.
    ///
    /// # Safety
    /// The thread must stay inside as long as the TCS is used.
    pub(crate) unsafe fn tcs(&self) -> &Tcs {
        // SAFETY: a trampoline set FS to a block that points to its TCS; both live while a thread is inside.
        unsafe { &*((*self.top).tcs as *const Tcs) }
    }

    /// Returns the host's stack pointer.
    ///
    /// # Safety
    /// As [`Self::tcs`].
    pub(crate) unsafe fn host_stack(&self) -> u64 {
        // SAFETY: a trampoline set FS to the block, which lives while a thread is inside.
        unsafe { (*self.top).block.host_stack }
    }

    /// Restores the host's FS and GS, allows system calls, and clears the alignment check flag, which the kernel does
    /// not change when a signal arrives inside.
    ///
    /// # Safety
    /// As [`Self::tcs`]; the caller must be a signal handler.
    #[inline]
    pub(crate) unsafe fn leave(&self) -> Visit {
        // SAFETY: the trampolines fill in the block before they change FS. The stack is balanced.
        unsafe {
            asm!("pushfq", "and dword ptr [rsp], {flags}", "popfq", flags = const !(1 << 18));
            let selector = self.tcs().selector.load(Ordering::Relaxed);
            let blocked = selector.read_volatile();
            selector.write_volatile(0);
            let (block, fs) = (&(*self.top).block, self.top as u64);
            let gs: u64;
            asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags));
            // Only one kind of trampoline changes GS.
            if gs == fs {
                asm!("wrgsbase {}", in(reg) block.host_gs, options(nostack, preserves_flags));
            }
            asm!("wrfsbase {}", in(reg) block.host_fs, options(nostack, preserves_flags));
            Visit { bases: Some([fs, gs]), selector, blocked }
        }
    }
}

impl Visit {
    /// Restores the thread's state inside.
    ///
    /// # Safety
    /// The caller must be the same handler on the same thread.
    #[inline]
    pub(crate) unsafe fn end(self) {
        // SAFETY: the bases are those that the thread had; the caller guarantees the remaining conditions.
        unsafe {
            if let Some([fs, gs]) = self.bases {
                asm!("wrgsbase {}", in(reg) gs, options(nostack, preserves_flags));
                asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags));
            }
            self.selector.write_volatile(self.blocked);
        }
    }
}
