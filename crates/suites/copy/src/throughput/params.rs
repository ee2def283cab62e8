//! What a point asks for.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::sample::Failure;

use super::NAIVE_COMPILED;
use super::layout::LEAST_ROTATING;
use crate::factors::{self, Direction, Use};
use crate::lengths::Lengths;
use crate::limit::mbw::Method;
use crate::memory::Kind;

/// Threads that a point may ask for: the seed's.
pub(crate) const MAX_THREADS: u64 = 64;

/// What threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Mode {
    Jobs,
    Split,
    Queue,
}

/// Whether the destination's pages are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Touch {
    Warm,
    Cold,
}

/// One pair of buffers, or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Buffers {
    One,
    Rotating,
}

/// Levels of `throughput`; the defaults are ESCAPE's.
#[derive(Debug, Clone, PartialEq, Params)]
pub(crate) struct ThroughputParams {
    /// whether the program writes to the memory or reads from it
    #[factor(default = "write")]
    pub(super) direction: Direction,
    /// the memory: heap, heap-huge, shared, file-mapped, file-io, host-physical, device, pci-bar, dax, numa-node-N
    #[factor(default = "heap")]
    pub(super) memory: Kind,
    /// bytes a copy: '64 KiB', 'uniform 1..64 B', 'log-uniform 1 B..4 KiB', 'mix fleet'
    #[factor(default = "64 KiB")]
    pub(super) length: Lengths,
    /// what copies: a function of the suite, PATH.so:SYMBOL, or a method of the program mbw
    #[factor(default = "glibc", levels = Levels::Checked(function))]
    pub(super) function: String,
    /// 0: the caller copies; 1 to 64: so many pinned threads
    #[factor(default = "0", levels = Levels::Count(0, MAX_THREADS))]
    pub(super) threads: usize,
    /// what threads share: jobs (each a whole copy), split (each a slice of one copy), or the source's queue
    #[factor(default = "jobs")]
    pub(super) mode: Mode,
    /// destination minus source within a page, bytes: 0 to 4095
    #[factor(default = "0", levels = Levels::Count(0, 4095))]
    pub(super) offset: usize,
    /// throughput (copies back to back) or latency (each waits for what the last delivered)
    #[factor(name = "use", default = "throughput")]
    pub(super) usage: Use,
    /// warm (all pages present) or cold (each copy is the first touch of its destination)
    #[factor(default = "warm")]
    pub(super) touch: Touch,
    /// one pair of buffers, or rotating through more than the last-level cache holds
    #[factor(default = "one")]
    pub(super) buffers: Buffers,
}

/// The canonical spelling of a level of `function`.
fn function(text: &str) -> Result<String, String> {
    let others: Vec<_> =
        Method::ALL.map(Method::level).into_iter().chain([NAIVE_COMPILED]).collect();
    factors::function(text, &others)
}

impl Default for ThroughputParams {
    fn default() -> Self {
        Self {
            direction: Direction::Write,
            memory: Kind::Heap,
            length: Lengths::Fixed(64 << 10),
            function: "glibc".into(),
            threads: 0,
            mode: Mode::Jobs,
            offset: 0,
            usage: Use::Throughput,
            touch: Touch::Warm,
            buffers: Buffers::One,
        }
    }
}

impl ThroughputParams {
    /// The method of mbw's, where that is the function.
    pub(super) fn mbw(&self) -> Option<Method> {
        Method::of_level(&self.function)
    }

    /// Whether a copy is system calls on a file, so that the function plays no part.
    pub(super) fn by_system_call(&self) -> bool {
        self.memory == Kind::FileIo
    }

    /// Whether the levels go together.
    ///
    /// # Errors
    /// Says which do not, and what would.
    pub(super) fn consistent(&self) -> Result<(), Failure> {
        let no = |why: &str, remedy: &str| Err(Failure::unavailable(why, remedy));
        if self.threads > 0 && self.usage == Use::Latency {
            return no("a chain of dependent copies has one thread", "use threads = 0");
        }
        if self.threads > 0 && self.by_system_call() {
            return no("file-io is measured in the caller alone", "use threads = 0");
        }
        if self.touch == Touch::Cold && self.buffers == Buffers::Rotating {
            return no("a first touch has no buffers to rotate through", "use buffers = one");
        }
        let destination_is_memory = self.direction == Direction::Write;
        if self.touch == Touch::Cold && destination_is_memory && !self.memory.can_be_cold() {
            return no("pages of this memory cannot be taken away", "use touch = warm");
        }
        let rotates = self.buffers == Buffers::Rotating;
        if rotates && self.memory.most().is_some_and(|most| most < LEAST_ROTATING) {
            return no("too little of this memory is mapped to rotate", "use buffers = one");
        }
        let plain = Self {
            length: self.length.clone(),
            function: self.function.clone(),
            ..Self::default()
        };
        if self.mbw().is_some() && (*self != plain || !self.length.is_fixed()) {
            return no(
                "mbw copies on its heap, alone, one length",
                "leave the other factors at their defaults",
            );
        }
        Ok(())
    }
}

/// What a person set by name for this suite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Choices {
    /// Copies of a batch at least: the seed's `-r`.
    pub(super) runs: usize,
    /// The pause of a copy by four bytes: the seed's `-z`.
    pub(super) pause: Option<Duration>,
    /// What is added to each byte of the source: the seed's `-o`.
    pub(super) source_offset: Option<u8>,
    /// The source is only filled where it is the program's own memory: the seed's `-i 1`.
    pub(super) keep_memory: bool,
}

/// The options by which a person sets [`Choices`].
pub const RUNS: &str = "runs";
/// See [`RUNS`].
pub const PAUSE: &str = "pause";
/// See [`RUNS`].
pub const SOURCE_OFFSET: &str = "source-offset";
/// See [`RUNS`].
pub const KEEP_MEMORY: &str = "keep-memory";

/// The most copies that a batch can be told to have.
pub const MOST_RUNS: u64 = 1_000_000_000;
/// The longest pause, seconds.
pub const MOST_PAUSE: u64 = 3600;

impl Choices {
    /// Reads the options.
    pub(super) fn of(options: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let number = |name: &str, most: u64| match options.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(number) if number <= most => Ok(Some(number)),
                _ => Err(Failure::failed(format!(
                    "option {name}: '{text}' is not a whole number up to {most}"
                ))),
            },
        };
        Ok(Self {
            runs: number(RUNS, MOST_RUNS)?.unwrap_or(1).max(1) as usize,
            pause: number(PAUSE, MOST_PAUSE)?.filter(|s| *s > 0).map(Duration::from_secs),
            // The seed adds it to an index modulo 256.
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
    fn a_point_is_read_whole() {
        let point = Point::from([
            ("direction", "read"),
            ("memory", "shared"),
            ("length", "uniform 1..64 B"),
            ("function", "avx2"),
            ("threads", "4"),
            ("mode", "split"),
            ("offset", "32"),
            ("buffers", "rotating"),
        ]);
        let params = ThroughputParams::with_defaults(&point).unwrap();
        let wanted = ThroughputParams {
            direction: Direction::Read,
            memory: Kind::Shared,
            length: Lengths::Uniform(1, 64),
            function: "avx2".into(),
            threads: 4,
            mode: Mode::Split,
            offset: 32,
            usage: Use::Throughput,
            touch: Touch::Warm,
            buffers: Buffers::Rotating,
        };
        assert_eq!(params, wanted);
        assert_eq!(params.consistent(), Ok(()));
        assert_eq!(
            ThroughputParams::with_defaults(&Point::default()).unwrap(),
            ThroughputParams::default()
        );
    }

    #[test]
    fn counts_of_a_point_are_bounded() {
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
            assert!(failure.why.starts_with(&format!("factor '{factor}': '{level}'")), "{failure}");
            assert_eq!(failure.why.lines().count(), 1);
        }
    }

    #[test]
    fn what_does_not_go_together_says_what_would() {
        let refused = [
            [("threads", "2"), ("use", "latency")],
            [("threads", "2"), ("memory", "file-io")],
            [("touch", "cold"), ("memory", "file-io")],
            [("touch", "cold"), ("buffers", "rotating")],
            [("memory", "host-physical"), ("buffers", "rotating")],
            [("function", "mbw-dumb"), ("threads", "1")],
            [("function", "mbw-dumb"), ("length", "uniform 1..2 MiB")],
        ];
        for pairs in refused {
            let failure = ThroughputParams::with_defaults(&Point::from(pairs))
                .unwrap()
                .consistent()
                .unwrap_err();
            assert!(
                failure.remedy.unwrap().contains("default") || failure.why.len() > 10,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn choices() {
        let options =
            |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(Choices::of(&options(RUNS, "1000")).unwrap().runs, 1000);
        assert_eq!(Choices::of(&options(PAUSE, "2")).unwrap().pause, Some(Duration::from_secs(2)));
        assert_eq!(Choices::of(&options(PAUSE, "0")).unwrap().pause, None);
        assert_eq!(Choices::of(&options(SOURCE_OFFSET, "258")).unwrap().source_offset, Some(2));
        for (name, value) in [
            (RUNS, "many"),
            (RUNS, "1000000001"),
            (RUNS, "18446744073709551616"),
            (RUNS, "-1"),
            (PAUSE, "3601"),
            (PAUSE, "18446744073709551615"),
        ] {
            let failure = Choices::of(&options(name, value)).unwrap_err();
            assert!(failure.why.starts_with(&format!("option {name}: '{value}'")), "{failure}");
        }
    }
}
