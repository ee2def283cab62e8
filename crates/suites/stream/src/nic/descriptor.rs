//! Packet descriptors: the parts in use of the descriptors of Intel's 700 series (i40e), and its tail registers.
//! Descriptors to receive into have 16 or 32 bytes, as a driver chooses; those of packets to send have 16.
//!
//! The registers are those of [`nic::layout`](crate::nic::layout), with a queue in place of a pipe. The host writes
//! `RxTail` and `TxTail`, up to which it has filled a ring.

use std::arch::asm;
use std::arch::x86_64::{__m128i, _mm_set_epi64x};
use std::sync::atomic::{AtomicU64, Ordering};

use lab::factor::LevelType;

use crate::wire::vector::Vector;

/// Size of the buffer of a receive descriptor, in bytes.
pub const BUFFER: usize = 2048;
/// Maximum space of a buffer with what a driver keeps before it and between two buffers, in bytes.
pub const BUFFER_SPACE: usize = 2368;

/// A descriptor of a buffer to receive into, of a received packet, or of a packet to send.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct Descriptor {
    /// Bus address of the buffer. The NIC overwrites it when it has written a packet there.
    pub address: AtomicU64,
    /// Command or status.
    pub word: AtomicU64,
}

/// Descriptors of 16 bytes per cache line.
pub const PER_LINE: usize = 4;

/// A descriptor of 32 bytes to receive into. Nothing uses its second half, which the NIC overwrites too.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct LongDescriptor {
    first: Descriptor,
    second: [AtomicU64; 2],
}

/// Size of the descriptors to receive into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum RxSize {
    /// 16 bytes.
    #[level("16 B")]
    Short,
    /// 32 bytes.
    #[level("32 B")]
    Long,
}

impl RxSize {
    /// Returns the size, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Short => size_of::<Descriptor>(),
            Self::Long => size_of::<LongDescriptor>(),
        }
    }
}

/// A descriptor to receive into, of either size.
pub trait RxDescriptor: Send + Sync + 'static {
    /// Its size.
    const SIZE: RxSize;
    /// Descriptors per cache line.
    const PER_LINE: usize;

    /// Returns the half that both sides use.
    fn half(&self) -> &Descriptor;

    /// Writes the report of a packet of `bytes` bytes.
    fn report(&self, bytes: u16);

    /// Writes reports to all descriptors of a cache line, the first of which is at `to`.
    ///
    /// # Safety
    /// `to` points to a whole cache line, which belongs to the NIC; the CPU supports `V`. There are
    /// [`PER_LINE`](Self::PER_LINE) lengths or more.
    unsafe fn report_line<V: Vector>(lengths: &[u16], to: *mut u8);
}

impl RxDescriptor for Descriptor {
    const SIZE: RxSize = RxSize::Short;
    const PER_LINE: usize = PER_LINE;

    #[inline(always)]
    fn half(&self) -> &Descriptor {
        self
    }

    #[inline(always)]
    fn report(&self, bytes: u16) {
        self.address.store(0, Ordering::Relaxed);
        self.word.store(received(bytes), Ordering::Release);
    }

    #[inline(always)]
    unsafe fn report_line<V: Vector>(lengths: &[u16], to: *mut u8) {
        let words = std::array::from_fn(|index| received(lengths[index]));
        // SAFETY: guaranteed by the caller.
        unsafe { V::write_words(&words, to) };
    }
}

impl RxDescriptor for LongDescriptor {
    const SIZE: RxSize = RxSize::Long;
    const PER_LINE: usize = 2;

    #[inline(always)]
    fn half(&self) -> &Descriptor {
        &self.first
    }

    #[inline(always)]
    fn report(&self, bytes: u16) {
        for word in &self.second {
            word.store(0, Ordering::Relaxed);
        }
        self.first.report(bytes);
    }

    #[inline(always)]
    unsafe fn report_line<V: Vector>(lengths: &[u16], to: *mut u8) {
        // SAFETY: guaranteed by the caller.
        unsafe { V::write_words_apart(received(lengths[0]), received(lengths[1]), to) };
    }
}

/// Receive: the buffer contains a packet (DD).
pub const RECEIVED: u64 = 1;
/// Receive: the packet ends in this buffer (EOF).
const WHOLE: u64 = 1 << 1;
/// Receive: shift of the packet's length, 14 bits.
const RECEIVED_BYTES: u32 = 38;

/// Transmit: mask of the command (DTYPE).
pub const KIND: u64 = 0xf;
/// Transmit: send a packet.
pub const SEND: u64 = 0;
/// Transmit: no operation (NOP).
pub const NOTHING: u64 = 1;
/// Transmit: configure the NIC by the [notification](crate::nic::notification::TxNotification) in the buffer. The
/// card's own encoding differs.
pub const CONFIGURE: u64 = 8;
/// Transmit: done; the NIC's answer to [`REPORT`].
pub const DONE: u64 = 0xf;
/// Transmit: the packet ends in this buffer (EOP).
pub const END: u64 = 1 << 4;
/// Transmit: request a report when this descriptor and all before it are done (RS).
pub const REPORT: u64 = 1 << 5;
/// Transmit: shift of the packet's length, 14 bits.
const SENT_BYTES: u32 = 34;
/// Mask of both lengths.
const BYTES: u64 = 0x3fff;

/// Returns the word of a descriptor whose buffer contains a received packet of `bytes` bytes.
#[inline(always)]
pub fn received(bytes: u16) -> u64 {
    RECEIVED | WHOLE | u64::from(bytes) << RECEIVED_BYTES
}

/// Returns the length of a received packet.
#[inline(always)]
pub fn received_bytes(word: u64) -> u32 {
    (word >> RECEIVED_BYTES & BYTES) as u32
}

/// Returns the word of a descriptor for a packet to send.
#[inline(always)]
pub fn send(bytes: u32) -> u64 {
    SEND | END | u64::from(bytes) << SENT_BYTES
}

/// Returns the length of a packet to send.
#[inline(always)]
pub fn sent_bytes(word: u64) -> u32 {
    (word >> SENT_BYTES & BYTES) as u32
}

impl Descriptor {
    /// Writes both words with a single store, because only few stores to a line of another core can be pending. The
    /// doorbell that follows orders it.
    #[inline(always)]
    pub(crate) fn set(&self, address: u64, word: u64) {
        // SAFETY: every x86-64 CPU has these instructions; the descriptor is aligned to 16 bytes; other threads may see
        // half of the store, as with two atomic stores.
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
    use super::*;
    use crate::wire::vector::Plain;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_the_cards() {
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (16, 16));
        assert_eq!((size_of::<LongDescriptor>(), align_of::<LongDescriptor>()), (32, 32));
        assert_eq!([RxSize::Short, RxSize::Long].map(RxSize::bytes), [16, 32]);
        assert_eq!(std::mem::offset_of!(Descriptor, word), 8);
        // I40E_RX_DESC_STATUS_DD, EOF and the length; I40E_TX_DESC_CMD_EOP and the buffer's size.
        assert_eq!(received(64), 0b11 | 64 << 38);
        assert_eq!(send(64), 0x10 | 64 << 34);
    }

    /// Returns the words of a line after its reports were written, together or one by one.
    fn reports<D: RxDescriptor>(lengths: &[u16], together: bool) -> Vec<u64> {
        #[repr(C, align(64))]
        struct Line([AtomicU64; 8]);
        let line = Line(std::array::from_fn(|_| AtomicU64::new(!0)));
        let start = line.0.as_ptr();
        if together {
            // SAFETY: a whole line, and the instructions are those of every CPU.
            unsafe { D::report_line::<Plain>(lengths, start.cast_mut().cast()) };
        } else {
            // SAFETY: a line of descriptors, all fields of which are atomic.
            let all = unsafe { std::slice::from_raw_parts(start.cast::<D>(), D::PER_LINE) };
            all.iter().zip(lengths).for_each(|(descriptor, bytes)| descriptor.report(*bytes));
        }
        line.0.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_line_of_reports_is_as_each_by_itself() {
        let word = received;
        for together in [false, true] {
            let short = reports::<Descriptor>(&[60, 61, 62, 63], together);
            assert_eq!(short, [0, word(60), 0, word(61), 0, word(62), 0, word(63)]);
            let long = reports::<LongDescriptor>(&[60, 1514], together);
            assert_eq!(long, [0, word(60), 0, 0, 0, word(1514), 0, 0]);
        }
    }

    proptest! {
        #[test]
        fn encoded_words_are_decoded(bytes in 0u16..=1514, address: u64, word: u64) {
            prop_assert_eq!(received_bytes(received(bytes)), u32::from(bytes));
            prop_assert_eq!(sent_bytes(send(u32::from(bytes)) | REPORT), u32::from(bytes));
            let descriptor = Descriptor::default();
            descriptor.set(address, word);
            let read = [&descriptor.address, &descriptor.word].map(|it| it.load(Ordering::Relaxed));
            prop_assert_eq!(read, [address, word]);
        }
    }
}
