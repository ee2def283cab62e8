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

/// The run that the last packets belong to. Only positions at which the decision changes matter, so with an application that
/// sends all packets the compiler removes everything.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// Position of the current run, in bytes.
    start: usize,
    sent: bool,
}

impl Default for Runs {
    /// Begins with a run of sent packets at position 0.
    fn default() -> Self {
        Self { start: 0, sent: true }
    }
}

impl Runs {
    /// Adds a packet that starts at `position`, in bytes after the start of the first packet. Returns the run before it if
    /// that ends here.
    #[inline(always)]
    pub fn add(&mut self, position: usize, decision: Decision) -> Option<Run> {
        let sent = decision.is_sent();
        if sent == self.sent {
            return None;
        }
        let last = self.end(position);
        *self = Self { start: position, sent };
        last
    }

    /// Returns the current run, which ends at `position`; `None` if it has no packets.
    #[inline(always)]
    pub fn end(&self, position: usize) -> Option<Run> {
        let run = Run { bytes: position.wrapping_sub(self.start), sent: self.sent };
        (run.bytes > 0).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_cover_each_packet_once(packets in proptest::collection::vec((1usize..24, any::<bool>()), 0..60)) {
            let (mut runs, mut position) = (Runs::default(), 0);
            let mut found = Vec::new();
            for (flits, sent) in &packets {
                let decision = if *sent { Decision::Reply } else { Decision::Consume };
                found.extend(runs.add(position, decision));
                position += flits * 64;
            }
            found.extend(runs.end(position));
            prop_assert!(found.windows(2).all(|pair| pair[0].sent != pair[1].sent), "a run is maximal");
            let by_run = found.iter().flat_map(|run| std::iter::repeat_n(run.sent, run.bytes / 64));
            let by_packet = packets.iter().flat_map(|(flits, sent)| std::iter::repeat_n(*sent, *flits));
            prop_assert!(by_run.eq(by_packet));
        }
    }
}
