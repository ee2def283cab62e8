//! Factors and their levels.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::quantity;

/// A factor of a method.
#[derive(Debug, Clone, Copy)]
pub struct Factor {
    /// Name in TOML and on the command line: `length`.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Unit of levels that are plain numbers, e.g. `Gbps`; empty if they have none, or state it.
    pub unit: &'static str,
    /// Permitted levels.
    pub levels: Levels,
    /// Level of points that do not name the factor.
    pub default: &'static str,
}

/// A type whose values are the levels of a factor.
pub trait LevelType: Sized {
    /// The levels and their canonical spelling.
    const LEVELS: Levels;

    /// Parses a level in canonical spelling; `None` if it is not one of this type.
    fn from_level(level: &str) -> Option<Self>;
}

pub use lab_derive::LevelType;

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        /// A count, or a number of bytes if the factor's levels are [`Levels::Bytes`].
        impl LevelType for $number {
            const LEVELS: Levels = Levels::Count(0, <$number>::MAX as u64);

            fn from_level(level: &str) -> Option<Self> {
                let count = level.parse().ok();
                count.or_else(|| Self::try_from(quantity::bytes(level).ok()?).ok())
            }
        }
    )*};
}
whole_numbers!(u8, u16, u32, u64, usize);

/// Any text, unless the factor declares its levels.
impl LevelType for String {
    const LEVELS: Levels = Levels::Checked(|text| Ok(text.to_owned()));

    fn from_level(level: &str) -> Option<Self> {
        Some(level.to_owned())
    }
}

/// Permitted levels of a factor, and their canonical spelling.
#[derive(Debug, Clone, Copy)]
pub enum Levels {
    /// A number of bytes between two inclusive bounds: `64 KiB`.
    Bytes(u64, u64),
    /// A whole number between two inclusive bounds.
    Count(u64, u64),
    /// One of these names.
    Names(&'static [&'static str]),
    /// Any text that this function accepts; it returns the canonical spelling, or an error.
    Checked(fn(&str) -> Result<String, String>),
    /// Names of a long list. The function returns the names that a text refers to, one or those of
    /// a group; none if it is unknown.
    Listed(fn(&str) -> Vec<String>),
}

impl Factor {
    /// Returns the description with the unit, e.g. `highest rate, in Gbps`.
    pub fn described(&self) -> String {
        match self.unit {
            "" => self.about.into(),
            unit => format!("{}, in {unit}", self.about),
        }
    }

    /// Returns a level in canonical spelling, so that `65536` and `64 KiB` are the same level.
    ///
    /// # Errors
    /// Returns one line with the permitted levels.
    pub fn level(&self, text: &str) -> Result<Level, String> {
        let canonical = match self.levels {
            Levels::Bytes(min, max) => match quantity::bytes(text) {
                Ok(bytes) if (min..=max).contains(&bytes) => Ok(quantity::format_bytes(bytes)),
                Ok(_) => {
                    let [min, max] = [min, max].map(quantity::format_bytes);
                    Err(format!("'{text}' is not from {min} to {max}"))
                }
                Err(why) => Err(why.to_string()),
            },
            Levels::Count(min, max) => match text.parse::<u64>() {
                Ok(count) if (min..=max).contains(&count) => Ok(count.to_string()),
                _ => Err(format!("'{text}' is not a whole number from {min} to {max}")),
            },
            Levels::Names(names) if names.contains(&text) => Ok(text.to_string()),
            Levels::Names(names) => Err(format!("'{text}' is not one of {}", names.join(", "))),
            Levels::Checked(parse) => parse(text),
            Levels::Listed(names) => match names(text).as_slice() {
                [one] => Ok(one.clone()),
                [] => Err(format!("unknown level '{text}'")),
                several => Err(format!("'{text}' is {} levels; name one", several.len())),
            },
        };
        canonical.map(Level::from).map_err(|why| format!("factor '{}': {why}", self.name))
    }

    /// Returns the levels that a text refers to: one, or all of a group of a list.
    ///
    /// # Errors
    /// See [`Factor::level`].
    pub fn levels(&self, text: &str) -> Result<Vec<Level>, String> {
        match self.levels {
            Levels::Listed(names) if names(text).len() > 1 => {
                Ok(names(text).into_iter().map(Level::from).collect())
            }
            _ => self.level(text).map(|level| vec![level]),
        }
    }
}

/// A level: a value of a factor, in canonical spelling. Clones share the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(Arc<str>);

impl Level {
    /// Returns the level as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the level as a whole number, if it is one.
    pub fn count(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// Returns the level as a number to plot or sort by, if it is a number or a number of bytes.
    pub fn number(&self) -> Option<f64> {
        let number = self.0.parse().ok().filter(|number: &f64| number.is_finite());
        number.or_else(|| quantity::bytes(&self.0).ok().map(|n| n as f64))
    }
}

impl From<String> for Level {
    fn from(text: String) -> Self {
        Self(text.into())
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
            Ok(number) if number.to_string() == *self.0 => serializer.serialize_i64(number),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl JsonSchema for Level {
    fn schema_name() -> Cow<'static, str> {
        "Level".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Level of a factor.", "type": ["string", "integer"] })
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl de::Visitor<'_> for Scalar {
            type Value = Level;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a level: a string, a number or a boolean")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Level, E> {
                Ok(Level(text.into()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Level, E> {
                Ok(Level(number.to_string().into()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Level, E> {
                Ok(Level(number.to_string().into()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Level, E> {
                Ok(Level(number.to_string().into()))
            }
            fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Level, E> {
                Ok(Level(truth.to_string().into()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// Returns the total number of factors of some lists.
pub const fn count(parts: &[&[Factor]]) -> usize {
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// Concatenates lists of factors; `N` is their [`count`].
pub const fn concat<const N: usize>(parts: &[&[Factor]]) -> [Factor; N] {
    let none = Factor { name: "", about: "", unit: "", levels: Levels::Names(&[]), default: "" };
    let mut all = [none; N];
    let (mut next, mut part) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[next] = parts[part][index];
            next += 1;
            index += 1;
        }
        part += 1;
    }
    all
}

/// Finds a factor by name.
///
/// # Errors
/// Returns one line with the known factors.
pub fn find<'a>(factors: &'a [Factor], name: &str) -> Result<&'a Factor, String> {
    factors.iter().find(|factor| factor.name == name).ok_or_else(|| {
        let known: Vec<_> = factors.iter().map(|factor| factor.name).collect();
        format!("unknown factor '{name}'; expected one of {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Filter;

    const FRUIT: Factor =
        Factor { name: "fruit", about: "", unit: "", levels: Levels::Listed(names), default: "" };

    fn names(word: &str) -> Vec<String> {
        let all = ["apple", "pear"].into_iter().filter(|one| word == "all" || word == *one);
        all.map(String::from).collect()
    }

    #[test]
    fn numbers_are_canonical_and_within_bounds() {
        let level = |levels, text| {
            let factor = Factor { name: "it", about: "", unit: "", levels, default: "" };
            factor.level(text).map(|level| level.as_str().to_owned())
        };
        let (count, bytes) = (Levels::Count(1, 100), Levels::Bytes(64, 1 << 20));
        assert_eq!(level(count, "0100").as_deref(), Ok("100"));
        for text in ["0", "101", "99999999999999999999", "-1", "1.0", ""] {
            let why = level(count, text).unwrap_err();
            assert_eq!(why, format!("factor 'it': '{text}' is not a whole number from 1 to 100"));
        }
        assert_eq!(level(bytes, "65536").as_deref(), Ok("64 KiB"));
        for text in ["63 B", "1025 KiB", "8192 TiB"] {
            let why = level(bytes, text).unwrap_err();
            assert_eq!(why, format!("factor 'it': '{text}' is not from 64 B to 1 MiB"));
        }
        assert!(level(bytes, "many").is_err());
    }

    #[test]
    fn a_description_ends_with_the_unit() {
        assert_eq!(Factor { about: "a fruit", ..FRUIT }.described(), "a fruit");
        assert_eq!(Factor { about: "rate", unit: "Gbps", ..FRUIT }.described(), "rate, in Gbps");
    }

    #[test]
    fn a_listed_level_is_a_name_or_a_group() {
        assert_eq!(FRUIT.level("pear"), Ok("pear".into()));
        assert!(FRUIT.level("all").unwrap_err().contains("2 levels; name one"));
        assert!(FRUIT.levels("fig").unwrap_err().contains("unknown level 'fig'"));
        let mut filter = Filter::default();
        filter.add("fruit=all").unwrap();
        let canonical = filter.canonical(&[FRUIT]).unwrap();
        assert_eq!(canonical.0["fruit"].levels(), ["apple".into(), "pear".into()]);
    }
}
