//! Values as people read them: scaled to their unit, with no more digits than their interval
//! supports.

/// More digits than these help nobody.
const MOST_DIGITS: i32 = 4;
/// Digits of a value that has no interval.
const DIGITS_ALONE: i32 = 3;
/// Up to here a count of cycles or packets reads well without a prefix.
const PLAIN: f64 = 1e5;
/// A table whose values span more than this has no unit in common.
const SPAN: f64 = 1e4;

const SI: [(f64, &str); 5] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
const BINARY: [(f64, &str); 5] = [
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
    (1.0, "B"),
];

/// A unit with its prefix: by how much values are divided, and what stands behind them.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    divisor: f64,
    unit: String,
}

impl Scale {
    /// The scale in which a value of `unit` reads best. `B/s` and other rates are decimal, `B` is
    /// binary, `share` becomes a percentage, and `1` stays a plain number.
    pub fn of(value: f64, unit: &str) -> Self {
        let pick = |steps: &[(f64, &str)]| -> (f64, String) {
            let fits = |(size, _): &&(f64, &str)| value.abs() >= *size;
            // Under the smallest step the smallest step it is.
            let last = steps.last().copied().unwrap_or((1.0, ""));
            let (size, name) = steps.iter().find(fits).copied().unwrap_or(last);
            (size, name.to_string())
        };
        let (divisor, unit) = match unit {
            "1" | "" => (1.0, String::new()),
            "share" => (0.01, "%".into()),
            "%" => (1.0, "%".into()),
            "B" => pick(&BINARY),
            "ns" => pick(&TIMES),
            "s" => {
                let (size, name) = Scale::of(value * 1e9, "ns").into_parts();
                (size / 1e9, name)
            }
            "B/s" => {
                let (size, prefix) = pick(&SI);
                (size, format!("{prefix}B/s"))
            }
            other if value.abs() < PLAIN => (1.0, other.into()),
            other => {
                let (size, prefix) = pick(&SI);
                (size, format!("{prefix} {other}"))
            }
        };
        Self { divisor, unit }
    }

    /// One scale for all values of a table; none where they span too much for one.
    pub fn common(values: impl IntoIterator<Item = f64>, unit: &str) -> Option<Self> {
        let sizes: Vec<f64> = values.into_iter().map(f64::abs).filter(|v| *v > 0.0).collect();
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let fits = sizes.is_empty() || largest / smallest <= SPAN;
        // In the middle of the span numbers are neither long nor mostly zeros.
        fits.then(|| Self::of((largest * smallest.min(largest)).sqrt(), unit))
    }

    fn into_parts(self) -> (f64, String) {
        (self.divisor, self.unit)
    }

    /// What stands behind the numbers: `GB/s`; empty for a plain number.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The value in this scale.
    pub fn scaled(&self, value: f64) -> f64 {
        value / self.divisor
    }

    /// The number without its unit. `half_width` is half of the interval, in the value's own unit;
    /// without one there are three digits.
    pub fn number(&self, value: f64, half_width: Option<f64>) -> String {
        digits(value / self.divisor, half_width.map(|width| width / self.divisor))
    }

    /// The number with its unit: `19.7 GB/s`.
    pub fn value(&self, value: f64, half_width: Option<f64>) -> String {
        let number = self.number(value, half_width);
        match self.unit.as_str() {
            "" => number,
            "%" => format!("{number}%"),
            unit => format!("{number} {unit}"),
        }
    }
}

/// A value in the scale in which it reads best: `19.7 GB/s`, `1.30 us`, `3.2%`.
pub fn value(value: f64, half_width: Option<f64>, unit: &str) -> String {
    Scale::of(value, unit).value(value, half_width)
}

/// A value as somebody stated it, without zeros at its end: `23.46 GB/s`, `150 MB/s`.
pub fn stated(value: f64, unit: &str) -> String {
    let scale = Scale::of(value, unit);
    let number = digits(value / scale.divisor, Some(0.0));
    let short = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number.as_str(),
    };
    match scale.unit.as_str() {
        "" | "%" => format!("{short}{}", scale.unit),
        unit => format!("{short} {unit}"),
    }
}

/// A number with no digit beyond the first of its half-width.
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
            magnitude(width).clamp(leading - MOST_DIGITS + 1, leading)
        }
        Some(_) => leading - MOST_DIGITS + 1,
        None if value == 0.0 => 0,
        None => leading - DIGITS_ALONE + 1,
    };
    if last > 0 {
        let step = 10f64.powi(last);
        return format!("{:.0}", (value / step).round() * step);
    }
    format!("{value:.*}", last.unsigned_abs() as usize)
}

/// Half an interval as a share of its median: `±1.2%`; empty where there is none.
pub fn half_width(share: f64) -> String {
    if share.is_finite() { format!("±{}", percent(share)) } else { String::new() }
}

/// A share in two digits: `1.2%`, `0.05%`, `37%`.
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

/// How many of what: `1 round`, `20 rounds`.
pub fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_unit_has_its_scale() {
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
        assert_eq!(stated(23.46e9, "B/s"), "23.46 GB/s");
        assert_eq!(stated(150e6, "B/s"), "150 MB/s");
        assert_eq!(stated(0.97, "1"), "0.97");
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
        /// What is printed lies within the interval's own order of size of the value.
        #[test]
        fn printed_values_are_true(value in 1e-3f64..1e15, share in 1e-4f64..0.5) {
            let scale = Scale::of(value, "B/s");
            let printed: f64 = scale.number(value, Some(value * share)).parse().unwrap();
            let error = (printed * scale.divisor / value - 1.0).abs();
            prop_assert!(error <= share.max(5.1e-4), "{printed} for {value}");
        }
    }
}
