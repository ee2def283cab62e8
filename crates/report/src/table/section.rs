//! Sections: which points of an experiment stand in one table, and what varies in it.

use std::collections::{BTreeMap, BTreeSet};

use lab::experiment::Experiment;
use lab::point::{Filter, Level, Point};

/// More tables than these in one section are a list instead.
const MOST_TABLES: usize = 8;

/// A factor that varies, with its levels in the order in which people read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) factor: String,
    pub(crate) levels: Vec<Level>,
}

impl Axis {
    /// Whether its levels are kinds of a thing, of which one may be best, and no quantities.
    pub(crate) fn is_choice(&self) -> bool {
        self.levels.iter().all(|level| level.number().is_none())
    }
}

/// What one table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// The factors that vary.
    pub(crate) axes: Vec<Axis>,
    /// What is the same in all points.
    pub(crate) fixed: Point,
    /// The points, in the order of the declaration.
    pub(crate) points: Vec<Point>,
    /// Defaults that the experiment does not name: no caption does either.
    defaults: Point,
}

/// All points that an experiment declares and those that were measured, as far as asked for.
pub(crate) fn points<'a>(
    experiment: Option<&'a Experiment>,
    measured: impl Iterator<Item = &'a Point>,
    filter: &Filter,
) -> Vec<&'a Point> {
    let declared = experiment.map_or(&[][..], |experiment| &experiment.points);
    let mut seen = BTreeSet::new();
    let mut points: Vec<&Point> = declared.iter().chain(measured).collect();
    points.retain(|point| filter.matches(point) && seen.insert(*point));
    points
}

/// A section for each sweep; points outside all sweeps have one of their own.
pub(crate) fn sections(points: Vec<&Point>, experiment: Option<&Experiment>) -> Vec<Section> {
    let defaults = experiment.map(|experiment| experiment.defaults.clone()).unwrap_or_default();
    let mut shown: BTreeSet<&Point> = BTreeSet::new();
    let mut sections = Vec::new();
    for (sweep, baseline) in
        experiment.into_iter().flat_map(|e| e.sweeps.iter().map(move |sweep| (sweep, &e.baseline)))
    {
        let rest = |point: &Point| point.without(sweep.iter().map(String::as_str));
        let around = rest(baseline);
        let own: Vec<&Point> = points.iter().copied().filter(|p| rest(p) == around).collect();
        if own.iter().any(|point| !shown.contains(point)) {
            shown.extend(&own);
            sections.push(Section::of(&own, sweep, &defaults));
        }
    }
    let others: Vec<&Point> = points.into_iter().filter(|p| !shown.contains(p)).collect();
    if !others.is_empty() {
        sections.push(Section::of(&others, &[], &defaults));
    }
    sections
}

impl Section {
    /// The section of some points; the factors of `first` stand before others.
    fn of(points: &[&Point], first: &[String], defaults: &Point) -> Self {
        let mut factors: Vec<&String> = first.iter().collect();
        for name in points.iter().flat_map(|point| point.0.keys()) {
            if !factors.contains(&name) {
                factors.push(name);
            }
        }
        let mut axes = Vec::new();
        let mut fixed = Point::default();
        for factor in factors {
            let levels = levels(points, factor);
            match levels.as_slice() {
                [] => {}
                [level] if points.iter().all(|point| point.get(factor).is_some()) => {
                    fixed = fixed.with(factor, level.clone());
                }
                _ => axes.push(Axis { factor: factor.clone(), levels }),
            }
        }
        let points = points.iter().copied().cloned().collect();
        Self { axes, fixed, points, defaults: defaults.clone() }
    }

    /// Sections in which at most two factors vary, by the levels of those with the fewest; nothing
    /// where they would be too many.
    pub(crate) fn split(&self) -> Option<Vec<Section>> {
        if self.axes.len() <= 2 {
            return Some(vec![self.clone()]);
        }
        let apart = self.axes.iter().min_by_key(|axis| axis.levels.len())?;
        let order: Vec<String> = self.axes.iter().map(|axis| axis.factor.clone()).collect();
        let mut sections = Vec::new();
        for level in &apart.levels {
            let of_level = |point: &&Point| point.get(&apart.factor) == Some(level);
            let points: Vec<&Point> = self.points.iter().filter(of_level).collect();
            sections.extend(Section::of(&points, &order, &self.defaults).split()?);
        }
        (sections.len() <= MOST_TABLES).then_some(sections)
    }

    /// The points by the levels of the first axis, then of the next.
    pub(crate) fn in_order(&self) -> Vec<Point> {
        let mut points = self.points.clone();
        let places = |axis: &'_ Axis| -> BTreeMap<Level, usize> {
            axis.levels.iter().enumerate().map(|(place, level)| (level.clone(), place)).collect()
        };
        let places: Vec<_> = self.axes.iter().map(|axis| (&axis.factor, places(axis))).collect();
        points.sort_by_cached_key(|point| {
            let place = |(factor, places): &(&String, BTreeMap<Level, usize>)| {
                point.get(factor).and_then(|level| places.get(level)).copied()
            };
            places.iter().map(place).collect::<Vec<_>>()
        });
        points
    }

    /// What is fixed here and not yet in `outer`: `write, heap, 0 threads`.
    pub(crate) fn caption(&self, outer: &Point) -> String {
        let named = self.fixed.without_levels(&self.defaults);
        let own = named.0.iter().filter(|(factor, _)| outer.get(factor).is_none());
        own.map(|(factor, level)| phrase(factor, level)).collect::<Vec<_>>().join(", ")
    }
}

/// The levels that a factor takes: numbers by size, then names in the order of the declaration.
fn levels(points: &[&Point], factor: &str) -> Vec<Level> {
    let mut seen = BTreeSet::new();
    let all = points.iter().filter_map(|point| point.get(factor));
    let mut levels: Vec<Level> = all.filter(|level| seen.insert(*level)).cloned().collect();
    sort(&mut levels);
    levels
}

/// Sorts numbers by size before names; names keep their order.
pub(crate) fn sort(levels: &mut [Level]) {
    let place = |level: &Level| level.number().unwrap_or(f64::INFINITY);
    levels.sort_by(|a, b| place(a).total_cmp(&place(b)));
}

/// A level with as much of its factor as it needs to be understood.
pub(crate) fn phrase(factor: &str, level: &Level) -> String {
    let text = level.as_str();
    let speaks = !matches!(text, "none" | "true" | "false" | "yes" | "no" | "on" | "off" | "all");
    match (level.count(), level.number()) {
        (Some(1), _) => format!("1 {}", factor.strip_suffix('s').unwrap_or(factor)),
        (Some(count), _) if factor.ends_with('s') => format!("{count} {factor}"),
        (None, None) if speaks => text.into(),
        _ => format!("{factor} {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_before_names() {
        let mut levels: Vec<Level> =
            ["mix", "1 MiB", "16 B", "4 KiB", "any"].map(Level::from).to_vec();
        sort(&mut levels);
        let texts: Vec<_> = levels.iter().map(Level::as_str).collect();
        assert_eq!(texts, ["16 B", "4 KiB", "1 MiB", "mix", "any"]);
    }

    #[test]
    fn a_level_says_what_it_is() {
        assert_eq!(phrase("threads", &"0".into()), "0 threads");
        assert_eq!(phrase("threads", &"1".into()), "1 thread");
        assert_eq!(phrase("offset", &"16".into()), "offset 16");
        assert_eq!(phrase("length", &"64 KiB".into()), "length 64 KiB");
        assert_eq!(phrase("memory", &"heap".into()), "heap");
        assert_eq!(phrase("fault", &"none".into()), "fault none");
    }
}
