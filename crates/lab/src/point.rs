//! Points, which have one level per factor, and filters over points.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::{fmt, iter};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use crate::factor::Level;
use crate::factor::{self, Factor};

/// A point: one level per factor. Clones share the levels, because a run has few points and many
/// samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(transparent)]
pub struct Point(
    /// Each factor and its level, by factor. A slice takes a third of the memory of a map.
    #[schemars(with = "BTreeMap<String, Level>")]
    Arc<[(Arc<str>, Level)]>,
);

impl Point {
    /// Returns the level of a factor.
    pub fn get(&self, factor: &str) -> Option<&Level> {
        self.position(factor).ok().map(|at| &self.0[at].1)
    }

    /// Returns the text of a factor's level; empty if the point has no such factor.
    pub fn text(&self, factor: &str) -> &str {
        self.get(factor).map_or("", Level::as_str)
    }

    /// Returns the factors with their levels, by factor.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = (&str, &Level)> {
        self.0.iter().map(|(factor, level)| (&**factor, level))
    }

    /// Returns the factors, sorted.
    pub fn factors(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(factor, _)| &**factor)
    }

    /// Returns whether it has no factor.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the point with one level changed.
    #[must_use]
    pub fn with(&self, factor: &str, level: impl Into<Level>) -> Self {
        let level = level.into();
        match self.position(factor) {
            Ok(at) => {
                let mut levels = Arc::clone(&self.0);
                Arc::make_mut(&mut levels)[at].1 = level;
                Self(levels)
            }
            Err(at) => {
                let (before, after) = self.0.split_at(at);
                let added = iter::once((factor.into(), level));
                Self(before.iter().cloned().chain(added).chain(after.iter().cloned()).collect())
            }
        }
    }

    /// Returns the point without some factors.
    #[must_use]
    pub fn without<'a>(&self, factors: impl IntoIterator<Item = &'a str>) -> Self {
        let without: Vec<&str> = factors.into_iter().collect();
        let kept = self.0.iter().filter(|(factor, _)| !without.contains(&&**factor));
        Self(kept.cloned().collect())
    }

    /// Returns the number of factors in which it differs from another point.
    pub fn differing(&self, other: &Self) -> usize {
        self.0.iter().filter(|(factor, level)| other.get(factor) != Some(level)).count()
    }

    /// Returns the point without the levels that it shares with another.
    #[must_use]
    pub fn without_levels(&self, other: &Self) -> Self {
        let different = self.0.iter().filter(|(factor, level)| other.get(factor) != Some(level));
        Self(different.cloned().collect())
    }

    /// Returns the index of a factor, or the index at which it would be.
    fn position(&self, factor: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(factor))
    }

    /// Creates a point of levels in any order. Of several levels of a factor, the last one counts.
    fn of(mut levels: Vec<(Arc<str>, Level)>) -> Self {
        levels.reverse();
        levels.sort_by(|a, b| a.0.cmp(&b.0));
        levels.dedup_by(|a, b| a.0 == b.0);
        Self(levels.into())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> =
            self.levels().map(|(factor, level)| format!("{factor}={level}")).collect();
        f.pad(&words.join(" "))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Point {
    fn from(pairs: [(&str, &str); N]) -> Self {
        pairs.into_iter().map(|(factor, level)| (factor, level.into())).collect()
    }
}

impl<F: Into<Arc<str>>> FromIterator<(F, Level)> for Point {
    fn from_iter<T: IntoIterator<Item = (F, Level)>>(levels: T) -> Self {
        Self::of(levels.into_iter().map(|(factor, level)| (factor.into(), level)).collect())
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.levels())
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Levels;
        impl<'de> de::Visitor<'de> for Levels {
            type Value = Point;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from factors to levels")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Point, A::Error> {
                iter::from_fn(|| map.next_entry::<String, Level>().transpose()).collect()
            }
        }
        deserializer.deserialize_map(Levels)
    }
}

/// One or several levels: `"heap"`, `["heap", "shared"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// A single level.
    One(Level),
    /// Any of these.
    Many(Vec<Level>),
}

impl OneOrMany {
    /// Returns the levels as a slice.
    pub fn levels(&self) -> &[Level] {
        match self {
            Self::One(level) => std::slice::from_ref(level),
            Self::Many(levels) => levels,
        }
    }
}

/// Filter over points: the levels permitted for each factor named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, OneOrMany>);

impl Filter {
    /// Returns whether a point has a permitted level for every factor named.
    pub fn matches(&self, point: &Point) -> bool {
        self.0.iter().all(|(factor, levels)| {
            point.get(factor).is_some_and(|level| levels.levels().contains(level))
        })
    }

    /// Returns the filter with the factors that another names replaced.
    #[must_use]
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut filter = self.clone();
        filter.0.extend(other.0.clone());
        filter
    }

    /// Returns whether it permits a single level of a factor.
    pub(crate) fn fixes(&self, factor: &str) -> bool {
        self.0.get(factor).is_some_and(|levels| levels.levels().len() == 1)
    }

    /// Adds `FACTOR=LEVEL` or `FACTOR=LEVEL,LEVEL`, as on the command line.
    ///
    /// # Errors
    /// Returns one line if the text has no `=`, or if the filter already names the factor.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (factor, levels) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not FACTOR=LEVEL, e.g. 'length=64 KiB'"))?;
        let levels = levels.split(',').map(|level| Level::from(level.trim())).collect();
        let factor = factor.trim();
        match self.0.insert(factor.into(), OneOrMany::Many(levels)) {
            None => Ok(()),
            Some(_) => Err(format!(
                "factor '{factor}' is named twice; list its levels together, e.g. '{factor}=A,B'"
            )),
        }
    }

    /// Returns the filter with every level in canonical spelling.
    ///
    /// # Errors
    /// Returns one line for an unknown factor or level.
    pub fn canonical(&self, factors: &[Factor]) -> Result<Self, String> {
        let mut canonical = BTreeMap::new();
        for (name, levels) in &self.0 {
            let factor = factor::find(factors, name)?;
            let levels: Result<Vec<_>, _> =
                levels.levels().iter().map(|level| factor.levels(level.as_str())).collect();
            canonical.insert(name.clone(), OneOrMany::Many(levels?.concat()));
        }
        Ok(Self(canonical))
    }
}
