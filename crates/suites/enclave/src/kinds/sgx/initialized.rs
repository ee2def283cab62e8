//! Creation of an enclave: its address range, its pages, and its initialisation.

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

/// Number of zero pages that are added at once.
const ZEROS: usize = 64;

/// An initialised enclave. The drop order is the field order.
#[derive(Debug)]
pub(super) struct InitializedEnclave<D> {
    reserved: Reserved,
    _driver: D,
}

impl<D: Driver> InitializedEnclave<D> {
    /// Creates an enclave from its pages by a driver that has none yet.
    ///
    /// # Errors
    /// Returns the step that the driver or the CPU refused, with a fix, e.g. if memory is exhausted.
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
        for (part, content) in &pages.parts {
            let information = SecInfo::new(part.flags);
            let add = |offset, pages: &[Page], measured| {
                let added = driver.add(offset, bytes(pages), &information, measured);
                added.map_err(|why| failed(Step::Add, why))
            };
            match content {
                Some(content) => add(part.range.start, content, true)?,
                None => {
                    for at in part.range.clone().step_by(ZEROS * PAGE) {
                        let left = (part.range.end - at) / PAGE;
                        add(at, &zeros[..left.min(ZEROS)], false)?;
                    }
                }
            }
        }
        // Pages can be mapped after they were added, with at most their rights.
        for (part, _) in &pages.parts {
            let addresses = reserved.base + part.range.start..reserved.base + part.range.end;
            driver.map(addresses, part.flags).map_err(|why| failed(Step::Map, why))?;
        }
        driver.init(&pages.signature).map_err(|why| failed(Step::Init, why))?;
        Ok(Self { reserved, _driver: driver })
    }

    /// Returns the address range.
    pub(super) fn range(&self) -> Range<usize> {
        self.reserved.base..self.reserved.base + self.reserved.length
    }
}

/// A reserved address range that is aligned to its length. Dropping it frees the range and all mappings in it.
#[derive(Debug)]
struct Reserved {
    base: usize,
    length: usize,
    /// The start of the mapping, which is twice as long, so that it contains an aligned range.
    whole: usize,
}

impl Reserved {
    fn new(length: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = ProtFlags::empty();
        // SAFETY: it creates a new mapping at an address of the kernel's choice.
        let whole = unsafe { mm::mmap_anonymous(ptr::null_mut(), 2 * length, none, flags)? };
        let whole = whole as usize;
        Ok(Self { base: whole.next_multiple_of(length), length, whole })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: this owns the mapping. A failure to unmap it is harmless.
        let _ = unsafe { mm::munmap(self.whole as *mut c_void, 2 * self.length) };
    }
}
