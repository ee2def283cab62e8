//! Applications over links: what they send leaves, in order, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use applications::Application;
use machine::SysError;
use stream::application::WithApplication;
use stream::link::{Link, LinkKind, LinkParams, LinkStatus, open};
use stream::serve::{LinkServer, Server};

use crate::mixture::{self, InMemory, Outcome};
use crate::{Pair, alone};

/// Time limit of all packets.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Packets that are under way at a time; the queue of a veth interface has 256.
pub(crate) const TOGETHER: usize = 20;

/// The ends of a link.
struct Ends {
    here: Box<dyn Link>,
    there: Box<dyn Link>,
}

impl Ends {
    fn open(pair: &Pair, kind: LinkKind) -> Result<Self, SysError> {
        let end = |interface: &str, kind| {
            open(&LinkParams { interface: interface.into(), kind, queue: None })
        };
        let here = pair.a.run(|| end("veth0", LinkKind::AfPacket))??;
        let there = pair.b.run(|| end("veth1", kind))??;
        Ok(Self { here, there })
    }
}

/// Sends frames, which the link has space for.
pub(crate) fn send(link: &mut dyn Link, frames: &[Vec<u8>]) {
    let mut places = Vec::new();
    link.reserve(frames.len(), &mut places).unwrap();
    assert_eq!(places.len(), frames.len());
    for (frame, place) in frames.iter().zip(&places) {
        // SAFETY: the frame has space for the longest packet.
        unsafe { place.copy_from_nonoverlapping(frame.as_ptr(), frame.len()) };
    }
    link.send(&frames.iter().map(|frame| frame.len() as u32).collect::<Vec<_>>()).unwrap();
}

/// Appends the received packets of the mixture, whose source is known.
pub(crate) fn receive(link: &mut dyn Link, into: &mut Vec<Vec<u8>>) {
    let mut frames = Vec::new();
    link.receive(TOGETHER, &mut frames).unwrap();
    for frame in frames {
        // SAFETY: the link guarantees that the frame has these bytes until it is released.
        let bytes = unsafe { std::slice::from_raw_parts(frame.start, frame.bytes as usize) };
        if bytes[12..14] == [8, 0] {
            into.push(bytes.to_vec());
        }
    }
    link.release();
}

/// Runs an application over one end; the packets come from the other one.
struct OverLink<'a> {
    ends: Ends,
    packets: &'a [Vec<u8>],
    /// Number of packets that the application has sent after each group.
    sent_by: &'a [usize],
}

impl WithApplication for OverLink<'_> {
    type Output = Outcome;

    fn run<A: Application>(self, mut application: A) -> Outcome {
        let Self { ends: Ends { mut here, there }, packets, sent_by } = self;
        let status = Arc::<LinkStatus>::default();
        let mut server = LinkServer::new(there, Arc::clone(&status));
        let (start, mut sent, mut processed) = (Instant::now(), Vec::new(), 0);
        let mut all = 0;
        for (frames, sent_by_now) in packets.chunks(TOGETHER).zip(sent_by) {
            send(&mut *here, frames);
            all += frames.len();
            while processed < all as u64 || sent.len() < *sent_by_now {
                processed += server.poll(&mut application).unwrap();
                receive(&mut *here, &mut sent);
                let so_far = (processed, sent.len());
                assert!(start.elapsed() < TIMEOUT, "{so_far:?} of {all}");
            }
            assert_eq!(processed, all as u64);
        }
        assert!(status.error().is_none());
        Outcome { sent, counts: application.counts() }
    }
}

#[test]
fn every_application_does_over_a_link_what_it_does_in_memory() {
    let _alone = alone();
    // Strays of the traffic are not the application's: the wire of a NIC drops fragments.
    let is_whole = |packet: &Vec<u8>| packet[20] & 0x3f == 0 && packet[21] == 0;
    let packets: Vec<_> = mixture::packets(500).into_iter().filter(is_whole).collect();
    let (specs, number) = mixture::specs();
    for kind in [LinkKind::AfPacket, LinkKind::AfXdp] {
        for spec in &specs {
            let Some(pair) = Pair::create("stream: applications over links") else { return };
            let in_memory = |count| spec.with(number, InMemory(&packets[..count])).unwrap();
            let expected = in_memory(packets.len());
            let ends = match Ends::open(&pair, kind) {
                Ok(ends) => ends,
                Err(why) => {
                    machine::untested::note("stream: applications over links", &why);
                    return;
                }
            };
            let groups = (1..=packets.len().div_ceil(TOGETHER)).map(|group| group * TOGETHER);
            let sent_by = groups.map(|end| in_memory(end.min(packets.len())).sent.len());
            let sent_by: Vec<_> = sent_by.collect();
            let over = OverLink { ends, packets: &packets, sent_by: &sent_by };
            let found = spec.with(number, over).unwrap();
            assert_eq!(found.counts, expected.counts, "{spec:?}");
            let differs = found.sent.iter().zip(&expected.sent).position(|(a, b)| a != b);
            let lengths = (found.sent.len(), expected.sent.len());
            assert_eq!((lengths.0, differs), (lengths.1, None), "{}", spec.kind());
        }
    }
}
