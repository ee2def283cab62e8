//! The filter rules of a pool, as data: who may read and who may write which range.

// A file may say any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use lab::data::{DataError, read_toml};
use lab::quantity;
use machine::mapping::PAGE;
use serde::Deserialize;

/// Hosts that share the pool.
pub const HOSTS: usize = 2;
/// ESCAPE's rules.
const ESCAPE: &str = include_str!("../../mediation.toml");

/// What a host may do with a range. There is no writing without reading: pages of this processor
/// cannot be written unless they can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// One way of touching a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
}

impl Right {
    /// Whether the right covers the access.
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Load => self >= Self::Read,
            Access::Store => self == Self::Write,
        }
    }
}

/// A range of the pool, and each host's right to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// What people call it.
    pub name: String,
    /// Where it begins in the pool, bytes.
    pub offset: usize,
    /// Bytes: whole pages.
    pub length: usize,
    /// By host.
    pub rights: [Right; HOSTS],
}

/// The rules of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// In the order of the pool.
    pub ranges: Vec<Range>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    range: Vec<Declared>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    name: String,
    length: String,
    read: Vec<usize>,
    write: Vec<usize>,
}

impl Rules {
    /// ESCAPE's rules, with every range divided by `scale`.
    ///
    /// # Errors
    /// See [`Rules::read`].
    pub fn escape(scale: u64) -> Result<Self, DataError> {
        Self::read("mediation.toml", ESCAPE, scale)
    }

    /// Rules from TOML, with every range divided by `scale` and cut to whole pages, one at least.
    ///
    /// # Errors
    /// One line: the file, and what is wrong where.
    pub fn read(file: &str, text: &str, scale: u64) -> Result<Self, DataError> {
        let parsed: File = read_toml(file, text)?;
        let fault = |what: String| DataError::of_file(file, what);
        if parsed.range.is_empty() {
            return Err(fault("it has no [[range]]".into()));
        }
        let mut ranges = Vec::new();
        let mut offset = 0;
        for declared in &parsed.range {
            let range = declared
                .range(offset, scale)
                .map_err(|what| fault(format!("range '{}': {what}", declared.name)))?;
            let end = range.offset.checked_add(range.length);
            offset = end.ok_or_else(|| fault("the ranges are over 2^64 B: declare less".into()))?;
            ranges.push(range);
        }
        Ok(Self { ranges })
    }

    /// The same ranges with every right for every host: the pool without mediation.
    #[must_use]
    pub fn open(mut self) -> Self {
        for range in &mut self.ranges {
            range.rights = [Right::Write; HOSTS];
        }
        self
    }

    /// Bytes of the whole pool.
    pub fn length(&self) -> usize {
        self.ranges.iter().map(|range| range.length).sum()
    }

    /// The first range that every host may write.
    pub fn shared(&self) -> Option<usize> {
        self.ranges.iter().position(|range| range.rights == [Right::Write; HOSTS])
    }
}

impl Declared {
    fn range(&self, offset: usize, scale: u64) -> Result<Range, String> {
        let bytes = quantity::bytes(&self.length).map_err(|e| format!("length: {e}"))?;
        let pages = bytes.checked_div(scale).unwrap_or(bytes) as usize / PAGE;
        let mut rights = [Right::None; HOSTS];
        for (key, hosts, right) in
            [("read", &self.read, Right::Read), ("write", &self.write, Right::Write)]
        {
            for host in hosts {
                let known = rights.get_mut(*host);
                *known.ok_or_else(|| format!("{key}: there is no host {host}, only 0 and 1"))? =
                    right;
            }
        }
        if let Some(host) = self.write.iter().find(|host| !self.read.contains(host)) {
            return Err(format!(
                "host {host} may write but not read, which pages cannot enforce; add it to 'read'"
            ));
        }
        Ok(Range {
            name: self.name.clone(),
            offset,
            length: pages.max(1).saturating_mul(PAGE),
            rights,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_is_14_and_1_and_1_of_16() {
        let rules = Rules::escape(64).unwrap();
        assert_eq!(rules.length(), 16 << 24);
        let by_name: Vec<_> =
            rules.ranges.iter().map(|r| (r.name.as_str(), r.length >> 24, r.rights)).collect();
        use Right::{None, Write};
        let expected = [
            ("shared", 14, [Write; 2]),
            ("private-0", 1, [Write, None]),
            ("private-1", 1, [None, Write]),
        ];
        assert_eq!(by_name, expected);
        assert_eq!((rules.shared(), rules.ranges[2].offset), (Some(0), 15 << 24));
        assert_eq!(Rules::escape(u64::MAX).unwrap().length(), 3 * PAGE);
    }

    #[test]
    fn rights_cover_accesses() {
        let allowed = |right: Right| [right.allows(Access::Load), right.allows(Access::Store)];
        assert_eq!(allowed(Right::None), [false, false]);
        assert_eq!(allowed(Right::Read), [true, false]);
        assert_eq!(allowed(Right::Write), [true, true]);
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let wrong = |range: &str| {
            let text = format!("[[range]]\nname = 'a'\n{range}\n");
            let message = Rules::read("my.toml", &text, 1).unwrap_err().to_string();
            assert!(!message.contains('\n') && message.starts_with("my.toml: "), "{message}");
            message
        };
        assert!(wrong("length='1 GB'\nread=[]\nwrite=[]").contains("'1 GB'"));
        assert!(wrong("length='1 GiB'\nread=[2]\nwrite=[]").contains("no host 2"));
        assert!(
            wrong("length='1 GiB'\nread=[0]\nwrite=[0,1]")
                .contains("host 1 may write but not read")
        );
        assert!(wrong("length='1 GiB'\nread=[0]").contains("write"));
        assert!(wrong("length='1 GiB'\nread=[0]\nwrite=[]\ncolour='red'").contains("colour"));
        let one = "[[range]]\nname = 'a'\nlength = '8192 TiB'\nread = []\nwrite = []\n";
        let why = Rules::read("my.toml", &one.repeat(2048), 1).unwrap_err().to_string();
        assert!(why.contains("over 2^64 B"), "{why}");
        assert_eq!(Rules::read("my.toml", &one.repeat(2047), 1).unwrap().length(), 2047 << 53);
        assert!(
            Rules::read("my.toml", "range = []", 1)
                .unwrap_err()
                .to_string()
                .contains("no [[range]]")
        );
    }
}
