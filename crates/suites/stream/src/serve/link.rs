//! Links: packets are processed in the frames into which they were received; those that are sent are copied to free frames.

// A number that the kernel reports may have any value, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::net::Ipv4Addr;
use std::sync::Arc;

use applications::{Application, Decision};
use machine::SysError;

use super::{Server, prefetch_rest};
use crate::host::NicClosed;
use crate::link::arp::{self, Answer};
use crate::link::{BURST, EthernetAddress, FRAME, Link, LinkStatus, filter};
use crate::wire::PacketRef;

/// The addresses of an application over a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkAddresses {
    /// The only IPv4 address that is served, with its Ethernet address, by which ARP requests for it are answered. If `None`, all
    /// addresses are served.
    pub served: Option<(Ipv4Addr, EthernetAddress)>,
    /// Ethernet source and destination of packets that are sent, unless they are replies. If `None`, they have those with which
    /// they were received.
    pub next_hop: Option<[EthernetAddress; 2]>,
}

impl LinkAddresses {
    /// Returns whether a packet to an address is the application's.
    #[inline(always)]
    pub(super) fn serves(&self, destination: Ipv4Addr) -> bool {
        self.served.is_none_or(|(served, _)| served == destination)
    }

    /// Returns the answer to a frame that is not the application's, if it is an ARP request for the served address.
    #[cold]
    pub(super) fn answer(&self, frame: &[u8]) -> Option<Answer> {
        let (address, ethernet) = self.served?;
        arp::answer(frame, address, ethernet)
    }

    /// Returns the first bytes of a packet that is sent, its destination and source.
    #[inline(always)]
    pub(super) fn header(&self, decision: Decision) -> Option<[u8; 12]> {
        let [source, destination] = self.next_hop.filter(|_| decision == Decision::Send)?;
        let mut header = [0; 12];
        header[..6].copy_from_slice(&destination.bytes());
        header[6..].copy_from_slice(&source.bytes());
        Some(header)
    }
}

/// A link of one core. The application gets the IPv4 packets; others are stray ones, and are counted.
pub struct LinkServer {
    link: Box<dyn Link>,
    status: Arc<LinkStatus>,
    addresses: LinkAddresses,
    frames: Vec<PacketRef>,
    places: Vec<*mut u8>,
    lengths: Vec<u32>,
    /// Answers to ARP requests among the frames.
    answers: Vec<Answer>,
}

// SAFETY: the pointers refer to memory of the link, and are set and used within one call.
unsafe impl Send for LinkServer {}

impl LinkServer {
    /// Creates a server that serves all addresses, and whose status other threads can read.
    pub fn new(link: Box<dyn Link>, status: Arc<LinkStatus>) -> Self {
        Self {
            link,
            status,
            addresses: LinkAddresses::default(),
            frames: Vec::with_capacity(BURST),
            places: Vec::with_capacity(BURST),
            lengths: Vec::with_capacity(BURST),
            answers: Vec::with_capacity(BURST),
        }
    }

    /// Sets the addresses of the application.
    #[must_use]
    pub fn with_addresses(self, addresses: LinkAddresses) -> Self {
        Self { addresses, ..self }
    }

    /// Processes what has arrived. Returns the number of packets.
    #[inline(always)]
    fn serve<A: Application>(&mut self, application: &mut A) -> Result<u64, SysError> {
        let Self { link, status, addresses, frames, places, lengths, answers } = self;
        frames.clear();
        places.clear();
        lengths.clear();
        answers.clear();
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
            let flow = filter::flow_of(packet);
            if !flow.is_some_and(|flow| addresses.serves(flow.destination)) {
                stray = stray.wrapping_add(1);
                answers.extend(addresses.answer(packet));
                return None;
            }
            prefetch_rest::<A>(packet);
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
            if let Some(header) = addresses.header(decision) {
                // SAFETY: as above.
                unsafe { header.as_ptr().copy_to_nonoverlapping(*place, header.len()) };
            }
            lengths.push(length as u32);
        });
        for answer in answers.iter() {
            // No frame is both answered and sent, so there are places for both.
            let Some(place) = places.get(lengths.len()) else { break };
            // SAFETY: as above.
            unsafe { answer.as_ptr().copy_to_nonoverlapping(*place, answer.len()) };
            lengths.push(answer.len() as u32);
        }
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
    fn poll<A: Application>(&mut self, application: &mut A) -> Result<u64, NicClosed> {
        self.serve(application).map_err(|why| {
            self.status.fail(why);
            NicClosed
        })
    }

    fn unbound(&self) -> usize {
        0
    }
}
