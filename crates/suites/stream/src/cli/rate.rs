//! Parsing of rates.

use std::str::FromStr;

use crate::generator::Pace;

/// A sending rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rate {
    /// In bit/s on the wire, with check sequence, preamble and gap.
    Bits(f64),
    /// In packets per second.
    Packets(f64),
}

impl Rate {
    /// Converts the rate for packets with a mean size of `wire_bytes` on the wire.
    pub(super) fn pace(self, wire_bytes: f64, ticks_per_second: f64) -> Pace {
        match self {
            Self::Bits(rate) => Pace::bits(rate, ticks_per_second),
            Self::Packets(rate) => Pace::packets(rate, wire_bytes, ticks_per_second),
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
        // Rates of less than a packet per minutes, or above any wire, are typing errors.
        let in_packets = suffix.is_some_and(|(suffix, _)| suffix.ends_with("pps"));
        let range = if in_packets { 0.01..=1e12 } else { 100.0..=1e15 };
        let rate = rate.filter(|rate| range.contains(rate)).ok_or(
            "not a rate; use e.g. 100 for Gbps with preamble and gap (100 bit/s to 1e6 Gbps), or \
             148.8Mpps for packets per second (0.01 pps to 1e6 Mpps)",
        )?;
        Ok(if in_packets { Self::Packets(rate) } else { Self::Bits(rate) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_gigabits_unless_they_have_a_unit() {
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
