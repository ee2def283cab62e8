//! The rings under all interleavings that loom explores, with a driver as the specification describes it. The modules of
//! the rings are included with loom's atomics; whole cache lines of descriptors, which are stored by vector instructions,
//! are not part of the model.
#![allow(dead_code, reason = "the modules contain more than is tested here")]
#![allow(clippy::duplicate_mod, reason = "compiled a second time with loom's atomics")]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "loom runs the threads of a model one after the other"
)]

use std::ptr;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use self::buffer::WRITE;
use self::memory::GuestMemory;
use self::packed::PackedRing;
use self::ring::{RingError, RingParams, Taken};
use self::split::SplitRing;
use self::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use super::buffer::Scratch;
use super::ring::RingAddresses;
use crate::wire::PacketRef;
use crate::wire::packet::MIN_LENGTH;
use crate::wire::vector::Plain;

#[path = "packed.rs"]
mod packed;
#[path = "split.rs"]
mod split;

const HEADER: u32 = super::HEADER;

/// Replaces `virtio::sync`.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
}

/// Replaces the translation of addresses: the address of a buffer only identifies it.
mod buffer {
    pub(super) use super::super::buffer::{INDIRECT, NEXT, Scratch, Unusable, WRITE, frame};
    use super::*;

    #[derive(Debug, Default)]
    pub(super) struct Translation {
        _no_window: (),
    }

    impl Translation {
        pub(super) fn find(&mut self, _: &GuestMemory, address: u64, _: u64) -> Option<*mut u8> {
            Some(ptr::without_provenance_mut(address as usize))
        }

        pub(super) fn receive(
            &mut self,
            memory: &GuestMemory,
            address: u64,
            bytes: u32,
            flags: u16,
            space: u32,
        ) -> Result<*mut u8, Unusable> {
            assert_eq!((flags & (NEXT | WRITE | INDIRECT), bytes), (WRITE, space));
            self.find(memory, address, bytes.into()).ok_or(Unusable::Broken)
        }
    }
}

/// Replaces the driver's memory: the addresses of a ring's parts are their numbers.
mod memory {
    pub(super) struct GuestMemory(pub(super) [*mut u8; 3]);
}

mod ring {
    pub(super) use super::super::ring::{MAX_SIZE, RingError, RingParams, Taken};
    use super::*;

    pub(super) fn part(
        memory: &GuestMemory,
        address: u64,
        _: u64,
        _: usize,
    ) -> Result<*mut u8, RingError> {
        memory.0.get(address as usize).copied().ok_or(RingError::Memory)
    }
}

/// Size of the rings, and the number of buffers: each is used again after a lap.
const SLOTS: usize = 2;
const BUFFERS: u32 = 3;
/// Length of all packets with their header.
const BYTES: u32 = HEADER + MIN_LENGTH as u32;
/// Distance of the buffers' addresses.
const STEP: u64 = 0x1000;
const AVAILABLE: u64 = 1 << 7;
const USED: u64 = 1 << 15;

/// The memory of a ring, and the driver's side of it.
trait DriverRing: Default + Send + Sync + 'static {
    type Device: DeviceRing;
    /// First position, in the form of [`RingParams::base`], and whether the ring is packed.
    const START: (u16, bool);

    fn parts(&self) -> [*const u8; 3];

    /// Makes buffer `number` available.
    fn offer(&self, number: u32, flags: u16);

    /// Returns how many buffers the device has returned, if it had returned `before` when last asked.
    fn returned(&self, before: u32) -> u32;
}

/// The device's side.
trait DeviceRing: Sized + Send + 'static {
    fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError>;
    fn take_buffers(&mut self, places: &mut [*mut u8]) -> Taken;
    fn take_packets(&mut self, packets: &mut [PacketRef]) -> Taken;
    fn give_received(&mut self) -> u32;
    fn give_sent(&mut self) -> u32;
}

#[derive(Default)]
#[repr(C, align(16))]
struct Descriptor {
    address: AtomicU64,
    word: AtomicU64,
}

fn slot(number: u32) -> usize {
    number as usize % SLOTS
}

fn address(number: u32) -> u64 {
    STEP * (slot(number) as u64 + 1)
}

/// Returns the slot of the buffer at an address.
fn buffer_at(address: *const u8) -> usize {
    address.addr() / STEP as usize - 1
}

#[derive(Default)]
struct Packed {
    descriptors: [Descriptor; SLOTS],
    /// Event suppression of the driver and of the device.
    events: [[AtomicU16; 2]; 2],
}

impl Packed {
    /// Returns whether a buffer belongs to an even pass, whose wrap counter is 1.
    fn wraps(number: u32) -> bool {
        (number as usize / SLOTS).is_multiple_of(2)
    }
}

impl DriverRing for Packed {
    type Device = PackedRing;
    const START: (u16, bool) = (1 << 15, true);

    fn parts(&self) -> [*const u8; 3] {
        let [driver, device] = &self.events;
        [self.descriptors.as_ptr().cast(), driver.as_ptr().cast(), device.as_ptr().cast()]
    }

    fn offer(&self, number: u32, flags: u16) {
        let descriptor = &self.descriptors[slot(number)];
        descriptor.address.store(address(number), Ordering::Relaxed);
        let flags = u64::from(flags) | if Self::wraps(number) { AVAILABLE } else { USED };
        let word = u64::from(BYTES) | (slot(number) as u64) << 32 | flags << 48;
        descriptor.word.store(word, Ordering::Release);
    }

    fn returned(&self, before: u32) -> u32 {
        let word = self.descriptors[slot(before)].word.load(Ordering::Acquire);
        let used = if Self::wraps(before) { AVAILABLE | USED } else { 0 };
        if word >> 48 & (AVAILABLE | USED) != used {
            return before;
        }
        // If buffers are used in order, one descriptor with the ID of the last buffer may return several.
        let last = (word >> 32) as u16;
        (before..).find(|number| slot(*number) == usize::from(last)).unwrap() + 1
    }
}

impl DeviceRing for PackedRing {
    fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError> {
        Self::open(memory, params)
    }

    fn take_buffers(&mut self, places: &mut [*mut u8]) -> Taken {
        self.take_buffers(SLOTS as u32, BYTES, || MIN_LENGTH as u16, places)
    }

    fn take_packets(&mut self, packets: &mut [PacketRef]) -> Taken {
        self.take_packets(packets, &mut Scratch::new(0))
    }

    fn give_received(&mut self) -> u32 {
        self.give_received::<Plain>()
    }

    fn give_sent(&mut self) -> u32 {
        self.give_sent()
    }
}

#[derive(Default)]
#[repr(C)]
struct Split {
    descriptors: [Descriptor; SLOTS],
    /// Flags, index and entries.
    available: [AtomicU16; 2 + SLOTS],
    used: UsedRing,
}

#[derive(Default)]
#[repr(C)]
struct UsedRing {
    head: [AtomicU16; 2],
    /// Index of the first descriptor, and length.
    entries: [[AtomicU32; 2]; SLOTS],
}

impl DriverRing for Split {
    type Device = SplitRing;
    const START: (u16, bool) = (0, false);

    fn parts(&self) -> [*const u8; 3] {
        let used = ptr::from_ref(&self.used).cast();
        [self.descriptors.as_ptr().cast(), self.available.as_ptr().cast(), used]
    }

    fn offer(&self, number: u32, flags: u16) {
        let descriptor = &self.descriptors[slot(number)];
        descriptor.address.store(address(number), Ordering::Relaxed);
        let word = u64::from(BYTES) | u64::from(flags) << 32;
        descriptor.word.store(word, Ordering::Relaxed);
        self.available[2 + slot(number)].store(slot(number) as u16, Ordering::Relaxed);
        self.available[1].store(number as u16 + 1, Ordering::Release);
    }

    fn returned(&self, before: u32) -> u32 {
        let index = u32::from(self.used.head[1].load(Ordering::Acquire));
        for number in before..index {
            let [id, _] = &self.used.entries[slot(number)];
            assert_eq!(id.load(Ordering::Relaxed) as usize, slot(number));
        }
        index
    }
}

impl DeviceRing for SplitRing {
    fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError> {
        Self::open(memory, params)
    }

    fn take_buffers(&mut self, places: &mut [*mut u8]) -> Taken {
        self.take_buffers(SLOTS as u32, BYTES, || MIN_LENGTH as u16, places)
    }

    fn take_packets(&mut self, packets: &mut [PacketRef]) -> Taken {
        self.take_packets(packets, &mut Scratch::new(0))
    }

    fn give_received(&mut self) -> u32 {
        self.give()
    }

    fn give_sent(&mut self) -> u32 {
        self.give()
    }
}

/// State that driver and device share: the ring, and the content of the buffers.
struct Shared<R> {
    ring: R,
    buffers: [UnsafeCell<u32>; SLOTS],
}

impl<R: DriverRing> Shared<R> {
    fn new() -> Arc<Self> {
        let buffers = std::array::from_fn(|_| UnsafeCell::new(0));
        Arc::new(Self { ring: R::default(), buffers })
    }

    /// Opens the device's side, which must be dropped before the shared memory.
    fn device(&self, in_order: bool) -> R::Device {
        let addresses = RingAddresses { descriptors: 0, driver: 1, device: 2 };
        let (base, packed) = R::START;
        let params = RingParams { size: SLOTS as u32, base, packed, in_order, addresses };
        R::Device::open(&Arc::new(GuestMemory(self.ring.parts().map(|it| it.cast_mut()))), &params)
            .unwrap()
    }

    fn write(&self, buffer: usize, value: u32) {
        // SAFETY: loom checks that there is no concurrent access.
        self.buffers[buffer].with_mut(|content| unsafe { *content = value });
    }

    fn read(&self, buffer: usize) -> u32 {
        // SAFETY: loom checks that there is no concurrent write.
        self.buffers[buffer].with(|content| unsafe { *content })
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A driver sends packets; each buffer has the next packet as soon as the device has returned it.
fn sent_packets_are_whole<R: DriverRing>(in_order: bool) {
    explore(move || {
        let shared = Shared::<R>::new();
        let mut device = shared.device(in_order);
        let of_device = Arc::clone(&shared);
        let device = thread::spawn(move || {
            let mut number = 0;
            while number < BUFFERS {
                let mut packets = [PacketRef { start: ptr::null(), bytes: 0 }; SLOTS];
                let taken = device.take_packets(&mut packets);
                assert_eq!(taken.refused, 0);
                for packet in &packets[..taken.count as usize] {
                    let header = packet.start.wrapping_sub(HEADER as usize);
                    assert_eq!(of_device.read(buffer_at(header)), number + 100);
                    number += 1;
                }
                assert_eq!(device.give_sent(), taken.count);
                if taken.count == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut returned = 0;
        for number in 0..BUFFERS {
            while number - returned == SLOTS as u32 {
                returned = shared.ring.returned(returned);
                thread::yield_now();
            }
            shared.write(slot(number), number + 100);
            shared.ring.offer(number, 0);
        }
        device.join().unwrap();
        while returned < BUFFERS {
            let now = shared.ring.returned(returned);
            assert!(now > returned, "the device has returned all");
            returned = now;
        }
    });
}

/// A device receives packets; the driver reads each as soon as its buffer was returned, and offers the buffer again.
fn received_packets_are_whole<R: DriverRing>() {
    explore(|| {
        let shared = Shared::<R>::new();
        let mut device = shared.device(false);
        let of_device = Arc::clone(&shared);
        let device = thread::spawn(move || {
            let mut number = 0;
            while number < BUFFERS {
                let mut places = [ptr::null_mut(); SLOTS];
                let taken = device.take_buffers(&mut places);
                assert_eq!(taken.refused, 0);
                for place in &places[..taken.count as usize] {
                    of_device.write(buffer_at(*place), number + 100);
                    number += 1;
                }
                assert_eq!(device.give_received(), taken.count);
                if taken.count == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut offered, mut returned) = (0, 0);
        while returned < BUFFERS {
            while offered < BUFFERS && offered - returned < SLOTS as u32 {
                shared.ring.offer(offered, WRITE);
                offered += 1;
            }
            let now = shared.ring.returned(returned);
            (returned..now).for_each(|it| assert_eq!(shared.read(slot(it)), it + 100));
            if now == returned {
                thread::yield_now();
            }
            returned = now;
        }
        device.join().unwrap();
    });
}

#[test]
fn packets_sent_by_a_packed_ring_are_whole() {
    sent_packets_are_whole::<Packed>(false);
}

#[test]
fn packets_sent_in_order_by_a_packed_ring_are_whole() {
    sent_packets_are_whole::<Packed>(true);
}

#[test]
fn packets_sent_by_a_split_ring_are_whole() {
    sent_packets_are_whole::<Split>(false);
}

#[test]
fn packets_received_by_a_packed_ring_are_whole() {
    received_packets_are_whole::<Packed>();
}

#[test]
fn packets_received_by_a_split_ring_are_whole() {
    received_packets_are_whole::<Split>();
}
