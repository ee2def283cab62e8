//! AF_PACKET: a packet socket with a ring for receiving and one for sending in shared memory (TPACKET_V2).
//!
//! Version 2 hands over single packets. Version 3 hands over blocks of received packets when they are full or after some
//! milliseconds, which would be part of each round-trip time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use libc::{TP_STATUS_AVAILABLE, TP_STATUS_KERNEL, TP_STATUS_SEND_REQUEST, TP_STATUS_USER};
use machine::SysError;
use machine::mapping::{Mapping, Sharing};
use rustix::net::{SendFlags, send};

use super::interface::NetworkInterface;
use super::{Drops, FRAME, Link, LinkMode, inconsistent, not_permitted, refused, socket};
use crate::wire::PacketRef;

/// Frames for receiving and for sending.
const RX: u32 = 4096;
const TX: u32 = 1024;
/// Size of a block of frames, in bytes.
const BLOCK: u32 = 64 << 10;
/// Offset of a sent packet in its frame: a multiple of a flit, after the header.
const OFFSET: usize = 128;
/// `TPACKET_V2` of `include/uapi/linux/if_packet.h`.
const VERSION_2: i32 = 1;

const SUPPORT: &str = "use a kernel from 4.20 with CONFIG_PACKET";

/// Offsets in `struct tpacket2_hdr`.
const STATUS: usize = 0;
const LENGTH: usize = 4;
const CAPTURED: usize = 8;
const START: usize = 12;

/// A packet socket.
pub(super) struct AfPacket {
    name: String,
    socket: OwnedFd,
    /// The frames for receiving, followed by those for sending.
    memory: Mapping,
    /// Next frame to receive and number of received frames that the caller has.
    rx: u32,
    taken: u32,
    /// Next frame to send.
    tx: u32,
}

// SAFETY: nothing else has pointers into the mapping.
unsafe impl Send for AfPacket {}

impl AfPacket {
    /// Opens a socket at an interface.
    ///
    /// # Errors
    /// Returns what is not permitted or not supported.
    pub(super) fn open(interface: &NetworkInterface) -> Result<Self, SysError> {
        let name = interface.name.as_str();
        let opened = || -> io::Result<OwnedFd> {
            let socket = socket::packet()?;
            socket::set(&socket, libc::PACKET_VERSION, &VERSION_2)?;
            socket::set(&socket, libc::PACKET_TX_HAS_OFF, &1)?;
            // Sent packets go to the driver without a queue, and are not received again.
            socket::set(&socket, libc::PACKET_QDISC_BYPASS, &1)?;
            socket::set(&socket, libc::PACKET_IGNORE_OUTGOING, &1)?;
            socket::set(&socket, libc::PACKET_RX_RING, &ring(RX))?;
            socket::set(&socket, libc::PACKET_TX_RING, &ring(TX))?;
            Ok(socket)
        };
        let failed =
            |why: io::Error| not_permitted(format!("open a packet socket at {name}"), why, SUPPORT);
        let socket = opened().map_err(failed)?;
        let length = (RX.saturating_add(TX) as usize).saturating_mul(FRAME);
        let memory = Mapping::open_file(&socket, length, Sharing::SharedWritable)?;
        socket::set_promiscuous(&socket, interface.index).map_err(failed)?;
        socket::bind_packet(&socket, interface.index).map_err(failed)?;
        Ok(Self { name: name.to_owned(), socket, memory, rx: 0, taken: 0, tx: 0 })
    }

    /// Returns a frame of a ring that starts at frame `first` and has `size` frames.
    fn frame(&self, first: u32, size: u32, index: u32) -> Frame<'_> {
        let slot = first.wrapping_add(index & size.wrapping_sub(1));
        Frame { memory: &self.memory, offset: (slot as usize).saturating_mul(FRAME) }
    }

    fn rx_frame(&self, index: u32) -> Frame<'_> {
        self.frame(0, RX, index)
    }

    fn tx_frame(&self, index: u32) -> Frame<'_> {
        self.frame(RX, TX, index)
    }
}

impl Link for AfPacket {
    fn mode(&self) -> LinkMode {
        LinkMode::AfPacket
    }

    fn receive(&mut self, max: usize, frames: &mut Vec<PacketRef>) -> Result<(), SysError> {
        while (self.taken as usize) < max.min(RX as usize) {
            let frame = self.rx_frame(self.rx.wrapping_add(self.taken));
            if frame.word(STATUS).load(Ordering::Acquire) & TP_STATUS_USER == 0 {
                break;
            }
            frames
                .push(frame.packet().ok_or_else(|| inconsistent("receive from a packet socket"))?);
            self.taken = self.taken.wrapping_add(1);
        }
        Ok(())
    }

    fn release(&mut self) {
        for index in 0..self.taken {
            let frame = self.rx_frame(self.rx.wrapping_add(index));
            frame.word(STATUS).store(TP_STATUS_KERNEL, Ordering::Release);
        }
        self.rx = self.rx.wrapping_add(std::mem::take(&mut self.taken));
    }

    fn reserve(&mut self, max: usize, places: &mut Vec<*mut u8>) -> Result<(), SysError> {
        for index in (0..TX).take(max) {
            let frame = self.tx_frame(self.tx.wrapping_add(index));
            if frame.word(STATUS).load(Ordering::Acquire) != TP_STATUS_AVAILABLE {
                break;
            }
            places.push(frame.start().wrapping_add(OFFSET));
        }
        Ok(())
    }

    fn send(&mut self, lengths: &[u32]) -> Result<(), SysError> {
        for (index, length) in (0..).zip(lengths) {
            let frame = self.tx_frame(self.tx.wrapping_add(index));
            frame.word(LENGTH).store(*length, Ordering::Relaxed);
            frame.word(START).store(OFFSET as u32, Ordering::Relaxed);
            frame.word(STATUS).store(TP_STATUS_SEND_REQUEST, Ordering::Release);
        }
        self.tx = self.tx.wrapping_add(lengths.len() as u32);
        // The kernel reads the status of the frames.
        fence(Ordering::SeqCst);
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            Ok(_) => Ok(()),
            Err(why) if socket::is_temporary(why) => Ok(()),
            Err(why) => Err(not_permitted(format!("send through {}", self.name), why, SUPPORT)),
        }
    }

    fn drops(&self) -> Result<Box<dyn Drops>, SysError> {
        let socket = self.socket.try_clone();
        let socket =
            socket.map_err(|why| refused("duplicate a socket", why, "close some files"))?;
        Ok(Box::new(PacketDrops { socket, dropped: 0 }))
    }
}

/// A frame of a ring: `struct tpacket2_hdr`, and a packet.
struct Frame<'a> {
    memory: &'a Mapping,
    /// Offset of the frame in the mapping, in bytes.
    offset: usize,
}

impl Frame<'_> {
    fn start(&self) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(self.offset)
    }

    /// Returns a word of the header.
    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: frames are within the mapping, whose size is a multiple of theirs, and aligned; both sides access the words
        // as a whole.
        unsafe { &*self.start().add(offset).cast() }
    }

    /// Returns the received packet; `None` if it is not within the frame. A truncated packet has the length that is there.
    fn packet(&self) -> Option<PacketRef> {
        let bytes = self.word(CAPTURED).load(Ordering::Relaxed);
        // The lower half; the upper one is `tp_net`.
        let offset = (self.word(START).load(Ordering::Relaxed) & 0xffff) as usize;
        let fits = offset.saturating_add(bytes as usize) <= FRAME && bytes > 0;
        fits.then(|| PacketRef { start: self.start().wrapping_add(offset).cast_const(), bytes })
    }
}

/// The kernel's count at the socket, which is reset when it is read.
struct PacketDrops {
    socket: OwnedFd,
    dropped: u64,
}

impl Drops for PacketDrops {
    fn read(&mut self) -> Vec<(&'static str, u64)> {
        if let Ok(counts) =
            socket::get::<libc::tpacket_stats>(&self.socket, libc::PACKET_STATISTICS)
        {
            self.dropped = self.dropped.saturating_add(counts.tp_drops.into());
        }
        vec![("receive ring full", self.dropped)]
    }
}

fn ring(frames: u32) -> libc::tpacket_req {
    let bytes = frames.saturating_mul(FRAME as u32);
    libc::tpacket_req {
        tp_block_size: BLOCK,
        tp_block_nr: bytes / BLOCK,
        tp_frame_size: FRAME as u32,
        tp_frame_nr: frames,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_received_frame_is_within_its_memory_or_refused(offset: u32, bytes: u32) {
            let memory = Mapping::anonymous(2 * FRAME).unwrap();
            let frame = Frame { memory: &memory, offset: FRAME };
            frame.word(START).store(offset, Ordering::Relaxed);
            frame.word(CAPTURED).store(bytes, Ordering::Relaxed);
            let start = frame.start() as usize;
            if let Some(packet) = frame.packet() {
                let first = packet.start as usize;
                prop_assert!(first >= start && first + packet.bytes as usize <= start + FRAME);
            }
            frame.word(START).store(offset % 512, Ordering::Relaxed);
            frame.word(CAPTURED).store(bytes % 1024 + 1, Ordering::Relaxed);
            prop_assert!(frame.packet().is_some());
        }
    }
}
