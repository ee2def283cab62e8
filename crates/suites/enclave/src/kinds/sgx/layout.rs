//! The layout of an enclave, relative to its first byte.
//!
//! ```text
//! image | entry code | tables | heap
//!   | for each TCS { guard, stack, guard, TCS, frames of saved state, guard, thread-local variables } | guard
//! ```
//!
//! The length of its address range is a power of two, and the range is aligned to it. Pages that are in no part do
//! not exist.

use std::ops::Range;

use lab::sample::Failure;

use super::structures::{EXECUTE, READ, REGULAR_PAGE, THREAD_PAGE, WRITE};
use crate::conf::{Conf, PAGE};
use crate::elf::{Access, Elf, Tls};

/// Number of frames of saved state: one for the call that a fault ends, one for the entry that reports the fault.
pub(super) const FRAMES: usize = 2;

/// The content of a part; for a TCS, with its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A segment of the image.
    Segment(usize),
    /// The entry and exit code.
    Code,
    /// The relocations that the code reads.
    Tables,
    /// The heap.
    Heap,
    /// A stack.
    Stack,
    /// The page of a TCS.
    SgxTcs(usize),
    /// The frames of a TCS.
    Frames,
    /// The thread-local variables and the block of a TCS.
    Thread(usize),
}

/// Consecutive pages with the same content and rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The offsets.
    pub(super) range: Range<usize>,
    /// The content.
    pub(super) content: Content,
    /// The flags of the pages' SECINFO.
    pub(super) flags: u64,
}

/// The lengths of the parts, in bytes: all whole pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    image: usize,
    code: usize,
    tables: usize,
    heap: usize,
    stack: usize,
    frames: usize,
    template: usize,
    tcs: usize,
}

/// Length of the block at FS:0, for which the CPU requires a page-aligned address.
const BLOCK: usize = PAGE;

impl Layout {
    /// Computes a layout. `code` and `tables` are lengths in bytes, `frame_pages` the length of one frame in pages.
    ///
    /// # Errors
    /// Returns an error if the configuration has no TCS or exceeds the address space.
    pub(super) fn new(
        elf: &Elf<'_>,
        conf: &Conf,
        code: usize,
        tables: usize,
        frame_pages: usize,
    ) -> Result<Self, Failure> {
        let (heap, stack) = conf.lengths()?;
        let layout = Self {
            image: elf.length,
            code: code.next_multiple_of(PAGE),
            tables: tables.next_multiple_of(PAGE),
            heap,
            stack,
            frames: FRAMES * frame_pages * PAGE,
            template: template(elf.tls.as_ref()).next_multiple_of(PAGE),
            tcs: conf.tcs,
        };
        match layout.checked_length() {
            Some(_) => Ok(layout),
            None => Err(conf.too_large()),
        }
    }

    /// Returns the length, or `None` if it exceeds a `usize`. Every other sum here is at most as large, so none
    /// overflows in a layout that [`Self::new`] returned.
    fn checked_length(&self) -> Option<usize> {
        let thread = self.frames + self.template + BLOCK + 4 * PAGE;
        let threads = self.tcs.checked_mul(self.stack.checked_add(thread)?)?;
        let before = self.image + self.code + self.tables + PAGE;
        before.checked_add(self.heap)?.checked_add(threads)?.checked_next_power_of_two()
    }

    /// Returns the offset of the entry code.
    pub(super) fn code_start(&self) -> usize {
        self.image
    }

    /// Returns the offset of the tables.
    pub(super) fn tables_start(&self) -> usize {
        self.image + self.code
    }

    /// Returns the heap.
    pub(super) fn heap(&self) -> Range<usize> {
        let start = self.tables_start() + self.tables;
        start..start + self.heap
    }

    /// Returns the stack of a TCS.
    pub(super) fn stack(&self, tcs: usize) -> Range<usize> {
        let start = self.heap().end + tcs * self.stride() + PAGE;
        start..start + self.stack
    }

    /// Returns the page of a TCS.
    pub(super) fn tcs_page(&self, tcs: usize) -> usize {
        self.stack(tcs).end + PAGE
    }

    /// Returns the frames of a TCS.
    pub(super) fn frames(&self, tcs: usize) -> Range<usize> {
        let start = self.tcs_page(tcs) + PAGE;
        start..start + self.frames
    }

    /// Returns the thread-local variables of a TCS, which end at the block, and the block.
    pub(super) fn thread(&self, tcs: usize) -> Range<usize> {
        let start = self.frames(tcs).end + PAGE;
        start..start + self.template + BLOCK
    }

    /// Returns the block of a TCS, which is at FS:0.
    pub(super) fn block(&self, tcs: usize) -> usize {
        self.thread(tcs).start + self.template
    }

    fn stride(&self) -> usize {
        PAGE + self.stack + PAGE + PAGE + self.frames + PAGE + self.template + BLOCK
    }

    /// Returns the length of the address range.
    pub(super) fn length(&self) -> usize {
        (self.heap().end + self.tcs * self.stride() + PAGE).next_power_of_two()
    }

    /// Returns all parts, in address order.
    pub(super) fn parts(&self, elf: &Elf<'_>) -> Vec<Part> {
        let regular =
            |range, content, access| Part { range, content, flags: REGULAR_PAGE | access };
        let segment = |(number, part): (usize, &crate::elf::Segment<'_>)| {
            let access = match part.access {
                Access::Read => READ,
                Access::Write => READ | WRITE,
                Access::Execute => READ | EXECUTE,
            };
            let end = (part.address + part.length).next_multiple_of(PAGE);
            regular(part.address / PAGE * PAGE..end, Content::Segment(number), access)
        };
        let mut parts: Vec<_> = elf.segments.iter().enumerate().map(segment).collect();
        parts.push(regular(self.code_start()..self.tables_start(), Content::Code, READ | EXECUTE));
        parts.push(regular(self.tables_start()..self.heap().start, Content::Tables, READ));
        parts.push(regular(self.heap(), Content::Heap, READ | WRITE));
        for tcs in 0..self.tcs {
            let page = self.tcs_page(tcs);
            parts.push(regular(self.stack(tcs), Content::Stack, READ | WRITE));
            parts.push(Part {
                range: page..page + PAGE,
                content: Content::SgxTcs(tcs),
                flags: THREAD_PAGE,
            });
            parts.push(regular(self.frames(tcs), Content::Frames, READ | WRITE));
            parts.push(regular(self.thread(tcs), Content::Thread(tcs), READ | WRITE));
        }
        parts.retain(|part| !part.range.is_empty());
        parts
    }
}

/// Returns the length of the thread-local variables, which end at FS:0, in bytes.
pub(super) fn template(tls: Option<&Tls<'_>>) -> usize {
    tls.map_or(0, |tls| tls.length.next_multiple_of(tls.align))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::elf::Segment;

    fn elf(tls: usize, power: u32) -> Elf<'static> {
        let segment = |address, length, access| Segment { address, length, bytes: &[], access };
        Elf {
            segments: vec![
                segment(0, 5000, Access::Read),
                segment(0x2800, 1, Access::Execute),
                segment(0x5010, PAGE, Access::Write),
            ],
            tls: Some(Tls { bytes: &[], address: 0, length: tls, align: 1 << power }),
            relocations: vec![],
            entry: 0x2800,
            length: 0x7000,
        }
    }

    proptest! {
        #[test]
        fn every_page_is_in_one_part_or_a_guard(heap in 1usize..100, stack in 1usize..100, tcs in 1usize..20,
            tls in 0usize..9000, power in 0u32..12, code in 1usize..9000, tables in 0usize..9000,
            frame in 1usize..4) {
            let elf = elf(tls, power);
            let conf = Conf { heap_pages: heap, stack_pages: stack, tcs, debug: false };
            let layout = Layout::new(&elf, &conf, code, tables, frame).unwrap();
            let parts = layout.parts(&elf);
            let mut end = 0;
            for part in &parts {
                prop_assert!(part.range.start >= end, "{part:?} begins before {end:#x}");
                prop_assert!(part.range.start.is_multiple_of(PAGE) && part.range.end.is_multiple_of(PAGE));
                end = part.range.end;
                // The CPU or the kernel refuses pages that are writable and executable, and rights on a TCS.
                prop_assert!(part.flags & (WRITE | EXECUTE) != WRITE | EXECUTE);
                let thread = matches!(part.content, Content::SgxTcs(_));
                prop_assert_eq!(thread, part.flags == THREAD_PAGE);
                prop_assert_eq!(thread, part.flags & (REGULAR_PAGE | READ) == 0);
            }
            let length = layout.length();
            prop_assert!(length.is_power_of_two() && end < length && length < 2 * (end + PAGE));
            let pages: usize = parts.iter().map(|part| part.range.len() / PAGE).sum();
            let shared = 2 + 1 + 2 + code.div_ceil(PAGE) + tables.div_ceil(PAGE) + heap;
            let template = tls.next_multiple_of(1 << power).div_ceil(PAGE);
            prop_assert_eq!(pages, shared + tcs * (stack + 1 + FRAMES * frame + template + 1));
        }

        #[test]
        fn no_length_wraps_around(heap: usize, stack: usize, tcs: usize, shift in 0u32..64) {
            let conf = Conf { heap_pages: heap >> shift, stack_pages: stack >> shift, tcs: tcs >> shift, debug: false };
            if let Ok(layout) = Layout::new(&elf(9000, 3), &conf, 9000, 9000, 3) {
                let pages = conf.heap_pages as u128 + conf.tcs as u128 * conf.stack_pages as u128;
                prop_assert!(layout.length() as u128 >= pages * PAGE as u128);
                prop_assert!(conf.tcs > 0);
            }
        }

        #[test]
        fn stacks_and_variables_have_guards_around_them(stack in 1usize..9, tcs in 1usize..9, tls in 0usize..9000) {
            let elf = elf(tls, 3);
            let conf = Conf { heap_pages: 1, stack_pages: stack, tcs, debug: false };
            let layout = Layout::new(&elf, &conf, 1, 1, 1).unwrap();
            let there = |at: usize| layout.parts(&elf).iter().any(|part| part.range.contains(&at));
            for tcs in 0..tcs {
                for range in [layout.stack(tcs), layout.thread(tcs)] {
                    prop_assert!(there(range.start) && there(range.end - 1));
                    prop_assert!(!there(range.start - 1) && !there(range.end));
                }
                prop_assert!(layout.block(tcs).is_multiple_of(PAGE));
                prop_assert_eq!(layout.block(tcs) + BLOCK, layout.thread(tcs).end);
                prop_assert!(layout.block(tcs) - layout.thread(tcs).start >= tls);
            }
        }
    }
}
