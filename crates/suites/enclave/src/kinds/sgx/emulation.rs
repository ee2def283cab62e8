//! Emulation of CPU, driver and vDSO of a machine with SGX, for tests; all other code is exactly the code that
//! runs on such a machine.
//!
//! ENCLU faults: without SGX as an invalid instruction, with SGX because no enclave exists at the address. The fault
//! handler applies the effect of ENCLU to the thread's registers. A fault inside leaves the enclave as the CPU
//! would. For a process that does nothing else.

mod processor;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::{io, ptr};

use rustix::mm::{self, MprotectFlags, ProtFlags};

use super::driver::{Driver, access};
use super::measurement::Measurement;
use super::signature;
use super::structures::{Attributes, SecInfo, Secs, SgxTcs, SigStruct, THREAD_PAGE};
use crate::conf::PAGE;

pub(super) use processor::{refuse_system_calls, vdso};

/// A TCS of an emulated enclave: its page, the FS of its thread, and the CPU's state of it.
struct Slot {
    tcs_page: AtomicU64,
    fs: AtomicU64,
    base: AtomicU64,
    length: AtomicU64,
    frame: AtomicU64,
    host_fs: AtomicU64,
    selector: AtomicU64,
}

static SLOTS: [Slot; 256] = [const {
    Slot {
        tcs_page: AtomicU64::new(0),
        fs: AtomicU64::new(0),
        base: AtomicU64::new(0),
        length: AtomicU64::new(0),
        frame: AtomicU64::new(0),
        host_fs: AtomicU64::new(0),
        selector: AtomicU64::new(0),
    }
}; 256];

/// The driver of one enclave.
pub(super) struct Emulated(Mutex<Making>);

#[derive(Default)]
struct Making {
    base: usize,
    length: usize,
    frame_pages: u32,
    attributes: Option<Attributes>,
    measured: Option<Measurement>,
    /// The added pages: ranges and flags.
    added: Vec<(Range<usize>, u64)>,
    started: bool,
}

impl Making {
    /// Takes a slot for a TCS page at an address; refuses an invalid TCS, as the CPU does.
    fn claim(&self, at: usize, page: &SgxTcs) -> io::Result<()> {
        if ![page.fs, page.gs, page.frames].iter().all(|at| at.is_multiple_of(PAGE as u64)) {
            return Err(errno(libc::EIO));
        }
        let free =
            |slot: &&Slot| slot.tcs_page.compare_exchange(0, at as u64, SeqCst, SeqCst).is_ok();
        let slot = SLOTS.iter().find(free).ok_or_else(|| errno(libc::ENOMEM))?;
        slot.base.store(self.base as u64, SeqCst);
        slot.length.store(self.length as u64, SeqCst);
        slot.frame.store(u64::from(self.frame_pages) * PAGE as u64, SeqCst);
        slot.fs.store(self.base as u64 + page.fs, SeqCst);
        Ok(())
    }
}

impl Emulated {
    pub(super) fn new() -> Self {
        processor::install();
        Self(Mutex::default())
    }
}

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Driver for Emulated {
    fn create(&self, secs: &Secs) -> io::Result<()> {
        let mut making = self.0.lock().unwrap();
        let aligned = secs.size.is_power_of_two() && secs.base.is_multiple_of(secs.size);
        if !aligned || secs.attributes.xfrm & 3 != 3 || making.measured.is_some() {
            return Err(errno(libc::EINVAL));
        }
        (making.base, making.length) = (secs.base as usize, secs.size as usize);
        making.attributes = Some(secs.attributes);
        making.frame_pages = secs.frame_pages;
        making.measured = Some(Measurement::begin(secs.frame_pages, secs.size));
        Ok(())
    }

    fn add(
        &self,
        offset: usize,
        bytes: &[u8],
        information: &SecInfo,
        measured: bool,
    ) -> io::Result<()> {
        let making = &mut *self.0.lock().unwrap();
        let place = offset..offset + bytes.len();
        let apart =
            |(other, _): &(Range<usize>, u64)| place.end <= other.start || other.end <= place.start;
        let whole = (bytes.as_ptr().addr() | offset | bytes.len()).is_multiple_of(PAGE);
        if !whole || making.started || place.end > making.length || !making.added.iter().all(apart)
        {
            return Err(errno(libc::EINVAL));
        }
        let mut at = making.base + offset;
        for (page, offset) in bytes.as_chunks::<PAGE>().0.iter().zip((offset..).step_by(PAGE)) {
            let measurement = making.measured.as_mut().ok_or_else(|| errno(libc::EINVAL))?;
            measurement.add(offset as u64, information);
            if measured {
                measurement.extend(offset as u64, page);
            }
            // SAFETY: the caller has reserved these addresses for the enclave.
            unsafe {
                mm::mprotect(at as *mut c_void, PAGE, MprotectFlags::READ | MprotectFlags::WRITE)?;
                ptr::copy_nonoverlapping(page.as_ptr(), at as *mut u8, PAGE);
                mm::mprotect(at as *mut c_void, PAGE, MprotectFlags::empty())?;
            }
            if information.flags == THREAD_PAGE {
                // SAFETY: the flags state that the page is a TCS.
                making.claim(at, unsafe { &*page.as_ptr().cast::<SgxTcs>() })?;
            }
            at += PAGE;
        }
        making.added.push((place, information.flags));
        Ok(())
    }

    fn init(&self, signature: &SigStruct) -> io::Result<()> {
        let making = &mut *self.0.lock().unwrap();
        let measured = making.measured.take().ok_or_else(|| errno(libc::EINVAL))?.end();
        let attributes = making.attributes.map(Attributes::words);
        let right = signature::is_valid(signature)
            && signature.body.measurement == measured
            && Some(signature.body.attributes) == attributes;
        making.started = right;
        right.then_some(()).ok_or_else(|| errno(libc::EPERM))
    }

    fn map(&self, addresses: Range<usize>, flags: u64) -> io::Result<()> {
        let making = self.0.lock().unwrap();
        let place = addresses.start - making.base..addresses.end - making.base;
        let wanted = access(flags);
        let allowed = |at: usize| {
            let page = making.added.iter().find(|(range, _)| range.contains(&at));
            page.is_some_and(|(_, flags)| access(*flags).contains(wanted))
        };
        if !place.step_by(PAGE).all(allowed) {
            return Err(errno(libc::EACCES));
        }
        let rights = [
            (ProtFlags::READ, MprotectFlags::READ),
            (ProtFlags::WRITE, MprotectFlags::WRITE),
            (ProtFlags::EXEC, MprotectFlags::EXEC),
        ];
        let rights = rights.into_iter().filter(|(one, _)| wanted.contains(*one));
        let rights = rights.fold(MprotectFlags::empty(), |all, (_, one)| all | one);
        // SAFETY: the caller has reserved these addresses for the enclave.
        unsafe { mm::mprotect(addresses.start as *mut c_void, addresses.len(), rights)? };
        Ok(())
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let base = self.0.lock().unwrap().base as u64;
        for slot in SLOTS.iter().filter(|slot| slot.base.load(SeqCst) == base) {
            slot.fs.store(0, SeqCst);
            slot.base.store(0, SeqCst);
            slot.tcs_page.store(0, SeqCst);
        }
    }
}
