//! Stray packets: what Linux itself sends through an interface, e.g. ARP, IPv6 discovery, multicast.

use std::collections::HashSet;

use crate::wire::frame;
use crate::wire::packet::{Flow, MIN_LENGTH};
use crate::wire::traffic::Packet;

/// The flows of the traffic. Other received packets are stray: they are neither echoed nor lost ones.
#[derive(Debug, Default)]
pub(super) struct Filter {
    flows: HashSet<Flow>,
    /// Flow of the last packet: the next one often has the same.
    last: Option<Flow>,
}

impl Filter {
    /// Creates the filter of a traffic, and of other flows with which its packets may return.
    pub(super) fn of(packets: &[Packet], returning: &[Flow]) -> Self {
        let flows = packets.iter().map(|packet| packet.flow).chain(returning.iter().copied());
        Self { flows: flows.collect(), last: None }
    }

    /// Returns whether a received frame belongs to the traffic: it has a valid length, and its flow is one of the traffic's.
    #[inline]
    pub(super) fn accepts(&mut self, frame: &[u8]) -> bool {
        let Some(flow) = flow_of(frame).filter(|_| frame.len() >= MIN_LENGTH) else { return false };
        if self.last == Some(flow) {
            return true;
        }
        let is_known = self.flows.contains(&flow);
        if is_known {
            self.last = Some(flow);
        }
        is_known
    }
}

/// Returns the flow of a frame that an application gets: IPv4, at most of the length of an Ethernet frame. `None` if it is a stray
/// one. Virtual interfaces do not pad short frames, e.g. acknowledgements of TCP.
#[inline]
pub(crate) fn flow_of(frame: &[u8]) -> Option<Flow> {
    frame::read(frame).ok().map(|head| head.flow)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::sample::{SampleTraffic, Sizes};

    fn sample(destinations: u32) -> crate::wire::traffic::Traffic {
        let size = Sizes::One(128);
        SampleTraffic { packets: destinations, size, sources: 1, destinations }.traffic().unwrap()
    }

    #[test]
    fn only_packets_of_the_traffic_are_accepted() {
        let (traffic, others) = (sample(3), sample(5));
        let mut filter = Filter::of(traffic.packets(), &[]);
        let accepted: Vec<_> = (0..5).map(|one| filter.accepts(others.bytes(one))).collect();
        assert_eq!(accepted, [true, true, true, false, false]);
        // Router solicitation.
        let mut discovery = others.bytes(0).to_vec();
        discovery[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert!(!filter.accepts(&discovery));
        assert!(!filter.accepts(&others.bytes(0)[..59]));
        assert!(!filter.accepts(&[0; 2048]));
    }

    #[test]
    fn a_packet_with_a_changed_payload_is_accepted_so_that_it_counts_as_corrupted() {
        let traffic = sample(1);
        let mut changed = traffic.bytes(0).to_vec();
        changed[100] ^= 1;
        changed[..12].fill(0xff);
        assert!(Filter::of(traffic.packets(), &[]).accepts(&changed));
    }

    #[test]
    fn applications_get_frames_that_a_virtual_interface_does_not_pad() {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 1, 1], [10, 0, 0, 100], 64)
            .tcp(40_000, 80, 1, 1000);
        let mut acknowledgement = Vec::new();
        builder.write_to_vec(&mut acknowledgement, &[]).unwrap();
        assert_eq!(acknowledgement.len(), 54);
        let flow = flow_of(&acknowledgement).unwrap();
        assert_eq!((flow.source_port, flow.destination_port), (40_000, 80));
        assert!(!Filter::of(&[], &[flow]).accepts(&acknowledgement), "no frame of the generator");
    }

    #[test]
    fn packets_that_an_application_redirects_are_accepted() {
        let (traffic, other) = (sample(1), [10, 0, 0, 1]);
        let redirect = |packet: &mut [u8]| packet[30..34].copy_from_slice(&other);
        let traffic = traffic.with_expected(26, redirect).unwrap();
        let mut filter = Filter::of(traffic.packets(), &traffic.returning_flows());
        assert!(filter.accepts(traffic.bytes(0)) && filter.accepts(traffic.expected(0)));
        assert!(!Filter::of(traffic.packets(), &[]).accepts(traffic.expected(0)));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_frame_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            let _ = flow_of(&bytes);
        }
    }
}
