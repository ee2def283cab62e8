//! The pace at which packets are sent.

/// Fixed-point fractions per tick.
const FRACTION: f64 = 65536.0;

/// The pace at which packets are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At a fixed rate, in ticks per byte on the wire.
    TicksPerByte(f64),
    /// As fast as packets are echoed, with a limited number in flight.
    Closed {
        /// Maximum number of packets in flight.
        window: u64,
    },
}

impl Pace {
    /// Creates a pace of `rate` bit/s on the wire, with check sequence, preamble and gap.
    pub fn bits(rate: f64, ticks_per_second: f64) -> Self {
        Self::TicksPerByte(ticks_per_second * 8.0 / rate)
    }

    /// Creates a pace of `rate` packets per second with `wire_bytes` bytes each on the wire.
    pub fn packets(rate: f64, wire_bytes: f64, ticks_per_second: f64) -> Self {
        Self::TicksPerByte(ticks_per_second / rate / wire_bytes)
    }
}

/// The state of a pace over time.
#[derive(Debug, Default)]
pub(super) struct Paced {
    window: Option<u64>,
    /// Duration of a byte, in fractions of a tick.
    byte: u64,
    start: u64,
    /// Time of the next packet since `start`, in fractions of a tick.
    next: u64,
}

/// Limit of `next`: beyond it, after some hours, `start` is moved forward to prevent an overflow.
const REBASE: u64 = 1 << 62;
/// Amount by which `start` is moved, in fractions of a tick: less than the elapsed time.
const REBASE_STEP: u64 = REBASE / 2;

impl Paced {
    pub(super) fn new(pace: Pace, start: u64) -> Self {
        match pace {
            Pace::TicksPerByte(ticks) => {
                Self { byte: (ticks * FRACTION).round() as u64, start, ..Self::default() }
            }
            Pace::Closed { window } => Self { window: Some(window), start, ..Self::default() },
        }
    }

    /// Returns the maximum number of packets in flight, or `None` if packets are sent by time.
    #[inline(always)]
    pub(super) fn window(&self) -> Option<u64> {
        self.window
    }

    /// Returns the number of packets due by now, at most `max`, if all are like the next one. Packets of other lengths
    /// are early or late by at most a burst, which evens out.
    #[inline(always)]
    pub(super) fn packets_due(&self, now: u64, max: u32, wire_bytes: u32) -> u32 {
        let now = (now - self.start) << 16;
        if now < self.next {
            return 0;
        }
        let late = now - self.next;
        let each = self.byte * u64::from(wire_bytes);
        // Usually one or a few are due, and a division takes as long as many packets.
        if late < each {
            return 1;
        }
        let max = u64::from(max);
        if late >= each * max { max as u32 } else { (late / each) as u32 + 1 }
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, wire_bytes: u64) {
        self.next += self.byte * wire_bytes;
        if self.next >= REBASE {
            std::hint::cold_path();
            self.next -= REBASE_STEP;
            self.start += REBASE_STEP >> 16;
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
        for step in 0..260_000 {
            let due = paced.packets_due(1000 + step * 10, 64, 84);
            (0..due).for_each(|_| paced.sent(84));
            sent += u64::from(due);
        }
        // Within a millisecond.
        assert!((148_700..148_900).contains(&sent), "{sent}");
    }

    #[test]
    fn the_rate_is_stable_for_weeks() {
        // One packet per second at 5 GHz, polled twice per second.
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
        fn the_rate_is_never_exceeded(gaps in proptest::collection::vec(0u64..5000, 1..300), wire in 84u32..1538) {
            let mut paced = Paced::new(Pace::TicksPerByte(0.21), 0);
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
