//! Formatting of values: scaled to a readable unit, with no more digits than the interval supports.

use crate::statistics::{Interval, IntervalKind, OpenEnd};

/// Maximum number of significant digits.
const MAX_DIGITS: i32 = 4;
/// Number of significant digits of a value without interval.
const DEFAULT_DIGITS: i32 = 3;
/// Value from which a count, e.g. of cycles, has a unit prefix.
const MIN_PREFIXED: f64 = 1e5;
/// Time from which a value of a verdict is not in ns.
const MIN_SCALED_TIME: f64 = 1e4;
/// Maximum ratio of the values of a table that have one unit in common.
const MAX_SPAN: f64 = 1e4;

const SI: [(f64, &str); 5] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
const BINARY: [(f64, &str); 5] = [
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
    (1.0, "B"),
];

/// Unit with its prefix, and the divisor of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    divisor: f64,
    unit: String,
}

impl Scale {
    /// Returns the most readable scale of a value in `unit`. `B/s` and other rates are decimal, `B`
    /// is binary, `share` becomes a percentage, and `1` stays a plain number.
    pub fn of(value: f64, unit: &str) -> Self {
        let (divisor, unit) = match unit {
            "1" | "" => (1.0, String::new()),
            "share" => (0.01, "%".into()),
            "%" => (1.0, "%".into()),
            "B" => pick(value, &BINARY),
            "ns" => pick(value, &TIMES),
            "s" => {
                let Scale { divisor, unit } = Scale::of(value * 1e9, "ns");
                (divisor / 1e9, unit)
            }
            other if value.abs() < MIN_PREFIXED && !takes_prefix(other) => (1.0, named("", other)),
            other => {
                let (size, prefix) = pick(value, &SI);
                (size, named(&prefix, other))
            }
        };
        Self { divisor, unit }
    }

    /// Returns the scale of a value of a verdict: counts and times below 10 us keep their unit, so that each is easily
    /// compared with its bound.
    fn of_verdict(value: f64, unit: &str) -> Self {
        match unit {
            "1" | "" | "share" | "%" | "B" => Self::of(value, unit),
            "ns" if value.abs() >= MIN_SCALED_TIME => Self::of(value, unit),
            rate if takes_prefix(rate) || rate.ends_with("/s") => {
                let (divisor, prefix) = pick(value, &SI);
                Self { divisor, unit: named(&prefix, rate) }
            }
            other => Self { divisor: 1.0, unit: named("", other) },
        }
    }

    /// Returns one scale for all values of a table; `None` if they span too wide a range.
    pub fn common(values: impl IntoIterator<Item = f64>, unit: &str) -> Option<Self> {
        let sizes: Vec<f64> = values.into_iter().map(f64::abs).filter(|v| *v > 0.0).collect();
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let fits = sizes.is_empty() || largest / smallest <= MAX_SPAN;
        // The geometric mean of the range avoids long numbers and leading zeros.
        fits.then(|| Self::of((largest * smallest.min(largest)).sqrt(), unit))
    }

    /// Returns the unit, e.g. `GB/s`; empty for a plain number.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns the value in this scale.
    pub fn scaled(&self, value: f64) -> f64 {
        value / self.divisor
    }

    /// Formats a number without its unit. `half_width` is half the interval in the unit of the
    /// unscaled value; without it the number has three digits.
    pub fn number(&self, value: f64, half_width: Option<f64>) -> String {
        digits(value / self.divisor, half_width.map(|width| width / self.divisor))
    }

    /// Returns a metric with the unit of this scale, e.g. `throughput in GB/s`, `ipc per cycle`.
    pub fn label(&self, metric: &str) -> String {
        match self.unit.as_str() {
            "" => metric.into(),
            unit if unit.starts_with("per ") => format!("{metric} {unit}"),
            unit => format!("{metric} in {unit}"),
        }
    }

    /// Formats a number with its unit, e.g. `19.7 GB/s`.
    pub fn value(&self, value: f64, half_width: Option<f64>) -> String {
        self.with_unit(&self.number(value, half_width))
    }

    fn with_unit(&self, number: &str) -> String {
        match self.unit.as_str() {
            unit if unit.is_empty() || unit == "%" || unit.starts_with('/') => {
                format!("{number}{unit}")
            }
            unit => {
                // A noun, and not an abbreviation such as `ms`.
                let is_noun = unit.len() > 3 && unit.bytes().all(|c| c.is_ascii_alphabetic());
                let singular = unit.strip_suffix('s').filter(|_| number == "1" && is_noun);
                format!("{number} {}", singular.unwrap_or(unit))
            }
        }
    }
}

/// Returns the largest step that is not above a value, or the last one, with its name.
fn pick(value: f64, steps: &[(f64, &str)]) -> (f64, String) {
    let fits = |(size, _): &&(f64, &str)| value.abs() >= *size;
    let last = steps.last().copied().unwrap_or((1.0, ""));
    let (size, name) = steps.iter().find(fits).copied().unwrap_or(last);
    (size, name.to_string())
}

/// Returns whether a prefix and this unit are one word, e.g. `GB/s`.
fn takes_prefix(unit: &str) -> bool {
    matches!(unit, "B/s" | "bit/s" | "Hz")
}

/// Returns a unit with its prefix: `GB/s`, `M packets/s`, `M/s`, `per cycle`.
fn named(prefix: &str, unit: &str) -> String {
    let unit = match unit.strip_prefix("1/") {
        Some("s") => return format!("{prefix}/s"),
        Some(of) => format!("per {of}"),
        None if takes_prefix(unit) => return format!("{prefix}{unit}"),
        None => unit.to_owned(),
    };
    if prefix.is_empty() { unit } else { format!("{prefix} {unit}") }
}

/// Formats a value in its most readable scale, e.g. `19.7 GB/s`, `1.30 us`, `3.2%`.
pub fn value(value: f64, half_width: Option<f64>, unit: &str) -> String {
    Scale::of(value, unit).value(value, half_width)
}

/// Formats a published value, without trailing zeros, e.g. `23.46 GB/s`, `150 MB/s`.
pub fn published(value: f64, unit: &str) -> String {
    let scale = Scale::of(value, unit);
    scale.with_unit(without_zeros(&scale.number(value, Some(0.0))))
}

/// Removes the trailing zeros of a decimal fraction.
pub fn without_zeros(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Formats a value of a verdict with four digits and integers in full, so that it can be compared with
/// its bound: `23.46 GB/s`, `1234 ns`, `64 MiB`, `0.97`.
pub fn precise(value: f64, unit: &str) -> String {
    let scale = Scale::of_verdict(value, unit);
    scale.with_unit(&four_digits(scale.scaled(value)))
}

/// Formats four significant digits without trailing zeros, and integers in full.
fn four_digits(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e9).contains(&size) {
        return format!("{value:.3e}");
    }
    let whole = if size < 1.0 { 0 } else { size.log10() as usize };
    let leading = if size == 0.0 || size >= 1.0 { 0 } else { (-size.log10()) as usize };
    without_zeros(&format!("{value:.*}", (3 + leading).saturating_sub(whole))).into()
}

/// Formats a value with its interval: `19.7 GB/s (19.5 GB/s to 19.9 GB/s)`. The extremes of 2 to 5
/// rounds are a range, and a single round has neither.
pub fn interval(centre: f64, interval: &Interval, unit: &str) -> String {
    let centre = precise(centre, unit);
    let ends = ends(interval, |end| precise(end, unit));
    match interval.kind {
        IntervalKind::Single => match interval.open_end() {
            None => centre,
            Some(OpenEnd::Both) => format!("{centre} ({})", OpenEnd::Both.words()),
            Some(end) => format!("{} {centre}", end.words()),
        },
        IntervalKind::Range => format!("{centre} (range {ends})"),
        IntervalKind::Confidence => format!("{centre} ({ends})"),
    }
}

/// Formats both ends of an interval, e.g. `at least 1.2` if one is open; empty for a single round.
pub fn ends(interval: &Interval, number: impl Fn(f64) -> String) -> String {
    match (interval.kind, interval.low, interval.high) {
        (IntervalKind::Single, ..) => String::new(),
        (_, f64::NEG_INFINITY, f64::INFINITY) => "unknown".into(),
        (_, low, f64::INFINITY) => format!("at least {}", number(low)),
        (_, f64::NEG_INFINITY, high) => format!("at most {}", number(high)),
        (_, low, high) => format!("{} to {}", number(low), number(high)),
    }
}

/// Formats a number up to the first digit of its half-width.
fn digits(value: f64, half_width: Option<f64>) -> String {
    if !value.is_finite() {
        return "—".into();
    }
    let magnitude = |number: f64| number.abs().log10().floor() as i32;
    let leading = if value == 0.0 { 0 } else { magnitude(value) };
    let exact = half_width == Some(0.0) && value.fract() == 0.0 && value.abs() < 1e9;
    let last = match half_width {
        _ if exact => 0,
        Some(width) if width > 0.0 && width.is_finite() => {
            magnitude(width).clamp(leading - MAX_DIGITS + 1, leading)
        }
        Some(_) => leading - MAX_DIGITS + 1,
        None if value == 0.0 => 0,
        None => leading - DEFAULT_DIGITS + 1,
    };
    if last > 0 {
        let step = 10f64.powi(last);
        return format!("{:.0}", (value / step).round() * step);
    }
    format!("{value:.*}", last.unsigned_abs() as usize)
}

/// Formats half an interval as a share of its median, e.g. `±1.2%`; empty if not finite.
pub fn half_width(share: f64) -> String {
    if share.is_finite() { format!("±{}", percent(share)) } else { String::new() }
}

/// Formats a share with two digits, e.g. `1.2%`, `0.05%`, `37%`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let size = percent.abs();
    let decimals = match size {
        s if s >= 9.95 || s == 0.0 => 0,
        s if s >= 0.095 => 1,
        _ => 2,
    };
    if size > 0.0 && size < 0.005 {
        return "<0.01%".into();
    }
    format!("{percent:.decimals$}%")
}

/// Returns bytes, e.g. of a digest, in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a random identifier of 16 hexadecimal digits.
pub fn random_id() -> String {
    hexadecimal(&rand::random::<[u8; 8]>())
}

/// Formats a count, e.g. `1 round`, `20 rounds`.
pub fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_unit_has_a_scale() {
        assert_eq!(value(19.73e9, Some(0.3e9), "B/s"), "19.7 GB/s");
        assert_eq!(value(150e6, None, "B/s"), "150 MB/s");
        assert_eq!(value(7.6, Some(0.05), "ns"), "7.60 ns");
        assert_eq!(value(1300.0, Some(40.0), "ns"), "1.30 us");
        assert_eq!(value(2.5e6, Some(1e5), "ns"), "2.5 ms");
        assert_eq!(value(3e9, None, "ns"), "3.00 s");
        assert_eq!(value(0.0025, Some(0.0001), "s"), "2.5 ms");
        assert_eq!(value(65536.0, Some(0.0), "B"), "64 KiB");
        assert_eq!(value(0.032, Some(0.001), "share"), "3.2%");
        assert_eq!(value(70.0, Some(0.0), "1"), "70");
        assert_eq!(value(123_456.0, Some(100.0), "cycles"), "123.5 k cycles");
        assert_eq!(value(2_470.0, Some(10.0), "cycles"), "2470 cycles");
        assert_eq!(value(0.2, None, "ns"), "0.200 ns");
        assert_eq!(published(23.46e9, "B/s"), "23.46 GB/s");
        assert_eq!(published(150e6, "B/s"), "150 MB/s");
        assert_eq!(published(0.97, "1"), "0.97");
        assert_eq!(published(2.0, "1/cycle"), "2 per cycle");
        assert_eq!(published(1.0, "cycles"), "1 cycle");
        assert_eq!(published(100e9, "bit/s"), "100 Gbit/s");
        assert_eq!(value(148_809_524.0, None, "packets/s"), "149 M packets/s");
        assert_eq!(value(9.04e6, Some(1e5), "1/s"), "9.0 M/s");
        assert_eq!(value(12.0, None, "1/s"), "12.0/s");
    }

    #[test]
    fn a_verdict_shows_four_digits_in_the_unit_of_its_bound() {
        for (value, unit, text) in [
            (67_108_864.0, "B", "64 MiB"),
            (90_112.0, "B", "88 KiB"),
            (73.93e9, "bit/s", "73.93 Gbit/s"),
            (148_809_524.0, "packets/s", "148.8 M packets/s"),
            (23.456e9, "B/s", "23.46 GB/s"),
            (1234.0, "ns", "1234 ns"),
            (1_573_098.0, "ns", "1.573 ms"),
            (10e6, "ns", "10 ms"),
            (1.0, "cycles", "1 cycle"),
            (0.5148, "share", "51.48%"),
        ] {
            assert_eq!(precise(value, unit), text);
        }
    }

    #[test]
    fn digits_follow_the_interval() {
        assert_eq!(digits(123.0, Some(30.0)), "120");
        assert_eq!(digits(123.456, Some(0.02)), "123.5");
        assert_eq!(digits(1.234_567, Some(1e-9)), "1.235");
        assert_eq!(digits(3.0, Some(40.0)), "3");
        assert_eq!(digits(1.0 / 3.0, None), "0.333");
        assert_eq!(digits(0.0, None), "0");
        assert_eq!(digits(f64::NAN, None), "—");
    }

    #[test]
    fn a_table_has_one_unit_or_none() {
        let scale = Scale::common([7e9, 231e9, 0.0], "B/s").unwrap();
        assert_eq!(scale.number(231e9, Some(2e9)), "231");
        assert_eq!(scale.unit(), "GB/s");
        assert_eq!(Scale::common([6e6, 231e9], "B/s"), None);
        assert!(Scale::common([], "B/s").is_some());
    }

    #[test]
    fn shares_have_two_digits() {
        assert_eq!(half_width(0.0123), "±1.2%");
        assert_eq!(half_width(0.373), "±37%");
        assert_eq!(half_width(0.0005), "±0.05%");
        assert_eq!(half_width(1e-6), "±<0.01%");
        assert_eq!(half_width(0.0), "±0%");
        assert_eq!(half_width(f64::INFINITY), "");
    }

    proptest! {
        #[test]
        fn printed_values_differ_by_less_than_their_interval(value in 1e-3f64..1e15, share in 1e-4f64..0.5) {
            let scale = Scale::of(value, "B/s");
            let printed: f64 = scale.number(value, Some(value * share)).parse().unwrap();
            let error = (printed * scale.divisor / value - 1.0).abs();
            prop_assert!(error <= share.max(5.1e-4), "{printed} for {value}");
        }
    }
}
