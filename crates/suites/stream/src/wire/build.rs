//! Frames with right checksums.

use applications::packet::{Headers, checksum};

use super::frame::{ETHERNET, IPV4, TCP, UDP};
use super::packet::Flow;

/// Length of the headers of Ethernet, IPv4 and UDP, in bytes.
pub(crate) const HEADERS: usize = ETHERNET + IPV4 + 8;

/// Flag of a TCP segment that opens a connection.
pub(crate) const SYN: u8 = 2;
/// Flags of a TCP segment with data.
pub(crate) const DATA: u8 = 0x18;

/// Builds a UDP packet. The protocol of the flow is ignored.
///
/// # Panics
/// Panics if the payload is longer than those of Ethernet.
pub(crate) fn udp(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    with_headers(flow, UDP, &[&length, &[0, 0], payload])
}

/// Builds a TCP segment with flags, and with options of a multiple of 4 B. The protocol of the flow is ignored.
///
/// # Panics
/// Panics if the options do not fit a header, or the payload is longer than those of Ethernet.
pub(crate) fn tcp(flow: &Flow, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() / 4;
    assert!(options.len().is_multiple_of(4) && words < 16, "{} B of options", options.len());
    // Sequence number 1, no acknowledgement unless there is data, a window of 1000 B.
    let fields = [0, 0, 0, 1, 0, 0, 0, flags >> 4 & 1, (words as u8) << 4, flags, 3, 232];
    with_headers(flow, TCP, &[&fields, &[0; 4], options, payload])
}

/// Returns a frame of headers of Ethernet and IPv4, ports, and what follows them, of which it sets the checksum.
fn with_headers(flow: &Flow, protocol: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = IPV4 + 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    assert!(length <= 1500, "an IPv4 packet of {length} B");
    // Locally administered addresses, which belong to no device.
    let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00];
    let [high, low] = (length as u16).to_be_bytes();
    frame.extend([0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0]);
    frame.extend(flow.source.octets());
    frame.extend(flow.destination.octets());
    frame.extend(flow.source_port.to_be_bytes());
    frame.extend(flow.destination_port.to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    if let Ok(headers) = Headers::parse(&frame) {
        let field = headers.transport + if protocol == UDP { 6 } else { 16 };
        let transport = checksum::of_transport(&frame, &headers).unwrap_or(0);
        frame[field..field + 2].copy_from_slice(&transport.to_ne_bytes());
        let ip = checksum::of_ip(&frame, &headers);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&ip.to_ne_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use etherparse::{NetHeaders, PacketHeaders, PayloadSlice, TransportHeader};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::tests::cases(128))]

        #[test]
        fn segments_are_valid(
            addresses in any::<[u32; 2]>(),
            ports in any::<[u16; 2]>(),
            is_syn in any::<bool>(),
            options in 0usize..10,
            payload in prop::collection::vec(any::<u8>(), 0..1400),
        ) {
            let flow = Flow {
                source: addresses[0].into(),
                destination: addresses[1].into(),
                source_port: ports[0],
                destination_port: ports[1],
                protocol: TCP,
            };
            let frame = tcp(&flow, if is_syn { SYN } else { DATA }, &vec![1; 4 * options], &payload);
            let headers = PacketHeaders::from_ethernet_slice(&frame).unwrap();
            let (
                Some(NetHeaders::Ipv4(ip, _)),
                Some(TransportHeader::Tcp(tcp)),
                PayloadSlice::Tcp(found),
            ) = (headers.net, headers.transport, headers.payload)
            else {
                panic!("not TCP")
            };
            prop_assert_eq!(found, &payload);
            prop_assert_eq!((tcp.syn, tcp.ack, tcp.psh), (is_syn, !is_syn, !is_syn));
            prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            prop_assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, found).unwrap());
            let read = crate::wire::frame::read(&frame).unwrap();
            prop_assert_eq!((read.flow, read.syn), (flow, is_syn));
        }
    }
}
