//! Points, which have one level per factor, and filters over points.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::factor::Level;
use crate::factor::{self, Factor};

/// A point: one level per factor. Clones share the levels, because a run has few points and many
/// samples.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Point(pub Arc<BTreeMap<String, Level>>);

impl Point {
    /// Returns the level of a factor.
    pub fn get(&self, factor: &str) -> Option<&Level> {
        self.0.get(factor)
    }

    /// Returns the text of a factor's level; empty if the point has no such factor.
    pub fn text(&self, factor: &str) -> &str {
        self.get(factor).map_or("", Level::as_str)
    }

    /// Returns the point with one level changed.
    #[must_use]
    pub fn with(&self, factor: &str, level: impl Into<Level>) -> Self {
        let mut point = self.clone();
        Arc::make_mut(&mut point.0).insert(factor.into(), level.into());
        point
    }

    /// Returns the point without some factors.
    #[must_use]
    pub fn without<'a>(&self, factors: impl IntoIterator<Item = &'a str>) -> Self {
        let mut point = self.clone();
        for factor in factors {
            Arc::make_mut(&mut point.0).remove(factor);
        }
        point
    }

    /// Returns the number of factors in which it differs from another point.
    pub fn differing(&self, other: &Self) -> usize {
        self.without_levels(other).0.len()
    }

    /// Returns the point without the levels that it shares with another.
    #[must_use]
    pub fn without_levels(&self, other: &Self) -> Self {
        let different = self.0.iter().filter(|(name, level)| other.get(name) != Some(level));
        different.map(|(name, level)| (name.clone(), level.clone())).collect()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(name, level)| format!("{name}={level}")).collect();
        f.pad(&words.join(" "))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Point {
    fn from(pairs: [(&str, &str); N]) -> Self {
        pairs.into_iter().map(|(name, level)| (name.into(), level.into())).collect()
    }
}

impl FromIterator<(String, Level)> for Point {
    fn from_iter<T: IntoIterator<Item = (String, Level)>>(levels: T) -> Self {
        Self(Arc::new(levels.into_iter().collect()))
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
