//! Contiguous packets with the same decision, for an interface that sends from the memory into which it received.

use crate::application::Decision;

/// Bytes of consecutive packets, of which all or none are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Number of bytes, with the padding of the packets.
    pub bytes: usize,
    /// Whether the packets are sent.
    pub sent: bool,
}

/// The run that the last packets belong to. It is a value of the loop, so that the compiler keeps it in registers; with an
/// application that sends all packets nothing remains but the addition of the bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Runs {
    current: Run,
}

impl Runs {
    /// Adds a packet that occupies `bytes` bytes. Returns the run before it if that ends here.
    #[inline(always)]
    pub fn add(&mut self, bytes: usize, decision: Decision) -> Option<Run> {
        let sent = decision.is_sent();
        let before = self.current;
        if sent == before.sent {
            self.current.bytes += bytes;
            return None;
        }
        self.current = Run { bytes, sent };
        (before.bytes > 0).then_some(before)
    }

    /// Ends the current run and returns it; `None` if no packet was added since the last one.
    #[inline(always)]
    pub fn end(&mut self) -> Option<Run> {
        let last = std::mem::take(&mut self.current);
        (last.bytes > 0).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_cover_each_packet_once(packets in proptest::collection::vec((1usize..24, any::<bool>()), 0..60)) {
            let mut runs = Runs::default();
            let mut found = Vec::new();
            for (flits, sent) in &packets {
                let decision = if *sent { Decision::Reply } else { Decision::Consume };
                found.extend(runs.add(flits * 64, decision));
            }
            found.extend(runs.end());
            prop_assert_eq!(runs.end(), None);
            prop_assert!(found.windows(2).all(|pair| pair[0].sent != pair[1].sent), "a run is maximal");
            let by_run = found.iter().flat_map(|run| std::iter::repeat_n(run.sent, run.bytes / 64));
            let by_packet = packets.iter().flat_map(|(flits, sent)| std::iter::repeat_n(*sent, *flits));
            prop_assert!(by_run.eq(by_packet));
        }
    }
}
