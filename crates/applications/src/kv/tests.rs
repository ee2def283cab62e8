//! Tests of the store with whole packets.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::format::{Answers, Operation};
use super::*;
use crate::application::tests::run;
use crate::packet::TCP;
use crate::packet::tests::{Spec, any_spec};

fn store() -> KeyValue {
    KeyValue::new(Size::of_keys(4096), 0, 1).unwrap()
}

fn requests(operations: &[Operation]) -> Spec {
    let mut payload = vec![0; format::length(operations.len()) + 3];
    format::write(&mut payload, [7; format::MARK], operations).unwrap();
    Spec { payload, ..Spec::default() }
}

/// Bytes that replace those of a packet, and whether its checksums are computed afterwards.
type Damage = Option<(Vec<(usize, u8)>, bool)>;

/// None of nearly all packets, so that most groups have none.
fn damage() -> impl Strategy<Value = Damage> {
    let change = (vec((0usize..single::LENGTH, any::<u8>()), 1..3), any::<bool>());
    prop_oneof![80 => Just(None), 1 => change.prop_map(Some)]
}

/// Returns a packet with one request, a GET, a SET, or an unknown operation, and nothing after it.
fn single(rank: u64, kind: u8, damage: &Damage) -> Vec<u8> {
    let operation = if kind == 0 { get(rank) } else { set(rank) };
    let mut payload = vec![0; format::length(1)];
    format::write(&mut payload, [7; format::MARK], &[operation]).unwrap();
    if kind == 3 {
        payload[HEADER] = 0x81;
    }
    let mut frame = Spec { payload, ..Spec::default() }.frame();
    assert!(frame.len() == single::LENGTH && frame.first_chunk().is_some_and(single::is_valid));
    if let Some((changes, is_repaired)) = damage {
        changes.iter().for_each(|(at, byte)| frame[*at] = *byte);
        if let Ok(headers) = Headers::parse(&frame)
            && *is_repaired
        {
            write(&mut frame, headers.ip + 10, [0; 2]);
            let ip = checksum::of_ip(&frame, &headers);
            write(&mut frame, headers.ip + 10, ip.to_ne_bytes());
            rewrite::renew_checksum(&mut frame, &headers);
        }
    }
    frame
}

fn set(rank: u64) -> Operation {
    Operation::Set { key: key_of(rank), value: value_of(key_of(rank)) }
}

fn get(rank: u64) -> Operation {
    Operation::Get { key: key_of(rank) }
}

fn value(store: &KeyValue, name: &str) -> u64 {
    store.counts().iter().find(|count| count.name == name).unwrap().value
}

/// Returns the payload of an answer, after checks of its headers against those of the request.
fn answer(spec: &Spec, packet: &[u8]) -> Vec<u8> {
    let headers = Headers::parse(packet).unwrap();
    assert!(checksum::are_right(packet, &headers));
    let payload = headers.payload_of(packet).to_vec();
    let mut expected = Spec {
        source: spec.destination,
        destination: spec.source,
        payload: payload.clone(),
        ..spec.clone()
    }
    .frame();
    expected[..12].rotate_left(6);
    assert_eq!(packet, expected);
    assert_eq!(payload[..HEADER], spec.payload[..HEADER], "the mark and the number of requests");
    payload
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn operations_without_packets_do_the_same(ranks in vec((0u64..500, any::<bool>()), 1..200)) {
        let operation = |(rank, is_set): &(u64, bool)| if *is_set { set(*rank) } else { get(*rank) };
        let operations: Vec<_> = ranks.iter().map(operation).collect();
        let [mut with_packets, mut without] = [store(), store()];
        let mut packets: Vec<_> = operations.chunks(7).map(|some| requests(some).frame()).collect();
        for (packet, some) in packets.iter().zip(operations.chunks(7)) {
            let payload = Headers::parse(packet).unwrap().payload_of(packet);
            let sent = payload[HEADER..].as_chunks().0.iter().map(format::Request::of);
            let sent: Vec<_> = sent.take(some.len()).filter_map(format::Request::to_operation).collect();
            prop_assert_eq!(sent, some);
        }
        run(&mut with_packets, &mut packets);
        prop_assert_eq!(execute(without.partition(), &operations), value(&with_packets, "found-keys"));
        for key in (0..500).map(key_of) {
            let hash = KeyHash::new(key);
            prop_assert_eq!(with_packets.partition().get(hash, key), without.partition().get(hash, key));
        }
    }

    #[test]
    fn answers_are_those_of_a_map(
        packets in vec((vec((0u64..200, 0u8..3), 1..60), any::<bool>(), 0usize..3), 1..40),
    ) {
        // So large that no key is evicted.
        let mut store = store();
        let mut model = HashMap::new();
        let specs: Vec<_> = packets.iter().enumerate().map(|(number, (requests_of, tag, options))| {
            let operations: Vec<_> = requests_of.iter().map(|(rank, kind)| match kind {
                0 => Operation::Set { key: key_of(*rank), value: number as u64 },
                _ => get(*rank),
            }).collect();
            Spec { tag: *tag, options: *options, ..requests(&operations) }
        }).collect();
        let mut frames: Vec<_> = specs.iter().map(Spec::frame).collect();
        prop_assert_eq!(run(&mut store, &mut frames), vec![Decision::Reply; specs.len()]);
        for (number, ((spec, frame), (operations, ..))) in specs.iter().zip(&frames).zip(&packets).enumerate() {
            let payload = answer(spec, frame);
            prop_assert_eq!(&payload[payload.len() - 3..], &[0; 3], "bytes after the requests");
            let answers = payload[HEADER..].as_chunks::<REQUEST>().0;
            prop_assert_eq!(answers.len(), operations.len());
            for (answer, (rank, kind)) in answers.iter().zip(operations) {
                prop_assert_eq!(&answer[KEY..], &key_of(*rank).to_be_bytes());
                let (status, value) = match kind {
                    0 => {
                        model.insert(*rank, number as u64);
                        (Status::Done, number as u64)
                    }
                    _ => model.get(rank).map_or((Status::Missing, 0), |value| (Status::Done, *value)),
                };
                prop_assert_eq!((answer[STATUS], &answer[VALUE..KEY]), (status as u8, &value.to_be_bytes()[..]));
            }
        }
    }

    #[test]
    fn packets_with_one_request_get_the_same_answers_as_in_any_group(
        packets in vec((0u64..60, 0u8..4, damage()), 1..150),
    ) {
        // Half of the keys are of the other partition.
        let [mut short, mut general] = [0; 2].map(|_| KeyValue::new(Size::of_keys(4096), 0, 2).unwrap());
        let mut frames: Vec<_> = packets.iter().map(|(rank, kind, damage)| single(*rank, *kind, damage)).collect();
        let mut expected = frames.clone();
        let decisions = run(&mut short, &mut frames);
        let mut answered = Vec::new();
        for group in expected.chunks_mut(PACKETS) {
            let mut group: Vec<_> = group.iter_mut().map(Vec::as_mut_slice).collect();
            general.packets += group.len() as u64;
            answered.extend_from_slice(&general.answer_group(&mut group)[..group.len()]);
        }
        prop_assert_eq!(frames, expected);
        prop_assert_eq!(decisions.iter().map(|it| it.is_sent()).collect::<Vec<_>>(), answered);
        prop_assert_eq!(short.counts(), general.counts());
    }

    #[test]
    fn a_packet_with_one_request_is_valid_if_it_is_for_any_path(
        kind in 0u8..4,
        changes in vec((0usize..single::LENGTH, any::<u8>()), 0..3),
        is_repaired in any::<bool>(),
        length in 0usize..100,
    ) {
        let mut frame = single(7, kind, &Some((changes, is_repaired)));
        if length < frame.len() {
            frame.resize(length, 0);
        }
        let is_valid = frame.first_chunk().is_some_and(single::is_valid);
        let accepted = KeyValue::accept(&frame);
        if is_valid {
            prop_assert_eq!(accepted, Ok((single::HEADERS, 1)));
            let key = frame.first_chunk().map(single::key);
            prop_assert_eq!(key, Some(u64::from_be_bytes(read(&frame, single::HEADERS.payload + HEADER + KEY))));
        } else if accepted == Ok((single::HEADERS, 1)) {
            prop_assert_eq!(&frame[40..42], &[0; 2], "without checksum");
        }
    }

    #[test]
    fn any_bytes_are_answered_or_counted(spec in any_spec(), changes in vec((0usize..120, any::<u8>()), 0..4), is_request in any::<bool>()) {
        let mut frame = if is_request { requests(&[set(1), get(2)]).frame() } else { spec.frame() };
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let before = frame.clone();
        let mut store = store();
        let mut packets = vec![frame];
        let decision = run(&mut store, &mut packets)[0];
        prop_assert_eq!(value(&store, "packets"), 1);
        prop_assert_eq!(store.malformed.total(), u64::from(decision == Decision::Consume));
        prop_assert_eq!(decision == Decision::Consume, packets[0] == before);
    }
}

#[test]
fn every_answer_is_checked_without_state() {
    let mut store = store();
    let specs: Vec<_> = (0..40)
        .map(|n| requests(&[set(n), get(n), get(n + 1), get(n.saturating_sub(1))]))
        .collect();
    let mut frames: Vec<_> = specs.iter().map(Spec::frame).collect();
    run(&mut store, &mut frames);
    let mut total = Answers::default();
    for (spec, frame) in specs.iter().zip(&frames) {
        let Answers { found, missing, set } = format::check(&answer(spec, frame)).unwrap();
        total.found += found;
        total.missing += missing;
        total.set += set;
    }
    assert_eq!(total, Answers { found: 80, missing: 40, set: 40 });
    assert_eq!(
        (value(&store, "gets"), value(&store, "found-keys"), value(&store, "sets")),
        (120, 80, 40)
    );
}

#[test]
fn an_evicted_key_is_missing() {
    let mut store = KeyValue::new(Size { buckets: 64, log: 16 }, 0, 1).unwrap();
    let fill: Vec<_> = (0..17).map(set).collect();
    let spec = requests(&[&fill[..], &[get(0), get(16)]].concat());
    let mut frames = vec![spec.frame()];
    run(&mut store, &mut frames);
    let answers = format::check(&answer(&spec, &frames[0])).unwrap();
    assert_eq!(answers, Answers { found: 1, missing: 1, set: 17 });
}

#[test]
fn keys_of_other_partitions_and_unknown_operations_are_refused() {
    let mut store = KeyValue::new(Size::of_keys(64), 1, 2).unwrap();
    let of = |partition| {
        (0..).find(|rank| KeyHash::new(key_of(*rank)).partition(2) == partition).unwrap()
    };
    let mut spec = requests(&[set(of(0)), set(of(1)), get(of(1))]);
    spec.payload[HEADER + 2 * REQUEST] = 3;
    let mut frames = vec![spec.frame()];
    assert_eq!(run(&mut store, &mut frames), [Decision::Reply]);
    let payload = answer(&spec, &frames[0]);
    let statuses: Vec<_> = (0..3).map(|n| payload[HEADER + n * REQUEST + STATUS]).collect();
    let expected = [Status::Elsewhere, Status::Done, Status::Unknown].map(|status| status as u8);
    assert_eq!(statuses, expected);
    assert_eq!(value(&store, "refused-requests"), 2);
}

#[test]
fn damaged_packets_are_dropped_and_set_nothing() {
    let mut store = store();
    let mut damaged = requests(&[set(7)]).frame();
    damaged[42 + HEADER + 20] ^= 0x10;
    let mut not_udp = requests(&[set(7)]);
    not_udp.protocol = TCP;
    let mut without = requests(&[set(8)]).frame();
    without[40..42].fill(0);
    let mut frames = vec![damaged, not_udp.frame(), without, requests(&[get(7), get(8)]).frame()];
    let decisions = run(&mut store, &mut frames);
    use Decision::{Consume, Reply};
    assert_eq!(decisions, [Consume, Consume, Reply, Reply]);
    assert_eq!(store.malformed.of(Malformed::Checksum), 1);
    assert_eq!(store.malformed.of(Malformed::Payload), 1);
    assert_eq!(frames[2][40..42], [0, 0], "a request without checksum has an answer without");
    let headers = Headers::parse(&frames[3]).unwrap();
    let answers = format::check(headers.payload_of(&frames[3])).unwrap();
    assert_eq!(answers, Answers { found: 1, missing: 1, set: 0 });
}

#[test]
fn the_number_of_keys_fits_the_memory() {
    assert_eq!(keys_within(usize::MAX), MAX_KEYS);
    for bytes in [0, 1000, 1 << 20, 1 << 30, 5 << 30] {
        let keys = keys_within(bytes);
        assert!(keys == 1 || Size::of_keys(keys).bytes() <= bytes);
        assert!(Size::of_keys(2 * keys).bytes() > bytes, "{keys} keys in {bytes} B");
    }
}

#[test]
fn ranks_have_different_keys() {
    let mut keys: Vec<_> = (0..100_000).map(key_of).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100_000);
}
