//! Axes: positions of values and ticks.

use lab::figure::Axis;
use lab::point::Level;
use lab::quantity::format_bytes;

use super::font;
use lab::format::without_zeros;

/// Axis with the range of its values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AxisScale {
    kind: Axis,
    low: f64,
    high: f64,
    /// Levels in order.
    names: Vec<String>,
    /// Numeric values of the levels.
    numbers: Vec<f64>,
    /// Whether the levels are lengths in bytes.
    is_bytes: bool,
}

/// Tick; a minor tick has no label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Position from 0 to 1.
    pub(super) at: f64,
    pub(super) label: Option<String>,
}

impl AxisScale {
    /// Returns the axis over `values`; `None` if there is no value or one has no position on it.
    pub(super) fn new(kind: Axis, values: &[f64], levels: &[Level]) -> Option<Self> {
        let is_log = matches!(kind, Axis::Log2 | Axis::Log10);
        if values.iter().any(|value| !value.is_finite() || (is_log && *value <= 0.0)) {
            return None;
        }
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        let (low, high) = match kind {
            Axis::Category => (-0.5, levels.len() as f64 - 0.5),
            Axis::Log2 => widened(min.log2(), max.log2(), 0.03, 0.5),
            Axis::Log10 => widened(min.log10(), max.log10(), 0.04, 0.15),
            // A linear axis includes zero.
            Axis::Linear => widened(min.min(0.0), max.max(0.0), 0.04, 0.5),
        };
        let low = if kind == Axis::Linear && min >= 0.0 { 0.0 } else { low };
        let is_bytes =
            levels.iter().any(|level| level.count().is_none() && level.number().is_some());
        let names = levels.iter().map(Level::to_string).collect();
        let numbers = levels.iter().filter_map(Level::number).collect();
        Some(Self { kind, low, high, names, numbers, is_bytes })
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn position(&self, value: f64) -> f64 {
        let value = match self.kind {
            Axis::Log2 => value.log2(),
            Axis::Log10 => value.log10(),
            Axis::Linear | Axis::Category => value,
        };
        (value - self.low) / (self.high - self.low)
    }

    /// Returns whether levels are evenly spaced in order.
    pub(super) fn is_category(&self) -> bool {
        self.kind == Axis::Category
    }

    /// Returns ticks whose labels fit an axis of `length` at a font size.
    pub(super) fn ticks(&self, length: f64, size: f64, is_x: bool) -> Vec<Tick> {
        let ticks = match self.kind {
            Axis::Category => {
                let tick = |(index, name): (usize, &String)| Tick {
                    at: self.position(index as f64),
                    label: Some(name.clone()),
                };
                self.names.iter().enumerate().map(tick).collect()
            }
            Axis::Log2 => self.powers_of_two(length, size),
            Axis::Log10 => self.powers_of_ten(length, size, is_x),
            Axis::Linear => self.even(length, size, is_x),
        };
        match ticks.iter().any(|tick| tick.label.is_some()) {
            true => ticks,
            // All values lie between two powers: label the levels themselves.
            false => self.level_ticks(),
        }
    }

    fn level_ticks(&self) -> Vec<Tick> {
        let tick = |(value, name): (&f64, &String)| Tick {
            at: self.position(*value),
            label: Some(name.clone()),
        };
        self.numbers.iter().zip(&self.names).map(tick).collect()
    }

    fn powers_of_two(&self, length: f64, size: f64) -> Vec<Tick> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let label = |power: i32| {
            let value = 2f64.powi(power);
            if self.is_bytes && value >= 1.0 { format_bytes(value as u64) } else { number(value) }
        };
        let widest =
            (first..=last).map(|power| font::width(&label(power), size)).fold(0.0, f64::max);
        let per_power = length / (self.high - self.low);
        // Label every power, or every second, or every fourth, ...
        let step = [1, 2, 4, 8, 16]
            .into_iter()
            .find(|step| f64::from(*step) * per_power > widest * 1.25)
            .unwrap_or(32);
        let tick = |power: i32| Tick {
            at: (f64::from(power) - self.low) / (self.high - self.low),
            label: (power.rem_euclid(step) == 0).then(|| label(power)),
        };
        (first..=last).map(tick).collect()
    }

    fn powers_of_ten(&self, length: f64, size: f64, is_x: bool) -> Vec<Tick> {
        let decades = self.high - self.low;
        let mut ticks = Vec::new();
        for power in self.low.floor() as i32..=self.high.ceil() as i32 {
            for digit in 1..10_u8 {
                let value = f64::from(digit) * 10f64.powi(power);
                let at = self.position(value);
                if !(0.0..=1.0).contains(&at) {
                    continue;
                }
                let space = length / decades * 0.3;
                let needed =
                    if is_x { font::width(&number(value), size) * 1.3 } else { size * 1.2 };
                let is_labelled = matches!(digit, 2 | 5) && space > needed && decades < 4.0;
                let label = (digit == 1 || is_labelled).then(|| number(value));
                ticks.push(Tick { at, label });
            }
        }
        ticks
    }

    fn even(&self, length: f64, size: f64, is_x: bool) -> Vec<Tick> {
        let span = self.high - self.low;
        let spacing = if is_x { 60.0 } else { size * 3.0 };
        let min_step = span / (length / spacing).max(2.0);
        let power = 10f64.powf(min_step.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= min_step)
            .unwrap_or(power * 10.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        let tick = |index: i64| {
            let value = index as f64 * step;
            Tick { at: self.position(value), label: Some(number(value)) }
        };
        (first..=last.min(first + 50)).map(tick).collect()
    }
}

/// Returns the published values over which an axis extends: the nearest first, as long as our own values keep half of it,
/// or of a logarithmic one that spans a factor of 10. The others are drawn at its ends.
pub(super) fn readable(kind: Axis, own: &[f64], published: &[f64]) -> Vec<f64> {
    let on_scale = |value: f64| match kind {
        Axis::Log2 => value.log2(),
        Axis::Log10 => value.log10(),
        Axis::Linear | Axis::Category => value,
    };
    let (min_span, start) = match kind {
        Axis::Log2 => (10f64.log2(), None),
        Axis::Log10 => (1.0, None),
        Axis::Linear | Axis::Category => (0.0, Some(0.0)),
    };
    let ends = || own.iter().copied().map(on_scale).filter(|end| end.is_finite()).chain(start);
    let (Some(mut low), Some(mut high)) = (ends().reduce(f64::min), ends().reduce(f64::max)) else {
        return published.iter().copied().filter(|value| on_scale(*value).is_finite()).collect();
    };
    let max_span = 2.0 * (high - low).max(min_span);
    let distance = |value: &f64| {
        let at = on_scale(*value);
        (low - at).max(at - high).max(0.0)
    };
    let mut nearest: Vec<f64> =
        published.iter().copied().filter(|value| on_scale(*value).is_finite()).collect();
    nearest.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut taken = Vec::new();
    for value in nearest {
        let ends = (low.min(on_scale(value)), high.max(on_scale(value)));
        if ends.1 - ends.0 <= max_span || max_span == 0.0 {
            (low, high) = ends;
            taken.push(value);
        }
    }
    taken
}

/// Widens a range by a share of it at both ends, an empty one by `min`.
fn widened(low: f64, high: f64, share: f64, min: f64) -> (f64, f64) {
    let margin = if high > low { (high - low) * share } else { min };
    (low - margin, high + margin)
}

/// Formats a number for a tick.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-4..1e6).contains(&size) {
        format!("{value:.0e}").replace("e", "·10^")
    } else {
        let digits = (2.0 - size.log10().floor()).clamp(0.0, 6.0) as usize;
        without_zeros(&format!("{value:.digits$}")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<String> {
        ticks.iter().filter_map(|tick| tick.label.clone()).collect()
    }

    #[test]
    fn lengths_have_ticks_at_powers_of_two() {
        let levels = ["16 B", "4 KiB", "16 MiB"].map(Level::from);
        let scale = AxisScale::new(Axis::Log2, &[16.0, 4096.0, 16777216.0], &levels).unwrap();
        let labels = labels(&scale.ticks(450.0, 11.0, true));
        assert_eq!(labels, ["16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"]);
    }

    #[test]
    fn rates_have_ticks_at_powers_of_ten() {
        let scale = AxisScale::new(Axis::Log10, &[0.8, 120.0], &[]).unwrap();
        let labels = labels(&scale.ticks(300.0, 11.0, false));
        assert_eq!(labels, ["1", "2", "5", "10", "20", "50", "100"]);
    }

    #[test]
    fn a_single_value_between_powers_is_labelled() {
        let scale = AxisScale::new(Axis::Log10, &[3000.0], &[Level::from("3000")]).unwrap();
        let ticks = scale.ticks(400.0, 11.0, true);
        assert_eq!(labels(&ticks), ["3000"]);
        assert!((ticks[0].at - 0.5).abs() < 1e-9);
    }

    #[test]
    fn our_values_keep_half_of_an_axis_with_published_ones() {
        // Ours span 2 decades: 2 more are available, to the nearest first.
        let taken = readable(Axis::Log10, &[1.0, 100.0], &[1e6, 5.0, 4e3, 0.5, 0.0, f64::NAN]);
        assert_eq!(taken, [5.0, 0.5, 4e3]);
        // Ours span less than a decade, which counts as one.
        assert_eq!(readable(Axis::Log10, &[1.0, 2.0], &[50.0, 200.0]), [50.0]);
        // A linear axis starts at zero.
        assert_eq!(readable(Axis::Linear, &[3.0, 4.0], &[8.0, 8.1, 0.1]), [0.1, 8.0]);
        assert_eq!(readable(Axis::Linear, &[0.0], &[7.0]), [7.0]);
        // Without ours, all published ones have a position.
        assert_eq!(readable(Axis::Log2, &[], &[7.0, 0.0]), [7.0]);
    }

    #[test]
    fn values_without_a_position_make_no_axis() {
        assert_eq!(AxisScale::new(Axis::Log10, &[0.0, 1.0], &[]), None);
        assert_eq!(AxisScale::new(Axis::Linear, &[f64::NAN], &[]), None);
        assert_eq!(AxisScale::new(Axis::Linear, &[], &[]), None);
        assert!(AxisScale::new(Axis::Linear, &[0.0], &[]).is_some());
    }
}
