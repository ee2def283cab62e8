//! The statistics that testpmd prints.

/// Packets forwarded by testpmd since its statistics were cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardStats {
    /// Received packets.
    pub received: u64,
    /// Sent packets.
    pub sent: u64,
    /// Packets that it dropped because its transmit ring was full.
    pub dropped: u64,
    /// Ticks of the time-stamp counter in iterations with packets.
    pub busy: u64,
    /// Packets of those iterations.
    pub worked: u64,
}

impl ForwardStats {
    /// Parses the output of `show fwd stats all`. Returns `None` unless it contains the totals of all ports.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, totals) = text.split_once("Accumulated forward statistics for all ports")?;
        // Testpmd prints cycles only once there were packets.
        let cycles = totals.split_once("CPU cycles/packet=").map(|(_, rest)| rest);
        let (busy, worked) = match cycles {
            Some(rest) => (number(rest, "total cycles=")?, number(rest, "packets=")?),
            None => (0, 0),
        };
        Some(Self {
            received: number(totals, "RX-packets:")?,
            sent: number(totals, "TX-packets:")?,
            dropped: number(totals, "TX-dropped:")?,
            busy,
            worked,
        })
    }
}

/// Returns the number after the first occurrence of a label.
fn number(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    let rest = rest.trim_start();
    let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As printed by testpmd 22.11.
    const PRINTED: &str = "show fwd stats all

  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 7              RX-dropped: 0             RX-total: 7
  TX-packets: 6              TX-dropped: 1             TX-total: 7
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 317056         RX-dropped: 5             RX-total: 317061
  TX-packets: 317024         TX-dropped: 32            TX-total: 317056
  ++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++
";

    #[test]
    fn the_totals_are_parsed() {
        let stats =
            ForwardStats { received: 317_056, sent: 317_024, dropped: 32, ..Default::default() };
        assert_eq!(ForwardStats::parse(PRINTED), Some(stats));
        let line = "  CPU cycles/packet=51.64 (total cycles=16372812 / total macswap packets=317056) at 2100 MHz Clock";
        let busy = ForwardStats { busy: 16_372_812, worked: 317_056, ..stats };
        assert_eq!(ForwardStats::parse(&format!("{PRINTED}\n{line}\ntestpmd> ")), Some(busy));
        for broken in ["", "RX-packets: 1", &PRINTED.replace("TX-dropped", "TX-lost")] {
            assert_eq!(ForwardStats::parse(broken), None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "\\PC*",
            at in 0..PRINTED.len(),
            cut in 0..PRINTED.len(),
        ) {
            // The statistics contain only ASCII characters, so any split is between characters.
            let (start, end) = (&PRINTED[..at.min(cut)], &PRINTED[at.max(cut)..]);
            let _ = ForwardStats::parse(&text);
            let _ = ForwardStats::parse(&format!("{start}{text}{end}"));
        }
    }
}
