//! What buffers hold, so that delivery can be verified byte for byte.

/// The seed's data: the byte at `index` is `index + offset` modulo 256.
///
/// Two patterns of different offsets differ in every byte, so what an earlier sample left behind
/// never passes for a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// What is added to each index.
    pub offset: u8,
}

/// A multiple of 256, so that every block of a buffer holds the same bytes.
const BLOCK: usize = 4096;

/// The bytes of every block, wherever in the pattern it begins.
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

    /// Writes the bytes of `position` and on; allocates nothing.
    pub fn fill(self, position: usize, bytes: &mut [u8]) {
        let block = self.block(position);
        for chunk in bytes.chunks_mut(BLOCK) {
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }

    /// Where bytes that should be those of `position` and on first differ; allocates nothing.
    pub fn first_fault(self, position: usize, bytes: &[u8]) -> Option<usize> {
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
        fn every_single_fault_is_found(offset: u8, position in 0usize..10_000, length in 1usize..10_000, at: prop::sample::Index, flip in 1u8..) {
            let pattern = Pattern { offset };
            let mut bytes = vec![0; length];
            pattern.fill(position, &mut bytes);
            prop_assert_eq!(bytes[0], (position as u8).wrapping_add(offset));
            prop_assert_eq!(pattern.first_fault(position, &bytes), None);
            let at = at.index(length);
            bytes[at] ^= flip;
            prop_assert_eq!(pattern.first_fault(position, &bytes), Some(at));
        }

        #[test]
        fn another_offset_differs_at_once(offset: u8, other in 1u8.., length in 1usize..9000) {
            let mut bytes = vec![0; length];
            Pattern { offset }.fill(0, &mut bytes);
            prop_assert_eq!(Pattern { offset: offset.wrapping_add(other) }.first_fault(0, &bytes), Some(0));
        }
    }
}
