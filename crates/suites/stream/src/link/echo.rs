//! The echo over a link.

use std::sync::Arc;

use super::engine::LinkStatus;
use super::{BURST, FRAME, Link, filter};
use crate::echo::Echo;
use crate::host::NicClosed;
use crate::wire::PacketRef;

/// The echo over a link: it copies each received IPv4 packet to a free frame, which it sends. Other packets are stray ones, and
/// are counted.
pub struct LinkEcho {
    link: Box<dyn Link>,
    status: Arc<LinkStatus>,
    frames: Vec<PacketRef>,
    places: Vec<*mut u8>,
    lengths: Vec<u32>,
}

// SAFETY: the pointers refer to memory of the link, and are set and used within one call.
unsafe impl Send for LinkEcho {}

impl LinkEcho {
    /// Creates an echo whose status other threads can read.
    pub fn new(link: Box<dyn Link>, status: Arc<LinkStatus>) -> Self {
        Self {
            link,
            status,
            frames: Vec::with_capacity(BURST),
            places: Vec::with_capacity(BURST),
            lengths: Vec::with_capacity(BURST),
        }
    }

    /// Echoes what has arrived.
    #[inline(always)]
    fn echo(&mut self, mut each: impl FnMut(&mut [u8])) -> Result<u64, machine::SysError> {
        let Self { link, frames, places, lengths, .. } = self;
        frames.clear();
        places.clear();
        lengths.clear();
        // Packets for which there is no free frame stay in the ring, as with the other interfaces.
        link.reserve(BURST, places)?;
        link.receive(places.len(), frames)?;
        if frames.is_empty() {
            return Ok(0);
        }
        for frame in frames.iter() {
            // SAFETY: the link guarantees that the frame has these bytes until it is released.
            let bytes = unsafe { std::slice::from_raw_parts(frame.start, frame.bytes as usize) };
            // The length of a packet that is not stray is that of an Ethernet frame.
            let (Some(_), Some(place)) = (filter::flow_of(bytes), places.get(lengths.len())) else {
                continue;
            };
            // SAFETY: the free frame has `FRAME` bytes, and nothing else accesses it until it is sent.
            let packet = unsafe { std::slice::from_raw_parts_mut(*place, bytes.len().min(FRAME)) };
            packet.copy_from_slice(bytes);
            each(packet);
            lengths.push(bytes.len() as u32);
        }
        link.release();
        let stray = (frames.len() as u64).wrapping_sub(lengths.len() as u64);
        if stray > 0 {
            self.status.add_stray(stray);
        }
        if !lengths.is_empty() {
            link.send(lengths)?;
        }
        Ok(lengths.len() as u64)
    }
}

impl Echo for LinkEcho {
    fn unbound(&self) -> usize {
        0
    }

    #[inline(always)]
    fn poll(&mut self, each: impl FnMut(&mut [u8])) -> Result<u64, NicClosed> {
        self.echo(each).map_err(|why| {
            self.status.fail(why);
            NicClosed
        })
    }
}
