//! The programs: the kernels with their data and expected results, what a kernel prints, and the planted bugs.

use lab::factor::LevelType;
use lab::sample::Failure;
use serde::Deserialize;

/// Timed program. The first four are of Intel MPX Explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, LevelType, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kernel {
    #[level("arraywrite")]
    ArrayWrite,
    #[level("arrayread")]
    ArrayRead,
    Struct,
    #[level("ptrcreation")]
    PtrCreation,
    Mallocs,
    #[level("funccalls")]
    FuncCalls,
}

/// Planted bug of the program `bugs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Bug {
    /// Past the end of a heap block.
    Heap,
    /// Past the end of a stack array.
    Stack,
    /// Past the end of a member of a struct.
    Struct,
    /// Far past a heap block.
    Far,
    /// After the block was freed.
    UseAfterFree,
    /// Past a heap block, by `memcpy`.
    Memcpy,
}

/// Operations and checksum that a kernel must report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Accesses, calls or blocks in the timed pass.
    pub(super) operations: u64,
    /// Sum of the values that the program wrote or read.
    pub(super) checksum: u64,
}

impl Kernel {
    /// Returns the bytes of its data for a size of the char array.
    pub(super) fn data(self, size: u64) -> u64 {
        match self {
            Self::ArrayWrite | Self::ArrayRead | Self::PtrCreation => size,
            Self::Struct => size.saturating_mul(2),
            Self::Mallocs | Self::FuncCalls => 4096,
        }
    }

    /// Returns whether its data are pointers.
    pub(super) fn has_pointers(self) -> bool {
        match self {
            Self::PtrCreation => true,
            Self::ArrayWrite | Self::ArrayRead | Self::Struct | Self::Mallocs | Self::FuncCalls => {
                false
            }
        }
    }

    /// Returns what the program must report. `written` states whether the array to read was written before; fresh
    /// memory reads as zero.
    pub(super) fn expected(self, size: u64, written: bool) -> Expected {
        let (operations, checksum) = match self {
            // The bytes of an array are the low bytes of their indices. Indices descend.
            Self::ArrayWrite => {
                let writes = size.div_ceil(3);
                (writes, sum_of_bytes(writes, |k| (size - 1).wrapping_sub(3 * k)))
            }
            Self::ArrayRead => {
                let reads = size.div_ceil(2);
                let sum = sum_of_bytes(reads, |k| (size - 1).wrapping_sub(2 * k));
                (reads, if written { sum } else { 0 })
            }
            // i and i + 1 for each struct, as 32-bit words; there are fewer than 2^32 structs.
            Self::Struct => (size / 8 * 2, (size / 8).wrapping_mul(size / 8)),
            // Five pointers, numbered from 1, per six elements.
            Self::PtrCreation => (size / 48 * 5, size / 48 * 15),
            Self::Mallocs => (size / 64, sum_of_bytes(size / 64, |k| k)),
            Self::FuncCalls => (size / 8, sum_of_counters(size / 8)),
        };
        Expected { operations, checksum }
    }
}

/// Returns the sum of the low bytes of `value(0)` to `value(count - 1)`, which repeat with a period of 256.
fn sum_of_bytes(count: u64, value: impl Fn(u64) -> u64) -> u64 {
    const PERIOD: u64 = 256;
    let sum = |count: u64| (0..count).map(|k| value(k) % PERIOD).sum::<u64>();
    // `value` may overflow for indices of `count` and above.
    let periods = count / PERIOD;
    let whole = if periods > 0 { periods * sum(PERIOD) } else { 0 };
    whole + sum(count % PERIOD)
}

/// Returns the sum of 1024 32-bit counters to which 0 to `count - 1` were added round-robin.
fn sum_of_counters(count: u64) -> u64 {
    const COUNTERS: u64 = 1024;
    let sum_of = |counter: u64| {
        let terms = (count + COUNTERS - 1 - counter) / COUNTERS;
        // counter + (counter + 1024) + ... is an arithmetic series.
        let rounds = u128::from(terms) * u128::from(terms.saturating_sub(1)) / 2;
        let sum = u128::from(terms) * u128::from(counter) + u128::from(COUNTERS) * rounds;
        (sum % (1 << 32)) as u64
    };
    (0..COUNTERS).map(sum_of).sum()
}

/// Output line of a kernel: `ticks=1 operations=2 checksum=3 memory=4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Printed {
    /// Ticks of the time-stamp counter in the timed part.
    pub(super) ticks: u64,
    pub(super) operations: u64,
    pub(super) checksum: u64,
    /// Maximum memory of the program, in bytes.
    pub(super) memory: u64,
}

impl Printed {
    /// Parses the output.
    ///
    /// # Errors
    /// Returns `failed` if a value is missing or is not a number.
    pub(super) fn parse(output: &str) -> Result<Self, Failure> {
        let line = output.trim();
        let unexpected = || Failure::failed(format!("unexpected output of the program: '{line}'"));
        let value = |key: &str| {
            let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
            let found = words.find(|(name, _)| *name == key);
            found.and_then(|(_, value)| value.parse().ok()).ok_or_else(unexpected)
        };
        Ok(Self {
            ticks: value("ticks")?,
            operations: value("operations")?,
            checksum: value("checksum")?,
            memory: value("memory")?,
        })
    }

    /// Checks that the program did the work of its kernel.
    ///
    /// # Errors
    /// Returns a failed check with both results.
    pub(super) fn check(&self, expected: Expected) -> Result<(), Failure> {
        let actual = Expected { operations: self.operations, checksum: self.checksum };
        if actual == expected && self.ticks > 0 {
            return Ok(());
        }
        let describe =
            |it: Expected| format!("{} operations with sum {}", it.operations, it.checksum);
        Err(Failure::check(format!(
            "the program did {} in {} ticks; expected {}",
            describe(actual),
            self.ticks,
            describe(expected)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a kernel operation by operation.
    fn simulated(kernel: Kernel, size: u64) -> Expected {
        let mut operations = 0;
        let mut checksum = 0_u64;
        let mut count = |value: u64| {
            operations += 1;
            checksum += value;
        };
        match kernel {
            Kernel::ArrayWrite => (0..size).rev().step_by(3).for_each(|i| count(i % 256)),
            Kernel::ArrayRead => (0..size).rev().step_by(2).for_each(|i| count(i % 256)),
            Kernel::Struct => (0..size / 8).for_each(|i| {
                count(i);
                count(i + 1);
            }),
            Kernel::PtrCreation => {
                (0..size / 48).for_each(|_| (1..=5).for_each(&mut count));
            }
            Kernel::Mallocs => (0..size / 64).for_each(|i| count(i % 256)),
            Kernel::FuncCalls => {
                let mut counters = [0_u32; 1024];
                for i in 0..size / 8 {
                    let counter = &mut counters[(i % 1024) as usize];
                    *counter = counter.wrapping_add(i as u32);
                }
                let checksum = counters.iter().map(|counter| u64::from(*counter)).sum();
                return Expected { operations: size / 8, checksum };
            }
        }
        Expected { operations, checksum }
    }

    #[test]
    fn expected_results_match_a_simulation() {
        for kernel in Kernel::ALL {
            for size in [0, 1, 1024, 4095, 4096, 100_000, 1 << 20] {
                assert_eq!(kernel.expected(size, true), simulated(kernel, size), "{kernel} {size}");
            }
        }
        assert_eq!(Kernel::ArrayRead.expected(4096, false).checksum, 0);
        // The counters wrap.
        let size = 256 << 20;
        let expected = Kernel::FuncCalls.expected(size, true);
        assert_eq!(expected, simulated(Kernel::FuncCalls, size));
    }

    #[test]
    fn a_printed_line_is_parsed_and_checked() {
        let printed = Printed::parse("ticks=10 operations=2 checksum=3 memory=4096\n").unwrap();
        assert_eq!(printed, Printed { ticks: 10, operations: 2, checksum: 3, memory: 4096 });
        let expected = Expected { operations: 2, checksum: 3 };
        assert!(printed.check(expected).is_ok());
        assert!(printed.check(Expected { checksum: 4, ..expected }).is_err());
        assert!(printed.check(Expected { operations: 1, ..expected }).is_err());
        assert!(Printed { ticks: 0, ..printed }.check(expected).is_err());
        for wrong in ["", "ticks=10", "ticks=-1 operations=2 checksum=3 memory=4", "done"] {
            assert!(Printed::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn parsing_does_not_panic(
            line in "(ticks|operations|checksum|memory|=|[0-9]{1,22}| ){0,16}"
        ) {
            let _ = Printed::parse(&line);
        }
    }
}
