//! Cells of a grid: their values, and how these are written and shaded.

use lab::figure::{Axis, Figure};
use lab::statistics::{Estimate, Interval, IntervalKind, Ratio, Resolution};

use super::FigureError;
use lab::format::{self, Scale};

/// Content of one cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// The experiment has no such point.
    Blank,
    /// The point has no value.
    Absent,
    /// The value 1 in a panel whose values are all 0 or 1.
    Yes,
    /// The value 0 in a panel whose values are all 0 or 1.
    No,
    /// A value in a panel of ratios: the base of the ratios of its group.
    Plain(String),
    /// A ratio that is not resolved from 1.
    Unresolved(String),
    /// A number with its shade, from 0 for the smallest to 1 for the largest.
    Shaded(String, f64),
}

/// Value of one cell before it is written.
pub(super) enum CellValue {
    /// The experiment has no such point.
    NoPoint,
    /// The point has no value.
    Missing,
    Value(Estimate),
    Ratio(Ratio, Resolution),
}

/// Format of the cells of one panel.
pub(super) struct CellFormat<'a> {
    /// Label of the metric.
    metric: String,
    unit: &'a str,
    /// Scale of all values; `None` if each value has its own.
    scale: Option<Scale>,
    /// Whether all values are 0 or 1 in every round.
    is_boolean: bool,
    shades: ShadeRange,
}

/// Values at the ends of the range of shades.
struct ShadeRange {
    of_ratios: bool,
    is_log: bool,
    low: f64,
    high: f64,
}

impl<'a> CellFormat<'a> {
    /// Returns the format of the given cells.
    ///
    /// # Errors
    /// Returns [`FigureError::Declaration`] if shades are logarithmic and a value is not above 0.
    pub(super) fn new(
        figure: &Figure,
        (metric, unit): (&str, &'a str),
        cells: &[Vec<CellValue>],
    ) -> Result<Self, FigureError> {
        let shades = ShadeRange::new(figure, cells);
        if shades.is_log && shades.low <= 0.0 {
            let what = format!("{metric} = {}", shades.low);
            return Err(FigureError::no_logarithm(figure, &what, "y_scale"));
        }
        let all = || cells.iter().flatten();
        let values = all().filter_map(|value| match value {
            CellValue::Value(estimate) => Some(estimate.median),
            _ => None,
        });
        // Among ratios a value shows its unit.
        let scale = Scale::common(values, unit).filter(|_| !shades.of_ratios);
        let is_boolean = all().all(CellValue::is_boolean);
        let metric = figure.label(metric).text();
        Ok(Self { metric, unit, scale, is_boolean, shades })
    }

    /// Returns the metric, with the unit if all values have the same.
    pub(super) fn label(&self) -> String {
        let scaled = |scale: &Scale| scale.label(&self.metric);
        self.scale.as_ref().map_or_else(|| self.metric.clone(), scaled)
    }

    /// Returns a value or ratio with its interval and its rounds; empty if there is none.
    pub(super) fn detail(&self, value: &CellValue) -> String {
        match value {
            CellValue::NoPoint | CellValue::Missing => String::new(),
            CellValue::Value(estimate) => {
                let text = format::interval(estimate.median, &estimate.interval, self.unit);
                format!("{text}, {}", format::count(estimate.rounds, "round"))
            }
            CellValue::Ratio(ratio, resolution) => {
                let text = format::interval(ratio.ratio, &ratio.interval, "1");
                let unresolved = match resolution {
                    Resolution::Unresolved { .. } => ", unresolved",
                    Resolution::Higher | Resolution::Lower => "",
                };
                let rounds = format::count(ratio.rounds, "round");
                format!("ratio {text}, {rounds}{unresolved}")
            }
        }
    }

    /// Returns a published value, without its unit if all values have the same.
    pub(super) fn published(&self, value: f64) -> String {
        match &self.scale {
            Some(scale) => format::without_zeros(&scale.number(value, Some(0.0))).into(),
            None => format::published(value, self.unit),
        }
    }

    pub(super) fn cell(&self, value: &CellValue) -> Cell {
        match value {
            CellValue::NoPoint => Cell::Blank,
            CellValue::Missing => Cell::Absent,
            CellValue::Value(estimate) if self.is_boolean && estimate.median == 1.0 => Cell::Yes,
            CellValue::Value(_) if self.is_boolean => Cell::No,
            CellValue::Value(estimate) => {
                let (value, half) = self.shades.rounded(estimate.median, &estimate.interval);
                let number = match &self.scale {
                    Some(scale) => scale.number(value, half),
                    None => format::value(value, half, self.unit),
                };
                let text = estimate.interval.open_sign().to_owned() + &number;
                if self.shades.of_ratios {
                    Cell::Plain(text)
                } else {
                    Cell::Shaded(text, self.shades.share(value))
                }
            }
            CellValue::Ratio(ratio, resolution) => {
                let (value, half) = self.shades.rounded(ratio.ratio, &ratio.interval);
                let sign = ratio.interval.open_sign();
                let text = format!("{sign}{}×", format::value(value, half, "1"));
                match resolution {
                    Resolution::Unresolved { .. } => Cell::Unresolved(text),
                    _ => Cell::Shaded(text, self.shades.share(ratio.ratio)),
                }
            }
        }
    }
}

impl CellValue {
    fn is_boolean(&self) -> bool {
        match self {
            Self::Value(Estimate { median, interval, .. }) => {
                [0.0, 1.0].contains(median) && interval.low == interval.high
            }
            Self::Ratio(..) => false,
            Self::NoPoint | Self::Missing => true,
        }
    }
}

impl ShadeRange {
    /// Shades of ratios start at 1, linear shades of values at 0.
    fn new(figure: &Figure, cells: &[Vec<CellValue>]) -> Self {
        let of_ratios = !figure.groups.is_empty();
        let is_log = matches!(figure.y_scale, Some(Axis::Log2 | Axis::Log10));
        let shaded = |value: &CellValue| match value {
            CellValue::Ratio(ratio, _) => Some(ratio.ratio),
            CellValue::Value(estimate) if !of_ratios => Some(estimate.median),
            _ => None,
        };
        let values = || cells.iter().flatten().filter_map(shaded);
        let low = match (of_ratios, values().reduce(f64::min)) {
            (true, _) | (_, None) => 1.0,
            (_, Some(min)) if is_log => min,
            (_, Some(min)) => min.min(0.0),
        };
        Self { of_ratios, is_log, low, high: values().fold(low, f64::max) }
    }

    fn share(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.ln() } else { value };
        let span = scaled(self.high) - scaled(self.low);
        let share = (scaled(value) - scaled(self.low)) / span;
        if span > 0.0 { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns a value and half its interval, rounded to three digits and, if shades are linear, to a
    /// thousandth of the largest value.
    fn rounded(&self, value: f64, interval: &Interval) -> (f64, Option<f64>) {
        // Slightly above a power of ten, so that 99.9 keeps three digits.
        let finest = if self.is_log { 0.0 } else { self.high.abs() * 0.00101 };
        let half = (interval.high - interval.low) / 2.0;
        let half = half.max(value.abs() * 0.0101).max(finest);
        let is_small = value.abs() < 10.0 * finest;
        let value = if is_small { (value / finest).round() * finest } else { value };
        (value, (interval.kind != IntervalKind::Single).then_some(half))
    }
}
