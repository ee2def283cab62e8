//! The one instruction whose page faults are stamped, and the clock read on both sides of it.

use std::arch::global_asm;
use std::ffi::c_void;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

// Three entries, each taking rdi and leaving the five words of `Crossing` at rsi.
//
// tollgate_crossing_touch(page, crossing, tag): fenced clock, touch, clock. The kernel's stamps
// arrive in r8 and edx:eax, and one is added to the tag in r9; with no fault, or no stamps, all
// four registers stay. No fence stands before the second reading, as iretq is one.
//
// tollgate_crossing_alone(0, crossing, tag): the same stamps as the kernel takes, by its own
// instructions, with no crossing between them.
global_asm!(
    ".pushsection .text",
    // Other parts of the program refer to them, which the compiler may put into other objects.
    ".globl tollgate_crossing_touch",
    ".globl tollgate_crossing_alone",
    ".globl tollgate_crossing_touch_instruction",
    ".globl tollgate_crossing_touch_after",
    ".p2align 6",
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
    "tollgate_crossing_alone:",
    "mov r9, rdx",
    "push 3",
    "lfence",
    "rdtsc",
    "lfence",
    "mov r10d, eax",
    "mov r11d, edx",
    // As CROSSING_STAMP_ENTRY in the patched entry_64.S.
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
    // As crossing_stamped_return_to_usermode, with a fence for the iretq, which serialises.
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
    fn tollgate_crossing_alone(none: u64, crossing: *mut Crossing, tag: u64);
    static tollgate_crossing_touch_instruction: c_void;
    static tollgate_crossing_touch_after: c_void;
}

/// Where the instruction lies that [`Pages::touch`] touches with.
pub(super) fn instruction() -> usize {
    // Only the label's address is taken.
    (&raw const tollgate_crossing_touch_instruction).addr()
}

/// Where execution goes on after it.
pub(super) fn after() -> usize {
    (&raw const tollgate_crossing_touch_after).addr()
}

/// The clock around one touch, ticks.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Crossing {
    /// In user mode, just before.
    pub user_before: u64,
    /// At the kernel's first instructions; means nothing unless stamped.
    pub kernel_in: u64,
    /// Just before the kernel's `iretq`; means nothing unless stamped.
    pub kernel_out: u64,
    /// In user mode, just after.
    pub user_after: u64,
    /// The tag, plus one for each stamped return.
    pub tag: u64,
}

impl Crossing {
    /// Whether both stamps are this touch's own, made with this tag, by one fault.
    pub(super) fn is_stamped(&self, tag: u64) -> bool {
        self.tag == tag.wrapping_add(1)
    }

    /// Whether the kernel left the registers alone.
    pub(super) fn is_untouched(&self, tag: u64) -> bool {
        self.tag == tag
    }

    /// Whether the four readings follow one another.
    pub(super) fn is_ordered(&self) -> bool {
        [self.user_before, self.kernel_in, self.kernel_out, self.user_after].is_sorted()
    }

    /// The whole way.
    pub(super) fn round_trip(&self) -> u64 {
        self.user_after.saturating_sub(self.user_before)
    }
}

/// Tags that differ from one another for 2^64 touches.
#[derive(Debug)]
pub(super) struct Tags(u64);

impl Tags {
    /// Beginning anywhere.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        // The golden ratio: tags near in time are far from one another, so none is another plus one.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0
    }
}

/// Small pages of anonymous memory.
#[derive(Debug)]
pub(super) struct Pages(Mapping);

impl Pages {
    /// So many pages, none yet there.
    ///
    /// # Errors
    /// Where there is no memory.
    pub(super) fn new(pages: usize) -> Result<Self, Failure> {
        Mapping::anonymous(pages * PAGE)
            .map(Self)
            .map_err(|why| Failure::unavailable(why.to_string(), "free memory"))
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.0.len() / PAGE
    }

    /// Gives them up, so that the next touch of each faults.
    pub(super) fn give_up(&self) {
        self.0.madvise_dontneed();
    }

    /// Writes a byte of one page, between two readings of the clock.
    #[inline]
    pub(super) fn touch(&self, page: usize, tag: u64) -> Crossing {
        assert!(page < self.count(), "page {page} of {}", self.count());
        let mut crossing = Crossing::default();
        let address = self.0.as_mut_ptr().wrapping_add(page * PAGE);
        // SAFETY: the byte lies in the mapping, to which nobody holds references; a mapping that may
        // not be written raises SIGSEGV, which is no undefined behaviour. The assembly keeps to the
        // C calling convention, of which all registers that the kernel may change are clobbered.
        unsafe { tollgate_crossing_touch(address, &raw mut crossing, tag) };
        crossing
    }

    /// Forbids all access: each touch is a SIGSEGV from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn forbid(&self) -> Result<(), Failure> {
        // SAFETY: the range is the mapping's own, to which nobody holds references.
        let code =
            unsafe { libc::mprotect(self.0.as_mut_ptr().cast(), self.0.len(), libc::PROT_NONE) };
        if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
    }
}

/// The four readings with no crossing between them, by the kernel's own instructions.
pub(super) fn stamps_alone() -> Crossing {
    let mut crossing = Crossing::default();
    // SAFETY: touches the words of the crossing and its own stack alone, and keeps to the C calling
    // convention.
    unsafe { tollgate_crossing_alone(0, &raw mut crossing, 0) };
    crossing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_that_nobody_stamps_keeps_its_tag_and_writes_its_page() {
        let pages = Pages::new(2).unwrap();
        let mut tags = Tags::new(7);
        for page in [0, 1, 0] {
            let tag = tags.next();
            let crossing = pages.touch(page, tag);
            assert!(crossing.is_untouched(tag) && !crossing.is_stamped(tag));
            assert!(crossing.user_before > 0 && crossing.round_trip() < 1 << 40);
            // SAFETY: the page is mapped and was just written.
            assert_eq!(unsafe { pages.0.as_ptr().add(page * PAGE).read() }, 1);
        }
    }

    #[test]
    fn stamps_alone_follow_one_another() {
        assert!((0..1000).all(|_| stamps_alone().is_ordered()));
    }

    #[test]
    fn a_stale_stamp_is_none() {
        let mut tags = Tags::new(u64::MAX);
        let (earlier, now) = (tags.next(), tags.next());
        let stale = Crossing { tag: earlier.wrapping_add(1), ..Crossing::default() };
        assert!(stale.is_stamped(earlier) && !stale.is_stamped(now) && !stale.is_untouched(now));
        let twice = Crossing { tag: now.wrapping_add(2), ..Crossing::default() };
        assert!(!twice.is_stamped(now));
    }
}
