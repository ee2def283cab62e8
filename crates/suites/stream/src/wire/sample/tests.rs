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
        size in prop_oneof![4 => (64..=1518_u16).prop_map(Sizes::One), 1 => Just(Sizes::Imix), 1 => Just(Sizes::Each)],
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
            let size = sample.size_of(number);
            check(bytes, &expected, size);
            prop_assert_eq!(frame::read(bytes), Ok(Head { flow: expected, syn: false }));
            prop_assert_eq!(traffic.wire_bytes(index), u32::from(size) + 20);
        }
    }

    #[test]
    fn file_names_round_trip(name in "[0-9a-z]{0,4}_?[0-9imxeach]{0,5}_[0-9]{0,3}_[0-9]{0,11}(.pcap)?") {
        if let Ok(sample) = name.parse::<SampleTraffic>() {
            prop_assert_eq!(sample.to_string().parse::<SampleTraffic>().unwrap(), sample);
        }
    }
}

#[test]
fn packets_start_on_cache_lines_and_are_followed_by_zeros() {
    let sample =
        SampleTraffic { packets: 1455 * 3, size: Sizes::Each, sources: 1, destinations: 3 };
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
    let sizes = (64..=1518).map(|size| size + 20).sum::<u64>() * 3;
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
        size.all().for_each(|size| *of.entry(size).or_default() += 1);
        of
    };
    assert_eq!(count(Sizes::Imix), HashMap::from([(64, 7), (594, 4), (1518, 1)]));
    assert_eq!(count(Sizes::Each), (64..=1518).map(|size| (size, 1)).collect());
}

#[test]
fn each_destination_gets_the_whole_mix_and_so_do_consecutive_packets() {
    for destinations in [1, 2, 3, 8, 12, 1024] {
        let packets = 12 * destinations;
        let sample = SampleTraffic { packets, size: Sizes::Imix, sources: 1, destinations };
        let sorted = |sizes: &mut dyn Iterator<Item = u16>| {
            let mut sizes: Vec<_> = sizes.collect();
            sizes.sort_unstable();
            sizes
        };
        let mix = [64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518];
        for to in 0..destinations {
            let mut of = (to..packets).step_by(destinations as usize).map(|i| sample.size_of(i));
            assert_eq!(sorted(&mut of), mix, "{to} of {destinations}");
        }
        if destinations >= 12 {
            assert_eq!(sorted(&mut (0..12).map(|i| sample.size_of(i))), mix);
        }
        let all = sample.traffic().unwrap();
        let wire_bytes = u64::from(destinations) * (7 * 84 + 4 * 614 + 1538);
        assert_eq!(all.total_wire_bytes(), wire_bytes, "20 B of preamble and gap each");
    }
    let mean = Sizes::Imix.mean(|size| f64::from(size + 20));
    assert!((mean - 4582.0 / 12.0).abs() < 1e-9, "{mean}");
}

#[test]
fn packets_of_a_number_of_bytes_are_the_nearest() {
    let sample = SampleTraffic { packets: 36, size: Sizes::Imix, sources: 1, destinations: 3 };
    let traffic = sample.traffic().unwrap();
    let ends = traffic.packets().iter().cycle().scan(0, |end, packet| {
        *end += u64::from(packet.wire_bytes());
        Some(*end)
    });
    let ends: Vec<u64> = std::iter::once(0).chain(ends.take(100)).collect();
    for bytes in (0..ends[99]).step_by(7) {
        let packets = traffic.packets_of(bytes) as usize;
        let away = |packets: usize| ends[packets].abs_diff(bytes);
        let nearest = (0..100).map(away).min().unwrap();
        assert_eq!(away(packets), nearest, "{packets} for {bytes} B");
    }
}

#[test]
fn round_robin_reaches_the_same_pipe_in_every_round() {
    for (packets, pipes, repeated) in [(4, 2, 4), (4, 6, 12), (5, 3, 15), (1, 8, 8), (6, 1, 6)] {
        let sample = SampleTraffic { packets, destinations: packets, ..ONE };
        let (one, all) = (sample.traffic().unwrap(), sample.traffic().unwrap());
        let all = all.for_round_robin(pipes).unwrap();
        assert_eq!((all.len(), all.len() % pipes as usize), (repeated, 0));
        for (index, sequence) in all.sequences().unwrap().iter().enumerate() {
            assert_eq!(*sequence, index as u32 % pipes);
            assert_eq!(all.bytes(index), one.bytes(index % one.len()));
        }
    }
    let long = SampleTraffic { packets: 8191, ..ONE }.traffic().unwrap();
    assert!(long.for_round_robin(8192).is_none(), "67 million packets");
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
    let imix = SampleTraffic { packets: 12, size: Sizes::Imix, sources: 1, destinations: 1 };
    assert_eq!(imix.to_string(), "12_imix_1_1.pcap");
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
