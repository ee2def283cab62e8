//! What a point asks for.

// Levels may be any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::time::Duration;

use lab::point::Point;
use lab::sample::Failure;

use super::layout::LEAST_ROTATING;
use crate::factors;
use crate::lengths::Lengths;
use crate::limit::mbw::Method;
use crate::memory::Kind;

/// Whether the program writes to the memory or reads from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Write,
    Read,
}

/// What threads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Jobs,
    Split,
    Queue,
}

/// What is done with a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Throughput,
    Latency,
}

/// Whether the destination's pages are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    Warm,
    Cold,
}

/// One pair of buffers, or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    One,
    Rotating,
}

/// A point of the copying experiments; what an experiment leaves out is as in the seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) direction: Direction,
    pub(super) memory: Kind,
    pub(super) lengths: Lengths,
    pub(super) function: String,
    pub(super) threads: usize,
    pub(super) mode: Mode,
    pub(super) offset: usize,
    pub(super) reads: Use,
    pub(super) touch: Touch,
    pub(super) buffers: Buffers,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            direction: Direction::Write,
            memory: Kind::Heap,
            lengths: Lengths::Fixed(64 << 10),
            function: "glibc".into(),
            threads: 0,
            mode: Mode::Jobs,
            offset: 0,
            reads: Use::Throughput,
            touch: Touch::Warm,
            buffers: Buffers::One,
        }
    }
}

impl Settings {
    /// Reads a point, whose levels were checked when it was planned.
    pub(super) fn of(point: &Point) -> Result<Self, Failure> {
        let mut settings = Self::default();
        for (factor, level) in point.0.iter() {
            let level = level.as_str();
            let read = match factor.as_str() {
                "memory" => Kind::parse(level).map(|kind| settings.memory = kind),
                "length" => Lengths::parse(level).map(|lengths| settings.lengths = lengths),
                "threads" => factors::threads(level).map(|threads| settings.threads = threads),
                "offset" => factors::offset(level).map(|offset| settings.offset = offset),
                _ => {
                    settings.name(factor, level);
                    Ok(())
                }
            };
            read.map_err(|why| Failure::failed(format!("factor '{factor}': {why}")))?;
        }
        Ok(settings)
    }

    fn name(&mut self, factor: &str, level: &str) {
        match (factor, level) {
            ("function", name) => self.function = name.into(),
            ("direction", "read") => self.direction = Direction::Read,
            ("mode", "split") => self.mode = Mode::Split,
            ("mode", "queue") => self.mode = Mode::Queue,
            ("use", "latency") => self.reads = Use::Latency,
            ("touch", "cold") => self.touch = Touch::Cold,
            ("buffers", "rotating") => self.buffers = Buffers::Rotating,
            // The other level of each is the default.
            _ => {}
        }
    }

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
        if self.threads > 0 && self.reads == Use::Latency {
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
            lengths: self.lengths.clone(),
            function: self.function.clone(),
            ..Self::default()
        };
        if self.mbw().is_some() && (*self != plain || !self.lengths.is_fixed()) {
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
        let settings = Settings::of(&point).unwrap();
        let wanted = Settings {
            direction: Direction::Read,
            memory: Kind::Shared,
            lengths: Lengths::Uniform(1, 64),
            function: "avx2".into(),
            threads: 4,
            mode: Mode::Split,
            offset: 32,
            reads: Use::Throughput,
            touch: Touch::Warm,
            buffers: Buffers::Rotating,
        };
        assert_eq!(settings, wanted);
        assert_eq!(settings.consistent(), Ok(()));
        assert_eq!(Settings::of(&Point::default()).unwrap(), Settings::default());
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
            let failure = Settings::of(&Point::from([(factor, level)])).unwrap_err();
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
            let failure = Settings::of(&Point::from(pairs)).unwrap().consistent().unwrap_err();
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
