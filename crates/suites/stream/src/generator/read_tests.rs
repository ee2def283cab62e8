//! The last line of each sent packet is read, whatever is verified. Pages show it: a page that was never touched is absent.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use machine::mapping::{Mapping, PAGE};

use super::*;
use crate::nic::layout::FLIT;
use crate::wire::Mark;
use crate::wire::sample::{SampleTraffic, Sizes};

/// Returns whether the second page of a mapping is present.
fn has_second_page(mapping: &Mapping) -> bool {
    let mut present = [0; 1];
    let page = mapping.as_mut_ptr().wrapping_add(PAGE);
    // SAFETY: the mapping has two pages, and the vector an entry for the second.
    let status = unsafe { libc::mincore(page.cast(), PAGE, present.as_mut_ptr()) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    present[0] & 1 == 1
}

/// Sends two packets, the last line of the second on an untouched page. Returns whether that page is present then.
fn reads_the_last_line(size: u16, check: Check, is_scattered: bool, is_known: bool) -> bool {
    let sample = SampleTraffic { packets: 1, size: Sizes::One(size), sources: 1, destinations: 1 };
    let traffic = Arc::new(sample.traffic().unwrap());
    let mut generator =
        Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default())).unwrap();
    let (answer, _report) = sync_channel(1);
    let trial = Trial { check, expectation: Expectation::Same, ..Trial::default() };
    generator.command(GeneratorCommand::Start(trial, answer));
    let mapping = Mapping::anonymous(2 * PAGE).unwrap();
    let (lines, bytes) = (traffic.lines(0), u32::from(traffic.packets()[0].length));
    let each = lines.len() * FLIT;
    let first = mapping.as_mut_ptr().wrapping_add(PAGE + FLIT - 2 * each);
    let both = [first, first.wrapping_add(each)];
    // SAFETY: all but the last line of the packets fit before the second page, and the packets before its end.
    unsafe {
        for (number, (place, bytes)) in (0..).zip(both.into_iter().zip([each, each - FLIT])) {
            place.copy_from_nonoverlapping(lines.as_ptr().cast(), bytes);
            // An unknown packet is corrupted, but sent too.
            let mark = Mark { index: if is_known { 0 } else { 7 }, number, stamp: 0 };
            mark.put(traffic.marks(), std::slice::from_raw_parts_mut(place, FLIT));
        }
        assert!(!has_second_page(&mapping), "the packets were not sent yet");
        if is_scattered {
            generator.on_transmit_scattered(&both.map(|start| PacketRef { start, bytes }));
        } else {
            let taken = generator.on_transmit(first, 2 * each);
            assert_eq!(taken, TxCount { packets: 2, bytes: 2 * each });
        }
    }
    has_second_page(&mapping)
}

#[test]
fn every_check_reads_the_last_line_of_a_sent_packet() {
    for size in (1..=23).map(|lines| lines * 64 + 10) {
        for check in [Check::None, Check::OneWord, Check::All] {
            for [is_scattered, is_known] in
                [[false, false], [false, true], [true, false], [true, true]]
            {
                let read = reads_the_last_line(size, check, is_scattered, is_known);
                assert!(read, "{size} B, {check:?}, scattered: {is_scattered}, known: {is_known}");
            }
        }
    }
}
