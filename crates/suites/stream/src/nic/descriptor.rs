//! What a program and the NIC agree on where each packet has a descriptor: the descriptors of Intel's 700
//! series (i40e), as far as they are used, and its tail registers.
//!
//! Registers are those of [`nic::layout`](crate::nic::layout), those of a queue at a pipe's place. `RxTail` and
//! `TxTail` are the program's: up to where it has filled a ring.

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_set_epi64x};
use std::sync::atomic::AtomicU64;

/// Bytes of the buffer that an RX descriptor points to.
pub const BUFFER: usize = 2048;

/// A descriptor: of a buffer to receive into, of a packet received, or of one to send.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Descriptor {
    /// Where the buffer lies. The NIC overwrites it once it has written a packet there.
    pub address: AtomicU64,
    /// What is to be done, or was.
    pub word: AtomicU64,
}

/// Descriptors of a cache line.
pub const PER_LINE: usize = 4;

/// RX: the packet is there (DD).
pub const RECEIVED: u64 = 1;
/// RX: the packet ends in this buffer (EOF).
const WHOLE: u64 = 1 << 1;
/// RX: where the packet's bytes stand, 14 bits.
const RECEIVED_BYTES: u32 = 38;

/// TX: the bits that say what is to be done (DTYPE).
pub const KIND: u64 = 0xf;
/// TX: a packet is to be sent.
pub const SEND: u64 = 0;
/// TX: nothing is to be done (NOP).
pub const NOTHING: u64 = 1;
/// TX: the NIC is to be configured, by the
/// [notification](crate::nic::notification::TxNotification) in the buffer. The card's own words for it are other.
pub const CONFIGURE: u64 = 8;
/// TX: it is done; the NIC's answer to [`REPORT`].
pub const DONE: u64 = 0xf;
/// TX: the packet ends in this buffer (EOP).
pub const END: u64 = 1 << 4;
/// TX: the NIC is to say when this descriptor, and so all before it, is done (RS).
pub const REPORT: u64 = 1 << 5;
/// TX: where the buffer's bytes stand, 14 bits.
const SENT_BYTES: u32 = 34;
/// What both counts of bytes have room for.
const BYTES: u64 = 0x3fff;

/// The word of a descriptor into whose buffer a packet of so many bytes was written.
#[inline(always)]
pub fn received(bytes: u16) -> u64 {
    RECEIVED | WHOLE | u64::from(bytes) << RECEIVED_BYTES
}

/// The bytes of the packet that was written.
#[inline(always)]
pub fn received_bytes(word: u64) -> u32 {
    (word >> RECEIVED_BYTES & BYTES) as u32
}

/// The word of a descriptor of a packet to send.
#[inline(always)]
pub fn send(bytes: u32) -> u64 {
    SEND | END | u64::from(bytes) << SENT_BYTES
}

/// The bytes of the packet to send.
#[inline(always)]
pub fn sent_bytes(word: u64) -> u32 {
    (word >> SENT_BYTES & BYTES) as u32
}

impl Descriptor {
    /// Writes both words by one store, as few to a line that another core has can wait. The doorbell that
    /// follows orders it.
    #[inline(always)]
    pub(crate) fn set(&self, address: u64, word: u64) {
        // SAFETY: every processor has these instructions; the descriptor is aligned to their 16 bytes, and
        // others may see half of it at most, as of two atomic stores.
        unsafe {
            let words: __m128i = _mm_set_epi64x(word as i64, address as i64);
            asm!(
                "movdqa xmmword ptr [{to}], {words}",
                to = in(reg) std::ptr::from_ref(self),
                words = in(xmm_reg) words,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_the_cards() {
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (16, 16));
        assert_eq!(std::mem::offset_of!(Descriptor, word), 8);
        // I40E_RX_DESC_STATUS_DD, EOF and the length; I40E_TX_DESC_CMD_EOP and the buffer's size.
        assert_eq!(received(64), 0b11 | 64 << 38);
        assert_eq!(send(64), 0x10 | 64 << 34);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in 0u16..=1514, address: u64, word: u64) {
            prop_assert_eq!(received_bytes(received(bytes)), u32::from(bytes));
            prop_assert_eq!(sent_bytes(send(u32::from(bytes)) | REPORT), u32::from(bytes));
            let descriptor = Descriptor::default();
            descriptor.set(address, word);
            let read = [&descriptor.address, &descriptor.word].map(|it| it.load(Ordering::Relaxed));
            prop_assert_eq!(read, [address, word]);
        }
    }
}
