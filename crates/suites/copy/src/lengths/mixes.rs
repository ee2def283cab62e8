//! Mixes of lengths like those of production programs, from `lengths.toml`.

use std::sync::LazyLock;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

/// A mix of lengths: bands, each with its share of the copies.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// The word after `mix`.
    pub name: String,
    /// What it is like.
    pub about: String,
    /// Its bands; at least one.
    pub bands: Vec<Band>,
}

/// A band of lengths that are equally likely.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// The shortest, bytes.
    pub from: u64,
    /// The longest, bytes.
    pub to: u64,
    /// Its part of all copies, relative to the other bands.
    pub share: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mix: Vec<Mix>,
}

static MIXES: LazyLock<Vec<Mix>> = LazyLock::new(|| {
    let file: Result<File, _> = toml::from_str(include_str!("../../lengths.toml"));
    // The file is part of the program and a test reads it, so this can fail in no build that passed.
    file.map(|file| file.mix).unwrap_or_default()
});

/// All mixes.
pub fn mixes() -> &'static [Mix] {
    &MIXES
}

/// The mix of a name.
pub(super) fn find(name: &str) -> Result<&'static Mix, String> {
    mixes().iter().find(|mix| mix.name == name).ok_or_else(|| {
        let known: Vec<_> = mixes().iter().map(|mix| mix.name.as_str()).collect();
        format!("there is no mix '{name}'; there are: {}", known.join(", "))
    })
}

impl Mix {
    /// Draws one length.
    pub(super) fn one(&self, chance: &mut Pcg64Mcg) -> u64 {
        let shares = self.bands.iter().map(|band| band.share);
        let whole = shares.fold(0, u32::saturating_add);
        let mut at = chance.random_range(0..whole.max(1));
        for band in &self.bands {
            match at.checked_sub(band.share) {
                Some(behind) => at = behind,
                None => return chance.random_range(band.from..=band.to),
            }
        }
        self.bands.last().map_or(1, |band| band.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::Lengths;

    #[test]
    fn the_file_is_read_and_sound() {
        let file: File = toml::from_str(include_str!("../../lengths.toml")).unwrap();
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
    fn bands_are_drawn_by_their_share() {
        let drawn = Lengths::parse("mix words").unwrap().draw(100_000, 5);
        let words = drawn.iter().filter(|length| **length == 8).count();
        // 292 of 973 thousandths.
        assert!((29_000..31_000).contains(&words), "{words}");
    }
}
