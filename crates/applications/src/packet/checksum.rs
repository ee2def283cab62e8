//! Internet checksums: ones' complement sums of 16-bit words (RFC 1071), and their incremental update (RFC 1624).
//!
//! Words are read in the byte order of the machine. The sum is then that of network order with its bytes swapped (RFC 1071,
//! section 2 B), so sums and checksums here are the bytes of the packet as a native integer.

use super::{Headers, TCP, UDP, read};

/// Returns the sum of bytes, to be [folded](fold). An odd last byte counts as if a zero followed.
#[inline(always)]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // 2^32 words of 32 bits fit. The compiler vectorises the loop.
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Returns the sum of the 16-bit words in `words`: a chain of additions with carry.
#[inline(always)]
pub fn sum_words<const N: usize>(words: [u64; N]) -> u64 {
    let (mut sum, mut carry) = (0_u64, false);
    for word in words {
        (sum, carry) = sum.carrying_add(word, carry);
    }
    // Does not overflow: after a carry the sum is at most 2^64 - 2.
    sum + u64::from(carry)
}

/// Folds a sum to 16 bits.
#[inline(always)]
pub fn fold(sum: u64) -> u16 {
    // The lower half of each sum of halves carries into the upper one, which thus is the sum with end-around carry.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Returns what a change of 32 bits from `old` to `new` adds to the sum of whatever contains them: `~m + m'` of RFC 1624.
#[inline(always)]
pub fn change(old: u32, new: u32) -> u16 {
    fold(u64::from(!old) + u64::from(new))
}

/// Returns a checksum after a [`change`] of what it covers: equation 3 of RFC 1624, `HC' = ~(~HC + ~m + m')`. It is as right or
/// wrong as before.
#[inline(always)]
pub fn update(checksum: u16, change: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(change);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Like [`update`], for a checksum of UDP: 0 states that there is none, so it remains 0, and a computed 0 becomes its
/// equivalent 0xffff (RFC 768).
#[inline(always)]
pub fn update_udp(checksum: u16, change: u16) -> u16 {
    if checksum == 0 {
        return 0;
    }
    without_zero(update(checksum, change))
}

/// Returns the checksum of an IPv4 header, computed from all its other bytes.
pub fn of_ip(frame: &[u8], headers: &Headers) -> u16 {
    let header = frame.get(headers.ip..headers.transport).unwrap_or_default();
    let present = u64::from(u16::from_ne_bytes(read(frame, headers.ip + 10)));
    !fold(sum(header) + (!present & 0xffff))
}

/// Returns the checksum of UDP or TCP, computed from all other bytes; `None` if it is another protocol. It is never 0 for
/// UDP.
pub fn of_transport(frame: &[u8], headers: &Headers) -> Option<u16> {
    let present = u64::from(u16::from_ne_bytes(read(frame, field(headers)?)));
    let checksum = !fold(segment_sum(frame, headers) + (!present & 0xffff));
    Some(if headers.protocol == UDP { without_zero(checksum) } else { checksum })
}

/// Returns whether the checksum of the IPv4 header is right, and that of UDP or TCP if there is one.
#[inline(always)]
pub fn are_right(frame: &[u8], headers: &Headers) -> bool {
    let header = frame.get(headers.ip..headers.transport).unwrap_or_default();
    if fold(sum(header)) != 0xffff {
        return false;
    }
    let Some(field) = field(headers) else { return true };
    let is_absent = headers.protocol == UDP && read::<2>(frame, field) == [0, 0];
    is_absent || fold(segment_sum(frame, headers)) == 0xffff
}

/// Returns the offset of the checksum of UDP or TCP.
#[inline(always)]
pub(super) fn field(headers: &Headers) -> Option<usize> {
    match headers.protocol {
        UDP => Some(headers.transport + 6),
        TCP => Some(headers.transport + 16),
        _ => None,
    }
}

/// Returns the sum of pseudo-header, header and payload.
#[inline(always)]
fn segment_sum(frame: &[u8], headers: &Headers) -> u64 {
    let segment = frame.get(headers.transport..headers.payload_end).unwrap_or_default();
    let addresses = read::<8>(frame, headers.ip + 12);
    let length = (segment.len() as u16).to_be_bytes();
    let rest = u32::from_ne_bytes([0, headers.protocol, length[0], length[1]]);
    sum(&addresses) + u64::from(rest) + sum(segment)
}

#[inline(always)]
fn without_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: 16-bit words in network order, added with end-around carry one after the other.
    fn defined(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0u16, |sum, word| {
            let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
            let (sum, carry) = sum.overflowing_add(word);
            sum + u16::from(carry)
        })
    }

    #[test]
    fn the_examples_of_the_standards() {
        // RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)).to_ne_bytes(), [0xdd, 0xf2]);
        // RFC 1624, section 4: a header with checksum 0xdd2f, of which 0x5555 becomes 0x3285, then has 0x0000.
        let two = |bytes: [u8; 2]| u32::from(u16::from_ne_bytes(bytes));
        let change = change(two([0x55, 0x55]), two([0x32, 0x85]));
        let updated = update(u16::from_ne_bytes([0xdd, 0x2f]), change);
        assert_eq!(updated.to_ne_bytes(), [0, 0]);
    }

    proptest! {
        #[test]
        fn sums_are_as_defined(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(fold(sum(&bytes)).to_ne_bytes(), defined(&bytes).to_be_bytes());
        }

        #[test]
        fn a_sum_of_words_is_that_of_their_bytes(words in any::<[u64; 5]>(), ones in 0u8..32) {
            // Words of ones carry.
            let words: [u64; 5] = std::array::from_fn(|n| if ones >> n & 1 == 1 { u64::MAX } else { words[n] });
            prop_assert_eq!(fold(sum_words(words)), fold(sum(words.map(u64::to_ne_bytes).as_flattened())));
        }

        #[test]
        fn folding_is_complete(sum in any::<u64>()) {
            let folded = fold(sum);
            prop_assert_eq!(u64::from(folded) % 0xffff, sum % 0xffff);
            prop_assert_eq!(folded == 0, sum == 0, "only nothing has the sum 0");
        }

        #[test]
        fn an_update_equals_a_full_computation(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..60),
            place in any::<proptest::sample::Index>(),
            new in any::<[u8; 4]>(),
        ) {
            // A header has bytes other than 0, so a checksum of 0xffff does not occur.
            bytes.splice(..0, [0x45, 0]);
            let at = (2 + place.index(bytes.len() - 5)) & !1;
            let before = !fold(sum(&bytes));
            let old = u32::from_ne_bytes(read(&bytes, at));
            bytes[at..at + 4].copy_from_slice(&new);
            let change = change(old, u32::from_ne_bytes(new));
            prop_assert_eq!(update(before, change), !fold(sum(&bytes)));
        }

        #[test]
        fn an_absent_checksum_remains_absent_and_no_other_becomes_absent(checksum in any::<u16>(), old in any::<u32>(), new in any::<u32>()) {
            prop_assert_eq!(update_udp(checksum, change(old, new)) == 0, checksum == 0);
        }
    }

    #[test]
    fn a_computed_zero_of_udp_is_sent_as_ones() {
        // With the sum 0xffff, which a change of 0xfffe to 0xffff gives.
        let change = change(0xfffe, 0xffff);
        assert_eq!((update(0x0001, change), update_udp(0x0001, change)), (0, 0xffff));
    }
}
