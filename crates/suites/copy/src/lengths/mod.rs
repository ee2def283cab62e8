//! Lengths of copies: one, or drawn at random.
//!
//! A fixed length flatters a function whose branches it trains, so a level of `length` may also be
//! a distribution: `uniform 1..64 B`, `log-uniform 1 B..4 KiB`, or `mix NAME` from `lengths.toml`.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod mixes;

use std::fmt;

use lab::factor::{LevelType, Levels};
use lab::quantity;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub use mixes::{Band, Mix, mixes};

/// The longest copy: the seed's region.
pub const LONGEST: u64 = 256 << 20;

/// A level of the factor `length`.
#[derive(Debug, Clone, PartialEq)]
pub enum Lengths {
    /// All copies are this long, in bytes.
    Fixed(u64),
    /// Every length from the first to the second is as likely.
    Uniform(u64, u64),
    /// Every doubling from the first to the second is as likely.
    LogUniform(u64, u64),
    /// As a program draws them.
    Mix(&'static Mix),
}

impl LevelType for Lengths {
    const LEVELS: Levels = Levels::Checked(Self::spelled);

    fn from_level(level: &str) -> Option<Self> {
        Self::parse(level).ok()
    }
}

impl Lengths {
    /// Reads a level.
    ///
    /// # Errors
    /// One line that says what would have been right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let lengths = if let Some(range) = text.strip_prefix("uniform ") {
            range_of(range).map(|(low, high)| Self::Uniform(low, high))
        } else if let Some(range) = text.strip_prefix("log-uniform ") {
            range_of(range).map(|(low, high)| Self::LogUniform(low, high))
        } else if let Some(name) = text.strip_prefix("mix ") {
            mixes::find(name.trim()).map(Self::Mix)
        } else {
            quantity::bytes(text).map(Self::Fixed).map_err(|_| {
                format!(
                    "'{text}' is no length: write '64 KiB', 'uniform 1..64 B', 'log-uniform 1 B..4 KiB' or 'mix fleet'"
                )
            })
        }?;
        match (lengths.shortest(), lengths.longest()) {
            (1.., ..=LONGEST) => Ok(lengths),
            _ => Err(format!("'{text}' is not within 1 B to {}", quantity::format_bytes(LONGEST))),
        }
    }

    /// The one spelling of a level.
    ///
    /// # Errors
    /// As [`Lengths::parse`].
    pub fn spelled(text: &str) -> Result<String, String> {
        Self::parse(text).map(|lengths| lengths.to_string())
    }

    /// The longest copy that may be drawn, bytes.
    pub fn longest(&self) -> u64 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform(_, high) | Self::LogUniform(_, high) => *high,
            Self::Mix(mix) => mix.bands.iter().map(|band| band.to).max().unwrap_or(0),
        }
    }

    fn shortest(&self) -> u64 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform(low, _) | Self::LogUniform(low, _) => *low,
            Self::Mix(mix) => mix.bands.iter().map(|band| band.from).min().unwrap_or(0),
        }
    }

    /// Whether all copies are equally long.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// So many lengths from a seed, in bytes.
    pub fn draw(&self, count: usize, seed: u64) -> Vec<u32> {
        let mut chance = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| self.one(&mut chance) as u32).collect()
    }

    fn one(&self, chance: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform(low, high) => chance.random_range(*low..=*high),
            Self::LogUniform(low, high) => {
                // Up to the next whole number, so that the last length is as likely as its share.
                let (from, to) = ((*low as f64).ln(), (high.saturating_add(1) as f64).ln());
                let drawn = (from + (to - from) * chance.random::<f64>()).exp() as u64;
                drawn.clamp(*low, *high)
            }
            Self::Mix(mix) => mix.one(chance),
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, low, high) = match self {
            Self::Fixed(length) => return f.write_str(&quantity::format_bytes(*length)),
            Self::Mix(mix) => return write!(f, "mix {}", mix.name),
            Self::Uniform(low, high) => ("uniform", low, high),
            Self::LogUniform(low, high) => ("log-uniform", low, high),
        };
        let (low, high) = (quantity::format_bytes(*low), quantity::format_bytes(*high));
        let shared = low.split_once(' ').zip(high.split_once(' '));
        match shared.filter(|((_, low_unit), (_, high_unit))| low_unit == high_unit) {
            Some(((number, _), _)) => write!(f, "{word} {number}..{high}"),
            None => write!(f, "{word} {low}..{high}"),
        }
    }
}

/// `1..64 B` or `1 B..4 KiB`: a low end without a unit has that of the high end.
fn range_of(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("'{text}' is no range of lengths: write '1..64 B' or '1 B..4 KiB'");
    let (low, high) = text.split_once("..").ok_or_else(wrong)?;
    let (low, high) = (low.trim(), high.trim());
    let unit = high.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim();
    let low = if low.ends_with(|c: char| c.is_ascii_digit()) {
        format!("{low} {unit}")
    } else {
        low.into()
    };
    let bytes = |text: &str| quantity::bytes(text).map_err(|_| wrong());
    match (bytes(&low)?, bytes(high)?) {
        (low, high) if low <= high => Ok((low, high)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn levels_have_one_spelling() {
        let spelled = |text| Lengths::spelled(text).unwrap();
        assert_eq!(spelled("65536"), "64 KiB");
        assert_eq!(spelled("uniform 1..64 B"), "uniform 1..64 B");
        assert_eq!(spelled("uniform 1 B .. 64"), "uniform 1..64 B");
        assert_eq!(spelled("log-uniform 1 B..4 KiB"), "log-uniform 1 B..4 KiB");
        assert_eq!(spelled("uniform 1..4 KiB"), "uniform 1..4 KiB");
        assert_eq!(spelled("mix fleet"), "mix fleet");
    }

    #[test]
    fn what_is_no_length_is_refused_in_one_line() {
        for text in [
            "",
            "0 B",
            "512 MiB",
            "uniform 64..1 B",
            "uniform 1",
            "uniform ..",
            "mix none",
            "uniform 0..4 B",
        ] {
            let why = Lengths::parse(text).unwrap_err();
            assert!(!why.contains('\n') && why.contains('\''), "{why}");
        }
    }

    #[test]
    fn log_uniform_draws_each_doubling_as_often() {
        let drawn = Lengths::LogUniform(1, 4095).draw(120_000, 3);
        for doubling in 0..12 {
            let count = drawn.iter().filter(|length| length.ilog2() == doubling).count();
            assert!((9_000..11_000).contains(&count), "{doubling}: {count}");
        }
    }

    #[test]
    fn a_seed_draws_the_same_lengths() {
        let lengths = Lengths::Uniform(1, 64);
        assert_eq!(lengths.draw(100, 1), lengths.draw(100, 1));
        assert_ne!(lengths.draw(100, 1), lengths.draw(100, 2));
    }

    proptest! {
        #[test]
        fn drawn_lengths_lie_in_their_range(low in 1u64..5000, more in 0u64..5000, seed: u64, log: bool) {
            let high = low + more;
            let lengths = if log { Lengths::LogUniform(low, high) } else { Lengths::Uniform(low, high) };
            let drawn = lengths.draw(200, seed);
            prop_assert!(drawn.iter().all(|length| (low..=high).contains(&u64::from(*length))));
            prop_assert_eq!(Lengths::parse(&lengths.to_string()), Ok(lengths));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            if let Ok(spelled) = Lengths::spelled(&text) {
                prop_assert_eq!(Lengths::spelled(&spelled), Ok(spelled.clone()));
            }
        }
    }
}
