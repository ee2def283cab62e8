//! Links: packets are processed in the frames into which they were received; those that are sent are copied to free frames.

// What the kernel reports may be any number, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use applications::Application;
use machine::SysError;

use super::Server;
use crate::host::NicClosed;
use crate::link::{BURST, FRAME, Link, LinkStatus, filter};
use crate::wire::PacketRef;

/// A link of one core. The application gets the IPv4 packets; others are stray ones, and are counted.
pub struct LinkServer {
    link: Box<dyn Link>,
    status: Arc<LinkStatus>,
    frames: Vec<PacketRef>,
    places: Vec<*mut u8>,
    lengths: Vec<u32>,
}

// SAFETY: the pointers refer to memory of the link, and are set and used within one call.
unsafe impl Send for LinkServer {}

impl LinkServer {
    /// Creates a server whose status other threads can read.
    pub fn new(link: Box<dyn Link>, status: Arc<LinkStatus>) -> Self {
        Self {
            link,
            status,
            frames: Vec::with_capacity(BURST),
            places: Vec::with_capacity(BURST),
            lengths: Vec::with_capacity(BURST),
        }
    }

    /// Processes what has arrived. Returns the number of packets.
    #[inline(always)]
    fn serve(&mut self, application: &mut impl Application) -> Result<u64, SysError> {
        let Self { link, status, frames, places, lengths } = self;
        frames.clear();
        places.clear();
        lengths.clear();
        // Packets for which there is no free frame stay in the ring, as with the other interfaces.
        link.reserve(BURST, places)?;
        link.receive(places.len(), frames)?;
        if frames.is_empty() {
            return Ok(0);
        }
        let (mut stray, mut packets) = (0_u64, 0_u64);
        let received = frames.iter().filter_map(|frame| {
            // SAFETY: the link guarantees that the frame has these bytes, and that they belong to this thread until the frame
            // is released. Each frame is taken once.
            let packet = unsafe {
                std::slice::from_raw_parts_mut(frame.start.cast_mut(), frame.bytes as usize)
            };
            // The length of a packet that is not stray is that of an Ethernet frame.
            if filter::flow_of(packet).is_none() {
                stray = stray.wrapping_add(1);
                return None;
            }
            Some(packet)
        });
        application.process(received, |packet, decision| {
            packets = packets.wrapping_add(1);
            // There are as many places as frames.
            let place = places.get(lengths.len()).filter(|_| decision.is_sent());
            let Some(place) = place else { return };
            let length = packet.len().min(FRAME);
            // SAFETY: the free frame has `FRAME` bytes, and nothing else accesses it until it is sent.
            unsafe { packet.as_ptr().copy_to_nonoverlapping(*place, length) };
            lengths.push(length as u32);
        });
        link.release();
        if stray > 0 {
            status.add_stray(stray);
        }
        if !lengths.is_empty() {
            link.send(lengths)?;
        }
        Ok(packets)
    }
}

impl Server for LinkServer {
    #[inline(always)]
    fn poll(&mut self, application: &mut impl Application) -> Result<u64, NicClosed> {
        self.serve(application).map_err(|why| {
            self.status.fail(why);
            NicClosed
        })
    }

    fn unbound(&self) -> usize {
        0
    }
}
