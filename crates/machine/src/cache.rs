//! CPU caches, as reported by the kernel or else by CPUID.

use std::fs;
use std::path::Path;

use raw_cpuid::{CacheType, CpuId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::topology::parse_cpu_list;

/// The contents of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheContents {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Data and instructions.
    Unified,
}

/// One cache of the first CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1 for the cache nearest to the core.
    pub level: u32,
    /// Contents: instructions, data or both.
    pub kind: CacheContents,
    /// Size in bytes. A hypervisor may report a wrong value.
    pub size: u64,
    /// Line size in bytes.
    pub line: u32,
    /// Ways of associativity.
    pub ways: u32,
    /// The CPUs that share the cache; empty if only CPUID reports it.
    pub shared_cpus: Vec<usize>,
}

/// The caches of the first CPU, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Caches(pub Vec<Cache>);

impl Caches {
    /// Reads the caches from sysfs, or from CPUID if sysfs lists none.
    pub fn detect() -> Self {
        let caches = Self::read(Path::new("/sys/devices/system/cpu/cpu0/cache"));
        if caches.0.is_empty() { Self::from_cpuid() } else { caches }
    }

    /// Reads the caches of a tree such as `/sys/devices/system/cpu/cpu0/cache`. Skips unreadable entries.
    pub fn read(root: &Path) -> Self {
        let index = |number: usize| root.join(format!("index{number}"));
        let present = (0..).map(index).take_while(|folder| folder.is_dir());
        Self(present.filter_map(|folder| Cache::read(&folder)).collect())
    }

    fn from_cpuid() -> Self {
        let parameters = CpuId::new().get_cache_parameters();
        let caches = parameters.into_iter().flatten().filter_map(|cache| {
            let kind = match cache.cache_type() {
                CacheType::Data => CacheContents::Data,
                CacheType::Instruction => CacheContents::Instruction,
                CacheType::Unified => CacheContents::Unified,
                CacheType::Null | CacheType::Reserved => return None,
            };
            let line = cache.coherency_line_size() as u64;
            let size = line
                * cache.associativity() as u64
                * cache.sets() as u64
                * cache.physical_line_partitions() as u64;
            Some(Cache {
                level: u32::from(cache.level()),
                kind,
                size,
                line: line as u32,
                ways: cache.associativity() as u32,
                shared_cpus: Vec::new(),
            })
        });
        Self(caches.collect())
    }

    /// Returns the size in bytes of the data or unified cache of a level.
    pub fn data(&self, level: u32) -> Option<u64> {
        self.serving_data().find(|cache| cache.level == level).map(|cache| cache.size)
    }

    /// Returns the size in bytes of the last cache before memory.
    pub fn last_level(&self) -> Option<u64> {
        self.serving_data().max_by_key(|cache| cache.level).map(|cache| cache.size)
    }

    /// Returns the line size in bytes of the cache nearest to the core.
    pub fn line(&self) -> Option<u32> {
        self.serving_data().min_by_key(|cache| cache.level).map(|cache| cache.line)
    }

    fn serving_data(&self) -> impl Iterator<Item = &Cache> {
        self.0.iter().filter(|cache| cache.kind != CacheContents::Instruction)
    }
}

impl Cache {
    fn read(folder: &Path) -> Option<Self> {
        let text = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u32>().ok();
        Some(Self {
            level: number("level")?,
            kind: match text("type")?.trim() {
                "Data" => CacheContents::Data,
                "Instruction" => CacheContents::Instruction,
                "Unified" => CacheContents::Unified,
                _ => return None,
            },
            size: parse_size(&text("size")?)?,
            line: number("coherency_line_size")?,
            ways: number("ways_of_associativity").unwrap_or(0),
            shared_cpus: text("shared_cpu_list")
                .and_then(|list| parse_cpu_list(&list))
                .unwrap_or_default(),
        })
    }
}

/// Parses a size of sysfs, e.g. `32K`, into bytes.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => match text.as_bytes().last()? {
            b'K' => (digits, 1 << 10),
            b'M' => (digits, 1 << 20),
            _ => (digits, 1 << 30),
        },
        None => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_cache(root: &Path, index: usize, values: [(&str, &str); 6]) {
        let folder = root.join(format!("index{index}"));
        fs::create_dir_all(&folder).unwrap();
        for (file, value) in values {
            fs::write(folder.join(file), format!("{value}\n")).unwrap();
        }
    }

    fn cache(
        level: &'static str,
        kind: &'static str,
        size: &'static str,
    ) -> [(&'static str, &'static str); 6] {
        [
            ("level", level),
            ("type", kind),
            ("size", size),
            ("coherency_line_size", "64"),
            ("ways_of_associativity", "8"),
            ("shared_cpu_list", "0-1,4"),
        ]
    }

    #[test]
    fn a_tree_of_three_caches_is_read() {
        let root = tempfile::tempdir().unwrap();
        write_cache(root.path(), 0, cache("1", "Data", "48K"));
        write_cache(root.path(), 1, cache("1", "Instruction", "32K"));
        write_cache(root.path(), 2, cache("2", "Unified", "2M"));
        let caches = Caches::read(root.path());
        assert_eq!(caches.0.len(), 3);
        assert_eq!(caches.data(1), Some(48 << 10));
        assert_eq!(caches.data(2), Some(2 << 20));
        assert_eq!(caches.data(3), None);
        assert_eq!(caches.last_level(), Some(2 << 20));
        assert_eq!(caches.line(), Some(64));
        assert_eq!(caches.0[2].shared_cpus, [0, 1, 4]);
    }

    #[test]
    fn a_broken_entry_is_skipped() {
        let root = tempfile::tempdir().unwrap();
        write_cache(root.path(), 0, cache("1", "Data", "much"));
        assert_eq!(Caches::read(root.path()), Caches::default());
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_size("32K\n"), Some(32768));
        assert_eq!(parse_size("1G"), Some(1 << 30));
        assert_eq!(parse_size("12"), Some(12));
        assert_eq!(parse_size("K"), None);
    }

    #[test]
    fn the_kernel_and_cpuid_report_the_same_first_cache() {
        let tree = Caches::read(Path::new("/sys/devices/system/cpu/cpu0/cache"));
        let ways = [("the kernel", tree), ("CPUID", Caches::from_cpuid())];
        for (who, caches) in &ways {
            match caches.data(1) {
                Some(bytes) => {
                    assert!(bytes >= 4 << 10 && caches.last_level() >= Some(bytes), "{caches:?}");
                    assert!(caches.line().is_some_and(u32::is_power_of_two), "{caches:?}");
                }
                None => crate::untested::note("caches", &format!("{who} reports none")),
            }
        }
        if let [Some(one), Some(other)] = ways.map(|(_, caches)| caches.data(1)) {
            // A hypervisor may report different values to the kernel and to a program, but neither is far
            // off.
            assert!(one.max(other) <= 4 * one.min(other), "{one} and {other}");
        }
    }
}
