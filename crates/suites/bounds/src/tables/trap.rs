//! A store that faults where there is no table, and the handler that makes one: what #BR is to MPX.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::reserve;
use super::ways::bounds;
use crate::software::TABLE_BYTES;

/// Tables that the handler made.
static MADE: AtomicU64 = AtomicU64::new(0);
/// A process has one handler of a signal.
static ALONE: Mutex<()> = Mutex::new(());

/// While it lives, faults of its stores make tables; then what stood before handles faults again.
pub(super) struct Trapping {
    former: libc::sigaction,
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Trapping {
    /// Installs the handler.
    pub(super) fn begin() -> io::Result<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: an all-zero sigaction is a valid one, with an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut former = MaybeUninit::uninit();
        // SAFETY: both are valid sigactions that outlive the call; the handler does only what one may.
        if unsafe { libc::sigaction(libc::SIGSEGV, &action, former.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so that it filled it.
        let former = unsafe { former.assume_init() };
        Ok(Self { former, before: MADE.load(Ordering::Relaxed), _alone: alone })
    }

    /// Tables made since it began.
    pub(super) fn made(&self) -> u64 {
        MADE.load(Ordering::Relaxed) - self.before
    }

    /// Stores bounds at an offset of the table to which the directory's entry leads. The entry may be 0:
    /// the store then goes to the first 4 MiB of addresses, where nothing ever lies, and faults.
    #[inline]
    pub(super) fn store(&self, entry: &AtomicUsize, offset: usize, pointer: u64) -> io::Result<()> {
        let [lower, upper] = bounds(pointer);
        let left: usize;
        // SAFETY: the entry is 0 or leads to a table, which holds the offset. Where the store faults the
        // handler leaves all registers as they were but r13, which it clears where there is no memory.
        unsafe {
            asm!(
                "lea r14, [rip + 3f]",
                "lea r15, [rip + 5f]",
                "jmp 2f",
                "5: test r13, r13",
                "jz 4f",
                "2: mov {table}, [r13]",
                "3: mov [{table} + {offset}], {lower}",
                "mov [{table} + {offset} + 8], {upper}",
                "mov [{table} + {offset} + 16], {pointer}",
                "4:",
                table = out(reg) _,
                offset = in(reg) offset,
                lower = in(reg) lower,
                upper = in(reg) upper,
                pointer = in(reg) pointer,
                inout("r13") entry.as_ptr() => left,
                out("r14") _,
                out("r15") _,
            );
        }
        if left == 0 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }
}

impl Drop for Trapping {
    fn drop(&mut self) {
        // SAFETY: what stood before is a valid sigaction. It was accepted once, so it cannot fail.
        unsafe { libc::sigaction(libc::SIGSEGV, &self.former, std::ptr::null_mut()) };
    }
}

/// Makes a table where a store of ours faulted, which carries its own address in r14, that of the
/// directory's entry in r13, and where to try again in r15. Any other fault ends the process.
extern "C" fn handle(number: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid ucontext, which is this handler's alone.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let [rip, r13, r14, r15] =
        [libc::REG_RIP, libc::REG_R13, libc::REG_R14, libc::REG_R15].map(|name| name as usize);
    if registers[rip] != registers[r14] {
        // SAFETY: both calls are async-signal-safe. The signal waits until this handler has returned.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
        return;
    }
    match reserve(TABLE_BYTES) {
        Ok(table) => {
            // SAFETY: the store holds the entry borrowed while it runs, and only this thread uses it.
            unsafe { &*(registers[r13] as *const AtomicUsize) }.store(table, Ordering::Relaxed);
            MADE.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => registers[r13] = 0,
    }
    registers[rip] = registers[r15];
}
