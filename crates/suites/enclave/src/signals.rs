//! Signals that arrive while a thread is inside an enclave.
//!
//! A handler of the host's expects the host's FS and GS and makes system calls, and inside a thread has neither.
//! So [`adopt`] puts a function of this file before every handler: it leaves the enclave, calls the handler and
//! enters again. It changes no signal that nobody handles. Faults are those of [`crate::faults`].

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::region::Top;
use crate::regions;
use crate::system_calls::{raw, selector_here};
use crate::tcs::Tcs;

/// The signals by which code inside an enclave can fault; [`crate::faults`] handles them.
pub(crate) const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// One more than the largest signal.
const COUNT: usize = 65;
/// How often a signal's handler may be replaced by another and be adopted again.
const GENERATIONS: usize = 8;

/// The handlers that were adopted, by generation and signal. One that was adopted later may call the one before
/// it, which is a function of this file too, so that each generation has a function of its own.
static ADOPTED: [[AtomicUsize; COUNT]; GENERATIONS] =
    [const { [const { AtomicUsize::new(0) }; COUNT] }; GENERATIONS];

/// Where handlers return: the C library's code, which makes one system call; 0 until it is known.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// The address after that system call, as the kernel sees it; 0 until it is known.
static RETURN: AtomicUsize = AtomicUsize::new(0);

/// The signature of a handler.
type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The functions of this file that stand before handlers.
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

/// The kernel's own structure, with the address to which a handler returns.
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
        // SAFETY: the kernel writes the structure; a set of signals is 8 bytes.
        (unsafe { raw(libc::SYS_rt_sigaction, words) } == 0).then_some(action)
    }

    fn set(&self, signal: c_int) -> bool {
        let words = [signal as u64, ptr::from_ref(self) as u64, 0, 8, 0, 0];
        // SAFETY: the kernel reads the structure, whose handler is a function that forwards to the one before.
        unsafe { raw(libc::SYS_rt_sigaction, words) == 0 }
    }
}

/// Adopts all handlers of signals that a process or a timer sends, so that they may run while a thread is inside
/// an enclave. It happens when the first enclave is loaded and at each thread's first ECALL; call it after you
/// install a handler later than that. A handler that was not adopted runs with the enclave's FS: it must use no
/// thread-local variable and make no system call.
pub fn adopt() {
    static ONE: Mutex<()> = Mutex::new(());
    // Without a watched region there is nothing to leave, and perhaps no FSGSBASE.
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
            // Before the kernel knows of the function that reads it.
            adopted.store(action.handler, Ordering::Release);
            let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let flags = action.flags | flags as u64 | HAS_RESTORER;
            let (handler, restorer) = (forward as usize, RESTORER.load(Ordering::Relaxed));
            // The kernel refuses no signal that has a handler.
            let _ = Action { handler, flags, restorer, ..action }.set(signal);
            return;
        }
    }
}

/// Stands before a handler.
unsafe extern "C" fn forward<const GENERATION: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let handler = ADOPTED[GENERATION][signal as usize].load(Ordering::Acquire);
    // SAFETY: a handler was adopted before this became the kernel's; one with fewer parameters ignores the others,
    // as the System V convention has it. FSGSBASE is enabled where regions are watched.
    unsafe {
        let handler: Handler = std::mem::transmute(handler);
        let visit = step_out();
        handler(signal, info, context);
        if let Some(visit) = visit {
            visit.end();
        }
    }
}

/// Finds where handlers return, by a signal whose handler the C library has installed.
///
/// # Errors
/// The C library returns from handlers in a way that this program does not know.
pub(crate) fn find_return(signal: c_int) -> Result<(), String> {
    const CALL: [u8; 2] = [0x0f, 0x05];
    let unknown = || "the C library returns from handlers in an unknown way".to_owned();
    let action = Action::of(signal).filter(|action| action.flags & HAS_RESTORER != 0);
    let restorer = action.ok_or_else(unknown)?.restorer;
    // `mov $15, %eax` or `%rax`; `syscall`.
    let begins: [&[u8]; 2] = [&[0xb8, 15, 0, 0, 0], &[0x48, 0xc7, 0xc0, 15, 0, 0, 0]];
    for begin in begins {
        // SAFETY: the C library's code, of which no more is read than matches.
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

/// The address after the one system call that is allowed inside: the return from a handler. 0 if it is not known.
pub(crate) fn allowed_return() -> usize {
    RETURN.load(Ordering::Acquire)
}

/// A thread inside an enclave, as a handler of a signal finds it.
#[derive(Debug)]
pub(crate) struct Inside {
    top: *mut Top,
}

/// What a thread had inside, while a handler of the host's runs.
#[derive(Debug)]
pub(crate) struct Visit {
    /// FS and GS; `None` if they were the host's.
    bases: Option<[u64; 2]>,
    selector: *mut u8,
    blocked: u8,
}

/// Lets the calling thread run a handler of the host's, wherever it was interrupted. `None` if it was outside.
///
/// # Safety
/// FSGSBASE is enabled, and this is a handler of a signal.
pub(crate) unsafe fn step_out() -> Option<Visit> {
    // SAFETY: the caller's. Without an enclave's FS it is that of a thread of this process.
    unsafe {
        if let Some(inside) = Inside::here() {
            return Some(inside.leave());
        }
        // On the way out of an ECALL a thread has its own FS before its system calls are allowed.
        let selector = selector_here()?;
        let blocked = selector.read_volatile();
        selector.write_volatile(0);
        (blocked != 0).then_some(Visit { bases: None, selector, blocked })
    }
}

impl Inside {
    /// The calling thread, if it is inside. Uses no thread-local variable.
    ///
    /// # Safety
    /// FSGSBASE is enabled, and this is a handler of a signal.
    #[inline]
    pub(crate) unsafe fn here() -> Option<Self> {
        let top: *mut Top;
        // SAFETY: the caller's.
        unsafe { asm!("rdfsbase {}", out(reg) top, options(nomem, nostack, preserves_flags)) };
        regions::is_inside(top as usize).then_some(Self { top })
    }

    /// The TCS by which the thread is inside.
    ///
    /// # Safety
    /// The thread stays inside for as long as the TCS is used.
    pub(crate) unsafe fn tcs(&self) -> &Tcs {
        // SAFETY: FS was set by a trampoline, to a block that names its TCS; both live while a thread is inside.
        unsafe { &*((*self.top).tcs as *const Tcs) }
    }

    /// The host's stack pointer.
    ///
    /// # Safety
    /// As [`Self::tcs`].
    pub(crate) unsafe fn host_stack(&self) -> u64 {
        // SAFETY: as for the TCS.
        unsafe { (*self.top).block.host_stack }
    }

    /// Gives the thread the host's FS and GS, allows its system calls, and clears the flag by which accesses that
    /// are not aligned fault, which the kernel leaves as it is inside.
    ///
    /// # Safety
    /// As [`Self::tcs`]; the thread is in a handler of a signal.
    #[inline]
    pub(crate) unsafe fn leave(&self) -> Visit {
        // SAFETY: the trampolines fill the block in before they change FS. What is pushed is popped.
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
    /// Gives the thread back what it had inside.
    ///
    /// # Safety
    /// The same thread, in the same handler.
    #[inline]
    pub(crate) unsafe fn end(self) {
        // SAFETY: the bases are those that the thread had; the caller's.
        unsafe {
            if let Some([fs, gs]) = self.bases {
                asm!("wrgsbase {}", in(reg) gs, options(nostack, preserves_flags));
                asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags));
            }
            self.selector.write_volatile(self.blocked);
        }
    }
}
