//! Figures in a verdict's line.

use crate::statistics::{Interval, IntervalKind};

/// Units that people read with a prefix: 23.46 GB/s.
const PREFIXED: [&str; 4] = ["B/s", "B", "Hz", "1/s"];
const PREFIXES: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];

/// A value with its unit, four digits: `23.46 GB/s`, `107 ns`, `1.02`.
pub(super) fn value(value: f64, unit: &str) -> String {
    let prefix = PREFIXES.iter().find(|(_, factor)| value.abs() >= *factor);
    match prefix {
        _ if unit == "1" => digits(value),
        _ if unit == "share" => percent(value),
        Some((prefix, factor)) if PREFIXED.contains(&unit) => {
            format!("{} {prefix}{unit}", digits(value / factor))
        }
        _ => format!("{} {unit}", digits(value)),
    }
}

/// A value with its interval, called what it is.
pub(super) fn with_interval(centre: f64, interval: &Interval, unit: &str) -> String {
    let (low, high) = (value(interval.low, unit), value(interval.high, unit));
    match interval.kind {
        IntervalKind::Single => value(centre, unit),
        IntervalKind::Range => format!("{} (range {low} to {high})", value(centre, unit)),
        _ => format!("{} ({low} to {high})", value(centre, unit)),
    }
}

/// `1 round`, `20 rounds`
pub(super) fn rounds(count: usize) -> String {
    format!("{count} {}", if count == 1 { "round" } else { "rounds" })
}

/// `1 step`, `0.5 steps`
pub(super) fn steps(count: f64) -> String {
    format!("{} {}", digits(count), if count == 1.0 { "step" } else { "steps" })
}

/// A share as a percentage: `2.5%`.
pub(super) fn percent(share: f64) -> String {
    format!("{}%", digits(share * 100.0))
}

/// Four significant digits, trailing zeros left out.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{value:.3e}");
    }
    let whole = if size < 1.0 { 0 } else { size.log10() as usize };
    let leading = if size == 0.0 || size >= 1.0 { 0 } else { (-size.log10()) as usize };
    let text = format!("{value:.*}", (3 + leading).saturating_sub(whole));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(value(23.46e9, "B/s"), "23.46 GB/s");
        assert_eq!(value(107.0, "ns"), "107 ns");
        assert_eq!(value(0.97, "1"), "0.97");
        assert_eq!(value(0.012_345, "1"), "0.0123");
        assert_eq!(value(0.0, "ns"), "0 ns");
        assert_eq!(value(123_456.0, "ns"), "123456 ns");
        assert_eq!(value(1e-9, "1"), "1.000e-9");
        assert_eq!(percent(0.025), "2.5%");
        assert_eq!(value(0.025, "share"), "2.5%");
        assert_eq!((rounds(1), rounds(20)), ("1 round".into(), "20 rounds".into()));
    }
}
