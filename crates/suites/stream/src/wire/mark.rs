//! Marks: how the generator recognises a packet that returns.
//!
//! | bytes of the mark | content, in the byte order of the CPU |
//! | --- | --- |
//! | 0 to 3 | index of the packet in the traffic |
//! | 4 to 7 | its number in its sequence |
//! | 8 to 11 | time at which it was sent, in ticks of the time-stamp counter modulo 2^32; 0 if it is not timed |
//! | 12 to 15 | balance, only in the payload |
//!
//! The four words of a mark in the payload add up to 2^32 - 1 by ones' complement addition. 2^32 is 1 modulo 2^16 - 1, so the
//! sum of the mark's 16-bit words is 0 in every mark, and the checksum of the packet remains right. It is the one of a mark of
//! zeros, which packets in memory have. The balance also reveals a damaged mark.

use super::packet::{ETHERNET, FLIT, MIN_LENGTH};

/// Where the packets of a traffic have their marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MarkPosition {
    /// In the UDP payload, of which it takes the bytes 2 to 17. Addresses are those of the packet, and its checksum is right.
    #[default]
    Payload,
    /// In place of the Ethernet addresses, which a link between two machines does not need. Everything from the IPv4 header
    /// on is as in the traffic. There is no space for a balance.
    Addresses,
}

/// Offset of a mark in the payload of a UDP packet without IPv4 options: in the second half of the first flit.
pub const PAYLOAD: usize = 44;
/// Offset of a mark in place of the Ethernet addresses.
pub const ADDRESSES: usize = 0;

impl MarkPosition {
    /// Returns the offset of the first byte of the mark in a packet.
    pub fn offset(self) -> usize {
        match self {
            Self::Payload => PAYLOAD,
            Self::Addresses => ADDRESSES,
        }
    }

    /// Returns the length of the mark, in bytes.
    pub fn length(self) -> usize {
        length(self.offset())
    }
}

/// Returns the length of a mark at an offset, in bytes.
pub(crate) const fn length(at: usize) -> usize {
    if at == PAYLOAD { 16 } else { 12 }
}

/// The mark of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Index of the packet in the traffic.
    pub index: u32,
    /// Its number in its sequence.
    pub number: u32,
    /// When it was sent.
    pub stamp: u32,
}

impl Mark {
    /// Returns the balance.
    #[inline(always)]
    pub fn balance(self) -> u32 {
        // In this order, because index and time often stay the same.
        !add(add(self.index, self.stamp), self.number)
    }

    /// Returns the words of the mark, in order.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        [self.index, self.number, self.stamp, self.balance()]
    }

    /// Returns what to add to each word for the next packet, whose number is higher by `each`, [for some
    /// packets](Self::steps).
    #[inline(always)]
    pub(crate) fn step(each: u32) -> [u32; 4] {
        [0, each, 0, each.wrapping_neg()]
    }

    /// Returns the number of packets from this one on, at most `max`, whose words differ by [`step`](Self::step) from one to
    /// the next: until a word overflows.
    #[inline(always)]
    pub(crate) fn steps(self, each: u32, max: u32) -> u32 {
        let span = u64::from(each) * u64::from(max);
        let is_within = u64::from(self.number) + span <= u64::from(u32::MAX);
        if is_within && span <= u64::from(self.balance()) {
            return max;
        }
        std::hint::cold_path();
        1
    }

    /// Writes the mark to a packet.
    ///
    /// # Panics
    /// Panics if the packet is shorter than a frame.
    pub fn put(self, position: MarkPosition, packet: &mut [u8]) {
        let bytes = self.words().map(u32::to_le_bytes);
        let place = &mut packet[position.offset()..][..position.length()];
        place.copy_from_slice(&bytes.as_flattened()[..position.length()]);
    }
}

/// Returns the first 8 bytes of a mark.
#[inline(always)]
pub(crate) fn identity(index: u32, number: u32) -> u64 {
    u64::from(index) | u64::from(number) << 32
}

/// Adds by ones' complement: a carry is added to the sum.
#[inline(always)]
fn add(one: u32, other: u32) -> u32 {
    let (sum, carry) = one.overflowing_add(other);
    // A sum that carries is at most 2^32 - 2.
    sum.wrapping_add(u32::from(carry))
}

/// Reads the identity of a packet from its mark at `AT`.
///
/// # Safety
/// `packet` points to a frame.
#[inline(always)]
pub(crate) unsafe fn read_identity<const AT: usize>(packet: *const u8) -> u64 {
    // SAFETY: the caller guarantees that the frame contains the mark.
    unsafe { packet.add(AT).cast::<u64>().read_unaligned() }
}

/// Reads the time at which a packet was sent from its mark at `AT`.
///
/// # Safety
/// `packet` points to a frame.
#[inline(always)]
pub(crate) unsafe fn read_stamp<const AT: usize>(packet: *const u8) -> u32 {
    // SAFETY: the caller guarantees that the frame contains the mark.
    unsafe { packet.add(AT + 8).cast::<u32>().read_unaligned() }
}

/// Returns whether the mark at `AT` of a frame is balanced. One without a balance is.
///
/// # Panics
/// Panics if the frame is too short for a mark.
pub(crate) fn is_balanced<const AT: usize>(frame: &[u8]) -> bool {
    let words = frame[AT..][..length(AT)].as_chunks::<4>().0;
    let sum = words.iter().fold(0, |sum, word| add(sum, u32::from_le_bytes(*word)));
    AT != PAYLOAD || sum == u32::MAX
}

const _: () = assert!(PAYLOAD + length(PAYLOAD) <= MIN_LENGTH && PAYLOAD >= FLIT / 2);
const _: () = assert!(ADDRESSES + length(ADDRESSES) < ETHERNET);

#[cfg(test)]
mod tests {
    use etherparse::{NetHeaders, PacketHeaders, PayloadSlice, TransportHeader};
    use proptest::prelude::*;

    use super::super::sample::{SampleTraffic, Sizes};
    use super::super::traffic::CacheLine;
    use super::super::vector::{Avx2, Plain, Vector};
    use super::*;

    fn any_word() -> impl Strategy<Value = u32> {
        let edge = prop_oneof![0u32..3, (0u32..3).prop_map(|less| u32::MAX - less)];
        prop_oneof![any::<u32>(), edge]
    }

    fn any_mark() -> impl Strategy<Value = Mark> {
        (any_word(), any_word(), any_word()).prop_map(|(index, number, stamp)| Mark {
            index,
            number,
            stamp,
        })
    }

    /// Returns the checksum of a UDP packet, and the one that another implementation computes.
    fn checksums(bytes: &[u8]) -> (u16, u16) {
        let headers = PacketHeaders::from_ethernet_slice(bytes).unwrap();
        let (
            Some(NetHeaders::Ipv4(ip, _)),
            Some(TransportHeader::Udp(udp)),
            PayloadSlice::Udp(payload),
        ) = (headers.net, headers.transport, headers.payload)
        else {
            panic!("not UDP")
        };
        (udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap())
    }

    proptest! {
        #![proptest_config(crate::tests::cases(256))]

        #[test]
        fn a_mark_does_not_change_the_checksum(mark in any_mark(), size in 64u16..=1518) {
            let sample =
                SampleTraffic { packets: 1, size: Sizes::One(size), sources: 1, destinations: 1 };
            let mut bytes = sample.traffic().unwrap().bytes(0).to_vec();
            mark.put(MarkPosition::Payload, &mut bytes);
            let (stated, computed) = checksums(&bytes);
            prop_assert_eq!(stated, computed);
            prop_assert!(is_balanced::<PAYLOAD>(&bytes));
        }

        #[test]
        fn a_changed_bit_of_a_mark_in_the_payload_is_found(mark in any_mark(), bit in 0usize..128) {
            let mut bytes = [0; 60];
            mark.put(MarkPosition::Payload, &mut bytes);
            bytes[PAYLOAD + bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_balanced::<PAYLOAD>(&bytes));
        }

        #[test]
        fn registers_and_bytes_agree(mark in any_mark(), bytes in any::<[u8; 32]>(), is_payload in any::<bool>()) {
            let mut line = CacheLine([0; 64]);
            line.0[..32].copy_from_slice(&bytes);
            line.0[32..].copy_from_slice(&bytes);
            let mut expected = line;
            let position = if is_payload { MarkPosition::Payload } else { MarkPosition::Addresses };
            mark.put(position, &mut expected.0);
            let mut found = [CacheLine([0; 64]); 2];
            // SAFETY: all are whole cache lines, and AVX2 is used only if the CPU has it.
            unsafe {
                if is_payload {
                    store::<Plain, PAYLOAD>(&line, mark, &mut found[0]);
                } else {
                    store::<Plain, ADDRESSES>(&line, mark, &mut found[0]);
                }
                match (is_x86_feature_detected!("avx2"), is_payload) {
                    (false, _) => found[1] = found[0],
                    (true, true) => store::<Avx2, PAYLOAD>(&line, mark, &mut found[1]),
                    (true, false) => store::<Avx2, ADDRESSES>(&line, mark, &mut found[1]),
                }
                let packet = found[0].0.as_ptr();
                let read = match position {
                    MarkPosition::Payload => (read_identity::<PAYLOAD>(packet), read_stamp::<PAYLOAD>(packet)),
                    MarkPosition::Addresses => (read_identity::<ADDRESSES>(packet), read_stamp::<ADDRESSES>(packet)),
                };
                prop_assert_eq!(read, (identity(mark.index, mark.number), mark.stamp));
            }
            prop_assert_eq!(found, [expected; 2]);
        }
    }

    /// # Safety
    /// The CPU supports `V`.
    unsafe fn store<V: Vector, const AT: usize>(from: &CacheLine, mark: Mark, to: &mut CacheLine) {
        // SAFETY: both are whole cache lines, and the caller guarantees the CPU.
        unsafe {
            let words = V::words::<AT>(mark.words());
            V::store(V::marked::<AT>(V::load(from.0.as_ptr()), words), to.0.as_mut_ptr());
        }
    }

    proptest! {
        #[test]
        fn steps_have_the_words_of_the_next_packets(mark in any_mark(), each in any_word(), max in 1u32..5000) {
            let steps = mark.steps(each, max);
            prop_assert!((1..=max).contains(&steps));
            let step = Mark::step(each);
            for count in [0, 1, steps / 2, steps - 1].into_iter().filter(|count| *count < steps) {
                let number = mark.number.wrapping_add(each.wrapping_mul(count));
                let mut words = mark.words();
                for (word, step) in words.iter_mut().zip(step) {
                    *word = word.wrapping_add(step.wrapping_mul(count));
                }
                prop_assert_eq!(words, Mark { number, ..mark }.words(), "after {} of {}", count, steps);
            }
        }
    }
}
