//! Damaged and foreign files. `PROPTEST_CASES` sets the number of cases.

use std::fs;

use proptest::sample::Index;

use super::*;

/// Returns the error for a file.
fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("strange.pcap");
    fs::write(&path, bytes).unwrap();
    let refused = read(&path).unwrap_err();
    assert_eq!(refused.path, path);
    let message = refused.to_string();
    assert!(!message.contains('\n'), "{message}");
    message.split_once("strange.pcap: ").unwrap().1.to_owned()
}

/// Returns the errors, in all formats, for a file of two valid packets and a third one.
fn third(bytes: &[u8], original: u32) -> Vec<String> {
    let good = frame(UDP, false, 0, &[0; 30]);
    let length = good.len() as u32;
    let error =
        |form: Form| refusal(&form.file(1, &[(&good, length), (&good, length), (bytes, original)]));
    Form::all().into_iter().map(error).collect()
}

#[test]
fn an_invalid_packet_is_refused_with_number_cause_and_fix() {
    let good = frame(UDP, false, 0, &[0; 30]);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let longest = frame(UDP, false, 0, &[0; 1472]);
    assert_eq!(longest.len(), 1514);
    assert!(decode(&CLASSIC.file(1, &[(&longest, 1514)])).is_ok());
    for (bytes, said) in [
        (with(12, &[8, 6]), "ARP (EtherType 0x0806), not IPv4; keep only IPv4"),
        (with(12, &[0x86, 0xdd]), "IPv6"),
        (with(12, &[0x81, 0]), "VLAN"),
        (with(12, &[0, 50]), "an IEEE 802.3 frame"),
        (with(12, &[0x88, 0xcc]), "another protocol (EtherType 0x88cc)"),
        (
            with(14, &[0x65]),
            "the IPv4 header has version 6 and a length of 20 B; remove the packet",
        ),
        (with(14, &[0x44]), "the IPv4 header has version 4 and a length of 16 B"),
        (
            with(16, &[0, 59]),
            "the IPv4 header gives a length of 59 B, but the frame contains 58 B; remove the packet",
        ),
        (with(16, &[0, 57]), "the IPv4 header gives a length of 57 B, but the frame contains 58 B"),
        (with(16, &[0, 19]), "the IPv4 header gives a length of 19 B"),
        (with(20, &[0x20, 0]), "a fragment, which has no ports; keep whole packets"),
        (with(20, &[0, 1]), "a fragment"),
        (frame(17, false, 0, &[0; 1473]), "1515 B exceed 1514"),
        (
            good[..33].to_vec(),
            "33 B are too short for an Ethernet and an IPv4 header, 34 B; remove the packet",
        ),
        (good[..13].to_vec(), "13 B are too short"),
        (Vec::new(), "0 B are too short"),
        (
            with(16, &[0, 27])[..41].to_vec(),
            "7 B of payload are too short for the header of protocol 17",
        ),
        (with(23, &[6])[..].to_vec()[..53].to_vec(), "the IPv4 header gives a length of 58 B"),
    ] {
        for refused in third(&bytes, bytes.len() as u32) {
            assert!(refused.starts_with(&format!("packet 3: {said}")), "{refused}");
        }
    }
}

#[test]
fn tcp_without_its_whole_header_is_refused() {
    let mut short = frame(TCP, true, 0, &[]);
    short.pop();
    short[17] -= 1;
    for refused in third(&short, 53) {
        assert!(
            refused.contains("19 B of payload are too short for the header of protocol 6"),
            "{refused}"
        );
    }
}

#[test]
fn a_partly_captured_packet_is_refused() {
    let good = frame(UDP, false, 0, &[0; 30]);
    for refused in third(&good, 1000) {
        assert!(
            refused.starts_with("packet 3: 72 of 1000 B were captured; capture whole"),
            "{refused}"
        );
    }
    for refused in third(&good, 71) {
        assert!(refused.starts_with("packet 3: 72 B were captured of only 71"), "{refused}");
    }
}

#[test]
fn a_file_without_ethernet_packets_is_refused() {
    let good = frame(UDP, false, 0, &[0; 30]);
    for form in Form::all() {
        assert!(refusal(&form.file(1, &[])).starts_with("no packets; "));
        let said = "packet 1: link type 101 instead of Ethernet, 1; capture on";
        assert!(refusal(&form.file(101, &[(&good, 72)])).starts_with(said));
    }
    for other in [&b"#!/bin/sh\necho packets\n"[..], b"", b"\x1f\x8b\x08\x00", &[0; 100]] {
        let said = refusal(other);
        let begins = if other.is_empty() { "cut off" } else { "not a pcap or pcapng file" };
        assert!(said.starts_with(begins), "{said}");
    }
}

#[test]
fn an_unreadable_file_is_refused_with_a_specific_fix() {
    let folder = tempfile::tempdir().unwrap();
    for (path, fix) in [
        (folder.path().to_path_buf(), "name a file in it"),
        (folder.path().join("none.pcap"), "name an existing file"),
    ] {
        let refused = read(&path).unwrap_err();
        assert!(matches!(refused.reason, Reason::Unreadable(_)), "{refused}");
        assert!(refused.to_string().ends_with(fix), "{refused}");
    }
}

/// An endless file, which counts how much of it was read.
struct Endless {
    head: Vec<u8>,
    read: usize,
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        for (at, byte) in (self.read..).zip(to.iter_mut()) {
            *byte = self.head.get(at).copied().unwrap_or(0);
        }
        self.read += to.len();
        Ok(to.len())
    }
}

#[test]
fn of_a_foreign_file_only_the_start_is_read() {
    let blocks = Form { blocks: true, ..CLASSIC }.head(1);
    // The start of a pcapng file without its byte order.
    for head in [&[][..], b"#!/bin/sh", &blocks[..8]] {
        let mut file = Endless { head: head.to_vec(), read: 0 };
        let refused = load(&mut file, 1 << 20).unwrap_err();
        assert!(matches!(refused, Reason::Magic) && file.read < 1000, "{refused}");
    }
    assert!(matches!(read(Path::new("/dev/zero")).unwrap_err().reason, Reason::Magic));
}

#[test]
fn a_file_over_the_size_limit_is_refused_with_the_limit() {
    for form in Form::all() {
        let mut file = Endless { head: form.head(1), read: 0 };
        let refused = load(&mut file, 1 << 20).unwrap_err().to_string();
        assert_eq!(refused, "larger than 1 MiB; cut it, e.g. editcap -c 1000000 IN OUT");
        let whole = load(&form.head(1)[..], form.head(1).len() as u64).unwrap();
        assert_eq!(whole, form.head(1));
        assert!(load(&form.head(1)[..], form.head(1).len() as u64 - 1).is_err());
    }
}

#[test]
fn invalid_blocks_are_refused() {
    let form = Form { blocks: true, ..CLASSIC };
    let good = frame(UDP, false, 0, &[0; 30]);
    let after = |block: Vec<u8>| refusal(&[form.file(1, &[(&good, 72)]), block].concat());
    // A simple packet, an obsolete one, one of an undeclared interface, and one too short for its packet.
    let simple = form.block(3, &[&form.word(72)[..], &good].concat());
    assert!(
        after(simple).starts_with("packet 2: in a block of type 3; convert the file to classic")
    );
    assert!(after(form.block(2, &[0; 40])).starts_with("packet 2: in a block of type 2"));
    let mut unnamed = form.record(&good, 72);
    unnamed[8] = 1;
    assert!(after(unnamed).starts_with("packet 2: its block is too short, or names no"));
    let mut short = form.record(&good, 72);
    short[20] = 73;
    assert!(after(short).starts_with("packet 2: its block is too short"));
    let mut lengths = form.record(&good, 72);
    *lengths.last_mut().unwrap() = 1;
    let said = "initial_length != trailer_length; convert the file to classic pcap";
    assert!(after(lengths).contains(said));
}

/// Returns the end of the file's header and of each record.
fn ends(form: Form, frames: &[Vec<u8>]) -> Vec<usize> {
    let mut ends = vec![form.head(1).len()];
    for frame in frames {
        ends.push(ends[ends.len() - 1] + form.record(frame, 0).len());
    }
    ends
}

#[test]
fn a_file_cut_at_any_byte_is_refused_with_the_cut_packet() {
    let frames =
        [frame(UDP, false, 0, &[1; 30]), frame(TCP, true, 2, &[]), frame(1, false, 0, &[3; 9])];
    let records: Vec<_> = frames.iter().map(|frame| (&frame[..], frame.len() as u32)).collect();
    for form in Form::all() {
        let (file, ends) = (form.file(1, &records), ends(form, &frames));
        assert_eq!(file.len(), ends[3]);
        for cut in 0..file.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            match decode(&file[..cut]) {
                // A cut between two packets leaves a valid file.
                Ok(traffic) => {
                    assert!(ends[1..].contains(&cut) && traffic.len() + 1 == whole, "{cut}")
                }
                Err((packet, Reason::Cut)) if whole > 0 => {
                    assert_eq!(packet, Some(whole as u64), "{cut}")
                }
                // A cut between the blocks of the header is not visible, but leaves no packets.
                Err((None, Reason::Empty)) => {
                    assert!(cut == ends[0] || form.blocks && cut < ends[0], "{cut}")
                }
                Err((packet, Reason::Cut)) => assert!(packet.is_none() || form.blocks, "{cut}"),
                Err((_, other)) => panic!("{form:?} cut at {cut}: {other}"),
            }
        }
    }
}

/// Checks that decoding yields valid packets or a one-line error.
fn decodes_or_refuses(bytes: &[u8]) {
    match decode(bytes) {
        Ok(traffic) => {
            assert!(!traffic.is_empty());
            for at in 0..traffic.len() {
                assert!((60..=1514).contains(&traffic.bytes(at).len()));
            }
        }
        Err((packet, reason)) => {
            let error = PcapError { path: "x".into(), packet, reason };
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        decodes_or_refuses(&bytes);
    }

    #[test]
    fn any_bytes_after_a_valid_header_are_read_or_refused(
        form in prop::sample::select(Form::all()),
        link in prop_oneof![4 => Just(1_u16), 1 => any::<u16>()],
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 2 => 0..80_u8, 1 => any::<u8>()], 0..400),
    ) {
        decodes_or_refuses(&[form.head(link), bytes].concat());
    }

    #[test]
    fn any_record_of_any_bytes_is_read_or_refused(
        form in prop::sample::select(Form::all()),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        begin in 0..60_usize,
    ) {
        // Valid bytes up to a position, then any bytes.
        let good = frame(UDP, false, 0, &[]);
        let mixed = [&good[..begin.min(good.len())], &bytes].concat();
        decodes_or_refuses(&form.file(1, &[(&good, 42), (&mixed, mixed.len() as u32)]));
    }

    #[test]
    fn flipped_bits_are_read_or_refused(
        form in prop::sample::select(Form::all()),
        frames in prop::collection::vec(any_frame(), 1..4),
        flipped in prop::collection::vec((any::<Index>(), 0..8_u8), 1..5),
        in_the_head in any::<bool>(),
    ) {
        let records: Vec<_> = frames.iter().map(|frame| (&frame[..], frame.len() as u32)).collect();
        let mut file = form.file(1, &records);
        let reach = if in_the_head { form.head(1).len() + 60 } else { file.len() };
        for (index, bit) in flipped {
            let at = index.index(reach.min(file.len()));
            file[at] ^= 1 << bit;
        }
        decodes_or_refuses(&file);
    }
}
