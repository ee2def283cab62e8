//! Queues of a DPDK port: packets are sent from the buffers into which the card has received them.

// A number that the card reports may have any value, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::sync::Arc;

use applications::{Application, Decision};
use machine::SysError;

use super::{LinkAddresses, Server, prefetch_rest};
use crate::dpdk::{self, Mbuf, Packet, Queue, Registered};
use crate::host::NicClosed;
use crate::link::{BURST, LinkStatus, filter};

/// The queues of one core, which it polls round-robin. The application gets the IPv4 packets; others are stray ones, and are
/// counted.
///
/// If a queue has no space for packets to send, they wait, and the core receives no others from it: packets are then lost only at
/// the card, which counts them.
pub struct DpdkServer {
    queues: Vec<Queue>,
    status: Arc<LinkStatus>,
    addresses: LinkAddresses,
    received: Vec<Packet>,
    /// The application's packets of a burst.
    accepted: Vec<Packet>,
    /// Addresses of packets that are sent to the next hop.
    forwarded: Vec<*mut u8>,
    /// Packets that are not sent.
    freed: Vec<*mut Mbuf>,
    misses: u64,
    // Dropped last: buffers are freed by the cache of this thread.
    _registered: Registered,
}

impl DpdkServer {
    /// Creates a server of queues on this thread, whose status other threads can read.
    ///
    /// # Errors
    /// Returns an error if DPDK has no number for this thread.
    pub fn new(
        queues: Vec<Queue>,
        status: Arc<LinkStatus>,
        addresses: LinkAddresses,
    ) -> Result<Self, SysError> {
        Ok(Self {
            queues,
            status,
            addresses,
            received: Vec::with_capacity(BURST),
            accepted: Vec::with_capacity(BURST),
            forwarded: Vec::with_capacity(BURST),
            freed: Vec::with_capacity(BURST),
            misses: 0,
            _registered: Registered::new()?,
        })
    }

    /// Sorts the received packets of a queue: into those of the application, and others, which are answered or freed.
    #[inline(always)]
    fn accept(&mut self, queue: usize) {
        let Self { queues, status, addresses, received, accepted, freed, .. } = self;
        let mut stray = 0_u64;
        accepted.clear();
        for packet in received.iter() {
            // SAFETY: the packet is this server's, and has these bytes in one buffer.
            let frame = unsafe { std::slice::from_raw_parts(packet.start, packet.length as usize) };
            let flow = filter::flow_of(frame);
            if flow.is_some_and(|flow| addresses.serves(flow.destination)) {
                accepted.push(*packet);
                continue;
            }
            stray = stray.wrapping_add(1);
            let Some(answer) = addresses.answer(frame) else {
                freed.push(packet.mbuf);
                continue;
            };
            // SAFETY: the buffer has space for any frame, and `frame` is not used any more.
            unsafe {
                answer.as_ptr().copy_to_nonoverlapping(packet.start, answer.len());
                dpdk::set_length(packet.mbuf, answer.len() as u16);
                queues[queue].push(packet.mbuf);
            }
        }
        if stray > 0 {
            status.add_stray(stray);
        }
    }

    /// Processes the packets of the application.
    #[inline(always)]
    fn process<A: Application>(&mut self, queue: usize, application: &mut A) {
        let Self { queues, addresses, accepted, forwarded, freed, .. } = self;
        let queue = &mut queues[queue];
        let packets = accepted.iter().map(|packet| {
            // SAFETY: as in `accept`; each packet is passed once.
            let packet =
                unsafe { std::slice::from_raw_parts_mut(packet.start, packet.length as usize) };
            prefetch_rest::<A>(packet);
            packet
        });
        let mut decided = accepted.iter();
        application.process(packets, |_, decision| {
            // Packets return once and in order.
            let Some(packet) = decided.next() else { return };
            if !decision.is_sent() {
                freed.push(packet.mbuf);
                return;
            }
            if addresses.header(decision).is_some() {
                forwarded.push(packet.start);
            }
            // SAFETY: the packet was received from this port; only its header is accessed, before it is sent.
            unsafe { queue.push(packet.mbuf) };
        });
        for start in forwarded.drain(..) {
            let Some(header) = addresses.header(Decision::Send) else { break };
            // SAFETY: the packet is this server's until it is sent, and has an Ethernet header.
            unsafe { header.as_ptr().copy_to_nonoverlapping(start, header.len()) };
        }
    }
}

impl Server for DpdkServer {
    /// Processes one burst per queue.
    #[inline(always)]
    fn poll<A: Application>(&mut self, application: &mut A) -> Result<u64, NicClosed> {
        let (mut packets, mut misses) = (0_u64, 0_u64);
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            if !queue.flush() {
                continue;
            }
            queue.receive(&mut self.received);
            if self.received.is_empty() {
                misses = misses.wrapping_add(1);
                continue;
            }
            self.accept(index);
            self.process(index, application);
            packets = packets.wrapping_add(self.accepted.len() as u64);
            if !self.freed.is_empty() {
                // SAFETY: these packets were received, and are in no other list.
                unsafe { dpdk::free(&mut self.freed) };
            }
            self.queues[index].flush();
        }
        if packets > 0 {
            self.misses = self.misses.wrapping_add(misses);
        }
        Ok(packets)
    }

    fn queues(&self) -> u64 {
        self.queues.len() as u64
    }

    fn misses(&mut self) -> u64 {
        std::mem::take(&mut self.misses)
    }

    fn unbound(&self) -> usize {
        0
    }
}
