//! Files that are cut, strange, or no files of packets at all. `PROPTEST_CASES` says how many of each are tried.

use std::fs;

use proptest::sample::Index;

use super::*;

/// What is said of a file, as a person reads it.
fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("strange.pcap");
    fs::write(&path, bytes).unwrap();
    let refused = read(&path).unwrap_err();
    assert_eq!(refused.path, path);
    let said = refused.to_string();
    assert!(!said.contains('\n'), "{said}");
    said.split_once("strange.pcap: ").unwrap().1.to_owned()
}

/// Two good packets, and a third that is not.
fn third(bytes: &[u8], original: u32) -> Vec<String> {
    let good = frame(UDP, false, 0, &[0; 30]);
    let length = good.len() as u32;
    let said =
        |form: Form| refusal(&form.file(1, &[(&good, length), (&good, length), (bytes, original)]));
    Form::all().into_iter().map(said).collect()
}

#[test]
fn a_strange_packet_is_refused_with_its_number_the_reason_and_the_remedy() {
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
        (with(12, &[8, 6]), "it is ARP (EtherType 0x0806), not IPv4: keep IPv4 alone"),
        (with(12, &[0x86, 0xdd]), "it is IPv6"),
        (with(12, &[0x81, 0]), "it is VLAN"),
        (with(12, &[0, 50]), "it is an IEEE 802.3 frame"),
        (with(12, &[0x88, 0xcc]), "it is another protocol (EtherType 0x88cc)"),
        (with(14, &[0x65]), "its IPv4 header says version 6 and 20 B of header: leave it out"),
        (with(14, &[0x44]), "its IPv4 header says version 4 and 16 B"),
        (
            with(16, &[0, 59]),
            "its IPv4 header says 59 B and the frame has 58 B for it: leave it out",
        ),
        (with(16, &[0, 57]), "its IPv4 header says 57 B and the frame has 58 B"),
        (with(16, &[0, 19]), "its IPv4 header says 19 B"),
        (with(20, &[0x20, 0]), "it is a fragment, which has no ports: keep whole packets"),
        (with(20, &[0, 1]), "it is a fragment"),
        (frame(17, false, 0, &[0; 1473]), "its 1515 B are over 1514"),
        (
            good[..33].to_vec(),
            "its 33 B do not hold an Ethernet and an IPv4 header, 34 B: leave it out",
        ),
        (good[..13].to_vec(), "its 13 B do not hold"),
        (Vec::new(), "its 0 B do not hold"),
        (
            with(16, &[0, 27])[..41].to_vec(),
            "its 7 B of payload do not hold the header of protocol 17",
        ),
        (with(23, &[6])[..].to_vec()[..53].to_vec(), "its IPv4 header says 58 B"),
    ] {
        for refused in third(&bytes, bytes.len() as u32) {
            assert!(refused.starts_with(&format!("packet 3: {said}")), "{refused}");
        }
    }
}

#[test]
fn tcp_that_does_not_hold_its_header_is_refused() {
    let mut short = frame(TCP, true, 0, &[]);
    short.pop();
    short[17] -= 1;
    for refused in third(&short, 53) {
        assert!(
            refused.contains("its 19 B of payload do not hold the header of protocol 6"),
            "{refused}"
        );
    }
}

#[test]
fn a_packet_that_was_not_captured_whole_is_refused() {
    let good = frame(UDP, false, 0, &[0; 30]);
    for refused in third(&good, 1000) {
        assert!(
            refused.starts_with("packet 3: 72 of its 1000 B were captured: capture whole"),
            "{refused}"
        );
    }
    for refused in third(&good, 71) {
        assert!(refused.starts_with("packet 3: 72 B were captured of 71"), "{refused}");
    }
}

#[test]
fn a_file_that_holds_no_packets_of_ethernet_is_refused() {
    let good = frame(UDP, false, 0, &[0; 30]);
    for form in Form::all() {
        assert!(refusal(&form.file(1, &[])).starts_with("it holds no packets: "));
        let said = "packet 1: its link type is 101, not Ethernet, 1: capture on";
        assert!(refusal(&form.file(101, &[(&good, 72)])).starts_with(said));
    }
    for other in [&b"#!/bin/sh\necho packets\n"[..], b"", b"\x1f\x8b\x08\x00", &[0; 100]] {
        let said = refusal(other);
        let begins = if other.is_empty() { "it is cut off" } else { "it does not begin as a pcap" };
        assert!(said.starts_with(begins), "{said}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_its_own_fix() {
    let folder = tempfile::tempdir().unwrap();
    for (path, fix) in [
        (folder.path().to_path_buf(), "name a file in it"),
        (folder.path().join("none.pcap"), "name a file that is there"),
    ] {
        let refused = read(&path).unwrap_err();
        assert!(matches!(refused.reason, Reason::Unreadable(_)), "{refused}");
        assert!(refused.to_string().ends_with(fix), "{refused}");
    }
}

/// A file without end, which says how much of it was read.
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
fn of_another_kind_of_file_only_the_beginning_is_read() {
    let blocks = Form { blocks: true, ..CLASSIC }.head(1);
    // The type of a block file's first block, without the order of its bytes.
    for head in [&[][..], b"#!/bin/sh", &blocks[..8]] {
        let mut file = Endless { head: head.to_vec(), read: 0 };
        let refused = load(&mut file, 1 << 20).unwrap_err();
        assert!(matches!(refused, Reason::Magic) && file.read < 1000, "{refused}");
    }
    assert!(matches!(read(Path::new("/dev/zero")).unwrap_err().reason, Reason::Magic));
}

#[test]
fn a_file_that_is_too_large_is_refused_with_the_limit() {
    for form in Form::all() {
        let mut file = Endless { head: form.head(1), read: 0 };
        let refused = load(&mut file, 1 << 20).unwrap_err().to_string();
        assert_eq!(refused, "it holds more than 1 MiB: cut it, e.g. editcap -c 1000000 IN OUT");
        let whole = load(&form.head(1)[..], form.head(1).len() as u64).unwrap();
        assert_eq!(whole, form.head(1));
        assert!(load(&form.head(1)[..], form.head(1).len() as u64 - 1).is_err());
    }
}

#[test]
fn blocks_that_are_not_as_the_format_says_are_refused() {
    let form = Form { blocks: true, ..CLASSIC };
    let good = frame(UDP, false, 0, &[0; 30]);
    let after = |block: Vec<u8>| refusal(&[form.file(1, &[(&good, 72)]), block].concat());
    // A simple packet, an obsolete one, one of an interface that was not named, and one too short for it.
    let simple = form.block(3, &[&form.word(72)[..], &good].concat());
    assert!(after(simple).starts_with("packet 2: it is in a block of type 3: write it as classic"));
    assert!(after(form.block(2, &[0; 40])).starts_with("packet 2: it is in a block of type 2"));
    let mut unnamed = form.record(&good, 72);
    unnamed[8] = 1;
    assert!(after(unnamed).starts_with("packet 2: its block is too short for it, or names no"));
    let mut short = form.record(&good, 72);
    short[20] = 73;
    assert!(after(short).starts_with("packet 2: its block is too short"));
    let mut lengths = form.record(&good, 72);
    *lengths.last_mut().unwrap() = 1;
    let said = "initial_length != trailer_length: write it as classic pcap";
    assert!(after(lengths).contains(said));
}

/// Where the file's head ends, and each of its records.
fn ends(form: Form, frames: &[Vec<u8>]) -> Vec<usize> {
    let mut ends = vec![form.head(1).len()];
    for frame in frames {
        ends.push(ends[ends.len() - 1] + form.record(frame, 0).len());
    }
    ends
}

#[test]
fn a_file_cut_at_any_byte_is_refused_with_the_packet_that_was_cut() {
    let frames =
        [frame(UDP, false, 0, &[1; 30]), frame(TCP, true, 2, &[]), frame(1, false, 0, &[3; 9])];
    let records: Vec<_> = frames.iter().map(|frame| (&frame[..], frame.len() as u32)).collect();
    for form in Form::all() {
        let (file, ends) = (form.file(1, &records), ends(form, &frames));
        assert_eq!(file.len(), ends[3]);
        for cut in 0..file.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            match decode(&file[..cut]) {
                // Between two packets, a file ends as well as it would whole.
                Ok(traffic) => {
                    assert!(ends[1..].contains(&cut) && traffic.len() + 1 == whole, "{cut}")
                }
                Err((packet, Reason::Cut)) if whole > 0 => {
                    assert_eq!(packet, Some(whole as u64), "{cut}")
                }
                // Between the blocks of the head nothing is seen to be cut, but there are no packets.
                Err((None, Reason::Empty)) => {
                    assert!(cut == ends[0] || form.blocks && cut < ends[0], "{cut}")
                }
                Err((packet, Reason::Cut)) => assert!(packet.is_none() || form.blocks, "{cut}"),
                Err((_, other)) => panic!("{form:?} cut at {cut}: {other}"),
            }
        }
    }
}

/// Whatever is read, what comes of it is whole.
fn sound(bytes: &[u8]) {
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
        sound(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_good_head_are_read_or_refused(
        form in prop::sample::select(Form::all()),
        link in prop_oneof![4 => Just(1_u16), 1 => any::<u16>()],
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 2 => 0..80_u8, 1 => any::<u8>()], 0..400),
    ) {
        sound(&[form.head(link), bytes].concat());
    }

    #[test]
    fn any_record_of_any_bytes_is_read_or_refused(
        form in prop::sample::select(Form::all()),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        begin in 0..60_usize,
    ) {
        // Good bytes to a point, any bytes from it.
        let good = frame(UDP, false, 0, &[]);
        let mixed = [&good[..begin.min(good.len())], &bytes].concat();
        sound(&form.file(1, &[(&good, 42), (&mixed, mixed.len() as u32)]));
    }

    #[test]
    fn turned_bits_are_read_or_refused(
        form in prop::sample::select(Form::all()),
        frames in prop::collection::vec(any_frame(), 1..4),
        turned in prop::collection::vec((any::<Index>(), 0..8_u8), 1..5),
        in_the_head in any::<bool>(),
    ) {
        let records: Vec<_> = frames.iter().map(|frame| (&frame[..], frame.len() as u32)).collect();
        let mut file = form.file(1, &records);
        let reach = if in_the_head { form.head(1).len() + 60 } else { file.len() };
        for (index, bit) in turned {
            let at = index.index(reach.min(file.len()));
            file[at] ^= 1 << bit;
        }
        sound(&file);
    }
}
