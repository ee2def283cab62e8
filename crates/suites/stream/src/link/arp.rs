//! ARP (RFC 826): answers to requests for the Ethernet address of an IPv4 address.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::net::Ipv4Addr;

use super::ethernet::EthernetAddress;
use crate::wire::packet::MIN_LENGTH;

/// Offset of the message, after the Ethernet header.
const MESSAGE: usize = 14;
/// EtherType of ARP.
const ETHERTYPE: [u8; 2] = [0x08, 0x06];
/// Ethernet and IPv4, with the lengths of their addresses.
const FORMATS: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// Length of a message, in bytes.
const LENGTH: usize = 28;

/// A frame with an answer, padded to the length of the shortest frame.
pub(crate) type Answer = [u8; MIN_LENGTH];

/// Returns the answer to a request for `address`, whose Ethernet address is `ours`; `None` if a frame is not such a request.
pub(crate) fn answer(frame: &[u8], address: Ipv4Addr, ours: EthernetAddress) -> Option<Answer> {
    let message = frame.get(MESSAGE..)?.first_chunk::<LENGTH>()?;
    let is_request =
        frame.get(12..14)? == ETHERTYPE && message[..6] == FORMATS && message[6..8] == REQUEST;
    // Of a group, or zero, it would be no sender that expects an answer.
    let sender = EthernetAddress::new(*message[8..].first_chunk()?)?.bytes();
    if !is_request || message[24..] != address.octets() {
        return None;
    }
    let mut answer = [0; MIN_LENGTH];
    let fields: [&[u8]; 9] = [
        &sender,
        &ours.bytes(),
        &ETHERTYPE,
        &FORMATS,
        &REPLY,
        &ours.bytes(),
        &address.octets(),
        &sender,
        &message[14..18],
    ];
    answer.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use etherparse::{ArpEthIpv4Packet, ArpOperation, EtherType, NetHeaders, PacketHeaders};
    use proptest::prelude::*;

    use super::*;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ADDRESS: [u8; 4] = [10, 0, 0, 100];

    fn ours() -> EthernetAddress {
        EthernetAddress::new(OURS).unwrap()
    }

    fn request(operation: ArpOperation, target: [u8; 4]) -> Vec<u8> {
        let message = ArpEthIpv4Packet {
            operation,
            sender_mac: THEIRS,
            sender_ipv4: [10, 0, 1, 1],
            target_mac: [0; 6],
            target_ipv4: target,
        };
        let message = etherparse::ArpPacket::from(message);
        let builder = etherparse::PacketBuilder::ethernet2(THEIRS, [0xff; 6]).arp(message);
        let mut frame = Vec::new();
        builder.write_to_vec(&mut frame).unwrap();
        frame
    }

    #[test]
    fn a_request_for_the_address_is_answered() {
        let request = request(ArpOperation::REQUEST, ADDRESS);
        let answer = answer(&request, ADDRESS.into(), ours()).unwrap();
        let parsed = PacketHeaders::from_ethernet_slice(&answer).unwrap();
        let ethernet = parsed.link.unwrap().ethernet2().unwrap();
        assert_eq!((ethernet.destination, ethernet.source), (THEIRS, OURS));
        assert_eq!(ethernet.ether_type, EtherType::ARP);
        let Some(NetHeaders::Arp(message)) = parsed.net else { panic!("{:?}", parsed.net) };
        let expected = ArpEthIpv4Packet {
            operation: ArpOperation::REPLY,
            sender_mac: OURS,
            sender_ipv4: ADDRESS,
            target_mac: THEIRS,
            target_ipv4: [10, 0, 1, 1],
        };
        assert_eq!(message.try_eth_ipv4().unwrap(), expected);
    }

    #[test]
    fn other_frames_are_not_answered() {
        let right = request(ArpOperation::REQUEST, ADDRESS);
        let answered = |frame: &[u8]| answer(frame, ADDRESS.into(), ours()).is_some();
        assert!(answered(&right));
        assert!(!answered(&request(ArpOperation::REPLY, ADDRESS)));
        assert!(!answered(&request(ArpOperation::REQUEST, [10, 0, 0, 101])));
        assert!(!answered(&right[..41]));
        // EtherType, formats, operation, and the sender as a group.
        for at in [13, 15, 18, 19, 21, 22] {
            let mut changed = right.clone();
            changed[at] ^= 1;
            assert!(!answered(&changed), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_frame_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), is_named in any::<bool>()) {
            let mut frame = bytes;
            let right = request(ArpOperation::REQUEST, ADDRESS);
            if is_named && let Some(head) = frame.get_mut(..22) {
                head.copy_from_slice(&right[..22]);
            }
            let _ = answer(&frame, ADDRESS.into(), ours());
        }
    }
}
