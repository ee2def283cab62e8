//! The state that a host thread needs to enter enclaves. It is created at the thread's first ECALL and freed with the
//! thread.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use machine::mapping::Mapping;

use crate::error::EcallError;
use crate::tcs::LastTcs;
use crate::{signals, system_calls};

/// Length of the alternate signal stack, which is needed because the enclave may have overrun its own stack. It has
/// space for the vector registers of any CPU, which the kernel saves there.
pub(crate) const SIGNAL_STACK: usize = 64 << 10;

/// A host thread that enters enclaves.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The TCS that the thread used last.
    pub(crate) last: LastTcs,
    selector: UnsafeCell<u8>,
    dispatched: Cell<bool>,
    _signal_stack: Mapping,
}

thread_local! {
    // It has no destructor, so an ECALL reads it by one load.
    static HERE: Cell<*const Thread> = const { Cell::new(ptr::null()) };
    static OWNER: Cell<Option<Owner>> = const { Cell::new(None) };
}

/// Frees a thread's state when the thread ends.
struct Owner(*mut Thread);

impl Thread {
    /// Returns the calling thread, ready to enter. `dispatch` blocks system calls while the thread is inside; if it
    /// is false, no system call of the thread pays for that.
    ///
    /// # Errors
    /// Returns the system call that failed.
    #[inline]
    pub(crate) fn current(dispatch: bool) -> Result<&'static Self, EcallError> {
        let current = HERE.get();
        // SAFETY: it lives until the thread ends, and no other thread gets it.
        match unsafe { current.as_ref() } {
            Some(thread) if thread.dispatched.get() == dispatch => Ok(thread),
            _ => prepare(dispatch),
        }
    }

    /// Stops the dispatch of the calling thread's system calls, when the enclave that started it is unloaded.
    pub(crate) fn end_dispatch() {
        // SAFETY: it lives until the thread ends, and no other thread gets it.
        if let Some(thread) = unsafe { HERE.get().as_ref() } {
            // Stopping cannot fail.
            let _ = thread.dispatch(false);
        }
    }

    fn dispatch(&self, on: bool) -> Result<(), i32> {
        if self.dispatched.get() == on {
            return Ok(());
        }
        if on {
            // SAFETY: the byte is 0 outside and lives until the dispatch stops.
            unsafe { system_calls::begin(self.selector(), signals::allowed_return()) }?;
        } else {
            system_calls::end();
        }
        self.dispatched.set(on);
        Ok(())
    }

    /// Returns the byte that blocks the thread's system calls while it is 1.
    #[inline]
    pub(crate) fn selector(&self) -> *mut u8 {
        self.selector.get()
    }
}

#[cold]
fn prepare(dispatch: bool) -> Result<&'static Thread, EcallError> {
    if HERE.get().is_null() {
        let signal_stack = signal_stack()?;
        let thread = Thread {
            last: Cell::new((0, 0)),
            selector: UnsafeCell::new(0),
            dispatched: Cell::new(false),
            _signal_stack: signal_stack,
        };
        let thread = Box::into_raw(Box::new(thread));
        OWNER.set(Some(Owner(thread)));
        HERE.set(thread);
        // SAFETY: the thread was just made.
        system_calls::set_selector_here(unsafe { (*thread).selector() });
        // Adopts handlers that were installed since the last thread entered.
        signals::adopt();
    }
    // SAFETY: it was created above or earlier, and lives until the thread ends.
    let thread = unsafe { &*HERE.get() };
    let set = thread.dispatch(dispatch);
    set.map(|()| thread).map_err(|errno| EcallError::Unprepared { what: "prctl", errno })
}

/// Maps an alternate signal stack and sets it for the calling thread.
fn signal_stack() -> Result<Mapping, EcallError> {
    let stack = Mapping::anonymous(SIGNAL_STACK).map_err(|why| EcallError::Unprepared {
        what: "mmap",
        errno: why.source.raw_os_error().unwrap_or(0),
    })?;
    // SAFETY: the stack was just created, and no other thread uses it.
    unsafe { use_signal_stack(stack.as_mut_ptr()) }
        .map_err(|errno| EcallError::Unprepared { what: "sigaltstack", errno })?;
    Ok(stack)
}

/// Sets the calling thread's alternate signal stack of [`SIGNAL_STACK`] bytes.
///
/// # Errors
/// Returns the `errno` of `sigaltstack(2)`.
///
/// # Safety
/// No other thread may use the stack, and it must live as long as the thread, or until the thread sets another.
pub(crate) unsafe fn use_signal_stack(stack: *mut u8) -> Result<(), i32> {
    let given = libc::stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: SIGNAL_STACK };
    // SAFETY: the kernel reads the structure; the caller guarantees that the stack is valid.
    match unsafe {
        system_calls::raw(libc::SYS_sigaltstack, [&raw const given as u64, 0, 0, 0, 0, 0])
    } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        HERE.set(ptr::null());
        system_calls::set_selector_here(ptr::null_mut());
        // SAFETY: `prepare` created it for this thread, which makes no more ECALLs.
        let thread = unsafe { Box::from_raw(self.0) };
        let _ = thread.dispatch(false);
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: no handler runs on the stack, which is unmapped with the thread's state.
        unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
    }
}
