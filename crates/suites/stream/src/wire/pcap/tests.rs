use proptest::prelude::*;

use super::*;
use crate::tests::cases;
use crate::wire::Flow;
use crate::wire::frame::{TCP, UDP};
use crate::wire::sample::{SampleTraffic, Sizes};

mod damaged;

/// A file format.
#[derive(Debug, Clone, Copy)]
struct Form {
    big: bool,
    nanoseconds: bool,
    blocks: bool,
}

const CLASSIC: Form = Form { big: false, nanoseconds: false, blocks: false };

impl Form {
    fn all() -> Vec<Self> {
        let form = |bits: u8| Self {
            big: bits & 1 != 0,
            nanoseconds: bits & 2 != 0,
            blocks: bits & 4 != 0,
        };
        (0..8).map(form).collect()
    }

    fn word(self, word: u32) -> [u8; 4] {
        if self.big { word.to_be_bytes() } else { word.to_le_bytes() }
    }

    fn half(self, half: u16) -> [u8; 2] {
        if self.big { half.to_be_bytes() } else { half.to_le_bytes() }
    }

    /// Builds a file of frames with their original lengths, after the formats' specifications.
    fn file(self, link: u16, frames: &[(&[u8], u32)]) -> Vec<u8> {
        let mut file = self.head(link);
        frames.iter().for_each(|(frame, original)| file.extend(self.record(frame, *original)));
        file
    }

    fn head(self, link: u16) -> Vec<u8> {
        let (two, four) = (self.half(2), self.half(4));
        if !self.blocks {
            let magic = if self.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
            let words = [0, 0, 65535, u32::from(link)].map(|word| self.word(word));
            return [&self.word(magic)[..], &two, &four, words.as_flattened()].concat();
        }
        let (one, zero) = (self.half(1), self.half(0));
        let order = [&self.word(0x1a2b_3c4d)[..], &one, &zero, &[0xff; 8]].concat();
        let resolution = if self.nanoseconds { 9 } else { 6 };
        // An option of one byte, and the end of options.
        let option = [&self.half(9)[..], &one, &[resolution, 0, 0, 0], &[0; 4]].concat();
        let interface = [&self.half(link)[..], &zero, &self.word(0), &option].concat();
        // With an unknown block in between.
        [self.block(0x0a0d_0d0a, &order), self.block(0x0bad, &[1; 8]), self.block(1, &interface)]
            .concat()
    }

    fn record(self, frame: &[u8], original: u32) -> Vec<u8> {
        let lengths = [self.word(frame.len() as u32), self.word(original)].concat();
        let time = [self.word(1_700_000_000), self.word(999_999)].concat();
        if !self.blocks {
            return [&time[..], &lengths, frame].concat();
        }
        let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
        self.block(6, &[&self.word(0)[..], &time, &lengths, frame, &padding].concat())
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = self.word(body.len() as u32 + 12);
        [&self.word(kind)[..], &length, body, &length].concat()
    }
}

/// Builds a frame of TCP, UDP or another protocol with a payload.
fn frame(protocol: u8, syn: bool, options: usize, payload: &[u8]) -> Vec<u8> {
    let transport = match protocol {
        TCP => {
            let mut header = [0; 20];
            (header[12], header[13]) = (0x50, if syn { 2 } else { 16 });
            header.to_vec()
        }
        UDP => vec![0; 8],
        _ => Vec::new(),
    };
    let total = (20 + options * 4 + transport.len() + payload.len()) as u16;
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45 + options as u8, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 168, 1, 2]);
    frame.extend(vec![1; options * 4]);
    let ports = frame.len();
    frame.extend(transport);
    if matches!(protocol, TCP | UDP) {
        frame[ports..ports + 4].copy_from_slice(&[0x1f, 0x90, 0, 80]);
    }
    frame.extend(payload);
    frame
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop_oneof![Just(TCP), Just(UDP), any::<u8>()];
    let payload = prop_oneof![0..30_usize, 0..1420_usize]
        .prop_flat_map(|n| prop::collection::vec(any::<u8>(), n));
    (protocol, any::<bool>(), 0..11_usize, payload)
        .prop_map(|(protocol, syn, options, payload)| frame(protocol, syn, options, &payload))
}

/// Returns whether two traffics have the same packets and bytes.
fn same(one: &Traffic, other: &Traffic) -> bool {
    one.packets() == other.packets() && (0..one.len()).all(|at| one.bytes(at) == other.bytes(at))
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
        fn written_files_are_read_back_in_every_format(frames in prop::collection::vec(any_frame(), 1..20)) {
        let records: Vec<_> = frames.iter().map(|frame| (&frame[..], frame.len() as u32)).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("written.pcap");
        for form in Form::all() {
            let traffic = decode(&form.file(1, &records)).unwrap();
            prop_assert_eq!(traffic.len(), frames.len());
            for (at, frame) in frames.iter().enumerate() {
                let (bytes, zeros) = traffic.bytes(at).split_at(frame.len());
                prop_assert_eq!(bytes, &frame[..]);
                prop_assert!(zeros.iter().all(|byte| *byte == 0));
                prop_assert_eq!(traffic.bytes(at).len(), frame.len().max(60));
            }
            write(&path, &traffic).unwrap();
            prop_assert!(same(&read(&path).unwrap(), &traffic));
        }
    }
}

#[test]
fn flows_are_read_from_every_protocol() {
    let flow = |protocol, source_port, destination_port| Flow {
        source: [10, 0, 0, 1].into(),
        destination: [192, 168, 1, 2].into(),
        source_port,
        destination_port,
        protocol,
    };
    for (bytes, expected, syn) in [
        (frame(UDP, false, 0, &[0; 20]), flow(UDP, 8080, 80), false),
        (frame(UDP, false, 10, &[2; 20]), flow(UDP, 8080, 80), false),
        (frame(TCP, true, 0, &[]), flow(TCP, 8080, 80), true),
        (frame(TCP, false, 3, &[]), flow(TCP, 8080, 80), false),
        (frame(1, false, 0, &[7; 64]), flow(1, 0, 0), false),
    ] {
        let traffic = decode(&CLASSIC.file(1, &[(&bytes, bytes.len() as u32)])).unwrap();
        assert_eq!((traffic.packets()[0].flow, traffic.packets()[0].syn), (expected, syn));
    }
}

#[test]
fn padding_to_60_bytes_is_accepted() {
    for length in 42..=60 {
        let mut padded = frame(UDP, false, 0, &[]);
        padded.resize(length, 0xee);
        let traffic = decode(&CLASSIC.file(1, &[(&padded, length as u32)])).unwrap();
        assert_eq!(traffic.bytes(0)[..length], padded);
        assert_eq!(traffic.packets()[0].length, 60);
    }
}

#[test]
fn samples_of_every_size_survive_their_files() {
    let folder = tempfile::tempdir().unwrap();
    for size in [Sizes::One(64), Sizes::Imix, Sizes::Each, Sizes::One(1518)] {
        let sample =
            SampleTraffic { packets: size.cycle() * 2, size, sources: 3, destinations: 16 };
        let path = folder.path().join(sample.to_string());
        let traffic = sample.traffic().unwrap();
        write(&path, &traffic).unwrap();
        assert!(same(&read(&path).unwrap(), &traffic));
    }
}

#[test]
fn an_unwritable_file_is_refused_with_its_path() {
    let traffic = decode(&CLASSIC.file(1, &[(&frame(UDP, false, 0, &[]), 42)])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let refused = write(&folder.path().join("no/such.pcap"), &traffic).unwrap_err();
    assert!(matches!(refused.reason, Reason::Unwritable(_)));
    assert!(refused.to_string().contains("no/such.pcap: cannot be written"), "{refused}");
}
