//! The guest's machine code: assembled into this program as data, position-independent but for the
//! addresses of [`layout`].

use std::arch::global_asm;

use super::kind::Kind;
use super::layout;

const KIND_SAME_RING: u32 = Kind::SameRing as u32;

/// Gives the assembler the layout's names, then the source.
macro_rules! assemble {
    ($($name:ident)*) => {
        global_asm!(
            ".pushsection .rodata.tollgate_guest, \"a\", @progbits",
            ".set KIND_SAME_RING, {KIND_SAME_RING}",
            $(concat!(".set ", stringify!($name), ", {", stringify!($name), "}"),)*
            include_str!("code/stamps.s"),
            include_str!("code/kernel.s"),
            include_str!("code/print.s"),
            include_str!("code/clocks.s"),
            include_str!("code/alone.s"),
            include_str!("code/entries.s"),
            include_str!("code/user.s"),
            include_str!("code/parts.s"),
            ".popsection",
            KIND_SAME_RING = const KIND_SAME_RING,
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
    ALONE KIND ISOLATION CROSSINGS WARMUP SAMPLES ROUNDS SEED
    SEEN_CS FLOOR_HANDLER GATE_TAKEN KERNEL_RSP
    FAULT_VECTOR FAULT_ERROR FAULT_RIP FAULT_CS FAULT_CR2
    ADDS_BEFORE ADDS_AFTER ADDS MULTIPLIES_BEFORE MULTIPLIES_AFTER MULTIPLIES PIT_COUNT LINE_SUM POSITION ROUND TEXT
    SENTINEL EXPECTED LEFT WARM_LEFT MADE STAMPED LOOP FLOOR_USER
    EMPTY_PAIRS EMPTY_BINS EMPTY_LAST EMPTY_LONGEST
    U2K_BINS U2K_LONGEST K2U_BINS K2U_LONGEST BINS_LAST BINS_END
}

unsafe extern "C" {
    static tollgate_guest_code: u8;
    static tollgate_guest_parts: [u32; 6];
}

/// The code, and where its parts lie in it, in bytes from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    /// All of it.
    pub bytes: &'static [u8],
    /// Where a multiboot loader enters, 32 bits.
    pub start32: usize,
    /// Where KVM enters, 64 bits.
    pub start64: usize,
    /// Where the entries' pages begin; before them lies what the kernel alone has.
    pub entries: usize,
    /// The first of the stubs of the exceptions that nobody expects, [`STUB`] bytes each.
    pub stubs: usize,
    /// Where ring 3's pages begin.
    pub user: usize,
}

/// Bytes of a stub.
pub(super) const STUB: usize = 16;

/// The code as it was assembled.
pub(super) fn code() -> Code {
    // SAFETY: the assembler emits the table with 6 numbers, and as many bytes of code as its last
    // number says; both are read-only data of this program.
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
    use crate::guest::layout::{CODE_ROOM, PAGE};

    #[test]
    fn parts_lie_on_pages_and_fit() {
        let code = code();
        assert!(code.bytes.len() as u64 <= CODE_ROOM, "{}", code.bytes.len());
        assert_eq!((code.entries as u64 % PAGE, code.user as u64 % PAGE), (0, 0));
        assert!(code.start32 < code.start64 && code.start64 < code.entries);
        assert!(code.entries < code.stubs && code.stubs < code.user);
    }

    /// Each stub pushes its own vector: what a fault says depends on it.
    #[test]
    fn stubs_stand_by_their_vectors() {
        let code = code();
        for vector in 0..32u8 {
            let stub = &code.bytes[code.stubs + usize::from(vector) * STUB..][..STUB];
            let code = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30].contains(&vector);
            let expected: &[u8] = if code { &[0x6a, vector] } else { &[0x6a, 0, 0x6a, vector] };
            assert!(stub.starts_with(expected), "{vector}: {stub:x?}");
        }
    }

    const WAIT: [u8; 3] = [0x0f, 0xae, 0xe8];
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    const TO_KERNEL: &[u8] = &[0x41, 0x0f, 0x22, 0xdc];
    const TO_USER: &[u8] = &[0x41, 0x0f, 0x22, 0xdd];

    fn places(instructions: &[u8]) -> usize {
        code().bytes.windows(instructions.len()).filter(|window| *window == instructions).count()
    }

    /// A first stamp in ring 3, then what is timed.
    fn begun_in_user(timed: &[u8]) -> Vec<u8> {
        let moves: &[u8] = &[0x41, 0x89, 0xc0, 0x41, 0x89, 0xd1];
        [&WAIT, &RDTSC[..], moves, &WAIT, timed].concat()
    }

    /// A first stamp in the handler, then what is timed.
    fn begun_in_handler(timed: &[u8]) -> Vec<u8> {
        let moves: &[u8] = &[0x89, 0xc6, 0x89, 0xd5];
        [&WAIT, &RDTSC[..], moves, &WAIT, timed].concat()
    }

    /// What is timed, then a second stamp.
    fn ended(timed: &[u8]) -> Vec<u8> {
        [timed, &WAIT, &RDTSC[..], &WAIT].concat()
    }

    /// The way in as ring 3 has it: first stamp, crossing, and where it comes back to, the second.
    #[test]
    fn nothing_but_the_crossing_stands_between_the_stamps_of_ring_3() {
        let crossings: [(&str, &[u8]); 5] = [
            ("mov %ebx,(%rdi)", &[0x89, 0x1f]),
            ("int $0x80", &[0xcd, 0x80]),
            ("int3", &[0xcc]),
            ("ud2", &[0x0f, 0x0b]),
            ("syscall", &[0x0f, 0x05]),
        ];
        for (name, crossing) in crossings {
            assert_eq!(places(&ended(&begun_in_user(crossing))), 1, "{name}");
        }
        // Of none and of the empty pair.
        assert_eq!(places(&ended(&begun_in_user(&[]))), 2);
        assert_eq!(places(&ended(&begun_in_handler(&[]))), 1);
    }

    /// The handlers: the second stamp comes first of all, and the way out follows the first stamp.
    #[test]
    fn nothing_but_cr3_stands_between_a_handlers_stamps_and_the_crossing() {
        let second = ended(&[]);
        let entries = &code().bytes[code().entries..code().stubs];
        let handlers: Vec<&[u8]> =
            entries.chunks(0x80).filter(|h| h.len() >= 0x40).take(12).collect();
        for (index, handler) in handlers.into_iter().enumerate() {
            let isolated: &[u8] = if index % 2 == 1 { TO_KERNEL } else { &[] };
            assert!(handler.starts_with(&[isolated, &second].concat()), "{index}: {handler:x?}");
        }
        let (iretq, sysretq): (&[u8], &[u8]) = (&[0x48, 0xcf], &[0x48, 0x0f, 0x07]);
        for (isolated, handlers) in [(&[][..], 5), (TO_USER, 5)] {
            assert_eq!(places(&begun_in_handler(&[isolated, iretq].concat())), handlers);
            assert_eq!(places(&begun_in_handler(&[isolated, sysretq].concat())), 1);
        }
    }
}
