//! Slots of headlines: which number of a run a sentence shows.

use serde::Deserialize;

use crate::claim::Bounds;
use crate::experiment::Experiment;
use crate::point::{Filter, Level, OneOrMany, Point};
use crate::subject::Subject;
use crate::suite::Suite;

/// A slot: a number of a run, and how it is shown.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Slot {
    /// Experiment; `None` for the headline's.
    pub experiment: Option<String>,
    /// Metric; `None` for the experiment's.
    pub metric: Option<String>,
    /// The number.
    pub kind: SlotKind,
}

/// Number of a slot. Each filter names one point: factors that it does not name are at the
/// experiment's baseline.
#[derive(Debug, Clone, PartialEq)]
pub enum SlotKind {
    /// Median over rounds with its interval: `131 ns ±1.7%`.
    Value(Filter),
    /// Ratio within rounds, which must be resolved above 1: `11.0`.
    Ratio {
        /// Numerator.
        of: Filter,
        /// Denominator.
        to: Filter,
    },
    /// Ratio within rounds as a percentage with its interval, on any side of 1: `77% (74% to 80%)`.
    Share {
        /// Numerator.
        of: Filter,
        /// Denominator.
        to: Filter,
    },
    /// Number of rounds, if every sample of the point is within bounds, void ones included: `20
    /// rounds`.
    Every {
        /// The point.
        of: Filter,
        /// Bounds in the unit of the metric.
        bounds: Bounds,
    },
    /// Number of samples of the point that are not within bounds, void ones included, if any: `3 of 20
    /// samples`.
    Outside {
        /// The point.
        of: Filter,
        /// Bounds in the unit of the metric.
        bounds: Bounds,
    },
}

/// A slot as parsed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    experiment: Option<String>,
    metric: Option<String>,
    value: Option<Filter>,
    ratio_of: Option<Filter>,
    share_of: Option<Filter>,
    to: Option<Filter>,
    every: Option<Filter>,
    outside: Option<Filter>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl TryFrom<Table> for Slot {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let Table { value, ratio_of, share_of, to, every, outside, at_least, at_most, .. } = table;
        let bounds = Bounds { at_least, at_most };
        let bounds = (at_least.is_some() || at_most.is_some()).then_some(bounds);
        let kind = match (value, ratio_of, share_of, every, outside, to, bounds) {
            (Some(point), None, None, None, None, None, None) => SlotKind::Value(point),
            (None, Some(of), None, None, None, Some(to), None) => SlotKind::Ratio { of, to },
            (None, None, Some(of), None, None, Some(to), None) => SlotKind::Share { of, to },
            (None, None, None, Some(of), None, None, Some(bounds)) => {
                SlotKind::Every { of, bounds }
            }
            (None, None, None, None, Some(of), None, Some(bounds)) => {
                SlotKind::Outside { of, bounds }
            }
            _ => {
                return Err("a slot is one of { value }, { ratio_of, to }, { share_of, to } and \
                            { every or outside, at_least or at_most }"
                    .into());
            }
        };
        Ok(Self { experiment: table.experiment, metric: table.metric, kind })
    }
}

impl Slot {
    /// Names the metric and spells the levels canonically.
    pub(super) fn resolve(
        &mut self,
        experiment: &str,
        suites: &[&Suite],
        experiments: &[Experiment],
    ) -> Result<(), String> {
        let subject = Subject::find(suites, experiments, experiment)?;
        self.metric = Some(subject.metric(self.metric.as_deref())?.name.into());
        let one = |key: &str, filter: &mut Filter| {
            *filter = subject.filter(key, filter)?;
            let several = filter.0.iter().find(|(_, levels)| levels.levels().len() != 1);
            if let Some((factor, _)) = several {
                return Err(format!("{key}: several levels of '{factor}'; name one"));
            }
            let mut profiles = experiments.iter().filter(|one| one.id() == experiment);
            match profiles.any(|one| one.points.contains(&point(filter, &one.baseline))) {
                true => Ok(()),
                false => Err(format!("{key}: '{experiment}' measures no such point; add it there")),
            }
        };
        match &mut self.kind {
            SlotKind::Value(filter) => one("value", filter),
            SlotKind::Ratio { of, to } => one("ratio_of", of).and_then(|()| one("to", to)),
            SlotKind::Share { of, to } => one("share_of", of).and_then(|()| one("to", to)),
            SlotKind::Every { of, .. } => one("every", of),
            SlotKind::Outside { of, .. } => one("outside", of),
        }
    }
}

/// Returns the point with the levels of a filter, the others at the baseline.
pub(super) fn point(filter: &Filter, baseline: &Point) -> Point {
    let levels = filter.0.iter().filter_map(|(factor, levels)| Some((factor, first(levels)?)));
    levels.fold(baseline.clone(), |point, (factor, level)| point.with(factor, level.clone()))
}

fn first(levels: &OneOrMany) -> Option<&Level> {
    levels.levels().first()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_form() {
        let read = |text: &str| toml::from_str::<Slot>(text).map_err(|e| e.to_string());
        for text in [
            "value = { trip = \"getppid\" }",
            "ratio_of = { threads = 1 }\nto = { threads = 2 }\nmetric = \"rate\"",
            "share_of = { threads = 1 }\nto = { threads = 2 }",
            "every = { threads = 1 }\nat_least = 1",
            "outside = { threads = 1 }\nat_most = 1",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in [
            "metric = \"rate\"",
            "value = { threads = 1 }\nat_least = 1",
            "value = { threads = 1 }\nto = { threads = 2 }",
            "ratio_of = { threads = 1 }",
            "every = { threads = 1 }",
            "outside = { threads = 1 }",
        ] {
            assert!(read(text).is_err_and(|why| why.contains("a slot is one of")), "{text}");
        }
        assert!(read("of = 3").is_err_and(|why| why.contains("unknown field `of`")));
    }
}
