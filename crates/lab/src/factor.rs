//! Factors: what an experiment varies, and which levels a suite knows.

use crate::point::Level;
use crate::quantity;

/// A factor that a suite offers.
#[derive(Debug, Clone, Copy)]
pub struct Factor {
    /// The name in TOML and on the command line: `length`.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Which levels it may take.
    pub levels: Levels,
    /// The level of points that name none; `None` if the method decides itself.
    pub default: Option<&'static str>,
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

/// Which levels a factor may take, and their one spelling.
#[derive(Debug, Clone, Copy)]
pub enum Levels {
    /// A number of bytes from the first to the second: `64 KiB`.
    Bytes(u64, u64),
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// One of these names.
    Names(&'static [&'static str]),
    /// Whatever this reads; it gives the level's one spelling, or what would have been right.
    Checked(fn(&str) -> Result<String, String>),
    /// Names of a list that is too long to be written again: those that a word means, its own or all of a
    /// group; none where the list knows no such word.
    Listed(fn(&str) -> Vec<String>),
}

impl Factor {
    /// The one spelling of a level, so that `65536` and `64 KiB` are the same point.
    ///
    /// # Errors
    /// One line that says what would have been right.
    pub fn level(&self, text: &str) -> Result<Level, String> {
        let spelled = match self.levels {
            Levels::Bytes(least, most) => match quantity::bytes(text) {
                Ok(bytes) if (least..=most).contains(&bytes) => Ok(quantity::format_bytes(bytes)),
                Ok(_) => {
                    let [least, most] = [least, most].map(quantity::format_bytes);
                    Err(format!("'{text}' is not from {least} to {most}"))
                }
                Err(why) => Err(why.to_string()),
            },
            Levels::Count(least, most) => match text.parse::<u64>() {
                Ok(count) if (least..=most).contains(&count) => Ok(count.to_string()),
                _ => Err(format!("'{text}' is not a whole number from {least} to {most}")),
            },
            Levels::Names(names) if names.contains(&text) => Ok(text.to_string()),
            Levels::Names(names) => Err(format!("'{text}' is not one of {}", names.join(", "))),
            Levels::Checked(read) => read(text),
            Levels::Listed(meant) => match meant(text).as_slice() {
                [one] => Ok(one.clone()),
                [] => Err(format!("the list has no '{text}'")),
                several => Err(format!("'{text}' is {} levels where one is wanted", several.len())),
            },
        };
        spelled.map(Level::from).map_err(|why| format!("factor '{}': {why}", self.name))
    }

    /// The levels that a text means: one, or all of a group of a list.
    ///
    /// # Errors
    /// As for [`Factor::level`].
    pub fn levels(&self, text: &str) -> Result<Vec<Level>, String> {
        match self.levels {
            Levels::Listed(meant) if meant(text).len() > 1 => {
                Ok(meant(text).into_iter().map(Level::from).collect())
            }
            _ => self.level(text).map(|level| vec![level]),
        }
    }
}

/// How many factors some lists contain together.
pub const fn count(parts: &[&[Factor]]) -> usize {
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// Some lists of factors as one; `N` is their [`count`].
pub const fn concat<const N: usize>(parts: &[&[Factor]]) -> [Factor; N] {
    let none = Factor { name: "", about: "", levels: Levels::Names(&[]), default: None };
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

/// Finds a factor by its name.
///
/// # Errors
/// One line that names the factors there are.
pub fn find<'a>(factors: &'a [Factor], name: &str) -> Result<&'a Factor, String> {
    factors.iter().find(|factor| factor.name == name).ok_or_else(|| {
        let known: Vec<_> = factors.iter().map(|factor| factor.name).collect();
        format!("unknown factor '{name}'; there are: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Filter;

    const FRUIT: Factor =
        Factor { name: "fruit", about: "", levels: Levels::Listed(meant), default: None };

    fn meant(word: &str) -> Vec<String> {
        let all = ["apple", "pear"].into_iter().filter(|one| word == "all" || word == *one);
        all.map(String::from).collect()
    }

    #[test]
    fn numbers_are_levels_within_their_limits() {
        let level = |levels, text| {
            let factor = Factor { name: "it", about: "", levels, default: None };
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
    fn a_word_means_one_of_a_list_or_a_group() {
        assert_eq!(FRUIT.level("pear"), Ok("pear".into()));
        assert!(FRUIT.level("all").unwrap_err().contains("2 levels where one is wanted"));
        assert!(FRUIT.levels("fig").unwrap_err().contains("the list has no 'fig'"));
        let mut filter = Filter::default();
        filter.add("fruit=all").unwrap();
        let spelled = filter.canonical(&[FRUIT]).unwrap();
        assert_eq!(spelled.0["fruit"].levels(), ["apple".into(), "pear".into()]);
    }
}
