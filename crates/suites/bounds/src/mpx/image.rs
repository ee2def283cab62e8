//! The program as a file: a static ELF of two segments, made in memory.

use super::code::code;
use super::layout::{BASE, DATA, DATA_BYTES};

/// Bytes of the ELF header.
const HEADER: usize = 64;
/// Bytes of a program header.
const SEGMENT: usize = 56;
/// Where the code begins in the file.
const CODE_AT: usize = 0x100;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Read and execute; read and write.
const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;

/// A program before it is written: its data can be set.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    data: Vec<u8>,
}

impl Image {
    /// Puts a number at an address of the data.
    pub(super) fn number(&mut self, at: u64, number: u64) {
        self.put(at, &number.to_le_bytes());
    }

    /// Puts bytes at an address of the data.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        let start = (at - DATA) as usize;
        let end = start + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[start..end].copy_from_slice(bytes);
    }

    /// The whole file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let code = code();
        let text = CODE_AT + code.len();
        let data_at = text.next_multiple_of(PAGE);
        let mut file = header(BASE + CODE_AT as u64);
        file.extend(segment(READ_EXECUTE, 0, BASE, text as u64, text as u64));
        let data = self.data.len() as u64;
        file.extend(segment(READ_WRITE, data_at as u64, DATA, data, DATA_BYTES));
        debug_assert_eq!(file.len(), HEADER + 2 * SEGMENT);
        file.resize(CODE_AT, 0);
        file.extend(code);
        file.resize(data_at, 0);
        file.extend(&self.data);
        file
    }
}

/// The header of a static program for x86-64 with two segments.
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

/// A part of the file that is loaded.
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
    fn the_code_leaves_room_for_the_data() {
        assert!(BASE + (CODE_AT + code().len()) as u64 <= DATA);
        assert!(code().len() > 100);
    }

    #[test]
    fn what_is_put_stands_in_the_file() {
        let mut image = Image::default();
        image.number(DATA + 0x10, 0x1122_3344_5566_7788);
        let bytes = image.bytes();
        assert_eq!(bytes.len() % PAGE, 0x18);
        assert!(bytes.ends_with(&0x1122_3344_5566_7788u64.to_le_bytes()));
        assert_eq!(&bytes[CODE_AT..CODE_AT + code().len()], code());
    }
}
