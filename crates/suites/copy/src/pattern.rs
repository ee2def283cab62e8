//! Contents of buffers, by which delivery is verified byte for byte.

/// ESCAPE's test data: the byte at `index` is `index + offset` modulo 256.
///
/// Patterns of different offsets differ in every byte, so the contents of an earlier sample never
/// pass for a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// The number added to each index.
    pub offset: u8,
}

/// A multiple of 256, so that every block of a buffer has the same bytes.
const BLOCK: usize = 4096;

/// The bytes of a block for every offset of its first byte.
static BYTES: [u8; BLOCK + 256] = {
    let mut bytes = [0; BLOCK + 256];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = index as u8;
        index += 1;
    }
    bytes
};

impl Pattern {
    fn block(self, position: usize) -> &'static [u8] {
        let first = usize::from(self.offset.wrapping_add(position as u8));
        &BYTES[first..first + BLOCK]
    }

    /// Writes the pattern from `position` on. Allocates no memory.
    pub fn fill(self, position: usize, bytes: &mut [u8]) {
        let block = self.block(position);
        for chunk in bytes.chunks_mut(BLOCK) {
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }

    /// Returns the index of the first byte that differs from the pattern at `position`, or `None` if
    /// all match. Allocates no memory.
    pub fn first_mismatch(self, position: usize, bytes: &[u8]) -> Option<usize> {
        let block = self.block(position);
        for (number, chunk) in bytes.chunks(BLOCK).enumerate() {
            if chunk != &block[..chunk.len()] {
                let within = chunk.iter().zip(block).position(|(is, should)| is != should);
                return Some(number * BLOCK + within.unwrap_or(0));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_single_byte_error_is_found(offset: u8, position in 0usize..10_000, length in 1usize..10_000, at: prop::sample::Index, flip in 1u8..) {
            let pattern = Pattern { offset };
            let mut bytes = vec![0; length];
            pattern.fill(position, &mut bytes);
            prop_assert_eq!(bytes[0], (position as u8).wrapping_add(offset));
            prop_assert_eq!(pattern.first_mismatch(position, &bytes), None);
            let at = at.index(length);
            bytes[at] ^= flip;
            prop_assert_eq!(pattern.first_mismatch(position, &bytes), Some(at));
        }

        #[test]
        fn patterns_of_different_offsets_differ_in_the_first_byte(offset: u8, other in 1u8.., length in 1usize..9000) {
            let mut bytes = vec![0; length];
            Pattern { offset }.fill(0, &mut bytes);
            prop_assert_eq!(Pattern { offset: offset.wrapping_add(other) }.first_mismatch(0, &bytes), Some(0));
        }
    }
}
