//! How fast packets are sent.

/// Fractions of a tick in one.
const FRACTION: f64 = 65536.0;

/// How fast packets are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At a rate of bytes on the wire; one of them every so many ticks.
    TicksAByte(f64),
    /// As fast as they come back: so many are under way.
    Closed {
        /// Packets under way at most.
        window: u64,
    },
}

impl Pace {
    /// At so many bits a second on the wire, with check sequence, preamble and gap.
    pub fn bits(a_second: f64, ticks_per_second: f64) -> Self {
        Self::TicksAByte(ticks_per_second * 8.0 / a_second)
    }

    /// At so many packets a second, each of so many bytes on the wire.
    pub fn packets(a_second: f64, wire_bytes: f64, ticks_per_second: f64) -> Self {
        Self::TicksAByte(ticks_per_second / a_second / wire_bytes)
    }
}

/// What is due, as time goes on.
#[derive(Debug, Default)]
pub(super) struct Paced {
    window: Option<u64>,
    /// What a byte takes, in fractions of a tick.
    byte: u64,
    start: u64,
    /// When the next packet is due, in fractions of a tick since it began.
    next: u64,
}

/// Where times since the beginning come near to what a word holds, after some hours, all begins later.
const LATE: u64 = 1 << 62;
/// By how much: less than has gone by.
const LATER: u64 = LATE / 2;

impl Paced {
    pub(super) fn new(pace: Pace, start: u64) -> Self {
        match pace {
            Pace::TicksAByte(ticks) => {
                Self { byte: (ticks * FRACTION).round() as u64, start, ..Self::default() }
            }
            Pace::Closed { window } => Self { window: Some(window), start, ..Self::default() },
        }
    }

    /// Packets under way at most; none where packets go by time.
    #[inline(always)]
    pub(super) fn window(&self) -> Option<u64> {
        self.window
    }

    /// How many packets are due by now where each is like the next; those of other lengths are early or
    /// late by a burst at most, and even out.
    #[inline(always)]
    pub(super) fn packets_due(&self, now: u64, most: u32, wire_bytes: u32) -> u32 {
        let now = (now - self.start) << 16;
        if now < self.next {
            return 0;
        }
        let late = now - self.next;
        let each = self.byte * u64::from(wire_bytes);
        // Mostly one or a few are due; a division takes as long as many packets.
        if late < each {
            return 1;
        }
        let most = u64::from(most);
        if late >= each * most { most as u32 } else { (late / each) as u32 + 1 }
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, wire_bytes: u64) {
        self.next += self.byte * wire_bytes;
        if self.next >= LATE {
            std::hint::cold_path();
            self.next -= LATER;
            self.start += LATER >> 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_rate_is_148_8_mpps() {
        // 84 bytes on the wire at 100 Gbps and 2.6 GHz.
        let mut paced = Paced::new(Pace::bits(100e9, 2.6e9), 1000);
        let mut sent = 0u64;
        for turn in 0..260_000 {
            let due = paced.packets_due(1000 + turn * 10, 64, 84);
            (0..due).for_each(|_| paced.sent(84));
            sent += u64::from(due);
        }
        // In a millisecond.
        assert!((148_700..148_900).contains(&sent), "{sent}");
    }

    #[test]
    fn the_rate_stays_what_it_is_for_weeks() {
        // A packet a second at 5 GHz, looked at twice a second.
        let mut paced = Paced::new(Pace::packets(1.0, 84.0, 5e9), 77);
        let mut sent = 0u64;
        let seconds = 14 * 24 * 3600;
        for half in 0..2 * seconds {
            let due = paced.packets_due(77 + half * 2_500_000_000, 64, 84);
            assert!(due <= 1, "{due} at once after {half} half seconds");
            (0..due).for_each(|_| paced.sent(84));
            sent += u64::from(due);
        }
        assert!(sent.abs_diff(seconds) <= 1, "{sent} of {seconds}");
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate(gaps in proptest::collection::vec(0u64..5000, 1..300), wire in 84u32..1538) {
            let mut paced = Paced::new(Pace::TicksAByte(0.21), 0);
            let (mut now, mut sent) = (0, 0u64);
            for gap in gaps {
                now += gap;
                let due = paced.packets_due(now, 64, wire);
                prop_assert!(due <= 64);
                (0..due).for_each(|_| paced.sent(u64::from(wire)));
                sent += u64::from(due);
                let earned = now as f64 / (0.21 * f64::from(wire)) + 1.001;
                prop_assert!(sent as f64 <= earned + 1e-3, "{sent} of {earned}");
            }
        }
    }
}
