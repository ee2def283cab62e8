//! Tests of the virtqueues with drivers that obey the rules and drivers that do not.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use machine::mapping::ForeignMapping;
use machine::memfd::Memfd;
use proptest::prelude::*;

use super::ring::RingError;
use super::{GuestMemory, GuestRegion, HEADER, Ring, RingAddresses, RingParams, Scratch};
use crate::wire::PacketRef;
use crate::wire::packet::{FLIT, MAX_LENGTH, MIN_LENGTH};
use crate::wire::vector::Plain;

/// Address of the guest's memory in descriptors, and in control messages.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
/// Size of the guest's memory: rings, then buffers.
const BYTES: usize = 1 << 20;
/// Offsets of the parts of the ring.
const DESCRIPTORS: usize = 0;
const DRIVER: usize = 0x8000;
const DEVICE: usize = 0xc000;
const BUFFERS: usize = 0x10000;
/// Distance of buffers. The frame of each starts at a flit.
const STEP: usize = 2048;
/// Number of buffers.
const COUNT: usize = (BYTES - BUFFERS) / STEP;

const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A guest's memory, and the device's view of it.
struct Guest {
    pointer: *mut u8,
    memory: Arc<GuestMemory>,
    _file: File,
}

impl Guest {
    fn new() -> Self {
        let memfd = Memfd::create("test", BYTES).unwrap();
        let file = File::from(memfd.as_fd().try_clone_to_owned().unwrap());
        let mapping = ForeignMapping::map(&file, BYTES).unwrap();
        let pointer = mapping.as_mut_ptr();
        let (guest, user, length, offset) = (GUEST, USER, BYTES as u64, 0);
        let region = GuestRegion { guest, user, length, offset, mapping };
        Self { pointer, memory: Arc::new(GuestMemory::new(vec![region])), _file: file }
    }

    fn write<T>(&self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= BYTES);
        // SAFETY: the offset is within the mapping, which only this test accesses.
        unsafe { self.pointer.add(offset).cast::<T>().write_unaligned(value) }
    }

    fn read<T>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= BYTES);
        // SAFETY: see above; only integers are read.
        unsafe { self.pointer.add(offset).cast::<T>().read_unaligned() }
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        (offset..offset + length).map(|at| self.read(at)).collect()
    }

    fn open(&self, params: &RingParams) -> Result<Ring, RingError> {
        Ring::open(&self.memory, params)
    }

    /// Returns whether a range of this process's memory is in the guest's.
    fn has(&self, start: *const u8, bytes: usize) -> bool {
        let offset = start.addr().wrapping_sub(self.pointer.addr());
        offset < BYTES && bytes <= BYTES - offset
    }
}

fn params(size: u32, packed: bool, in_order: bool) -> RingParams {
    let addresses = RingAddresses {
        descriptors: USER + DESCRIPTORS as u64,
        driver: USER + DRIVER as u64,
        device: USER + DEVICE as u64,
    };
    RingParams { size, base: if packed { 1 << 15 } else { 0 }, packed, in_order, addresses }
}

/// Offset of the header of a buffer, whose frame starts at a flit.
fn header_of(buffer: usize) -> usize {
    BUFFERS + buffer % COUNT * STEP + FLIT - HEADER as usize
}

/// A part of a buffer: offset, length, and whether the device writes it.
type Part = (usize, usize, bool);

/// A driver that obeys the rules, for either kind of ring.
struct Driver<'a> {
    guest: &'a Guest,
    params: RingParams,
    /// Position of the next descriptor or entry to make available, and of the next used one.
    next: usize,
    used: usize,
    /// Descriptors of each buffer in flight, in order: slot of the first, and their number.
    pending: VecDeque<(usize, usize)>,
}

impl<'a> Driver<'a> {
    fn new(guest: &'a Guest, params: RingParams) -> Self {
        Self { guest, params, next: 0, used: 0, pending: VecDeque::new() }
    }

    fn size(&self) -> usize {
        self.params.size as usize
    }

    fn free(&self) -> usize {
        self.size() - self.pending.iter().map(|(_, count)| count).sum::<usize>()
    }

    /// Makes a buffer of one or more parts available. Descriptors are used in order.
    fn offer(&mut self, parts: &[Part]) {
        let (guest, size, first) = (self.guest, self.size(), self.next);
        for (index, (offset, length, write)) in parts.iter().enumerate().rev() {
            let at = first + index;
            let slot = DESCRIPTORS + at % size * 16;
            let more = if index + 1 < parts.len() { NEXT } else { 0 };
            let flags = more | if *write { WRITE } else { 0 };
            guest.write(slot, GUEST + *offset as u64);
            guest.write(slot + 8, *length as u32);
            if self.params.packed {
                let wrap = (at / size).is_multiple_of(2);
                guest.write(slot + 12, (first % size) as u16);
                guest.write(slot + 14, flags | if wrap { AVAILABLE } else { USED });
            } else {
                guest.write(slot + 12, flags);
                guest.write(slot + 14, ((at + 1) % size) as u16);
            }
        }
        if !self.params.packed {
            // The available ring counts buffers.
            let entries: u16 = guest.read(DRIVER + 2);
            guest.write(DRIVER + 4 + usize::from(entries) % size * 2, (first % size) as u16);
            guest.write(DRIVER + 2, entries.wrapping_add(1));
        }
        self.pending.push_back((first, parts.len()));
        self.next += parts.len();
    }

    /// Returns the length of each buffer that the device has returned, in order.
    fn collect(&mut self) -> Vec<u32> {
        let mut lengths = Vec::new();
        while let Some(&(first, count)) = self.pending.front() {
            let (guest, size) = (self.guest, self.size());
            let (id, length): (u32, u32) = if self.params.packed {
                let slot = DESCRIPTORS + first % size * 16;
                let flags: u16 = guest.read(slot + 14);
                let wrap = (first / size).is_multiple_of(2);
                if flags & (AVAILABLE | USED) != if wrap { AVAILABLE | USED } else { 0 } {
                    break;
                }
                (guest.read::<u16>(slot + 12).into(), guest.read(slot + 8))
            } else {
                if guest.read::<u16>(DEVICE + 2) == self.used as u16 {
                    break;
                }
                let entry = DEVICE + 4 + self.used % size * 8;
                (guest.read(entry), guest.read(entry + 4))
            };
            // One descriptor may return several buffers in order: up to that with the ID.
            let batched = self.params.packed && self.params.in_order;
            loop {
                let (first, _) = self.pending.pop_front().expect("the ID is that of a buffer");
                self.used += 1;
                lengths.push(length);
                if first % size == id as usize {
                    break;
                }
                assert!(batched, "buffer {id} is returned before {first}");
            }
            let _ = count;
        }
        lengths
    }
}

/// Takes up to `max` buffers for frames of `length` bytes, and writes a byte to each. Returns their number.
fn receive(guest: &Guest, ring: &mut Ring, max: u32, length: u16, first: u8) -> u32 {
    let mut places = vec![std::ptr::null_mut(); max as usize];
    let space = HEADER + (usize::from(length).div_ceil(FLIT) * FLIT) as u32;
    let taken = ring.take_buffers(max, space, || length, &mut places);
    assert_eq!(taken.refused, 0);
    for (place, byte) in places.iter().take(taken.count as usize).zip(0..) {
        assert!(guest.has(*place, length.into()) && place.addr().is_multiple_of(FLIT));
        // SAFETY: in the guest's memory, which only this test accesses.
        unsafe { place.write_bytes(first.wrapping_add(byte), length.into()) };
    }
    assert_eq!(ring.give_received::<Plain>(), taken.count);
    taken.count
}

fn no_packets(count: usize) -> Vec<PacketRef> {
    vec![PacketRef { start: std::ptr::null(), bytes: 0 }; count]
}

/// Offsets in the guest's memory, most of them in its ring.
fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![6 => DESCRIPTORS..256, 2 => DESCRIPTORS..1024, 2 => DRIVER..DRIVER + 600, 1 => DEVICE..DEVICE + 600, 1 => 0..BYTES - 16]
}

fn kinds() -> impl Strategy<Value = (u32, bool, bool)> {
    (prop::sample::select(vec![4u32, 8, 64, 256]), any::<bool>(), any::<bool>())
}

proptest! {
    #[test]
    fn received_packets_reach_the_driver_in_order(
        (size, packed, in_order) in kinds(),
        steps in prop::collection::vec((0usize..80, 0u32..80, MIN_LENGTH as u16..=MAX_LENGTH as u16), 1..60),
    ) {
        let guest = Guest::new();
        let params = params(size, packed, in_order);
        let (mut driver, mut ring) = (Driver::new(&guest, params), guest.open(&params).unwrap());
        let (mut offered, mut received) = (0, 0_usize);
        for (offer, burst, length) in steps {
            for _ in 0..offer.min(driver.free()) {
                driver.offer(&[(header_of(offered), STEP - FLIT, true)]);
                offered += 1;
            }
            let available = offered - received;
            let count = receive(&guest, &mut ring, burst, length, received as u8) as usize;
            prop_assert_eq!(count, available.min(burst as usize));
            let lengths = driver.collect();
            prop_assert_eq!(lengths, vec![u32::from(length) + HEADER; count]);
            for index in received..received + count {
                let header = header_of(index);
                prop_assert_eq!(guest.bytes(header, 12), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
                let frame = guest.bytes(header + 12, length.into());
                prop_assert_eq!(frame, vec![index as u8; length.into()]);
            }
            received += count;
            prop_assert!(!ring.is_broken());
        }
    }

    #[test]
    fn sent_packets_reach_the_device_in_order_however_they_are_split(
        (size, packed, in_order) in kinds(),
        steps in prop::collection::vec(
            (prop::collection::vec((MIN_LENGTH..=MAX_LENGTH, prop::collection::vec(0usize..1526, 0..3)), 0..20), 1usize..30),
            1..30,
        ),
    ) {
        let guest = Guest::new();
        let params = params(size, packed, in_order);
        let (mut driver, mut ring) = (Driver::new(&guest, params), guest.open(&params).unwrap());
        let (mut sent, mut scratch) = (0_usize, Scratch::new(64));
        let mut expected = VecDeque::new();
        for (packets, burst) in steps {
            for (length, cuts) in packets {
                let all = length + HEADER as usize;
                let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % all).filter(|cut| *cut > 0).collect();
                cuts.extend([0, all]);
                cuts.sort_unstable();
                cuts.dedup();
                let start = header_of(sent);
                let parts: Vec<Part> =
                    cuts.windows(2).map(|cut| (start + cut[0], cut[1] - cut[0], false)).collect();
                if driver.free() < parts.len() || expected.len() == COUNT {
                    break;
                }
                for at in 0..length {
                    guest.write(start + HEADER as usize + at, (sent + at) as u8);
                }
                driver.offer(&parts);
                expected.push_back((sent, length));
                sent += 1;
            }
            let mut packets = no_packets(burst);
            let taken = ring.take_packets(&mut packets, &mut scratch);
            prop_assert_eq!(taken.count as usize, burst.min(expected.len()));
            prop_assert_eq!(taken.refused, 0);
            for packet in &packets[..taken.count as usize] {
                let (number, length) = expected.pop_front().unwrap();
                prop_assert_eq!(packet.bytes as usize, length);
                // SAFETY: the ring returned a packet of this length in the guest's memory or the scratch space.
                let bytes = unsafe { std::slice::from_raw_parts(packet.start, length) };
                prop_assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (number + at) as u8));
            }
            ring.give_sent();
            scratch.clear();
            prop_assert_eq!(driver.collect().len(), taken.count as usize);
            prop_assert!(!ring.is_broken());
        }
    }

    /// The driver writes anything anywhere, also between the device's steps.
    #[test]
    fn any_bytes_in_a_drivers_memory_stay_in_its_memory(
        (size, packed, in_order) in kinds(),
        base in prop_oneof![9 => Just(None), 1 => any::<u16>().prop_map(Some)],
        honest in 0usize..40,
        receives in any::<bool>(),
        steps in prop::collection::vec(
            (prop::collection::vec((offset(), any::<u64>(), 0u8..10), 0..4), 0u32..10, 0u8..10),
            1..40,
        ),
    ) {
        let guest = Guest::new();
        let first = params(size, packed, in_order);
        let params = RingParams { base: base.unwrap_or(first.base), ..first };
        let mut driver = Driver::new(&guest, params);
        for buffer in 0..honest.min(size as usize) {
            driver.offer(&[(header_of(buffer), 140 + buffer * 30, receives)]);
        }
        let Ok(mut ring) = guest.open(&params) else { return Ok(()) };
        let mut scratch = Scratch::new(300);
        for (writes, max, step) in steps {
            for (offset, value, kind) in writes {
                let slot = offset & !15;
                match kind {
                    // An address in or near the guest's memory, a length, flags, and a random word.
                    0 => guest.write(slot, GUEST.wrapping_add(value % (2 * BYTES as u64)).wrapping_sub(64)),
                    // A buffer that ends near the end of the memory, before or after it.
                    1..=6 => {
                        let bytes = 64 * (1 + value % 23);
                        guest.write(slot, GUEST + BYTES as u64 - bytes - u64::from(HEADER));
                        guest.write(slot + 8, (bytes + (value >> 8) % 128) as u32 - 52);
                    }
                    7 => guest.write(slot + 8, value as u32 % 2048),
                    8 => guest.write(offset & !1, value as u16 & 0x8087),
                    _ => guest.write(offset, value),
                }
            }
            if receives == (step > 0) {
                let mut places = vec![std::ptr::null_mut(); max as usize];
                let space = HEADER + 2 * FLIT as u32;
                let taken = ring.take_buffers(max, space, || 100, &mut places);
                for place in &places[..taken.count as usize] {
                    prop_assert!(guest.has(*place, 2 * FLIT));
                    // SAFETY: in the guest's memory, which only this test accesses.
                    unsafe { place.write_bytes(0xa5, 2 * FLIT) };
                }
                ring.give_received::<Plain>();
            } else {
                let mut packets = no_packets(max as usize);
                let taken = ring.take_packets(&mut packets, &mut scratch);
                for packet in &packets[..taken.count as usize] {
                    let bytes = packet.bytes as usize;
                    prop_assert!((MIN_LENGTH..=MAX_LENGTH).contains(&bytes));
                    prop_assert!(guest.has(packet.start, bytes) || scratch.has(packet.start, bytes));
                }
                ring.give_sent();
                scratch.clear();
            }
        }
    }

    #[test]
    fn any_ring_parameters_are_used_or_refused(
        size in prop_oneof![0u32..70_000, any::<u32>()],
        base in any::<u16>(),
        packed in any::<bool>(),
        addresses in prop::array::uniform3(prop_oneof![
            (0u64..2 * BYTES as u64).prop_map(|offset| USER.wrapping_add(offset).wrapping_sub(4096)),
            (0u64..BYTES as u64 / 16).prop_map(|offset| USER + offset * 16),
            any::<u64>(),
        ]),
    ) {
        let guest = Guest::new();
        let [descriptors, driver, device] = addresses;
        let addresses = RingAddresses { descriptors, driver, device };
        let params = RingParams { size, base, packed, in_order: true, addresses };
        if let Ok(mut ring) = guest.open(&params) {
            // Reads every part.
            ring.take_packets(&mut no_packets(8), &mut Scratch::new(8));
            ring.give_sent();
            prop_assert_eq!(ring.base() & 0x7fff, base & 0x7fff);
        }
    }
}

#[test]
fn a_broken_ring_is_no_longer_served() {
    for packed in [false, true] {
        let guest = Guest::new();
        let params = params(8, packed, true);
        let mut ring = guest.open(&params).unwrap();
        let mut driver = Driver::new(&guest, params);
        driver.offer(&[(header_of(0), STEP - FLIT, true)]);
        // A buffer that ends one byte after the guest's memory.
        driver.offer(&[(BYTES - FLIT - 12, FLIT + 13, true)]);
        driver.offer(&[(header_of(2), STEP - FLIT, true)]);
        let mut places = [std::ptr::null_mut(); 4];
        let taken = ring.take_buffers(4, HEADER + FLIT as u32, || 60, &mut places);
        assert_eq!((taken.count, taken.refused, ring.is_broken()), (1, 1, true));
        let taken = ring.take_buffers(4, HEADER + FLIT as u32, || 60, &mut places);
        assert_eq!((taken.count, taken.refused), (0, 0));
    }
}

#[test]
fn unaligned_and_short_buffers_and_no_frames_are_refused() {
    for packed in [false, true] {
        let guest = Guest::new();
        let params = params(8, packed, true);
        let take = |offset: usize, length: usize| {
            let mut ring = guest.open(&params).unwrap();
            Driver::new(&guest, params).offer(&[(offset, length, true)]);
            let mut places = [std::ptr::null_mut(); 1];
            let taken = ring.take_buffers(1, HEADER + FLIT as u32, || 60, &mut places);
            if !packed {
                guest.write(DRIVER + 2, 0_u16);
            }
            (taken.count, taken.refused, ring.is_broken())
        };
        assert_eq!(take(header_of(1), FLIT + 12), (1, 0, false));
        assert_eq!(take(header_of(1), FLIT + 11), (0, 0, false), "the packet is dropped");
        assert_eq!(take(header_of(1) + 1, 2 * FLIT), (0, 1, true));
        let mut ring = guest.open(&params).unwrap();
        let mut driver = Driver::new(&guest, params);
        driver.offer(&[(header_of(0), 12 + MIN_LENGTH - 1, false)]);
        driver.offer(&[(header_of(1), 12 + MAX_LENGTH + 1, false)]);
        driver.offer(&[(header_of(2), 12 + MAX_LENGTH, false)]);
        let mut packets = no_packets(3);
        let taken = ring.take_packets(&mut packets, &mut Scratch::new(1));
        assert_eq!((taken.count, taken.refused, ring.is_broken()), (1, 2, false));
        ring.give_sent();
        assert_eq!(driver.collect().len(), 3, "the buffers are returned");
    }
}

#[test]
fn the_bytes_of_rings_are_those_of_their_parts() {
    let guest = Guest::new();
    let of = |packed, in_order| {
        let ring = guest.open(&params(8, packed, in_order)).unwrap();
        [ring.read_bytes(3), ring.written_bytes(3, false), ring.written_bytes(3, true)]
    };
    // Descriptors, entries of the available ring with its index, and entries of the used ring with its index.
    assert_eq!(of(false, true), [[48, 8], [24, 2], [24, 2]]);
    assert_eq!(of(true, false), [[48, 0], [48, 0], [48, 0]]);
    assert_eq!(
        of(true, true),
        [[48, 0], [48, 0], [16, 0]],
        "one descriptor returns all that are sent"
    );
}
