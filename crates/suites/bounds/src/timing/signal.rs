//! Faults of measured code: the handler records the signal and leaves the code, so that the batch continues.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::Once;

use machine::signal::{self, Registers};

use super::enter;
use super::state::State;

/// Signals that an instruction may raise.
const SIGNALS: [c_int; 5] =
    [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGTRAP];
/// Bytes of the handler's stack: enough for a frame with 512-bit registers.
const STACK: usize = 64 * 1024;

/// The signal that an instruction raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RaisedSignal(c_int);

impl RaisedSignal {
    /// Returns whether the CPU does not support the instruction or may not execute it.
    pub(crate) fn is_illegal(self) -> bool {
        self.0 == libc::SIGILL
    }
}

impl fmt::Display for RaisedSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&signal::name(self.0))
    }
}

thread_local! {
    /// State of the code that this thread is running.
    static RUNNING: Cell<*mut State> = const { Cell::new(ptr::null_mut()) };
    /// Stack of the handler: the code may have changed its stack pointer.
    static HANDLER_STACK: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Runs code until it ends or faults. The handler writes to the state while the code runs, so `run` gets a pointer: no
/// reference to the state may be used until it returns. No test detects a violation, because its effect depends on the
/// optimiser.
///
/// # Errors
/// Returns the signal that the code raised.
pub(super) fn guarded<T>(
    state: &mut State,
    run: impl FnOnce(*mut State) -> T,
) -> Result<T, RaisedSignal> {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(install);
    HANDLER_STACK.with(|stack| {
        if stack.get().is_null() {
            stack.set(install_stack());
        }
    });
    state.signal = 0;
    let shared = ptr::from_mut(state);
    RUNNING.set(shared);
    let result = run(shared);
    RUNNING.set(ptr::null_mut());
    // The handler no longer has a pointer to the state, so the caller's reference is exclusive again.
    match state.signal {
        0 => Ok(result),
        signal => Err(RaisedSignal(signal as c_int)),
    }
}

/// Installs and returns a signal stack for this thread. It is never freed, because few threads measure.
fn install_stack() -> *mut u8 {
    let memory = Box::leak(vec![0_u8; STACK].into_boxed_slice()).as_mut_ptr();
    let stack = libc::stack_t { ss_sp: memory.cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: the memory is never freed. If the kernel rejects it, a fault ends the process, which the worker handles.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    memory
}

fn install() {
    for signal in SIGNALS {
        // SAFETY: the handler is async-signal-safe, and the code's exit expects its changes. If the kernel rejects it,
        // a fault ends the process.
        let _ = unsafe { signal::install(signal, handle, libc::SA_ONSTACK) };
    }
}

/// Resumes the faulting code at its exit. Any other fault gets the default action.
extern "C" fn handle(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let state = RUNNING.get();
    if state.is_null() {
        return signal::end_process(signal);
    }
    // SAFETY: the argument is that of this running handler. The state outlives the interrupted code, which accesses it
    // only through this pointer.
    unsafe {
        (&raw mut (*state).signal).write(signal as u64);
        let registers = Registers::of(context);
        registers[libc::REG_RIP] = enter::exit() as i64;
        registers[libc::REG_R13] = state as i64;
    }
}
