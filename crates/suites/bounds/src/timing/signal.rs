//! Faults of measured code: the signal is written down and the code left, so that a batch goes on.

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::Once;

use super::enter;
use super::state::State;

/// What an instruction that cannot run raises.
const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGILL, "SIGILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
];
/// Room for a handler and a frame with 512-bit registers.
const STACK: usize = 64 * 1024;

/// The signal that an instruction raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RaisedSignal(c_int);

impl RaisedSignal {
    /// Whether the processor does not know the instruction, or may not run it here.
    pub(crate) fn is_illegal(self) -> bool {
        self.0 == libc::SIGILL
    }
}

impl fmt::Display for RaisedSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SIGNALS.iter().find(|(number, _)| *number == self.0);
        f.write_str(name.map_or("a signal", |(_, name)| name))
    }
}

thread_local! {
    /// The state of the code that this thread runs now.
    static RUNNING: Cell<*mut State> = const { Cell::new(ptr::null_mut()) };
    /// A stack for the handler: the code may have lost its own.
    static HANDLER_STACK: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Runs code; a fault in it ends it. The handler writes to the state while the code runs, so the code gets a
/// pointer: no reference to the state may be used until it has ended. No test can see a breach of that: it is up to
/// the optimiser whether it does harm.
pub(super) fn guarded<T>(
    state: &mut State,
    run: impl FnOnce(*mut State) -> T,
) -> Result<T, RaisedSignal> {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(install);
    HANDLER_STACK.with(|stack| {
        if stack.get().is_null() {
            stack.set(own_stack());
        }
    });
    state.signal = 0;
    let shared = ptr::from_mut(state);
    RUNNING.set(shared);
    let answer = run(shared);
    RUNNING.set(ptr::null_mut());
    // From here on the handler has no pointer to the state, which is the caller's alone again.
    match state.signal {
        0 => Ok(answer),
        signal => Err(RaisedSignal(signal as c_int)),
    }
}

/// Gives this thread a stack for handlers. It lives as long as the process: threads that measure are few.
fn own_stack() -> *mut u8 {
    let memory = Box::leak(vec![0_u8; STACK].into_boxed_slice()).as_mut_ptr();
    let stack = libc::stack_t { ss_sp: memory.cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: the memory is never freed. Where the kernel refuses, a fault ends the process, which the
    // worker handles.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    memory
}

fn install() {
    for (signal, _) in SIGNALS {
        // SAFETY: an all-zero sigaction is valid, and the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Leads the code that faulted to its exit. A fault of anything else meets what the system does with it.
extern "C" fn handle(signal: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let state = RUNNING.get();
    if state.is_null() {
        // SAFETY: setting the default is allowed in a handler; the instruction then faults again.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel gives a valid context, which nobody else has; the state outlives the code that
    // this thread runs, that code stands still, and it reaches the state by this same pointer alone.
    unsafe {
        (&raw mut (*state).signal).write(signal as u64);
        let registers = &mut (*context).uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = enter::exit() as i64;
        registers[libc::REG_R13 as usize] = state as i64;
    }
}
