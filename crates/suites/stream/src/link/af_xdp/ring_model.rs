//! The rings under all interleavings that loom explores, with a kernel that follows the documentation of AF_XDP. The module
//! is included with loom's indices. loom checks accesses to the frames; those to the entries, which the same indices
//! guard, are not part of the model.
#![allow(dead_code, reason = "the module contains more than is tested here")]
#![allow(clippy::duplicate_mod, reason = "compiled a second time with loom's atomics")]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "loom runs the threads of a model one after the other"
)]

use std::cell::UnsafeCell as StdUnsafeCell;
use std::mem::offset_of;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use machine::SysError;
use rustix::net::xdp::XdpRingOffset;

use self::ring::{Descriptor, Entry, Ring};
use self::sync::{AtomicU32, Ordering};
use super::inconsistent;

#[path = "ring.rs"]
mod ring;

/// Replaces `af_xdp::sync`.
mod sync {
    use std::os::fd::AsFd;

    pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
    use machine::SysError;
    use machine::mapping::Sharing;

    /// Memory of the model, whose address is the offset in the file.
    pub(super) struct Mapping(*mut u8);

    // SAFETY: the model's memory outlives its threads, and loom's indices guard its entries.
    unsafe impl Send for Mapping {}

    impl Mapping {
        pub(super) fn open_file_at(
            _: impl AsFd,
            offset: u64,
            _: usize,
            _: Sharing,
        ) -> Result<Self, SysError> {
            Ok(Self(std::ptr::with_exposed_provenance_mut(offset as usize)))
        }

        pub(super) fn as_ptr(&self) -> *const u8 {
            self.0
        }

        pub(super) fn as_mut_ptr(&self) -> *mut u8 {
            self.0
        }
    }
}

/// Size of the rings and number of frames, and the number of packets: each frame is used again after a lap.
const SIZE: u32 = 2;
const PACKETS: u32 = 3;

/// The memory of a ring, and the kernel's side of it.
#[repr(C)]
struct Memory<T> {
    producer: AtomicU32,
    consumer: AtomicU32,
    entries: [StdUnsafeCell<T>; SIZE as usize],
}

// SAFETY: the indices guard the entries.
unsafe impl<T: Send> Sync for Memory<T> {}

impl<T: Entry> Memory<T> {
    fn new(empty: T) -> Self {
        let entries = std::array::from_fn(|_| StdUnsafeCell::new(empty));
        Self { producer: AtomicU32::new(0), consumer: AtomicU32::new(0), entries }
    }

    /// Opens the program's side, which must not outlive the memory.
    fn open(&self) -> Ring<T> {
        let offset = XdpRingOffset {
            producer: offset_of!(Self, producer) as u64,
            consumer: offset_of!(Self, consumer) as u64,
            desc: offset_of!(Self, entries) as u64,
            flags: None,
        };
        let address = std::ptr::from_ref(self).expose_provenance() as u64;
        Ring::map(std::io::stdin(), address, &offset, SIZE).unwrap()
    }

    /// Takes entry `number` of the program, or returns `None` if there is none yet. The program may use its place again.
    fn take(&self, number: u32) -> Option<T> {
        (self.producer.load(Ordering::Acquire) > number).then(|| {
            // SAFETY: the program has published the entry, and does not change it before it is consumed.
            let entry = unsafe { *self.entries[(number % SIZE) as usize].get() };
            self.consumer.store(number + 1, Ordering::Release);
            entry
        })
    }

    /// Gives entry `number` to the program. Returns `None` if there is no space yet.
    fn give(&self, number: u32, entry: T) -> Option<()> {
        (number - self.consumer.load(Ordering::Acquire) < SIZE).then(|| {
            // SAFETY: the program has consumed what was there.
            unsafe { *self.entries[(number % SIZE) as usize].get() = entry };
            self.producer.store(number + 1, Ordering::Release);
        })
    }
}

/// Two rings and the content of the frames.
struct Shared {
    /// Frames from the program: the fill or the completion ring.
    frames: Memory<u64>,
    /// The receive or the transmit ring.
    packets: Memory<Descriptor>,
    content: [UnsafeCell<u32>; SIZE as usize],
}

impl Shared {
    fn new() -> Arc<Self> {
        let content = std::array::from_fn(|_| UnsafeCell::new(0));
        let (frames, packets) = (Memory::new(0), Memory::new(descriptor(0)));
        Arc::new(Self { frames, packets, content })
    }

    fn write(&self, frame: u64, value: u32) {
        // SAFETY: loom checks that there is no concurrent access.
        self.content[frame as usize].with_mut(|content| unsafe { *content = value });
    }

    fn read(&self, frame: u64) -> u32 {
        // SAFETY: loom checks that there is no concurrent write.
        self.content[frame as usize].with(|content| unsafe { *content })
    }
}

fn descriptor(frame: u64) -> Descriptor {
    Descriptor { address: frame, length: 64, options: 0 }
}

/// Polls until there is a value.
fn wait<T>(mut get: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(got) = get() {
            return got;
        }
        thread::yield_now();
    }
}

/// Consumes what the kernel has given.
fn consume<T: Entry>(ring: &mut Ring<T>) -> Result<Vec<T>, SysError> {
    let mut got = Vec::new();
    ring.consume(SIZE, |entry| {
        got.push(entry);
        Ok(())
    })?;
    Ok(got)
}

#[test]
fn received_frames_are_whole() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Shared::new();
        let (mut fill, mut rx) = (shared.frames.open(), shared.packets.open());
        let of_kernel = Arc::clone(&shared);
        let kernel = thread::spawn(move || {
            for number in 0..PACKETS {
                let frame = wait(|| of_kernel.frames.take(number));
                of_kernel.write(frame, number + 100);
                wait(|| of_kernel.packets.give(number, descriptor(frame)));
            }
        });
        (0..u64::from(SIZE)).for_each(|frame| fill.push(frame));
        fill.publish();
        let mut number = 0;
        while number < PACKETS {
            let packets = consume(&mut rx).unwrap();
            for packet in &packets {
                assert_eq!(shared.read(packet.address), number + 100);
                number += 1;
                fill.push(packet.address);
            }
            fill.publish();
            if packets.is_empty() {
                thread::yield_now();
            }
        }
        kernel.join().unwrap();
    });
}

#[test]
fn sent_frames_are_whole() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Shared::new();
        let (mut completion, mut tx) = (shared.frames.open(), shared.packets.open());
        let of_kernel = Arc::clone(&shared);
        let kernel = thread::spawn(move || {
            for number in 0..PACKETS {
                let packet = wait(|| of_kernel.packets.take(number));
                assert_eq!(of_kernel.read(packet.address), number + 100);
                wait(|| of_kernel.frames.give(number, packet.address));
            }
        });
        let mut free = Vec::from_iter(0..u64::from(SIZE));
        for number in 0..PACKETS {
            let frame = wait(|| {
                free.extend(consume(&mut completion).unwrap());
                free.pop()
            });
            shared.write(frame, number + 100);
            assert!(tx.pending().unwrap() < SIZE);
            tx.push(descriptor(frame));
            tx.publish();
        }
        kernel.join().unwrap();
    });
}
