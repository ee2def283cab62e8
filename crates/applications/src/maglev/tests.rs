//! Tests of the load balancer with whole packets.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::application::tests::run;
use crate::packet::checksum;
use crate::packet::tests::{Spec, any_spec};
use crate::packet::{Malformed, TCP, UDP};

fn backends(count: u32) -> Vec<Ipv4Addr> {
    (0..count).map(|n| Ipv4Addr::from(0x0a01_0000 + n)).collect()
}

fn value(application: &impl Application, name: &str) -> u64 {
    application.counts().iter().find(|count| count.name == name).unwrap().value
}

fn syn(client: u32) -> Vec<u8> {
    let [a, b, c, d] = client.to_be_bytes();
    Spec { protocol: TCP, source: ([a, b, c, d], 1234), ..Spec::default() }.frame()
}

/// Returns the address to which a packet was sent.
fn destination(packet: &[u8]) -> Ipv4Addr {
    let headers = Headers::parse(packet).unwrap();
    let bytes: [u8; 4] = packet[headers.ip + 16..headers.ip + 20].try_into().unwrap();
    Ipv4Addr::from(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn packets_go_to_the_backend_of_their_flow(specs in vec(any_spec(), 1..40)) {
        let backends = backends(50);
        let mut complete = CompleteMaglev::new(&backends).unwrap();
        let mut enso = EnsoMaglev::new(&backends).unwrap();
        let original: Vec<_> = specs.iter().map(Spec::frame).collect();
        let (mut by_complete, mut by_enso) = (original.clone(), original.clone());
        prop_assert_eq!(run(&mut complete, &mut by_complete), vec![Decision::Send; specs.len()]);
        prop_assert_eq!(run(&mut enso, &mut by_enso), vec![Decision::Send; specs.len()]);
        let table = Table::new(&backends, |_| true).unwrap();
        for ((original, complete), enso) in original.iter().zip(&by_complete).zip(&by_enso) {
            let headers = Headers::parse(original).unwrap();
            let backend = table.backend(hash::of_flow(headers.flow(original)));
            let address = backends[usize::from(backend)];
            prop_assert_eq!((destination(complete), destination(enso)), (address, address));
            prop_assert!(checksum::are_right(complete, &headers));
            let mut expected = original.clone();
            rewrite::set_destination_only(&mut expected, &headers, address.octets());
            prop_assert_eq!(enso, &expected, "only the address changes");
            rewrite::set_destination_only(&mut expected, &headers, destination(original).octets());
            prop_assert_eq!(original, &expected);
        }
    }

    #[test]
    fn any_bytes_are_balanced_or_counted(frames in vec(vec(any::<u8>(), 0..100), 1..40)) {
        let mut maglev = CompleteMaglev::new(&backends(7)).unwrap();
        let mut packets = frames.clone();
        let decisions = run(&mut maglev, &mut packets);
        let consumed = decisions.iter().filter(|decision| !decision.is_sent()).count() as u64;
        prop_assert_eq!(maglev.malformed.total(), consumed);
        prop_assert_eq!(value(&maglev, "packets"), frames.len() as u64);
        for ((before, after), decision) in frames.iter().zip(&packets).zip(decisions) {
            prop_assert_eq!(decision.is_sent(), Headers::parse(before).is_ok());
            prop_assert!(decision.is_sent() || before == after);
        }
    }
}

#[test]
fn connections_stay_on_their_backend_when_others_fail() {
    fn check<C: Connections>() {
        let backends = backends(20);
        let mut maglev = Maglev::<C>::new(&backends).unwrap();
        // Few enough that none is replaced in the cache.
        let fresh = || (0..100).map(syn).collect::<Vec<_>>();
        let mut first = fresh();
        run(&mut maglev, &mut first);
        assert_eq!(value(&maglev, "cache-misses"), 100);
        maglev.set_serving(3, false).unwrap();
        let mut second = fresh();
        run(&mut maglev, &mut second);
        let mut moved = 0;
        for (first, second) in first.iter().zip(&second) {
            let (old, new) = (destination(first), destination(second));
            assert_ne!(new, backends[3]);
            assert!(old == backends[3] || old == new);
            moved += u64::from(old != new);
        }
        assert!(moved > 0);
        assert_eq!(value(&maglev, "cache-misses"), 100 + moved);
        // A new connection reaches it after its return.
        maglev.set_serving(3, true).unwrap();
        let mut others: Vec<_> = (1000..1200).map(syn).collect();
        run(&mut maglev, &mut others);
        assert!(others.iter().any(|packet| destination(packet) == backends[3]));
    }
    check::<HashCache>();
    check::<FlowConnections>();
}

#[test]
fn the_last_backend_stays() {
    let mut maglev = EnsoMaglev::new(&backends(2)).unwrap();
    maglev.set_serving(0, false).unwrap();
    assert_eq!(maglev.set_serving(1, false), Err(TableError::NoBackends));
    let mut packets = vec![syn(1)];
    run(&mut maglev, &mut packets);
    assert_eq!(destination(&packets[0]), backends(2)[1]);
    maglev.set_serving(77, false).unwrap();
}

#[test]
fn load_is_spread_over_all_backends() {
    let mut maglev = CompleteMaglev::new(&backends(10)).unwrap();
    let mut packets: Vec<_> = (0..10_000).map(syn).collect();
    run(&mut maglev, &mut packets);
    let mut load = HashMap::<_, u32>::new();
    packets.iter().for_each(|packet| *load.entry(destination(packet)).or_default() += 1);
    // 1,000 each, with a standard deviation of 30.
    assert!(load.len() == 10 && load.values().all(|load| (850..1150).contains(load)), "{load:?}");
}

#[test]
fn a_flood_misses_the_cache_and_few_flows_hit_it() {
    let mut maglev = EnsoMaglev::new(&backends(1000)).unwrap();
    let mut few: Vec<_> = (0..1600).map(|n| syn(n % 16)).collect();
    run(&mut maglev, &mut few);
    assert_eq!(value(&maglev, "cache-misses"), 16);
    let mut flood: Vec<_> = (0..3000).map(syn).collect();
    run(&mut maglev, &mut flood);
    let mut again: Vec<_> = (0..3000).map(syn).collect();
    run(&mut maglev, &mut again);
    assert!(value(&maglev, "cache-misses") > 5000, "more flows than entries");
}

#[test]
fn malformed_packets_are_dropped_by_kind() {
    let mut maglev = EnsoMaglev::new(&backends(3)).unwrap();
    let mut fragment = syn(1);
    fragment[20] = 0x20;
    let udp = Spec { protocol: UDP, tag: true, options: 2, ..Spec::default() }.frame();
    let decisions = run(&mut maglev, &mut [fragment, udp, vec![0; 10]]);
    assert_eq!(decisions, [Decision::Consume, Decision::Send, Decision::Consume]);
    assert_eq!(
        (maglev.malformed.of(Malformed::Fragment), maglev.malformed.of(Malformed::Short)),
        (1, 1)
    );
}
