//! Params of `throughput` and the options that apply to it.

// Levels may be any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::sample::Failure;

use crate::functions::APEX;
use crate::lengths::Lengths;
use crate::levels::{self, Direction, TimingMode};
use crate::mbw::Method;
use crate::memory::{CachingLevel, MemoryKind};

/// Maximum threads of a point, as in ESCAPE's `memcpy_test`.
pub(crate) const MAX_THREADS: u64 = 64;

/// The level of `function` that is inlined into the timed loop.
pub(crate) const NAIVE_COMPILED: &str = "naive-compiled";

/// Minimum bytes of each buffer through which copies rotate.
pub(super) const MIN_ROTATING: usize = 1 << 20;

/// How threads share the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Mode {
    Jobs,
    Split,
    Queue,
}

/// Whether the destination's pages are present before a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum PageState {
    Warm,
    Cold,
}

/// Whether copies reuse one pair of buffers or rotate through many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Buffers {
    One,
    Rotating,
}

/// Params of `throughput`; the defaults are those of ESCAPE's `memcpy_test`.
#[derive(Debug, Clone, PartialEq, Params)]
pub(crate) struct ThroughputParams {
    /// whether the program writes the memory or reads it
    #[factor(default = "write")]
    pub(super) direction: Direction,
    /// memory: heap, heap-huge, shared, file-mapped, file-io, host-physical, device, pci-bar, dax, gpu, gpu-bar, numa-node-N
    #[factor(default = "heap")]
    pub(super) memory: MemoryKind,
    /// attribute of the mapping: default (as the kernel maps the memory), uncached, write-combining or write-back
    #[factor(default = "default")]
    pub(super) caching: CachingLevel,
    /// bytes per copy: '64 KiB', 'uniform 1..64 B', 'log-uniform 1 B..4 KiB', 'mix fleet'
    #[factor(default = "64 KiB")]
    pub(super) length: Lengths,
    /// copy function: one of the suite, apex, PATH.so:SYMBOL, or a method of the program mbw
    #[factor(default = "glibc", levels = Levels::Checked(function))]
    pub(super) function: String,
    /// 0: the caller copies; 1 to 64: that many pinned threads
    #[factor(default = "0", levels = Levels::Count(0, MAX_THREADS))]
    pub(super) threads: usize,
    /// how threads share copies: jobs (each a whole copy), split (each a slice of every copy), or queue (ESCAPE's locked queue)
    #[factor(default = "jobs")]
    pub(super) mode: Mode,
    /// offset of the destination relative to the source within a page, bytes: 0 to 4095
    #[factor(default = "0", levels = Levels::Count(0, 4095))]
    pub(super) offset: usize,
    /// throughput (independent copies, back to back) or latency (each address depends on the previous copy)
    #[factor(name = "use", default = "throughput")]
    pub(super) usage: TimingMode,
    /// warm (all pages present) or cold (each copy is the first touch of its destination)
    #[factor(default = "warm")]
    pub(super) touch: PageState,
    /// one pair of buffers, or rotating through more than the last-level cache
    #[factor(default = "one")]
    pub(super) buffers: Buffers,
}

/// Returns the canonical spelling of a level of `function`.
fn function(text: &str) -> Result<String, String> {
    let others: Vec<_> =
        Method::ALL.map(Method::level).into_iter().chain([NAIVE_COMPILED, APEX]).collect();
    levels::function(text, &others)
}

impl Default for ThroughputParams {
    fn default() -> Self {
        Self {
            direction: Direction::Write,
            memory: MemoryKind::Heap,
            caching: CachingLevel::Default,
            length: Lengths::Fixed(64 << 10),
            function: "glibc".into(),
            threads: 0,
            mode: Mode::Jobs,
            offset: 0,
            usage: TimingMode::Throughput,
            touch: PageState::Warm,
            buffers: Buffers::One,
        }
    }
}

impl ThroughputParams {
    /// Returns the mbw method, if the function is one.
    pub(super) fn mbw(&self) -> Option<Method> {
        Method::from_level(&self.function)
    }

    /// Checks that the levels fit together.
    ///
    /// # Errors
    /// Returns the conflict and a remedy.
    pub(super) fn check_conflicts(&self) -> Result<(), Failure> {
        let no = |why: &str, remedy: &str| Err(Failure::unavailable(why, remedy));
        self.caching.check(self.memory)?;
        if self.threads > 0 && self.usage == TimingMode::Latency {
            return no("a dependent chain of copies runs in one thread", "use threads = 0");
        }
        if self.threads > 0 && self.memory.is_copied_by_calls() {
            return no("this memory is copied by calls of one thread only", "use threads = 0");
        }
        if self.usage == TimingMode::Latency && self.memory == MemoryKind::Gpu {
            return no("no instruction loads from this memory", "use use = throughput");
        }
        if self.touch == PageState::Cold && self.buffers == Buffers::Rotating {
            return no("a first touch cannot reuse rotating buffers", "use buffers = one");
        }
        let destination_is_memory = self.direction == Direction::Write;
        if self.touch == PageState::Cold && destination_is_memory && !self.memory.can_be_cold() {
            return no("pages of this memory cannot be discarded", "use touch = warm");
        }
        let rotates = self.buffers == Buffers::Rotating;
        if rotates && self.memory.max_bytes().is_some_and(|max| max < MIN_ROTATING) {
            return no("this memory's mapping is too small for rotation", "use buffers = one");
        }
        let plain = Self {
            length: self.length.clone(),
            function: self.function.clone(),
            ..Self::default()
        };
        if self.mbw().is_some() && (*self != plain || !self.length.is_fixed()) {
            return no(
                "mbw copies one length in its heap, with one thread",
                "leave the other factors at their defaults",
            );
        }
        Ok(())
    }
}

/// Options of this suite that apply to `throughput`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunOptions {
    /// Minimum copies per batch (`-r` of `memcpy_test`).
    pub(super) runs: usize,
    /// Pause before every four bytes (`-z`).
    pub(crate) pause: Option<Duration>,
    /// Number added to the index of each source byte (`-o`).
    pub(super) source_offset: Option<u8>,
    /// Whether the source keeps its contents unless it is the program's heap (`-i 1`).
    pub(super) keep_memory: bool,
}

/// Option of [`RunOptions::runs`].
pub const RUNS: &str = "runs";
/// Option of [`RunOptions::pause`], in seconds.
pub const PAUSE: &str = "pause";
/// Option of [`RunOptions::source_offset`].
pub const SOURCE_OFFSET: &str = "source-offset";
/// Option of [`RunOptions::keep_memory`].
pub const KEEP_MEMORY: &str = "keep-memory";

/// Maximum of [`RUNS`].
pub const MAX_RUNS: u64 = 1_000_000_000;
/// Maximum of [`PAUSE`], in seconds.
pub const MAX_PAUSE: u64 = 3600;

impl RunOptions {
    /// Parses the options.
    ///
    /// # Errors
    /// Returns `failed` with the option that is not a number in its range.
    pub(crate) fn parse(options: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let number = |name: &str, max: u64| match options.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(number) if number <= max => Ok(Some(number)),
                _ => Err(Failure::failed(format!(
                    "option {name}: '{text}' is not a whole number up to {max}"
                ))),
            },
        };
        Ok(Self {
            runs: number(RUNS, MAX_RUNS)?.unwrap_or(1).max(1) as usize,
            pause: number(PAUSE, MAX_PAUSE)?.filter(|s| *s > 0).map(Duration::from_secs),
            // As in `memcpy_test`, the sum counts modulo 256.
            source_offset: number(SOURCE_OFFSET, u64::MAX)?.map(|offset| offset as u8),
            keep_memory: options.contains_key(KEEP_MEMORY),
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn every_level_of_a_point_is_parsed() {
        let point = Point::from([
            ("direction", "read"),
            ("memory", "shared"),
            ("caching", "write-back"),
            ("length", "uniform 1..64 B"),
            ("function", "avx2"),
            ("threads", "4"),
            ("mode", "split"),
            ("offset", "32"),
            ("buffers", "rotating"),
        ]);
        let params = ThroughputParams::with_defaults(&point).unwrap();
        let expected = ThroughputParams {
            direction: Direction::Read,
            memory: MemoryKind::Shared,
            caching: CachingLevel::WriteBack,
            length: Lengths::Uniform(1, 64),
            function: "avx2".into(),
            threads: 4,
            mode: Mode::Split,
            offset: 32,
            usage: TimingMode::Throughput,
            touch: PageState::Warm,
            buffers: Buffers::Rotating,
        };
        assert_eq!(params, expected);
        assert_eq!(params.check_conflicts(), Ok(()));
        assert_eq!(
            ThroughputParams::with_defaults(&Point::default()).unwrap(),
            ThroughputParams::default()
        );
    }

    #[test]
    fn levels_out_of_range_are_refused() {
        for (factor, level) in [
            ("threads", "65"),
            ("threads", "18446744073709551615"),
            ("threads", "-1"),
            ("offset", "4096"),
            ("offset", "18446744073709551615"),
            ("length", "257 MiB"),
            ("length", "9007199254740992 B"),
            ("memory", "numa-node-18446744073709551616"),
        ] {
            let failure =
                ThroughputParams::with_defaults(&Point::from([(factor, level)])).unwrap_err();
            assert!(failure.why.starts_with(&format!("factor '{factor}': ")), "{failure}");
            assert!(failure.why.contains(&format!("'{level}'")), "{failure}");
            assert_eq!(failure.why.lines().count(), 1);
        }
    }

    #[test]
    fn conflicting_levels_are_refused_with_a_remedy() {
        let refused = [
            [("threads", "2"), ("use", "latency")],
            [("threads", "2"), ("memory", "file-io")],
            [("touch", "cold"), ("memory", "file-io")],
            [("touch", "cold"), ("buffers", "rotating")],
            [("memory", "host-physical"), ("buffers", "rotating")],
            [("memory", "pci-bar"), ("caching", "write-back")],
            [("memory", "dax"), ("caching", "uncached")],
            [("memory", "gpu"), ("threads", "2")],
            [("memory", "gpu"), ("use", "latency")],
            [("memory", "gpu-bar"), ("touch", "cold")],
            [("function", "mbw-dumb"), ("threads", "1")],
            [("function", "mbw-dumb"), ("length", "uniform 1..2 MiB")],
        ];
        for pairs in refused {
            let failure = ThroughputParams::with_defaults(&Point::from(pairs))
                .unwrap()
                .check_conflicts()
                .unwrap_err();
            let remedy = failure.remedy.unwrap();
            assert!(
                remedy.starts_with("use ") || remedy.starts_with("leave "),
                "{pairs:?}: {remedy}"
            );
        }
    }

    #[test]
    fn options_are_parsed_and_bounded() {
        let options =
            |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(RunOptions::parse(&options(RUNS, "1000")).unwrap().runs, 1000);
        assert_eq!(
            RunOptions::parse(&options(PAUSE, "2")).unwrap().pause,
            Some(Duration::from_secs(2))
        );
        assert_eq!(RunOptions::parse(&options(PAUSE, "0")).unwrap().pause, None);
        assert_eq!(
            RunOptions::parse(&options(SOURCE_OFFSET, "258")).unwrap().source_offset,
            Some(2)
        );
        for (name, value) in [
            (RUNS, "many"),
            (RUNS, "1000000001"),
            (RUNS, "18446744073709551616"),
            (RUNS, "-1"),
            (PAUSE, "3601"),
            (PAUSE, "18446744073709551615"),
        ] {
            let failure = RunOptions::parse(&options(name, value)).unwrap_err();
            assert!(failure.why.starts_with(&format!("option {name}: '{value}'")), "{failure}");
        }
    }
}
