//! The guest's machine code, assembled into this program as data. It is position-independent except for the
//! addresses of [`layout`].

use std::arch::global_asm;

use super::{CrossingKind, Stamp, layout};

/// Assembles the source with the layout's names defined.
macro_rules! assemble {
    ($($name:ident)*) => {
        global_asm!(
            ".pushsection .rodata.tollgate_guest, \"a\", @progbits",
            ".set SAME_RING, {SAME_RING}",
            ".set STAMP_LFENCE, {STAMP_LFENCE}",
            ".set STAMP_UNFENCED, {STAMP_UNFENCED}",
            ".set STAMP_MFENCE, {STAMP_MFENCE}",
            ".set STAMP_XPERF, {STAMP_XPERF}",
            $(concat!(".set ", stringify!($name), ", {", stringify!($name), "}"),)*
            include_str!("code/stamps.s"),
            include_str!("code/kernel.s"),
            include_str!("code/print.s"),
            include_str!("code/clocks.s"),
            include_str!("code/standalone.s"),
            include_str!("code/entries.s"),
            include_str!("code/user.s"),
            ".popsection",
            SAME_RING = const CrossingKind::SameRing as u32,
            STAMP_LFENCE = const Stamp::Lfence as u32,
            STAMP_UNFENCED = const Stamp::Unfenced as u32,
            STAMP_MFENCE = const Stamp::Mfence as u32,
            STAMP_XPERF = const Stamp::Xperf as u32,
            $($name = const layout::$name,)*
            options(att_syntax)
        );
    };
}

assemble! {
    BASE TABLES IDT GDTR IDTR VGA SCHEDULE HOLE
    TRAP_STACK KERNEL_STACK USER_STACK
    KERNEL_CS KERNEL_SS SYSRET_BASE USER_SS USER_CS TSS_SELECTOR INT_VECTOR
    EXIT_PORT EXIT_DONE EXIT_FAULT
    KEY KEY_AT KERNEL_CR3 USER_CR3 PCID
    STANDALONE VARIANT ISOLATION CROSSINGS WARMUP SAMPLES ROUNDS SEED
    SEEN_CS FLOOR_HANDLER GATE_TAKEN KERNEL_RSP
    FAULT_VECTOR FAULT_ERROR FAULT_RIP FAULT_CS FAULT_CR2
    ADDS_BEFORE ADDS_AFTER ADDS MULTIPLIES_BEFORE MULTIPLIES_AFTER MULTIPLIES PIT_COUNT LINE_SUM POSITION ROUND TEXT
    SENTINEL EXPECTED LEFT WARM_LEFT MADE STAMPED LOOP FLOOR_USER PAIRS STAMPS
    EMPTY_PAIRS EMPTY_BINS EMPTY_LAST EMPTY_LONGEST
    U2K_BINS U2K_LONGEST K2U_BINS K2U_LONGEST BINS_LAST BINS_END
}

unsafe extern "C" {
    static tollgate_guest_code: u8;
    static tollgate_guest_parts: [u32; 6];
}

/// The code and the byte offsets of its parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    /// The whole code.
    pub bytes: &'static [u8],
    /// 32-bit entry for a multiboot loader.
    pub start32: usize,
    /// 64-bit entry for KVM.
    pub start64: usize,
    /// First page of the entry code, after the kernel's private pages.
    pub entries: usize,
    /// First stub of the unexpected exceptions; each has [`STUB`] bytes.
    pub stubs: usize,
    /// First page of ring 3's code.
    pub user: usize,
}

/// Size of a stub, in bytes.
pub(super) const STUB: usize = 16;

/// Returns the assembled code.
pub(super) fn code() -> Code {
    // SAFETY: the assembler emits the table with 6 numbers, the last of which is the length of the code;
    // both are read-only data of this program.
    let ([start32, start64, entries, stubs, user, end], bytes) = unsafe {
        let parts = tollgate_guest_parts.map(|part| part as usize);
        (parts, std::slice::from_raw_parts(&raw const tollgate_guest_code, parts[5]))
    };
    debug_assert_eq!(end, bytes.len());
    Code { bytes, start32, start64, entries, stubs, user }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::layout::{CODE_CAPACITY, PAGE};

    #[test]
    fn parts_start_on_pages_and_fit() {
        let code = code();
        assert!(code.bytes.len() as u64 <= CODE_CAPACITY, "{}", code.bytes.len());
        assert_eq!((code.entries as u64 % PAGE, code.user as u64 % PAGE), (0, 0));
        assert!(code.start32 < code.start64 && code.start64 < code.entries);
        assert!(code.entries < code.stubs && code.stubs < code.user);
    }

    #[test]
    fn each_stub_pushes_its_vector() {
        let code = code();
        for vector in 0..32u8 {
            let stub = &code.bytes[code.stubs + usize::from(vector) * STUB..][..STUB];
            let has_code = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30].contains(&vector);
            let expected: &[u8] = if has_code { &[0x6a, vector] } else { &[0x6a, 0, 0x6a, vector] };
            assert!(stub.starts_with(expected), "{vector}: {stub:x?}");
        }
    }

    const LFENCE: [u8; 3] = [0x0f, 0xae, 0xe8];
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    const TO_KERNEL: &[u8] = &[0x41, 0x0f, 0x22, 0xdc];
    const TO_USER: &[u8] = &[0x41, 0x0f, 0x22, 0xdd];

    fn occurrences(instructions: &[u8]) -> usize {
        code().bytes.windows(instructions.len()).filter(|window| *window == instructions).count()
    }

    /// Returns a first stamp in ring 3, followed by the timed code.
    fn after_user_stamp(timed: &[u8]) -> Vec<u8> {
        let moves: &[u8] = &[0x41, 0x89, 0xc0, 0x41, 0x89, 0xd1];
        [&LFENCE, &RDTSC[..], moves, &LFENCE, timed].concat()
    }

    /// Returns a first stamp in the handler, followed by the timed code.
    fn after_handler_stamp(timed: &[u8]) -> Vec<u8> {
        let moves: &[u8] = &[0x89, 0xc6, 0x89, 0xd5];
        [&LFENCE, &RDTSC[..], moves, &LFENCE, timed].concat()
    }

    /// Returns the timed code, followed by a second stamp.
    fn before_stamp(timed: &[u8]) -> Vec<u8> {
        [timed, &LFENCE, &RDTSC[..], &LFENCE].concat()
    }

    /// Ring 3's code: the first stamp of the entry, the crossing, and the second stamp of the exit.
    #[test]
    fn only_the_crossing_is_between_the_stamps_of_ring_3() {
        let crossings: [(&str, &[u8]); 5] = [
            ("mov %ebx,(%rdi)", &[0x89, 0x1f]),
            ("int $0x80", &[0xcd, 0x80]),
            ("int3", &[0xcc]),
            ("ud2", &[0x0f, 0x0b]),
            ("syscall", &[0x0f, 0x05]),
        ];
        for (name, crossing) in crossings {
            assert_eq!(occurrences(&before_stamp(&after_user_stamp(crossing))), 1, "{name}");
        }
        // The kind none and the empty pair.
        assert_eq!(occurrences(&before_stamp(&after_user_stamp(&[]))), 2);
        assert_eq!(occurrences(&before_stamp(&after_handler_stamp(&[]))), 1);
    }

    /// A handler starts with the second stamp of the entry and ends with the first stamp of the exit.
    #[test]
    fn only_the_write_of_cr3_is_between_a_handlers_stamps_and_the_crossing() {
        let second = before_stamp(&[]);
        let entries = &code().bytes[code().entries..code().stubs];
        let handlers: Vec<&[u8]> =
            entries.chunks(0x80).filter(|h| h.len() >= 0x40).take(12).collect();
        for (index, handler) in handlers.into_iter().enumerate() {
            let isolated: &[u8] = if index % 2 == 1 { TO_KERNEL } else { &[] };
            assert!(handler.starts_with(&[isolated, &second].concat()), "{index}: {handler:x?}");
        }
        let (iretq, sysretq): (&[u8], &[u8]) = (&[0x48, 0xcf], &[0x48, 0x0f, 0x07]);
        for (isolated, handlers) in [(&[][..], 5), (TO_USER, 5)] {
            assert_eq!(occurrences(&after_handler_stamp(&[isolated, iretq].concat())), handlers);
            assert_eq!(occurrences(&after_handler_stamp(&[isolated, sysretq].concat())), 1);
        }
    }

    /// xperf's stamps, by its document: the crossing with the instructions between it and the stamps.
    #[test]
    fn the_other_stamps_differ_in_fences_and_xperfs_in_its_instructions() {
        const MFENCE: &[u8] = &[0x0f, 0xae, 0xf0];
        let moves: &[u8] = &[0x41, 0x89, 0xc0, 0x41, 0x89, 0xd1];
        let crossing: &[u8] = &[0x89, 0x1f];
        let unfenced = [&RDTSC[..], moves, crossing, &RDTSC].concat();
        assert_eq!(occurrences(&unfenced), 2);
        assert_eq!(occurrences(&[MFENCE, &unfenced, MFENCE].concat()), 1);
        // shl $32,%rdx; or %rdx,%rax
        let join: &[u8] = &[0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0];
        let first = [MFENCE, &RDTSC, join].concat();
        let second = [&RDTSC[..], MFENCE].concat();
        // mov %rax,(%r11)
        let to_memory: &[u8] = &[0x49, 0x89, 0x03];
        assert_eq!(occurrences(&[&first, to_memory, crossing, &second].concat()), 1);
        // testb $3,16(%rsp); jz over the stamp; mov %rax,-8(%rsp); mov %rdx,-16(%rsp)
        let entry: &[u8] = &[
            0xf6, 0x44, 0x24, 0x10, 0x03, 0x74, 0x0f, 0x48, 0x89, 0x44, 0x24, 0xf8, 0x48, 0x89,
            0x54, 0x24, 0xf0,
        ];
        // In the handler and without a crossing.
        assert_eq!(occurrences(&[entry, &second].concat()), 2);
        // mov %rax,(%rcx); pop %rcx; pop %rdx; pop %rax; iretq
        let exit: &[u8] = &[0x48, 0x89, 0x01, 0x59, 0x5a, 0x58, 0x48, 0xcf];
        assert_eq!(occurrences(&[&first, exit].concat()), 1);
    }
}
