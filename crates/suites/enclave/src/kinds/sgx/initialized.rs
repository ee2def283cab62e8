//! The making of an enclave: its range of addresses, its pages, and its start.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr;

use lab::sample::Failure;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::driver::{Driver, Step, advice};
use super::pages::{Page, Pages, bytes};
use super::structures::{Plain, SecInfo, Secs};
use crate::conf::PAGE;

/// Pages of zeros that are added at once.
const ZEROS: usize = 64;

/// An enclave that has started. Fields go in this order.
#[derive(Debug)]
pub(super) struct InitializedEnclave<D> {
    reserved: Reserved,
    _driver: D,
}

impl<D: Driver> InitializedEnclave<D> {
    /// Makes an enclave of pages by a driver that has none yet.
    ///
    /// # Errors
    /// No room, or what driver or processor refuse, and what to do.
    pub(super) fn new(pages: &Pages, driver: D) -> Result<Self, Failure> {
        let length = pages.layout.length();
        let failed = |step: Step, why: io::Error| {
            let name = step.name();
            Failure::failed(format!(
                "an enclave of {length} bytes: {name}: {why}: {}",
                advice(step, &why)
            ))
        };
        let reserved = Reserved::new(length).map_err(|why| failed(Step::Map, why))?;
        let mut secs = Box::new(Secs::zero());
        secs.size = length as u64;
        secs.base = reserved.base as u64;
        secs.frame_pages = pages.frame_pages;
        secs.attributes = pages.attributes;
        driver.create(&secs).map_err(|why| failed(Step::Create, why))?;
        let zeros = vec![Page([0; PAGE]); ZEROS];
        for (part, held) in &pages.parts {
            let information = SecInfo::new(part.flags);
            let add = |offset, pages: &[Page], measured| {
                let added = driver.add(offset, bytes(pages), &information, measured);
                added.map_err(|why| failed(Step::Add, why))
            };
            match held {
                Some(held) => add(part.range.start, held, true)?,
                None => {
                    for at in part.range.clone().step_by(ZEROS * PAGE) {
                        let left = (part.range.end - at) / PAGE;
                        add(at, &zeros[..left.min(ZEROS)], false)?;
                    }
                }
            }
        }
        // Pages can be mapped once they are there, with no more rights than theirs.
        for (part, _) in &pages.parts {
            let addresses = reserved.base + part.range.start..reserved.base + part.range.end;
            driver.map(addresses, part.flags).map_err(|why| failed(Step::Map, why))?;
        }
        driver.init(&pages.signature).map_err(|why| failed(Step::Init, why))?;
        Ok(Self { reserved, _driver: driver })
    }

    /// Its range of addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.reserved.base..self.reserved.base + self.reserved.length
    }
}

/// Addresses that nobody else uses, which begin at a multiple of their length; given back with this, and all
/// that was mapped there.
#[derive(Debug)]
struct Reserved {
    base: usize,
    length: usize,
    /// Twice as many, so that there is a multiple among them.
    whole: usize,
}

impl Reserved {
    fn new(length: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping, wherever the kernel finds room.
        let whole = unsafe { mm::mmap_anonymous(ptr::null_mut(), 2 * length, none, flags)? };
        let whole = whole as usize;
        Ok(Self { base: whole.next_multiple_of(length), length, whole })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own. That it cannot be unmapped is no harm.
        let _ = unsafe { mm::munmap(self.whole as *mut c_void, 2 * self.length) };
    }
}
