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
}

/// Which levels a factor may take, and their one spelling.
#[derive(Debug, Clone, Copy)]
pub enum Levels {
    /// A number of bytes: `64 KiB`.
    Bytes,
    /// A whole number, 0 or more.
    Count,
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
            Levels::Bytes => {
                quantity::bytes(text).map(quantity::format_bytes).map_err(|e| e.to_string())
            }
            Levels::Count => text
                .parse::<u64>()
                .map(|n| n.to_string())
                .map_err(|_| format!("'{text}' is not a whole number")),
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

    const FRUIT: Factor = Factor { name: "fruit", about: "", levels: Levels::Listed(meant) };

    fn meant(word: &str) -> Vec<String> {
        let all = ["apple", "pear"].into_iter().filter(|one| word == "all" || word == *one);
        all.map(String::from).collect()
    }

    #[test]
    fn a_word_means_one_of_a_list_or_a_group() {
        assert_eq!(FRUIT.level("pear"), Ok("pear".into()));
        assert!(FRUIT.level("all").unwrap_err().contains("2 levels where one is wanted"));
        assert!(FRUIT.levels("fig").unwrap_err().contains("the list has no 'fig'"));
        let mut filter = Filter::default();
        filter.add("fruit=all").unwrap();
        let spelled = filter.spelled(&[FRUIT]).unwrap();
        assert_eq!(spelled.0["fruit"].levels(), ["apple".into(), "pear".into()]);
    }
}
