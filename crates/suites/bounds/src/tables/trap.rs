//! A store that faults if its table is missing, and the handler that makes the table, as #BR does for MPX.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use machine::signal::{Registers, ScopedHandler};

use super::memory::reserve;
use crate::software::{TABLE_BYTES, object_bounds};

/// Number of tables that the handler made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Handler that makes a table when a store of this type faults. Dropping it restores the previous handler.
pub(super) struct TableFaultHandler {
    made_before: u64,
    _handler: ScopedHandler,
}

impl TableFaultHandler {
    /// Installs the handler.
    pub(super) fn install() -> io::Result<Self> {
        // SAFETY: the handler is async-signal-safe, and `store` expects its changes.
        let handler = unsafe { ScopedHandler::install(libc::SIGSEGV, handle, 0) }?;
        Ok(Self { made_before: MADE.load(Ordering::Relaxed), _handler: handler })
    }

    /// Returns the number of tables made since the installation.
    pub(super) fn made(&self) -> u64 {
        MADE.load(Ordering::Relaxed) - self.made_before
    }

    /// Stores bounds at an offset of the table in the directory's entry. If the entry is 0, the store accesses the
    /// first 4 MiB of the address space, which are never mapped, and faults.
    #[inline]
    pub(super) fn store(&self, entry: &AtomicUsize, offset: usize, pointer: u64) -> io::Result<()> {
        let [lower, upper] = object_bounds(pointer);
        let left: usize;
        // SAFETY: the entry is 0 or the address of a table that contains the offset. If the store faults, the
        // handler preserves all registers except r13, which it clears if there is no memory.
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

/// Makes a table if the fault is of [`TableFaultHandler::store`], which passes its own address in r14, that of the
/// directory's entry in r13 and the address to retry at in r15. Any other fault ends the process.
extern "C" fn handle(number: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the argument is that of this running handler.
    let registers = unsafe { Registers::of(context) };
    if registers[libc::REG_RIP] != registers[libc::REG_R14] {
        // Not `end_process`, because another call would change the code of this measured handler.
        // SAFETY: both calls are async-signal-safe. The signal is blocked until this handler returns.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
        return;
    }
    match reserve(TABLE_BYTES) {
        Ok(table) => {
            // SAFETY: the store borrows the entry while it runs, and only this thread uses it.
            unsafe { &*(registers[libc::REG_R13] as *const AtomicUsize) }
                .store(table, Ordering::Relaxed);
            MADE.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => registers[libc::REG_R13] = 0,
    }
    registers[libc::REG_RIP] = registers[libc::REG_R15];
}
