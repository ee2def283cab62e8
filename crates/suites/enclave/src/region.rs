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

/// Who sees the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// This process.
    Private,
    /// This process and those that it forks.
    Forked,
}

/// What stands at FS:0 inside: the block that both sides know, and what only the host looks at.
#[derive(Debug)]
#[repr(C)]
pub struct Top {
    /// What both sides know.
    pub block: ThreadBlock,
    /// The host's side of this TCS.
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

/// Lengths in bytes, all of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    image: usize,
    heap: usize,
    stack: usize,
    tls: usize,
    tcs: usize,
}

impl Layout {
    /// # Errors
    /// Refuses a configuration without TCS, and one longer than the address space.
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

    /// The length, unless it exceeds a `usize`. As every other sum here is at most as large, none overflows
    /// in a layout that [`Self::new`] made.
    fn checked_length(&self) -> Option<usize> {
        let stride = self.stack.checked_add(self.tls)?.checked_add(2 * PAGE)?;
        let threads = self.tcs.checked_mul(stride)?;
        self.image.checked_add(self.heap)?.checked_add(threads)?.checked_add(PAGE)
    }

    /// From one TCS to the next.
    fn stride(&self) -> usize {
        PAGE + self.stack + PAGE + self.tls
    }

    /// Where the stack of a TCS begins, at its low end.
    fn stack(&self, tcs: usize) -> usize {
        self.image + self.heap + tcs * self.stride() + PAGE
    }

    /// Where the TLS area of a TCS begins.
    fn tls(&self, tcs: usize) -> usize {
        self.stack(tcs) + self.stack + PAGE
    }

    fn length(&self) -> usize {
        self.image + self.heap + self.tcs * self.stride() + PAGE
    }
}

/// What lies below FS:0 in a TLS area, in bytes: the template, so that both it and FS:0 are aligned.
fn template(tls: Option<&Tls<'_>>) -> usize {
    // The block itself begins on a cache line.
    tls.map_or(0, |tls| tls.length.next_multiple_of(tls.align.max(64)))
}

/// Whether an enclave of so many bytes has room in memory, all of which is to be there.
///
/// # Errors
/// It has not.
pub(crate) fn has_room(length: usize) -> Result<(), Failure> {
    let free = machine::memory::available();
    if length as u64 <= free {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "an enclave of {length} bytes has no room in {free} bytes of memory: ask fewer pages"
    )))
}

impl Region {
    /// Reserves a region, loads an image and makes its stacks and TLS areas. All of its memory is there
    /// when this returns, as that of an enclave in hardware is, so that nothing faults while it is measured.
    ///
    /// # Errors
    /// A configuration that no enclave can have, or no room for it.
    pub fn load(elf: &Elf<'static>, conf: &Conf, sharing: Sharing) -> Result<Self, Failure> {
        let layout = Layout::new(elf, conf)?;
        let length = layout.length();
        let refused = |why| {
            Failure::failed(format!(
                "no room for an enclave of {length} bytes: {why}: ask fewer pages"
            ))
        };
        let flags = match sharing {
            Sharing::Private => MapFlags::PRIVATE,
            Sharing::Forked => MapFlags::SHARED,
        };
        // SAFETY: a new mapping, wherever the kernel finds room.
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

    /// Makes the pages of the heap, the stacks and the TLS areas present in the calling process. A system
    /// call each, and nothing else.
    ///
    /// # Errors
    /// No memory, or a Linux before 5.14.
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
        // SAFETY: writable pages of this region's own mapping; their contents stay.
        unsafe {
            let start = self.pointer(range.start).cast();
            mm::madvise(start, range.len(), mm::Advice::LinuxPopulateWrite)
        }
    }

    /// Keeps the region from processes that are forked after this.
    ///
    /// # Errors
    /// Returns the `errno` of `madvise(2)`.
    pub fn keep_from_forks(&self) -> rustix::io::Result<()> {
        // SAFETY: this region's own mapping; its contents stay.
        unsafe { mm::madvise(self.base as *mut c_void, self.length, mm::Advice::LinuxDontFork) }
    }

    fn protect(&self, part: Range<usize>, access: Access) -> rustix::io::Result<()> {
        let access = match access {
            Access::Read => MprotectFlags::READ,
            Access::Write => MprotectFlags::READ | MprotectFlags::WRITE,
            Access::Execute => MprotectFlags::READ | MprotectFlags::EXEC,
        };
        // SAFETY: the part lies in the mapping, which this region alone owns.
        unsafe { mm::mprotect(part.start as *mut c_void, part.len(), access) }
    }

    /// Copies the image's segments and sets its relocations; all of the image is writable.
    fn place(&self, elf: &Elf<'_>) {
        for part in &elf.segments {
            // SAFETY: segments lie inside the image (`Elf`), which is writable and nobody else's.
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
            // SAFETY: relocations lie inside segments (`Elf`).
            unsafe { self.pointer(*at).cast::<u64>().write_unaligned(word) };
        }
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        (self.base + offset) as *mut u8
    }

    /// All of its addresses.
    pub fn range(&self) -> Range<usize> {
        self.base..self.base + self.length
    }

    /// The addresses that may be used, whole pages, with what may be done there; guards are not
    /// among them.
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

    /// The heap's addresses.
    pub fn heap(&self) -> Range<usize> {
        let start = self.base + self.layout.image;
        start..start + self.layout.heap
    }

    /// The address at which the image is entered.
    pub fn entry(&self) -> usize {
        self.base + self.entry
    }

    /// A TCS's stack, whose ends are aligned to pages.
    pub fn stack(&self, tcs: usize) -> Range<usize> {
        let start = self.base + self.layout.stack(tcs);
        start..start + self.layout.stack
    }

    /// What stands at FS:0 of a TCS.
    pub fn top(&self, tcs: usize) -> *mut Top {
        self.pointer(self.layout.tls(tcs) + template(self.tls.as_ref())).cast()
    }

    /// Makes a TCS's TLS area as it is before anybody entered, but for what stands at FS:0. Nobody may be
    /// inside by this TCS.
    pub fn reset_tls(&self, tcs: usize) {
        let Some(tls) = &self.tls else { return };
        let used = tls.length.next_multiple_of(tls.align);
        // SAFETY: the template ends at FS:0 and fits in the TLS area (`template`), which is writable; who
        // would use it is not inside. What the image holds of it lies in a segment (`Elf`), relocated.
        unsafe {
            let start = self.top(tcs).cast::<u8>().sub(used);
            ptr::copy_nonoverlapping(self.pointer(tls.address), start, tls.bytes.len());
            ptr::write_bytes(start.add(tls.bytes.len()), 0, used - tls.bytes.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's own. That it cannot be unmapped is no harm.
        let _ = unsafe { mm::munmap(self.base as *mut c_void, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No configuration wraps around: its layout has every byte that was asked for, or is refused.
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

        /// Parts follow one another with a guard page around every stack and TLS area.
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
