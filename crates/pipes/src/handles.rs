//! Handles: numbers for devices and pipes, valid in the thread that created them until they are closed.
//!
//! A handle is the slot of an object in its thread's table, and a number that no other handle of the process has. So a
//! handle that was closed, or belongs to another thread, is an error instead of an access to freed or unsynchronised
//! memory.

use std::cell::RefCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::device::Device;
use crate::error::{Code, Failure};
use crate::pipe::Pipe;

/// Bits of a handle that hold its slot.
const SLOT_BITS: u32 = 16;
/// Maximum number of devices and pipes of a thread.
const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// A handle as foreign code has it; never 0.
pub(crate) type Handle = u64;

/// An object with a handle.
pub(crate) enum Object {
    Device(Box<Device>),
    Pipe(Pipe),
}

struct Slot {
    /// 0 if the slot is unused.
    handle: Handle,
    object: Option<Object>,
}

/// The objects of a thread.
pub(crate) struct Table {
    slots: Vec<Slot>,
    unused: Vec<usize>,
}

thread_local! {
    static TABLE: RefCell<Table> = const { RefCell::new(Table { slots: Vec::new(), unused: Vec::new() }) };
}

/// Calls `body` with the table of this thread.
///
/// # Errors
/// Returns the error of `body`, or why the table cannot be used.
#[inline(always)]
pub(crate) fn with<T>(body: impl FnOnce(&mut Table) -> Result<T, Failure>) -> Result<T, Failure> {
    let with = TABLE.try_with(|table| match table.try_borrow_mut() {
        Ok(mut table) => body(&mut table),
        Err(_) => Err(Failure::new(
            Code::Invalid,
            "called by a signal handler during another call; set a flag in handlers instead",
        )),
    });
    with.unwrap_or_else(|_| {
        Err(Failure::new(Code::NoHandle, "the thread is ending; close devices before it ends"))
    })
}

impl Table {
    /// Adds an object.
    ///
    /// # Errors
    /// Returns an error if the thread has too many.
    pub(crate) fn add(&mut self, object: Object) -> Result<Handle, Failure> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let slot = match self.unused.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MAX_SLOTS => {
                self.slots.push(Slot { handle: 0, object: None });
                self.slots.len() - 1
            }
            None => {
                let why = format!("{MAX_SLOTS} devices and pipes in a thread; close some");
                return Err(Failure::new(Code::Invalid, why));
            }
        };
        let handle = NEXT.fetch_add(1, Ordering::Relaxed) << SLOT_BITS | slot as u64;
        self.slots[slot] = Slot { handle, object: Some(object) };
        Ok(handle)
    }

    /// Removes an object, if it exists.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Object> {
        let index = slot_of(handle);
        let slot = self.slots.get_mut(index).filter(|slot| handle != 0 && slot.handle == handle)?;
        slot.handle = 0;
        self.unused.push(index);
        slot.object.take()
    }

    /// Returns a device.
    ///
    /// # Errors
    /// Returns an error if the handle is not that of a device of this thread.
    #[inline(always)]
    pub(crate) fn device(&mut self, handle: Handle) -> Result<&mut Device, Failure> {
        match self.get(handle) {
            Some(Object::Device(device)) => Ok(device),
            _ => Err(unknown("device")),
        }
    }

    /// Returns a pipe.
    ///
    /// # Errors
    /// Returns an error if the handle is not that of a pipe of this thread.
    #[inline(always)]
    pub(crate) fn pipe(&mut self, handle: Handle) -> Result<&mut Pipe, Failure> {
        match self.get(handle) {
            Some(Object::Pipe(pipe)) => Ok(pipe),
            _ => Err(unknown("pipe")),
        }
    }

    #[inline(always)]
    fn get(&mut self, handle: Handle) -> Option<&mut Object> {
        let slot = self.slots.get_mut(slot_of(handle))?;
        // An unused slot has handle 0 and no object.
        if slot.handle == handle { slot.object.as_mut() } else { None }
    }

    /// Closes a device and its pipes.
    pub(crate) fn close(&mut self, handle: Handle) -> Result<(), Failure> {
        self.device(handle)?.disconnect();
        for slot in 0..self.slots.len() {
            if let Slot { handle: pipe, object: Some(Object::Pipe(one)) } = &self.slots[slot]
                && one.device() == handle
            {
                drop(self.remove(*pipe));
            }
        }
        drop(self.remove(handle));
        Ok(())
    }
}

/// Closes what the thread has not closed.
impl Drop for Table {
    fn drop(&mut self) {
        let slots = mem::take(&mut self.slots);
        // A panic while a thread ends would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut slots = slots;
            for slot in &mut slots {
                if let Some(Object::Device(device)) = &mut slot.object {
                    device.disconnect();
                }
            }
        }));
    }
}

#[inline(always)]
fn slot_of(handle: Handle) -> usize {
    (handle % MAX_SLOTS as u64) as usize
}

#[cold]
pub(crate) fn unknown(what: &str) -> Failure {
    let why = format!(
        "not a {what} of this thread: closed, or created by another thread; use each {what} only in the \
         thread that created it"
    );
    Failure::new(Code::NoHandle, why)
}

/// Whether this process was forked from one that had devices.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Prepares the process for its first device: a forked child must not use the devices of its parent.
///
/// # Errors
/// Returns an error in such a child, which lacks the threads that the library needs.
pub(crate) fn prepare() -> Result<(), Failure> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function that lives as long as the library.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
    if FORKED.load(Ordering::Relaxed) {
        let why = "this process was forked by one with devices; call exec first, or fork before the first \
                   device is created";
        return Err(Failure::new(Code::Invalid, why));
    }
    Ok(())
}

/// Makes the child of a fork forget the thread's objects, which belong to the parent. It allocates and frees nothing,
/// because another thread of the parent may have been in the allocator.
extern "C" fn forget() {
    FORKED.store(true, Ordering::Relaxed);
    let _ = TABLE.try_with(|table| {
        if let Ok(mut table) = table.try_borrow_mut() {
            mem::forget(mem::take(&mut table.slots));
            mem::forget(mem::take(&mut table.unused));
        }
    });
}
