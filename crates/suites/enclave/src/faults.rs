//! Faults inside an enclave, which end the ECALL and not the host process.
//!
//! FS shows whether a thread is inside ([`Inside`]). The handler records the cause in the TCS, sets the registers of
//! the signal frame to what the host's code expects, restores the host's FS, and continues at the end of the
//! trampoline. Any other fault goes to the previous handler, so that a crash of the host is still a crash.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use lab::sample::Failure;
use machine::signal::{self, Registers};

use crate::regions;
use crate::signals::{self, FAULTS, Inside};
use crate::trampoline;

/// The previous handlers of the signals.
static BEFORE: OnceLock<Vec<libc::sigaction>> = OnceLock::new();

/// A watched region, until this is dropped. The region must stay mapped that long, and no thread may be inside when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Watched(usize);

/// Watches a region: faults of threads whose FS is in the region end their ECALLs.
///
/// # Errors
/// Returns an error if too many enclaves are loaded, or if the signals cannot be handled.
pub(crate) fn watch(region: Range<usize>) -> Result<Watched, Failure> {
    install()?;
    regions::add(region).map(Watched).ok_or_else(|| {
        Failure::failed(format!(
            "{} enclaves are loaded: drop one before another is loaded",
            regions::MAX_REGIONS
        ))
    })
}

impl Drop for Watched {
    fn drop(&mut self) {
        regions::remove(self.0);
    }
}

fn install() -> Result<(), Failure> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        #[cfg(feature = "wasm")]
        crate::wasm_engine::handle_signals();
        let before: Result<_, _> = FAULTS.into_iter().map(signal::action).collect();
        let _ = BEFORE.set(before.map_err(refused)?);
        for signal in FAULTS {
            // SAFETY: `handle` is async-signal-safe, and the end of the trampoline expects its changes.
            unsafe { signal::install(signal, handle, libc::SA_ONSTACK) }.map_err(refused)?;
        }
        signals::find_return(FAULTS[0])?;
        signals::adopt();
        Ok(())
    });
    installed.clone().map_err(|why| Failure::failed(format!("faults cannot be handled: {why}")))
}

fn refused(why: std::io::Error) -> String {
    format!("sigaction(2): {why}")
}

/// The signal handler. Until the thread has the host's FS again, it must not touch thread-local variables.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: enclaves are only loaded if FSGSBASE is enabled; the kernel passes valid pointers.
    unsafe {
        match Inside::here() {
            // A signal that a process sent is not a fault, even if the thread is inside.
            Some(inside) if (*info).si_code > 0 => {
                abort_call(signal, &inside, &*info, context);
            }
            _ => {
                let visit = signals::step_out();
                pass_on(signal, info, context);
                if let Some(visit) = visit {
                    visit.end();
                }
            }
        }
    }
}

/// Continues the thread at the end of the trampoline, with the host's stack and FS.
unsafe fn abort_call(signal: c_int, inside: &Inside, info: &libc::siginfo_t, context: *mut c_void) {
    use std::sync::atomic::Ordering::Relaxed;
    // RFLAGS bits that the host's code expects to be clear: trap, direction, nested task, alignment check.
    const FLAGS: i64 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18;
    // SAFETY: the frame's vector registers are where the kernel states; the block is filled in because the thread is
    // inside.
    unsafe {
        // The thread does not enter again, so system calls stay allowed, and FS and GS stay the host's.
        let _ = inside.leave();
        reset_vectors((*context.cast::<libc::ucontext_t>()).uc_mcontext.fpregs);
        let registers = Registers::of(context);
        let cut = &inside.tcs().cut;
        let what = if signal == libc::SIGSYS { number(info) } else { info.si_addr() as u64 };
        cut.signal.store(signal as u64, Relaxed);
        cut.what.store(what, Relaxed);
        cut.at.store(registers[libc::REG_RIP] as u64, Relaxed);
        registers[libc::REG_RSP] = inside.host_stack() as i64;
        registers[libc::REG_RIP] = trampoline::tollgate_enclave_aborted as *const () as i64;
        registers[libc::REG_EFL] &= !FLAGS;
    }
}

/// Sets the x87, SSE and wider registers of a frame to their state in a new process. The trampoline then restores the
/// host's control words; the registers themselves are caller-saved.
unsafe fn reset_vectors(state: *mut libc::_libc_fpstate) {
    // Source: Linux, arch/x86/include/uapi/asm/sigcontext.h. FXSAVE has 512 bytes; `sw_reserved` at 464 begins with a
    // magic number if the XSAVE header follows.
    const MAGIC: u32 = 0x4650_5853;
    const SOFTWARE: usize = 464;
    const HEADER: usize = 512;
    /// The state component of protection keys, which belongs to the process and is not a vector register.
    const PKRU: u64 = 1 << 9;
    if state.is_null() {
        return;
    }
    // SAFETY: the kernel created the frame, and the magic number states its format; the fields are aligned.
    unsafe {
        ((*state).cwd, (*state).swd, (*state).ftw) = (0x37f, 0, 0);
        (*state).mxcsr = 0x1f80;
        let bytes = state.cast::<u8>();
        if bytes.add(SOFTWARE).cast::<u32>().read() == MAGIC {
            let components = bytes.add(HEADER).cast::<u64>();
            components.write(components.read() & PKRU);
        }
    }
}

/// Returns the number of the system call, which `libc` does not expose.
fn number(info: &libc::siginfo_t) -> u64 {
    // Source: Linux, include/uapi/asm-generic/siginfo.h: _sigsys {void *_call_addr; int _syscall; ...} at 16.
    // SAFETY: the structure has 128 bytes, and for SIGSYS the number is at this offset.
    unsafe { u64::from(ptr::from_ref(info).cast::<u32>().add(6).read()) }
}

/// Passes a fault of the host to the previous handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = FAULTS.iter().position(|one| *one == signal);
    let Some(before) = BEFORE.get().zip(index).map(|(before, index)| &before[index]) else {
        return;
    };
    // SAFETY: the previous handler is called as the kernel would.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => signal::end_process(signal),
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: signal::Handler = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: unsafe extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
