//! The measurement of an enclave during its creation: MRENCLAVE.
//!
//! Source: Intel SDM, volume 3D, the operations of ECREATE, EADD and EEXTEND. Each adds a record of 64 bytes to one
//! SHA-256, and EEXTEND also adds 256 bytes of the page.

use sha2::{Digest, Sha256};

use super::structures::{Plain, SecInfo};
use crate::conf::PAGE;

/// Number of bytes that one EEXTEND measures.
const EXTENDED: usize = 256;
/// Number of bytes of a SECINFO that are measured.
const INFORMATION: usize = 48;

/// A measurement in progress.
#[derive(Debug, Clone)]
pub(super) struct Measurement(Sha256);

impl Measurement {
    /// Starts the measurement of an enclave of `length` bytes with `frame_pages` pages per frame.
    pub(super) fn begin(frame_pages: u32, length: u64) -> Self {
        let mut log = Self(Sha256::new());
        log.record(b"ECREATE\0", &[&frame_pages.to_le_bytes(), &length.to_le_bytes()]);
        log
    }

    /// Records that a page is added.
    pub(super) fn add(&mut self, offset: u64, information: &SecInfo) {
        let information = &information.bytes()[..INFORMATION];
        self.record(b"EADD\0\0\0\0", &[&offset.to_le_bytes(), information]);
    }

    /// Records the bytes of a page.
    pub(super) fn extend(&mut self, offset: u64, page: &[u8; PAGE]) {
        for (bytes, offset) in page.chunks_exact(EXTENDED).zip((offset..).step_by(EXTENDED)) {
            self.record(b"EEXTEND\0", &[&offset.to_le_bytes()]);
            self.0.update(bytes);
        }
    }

    /// Returns the measurement.
    pub(super) fn end(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    fn record(&mut self, what: &[u8; 8], fields: &[&[u8]]) {
        let mut record = [0; 64];
        let mut at = 0;
        for bytes in [what.as_slice()].iter().chain(fields) {
            record[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        self.0.update(record);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::structures::{READ, REGULAR_PAGE};
    use super::*;

    fn counted(first: u8) -> [u8; PAGE] {
        std::array::from_fn(|at| (at as u8).wrapping_add(first))
    }

    proptest! {
        #[test]
        fn order_offset_rights_and_every_byte_matter(at in 0..PAGE, byte in 1u8.., place in 1u64..100, flag in 0u32..3) {
            let of = |pages: &[(u64, u64, [u8; PAGE])]| {
                let mut measured = Measurement::begin(1, 1 << 20);
                for (offset, flags, bytes) in pages {
                    measured.add(*offset, &SecInfo::new(REGULAR_PAGE | flags));
                    measured.extend(*offset, bytes);
                }
                measured.end()
            };
            let (one, two) = ((0, READ, counted(0)), (0x1000, READ, counted(1)));
            let whole = of(&[one, two]);
            prop_assert_eq!(whole, of(&[one, two]));
            prop_assert_ne!(whole, of(&[two, one]));
            prop_assert_ne!(whole, of(&[one]));
            let mut changed = two;
            changed.2[at] ^= byte;
            prop_assert_ne!(whole, of(&[one, changed]));
            prop_assert_ne!(whole, of(&[one, (0x1000 * (place + 1), two.1, two.2)]));
            prop_assert_ne!(whole, of(&[one, (two.0, two.1 ^ 1 << flag, two.2)]));
        }
    }
}
