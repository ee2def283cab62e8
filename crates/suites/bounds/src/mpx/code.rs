//! The program's machine code: assembled into this program as data, position-independent but for the
//! addresses of [`layout`].

use std::arch::global_asm;

use super::layout;

/// Gives the assembler the layout's names, then the source.
macro_rules! assemble {
    ($($name:ident)*) => {
        global_asm!(
            ".pushsection .rodata.tollgate_mpx, \"a\", @progbits",
            ".balign 64",
            $(concat!(".set ", stringify!($name), ", {", stringify!($name), "}"),)*
            include_str!("code/instructions.s"),
            include_str!("code/start.s"),
            include_str!("code/handler.s"),
            include_str!("code/operations.s"),
            include_str!("code/race.s"),
            ".popsection",
            $($name = const layout::$name,)*
            options(att_syntax)
        );
    };
}

assemble! {
    TRUE_DIRECTORY SHIFTED_DIRECTORY DIRECTORY_BYTES TABLE_BYTES
    MODE COUNT POINTERS PASSES OFFSET THREADED STATUS STOP
    ANSWERS TABLES VIOLATIONS FILLS BEGIN END ANSWER_BYTES
    MASK_MAIN MASK_OTHER MASK_BYTES OBJECTS OBJECT_BYTES ACTION ENABLED OTHER_STACK
    COMMANDS RESULTS ARRAY EXIT_REFUSED EXIT_FAULT
}

unsafe extern "C" {
    static tollgate_mpx_code: u8;
    static tollgate_mpx_end: u8;
}

/// The code, which is entered at its first byte.
pub(super) fn code() -> &'static [u8] {
    let (begin, end) = (&raw const tollgate_mpx_code, &raw const tollgate_mpx_end);
    // SAFETY: both labels stand in one section of read-only data, the second behind the first, with
    // the code between them.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }
}
