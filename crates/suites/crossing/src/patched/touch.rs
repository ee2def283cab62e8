//! The instruction whose page faults are stamped, with readings of the counter before and after it.

use std::arch::global_asm;
use std::ffi::c_void;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

// Two functions that store the five words of `Crossing` at rsi.
//
// tollgate_crossing_touch(page, crossing, tag): fenced reading, touch, reading. The kernel returns its stamps in
// r8 and edx:eax and adds 1 to the tag in r9; without a fault, or without stamps, all four registers are
// unchanged. The second reading needs no fence before it, because iretq serialises.
//
// tollgate_crossing_empty(0, crossing, tag): the kernel's stamps, by the same instructions, with no crossing
// between them.
global_asm!(
    ".pushsection .text",
    // Global, because the compiler may place references to them in other objects.
    ".globl tollgate_crossing_touch",
    ".globl tollgate_crossing_empty",
    ".globl tollgate_crossing_touch_instruction",
    ".globl tollgate_crossing_touch_after",
    ".p2align 6",
    ".type tollgate_crossing_touch, @function",
    "tollgate_crossing_touch:",
    "mov r9, rdx",
    "xor r8d, r8d",
    "lfence",
    "rdtsc",
    "lfence",
    "mov r10d, eax",
    "mov r11d, edx",
    "tollgate_crossing_touch_instruction:",
    "mov byte ptr [rdi], 1",
    "tollgate_crossing_touch_after:",
    "mov ecx, eax",
    "mov edi, edx",
    "rdtsc",
    "lfence",
    "2:",
    "shl r11, 32",
    "or r10, r11",
    "mov [rsi], r10",
    "mov [rsi + 8], r8",
    "shl rdi, 32",
    "or rcx, rdi",
    "mov [rsi + 16], rcx",
    "shl rdx, 32",
    "or rax, rdx",
    "mov [rsi + 24], rax",
    "mov [rsi + 32], r9",
    "ret",
    ".p2align 6",
    ".type tollgate_crossing_empty, @function",
    "tollgate_crossing_empty:",
    "mov r9, rdx",
    "push 3",
    "lfence",
    "rdtsc",
    "lfence",
    "mov r10d, eax",
    "mov r11d, edx",
    // Same as CROSSING_STAMP_ENTRY in the patched entry_64.S.
    "test byte ptr [rsp], 3",
    "jz 3f",
    "cmp qword ptr [rsp], 0",
    "je 3f",
    "push rax",
    "push rdx",
    "rdtsc",
    "lfence",
    "3:",
    "mov r8d, eax",
    "shl rdx, 32",
    "or r8, rdx",
    "add rsp, 24",
    // Same as crossing_stamped_return_to_usermode, with a fence in place of iretq, which serialises.
    "lfence",
    "rdtsc",
    "lfence",
    "mov ecx, eax",
    "mov edi, edx",
    "rdtsc",
    "lfence",
    "jmp 2b",
    ".popsection",
);

unsafe extern "C" {
    fn tollgate_crossing_touch(page: *mut u8, crossing: *mut Crossing, tag: u64);
    fn tollgate_crossing_empty(unused: u64, crossing: *mut Crossing, tag: u64);
    static tollgate_crossing_touch_instruction: c_void;
    static tollgate_crossing_touch_after: c_void;
}

/// Returns the address of the touching instruction of [`TouchedPages::touch`].
pub(super) fn instruction() -> usize {
    (&raw const tollgate_crossing_touch_instruction).addr()
}

/// Returns the address of the instruction after it.
pub(super) fn after() -> usize {
    (&raw const tollgate_crossing_touch_after).addr()
}

/// Readings of the counter around one touch, in ticks.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Crossing {
    /// In user mode, just before the touch.
    pub user_before: u64,
    /// At the kernel's first instructions; valid only if stamped.
    pub kernel_in: u64,
    /// Just before the kernel's `iretq`; valid only if stamped.
    pub kernel_out: u64,
    /// In user mode, just after the touch.
    pub user_after: u64,
    /// Tag, plus 1 for each stamped return.
    pub tag: u64,
}

impl Crossing {
    /// Returns whether both stamps are from one fault of the touch with this tag.
    pub(super) fn is_stamped(&self, tag: u64) -> bool {
        self.tag == tag.wrapping_add(1)
    }

    /// Returns whether the kernel left the registers unchanged.
    pub(super) fn is_untouched(&self, tag: u64) -> bool {
        self.tag == tag
    }

    /// Returns whether the four readings are in order.
    pub(super) fn is_ordered(&self) -> bool {
        [self.user_before, self.kernel_in, self.kernel_out, self.user_after].is_sorted()
    }

    /// Returns the time from the first to the last reading, in ticks.
    pub(super) fn round_trip(&self) -> u64 {
        self.user_after.saturating_sub(self.user_before)
    }
}

/// Generator of tags that repeat only after 2^64 touches.
#[derive(Debug)]
pub(super) struct Tags(u64);

impl Tags {
    /// Starts at `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next tag.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        // The golden ratio separates consecutive tags widely, so no recent tag is another plus 1.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0
    }
}

/// Small pages of anonymous memory.
#[derive(Debug)]
pub(super) struct TouchedPages(Mapping);

impl TouchedPages {
    /// Maps `pages` absent pages.
    ///
    /// # Errors
    /// Returns `unavailable` without memory.
    pub(super) fn new(pages: usize) -> Result<Self, Failure> {
        Mapping::anonymous(pages * PAGE)
            .map(Self)
            .map_err(|why| Failure::unavailable(why.to_string(), "free memory"))
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.0.len() / PAGE
    }

    /// Discards the pages, so that the next touch of each faults.
    pub(super) fn madvise_dontneed(&self) {
        self.0.madvise_dontneed();
    }

    /// Writes a byte of one page, between two readings of the counter.
    #[inline]
    pub(super) fn touch(&self, page: usize, tag: u64) -> Crossing {
        assert!(page < self.count(), "page {page} of {}", self.count());
        let mut crossing = Crossing::default();
        let address = self.0.as_mut_ptr().wrapping_add(page * PAGE);
        // SAFETY: the byte is inside the mapping, which has no references; a mapping that is not writable
        // raises SIGSEGV, which is not undefined behaviour. The assembly follows the C calling convention,
        // in which all registers that the kernel may change are caller-saved.
        unsafe { tollgate_crossing_touch(address, &raw mut crossing, tag) };
        crossing
    }

    /// Makes the pages inaccessible, so that each touch raises SIGSEGV.
    ///
    /// # Errors
    /// Returns the `errno` of `mprotect(2)`.
    pub(super) fn mprotect_none(&self) -> Result<(), Failure> {
        Ok(self.0.mprotect_none()?)
    }
}

/// Returns the four readings with no crossing between them, taken by the kernel's instructions.
pub(super) fn empty_stamps() -> Crossing {
    let mut crossing = Crossing::default();
    // SAFETY: the function accesses only the crossing and its stack, and follows the C calling convention.
    unsafe { tollgate_crossing_empty(0, &raw mut crossing, 0) };
    crossing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unstamped_touch_keeps_its_tag_and_writes_its_page() {
        let pages = TouchedPages::new(2).unwrap();
        let mut tags = Tags::new(7);
        for page in [0, 1, 0] {
            let tag = tags.next();
            let crossing = pages.touch(page, tag);
            assert!(crossing.is_untouched(tag) && !crossing.is_stamped(tag));
            assert!(crossing.user_before > 0 && crossing.round_trip() < 1 << 40);
            // SAFETY: the page is mapped and has just been written.
            assert_eq!(unsafe { pages.0.as_ptr().add(page * PAGE).read() }, 1);
        }
    }

    #[test]
    fn empty_stamps_are_in_order() {
        assert!((0..1000).all(|_| empty_stamps().is_ordered()));
    }

    #[test]
    fn a_stale_stamp_is_recognised() {
        let mut tags = Tags::new(u64::MAX);
        let (earlier, now) = (tags.next(), tags.next());
        let stale = Crossing { tag: earlier.wrapping_add(1), ..Crossing::default() };
        assert!(stale.is_stamped(earlier) && !stale.is_stamped(now) && !stale.is_untouched(now));
        let twice = Crossing { tag: now.wrapping_add(2), ..Crossing::default() };
        assert!(!twice.is_stamped(now));
    }
}
