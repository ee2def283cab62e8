//! Lengths of copies: fixed, or drawn at random.
//!
//! A fixed length flatters a function whose branches it trains, so a level of `length` may also be
//! a distribution: `uniform 1..64 B`, `log-uniform 1 B..4 KiB`, or `mix NAME` from `lengths.toml`.

// Levels may be any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;
use std::sync::LazyLock;

use lab::factor::{LevelType, Levels};
use lab::quantity;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

/// Maximum length of a copy, bytes: the size of ESCAPE's region.
pub const MAX_LENGTH: u64 = 256 << 20;

/// A level of the factor `length`.
#[derive(Debug, Clone, PartialEq)]
pub enum Lengths {
    /// The same length for all copies, in bytes.
    Fixed(u64),
    /// All lengths from the first to the second are equally likely.
    Uniform(u64, u64),
    /// All doublings from the first to the second are equally likely.
    LogUniform(u64, u64),
    /// Lengths of a production program.
    Mix(&'static Mix),
}

impl LevelType for Lengths {
    const LEVELS: Levels = Levels::Checked(Self::canonical);

    fn from_level(level: &str) -> Option<Self> {
        Self::parse(level).ok()
    }
}

impl Lengths {
    /// Parses a level.
    ///
    /// # Errors
    /// Returns one line with the expected forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let lengths = if let Some(range) = text.strip_prefix("uniform ") {
            range_of(range).map(|(low, high)| Self::Uniform(low, high))
        } else if let Some(range) = text.strip_prefix("log-uniform ") {
            range_of(range).map(|(low, high)| Self::LogUniform(low, high))
        } else if let Some(name) = text.strip_prefix("mix ") {
            find_mix(name.trim()).map(Self::Mix)
        } else {
            quantity::bytes(text).map(Self::Fixed).map_err(|_| {
                format!(
                    "'{text}' is not a length; expected e.g. '64 KiB', 'uniform 1..64 B', 'log-uniform 1 B..4 KiB' or 'mix fleet'"
                )
            })
        }?;
        match (lengths.shortest(), lengths.longest()) {
            (1.., ..=MAX_LENGTH) => Ok(lengths),
            _ => Err(format!("'{text}' is not in 1 B to {}", quantity::format_bytes(MAX_LENGTH))),
        }
    }

    /// Returns the canonical spelling of a level.
    ///
    /// # Errors
    /// Returns the errors of [`Lengths::parse`].
    pub fn canonical(text: &str) -> Result<String, String> {
        Self::parse(text).map(|lengths| lengths.to_string())
    }

    /// Returns the maximum length, in bytes.
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

    /// Returns whether all copies have the same length.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Draws `count` lengths from a seed, in bytes.
    pub fn draw(&self, count: usize, seed: u64) -> Vec<u32> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| self.one(&mut rng) as u32).collect()
    }

    fn one(&self, rng: &mut Pcg64Mcg) -> u64 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform(low, high) => rng.random_range(*low..=*high),
            Self::LogUniform(low, high) => {
                // Up to the next integer, so that the last length has its full share.
                let (from, to) = ((*low as f64).ln(), (high.saturating_add(1) as f64).ln());
                let drawn = (from + (to - from) * rng.random::<f64>()).exp() as u64;
                drawn.clamp(*low, *high)
            }
            Self::Mix(mix) => mix.one(rng),
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

/// Parses `1..64 B` or `1 B..4 KiB`; a lower bound without a unit has the unit of the upper one.
fn range_of(text: &str) -> Result<(u64, u64), String> {
    let wrong =
        || format!("'{text}' is not a range of lengths; expected e.g. '1..64 B' or '1 B..4 KiB'");
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

/// A mix of lengths: bands with their shares of the copies.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Name in a level, after `mix`.
    pub name: String,
    /// Description.
    pub about: String,
    /// Bands; at least one.
    pub bands: Vec<Band>,
}

/// A band of equally likely lengths.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Minimum length, in bytes.
    pub from: u64,
    /// Maximum length, in bytes.
    pub to: u64,
    /// Share of all copies, relative to the other bands.
    pub share: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mix: Vec<Mix>,
}

static MIXES: LazyLock<Vec<Mix>> = LazyLock::new(|| {
    let file: Result<File, _> = toml::from_str(include_str!("../lengths.toml"));
    // The file is compiled in and a test parses it, so this cannot fail in a tested build.
    file.map(|file| file.mix).unwrap_or_default()
});

/// Returns all mixes.
pub fn mixes() -> &'static [Mix] {
    &MIXES
}

/// Returns the mix of a name.
fn find_mix(name: &str) -> Result<&'static Mix, String> {
    mixes().iter().find(|mix| mix.name == name).ok_or_else(|| {
        let known: Vec<_> = mixes().iter().map(|mix| mix.name.as_str()).collect();
        format!("unknown mix '{name}'; expected one of {}", known.join(", "))
    })
}

impl Mix {
    /// Draws one length.
    fn one(&self, rng: &mut Pcg64Mcg) -> u64 {
        let shares = self.bands.iter().map(|band| band.share);
        let whole = shares.fold(0, u32::saturating_add);
        let mut at = rng.random_range(0..whole.max(1));
        for band in &self.bands {
            match at.checked_sub(band.share) {
                Some(rest) => at = rest,
                None => return rng.random_range(band.from..=band.to),
            }
        }
        self.bands.last().map_or(1, |band| band.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn levels_have_a_canonical_spelling() {
        let spelled = |text| Lengths::canonical(text).unwrap();
        assert_eq!(spelled("65536"), "64 KiB");
        assert_eq!(spelled("uniform 1..64 B"), "uniform 1..64 B");
        assert_eq!(spelled("uniform 1 B .. 64"), "uniform 1..64 B");
        assert_eq!(spelled("log-uniform 1 B..4 KiB"), "log-uniform 1 B..4 KiB");
        assert_eq!(spelled("uniform 1..4 KiB"), "uniform 1..4 KiB");
        assert_eq!(spelled("mix fleet"), "mix fleet");
    }

    #[test]
    fn invalid_lengths_are_refused_in_one_line() {
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
    fn log_uniform_draws_each_doubling_equally_often() {
        let drawn = Lengths::LogUniform(1, 4095).draw(120_000, 3);
        for doubling in 0..12 {
            let count = drawn.iter().filter(|length| length.ilog2() == doubling).count();
            assert!((9_000..11_000).contains(&count), "{doubling}: {count}");
        }
    }

    #[test]
    fn equal_seeds_draw_equal_lengths() {
        let lengths = Lengths::Uniform(1, 64);
        assert_eq!(lengths.draw(100, 1), lengths.draw(100, 1));
        assert_ne!(lengths.draw(100, 1), lengths.draw(100, 2));
    }

    proptest! {
        #[test]
        fn drawn_lengths_are_in_their_range(low in 1u64..5000, more in 0u64..5000, seed: u64, log: bool) {
            let high = low + more;
            let lengths = if log { Lengths::LogUniform(low, high) } else { Lengths::Uniform(low, high) };
            let drawn = lengths.draw(200, seed);
            prop_assert!(drawn.iter().all(|length| (low..=high).contains(&u64::from(*length))));
            prop_assert_eq!(Lengths::parse(&lengths.to_string()), Ok(lengths));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*") {
            if let Ok(spelled) = Lengths::canonical(&text) {
                prop_assert_eq!(Lengths::canonical(&spelled), Ok(spelled.clone()));
            }
        }
    }

    #[test]
    fn the_file_parses_and_its_bands_are_valid() {
        let file: File = toml::from_str(include_str!("../lengths.toml")).unwrap();
        assert_eq!(file.mix.len(), mixes().len());
        for mix in mixes() {
            assert!(
                mix.bands
                    .iter()
                    .all(|band| band.share > 0 && 0 < band.from && band.from <= band.to)
            );
            let ordered = mix.bands.windows(2).all(|pair| pair[0].to < pair[1].from);
            assert!(ordered, "{}: bands overlap", mix.name);
        }
    }

    #[test]
    fn bands_are_drawn_in_proportion_to_their_shares() {
        let drawn = Lengths::parse("mix words").unwrap().draw(100_000, 5);
        let words = drawn.iter().filter(|length| **length == 8).count();
        // 292 of 973 thousandths.
        assert!((29_000..31_000).contains(&words), "{words}");
    }
}
