//! A fault inside an enclave is a failed ECALL, not a dead host.
//!
//! Whether a thread is inside is told by its FS base, which lies in a watched region. The handler then
//! notes the cause in the TCS, gives the thread back its FS, and lets it go on at the trampoline's end.
//! Any other fault goes to whoever handled it before: real crashes still crash.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use lab::sample::Failure;

use crate::region::Top;
use crate::trampoline;

/// The signals by which an enclave can fail.
const SIGNALS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// How many enclaves can be loaded at once.
const MOST: usize = 256;

/// The regions whose threads are inside an enclave. Read by the handler, so neither locked nor grown.
static REGIONS: [Slot; MOST] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MOST];

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Who handled the signals before.
static BEFORE: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

/// A region that is watched, until this goes.
#[derive(Debug)]
pub(crate) struct Watched(usize);

/// Watches a region: faults of threads whose FS lies in it end their ECALLs.
///
/// # Errors
/// Too many enclaves at once, or signals that cannot be handled.
pub(crate) fn watch(region: Range<usize>) -> Result<Watched, Failure> {
    install()?;
    // The end is claimed first, so that the handler never sees half of a region.
    let free =
        |slot: &Slot| slot.end.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let slot = REGIONS
        .iter()
        .position(free)
        .ok_or_else(|| Failure::failed(format!("{MOST} enclaves are loaded: drop one first")))?;
    REGIONS[slot].start.store(region.start, Ordering::Release);
    REGIONS[slot].end.store(region.end, Ordering::Release);
    Ok(Watched(slot))
}

impl Drop for Watched {
    fn drop(&mut self) {
        REGIONS[self.0].start.store(0, Ordering::Release);
        REGIONS[self.0].end.store(0, Ordering::Release);
    }
}

fn install() -> Result<(), Failure> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        #[cfg(feature = "wasm")]
        crate::kinds::wasm::handle_signals();
        let mut before = [const { MaybeUninit::<libc::sigaction>::zeroed() }; SIGNALS.len()];
        for (signal, before) in SIGNALS.into_iter().zip(&mut before) {
            // SAFETY: reads who handles the signal now.
            if unsafe { libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) } != 0 {
                return Err(errno());
            }
        }
        // SAFETY: all were written by the kernel.
        let before = before.map(|one| unsafe { one.assume_init() });
        let _ = BEFORE.set(before);
        for signal in SIGNALS {
            // SAFETY: all zero is a valid sigaction; `handle` keeps to what a handler may do.
            let set = unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, ptr::null_mut())
            };
            if set != 0 {
                return Err(errno());
            }
        }
        Ok(())
    });
    installed.map_err(|errno| {
        Failure::failed(format!("faults cannot be handled: sigaction gives error {errno}"))
    })
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The handler. Until the thread has its own FS again it must touch no thread-local variable.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let top: *mut Top;
    // SAFETY: enclaves are only loaded where FSGSBASE is enabled.
    unsafe { asm!("rdfsbase {}", out(reg) top, options(nomem, nostack, preserves_flags)) };
    if inside(top as usize) {
        // SAFETY: the kernel gives both; FS was `top`, since the thread is inside.
        unsafe { abort_call(signal, top, &*info, &mut *context.cast()) };
    } else {
        // SAFETY: as the kernel gave it.
        unsafe { pass_on(signal, info, context) };
    }
}

fn inside(fs: usize) -> bool {
    REGIONS.iter().any(|slot| {
        (slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire)).contains(&fs)
    })
}

/// Lets the thread go on at the trampoline's end, with the host's stack and FS.
unsafe fn abort_call(
    signal: c_int,
    top: *mut Top,
    info: &libc::siginfo_t,
    context: &mut libc::ucontext_t,
) {
    // Bits of RFLAGS that the host's code expects clear: trap, direction, alignment check.
    const FLAGS: i64 = 1 << 8 | 1 << 10 | 1 << 18;
    let registers = &mut context.uc_mcontext.gregs;
    // SAFETY: a thread whose FS is a TCS's block came by the trampoline, which filled it in; the TCS and its
    // selector live while the thread is inside.
    unsafe {
        let tcs = &*((*top).tcs as *const crate::tcs::Tcs);
        let what = if signal == libc::SIGSYS { number(info) } else { info.si_addr() as u64 };
        tcs.cut.signal.store(signal as u64, Ordering::Relaxed);
        tcs.cut.what.store(what, Ordering::Relaxed);
        tcs.cut.at.store(registers[libc::REG_RIP as usize] as u64, Ordering::Relaxed);
        // The handler's own return is a system call.
        tcs.selector.load(Ordering::Relaxed).write_volatile(0);
        let block = &(*top).block;
        registers[libc::REG_RSP as usize] = block.host_stack as i64;
        registers[libc::REG_RIP as usize] =
            trampoline::tollgate_enclave_aborted as *const () as i64;
        registers[libc::REG_EFL as usize] &= !FLAGS;
        let gs: u64;
        asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags));
        if gs == top as u64 {
            asm!("wrgsbase {}", in(reg) block.host_gs, options(nostack, preserves_flags));
        }
        asm!("wrfsbase {}", in(reg) block.host_fs, options(nostack, preserves_flags));
    }
}

/// The system call's number, which `libc` does not give.
fn number(info: &libc::siginfo_t) -> u64 {
    // Source: Linux, include/uapi/asm-generic/siginfo.h: _sigsys {void *_call_addr; int _syscall; ...} at 16.
    // SAFETY: the structure is 128 bytes, and this is SIGSYS, whose number lies there.
    unsafe { u64::from(ptr::from_ref(info).cast::<u32>().add(6).read()) }
}

/// Hands a fault of the host's own to whoever handled it before.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = SIGNALS.iter().position(|one| *one == signal);
    let Some(before) = BEFORE.get().zip(place).map(|(before, place)| &before[place]) else {
        return;
    };
    // SAFETY: the earlier handler is called as the kernel would; by default the fault is left to happen again.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                // A signal that somebody sent does not happen again by itself.
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: unsafe extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
