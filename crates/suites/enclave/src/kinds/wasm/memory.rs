//! The linear memory of an enclave.
//!
//! ```text
//! nothing: a page | data | heap | for each TCS { guard, stack } | guard, to a whole 64 KiB
//! ```
//!
//! Where no access is allowed, the pages are taken from the processor's view of it, as in the other kinds.

use std::iter;
use std::ops::Range;

use lab::sample::Failure;
use rustix::mm::{self, MprotectFlags};
use wasmtime::{ExternType, MemoryType, Module, SharedMemory};

use crate::conf::{Conf, PAGE};
use crate::region::has_room;
use crate::wasm_engine::{describe, engine};

/// The pages that WebAssembly counts in.
const WASM_PAGE: usize = 64 << 10;
/// What a pointer of a module can reach.
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
    /// Where the stack of a TCS begins, at its low end.
    fn stack(&self, tcs: usize) -> usize {
        self.data + self.heap + tcs * (PAGE + self.stack) + PAGE
    }

    /// Where the last guard begins.
    fn end(&self) -> usize {
        self.stack(self.tcs) - PAGE
    }

    fn length(&self) -> usize {
        (self.end() + PAGE).next_multiple_of(WASM_PAGE)
    }

    /// The length, unless it exceeds a `usize`. Every other sum here is at most as large.
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
    /// Makes a module's memory, with no access to the page at 0 and around each stack. Its heap and stacks are
    /// there when this returns.
    ///
    /// # Errors
    /// More than a module can reach, or no room for it.
    pub(super) fn new(module: &Module, conf: &Conf) -> Result<Self, Failure> {
        let (heap, stack) = conf.lengths()?;
        let layout = Layout { data: data(module)?, heap, stack, tcs: conf.tcs };
        let length = layout.checked_length().ok_or_else(|| conf.too_large())?;
        let refused = |why: String| {
            Failure::failed(format!(
                "no room for an enclave of {length} bytes: {why}: ask fewer pages"
            ))
        };
        if length > MAX_MEMORY {
            return Err(refused(format!("a module reaches {MAX_MEMORY}")));
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

    /// Makes the pages of the heap and the stacks present, as those of other kinds are.
    fn populate(&self) -> rustix::io::Result<()> {
        let stacks = (0..self.layout.tcs).map(|tcs| self.stack(tcs));
        iter::once(self.heap()).chain(stacks).try_for_each(|part| {
            let start = (self.start() + part.start) as *mut _;
            // SAFETY: writable pages of this memory; their contents stay.
            unsafe { mm::madvise(start, part.len(), mm::Advice::LinuxPopulateWrite) }
        })
    }

    /// Forbids all access to a range of pages.
    fn forbid(&self, range: Range<usize>) -> rustix::io::Result<()> {
        let start = (self.start() + range.start) as *mut _;
        // SAFETY: the pages lie in the memory, and nobody refers to them: the host reads none of the memory's
        // bytes, and what a module does there becomes a fault that wasmtime expects of its memories.
        unsafe { mm::mprotect(start, range.len(), MprotectFlags::empty()) }
    }

    /// Its address in this process.
    pub(super) fn start(&self) -> usize {
        self.shared.data().as_ptr() as usize
    }

    /// Its addresses in this process, but for the page at 0, which is nobody's.
    pub(super) fn range(&self) -> Range<usize> {
        self.start() + PAGE..self.start() + self.layout.length()
    }

    /// The heap, as offsets.
    pub(super) fn heap(&self) -> Range<usize> {
        self.layout.data..self.layout.data + self.layout.heap
    }

    /// A TCS's stack, as offsets.
    pub(super) fn stack(&self, tcs: usize) -> Range<usize> {
        let start = self.layout.stack(tcs);
        start..start + self.layout.stack
    }
}

/// How long a module's data are, in bytes of whole pages: the least that it imports.
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
    fn heap_and_stacks_are_there_after_loading() {
        let bytes = images::find("dlmalloc").unwrap().wasm.unwrap();
        let conf = Conf { tcs: 3, ..Conf::default() };
        let memory = Memory::new(&crate::wasm_engine::compiled(bytes).unwrap(), &conf).unwrap();
        for part in [memory.heap(), memory.stack(0), memory.stack(2)] {
            let mut there = vec![0; part.len() / PAGE];
            let start = (memory.start() + part.start) as *mut _;
            // SAFETY: the kernel writes a byte for each page.
            assert_eq!(unsafe { libc::mincore(start, part.len(), there.as_mut_ptr()) }, 0);
            assert!(there.iter().all(|page| page & 1 == 1), "{part:x?}");
        }
    }

    proptest! {
        /// Stacks follow the heap, each with a page before and after it that is no stack.
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
