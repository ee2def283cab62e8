//! An enclave's memory: one reserved mapping.
//!
//! ```text
//! image | heap | for each TCS { guard, stack, guard, TLS } | guard
//! ```

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use enclave_interface::ThreadBlock;
use lab::sample::Failure;
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};

use crate::conf::{Conf, PAGE};
use crate::elf::{Access, Elf, Tls};

/// The processes that see the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Only this process.
    Private,
    /// This process and those that it forks.
    Forked,
}

/// The block at FS:0 inside: the part that both sides use, and the host's part.
#[derive(Debug)]
#[repr(C)]
pub struct Top {
    /// The part that both sides use.
    pub block: ThreadBlock,
    /// The host's part of this TCS.
    pub tcs: u64,
}

/// A loaded image in its region.
#[derive(Debug)]
pub struct Region {
    base: usize,
    length: usize,
    layout: Layout,
    entry: usize,
    tls: Option<Tls<'static>>,
}

/// Lengths in bytes, all whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    image: usize,
    heap: usize,
    stack: usize,
    tls: usize,
    tcs: usize,
}

impl Layout {
    /// Computes a layout.
    ///
    /// # Errors
    /// Returns an error if the configuration has no TCS or exceeds the address space.
    fn new(elf: &Elf<'_>, conf: &Conf) -> Result<Self, Failure> {
        let tls = template(elf.tls.as_ref()) + size_of::<Top>();
        let (heap, stack) = conf.lengths()?;
        let tls = tls.next_multiple_of(PAGE);
        let layout = Self { image: elf.length, heap, stack, tls, tcs: conf.tcs };
        match layout.checked_length() {
            Some(_) => Ok(layout),
            None => Err(conf.too_large()),
        }
    }

    /// Returns the length, or `None` if it exceeds a `usize`. Every other sum here is at most as large, so none
    /// overflows in a layout that [`Self::new`] returned.
    fn checked_length(&self) -> Option<usize> {
        let stride = self.stack.checked_add(self.tls)?.checked_add(2 * PAGE)?;
        let threads = self.tcs.checked_mul(stride)?;
        self.image.checked_add(self.heap)?.checked_add(threads)?.checked_add(PAGE)
    }

    /// Returns the distance from one TCS to the next.
    fn stride(&self) -> usize {
        PAGE + self.stack + PAGE + self.tls
    }

    /// Returns the low end of the stack of a TCS.
    fn stack(&self, tcs: usize) -> usize {
        self.image + self.heap + tcs * self.stride() + PAGE
    }

    /// Returns the start of the TLS area of a TCS.
    fn tls(&self, tcs: usize) -> usize {
        self.stack(tcs) + self.stack + PAGE
    }

    fn length(&self) -> usize {
        self.image + self.heap + self.tcs * self.stride() + PAGE
    }
}

/// Returns the length of the TLS template below FS:0, bytes, such that both are aligned.
fn template(tls: Option<&Tls<'_>>) -> usize {
    // The block starts on a cache line.
    tls.map_or(0, |tls| tls.length.next_multiple_of(tls.align.max(64)))
}

/// Checks that an enclave of this length fits into the available memory, because all of it will be present.
///
/// # Errors
/// Returns an error if it does not fit.
pub(crate) fn has_room(length: usize) -> Result<(), Failure> {
    let free = machine::proc::available_memory();
    if length as u64 <= free {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "an enclave of {length} bytes does not fit into {free} bytes of available memory: use fewer pages"
    )))
}

impl Region {
    /// Reserves a region, loads an image and initialises its stacks and TLS areas. All its memory is present when
    /// this returns, as in an SGX enclave, so that no page fault occurs during a measurement.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid or memory is exhausted.
    pub fn load(elf: &Elf<'static>, conf: &Conf, sharing: Sharing) -> Result<Self, Failure> {
        let layout = Layout::new(elf, conf)?;
        let length = layout.length();
        let refused = |why| {
            Failure::failed(format!(
                "cannot map an enclave of {length} bytes: {why}: use fewer pages"
            ))
        };
        let flags = match sharing {
            Sharing::Private => MapFlags::PRIVATE,
            Sharing::Forked => MapFlags::SHARED,
        };
        // SAFETY: it creates a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::empty(),
                flags | MapFlags::NORESERVE,
            )
        }
        .map_err(refused)?;
        let region = Self { base: base as usize, length, layout, entry: elf.entry, tls: elf.tls };
        has_room(length)?;
        region
            .protect(base as usize..base as usize + layout.image, Access::Write)
            .map_err(refused)?;
        region.place(elf);
        for (part, access) in region.parts(elf) {
            region.protect(part, access).map_err(refused)?;
        }
        region.populate().map_err(refused)?;
        Ok(region)
    }

    /// Makes the pages of the heap, the stacks and the TLS areas present in the calling process, by one system call
    /// each and nothing else.
    ///
    /// # Errors
    /// Returns the `errno` of `madvise(2)`, e.g. if memory is exhausted or Linux is older than 5.14.
    pub fn populate(&self) -> rustix::io::Result<()> {
        let layout = &self.layout;
        self.present(layout.image..layout.image + layout.heap)?;
        (0..layout.tcs).try_for_each(|tcs| {
            let (stack, tls) = (layout.stack(tcs), layout.tls(tcs));
            self.present(stack..stack + layout.stack)?;
            self.present(tls..tls + layout.tls)
        })
    }

    fn present(&self, range: Range<usize>) -> rustix::io::Result<()> {
        // SAFETY: these are writable pages of this region's mapping, whose contents do not change.
        unsafe {
            let start = self.pointer(range.start).cast();
            mm::madvise(start, range.len(), mm::Advice::LinuxPopulateWrite)
        }
    }

    /// Excludes the region from processes that are forked later.
    ///
    /// # Errors
    /// Returns the `errno` of `madvise(2)`.
    pub fn keep_from_forks(&self) -> rustix::io::Result<()> {
        // SAFETY: this region owns the mapping, whose contents do not change.
        unsafe { mm::madvise(self.base as *mut c_void, self.length, mm::Advice::LinuxDontFork) }
    }

    fn protect(&self, part: Range<usize>, access: Access) -> rustix::io::Result<()> {
        let access = match access {
            Access::Read => MprotectFlags::READ,
            Access::Write => MprotectFlags::READ | MprotectFlags::WRITE,
            Access::Execute => MprotectFlags::READ | MprotectFlags::EXEC,
        };
        // SAFETY: the part is in the mapping, which this region owns.
        unsafe { mm::mprotect(part.start as *mut c_void, part.len(), access) }
    }

    /// Copies the image's segments and applies its relocations; the image must be writable.
    fn place(&self, elf: &Elf<'_>) {
        for part in &elf.segments {
            // SAFETY: segments are inside the image (`Elf`), which is writable and not used otherwise.
            unsafe {
                ptr::copy_nonoverlapping(
                    part.bytes.as_ptr(),
                    self.pointer(part.address),
                    part.bytes.len(),
                );
            }
        }
        for (at, addend) in &elf.relocations {
            let word = (self.base as u64).wrapping_add(*addend);
            // SAFETY: relocations are inside segments (`Elf`).
            unsafe { self.pointer(*at).cast::<u64>().write_unaligned(word) };
        }
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        (self.base + offset) as *mut u8
    }

    /// Returns the address range.
    pub fn range(&self) -> Range<usize> {
        self.base..self.base + self.length
    }

    /// Returns the usable addresses, in whole pages, with their rights; guards are excluded.
    pub fn parts(&self, elf: &Elf<'_>) -> Vec<(Range<usize>, Access)> {
        let mut parts = vec![(self.heap(), Access::Write)];
        for part in &elf.segments {
            let end = (part.address + part.length).next_multiple_of(PAGE);
            parts.push((self.base + part.address / PAGE * PAGE..self.base + end, part.access));
        }
        for tcs in 0..self.layout.tcs {
            let tls = self.base + self.layout.tls(tcs);
            parts.push((self.stack(tcs), Access::Write));
            parts.push((tls..tls + self.layout.tls, Access::Write));
        }
        parts
    }

    /// Returns the heap's addresses.
    pub fn heap(&self) -> Range<usize> {
        let start = self.base + self.layout.image;
        start..start + self.layout.heap
    }

    /// Returns the address of the image's entry point.
    pub fn entry(&self) -> usize {
        self.base + self.entry
    }

    /// Returns the stack of a TCS, whose ends are page-aligned.
    pub fn stack(&self, tcs: usize) -> Range<usize> {
        let start = self.base + self.layout.stack(tcs);
        start..start + self.layout.stack
    }

    /// Returns the block at FS:0 of a TCS.
    pub fn top(&self, tcs: usize) -> *mut Top {
        self.pointer(self.layout.tls(tcs) + template(self.tls.as_ref())).cast()
    }

    /// Resets the TLS area of a TCS to its initial state, except for the block at FS:0. No thread may be inside by
    /// this TCS.
    pub fn reset_tls(&self, tcs: usize) {
        let Some(tls) = &self.tls else { return };
        let used = tls.length.next_multiple_of(tls.align);
        // SAFETY: the template ends at FS:0 and fits into the TLS area (`template`), which is writable and unused,
        // because no thread is inside. The image's part of it is in a segment (`Elf`), relocated.
        unsafe {
            let start = self.top(tcs).cast::<u8>().sub(used);
            ptr::copy_nonoverlapping(self.pointer(tls.address), start, tls.bytes.len());
            ptr::write_bytes(start.add(tls.bytes.len()), 0, used - tls.bytes.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this region owns the mapping. A failure to unmap it is harmless.
        let _ = unsafe { mm::munmap(self.base as *mut c_void, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No length overflows: a layout contains every requested byte, or is refused.
        #[test]
        fn no_length_wraps_around(heap: usize, stack: usize, tcs: usize, shift in 0u32..64, length in 0usize..=1 << 30) {
            let tls = Tls { address: 0, bytes: &[], length, align: 4096 };
            let elf = Elf { segments: vec![], tls: Some(tls), relocations: vec![], entry: 0, length: 1 << 30 };
            let conf = Conf { heap_pages: heap >> shift, stack_pages: stack >> shift, tcs: tcs >> shift, debug: false };
            if let Ok(layout) = Layout::new(&elf, &conf) {
                let pages = conf.heap_pages as u128 + conf.tcs as u128 * conf.stack_pages as u128;
                prop_assert!(layout.length() as u128 >= pages * PAGE as u128);
                prop_assert!(conf.tcs > 0);
            }
        }

        /// The parts follow one another with a guard page around every stack and TLS area.
        #[test]
        fn parts_do_not_overlap(heap in 1usize..100, stack in 1usize..100, tcs in 1usize..20,
            length in 0usize..9000, power in 0u32..12) {
            let tls = Tls { address: 0, bytes: &[], length, align: 1 << power };
            let elf = Elf { segments: vec![], tls: Some(tls), relocations: vec![], entry: 0, length: 3 * PAGE };
            let conf = Conf { heap_pages: heap, stack_pages: stack, tcs, debug: false };
            let layout = Layout::new(&elf, &conf).unwrap();
            let mut end = (3 + heap) * PAGE;
            for tcs in 0..tcs {
                prop_assert_eq!(layout.stack(tcs), end + PAGE);
                prop_assert_eq!(layout.tls(tcs), layout.stack(tcs) + stack * PAGE + PAGE);
                end = layout.tls(tcs) + layout.tls;
            }
            prop_assert_eq!(layout.length(), end + PAGE);
            let top = template(Some(&tls));
            prop_assert!(top >= length && top.is_multiple_of(tls.align) && top.is_multiple_of(64));
            prop_assert!(top + size_of::<Top>() <= layout.tls);
        }
    }
}
