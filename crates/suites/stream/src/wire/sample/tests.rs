use std::collections::HashMap;

use etherparse::{NetHeaders, PacketHeaders, PayloadSlice, TransportHeader};
use proptest::prelude::*;

use super::*;
use crate::wire::frame::{self, MIN_LENGTH};
use crate::wire::traffic::CACHE_LINE;

const ONE: SampleTraffic =
    SampleTraffic { packets: 2, size: Sizes::One(64), sources: 1, destinations: 2 };

/// Checks a frame with an independent parser: lengths, checksums, addresses, ports.
fn check(bytes: &[u8], flow: &Flow, size: u16) {
    assert_eq!(bytes.len(), usize::from(size - CHECK_SEQUENCE));
    let headers = PacketHeaders::from_ethernet_slice(bytes).unwrap();
    let Some(NetHeaders::Ipv4(ip, _)) = headers.net else { panic!("not IPv4") };
    let Some(TransportHeader::Udp(udp)) = headers.transport else { panic!("not UDP") };
    let PayloadSlice::Udp(payload) = headers.payload else { panic!("no payload") };
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
    assert_eq!(usize::from(udp.length), payload.len() + 8);
    assert_eq!(payload.len(), usize::from(size) - 4 - 14 - 20 - 8);
    assert_eq!((ip.source, ip.destination), (flow.source.octets(), flow.destination.octets()));
    assert_eq!((udp.source_port, udp.destination_port), (flow.source_port, flow.destination_port));
}

proptest! {
    #![proptest_config(crate::tests::cases(64))]

    #[test]
    fn packets_are_valid(
        packets in 1..40_u32,
        size in prop_oneof![4 => (64..=1518_u16).prop_map(Sizes::One), 1 => Just(Sizes::Mixed), 1 => Just(Sizes::Each)],
        sources in 1..50_u32,
        destinations in 1..50_u32,
    ) {
        let sample = SampleTraffic { packets, size, sources, destinations };
        prop_assert_eq!(sample.to_string().parse::<SampleTraffic>().unwrap(), sample);
        let traffic = sample.traffic().unwrap();
        prop_assert_eq!(traffic.len(), packets as usize);
        for (index, packet) in traffic.packets().iter().enumerate() {
            let number = index as u32;
            let expected = Flow {
                source: Ipv4Addr::from_bits(0xc0a8_0000 + number % sources),
                destination: Ipv4Addr::from_bits(0xc0a8_0000 + number % destinations),
                source_port: 8080,
                destination_port: 80,
                protocol: 17,
            };
            prop_assert_eq!(packet.flow, expected);
            let bytes = traffic.bytes(index);
            check(bytes, &expected, size.of_packet(number));
            prop_assert_eq!(frame::read(bytes), Ok(Head { flow: expected, syn: false }));
            prop_assert_eq!(traffic.wire_bytes(index), u32::from(size.of_packet(number)) + 20);
        }
    }

    #[test]
    fn file_names_round_trip(name in "[0-9a-z]{0,4}_?[0-9mixedach]{0,5}_[0-9]{0,3}_[0-9]{0,11}(.pcap)?") {
        if let Ok(sample) = name.parse::<SampleTraffic>() {
            prop_assert_eq!(sample.to_string().parse::<SampleTraffic>().unwrap(), sample);
        }
    }
}

#[test]
fn packets_start_on_cache_lines_and_are_followed_by_zeros() {
    let sample =
        SampleTraffic { packets: 1455 * 2, size: Sizes::Each, sources: 1, destinations: 3 };
    let traffic = sample.traffic().unwrap();
    let mut next = 0;
    for (index, packet) in traffic.packets().iter().enumerate() {
        assert_eq!(packet.offset, next);
        let (bytes, lines) = (traffic.bytes(index), traffic.lines(index));
        assert_eq!(lines.as_ptr().addr() % CACHE_LINE, 0);
        assert_eq!(lines.len(), bytes.len().div_ceil(CACHE_LINE));
        let all: Vec<_> = lines.iter().flat_map(|line| line.0).collect();
        assert_eq!(&all[..bytes.len()], bytes);
        assert!(all[bytes.len()..].iter().all(|byte| *byte == 0));
        next += lines.len() as u32;
    }
    let sizes = (64..=1518).map(|size| size + 20).sum::<u64>() * 2;
    assert_eq!(traffic.total_wire_bytes(), sizes);
    let destinations = [0, 1, 2].map(|low| Ipv4Addr::new(192, 168, 0, low));
    assert_eq!(traffic.destinations(), destinations);
}

#[test]
fn the_line_rate_of_smallest_packets_at_100_gbps_is_148_8_million_per_second() {
    let traffic = ONE.traffic().unwrap();
    assert_eq!((traffic.wire_bytes(0), traffic.total_wire_bytes()), (84, 168));
    let rate = 100e9 / (8.0 * 84.0) / 1e6;
    assert!((148.8..148.9).contains(&rate));
}

#[test]
fn the_mix_is_seven_to_four_to_one_and_each_has_every_size_once() {
    let count = |size: Sizes| {
        let mut of: HashMap<u16, u32> = HashMap::new();
        (0..size.cycle()).for_each(|index| *of.entry(size.of_packet(index)).or_default() += 1);
        of
    };
    assert_eq!(count(Sizes::Mixed), HashMap::from([(64, 7), (594, 4), (1518, 1)]));
    assert_eq!(count(Sizes::Each), (64..=1518).map(|size| (size, 1)).collect());
}

#[test]
fn equal_samples_have_equal_bytes_and_packets_differ() {
    let (one, again) = (ONE.traffic().unwrap(), ONE.traffic().unwrap());
    for index in 0..2 {
        assert_eq!(one.bytes(index), again.bytes(index));
    }
    let payload = usize::from(MIN_LENGTH) - 18..usize::from(MIN_LENGTH);
    assert_ne!(one.bytes(0)[payload.clone()], one.bytes(1)[payload]);
}

#[test]
fn names_are_parsed_and_invalid_ones_refused_with_the_fix() {
    assert_eq!("2_64_1_2.pcap".parse::<SampleTraffic>().unwrap(), ONE);
    let mixed = SampleTraffic { packets: 12, size: Sizes::Mixed, sources: 1, destinations: 1 };
    assert_eq!(mixed.to_string(), "12_mixed_1_1.pcap");
    for (name, said) in [
        ("2_63_1_2.pcap", "packet size of 63 B; use 64 to 1518 B"),
        ("2_1519_1_2.pcap", "packet size of 1519 B"),
        ("0_64_1_2.pcap", "packets: 0"),
        ("2_64_0_2.pcap", "sources: 0"),
        ("2_64_1_0.pcap", "destinations: 0"),
        ("2_64_1_4294967295.pcap", "4294967295 addresses do not fit"),
        ("2_64_1.pcap", "2_64_1.pcap is not a sample's name; use <packets>"),
        ("2_64_1_2_3.pcap", "is not a sample's name"),
        ("2_64_1_2", "is not a sample's name"),
        ("2_small_1_2.pcap", "is not a sample's name"),
        ("", "is not a sample's name"),
    ] {
        let refused = name.parse::<SampleTraffic>().unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let long = SampleTraffic { packets: u32::MAX, size: Sizes::One(1518), ..ONE };
    let refused = long.traffic().unwrap_err().to_string();
    assert!(refused.contains("4294967295 packets are too many"), "{refused}");
}
