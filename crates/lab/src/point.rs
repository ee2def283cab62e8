//! A point: one level for every factor; and a filter over points.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value that a factor takes, in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(String);

impl Level {
    /// The level as it is spelled.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The level as a whole number, where it is one.
    pub fn count(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The level as a number to plot or sort by: a count, a number of bytes, or nothing.
    pub fn number(&self) -> Option<f64> {
        let number = self.0.parse().ok().filter(|number: &f64| number.is_finite());
        number.or_else(|| crate::quantity::bytes(&self.0).ok().map(|n| n as f64))
    }
}

impl From<String> for Level {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Level {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<i64>() {
            Ok(number) if number.to_string() == self.0 => serializer.serialize_i64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl de::Visitor<'_> for Scalar {
            type Value = Level;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a level: a text, a number or true/false")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Level, E> {
                Ok(Level(text.into()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Level, E> {
                Ok(Level(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Level, E> {
                Ok(Level(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Level, E> {
                Ok(Level(number.to_string()))
            }
            fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Level, E> {
                Ok(Level(truth.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// One level for every factor. A clone shares them: a run holds few points and many samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub Arc<BTreeMap<String, Level>>);

impl Point {
    /// The level of a factor.
    pub fn get(&self, factor: &str) -> Option<&Level> {
        self.0.get(factor)
    }

    /// The spelling of a factor's level; empty where the point has no such factor.
    pub fn text(&self, factor: &str) -> &str {
        self.get(factor).map_or("", Level::as_str)
    }

    /// The same point with one level changed.
    #[must_use]
    pub fn with(&self, factor: &str, level: impl Into<Level>) -> Self {
        let mut point = self.clone();
        Arc::make_mut(&mut point.0).insert(factor.into(), level.into());
        point
    }

    /// The point without some factors: what two points share when only those differ.
    #[must_use]
    pub fn without<'a>(&self, factors: impl IntoIterator<Item = &'a str>) -> Self {
        let mut point = self.clone();
        for factor in factors {
            Arc::make_mut(&mut point.0).remove(factor);
        }
        point
    }
}

impl Point {
    /// In how many factors it differs from another.
    pub fn differing(&self, other: &Self) -> usize {
        self.without_levels(other).0.len()
    }

    /// The point without the levels that it shares with another.
    #[must_use]
    pub fn without_levels(&self, other: &Self) -> Self {
        let own = self.0.iter().filter(|(name, level)| other.get(name) != Some(level));
        own.map(|(name, level)| (name.clone(), level.clone())).collect()
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

/// One level or several: `"heap"`, `["heap", "shared"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// A single level.
    One(Level),
    /// Any of these.
    Many(Vec<Level>),
}

impl OneOrMany {
    /// The levels as a slice.
    pub fn levels(&self) -> &[Level] {
        match self {
            Self::One(level) => std::slice::from_ref(level),
            Self::Many(levels) => levels,
        }
    }
}

/// Which points are meant: for each factor named, one of its levels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, OneOrMany>);

impl Filter {
    /// Whether the point has one of the asked levels for every factor named.
    pub fn matches(&self, point: &Point) -> bool {
        self.0.iter().all(|(factor, levels)| {
            point.get(factor).is_some_and(|level| levels.levels().contains(level))
        })
    }

    /// Adds `FACTOR=LEVEL` (or `FACTOR=LEVEL,LEVEL`) as written on the command line.
    ///
    /// # Errors
    /// One line when the text has no `=`, or names a factor that is named already.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (factor, levels) = text
            .split_once('=')
            .ok_or_else(|| format!("'{text}' is not FACTOR=LEVEL, as 'length=64 KiB'"))?;
        let levels = levels.split(',').map(|level| Level::from(level.trim())).collect();
        let factor = factor.trim();
        match self.0.insert(factor.into(), OneOrMany::Many(levels)) {
            None => Ok(()),
            Some(_) => Err(format!(
                "factor '{factor}' is named twice; name its levels together, as '{factor}=A,B'"
            )),
        }
    }

    /// The same filter with every level in its one spelling.
    ///
    /// # Errors
    /// One line that names the factor or level that is not known.
    pub fn canonical(&self, factors: &[crate::factor::Factor]) -> Result<Self, String> {
        let mut spelled = BTreeMap::new();
        for (name, levels) in &self.0 {
            let factor = crate::factor::find(factors, name)?;
            let levels: Result<Vec<_>, _> =
                levels.levels().iter().map(|level| factor.levels(level.as_str())).collect();
            spelled.insert(name.clone(), OneOrMany::Many(levels?.concat()));
        }
        Ok(Self(spelled))
    }
}
