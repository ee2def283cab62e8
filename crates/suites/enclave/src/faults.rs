//! A fault inside an enclave is a failed ECALL, not a dead host.
//!
//! Whether a thread is inside is told by its FS base ([`Inside`]). The handler notes the cause in the TCS, makes
//! the registers of the frame those that the host's code expects, gives the thread back its FS, and lets it go
//! on at the trampoline's end. Any other fault goes to whoever handled it before: real crashes still crash.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use lab::sample::Failure;

use crate::regions;
use crate::signals::{self, FAULTS, Inside};
use crate::trampoline;

/// Who handled the signals before.
static BEFORE: OnceLock<[libc::sigaction; FAULTS.len()]> = OnceLock::new();

/// A region that is watched, until this is dropped. The region must be mapped that long, and no thread inside
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct Watched(usize);

/// Watches a region: faults of threads whose FS lies in it end their ECALLs.
///
/// # Errors
/// Too many enclaves at once, or signals that cannot be handled.
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
        let mut before = [const { MaybeUninit::<libc::sigaction>::zeroed() }; FAULTS.len()];
        for (signal, before) in FAULTS.into_iter().zip(&mut before) {
            // SAFETY: reads who handles the signal now.
            if unsafe { libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) } != 0 {
                return Err(refused());
            }
        }
        // SAFETY: all were written by the kernel.
        let before = before.map(|one| unsafe { one.assume_init() });
        let _ = BEFORE.set(before);
        for signal in FAULTS {
            // SAFETY: all zero is a valid sigaction; `handle` keeps to what a handler may do.
            let set = unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(signal, &raw const action, ptr::null_mut())
            };
            if set != 0 {
                return Err(refused());
            }
        }
        signals::find_return(FAULTS[0])?;
        signals::adopt();
        Ok(())
    });
    installed.clone().map_err(|why| Failure::failed(format!("faults cannot be handled: {why}")))
}

fn refused() -> String {
    format!("sigaction(2): {}", std::io::Error::last_os_error())
}

/// The handler. Until the thread has its own FS again it must touch no thread-local variable.
unsafe extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: enclaves are only loaded where FSGSBASE is enabled; the kernel gives both pointers.
    unsafe {
        match Inside::here() {
            // What a process sent is no fault, although the thread is inside.
            Some(inside) if (*info).si_code > 0 => {
                abort_call(signal, &inside, &*info, &mut *context.cast());
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

/// Lets the thread go on at the trampoline's end, with the host's stack and FS.
unsafe fn abort_call(
    signal: c_int,
    inside: &Inside,
    info: &libc::siginfo_t,
    context: &mut libc::ucontext_t,
) {
    use std::sync::atomic::Ordering::Relaxed;
    // Bits of RFLAGS that the host's code expects clear: trap, direction, nested task, alignment check.
    const FLAGS: i64 = 1 << 8 | 1 << 10 | 1 << 14 | 1 << 18;
    // SAFETY: the frame's vectors are where the kernel says; the block is filled in, as the thread is inside.
    unsafe {
        // The thread does not enter again: system calls stay allowed, and FS and GS the host's.
        let _ = inside.leave();
        reset_vectors(context);
        let registers = &mut context.uc_mcontext.gregs;
        let cut = &inside.tcs().cut;
        let what = if signal == libc::SIGSYS { number(info) } else { info.si_addr() as u64 };
        cut.signal.store(signal as u64, Relaxed);
        cut.what.store(what, Relaxed);
        cut.at.store(registers[libc::REG_RIP as usize] as u64, Relaxed);
        registers[libc::REG_RSP as usize] = inside.host_stack() as i64;
        registers[libc::REG_RIP as usize] =
            trampoline::tollgate_enclave_aborted as *const () as i64;
        registers[libc::REG_EFL as usize] &= !FLAGS;
    }
}

/// Makes x87, SSE and wider registers of a frame what they are in a new process. The trampoline then restores the
/// host's control words; the registers themselves belong to nobody after a call.
unsafe fn reset_vectors(context: &mut libc::ucontext_t) {
    // Source: Linux, arch/x86/include/uapi/asm/sigcontext.h: FXSAVE's 512 bytes, of which `sw_reserved` at 464
    // begins with a magic number if XSAVE's header follows.
    const MAGIC: u32 = 0x4650_5853;
    const SOFTWARE: usize = 464;
    const HEADER: usize = 512;
    /// The state component of protection keys, which is the process's and no vector register.
    const PKRU: u64 = 1 << 9;
    let state = context.uc_mcontext.fpregs;
    if state.is_null() {
        return;
    }
    // SAFETY: the kernel made the frame, whose form its magic number tells; the fields are aligned.
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

/// The system call's number, which `libc` does not give.
fn number(info: &libc::siginfo_t) -> u64 {
    // Source: Linux, include/uapi/asm-generic/siginfo.h: _sigsys {void *_call_addr; int _syscall; ...} at 16.
    // SAFETY: the structure is 128 bytes, and this is SIGSYS, whose number lies there.
    unsafe { u64::from(ptr::from_ref(info).cast::<u32>().add(6).read()) }
}

/// Hands a fault of the host's own to whoever handled it before.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = FAULTS.iter().position(|one| *one == signal);
    let Some(before) = BEFORE.get().zip(place).map(|(before, place)| &before[place]) else {
        return;
    };
    // SAFETY: the earlier handler is called as the kernel would; by default the fault is left to happen again.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                // A signal that somebody sent does not happen again by itself, nor does what is told after the
                // instruction: a system call or a breakpoint.
                if (*info).si_code <= 0 || [libc::SIGSYS, libc::SIGTRAP].contains(&signal) {
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
