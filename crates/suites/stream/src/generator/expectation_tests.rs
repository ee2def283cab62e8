//! Returned packets are verified against each expectation: every changed bit is found, and so are lost, repeated and
//! overtaken packets, wherever the marks are.

use applications::kv::format::{self, HEADER, Operation, REQUEST, Request, STATUS, Status};
use applications::kv::{key_of, value_of};
use applications::packet::{Headers, checksum, rewrite};
use proptest::prelude::*;

use super::checked::Checked;
use super::packet_checker::{Check, Expectation, TOUCHED};
use super::trial::{Report, Trial, sequences};
use crate::nic::layout::FLIT;
use crate::wire::build::{self, HEADERS};
use crate::wire::frame::Head;
use crate::wire::sample::{SampleTraffic, Sizes};
use crate::wire::traffic::{CacheLine, Traffic, TrafficBuilder, lines_of};
use crate::wire::{Mark, MarkPosition, PacketRef};

const POSITIONS: [MarkPosition; 2] = [MarkPosition::Payload, MarkPosition::Addresses];

/// Returns traffic of frames to one destination.
fn traffic_of(frames: &[Vec<u8>], marks: MarkPosition) -> Traffic {
    let lines = frames.iter().map(|frame| lines_of(frame.len() as u16)).sum();
    let mut builder = TrafficBuilder::new(lines, marks).unwrap();
    frames.iter().for_each(|frame| {
        builder.push(frame, Head { flow: SampleTraffic::flow_to(0), syn: false });
    });
    builder.finish()
}

/// Returns three packets of a size to one destination.
fn sample(size: u16, marks: MarkPosition) -> Traffic {
    let sample = SampleTraffic { packets: 3, size: Sizes::One(size), sources: 1, destinations: 1 };
    let traffic = sample.traffic().unwrap();
    let frames: Vec<_> = (0..3).map(|index| traffic.bytes(index).to_vec()).collect();
    traffic_of(&frames, marks)
}

const OPERATIONS: usize = 3;

/// Returns three packets of requests: a GET, a SET, and a GET.
fn requests() -> Traffic {
    let frame = |number: u64| {
        let key = |operation| key_of(10 * number + operation);
        let set = Operation::Set { key: key(1), value: value_of(key(1)) };
        let operations = [Operation::Get { key: key(0) }, set, Operation::Get { key: key(2) }];
        let mut payload = vec![0; format::length(OPERATIONS)];
        format::write(&mut payload, [0; format::MARK], &operations).unwrap();
        build::udp(&SampleTraffic::flow_to(0), &payload)
    };
    let traffic = traffic_of(&[frame(0), frame(1), frame(2)], MarkPosition::Payload);
    traffic.with_expected(HEADERS + HEADER + STATUS, |packet| answer(packet, &[])).unwrap()
}

/// Answers requests, of which some values are missing.
fn answer(packet: &mut [u8], missing: &[usize]) {
    let headers = Headers::parse(packet).unwrap();
    for number in 0..OPERATIONS {
        let at = headers.payload + HEADER + number * REQUEST;
        let bytes = packet[at..].first_chunk_mut().unwrap();
        let request = Request::of(bytes);
        let answer = match missing.contains(&number) {
            true => request.with_answer(Status::Missing, 0),
            false => request.with_answer(Status::Done, value_of(request.key)),
        };
        answer.put(bytes);
    }
    rewrite::swap_addresses(packet, &headers);
    rewrite::renew_checksum(packet, &headers);
}

/// Sends a packet to another destination with right checksums.
fn redirect(packet: &mut [u8]) {
    let headers = Headers::parse(packet).unwrap();
    rewrite::set_destination(packet, &headers, [10, 1, 2, 3]);
}

/// An expectation, its traffic, and what the application does.
type Case = (Expectation, Traffic, fn(&mut [u8]));

/// Returns a case of each expectation of which something returns. Answers have exchanged Ethernet addresses, so that these
/// have no marks.
fn cases(marks: MarkPosition) -> Vec<Case> {
    let touch: fn(&mut [u8]) = |packet| packet[TOUCHED] = packet[TOUCHED].wrapping_add(1);
    let answered: fn(&mut [u8]) = |packet| answer(packet, &[]);
    let redirected = sample(150, marks).with_expected(26, redirect).unwrap();
    let mut cases: Vec<Case> = vec![
        (Expectation::Same, sample(64, marks), |_| ()),
        (Expectation::Byte, sample(64, marks), touch),
        (Expectation::Byte, sample(150, marks), touch),
        (Expectation::Images, redirected, redirect),
    ];
    if marks == MarkPosition::Payload {
        cases.push((Expectation::Answers, requests(), answered));
    }
    cases
}

/// Returns a packet with its mark, after the application's work.
fn returned(traffic: &Traffic, index: u32, number: u32, work: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = traffic.bytes(index as usize).to_vec();
    Mark { index, number, stamp: 0x1234_5678 }.put(traffic.marks(), &mut packet);
    work(&mut packet);
    packet
}

/// Returns the report if packets return, scattered or each after the one before it.
fn report(
    traffic: &Traffic,
    expectation: Expectation,
    check: Check,
    packets: &[Vec<u8>],
    is_scattered: bool,
) -> Report {
    let mut checked = Checked::new(traffic, &sequences(traffic));
    let trial = Trial { expectation, check, ..Trial::default() };
    checked.prepare(&trial, traffic, std::iter::empty());
    checked.begin(0);
    let mut lines = Vec::new();
    let mut places = Vec::new();
    for packet in packets {
        places.push((lines.len(), packet.len() as u32));
        for chunk in packet.chunks(FLIT) {
            let mut line = CacheLine([0; FLIT]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            lines.push(line);
        }
    }
    let start = lines.as_ptr();
    let refs: Vec<_> = places
        .into_iter()
        .map(|(line, bytes)| PacketRef { start: start.wrapping_add(line).cast(), bytes })
        .collect();
    // SAFETY: the lines are whole flits of this function, and contain the packets.
    unsafe {
        if is_scattered {
            checked.take_scattered(&refs);
        } else {
            checked.take(start.cast(), lines.len() * FLIT);
        }
    }
    checked.report()
}

/// Returns what was received, corrupted and late, and the values that were missing.
fn counts(report: &Report) -> [u64; 4] {
    [report.received, report.corrupted, report.late, report.missing.unwrap_or(0)]
}

#[test]
fn what_is_expected_is_intact() {
    for marks in POSITIONS {
        for (expectation, traffic, work) in cases(marks) {
            let packets: Vec<_> =
                (0..9).map(|number| returned(&traffic, number % 3, number, work)).collect();
            for check in [Check::None, Check::OneWord, Check::All] {
                for is_scattered in [false, true] {
                    let report = report(&traffic, expectation, check, &packets, is_scattered);
                    assert_eq!(
                        counts(&report),
                        [9, 0, 0, 0],
                        "{expectation:?} {marks:?} {check:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_changed_bit_is_found() {
    for marks in POSITIONS {
        for (expectation, traffic, work) in cases(marks) {
            let packets: Vec<_> =
                (0..3).map(|number| returned(&traffic, number, number, work)).collect();
            for bit in 0..8 * packets[1].len() {
                // Nothing protects the time in a mark of 12 bytes.
                let is_time = marks == MarkPosition::Addresses && (8..12).contains(&(bit / 8));
                let mut packets = packets.clone();
                packets[1][bit / 8] ^= 1 << (bit % 8);
                for is_scattered in [false, true] {
                    let report = report(&traffic, expectation, Check::All, &packets, is_scattered);
                    let is_found = report.corrupted + report.late > 0 || report.received != 3;
                    assert_eq!(
                        is_found, !is_time,
                        "{expectation:?} {marks:?} bit {bit}: {report:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_application_that_does_nothing_is_found() {
    for marks in POSITIONS {
        for (expectation, traffic, _) in cases(marks).split_off(1) {
            let packets: Vec<_> =
                (0..3).map(|number| returned(&traffic, number, number, |_| ())).collect();
            for check in [Check::OneWord, Check::All] {
                let report = report(&traffic, expectation, check, &packets, true);
                assert_eq!(report.corrupted, 3, "{expectation:?} {check:?}");
            }
        }
    }
}

#[test]
fn lost_repeated_and_overtaken_packets_are_found() {
    for marks in POSITIONS {
        for (expectation, traffic, work) in cases(marks) {
            for (numbers, late) in [
                (&[0, 1, 2, 3][..], 0),
                (&[0, 1, 3, 4], 0),
                (&[0, 1, 1, 2], 1),
                (&[0, 2, 1, 3], 1),
                (&[3, 0, 1, 2], 3),
                (&[0, 0, 1, 1], 2),
            ] {
                let packets: Vec<_> = numbers
                    .iter()
                    .map(|number| returned(&traffic, number % 3, *number, work))
                    .collect();
                for is_scattered in [false, true] {
                    let report = report(&traffic, expectation, Check::All, &packets, is_scattered);
                    let found = counts(&report);
                    assert_eq!(found, [4, 0, late, 0], "{expectation:?} {marks:?} {numbers:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::tests::cases(64))]

    #[test]
    fn missing_values_are_told_apart_from_wrong_ones(
        missing in prop::sample::subsequence(vec![0usize, 2], 0..=2),
        change in prop::option::of((0usize..HEADERS + HEADER + OPERATIONS * REQUEST, 1u8..=255)),
        renews in any::<bool>(),
        is_scattered in any::<bool>(),
    ) {
        let traffic = requests();
        let mut packets: Vec<_> = (0..3)
            .map(|number| returned(&traffic, number, number, |packet| {
                answer(packet, if number == 1 { &missing } else { &[] });
            }))
            .collect();
        if let Some((at, change)) = change {
            // In place of the identity it would be another packet; length and time are tested elsewhere.
            prop_assume!(!(12..24).contains(&at));
            prop_assume!(!(44..60).contains(&at));
            packets[1][at] ^= change;
            let headers = Headers::parse(&packets[1]);
            if renews && let Ok(headers) = headers {
                rewrite::renew_checksum(&mut packets[1], &headers);
            }
        }
        let report = report(&traffic, Expectation::Answers, Check::All, &packets, is_scattered);
        // A renewed checksum is right again.
        let is_wrong = change.is_some_and(|(at, _)| !renews || !(40..42).contains(&at));
        let expected = if is_wrong { [3, 1, 0, 0] } else { [3, 0, 0, missing.len() as u64] };
        prop_assert_eq!(counts(&report), expected);
    }

    #[test]
    fn a_missing_value_must_be_zero_and_of_a_get(value in 1u64.., of_set in any::<bool>(), sum in any::<bool>()) {
        let traffic = requests();
        let number = if of_set { 1 } else { 2 };
        let packet = returned(&traffic, 0, 0, |packet| {
            answer(packet, &[]);
            let headers = Headers::parse(packet).unwrap();
            let bytes = packet[headers.payload + HEADER + number * REQUEST..].first_chunk_mut().unwrap();
            let of = Request::of(bytes).with_answer(Status::Missing, if of_set { 0 } else { value });
            of.put(bytes);
            if sum {
                rewrite::renew_checksum(packet, &headers);
                assert!(checksum::are_right(packet, &headers));
            }
        });
        let report = report(&traffic, Expectation::Answers, Check::All, &[packet], true);
        prop_assert_eq!(counts(&report), [1, 1, 0, 0]);
    }
}

#[test]
fn anything_that_returns_from_a_receiver_is_an_error() {
    for marks in POSITIONS {
        let traffic = sample(64, marks);
        let packets = [returned(&traffic, 0, 0, |_| ())];
        for check in [Check::None, Check::OneWord, Check::All] {
            let report = report(&traffic, Expectation::Nothing, check, &packets, true);
            assert_eq!(counts(&report)[..2], [1, 1]);
            let nothing = self::report(&traffic, Expectation::Nothing, check, &[], true);
            assert_eq!(counts(&nothing), [0; 4]);
        }
    }
}
