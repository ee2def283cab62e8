//! Tests of parsing and rewriting, with packets and checksums by etherparse.

use etherparse::{
    IpHeaders, IpNumber, Ipv4Header, PacketBuilder, PacketHeaders, TcpHeader, TransportHeader,
    UdpHeader, VlanId,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A protocol without ports.
pub(crate) const GRE: u8 = 47;

/// A valid packet.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) tag: bool,
    /// Number of 32-bit words of IPv4 options.
    pub(crate) options: usize,
    pub(crate) protocol: u8,
    pub(crate) source: ([u8; 4], u16),
    pub(crate) destination: ([u8; 4], u16),
    pub(crate) payload: Vec<u8>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            tag: false,
            options: 0,
            protocol: UDP,
            source: ([10, 0, 0, 1], 1000),
            destination: ([10, 0, 0, 2], 2000),
            payload: vec![],
        }
    }
}

impl Spec {
    /// Builds the frame, padded to the minimum length.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let header = Ipv4Header {
            time_to_live: 64,
            protocol: IpNumber(self.protocol),
            source: self.source.0,
            destination: self.destination.0,
            options: vec![1; 4 * self.options].as_slice().try_into().unwrap(),
            ..Ipv4Header::default()
        };
        let ip = IpHeaders::Ipv4(header, Default::default());
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let built = if self.tag {
            ethernet.single_vlan(VlanId::try_new(7).unwrap()).ip(ip)
        } else {
            ethernet.ip(ip)
        };
        let mut frame = Vec::new();
        let (source, destination) = (self.source.1, self.destination.1);
        match self.protocol {
            UDP => built.udp(source, destination).write_to_vec(&mut frame, &self.payload),
            TCP => built.tcp(source, destination, 5, 6).write_to_vec(&mut frame, &self.payload),
            number => built.write_to_vec(&mut frame, IpNumber(number), &self.payload),
        }
        .unwrap();
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

pub(crate) fn any_spec() -> impl Strategy<Value = Spec> {
    let protocol = prop_oneof![4 => Just(UDP), 4 => Just(TCP), 1 => Just(GRE)];
    let payload = prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..1400)];
    (any::<bool>(), 0usize..4, protocol, any::<[([u8; 4], u16); 2]>(), payload).prop_map(
        |(tag, options, protocol, [source, destination], payload)| Spec {
            tag,
            options,
            protocol,
            source,
            destination,
            payload,
        },
    )
}

/// Returns the checksums in a frame as etherparse reads them, and as it computes them.
fn checksums(frame: &[u8]) -> [(u16, u16); 2] {
    let parsed = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let (ip, payload) = match (parsed.net, parsed.payload) {
        (Some(etherparse::NetHeaders::Ipv4(ip, _)), payload) => (ip, payload),
        _ => panic!("not IPv4"),
    };
    let transport = match parsed.transport {
        Some(TransportHeader::Udp(udp)) => {
            (udp.checksum, udp.calc_checksum_ipv4(&ip, payload.slice()).unwrap())
        }
        Some(TransportHeader::Tcp(tcp)) => {
            (tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload.slice()).unwrap())
        }
        _ => (0, 0),
    };
    [(ip.header_checksum, ip.calc_header_checksum()), transport]
}

fn assert_right(frame: &[u8]) {
    let [(ip, ip_computed), (transport, computed)] = checksums(frame);
    assert_eq!((ip, transport), (ip_computed, computed), "{frame:02x?}");
}

proptest! {
    #[test]
    fn valid_packets_are_parsed(spec in any_spec()) {
        let frame = spec.frame();
        let headers = Headers::parse(&frame).unwrap();
        prop_assert_eq!((headers.has_tag(), headers.has_options()), (spec.tag, spec.options > 0));
        prop_assert_eq!(headers.ip, if spec.tag { 18 } else { 14 });
        prop_assert_eq!(headers.transport, headers.ip + 20 + 4 * spec.options);
        prop_assert_eq!(headers.protocol, spec.protocol);
        prop_assert_eq!(headers.payload_of(&frame), &spec.payload[..]);
        let length = match spec.protocol { UDP => UdpHeader::LEN, TCP => TcpHeader::MIN_LEN, _ => 0 };
        prop_assert_eq!(headers.payload, headers.transport + length);
        prop_assert_eq!(headers.end, headers.payload + spec.payload.len());
        let flow = headers.flow(&frame);
        let [a, b] = [spec.source, spec.destination];
        prop_assert_eq!(flow.addresses.to_ne_bytes().to_vec(), [a.0, b.0].concat());
        let ports = if spec.protocol == GRE { [0; 4] } else {
            [a.1.to_be_bytes(), b.1.to_be_bytes()].concat().try_into().unwrap()
        };
        prop_assert_eq!(flow.ports, u64::from(u32::from_ne_bytes(ports)) | u64::from(spec.protocol) << 32);
        let is_plain = !spec.tag && spec.options == 0 && headers.has_ports();
        prop_assert_eq!(Headers::plain(&frame), is_plain.then_some(headers));
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(
        spec in any_spec(),
        changes in vec((0usize..64, any::<u8>()), 0..6),
        length in 0usize..100,
        cut in any::<bool>(),
    ) {
        let mut frame = spec.frame();
        if cut {
            frame.truncate(length);
        }
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        check_parsed(&frame);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..120)) {
        check_parsed(&bytes);
    }

    #[test]
    fn rewritten_packets_have_right_checksums(spec in any_spec(), address in any::<[u8; 4]>()) {
        let mut frame = spec.frame();
        let headers = Headers::parse(&frame).unwrap();
        assert_right(&frame);
        prop_assert!(checksum::are_right(&frame, &headers));
        rewrite::set_destination(&mut frame, &headers, address);
        prop_assert_eq!(&frame[headers.ip + 16..headers.ip + 20], &address);
        assert_right(&frame);
        prop_assert!(checksum::are_right(&frame, &headers));
        rewrite::swap_addresses(&mut frame, &headers);
        assert_right(&frame);
        let expected = Spec { source: (address, spec.destination.1), destination: spec.source, ..spec };
        let mut swapped = expected.frame();
        swapped[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        prop_assert_eq!(&frame[..12], &swapped[..12]);
        // A checksum of 0xffff and one of 0 are equal in TCP.
        prop_assert_eq!(headers.flow(&frame), headers.flow(&swapped));
    }

    #[test]
    fn full_checksums_are_those_of_another_implementation(spec in any_spec()) {
        let frame = spec.frame();
        let headers = Headers::parse(&frame).unwrap();
        let [(ip, _), (transport, _)] = checksums(&frame);
        prop_assert_eq!(checksum::of_ip(&frame, &headers), ip.to_be());
        let computed = checksum::of_transport(&frame, &headers);
        prop_assert_eq!(computed, headers.has_ports().then_some(transport.to_be()));
    }

    #[test]
    fn damage_is_found_and_remains(spec in any_spec(), address in any::<[u8; 4]>(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut frame = spec.frame();
        let headers = Headers::parse(&frame).unwrap();
        prop_assume!(headers.has_ports());
        // The addresses and ports, which do not affect how the packet is parsed.
        let at = headers.ip + 12 + place.index(headers.transport - headers.ip - 12 + 4);
        frame[at] ^= 1 << bit;
        prop_assert!(!checksum::are_right(&frame, &headers));
        rewrite::set_destination(&mut frame, &headers, address);
        prop_assert!(!checksum::are_right(&frame, &headers));
    }

    #[test]
    fn a_changed_payload_gets_a_right_checksum(spec in any_spec(), byte in any::<u8>()) {
        let mut frame = spec.frame();
        let headers = Headers::parse(&frame).unwrap();
        frame[headers.payload..headers.payload_end].fill(byte);
        rewrite::renew_checksum(&mut frame, &headers);
        assert_right(&frame);
    }
}

proptest! {
    #[test]
    fn an_updated_checksum_of_udp_is_that_of_all_bytes(
        spec in any_spec(),
        changes in vec((any::<prop::sample::Index>(), any::<[u8; 8]>()), 1..5),
        is_absent in any::<bool>(),
    ) {
        let mut frame = Spec { protocol: UDP, payload: [&[0; 8], &spec.payload[..]].concat(), ..spec }.frame();
        let headers = Headers::parse(&frame).unwrap();
        if is_absent {
            write(&mut frame, headers.transport + 6, [0; 2]);
        }
        let mut change = 0;
        for (place, new) in changes {
            let words = (headers.payload_end - headers.payload - 8) / 2 + 1;
            let at = headers.payload + 2 * place.index(words);
            let old = u64::from_ne_bytes(read(&frame, at));
            write(&mut frame, at, new);
            change = checksum::sum_words([change, !old, u64::from_ne_bytes(new)]);
        }
        let mut expected = frame.clone();
        rewrite::renew_checksum(&mut expected, &headers);
        rewrite::update_udp_checksum(&mut frame, &headers, change);
        prop_assert_eq!(frame, expected);
    }
}

fn check_parsed(frame: &[u8]) {
    let parsed = Headers::parse(frame);
    if let Some(plain) = Headers::plain(frame) {
        assert_eq!(parsed, Ok(plain));
    }
    let Ok(headers) = parsed else { return };
    assert!(headers.ip < headers.transport && headers.transport <= headers.payload, "{headers:?}");
    assert!(headers.payload <= headers.payload_end && headers.payload_end <= headers.end);
    assert!(headers.end <= frame.len());
    // Functions that use the headers do not panic.
    let mut copy = frame.to_vec();
    rewrite::set_destination(&mut copy, &headers, [1, 2, 3, 4]);
    rewrite::swap_addresses(&mut copy, &headers);
    rewrite::renew_checksum(&mut copy, &headers);
    rewrite::update_udp_checksum(&mut copy, &headers, 5);
    assert_eq!(copy.len(), frame.len());
    checksum::are_right(frame, &headers);
}

#[test]
fn an_absent_checksum_of_udp_is_right_and_remains_absent() {
    let mut frame = Spec { payload: vec![1, 2, 3], ..Spec::default() }.frame();
    frame[40..42].fill(0);
    let headers = Headers::parse(&frame).unwrap();
    assert!(checksum::are_right(&frame, &headers));
    rewrite::set_destination(&mut frame, &headers, [9, 9, 9, 9]);
    rewrite::renew_checksum(&mut frame, &headers);
    assert_eq!(frame[40..42], [0, 0]);
    assert!(checksum::are_right(&frame, &headers));
}

#[test]
fn each_malformed_packet_is_refused_by_its_kind() {
    let udp = Spec { payload: vec![0; 30], ..Spec::default() }.frame();
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = udp.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let tcp = Spec { protocol: TCP, ..Spec::default() }.frame();
    let mut tcp_offset = tcp.clone();
    tcp_offset[46] = 0x40;
    let mut tcp_long = tcp.clone();
    tcp_long[46] = 0xf0;
    let cases = [
        (udp[..13].to_vec(), Malformed::Short),
        (udp[..33].to_vec(), Malformed::Short),
        (vec![], Malformed::Short),
        (changed(12, &[0x81, 0])[..17].to_vec(), Malformed::Short),
        (changed(12, &[8, 6]), Malformed::NotIp),
        (changed(12, &[0x05, 0xdc]), Malformed::NotIp),
        (changed(12, &[0x86, 0xdd]), Malformed::Ipv6),
        (changed(12, &[0x81, 0, 0, 7, 0x81, 0]), Malformed::Tags),
        (changed(12, &[0x88, 0xa8, 0, 7, 0x81, 0]), Malformed::Tags),
        (changed(12, &[0x81, 0, 0, 7, 0x86, 0xdd]), Malformed::Ipv6),
        (changed(14, &[0x65]), Malformed::IpHeader),
        (changed(14, &[0x44]), Malformed::IpHeader),
        (changed(16, &[0, 19]), Malformed::IpLength),
        (changed(16, &[0, 59]), Malformed::IpLength),
        (changed(16, &[0xff, 0xff]), Malformed::IpLength),
        (changed(20, &[0x20, 0]), Malformed::Fragment),
        (changed(20, &[0, 1]), Malformed::Fragment),
        (changed(16, &[0, 27]), Malformed::TransportHeader),
        (changed(38, &[0, 7]), Malformed::UdpLength),
        (changed(38, &[0, 39]), Malformed::UdpLength),
        (tcp_offset, Malformed::TransportHeader),
        (tcp_long, Malformed::TransportHeader),
    ];
    for (frame, kind) in cases {
        assert_eq!(Headers::parse(&frame), Err(kind), "{frame:02x?}");
        assert_eq!(Headers::plain(&frame), None, "{frame:02x?}");
    }
    // The don't-fragment flag is no fragment, and bytes after the packet are padding.
    assert!(Headers::parse(&changed(20, &[0x40, 0])).is_ok());
    assert!(Headers::parse(&changed(16, &[0, 57])).is_err_and(|kind| kind == Malformed::UdpLength));
    assert!(Headers::parse(&[&udp[..], &[0; 9]].concat()).is_ok());
}
