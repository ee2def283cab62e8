//! The MPX program as a static ELF file of two segments. Its machine code is assembled into this program as data, and
//! is position-independent except for the addresses in [`layout`].

use std::arch::global_asm;

use super::layout::{self, BASE, DATA, DATA_BYTES};

/// Bytes of the ELF header.
const HEADER: usize = 64;
/// Bytes of a program header.
const SEGMENT: usize = 56;
/// Offset of the code in the file.
pub(super) const CODE_OFFSET: usize = 0x100;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Segment flags: read and execute; read and write.
const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;

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

/// Program whose initial data can be set.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    data: Vec<u8>,
}

impl Image {
    /// Writes a number to an address of the data.
    pub(super) fn number(&mut self, at: u64, number: u64) {
        self.put(at, &number.to_le_bytes());
    }

    /// Writes bytes to an address of the data.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        let start = (at - DATA) as usize;
        let end = start + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[start..end].copy_from_slice(bytes);
    }

    /// Returns the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let code = code();
        let text = CODE_OFFSET + code.len();
        let data_offset = text.next_multiple_of(PAGE);
        let mut file = header(BASE + CODE_OFFSET as u64);
        file.extend(segment(READ_EXECUTE, 0, BASE, text as u64, text as u64));
        let data = self.data.len() as u64;
        file.extend(segment(READ_WRITE, data_offset as u64, DATA, data, DATA_BYTES));
        debug_assert_eq!(file.len(), HEADER + 2 * SEGMENT);
        file.resize(CODE_OFFSET, 0);
        file.extend(code);
        file.resize(data_offset, 0);
        file.extend(&self.data);
        file
    }
}

/// Returns the ELF header of a static x86-64 program with two segments.
fn header(entry: u64) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [2u16, 62] {
        header.extend(half.to_le_bytes());
    }
    header.extend(1u32.to_le_bytes());
    for word in [entry, HEADER as u64, 0] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0u32.to_le_bytes());
    for half in [HEADER as u16, SEGMENT as u16, 2, 64, 0, 0] {
        header.extend(half.to_le_bytes());
    }
    header
}

/// Returns the program header of a loaded segment.
fn segment(flags: u32, offset: u64, address: u64, in_file: u64, in_memory: u64) -> Vec<u8> {
    const LOAD: u32 = 1;
    let mut segment = [LOAD, flags].map(u32::to_le_bytes).concat();
    for word in [offset, address, address, in_file, in_memory, PAGE as u64] {
        segment.extend(word.to_le_bytes());
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_does_not_overlap_the_data() {
        assert!(BASE + (CODE_OFFSET + code().len()) as u64 <= DATA);
        assert!(code().len() > 100);
    }

    #[test]
    fn the_file_contains_code_and_data() {
        let mut image = Image::default();
        image.number(DATA + 0x10, 0x1122_3344_5566_7788);
        let bytes = image.bytes();
        assert_eq!(bytes.len() % PAGE, 0x18);
        assert!(bytes.ends_with(&0x1122_3344_5566_7788u64.to_le_bytes()));
        assert_eq!(&bytes[CODE_OFFSET..CODE_OFFSET + code().len()], code());
    }
}
