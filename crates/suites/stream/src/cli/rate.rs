//! Rates as people write them.

use std::str::FromStr;

use crate::generator::Pace;

/// How fast packets are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rate {
    /// Bits a second on the wire, with check sequence, preamble and gap.
    Bits(f64),
    /// Packets a second.
    Packets(f64),
}

impl Rate {
    /// As the generator takes it, for packets of so many bytes on the wire in the mean.
    pub(super) fn pace(self, wire_bytes: f64, ticks_per_second: f64) -> Pace {
        match self {
            Self::Bits(a_second) => Pace::bits(a_second, ticks_per_second),
            Self::Packets(a_second) => Pace::packets(a_second, wire_bytes, ticks_per_second),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let suffixes = [("gbps", 1e9), ("mbps", 1e6), ("mpps", 1e6), ("kpps", 1e3), ("pps", 1.0)];
        let suffix = suffixes.into_iter().find(|(suffix, _)| lower.ends_with(suffix));
        let (digits, unit) = match suffix {
            Some((suffix, unit)) => (lower.trim_end_matches(suffix).trim_end(), unit),
            None => (lower.as_str(), 1e9),
        };
        let rate = digits.parse::<f64>().ok().map(|number| number * unit);
        // Slower than a packet in minutes, or faster than any wire, is a slip.
        let in_packets = suffix.is_some_and(|(suffix, _)| suffix.ends_with("pps"));
        let range = if in_packets { 0.01..=1e12 } else { 100.0..=1e15 };
        let rate = rate.filter(|rate| range.contains(rate)).ok_or(
            "give a rate: as 100, which are Gbps with preamble and gap (100 bit/s to 1e6 Gbps), or as \
             148.8Mpps (0.01 pps to 1e6 Mpps)",
        )?;
        Ok(if in_packets { Self::Packets(rate) } else { Self::Bits(rate) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_gigabits_or_what_they_say() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("100"), Ok(Rate::Bits(100e9)));
        assert_eq!(rate("0.5 Gbps"), Ok(Rate::Bits(0.5e9)));
        assert_eq!(rate("250Mbps"), Ok(Rate::Bits(250e6)));
        assert_eq!(rate("148.8Mpps"), Ok(Rate::Packets(148.8e6)));
        assert_eq!(rate("3 kpps"), Ok(Rate::Packets(3e3)));
        assert_eq!(rate("64pps"), Ok(Rate::Packets(64.0)));
        for wrong in [
            "0", "-1", "", "fast", "NaN", "inf", "0Mpps", "1e99", "Gbps", "10 Mb", "1e-9",
            "1e7Mpps", "0.001pps",
        ] {
            let why = rate(wrong).unwrap_err();
            assert!(why.contains("148.8Mpps"), "{wrong}: {why}");
        }
    }
}
