//! Cells of a grid: what is known of a place, and how it is written and shaded.

use lab::statistics::{Estimate, Interval, IntervalKind, Ratio, Resolution};

use super::FigureError;
use super::picture::label;
use crate::format::{self, Scale};
use lab::figure::{Axis, Figure};

/// What stands in one place.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// The experiment has no such point.
    Blank,
    /// The point has no value.
    Absent,
    /// A metric that is 0 or 1 throughout: it is 1.
    Yes,
    /// It is 0.
    No,
    /// A value in a panel of ratios: what they are to.
    Plain(String),
    /// A ratio that cannot be told from 1.
    Unresolved(String),
    /// A number, and where it lies between the least and the most, 0 to 1.
    Shaded(String, f64),
}

/// What is known of one place.
pub(super) enum Known {
    Nothing,
    Failed,
    Value(Estimate),
    Ratio(Ratio, Resolution),
}

/// How the cells of one panel are written.
pub(super) struct Writing<'a> {
    metric: &'a str,
    unit: &'a str,
    /// One scale for all values; without one each has its own.
    scale: Option<Scale>,
    /// Whether all values are 0 or 1, in every round.
    is_marks: bool,
    /// Of ratios, or of values.
    shades: Shades,
}

/// From where to where shades go.
struct Shades {
    of_ratios: bool,
    is_log: bool,
    low: f64,
    high: f64,
}

impl<'a> Writing<'a> {
    /// How a figure writes these cells of a metric.
    pub(super) fn of(
        figure: &Figure,
        (metric, unit): (&'a str, &'a str),
        cells: &[Vec<Known>],
    ) -> Result<Self, FigureError> {
        let shades = Shades::of(figure, cells);
        if shades.is_log && shades.low <= 0.0 {
            return Err(FigureError::NoLogarithm {
                figure: figure.id.clone(),
                what: format!("{metric} = {}", shades.low),
                axis: "y_scale",
                instead: "linear",
            });
        }
        let known = || cells.iter().flatten();
        let values = known().filter_map(|known| match known {
            Known::Value(estimate) => Some(estimate.median),
            _ => None,
        });
        // Beside ratios a value wants its unit.
        let scale = Scale::common(values, unit).filter(|_| !shades.of_ratios);
        Ok(Self { metric, unit, scale, is_marks: known().all(Known::is_mark), shades })
    }

    /// The metric, with its unit where all values are in one.
    pub(super) fn label(&self) -> String {
        self.scale.as_ref().map_or_else(|| self.metric.into(), |scale| label(self.metric, scale))
    }

    pub(super) fn cell(&self, known: &Known) -> Cell {
        match known {
            Known::Nothing => Cell::Blank,
            Known::Failed => Cell::Absent,
            Known::Value(estimate) if self.is_marks && estimate.median == 1.0 => Cell::Yes,
            Known::Value(_) if self.is_marks => Cell::No,
            Known::Value(estimate) => {
                let (value, half) = self.shades.glanced(estimate.median, &estimate.interval);
                let text = match &self.scale {
                    Some(scale) => scale.number(value, half),
                    None => format::value(value, half, self.unit),
                };
                if self.shades.of_ratios {
                    Cell::Plain(text)
                } else {
                    Cell::Shaded(text, self.shades.share(value))
                }
            }
            Known::Ratio(ratio, resolution) => {
                let (value, half) = self.shades.glanced(ratio.ratio, &ratio.interval);
                let text = format!("{}×", format::value(value, half, "1"));
                match resolution {
                    Resolution::Unresolved { .. } => Cell::Unresolved(text),
                    _ => Cell::Shaded(text, self.shades.share(ratio.ratio)),
                }
            }
        }
    }
}

impl Known {
    fn is_mark(&self) -> bool {
        match self {
            Self::Value(Estimate { median, interval, .. }) => {
                [0.0, 1.0].contains(median) && interval.low == interval.high
            }
            Self::Ratio(..) => false,
            Self::Nothing | Self::Failed => true,
        }
    }
}

impl Shades {
    /// Ratios begin at 1; a quantity in proportion is seen from zero.
    fn of(figure: &Figure, cells: &[Vec<Known>]) -> Self {
        let of_ratios = !figure.groups.is_empty();
        let is_log = matches!(figure.y_scale, Some(Axis::Log2 | Axis::Log10));
        let shaded = |known: &Known| match known {
            Known::Ratio(ratio, _) => Some(ratio.ratio),
            Known::Value(estimate) if !of_ratios => Some(estimate.median),
            _ => None,
        };
        let values = || cells.iter().flatten().filter_map(shaded);
        let low = match (of_ratios, values().reduce(f64::min)) {
            (true, _) | (_, None) => 1.0,
            (_, Some(least)) if is_log => least,
            (_, Some(least)) => least.min(0.0),
        };
        Self { of_ratios, is_log, low, high: values().fold(low, f64::max) }
    }

    fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_log { value.ln() } else { value };
        let span = place(self.high) - place(self.low);
        let share = (place(value) - place(self.low)) / span;
        if span > 0.0 { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// A value and half of its interval, as fine as is seen at a glance: three digits, of 99.9 too, and in
    /// proportion to the most a thousandth of it.
    fn glanced(&self, value: f64, interval: &Interval) -> (f64, Option<f64>) {
        let finest = if self.is_log { 0.0 } else { self.high.abs() * 0.00101 };
        let half = (interval.high - interval.low) / 2.0;
        let half = half.max(value.abs() * 0.0101).max(finest);
        let is_small = value.abs() < 10.0 * finest;
        let value = if is_small { (value / finest).round() * finest } else { value };
        (value, (interval.kind != IntervalKind::Single).then_some(half))
    }
}
