//! Sections: the points of an experiment that share a table, and the factors that vary in it.

use std::collections::{BTreeMap, BTreeSet};

use lab::experiment::Experiment;
use lab::point::{Filter, Level, Point};

/// Number of tables from which a section is a list instead.
const MAX_TABLES: usize = 8;

/// Factor that varies, with its levels: numbers by size, then names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) factor: String,
    pub(crate) levels: Vec<Level>,
}

/// Points of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// Factors that vary.
    pub(crate) axes: Vec<Axis>,
    /// Levels that all points share.
    pub(crate) fixed: Point,
    /// Points in the order of the declaration.
    pub(crate) points: Vec<Point>,
    /// Default levels that the experiment does not name; captions omit them.
    defaults: Point,
}

/// Returns the declared and the measured points of an experiment that match a filter.
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

/// Returns one section per sweep, and one for the points outside all sweeps.
pub(crate) fn sections(points: Vec<&Point>, experiment: Option<&Experiment>) -> Vec<Section> {
    let defaults = experiment.map(|experiment| experiment.defaults.clone()).unwrap_or_default();
    // Several rows of a point, e.g. one per proximity of its cores, follow each other.
    let mut points = points;
    points.dedup();
    let mut shown: BTreeSet<&Point> = BTreeSet::new();
    let mut sections = Vec::new();
    for (sweep, baseline) in
        experiment.into_iter().flat_map(|e| e.sweeps.iter().map(move |sweep| (sweep, &e.baseline)))
    {
        let outside = |point: &Point| point.without(sweep.iter().map(String::as_str));
        let fixed = outside(baseline);
        let swept: Vec<&Point> = points.iter().copied().filter(|p| outside(p) == fixed).collect();
        if swept.iter().any(|point| !shown.contains(point)) {
            shown.extend(&swept);
            sections.push(Section::new(&swept, sweep, &defaults));
        }
    }
    let others: Vec<&Point> = points.into_iter().filter(|p| !shown.contains(p)).collect();
    if !others.is_empty() {
        sections.push(Section::new(&others, &[], &defaults));
    }
    sections
}

/// Returns one section of all points, with the factors in the order of the sweeps.
pub(crate) fn whole(points: &[&Point], experiment: Option<&Experiment>) -> Section {
    let defaults = experiment.map(|experiment| experiment.defaults.clone()).unwrap_or_default();
    let mut factors: Vec<String> = Vec::new();
    for factor in experiment.into_iter().flat_map(|experiment| experiment.sweeps.iter().flatten()) {
        if !factors.contains(factor) {
            factors.push(factor.clone());
        }
    }
    Section::new(points, &factors, &defaults)
}

impl Section {
    /// Returns the section of some points; the factors in `first` precede the others.
    fn new(points: &[&Point], first: &[String], defaults: &Point) -> Self {
        let mut factors: Vec<&str> = first.iter().map(String::as_str).collect();
        for name in points.iter().flat_map(|point| point.factors()) {
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
                _ => axes.push(Axis { factor: factor.to_owned(), levels }),
            }
        }
        let points = points.iter().copied().cloned().collect();
        Self { axes, fixed, points, defaults: defaults.clone() }
    }

    /// Splits the section by the factors with the fewest levels until at most two factors vary; `None`
    /// if there would be too many sections.
    pub(crate) fn split(&self) -> Option<Vec<Section>> {
        if self.axes.len() <= 2 {
            return Some(vec![self.clone()]);
        }
        let split = self.axes.iter().min_by_key(|axis| axis.levels.len())?;
        let order: Vec<String> = self.axes.iter().map(|axis| axis.factor.clone()).collect();
        let mut sections = Vec::new();
        for level in &split.levels {
            let of_level = |point: &&Point| point.get(&split.factor) == Some(level);
            let points: Vec<&Point> = self.points.iter().filter(of_level).collect();
            sections.extend(Section::new(&points, &order, &self.defaults).split()?);
        }
        (sections.len() <= MAX_TABLES).then_some(sections)
    }

    /// Returns the points sorted by the levels of the first axis, then of the next.
    pub(crate) fn in_order(&self) -> Vec<Point> {
        let mut points = self.points.clone();
        let indices = |axis: &'_ Axis| -> BTreeMap<Level, usize> {
            axis.levels.iter().enumerate().map(|(index, level)| (level.clone(), index)).collect()
        };
        let indices: Vec<_> = self.axes.iter().map(|axis| (&axis.factor, indices(axis))).collect();
        points.sort_by_cached_key(|point| {
            let index = |(factor, indices): &(&String, BTreeMap<Level, usize>)| {
                point.get(factor).and_then(|level| indices.get(level)).copied()
            };
            indices.iter().map(index).collect::<Vec<_>>()
        });
        points
    }

    /// Returns the fixed levels that `outer` lacks, e.g. `write, heap, 0 threads`.
    pub(crate) fn caption(&self, outer: &Point) -> String {
        let named = self.fixed.without_levels(&self.defaults);
        let levels = named.levels().filter(|(factor, _)| outer.get(factor).is_none());
        levels.map(|(factor, level)| phrase(factor, level)).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the levels of a factor: numbers by size, then names in the order of the declaration.
fn levels(points: &[&Point], factor: &str) -> Vec<Level> {
    let mut seen = BTreeSet::new();
    let all = points.iter().filter_map(|point| point.get(factor));
    let mut levels: Vec<Level> = all.filter(|level| seen.insert(*level)).cloned().collect();
    sort_levels(&mut levels);
    levels
}

/// Sorts numbers by size before names; names keep their order.
pub(crate) fn sort_levels(levels: &mut [Level]) {
    let size = |level: &Level| level.number().unwrap_or(f64::INFINITY);
    levels.sort_by(|a, b| size(a).total_cmp(&size(b)));
}

/// Formats a level, with the factor's name unless the level is clear without it.
pub(super) fn phrase(factor: &str, level: &Level) -> String {
    let text = level.as_str();
    let is_clear = !matches!(text, "none" | "true" | "false" | "yes" | "no" | "on" | "off" | "all");
    match (level.count(), level.number()) {
        (Some(1), _) => format!("1 {}", factor.strip_suffix('s').unwrap_or(factor)),
        (Some(count), _) if factor.ends_with('s') => format!("{count} {factor}"),
        (None, None) if is_clear => text.into(),
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
        sort_levels(&mut levels);
        let texts: Vec<_> = levels.iter().map(Level::as_str).collect();
        assert_eq!(texts, ["16 B", "4 KiB", "1 MiB", "mix", "any"]);
    }

    #[test]
    fn an_unclear_level_is_shown_with_its_factor() {
        assert_eq!(phrase("threads", &"0".into()), "0 threads");
        assert_eq!(phrase("threads", &"1".into()), "1 thread");
        assert_eq!(phrase("offset", &"16".into()), "offset 16");
        assert_eq!(phrase("length", &"64 KiB".into()), "length 64 KiB");
        assert_eq!(phrase("memory", &"heap".into()), "heap");
        assert_eq!(phrase("fault", &"none".into()), "fault none");
    }
}
