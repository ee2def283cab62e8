//! The rules of a pool of memory, as data: which host may read and which may write each range.

// A file may contain any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use lab::data::{DataError, read_toml};
use lab::quantity;
use machine::mapping::PAGE;
use serde::Deserialize;

/// Hosts that share the pool.
pub const HOSTS: usize = 2;
/// ESCAPE's rules.
const ESCAPE: &str = include_str!("../rules.toml");
/// Option with the content of a user's file of rules.
pub const OPTION: &str = "rules";
/// Divisor of ESCAPE's rules if the user names none: the pool has 16 MiB.
const DEFAULT_SCALE: u64 = 1024;

/// Maximum length of a pool in bytes.
const MAX_POOL: usize = 64 << 30;
/// Maximum length in bytes of a range that a host may only write: the forwarder reads a copy of it again and again.
const MAX_WRITE_ONLY: usize = 1 << 30;

/// Maximum length of the pool of two hosts: that of ESCAPE's device region, which is as much as a host maps.
pub const MAX_RUN_POOL: usize = (256 << 20) + PAGE;
/// Maximum number of its ranges: a host has a device for each, and the guest has few slots for memory.
pub(crate) const MAX_RUN_RANGES: usize = 32;

/// A host's permission for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// No access.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
    /// Write only. x86-64 pages cannot be write-only, so only a filter outside of the host enforces it.
    WriteOnly,
}

/// A kind of access to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
}

impl Permission {
    /// Returns whether the permission covers the access.
    pub fn allows(self, access: Access) -> bool {
        match access {
            Access::Load => matches!(self, Self::Read | Self::ReadWrite),
            Access::Store => matches!(self, Self::ReadWrite | Self::WriteOnly),
        }
    }

    /// Returns whether it covers every access that `other` covers.
    pub fn includes(self, other: Self) -> bool {
        [Access::Load, Access::Store]
            .iter()
            .all(|access| self.allows(*access) || !other.allows(*access))
    }
}

/// A range of the pool, and each host's permission for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Name in messages.
    pub name: String,
    /// Offset in the pool, in bytes.
    pub offset: usize,
    /// Length in bytes: whole pages.
    pub length: usize,
    /// Permission of each host.
    pub permissions: [Permission; HOSTS],
}

/// The rules of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The ranges in ascending order of offset.
    pub ranges: Vec<Range>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    range: Vec<DeclaredRange>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredRange {
    name: String,
    length: String,
    read: Vec<usize>,
    write: Vec<usize>,
}

impl Rules {
    /// Returns ESCAPE's rules, with the length of every range divided by `scale`.
    ///
    /// # Errors
    /// Returns the errors of [`Rules::read`].
    pub fn escape(scale: u64) -> Result<Self, DataError> {
        Self::read("rules.toml", ESCAPE, scale)
    }

    /// Returns the rules of a run: those of the option [`OPTION`], or ESCAPE's with a pool of 16 MiB.
    ///
    /// # Errors
    /// Returns the errors of [`Rules::read`], and one line if the hosts cannot have as much memory or as many ranges.
    pub fn of_run(options: &BTreeMap<String, String>) -> Result<Self, DataError> {
        let file = format!("--set {OPTION}");
        let rules = match options.get(OPTION) {
            Some(text) => Self::read(&file, text, 1)?,
            None => return Self::escape(DEFAULT_SCALE),
        };
        let (count, length) = (rules.ranges.len(), rules.length());
        let what = match () {
            () if count > MAX_RUN_RANGES => format!("{count} ranges exceed {MAX_RUN_RANGES}"),
            () if length > MAX_RUN_POOL => format!("{length} B exceed {MAX_RUN_POOL} B"),
            () => return Ok(rules),
        };
        Err(DataError::of_file(&file, format!("the pool of two hosts: {what}; declare less")))
    }

    /// Parses rules from TOML. Every length is whole pages; it is divided by `scale` and rounded down to whole pages, but at
    /// least one.
    ///
    /// # Errors
    /// Returns one line: the file, and the cause.
    pub fn read(file: &str, text: &str, scale: u64) -> Result<Self, DataError> {
        let parsed: RulesFile = read_toml(file, text)?;
        let fault = |what: String| DataError::of_file(file, what);
        if parsed.range.is_empty() {
            return Err(fault("no [[range]]; declare at least one".into()));
        }
        let mut ranges = Vec::new();
        let mut offset = 0;
        for declared in &parsed.range {
            let range = declared
                .range(offset, scale)
                .map_err(|what| fault(format!("range '{}': {what}", declared.name)))?;
            let end = range.offset.checked_add(range.length).filter(|end| *end <= MAX_POOL);
            offset = end.ok_or_else(|| fault("the ranges exceed 64 GiB; declare less".into()))?;
            if range.length > MAX_WRITE_ONLY && range.permissions.contains(&Permission::WriteOnly) {
                let what = "a write-only range exceeds 1 GiB; declare less";
                return Err(fault(format!("range '{}': {what}", declared.name)));
            }
            ranges.push(range);
        }
        Ok(Self { ranges })
    }

    /// Returns the same ranges with full permission for every host: the pool without mediation.
    #[must_use]
    pub fn open(mut self) -> Self {
        for range in &mut self.ranges {
            range.permissions = [Permission::ReadWrite; HOSTS];
        }
        self
    }

    /// Returns the bytes of the whole pool.
    pub fn length(&self) -> usize {
        self.ranges.iter().map(|range| range.length).sum()
    }

    /// Returns the first range that every host may write.
    pub fn shared(&self) -> Option<usize> {
        self.ranges.iter().position(|range| range.permissions == [Permission::ReadWrite; HOSTS])
    }
}

impl DeclaredRange {
    fn range(&self, offset: usize, scale: u64) -> Result<Range, String> {
        let bytes = quantity::bytes(&self.length).map_err(|e| format!("length: {e}"))?;
        if bytes == 0 {
            return Err(format!("length: '{}' is no memory; use at least 4 KiB", self.length));
        }
        if !bytes.is_multiple_of(PAGE as u64) {
            return Err(format!("length: '{}' is not a multiple of 4 KiB", self.length));
        }
        let scaled = bytes.checked_div(scale).ok_or("a scale of 0; use at least 1")?;
        let pages = scaled as usize / PAGE;
        for (key, hosts) in [("read", &self.read), ("write", &self.write)] {
            if let Some(host) = hosts.iter().find(|host| **host >= HOSTS) {
                return Err(format!("{key}: no host {host}; use 0 or 1"));
            }
        }
        let permissions = std::array::from_fn(|host| {
            match (self.read.contains(&host), self.write.contains(&host)) {
                (false, false) => Permission::None,
                (true, false) => Permission::Read,
                (true, true) => Permission::ReadWrite,
                (false, true) => Permission::WriteOnly,
            }
        });
        Ok(Range {
            name: self.name.clone(),
            offset,
            length: pages.max(1).saturating_mul(PAGE),
            permissions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_16_gib_are_14_shared_and_1_private_per_host() {
        let rules = Rules::escape(64).unwrap();
        assert_eq!(rules.length(), 16 << 24);
        let by_name: Vec<_> =
            rules.ranges.iter().map(|r| (r.name.as_str(), r.length >> 24, r.permissions)).collect();
        use Permission::{None, ReadWrite};
        let expected = [
            ("shared", 14, [ReadWrite; 2]),
            ("private-0", 1, [ReadWrite, None]),
            ("private-1", 1, [None, ReadWrite]),
        ];
        assert_eq!(by_name, expected);
        assert_eq!((rules.shared(), rules.ranges[2].offset), (Some(0), 15 << 24));
        assert_eq!(Rules::escape(u64::MAX).unwrap().length(), 3 * PAGE);
    }

    #[test]
    fn a_run_has_the_rules_of_its_option() {
        let text = "[[range]]\nname = 'in'\nlength = '4 KiB'\nread = [1]\nwrite = [0]\n";
        let rules = Rules::of_run(&[(OPTION.into(), text.into())].into()).unwrap();
        assert_eq!(rules.ranges[0].permissions, [Permission::WriteOnly, Permission::Read]);
        assert_eq!((rules.length(), rules.shared()), (PAGE, None));
        assert_eq!(Rules::of_run(&BTreeMap::new()).unwrap().length(), 16 << 20);
        let why = Rules::of_run(&[(OPTION.into(), "range".into())].into()).unwrap_err();
        assert!(why.to_string().starts_with("--set rules:"), "{why}");
    }

    #[test]
    fn permissions_cover_accesses() {
        let allowed = |permission: Permission| {
            [permission.allows(Access::Load), permission.allows(Access::Store)]
        };
        assert_eq!(allowed(Permission::None), [false, false]);
        assert_eq!(allowed(Permission::Read), [true, false]);
        assert_eq!(allowed(Permission::ReadWrite), [true, true]);
        assert_eq!(allowed(Permission::WriteOnly), [false, true]);
        for permission in [Permission::None, Permission::Read, Permission::WriteOnly] {
            assert!(Permission::ReadWrite.includes(permission) && permission.includes(permission));
            assert!(!permission.includes(Permission::ReadWrite));
            assert!(permission.includes(Permission::None));
        }
        assert!(!Permission::Read.includes(Permission::WriteOnly));
    }

    #[test]
    fn errors_are_one_line() {
        let wrong = |range: &str| {
            let text = format!("[[range]]\nname = 'a'\n{range}\n");
            let message = Rules::read("my.toml", &text, 1).unwrap_err().to_string();
            assert!(!message.contains('\n') && message.starts_with("my.toml:"), "{message}");
            message
        };
        assert!(wrong("length='5 KiB'\nread=[]\nwrite=[]").contains("not a multiple of 4 KiB"));
        assert!(wrong("length='0 B'\nread=[0]\nwrite=[0]").contains("use at least 4 KiB"));
        let why = Rules::escape(0).unwrap_err().to_string();
        assert!(why.contains("a scale of 0; use at least 1"), "{why}");
        assert!(wrong("length='1 GB'\nread=[]\nwrite=[]").contains("'1 GB'"));
        assert!(wrong("length='1 GiB'\nread=[2]\nwrite=[]").contains("no host 2"));
        assert!(wrong("length='1 GiB'\nread=[0]\nwrite=[7]").contains("no host 7"));
        assert!(wrong("length='1 GiB'\nread=[0]").contains("write"));
        assert!(wrong("length='1 GiB'\nread=[0]\nwrite=[]\ncolour='red'").contains("colour"));
        let one = "[[range]]\nname = 'a'\nlength = '8 GiB'\nread = []\nwrite = []\n";
        let why = Rules::read("my.toml", &one.repeat(9), 1).unwrap_err().to_string();
        assert!(why.contains("exceed 64 GiB"), "{why}");
        assert_eq!(Rules::read("my.toml", &one.repeat(8), 1).unwrap().length(), 64 << 30);
        assert!(wrong("length='8192 TiB'\nread=[]\nwrite=[]").contains("exceed 64 GiB"));
        assert!(wrong("length='2 GiB'\nread=[1]\nwrite=[0]").contains("exceeds 1 GiB"));
        assert!(
            Rules::read("my.toml", "range = []", 1)
                .unwrap_err()
                .to_string()
                .contains("no [[range]]")
        );
    }
}
