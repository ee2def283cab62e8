use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::*;

/// Source, destination, and the two hashes that Microsoft published for them: with ports and without.
const PUBLISHED: [(&str, u16, &str, u16, u32, u32); 5] = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
];

fn flow(source: &str, source_port: u16, destination: &str, destination_port: u16) -> Flow {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    Flow { source, destination, source_port, destination_port, protocol: 6 }
}

#[test]
fn the_hash_is_the_published_one() {
    for (source, from, destination, to, with_ports, without) in PUBLISHED {
        assert_eq!(hash(&flow(source, from, destination, to)), with_ports, "{source}");
        assert_eq!(hash(&flow(source, 0, destination, 0)), without, "{source}");
    }
}

#[test]
fn a_flow_stays_on_one_pipe_and_many_flows_reach_them_all() {
    let mut fallback = Fallback::new(vec![7, 9, 4], Policy::Hash);
    let mut reached = BTreeSet::new();
    for low in 0..=255 {
        let destination = Ipv4Addr::new(192, 168, 0, low);
        let flow = Flow { destination, ..flow("10.0.0.1", 8080, "0.0.0.0", 80) };
        let pipe = fallback.pipe(&flow);
        assert_eq!(fallback.pipe(&flow), pipe);
        reached.extend(pipe);
    }
    assert_eq!(reached, BTreeSet::from([4, 7, 9]));
}

#[test]
fn round_robin_takes_the_pipes_in_turn_whatever_the_flow() {
    let mut fallback = Fallback::new(vec![7, 9, 4], Policy::RoundRobin);
    let flow = flow("10.0.0.1", 8080, "10.0.0.2", 80);
    let pipes: Vec<_> = (0..7).filter_map(|_| fallback.pipe(&flow)).collect();
    assert_eq!(pipes, [7, 9, 4, 7, 9, 4, 7]);
}

#[test]
fn without_pipes_a_packet_is_dropped() {
    let flow = flow("10.0.0.1", 8080, "10.0.0.2", 80);
    for policy in [Policy::Hash, Policy::RoundRobin] {
        assert_eq!(Fallback::new(Vec::new(), policy).pipe(&flow), None);
    }
    assert_eq!(Fallback::default().pipe(&flow), None);
}
