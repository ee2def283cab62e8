//! Record that a driver keeps for each buffer: a header before it, as DPDK does, or nothing.
//!
//! The header has the layout of DPDK 20.11's `rte_mbuf`, and the driver accesses the same fields as the vectorised drivers
//! of i40e and ice:
//!
//! - It reads the buffer's address to fill a receive descriptor.
//! - It writes 32 bytes per received packet.
//! - It reads address, offset and length to fill a transmit descriptor.
//! - It reads counts and the pointer to the next segment, in the second cache line, before it frees a buffer.
//!
//! The header is in memory that the NIC's process can write. So nothing here trusts it: the address of a packet is that of
//! its buffer, and offset and length are limited.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::nic::descriptor::{BUFFER, BUFFER_SPACE, Descriptor, received_bytes};
use crate::nic::layout::FLIT;

/// Record that a driver keeps for each buffer.
///
/// # Safety
/// All functions require that `object` is the start of an object of the pool's, in mapped memory, which belongs to the
/// caller.
pub trait Mbuf: 'static {
    /// Cache lines from the start of an object to its packet.
    const DATA: u32;
    /// Cache lines from one object to the next, an odd number, so that objects do not all map to the same few cache sets.
    const STRIDE: u32;

    /// Initialises an object whose packet has the bus address `bus`.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn init(object: *mut u8, bus: u64);

    /// Returns the bus address of the packet, which is `bus`.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn bus(object: *mut u8, bus: u64) -> u64;

    /// Records a received packet of `bytes` bytes, reported by a descriptor.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn received(object: *mut u8, descriptor: &Descriptor, word: u64, bytes: u32);

    /// Records a packet of `bytes` bytes that the program writes.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn written(object: *mut u8, bytes: u32);

    /// Returns start and length of the packet, which has `bytes` bytes.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn packet(object: *mut u8, bytes: u32) -> (*mut u8, usize);

    /// Returns bus address and length of the packet, which are `bus` and `bytes`.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn to_send(object: *mut u8, bus: u64, bytes: u32) -> (u64, u32);

    /// Prepares the object for the pool.
    ///
    /// # Safety
    /// See [`Mbuf`].
    unsafe fn freed(object: *mut u8);
}

/// Nothing is kept for a buffer.
pub(super) enum NoHeader {}

impl Mbuf for NoHeader {
    const DATA: u32 = 0;
    const STRIDE: u32 = (BUFFER / FLIT) as u32 + 1;

    #[inline(always)]
    unsafe fn init(_: *mut u8, _: u64) {}

    #[inline(always)]
    unsafe fn bus(_: *mut u8, bus: u64) -> u64 {
        bus
    }

    #[inline(always)]
    unsafe fn received(_: *mut u8, _: &Descriptor, _: u64, _: u32) {}

    #[inline(always)]
    unsafe fn written(_: *mut u8, _: u32) {}

    #[inline(always)]
    unsafe fn packet(object: *mut u8, bytes: u32) -> (*mut u8, usize) {
        (object, bytes as usize)
    }

    #[inline(always)]
    unsafe fn to_send(_: *mut u8, bus: u64, bytes: u32) -> (u64, u32) {
        (bus, bytes)
    }

    #[inline(always)]
    unsafe fn freed(_: *mut u8) {}
}

/// Header of two cache lines before a headroom of two and the buffer.
#[repr(C, align(64))]
pub struct Header {
    /// Address (`buf_addr`), which nothing trusts, and bus address of the headroom (`buf_iova`).
    addresses: Descriptor,
    /// Offset of the packet, references, segments and port, 16 bits each (`rearm_data`); flags (`ol_flags`).
    state: Descriptor,
    /// Type and length of the packet, 32 bits each; length of the segment and VLAN tag, 16 bits each, and the hash of the
    /// flow, 32 bits (`rx_descriptor_fields1`).
    fields: Descriptor,
    /// Length of the buffer, and the pool.
    _pool: Descriptor,
    /// The next segment, and fields that are not used.
    next: AtomicU64,
    _unused: [AtomicU64; 7],
}

/// Size of the headroom, in bytes.
const HEADROOM: usize = 128;
/// State of a received packet: at the end of the headroom, one reference, one segment, port 0.
const REARMED: u64 = HEADROOM as u64 | 1 << 16 | 1 << 32;
/// Mask of references and segments in the state.
const COUNTS: u64 = 0xffff_ffff_0000;
/// Mask of a descriptor's status, from which the flags of a packet are made.
const STATUS: u64 = 0x7_fffc;
/// Mask of VLAN tag and hash in a descriptor's first word, and in the header.
const TAG_AND_HASH: u64 = !0xffff;

impl Header {
    /// Returns the header at the start of an object.
    ///
    /// # Safety
    /// See [`Mbuf`].
    #[inline(always)]
    unsafe fn of<'a>(object: *mut u8) -> &'a Self {
        // SAFETY: the caller guarantees the object, which starts with an aligned header; all fields that are used are
        // atomic.
        unsafe { &*object.cast() }
    }

    /// Returns the offset of the packet from the start of the headroom, limited to the headroom.
    #[inline(always)]
    fn offset(&self) -> usize {
        let state = self.state.address.load(Ordering::Relaxed);
        (state as usize & 0xffff).min(HEADROOM)
    }

    /// Returns the length of the packet, limited to the buffer.
    #[inline(always)]
    fn length(&self) -> usize {
        let fields = self.fields.word.load(Ordering::Relaxed);
        (fields as usize & 0xffff).min(BUFFER)
    }

    fn rearm(&self, bytes: u32) {
        self.state.set(REARMED, 0);
        self.fields.set(u64::from(bytes) << 32, bytes.into());
    }
}

impl Mbuf for Header {
    const DATA: u32 = ((size_of::<Self>() + HEADROOM) / FLIT) as u32;
    const STRIDE: u32 = Self::DATA + (BUFFER / FLIT) as u32 + 1;

    unsafe fn init(object: *mut u8, bus: u64) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { Self::of(object) };
        let start = object.wrapping_add(size_of::<Self>());
        header.addresses.set(start as u64, bus - HEADROOM as u64);
        header.rearm(0);
        header.next.store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    unsafe fn bus(object: *mut u8, _: u64) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::of(object) }
            .addresses
            .word
            .load(Ordering::Relaxed)
            .wrapping_add(HEADROOM as u64)
    }

    #[inline(always)]
    unsafe fn received(object: *mut u8, descriptor: &Descriptor, word: u64, bytes: u32) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { Self::of(object) };
        let reported = descriptor.address.load(Ordering::Relaxed);
        header.state.set(REARMED, word & STATUS);
        let kind = word >> 30 & 0xff;
        let fields = reported & TAG_AND_HASH | u64::from(bytes);
        header.fields.set(u64::from(bytes) << 32 | kind, fields);
    }

    #[inline(always)]
    unsafe fn written(object: *mut u8, bytes: u32) {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::of(object) }.rearm(bytes);
    }

    #[inline(always)]
    unsafe fn packet(object: *mut u8, _: u32) -> (*mut u8, usize) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { Self::of(object) };
        (object.wrapping_add(size_of::<Self>() + header.offset()), header.length())
    }

    #[inline(always)]
    unsafe fn to_send(object: *mut u8, _: u64, _: u32) -> (u64, u32) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { Self::of(object) };
        let start = header.addresses.word.load(Ordering::Relaxed);
        (start.wrapping_add(header.offset() as u64), header.length() as u32)
    }

    #[inline(always)]
    unsafe fn freed(object: *mut u8) {
        // SAFETY: guaranteed by the caller.
        let header = unsafe { Self::of(object) };
        let state = header.state.address.load(Ordering::Relaxed);
        if state & COUNTS != REARMED & COUNTS || header.next.load(Ordering::Relaxed) != 0 {
            std::hint::cold_path();
            header.rearm(0);
            header.next.store(0, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(size_of::<Header>() == 2 * FLIT);
const _: () = assert!(Header::STRIDE as usize * FLIT == BUFFER_SPACE);

/// Returns the length in the report of a received packet, limited: packets are shorter than buffers, and a length from
/// another process may not be.
#[inline(always)]
pub(super) fn reported_length(word: u64) -> u32 {
    received_bytes(word) % BUFFER as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::descriptor::received;

    #[repr(C, align(64))]
    struct Object([u8; BUFFER_SPACE]);

    /// Returns an initialised object and its bus address.
    fn object() -> (Box<Object>, u64) {
        let mut object = Box::new(Object([0x55; BUFFER_SPACE]));
        let bus = 1 << 40;
        // SAFETY: a whole object.
        unsafe { Header::init(object.0.as_mut_ptr(), bus) };
        (object, bus)
    }

    fn word(object: &Object, at: usize) -> u64 {
        u64::from_le_bytes(*object.0[at..].first_chunk().unwrap())
    }

    #[test]
    fn the_layout_is_that_of_a_dpdk_mbuf() {
        let (mut object, bus) = object();
        let start = object.0.as_mut_ptr();
        let descriptor = Descriptor::default();
        descriptor.set(0x1234_5678_0abc_0000, 0);
        // SAFETY: a whole object.
        unsafe { Header::received(start, &descriptor, received(60) | 7 << 30, 60) };
        assert_eq!(word(&object, 0), start as u64 + 128, "buf_addr");
        assert_eq!(word(&object, 8), bus - 128, "buf_iova");
        assert_eq!(word(&object, 16), 128 | 1 << 16 | 1 << 32, "data_off, refcnt, nb_segs, port");
        assert_eq!(word(&object, 32), 60 << 32 | 7, "packet_type, pkt_len");
        assert_eq!(word(&object, 40), 0x1234_5678_0abc_003c, "data_len, vlan_tci, hash");
        assert_eq!(word(&object, 64), 0, "next");
        assert_eq!(
            object.0[72..],
            [0x55; BUFFER_SPACE - 72],
            "the packet and the remaining fields"
        );
    }

    #[test]
    fn a_packet_is_where_the_nic_writes_it() {
        let (mut object, bus) = object();
        let start = object.0.as_mut_ptr();
        // SAFETY: a whole object.
        unsafe {
            assert_eq!(Header::bus(start, 0), bus);
            Header::written(start, 1514);
            assert_eq!(Header::packet(start, 0), (start.wrapping_add(256), 1514));
            assert_eq!(Header::to_send(start, 0, 0), (bus, 1514));
        }
    }

    #[test]
    fn a_header_that_another_process_overwrote_leads_nowhere() {
        let (mut object, _) = object();
        object.0[..128].fill(0xff);
        let start = object.0.as_mut_ptr();
        // SAFETY: a whole object.
        unsafe {
            let (packet, bytes) = Header::packet(start, 0);
            let range = start as usize..=start as usize + BUFFER_SPACE;
            assert!(
                range.contains(&(packet as usize)) && range.contains(&(packet as usize + bytes))
            );
            assert_eq!(Header::to_send(start, 0, 0).1, BUFFER as u32);
            Header::freed(start);
        }
        assert_eq!((word(&object, 16), word(&object, 64)), (REARMED, 0), "reset");
    }
}
