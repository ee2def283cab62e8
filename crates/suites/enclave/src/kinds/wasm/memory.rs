//! The linear memory of an enclave.
//!
//! ```text
//! inaccessible page | data | heap | for each TCS { guard, stack } | guard, to a multiple of 64 KiB
//! ```
//!
//! The inaccessible pages are protected by the CPU's page table, as in the other kinds.

use std::iter;
use std::ops::Range;

use lab::sample::Failure;
use rustix::mm::{self, MprotectFlags};
use wasmtime::{ExternType, MemoryType, Module, SharedMemory};

use crate::conf::{Conf, PAGE};
use crate::region::has_room;
use crate::wasm_engine::{describe, engine};

/// The page size of WebAssembly, in bytes.
const WASM_PAGE: usize = 64 << 10;
/// The address range of a module's pointers, in bytes.
const MAX_MEMORY: usize = 1 << 32;

/// Lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    data: usize,
    heap: usize,
    stack: usize,
    tcs: usize,
}

impl Layout {
    /// Returns the low end of the stack of a TCS.
    fn stack(&self, tcs: usize) -> usize {
        self.data + self.heap + tcs * (PAGE + self.stack) + PAGE
    }

    /// Returns the start of the last guard.
    fn end(&self) -> usize {
        self.stack(self.tcs) - PAGE
    }

    fn length(&self) -> usize {
        (self.end() + PAGE).next_multiple_of(WASM_PAGE)
    }

    /// Returns the length, or `None` if it exceeds a `usize`. Every other sum here is at most as large.
    fn checked_length(&self) -> Option<usize> {
        let threads = self.tcs.checked_mul(self.stack.checked_add(PAGE)?)?;
        let end = self.data.checked_add(self.heap)?.checked_add(threads)?;
        end.checked_add(PAGE)?.checked_next_multiple_of(WASM_PAGE)
    }
}

/// A memory that all instances of one enclave share.
pub(super) struct Memory {
    pub(super) shared: SharedMemory,
    layout: Layout,
}

impl Memory {
    /// Creates a module's memory, with no access to the page at 0 and around each stack. The pages of its heap and
    /// stacks are present when this returns.
    ///
    /// # Errors
    /// Returns an error if it is larger than a module can address, or if memory is exhausted.
    pub(super) fn new(module: &Module, conf: &Conf) -> Result<Self, Failure> {
        let (heap, stack) = conf.lengths()?;
        let layout = Layout { data: data(module)?, heap, stack, tcs: conf.tcs };
        let length = layout.checked_length().ok_or_else(|| conf.too_large())?;
        let refused = |why: String| {
            Failure::failed(format!(
                "cannot map an enclave of {length} bytes: {why}: use fewer pages"
            ))
        };
        if length > MAX_MEMORY {
            return Err(refused(format!("a module can address {MAX_MEMORY} bytes")));
        }
        has_room(length)?;
        let pages = (length / WASM_PAGE) as u32;
        let shared = SharedMemory::new(engine()?, MemoryType::shared(pages, pages))
            .map_err(|why| refused(describe(&why)))?;
        let memory = Self { shared, layout };
        memory.forbid(0..PAGE).map_err(|why| refused(why.to_string()))?;
        for tcs in 0..layout.tcs {
            let stack = layout.stack(tcs);
            memory.forbid(stack - PAGE..stack).map_err(|why| refused(why.to_string()))?;
        }
        memory.forbid(layout.end()..length).map_err(|why| refused(why.to_string()))?;
        memory.populate().map_err(|why| refused(why.to_string()))?;
        Ok(memory)
    }

    /// Makes the pages of the heap and the stacks present, as in the other kinds.
    fn populate(&self) -> rustix::io::Result<()> {
        let stacks = (0..self.layout.tcs).map(|tcs| self.stack(tcs));
        iter::once(self.heap()).chain(stacks).try_for_each(|part| {
            let start = (self.start() + part.start) as *mut _;
            // SAFETY: these are writable pages of this memory, whose contents do not change.
            unsafe { mm::madvise(start, part.len(), mm::Advice::LinuxPopulateWrite) }
        })
    }

    /// Forbids all access to a range of pages.
    fn forbid(&self, range: Range<usize>) -> rustix::io::Result<()> {
        let start = (self.start() + range.start) as *mut _;
        // SAFETY: the pages are in the memory, and the host has no references to its bytes. An access by the module
        // becomes a fault that wasmtime expects of its memories.
        unsafe { mm::mprotect(start, range.len(), MprotectFlags::empty()) }
    }

    /// Returns the address in this process.
    pub(super) fn start(&self) -> usize {
        self.shared.data().as_ptr() as usize
    }

    /// Returns the addresses in this process, without the page at 0, which is unused.
    pub(super) fn range(&self) -> Range<usize> {
        self.start() + PAGE..self.start() + self.layout.length()
    }

    /// Returns the heap, as offsets.
    pub(super) fn heap(&self) -> Range<usize> {
        self.layout.data..self.layout.data + self.layout.heap
    }

    /// Returns the stack of a TCS, as offsets.
    pub(super) fn stack(&self, tcs: usize) -> Range<usize> {
        let start = self.layout.stack(tcs);
        start..start + self.layout.stack
    }
}

/// Returns the length of a module's data, in bytes of whole pages: the minimum size of its imported memory.
fn data(module: &Module) -> Result<usize, Failure> {
    let min = module.imports().find_map(|import| match import.ty() {
        ExternType::Memory(memory) => Some(memory.minimum()),
        _ => None,
    });
    min.map(|pages| pages as usize * WASM_PAGE)
        .ok_or_else(|| Failure::failed("the module imports no memory"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::images;

    #[test]
    fn heap_and_stacks_are_present_after_loading() {
        let bytes = images::find("dlmalloc").unwrap().wasm.unwrap();
        let conf = Conf { tcs: 3, ..Conf::default() };
        let memory = Memory::new(&crate::wasm_engine::compiled(bytes).unwrap(), &conf).unwrap();
        for part in [memory.heap(), memory.stack(0), memory.stack(2)] {
            let mut there = vec![0; part.len() / PAGE];
            let start = (memory.start() + part.start) as *mut _;
            // SAFETY: the kernel writes one byte per page.
            assert_eq!(unsafe { libc::mincore(start, part.len(), there.as_mut_ptr()) }, 0);
            assert!(there.iter().all(|page| page & 1 == 1), "{part:x?}");
        }
    }

    proptest! {
        /// Each stack follows the heap with an inaccessible page before and after it.
        #[test]
        fn parts_do_not_overlap(heap in 1usize..100, stack in 1usize..100, tcs in 1usize..20) {
            let layout = Layout {
                data: 2 * WASM_PAGE, heap: heap * PAGE, stack: stack * PAGE, tcs,
            };
            let mut end = 2 * WASM_PAGE + heap * PAGE;
            for tcs in 0..tcs {
                prop_assert_eq!(layout.stack(tcs), end + PAGE);
                end = layout.stack(tcs) + stack * PAGE;
            }
            prop_assert_eq!(layout.end(), end);
            prop_assert!(layout.length() >= end + PAGE);
            prop_assert!(layout.length() < end + PAGE + WASM_PAGE);
            prop_assert!(layout.length().is_multiple_of(WASM_PAGE));
        }
    }
}
