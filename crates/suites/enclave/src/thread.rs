//! What a host thread needs to enter enclaves: made at its first ECALL, gone with the thread.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::EcallError;
use crate::tcs::LastTcs;
use crate::{signals, system_calls};

/// The alternate signal stack: the enclave's own may have been overrun. Room for any processor's vector
/// registers, which the kernel saves there.
pub(crate) const SIGNAL_STACK: usize = 64 << 10;

/// A host thread that enters.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The enclave that it was in last, and by which TCS.
    pub(crate) last: LastTcs,
    selector: UnsafeCell<u8>,
    dispatched: Cell<bool>,
    signal_stack: *mut u8,
}

thread_local! {
    // Without a destructor, so that an ECALL reads it at the cost of one load.
    static HERE: Cell<*const Thread> = const { Cell::new(ptr::null()) };
    static OWNER: Cell<Option<Owner>> = const { Cell::new(None) };
}

/// Ends a thread's preparations with the thread.
struct Owner(*mut Thread);

impl Thread {
    /// The calling thread, ready to enter. `dispatch`: with its system calls blocked while it is inside;
    /// without, no system call of the thread pays for that.
    ///
    /// # Errors
    /// A system call that failed.
    #[inline]
    pub(crate) fn current(dispatch: bool) -> Result<&'static Self, EcallError> {
        let here = HERE.get();
        // SAFETY: it lives until the thread ends, and is handed to nobody else.
        match unsafe { here.as_ref() } {
            Some(thread) if thread.dispatched.get() == dispatch => Ok(thread),
            _ => prepare(dispatch),
        }
    }

    /// Ends the dispatch of the calling thread's system calls, which an enclave began that is unloaded now.
    pub(crate) fn end_dispatch() {
        // SAFETY: it lives until the thread ends, and is handed to nobody else.
        if let Some(thread) = unsafe { HERE.get().as_ref() } {
            // Ending cannot fail.
            let _ = thread.dispatch(false);
        }
    }

    fn dispatch(&self, on: bool) -> Result<(), i32> {
        if self.dispatched.get() == on {
            return Ok(());
        }
        if on {
            // SAFETY: the byte is 0 outside and lives until the dispatch ends.
            unsafe { system_calls::begin(self.selector(), signals::allowed_return()) }?;
        } else {
            system_calls::end();
        }
        self.dispatched.set(on);
        Ok(())
    }

    /// The byte that blocks the thread's system calls while it is 1.
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
            signal_stack,
        };
        let thread = Box::into_raw(Box::new(thread));
        OWNER.set(Some(Owner(thread)));
        HERE.set(thread);
        // SAFETY: the thread was just made.
        system_calls::set_selector_here(unsafe { (*thread).selector() });
        // Handlers that were installed since the last thread came.
        signals::adopt();
    }
    // SAFETY: it was made above or before, and lives until the thread ends.
    let thread = unsafe { &*HERE.get() };
    let set = thread.dispatch(dispatch);
    set.map(|()| thread).map_err(|errno| EcallError::Unprepared { what: "prctl", errno })
}

/// Maps an alternate signal stack and gives it to the calling thread.
fn signal_stack() -> Result<*mut u8, EcallError> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping, wherever the kernel finds room.
    let stack = unsafe { mm::mmap_anonymous(ptr::null_mut(), SIGNAL_STACK, access, flags) }
        .map_err(|why| EcallError::Unprepared { what: "mmap", errno: why.raw_os_error() })?;
    // SAFETY: the stack was just made and is nobody else's.
    unsafe { use_signal_stack(stack.cast()) }
        .map_err(|errno| EcallError::Unprepared { what: "sigaltstack", errno })?;
    Ok(stack.cast())
}

/// Lets the calling thread's signals use a stack of [`SIGNAL_STACK`] bytes.
///
/// # Errors
/// The kernel's, as a number.
///
/// # Safety
/// The stack must be nobody else's, and live as long as the thread, or until it has another.
pub(crate) unsafe fn use_signal_stack(stack: *mut u8) -> Result<(), i32> {
    let given = libc::stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: SIGNAL_STACK };
    // SAFETY: the kernel reads the structure; the stack is the caller's.
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
        // SAFETY: made by `prepare` for this thread, which makes no ECALL any more.
        let thread = unsafe { Box::from_raw(self.0) };
        let _ = thread.dispatch(false);
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: no handler runs on the stack that goes; the mapping is this thread's own.
        unsafe {
            libc::sigaltstack(&raw const none, ptr::null_mut());
            let _ = mm::munmap(thread.signal_stack.cast(), SIGNAL_STACK);
        }
    }
}
