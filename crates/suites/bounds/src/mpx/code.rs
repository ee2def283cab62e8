//! Machine code of the MPX program, assembled into this program as data. It is position-independent except for the
//! addresses in [`layout`].

use std::arch::global_asm;

use super::layout;

/// Defines the constants of the layout for the assembler and includes the sources.
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

/// Returns the code; its entry point is the first byte.
pub(super) fn code() -> &'static [u8] {
    let (start, end) = (&raw const tollgate_mpx_code, &raw const tollgate_mpx_end);
    // SAFETY: both labels are in one read-only section, and the code is between the first and the second.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}
