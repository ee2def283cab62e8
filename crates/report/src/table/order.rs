//! Order of the rows of a table: by a metric or by a factor, and how many to show.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use lab::journal::Run;
use lab::point::{Level, Point};
use lab::statistics::Estimate;
use lab::summary::{Row, Summary, SummaryError, Unit, summarise};

/// Word that sorts by the metric that the table shows.
pub const BY_VALUE: &str = "value";

/// Requested order of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// [`BY_VALUE`], a metric or a factor.
    pub by: String,
    /// Whether the largest is first.
    pub reversed: bool,
    /// Maximum number of rows.
    pub top: Option<usize>,
}

/// Order of the rows of one experiment.
pub(crate) struct RowOrder<'a> {
    pub(crate) order: &'a Order,
    key: SortKey<'a>,
}

/// Key by which the rows of an experiment are sorted.
enum SortKey<'a> {
    /// The metric of the table.
    Value,
    /// Another metric.
    Metric(Rc<Summary>),
    Factor(&'a str),
}

/// Sorted property of a row. A missing one is last in both directions.
enum SortValue<'a> {
    Missing,
    Number(f64),
    /// A level, which is a number or a name.
    Level(&'a Level),
}

/// Returns whether an experiment of a run can be sorted by a word: it has such a factor, or values of such a metric.
pub fn can_sort(run: &Run, experiment: &str, by: &str) -> bool {
    let mut samples = run.samples.iter().filter(|sample| sample.experiment == experiment);
    by == BY_VALUE
        || samples.any(|sample| sample.point.get(by).is_some() || sample.values.contains_key(by))
}

impl<'a> RowOrder<'a> {
    /// Finds what the rows of an experiment are sorted by.
    ///
    /// # Errors
    /// Returns an error if the experiment has neither such a factor nor such a metric.
    pub(crate) fn new(
        run: &Run,
        shown: &Summary,
        order: &'a Order,
        unit: Unit,
    ) -> Result<Self, SummaryError> {
        let by = order.by.as_str();
        let key = if by == BY_VALUE || by == shown.metric {
            SortKey::Value
        } else if shown.rows.iter().any(|row| row.point.get(by).is_some()) {
            SortKey::Factor(by)
        } else {
            // Only times can be in ticks or cycles.
            let summary = summarise(run, &shown.experiment, by, unit)
                .or_else(|_| summarise(run, &shown.experiment, by, Unit::Own))?;
            SortKey::Metric(Rc::new(summary))
        };
        Ok(Self { order, key })
    }

    /// Returns the summary of the metric that the rows are sorted by, unless the table shows it.
    pub(crate) fn other_metric(&self) -> Option<&Summary> {
        match &self.key {
            SortKey::Metric(summary) => Some(summary),
            SortKey::Value | SortKey::Factor(_) => None,
        }
    }

    /// Returns the factor that the rows are sorted by, if it is one.
    pub(crate) fn factor(&self) -> Option<&str> {
        match &self.key {
            SortKey::Factor(factor) => Some(factor),
            SortKey::Value | SortKey::Metric(_) => None,
        }
    }

    /// Sorts points and cuts them to the maximum number; `rows` are those of the metric that the table shows. Points that
    /// are equal, and points without what they are sorted by, keep their order.
    pub(crate) fn apply(&self, points: &mut Vec<&Point>, rows: &[&Row]) {
        let estimates = self.estimates(rows);
        let number = |point: &Point| match estimates.get(point) {
            Some(estimate) => SortValue::Number(estimate.median),
            None => SortValue::Missing,
        };
        let compare = |a: &Point, b: &Point| {
            let [a, b] = [a, b].map(|point| match &self.key {
                SortKey::Value | SortKey::Metric(_) => number(point),
                SortKey::Factor(factor) => {
                    point.get(factor).map_or(SortValue::Missing, SortValue::Level)
                }
            });
            a.compare(&b, self.order.reversed)
        };
        points.sort_by(|a, b| compare(a, b));
        points.truncate(self.order.top.unwrap_or(usize::MAX));
    }

    /// Returns the estimates by which the points are sorted.
    fn estimates<'r>(&'r self, rows: &[&'r Row]) -> BTreeMap<&'r Point, &'r Estimate> {
        let of_row = |row: &'r Row| Some((&row.point, row.estimate.as_ref()?));
        match &self.key {
            SortKey::Value => rows.iter().copied().filter_map(of_row).collect(),
            SortKey::Metric(summary) => summary.rows.iter().filter_map(of_row).collect(),
            SortKey::Factor(_) => BTreeMap::new(),
        }
    }

    /// Describes the order, e.g. `sorted by latency, largest first; the first 20 of 943 points`.
    pub(crate) fn caption(&self, all: usize) -> String {
        let by = match &self.key {
            SortKey::Value => BY_VALUE,
            SortKey::Metric(_) | SortKey::Factor(_) => self.order.by.as_str(),
        };
        let first = match (&self.key, self.order.reversed) {
            (SortKey::Factor(_), false) => "",
            (SortKey::Factor(_), true) => " in reverse",
            (SortKey::Value | SortKey::Metric(_), false) => ", smallest first",
            (SortKey::Value | SortKey::Metric(_), true) => ", largest first",
        };
        let cut = match self.order.top.filter(|top| *top < all) {
            Some(top) => format!("; the first {top} of {all} points"),
            None => String::new(),
        };
        format!("sorted by {by}{first}{cut}")
    }
}

impl SortValue<'_> {
    /// Compares two values; a missing one is last in both directions.
    fn compare(&self, other: &Self, reversed: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Missing, Self::Missing) => return Ordering::Equal,
            (Self::Missing, _) => return Ordering::Greater,
            (_, Self::Missing) => return Ordering::Less,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Level(a), Self::Level(b)) => compare_levels(a, b),
            // All values of one key are of one kind.
            (Self::Number(_), Self::Level(_)) => Ordering::Less,
            (Self::Level(_), Self::Number(_)) => Ordering::Greater,
        };
        if reversed { order.reverse() } else { order }
    }
}

/// Compares levels: numbers by size before names by their letters.
fn compare_levels(a: &Level, b: &Level) -> Ordering {
    let size = |level: &Level| level.number().unwrap_or(f64::INFINITY);
    let letters = |level: &Level| level.as_str().to_lowercase();
    size(a).total_cmp(&size(b)).then_with(|| letters(a).cmp(&letters(b))).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(mut levels: Vec<Option<Level>>, reversed: bool) -> Vec<Option<Level>> {
        let value = |level: &Option<Level>| match level {
            Some(level) => SortValue::Level(level).compare(&SortValue::Missing, reversed),
            None => SortValue::Missing.compare(&SortValue::Missing, reversed),
        };
        assert!(levels.iter().all(|level| value(level) != Ordering::Greater));
        levels.sort_by(|a, b| {
            let [a, b] =
                [a, b].map(|level| level.as_ref().map_or(SortValue::Missing, SortValue::Level));
            a.compare(&b, reversed)
        });
        levels
    }

    #[test]
    fn levels_are_sorted_by_size_then_by_letters_and_missing_ones_are_last() {
        let levels = || {
            let all = ["mix", "1 MiB", "16 B", "", "4 KiB", "Any", "9"];
            all.map(|text| (!text.is_empty()).then(|| Level::from(text))).to_vec()
        };
        let texts = |levels: Vec<Option<Level>>| -> Vec<String> {
            let text = |level: Option<Level>| level.map_or("-".into(), |it| it.as_str().to_owned());
            levels.into_iter().map(text).collect()
        };
        let ascending = ["9", "16 B", "4 KiB", "1 MiB", "Any", "mix", "-"];
        assert_eq!(texts(sorted(levels(), false)), ascending);
        let descending = ["mix", "Any", "1 MiB", "4 KiB", "16 B", "9", "-"];
        assert_eq!(texts(sorted(levels(), true)), descending);
    }

    proptest! {
        #[test]
        fn any_levels_have_a_total_order(
            texts in proptest::collection::vec("([0-9]{1,3}( (B|KiB|MiB))?|[a-cA-C]{1,2}|inf|nan|)", 0..12),
            reversed: bool,
        ) {
            let levels: Vec<_> = texts
                .iter()
                .map(|text| (!text.is_empty()).then(|| Level::from(text.as_str())))
                .collect();
            let missing = levels.iter().filter(|level| level.is_none()).count();
            let sorted = sorted(levels, reversed);
            let known = sorted.len() - missing;
            prop_assert!(sorted[known..].iter().all(Option::is_none));
            for pair in sorted[..known].windows(2) {
                let [Some(a), Some(b)] = pair else { panic!("a missing level is not last") };
                let order = compare_levels(a, b);
                prop_assert_ne!(order, if reversed { Ordering::Less } else { Ordering::Greater });
            }
        }
    }
}
