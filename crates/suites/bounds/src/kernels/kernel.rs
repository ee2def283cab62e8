//! The kernels: how large their data are, and what their programs must find.

use lab::sample::Failure;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    ArrayWrite,
    ArrayRead,
    Struct,
    PtrCreation,
    Mallocs,
    FuncCalls,
}

/// The levels of the factor `kernel`: the source's four first.
pub(super) const NAMES: &[&str] =
    &["arraywrite", "arrayread", "struct", "ptrcreation", "mallocs", "funccalls"];

const ALL: [Kernel; 6] = [
    Kernel::ArrayWrite,
    Kernel::ArrayRead,
    Kernel::Struct,
    Kernel::PtrCreation,
    Kernel::Mallocs,
    Kernel::FuncCalls,
];

/// What a program of a kernel must have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Accesses, calls or blocks in the timed pass.
    pub(super) operations: u64,
    /// The sum that the program forms of what it wrote or read.
    pub(super) checksum: u64,
}

impl Kernel {
    /// A kernel by its name.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn of(name: &str) -> Result<Self, Failure> {
        let named = ALL.into_iter().find(|kernel| kernel.name() == name);
        named.ok_or_else(|| Failure::failed(format!("'{name}' is not one of {}", NAMES.join(", "))))
    }

    pub(super) fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Bytes of its data at a size.
    pub(super) fn data(self, size: u64) -> u64 {
        match self {
            Self::ArrayWrite | Self::ArrayRead => size,
            Self::Struct => size.saturating_mul(2),
            Self::PtrCreation => size,
            Self::Mallocs | Self::FuncCalls => 4096,
        }
    }

    /// Whether its data are pointers.
    pub(super) fn holds_pointers(self) -> bool {
        self == Self::PtrCreation
    }

    /// What its program must print. `written` where the array that is read was written before, and not
    /// as it came from the system.
    pub(super) fn expected(self, size: u64, written: bool) -> Expected {
        let (operations, checksum) = match self {
            // The bytes of an array are those of their indices, from the last downwards.
            Self::ArrayWrite => {
                let writes = size.div_ceil(3);
                (writes, sum_of_bytes(writes, |k| (size - 1).wrapping_sub(3 * k)))
            }
            Self::ArrayRead => {
                let reads = size.div_ceil(2);
                let sum = sum_of_bytes(reads, |k| (size - 1).wrapping_sub(2 * k));
                (reads, if written { sum } else { 0 })
            }
            // i and i + 1 for each struct, as words of 32 bits; there are fewer than 2^32 structs.
            Self::Struct => (size / 8 * 2, (size / 8).wrapping_mul(size / 8)),
            // Five pointers, numbered from 1, to every six places.
            Self::PtrCreation => (size / 48 * 5, size / 48 * 15),
            Self::Mallocs => (size / 64, sum_of_bytes(size / 64, |k| k)),
            Self::FuncCalls => (size / 8, sum_of_counters(size / 8)),
        };
        Expected { operations, checksum }
    }
}

/// The sum of the low bytes of `value(0)`, `value(1)` and so on, so many of them, where these bytes
/// repeat after 256.
fn sum_of_bytes(count: u64, value: impl Fn(u64) -> u64) -> u64 {
    const PERIOD: u64 = 256;
    let sum = |count: u64| (0..count).map(|k| value(k) % PERIOD).sum::<u64>();
    // No value is asked for where there is none.
    let periods = count / PERIOD;
    let whole = if periods > 0 { periods * sum(PERIOD) } else { 0 };
    whole + sum(count % PERIOD)
}

/// The sum of 1024 counters of 32 bits, to which 0, 1, 2 and so on are added in turn.
fn sum_of_counters(count: u64) -> u64 {
    const COUNTERS: u64 = 1024;
    let added = |counter: u64| {
        let times = (count + COUNTERS - 1 - counter) / COUNTERS;
        // counter + (counter + 1024) + ...: halves of an even product.
        let rounds = u128::from(times) * u128::from(times.saturating_sub(1)) / 2;
        let sum = u128::from(times) * u128::from(counter) + u128::from(COUNTERS) * rounds;
        (sum % (1 << 32)) as u64
    };
    (0..COUNTERS).map(added).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kernel once more, as it is told, with nothing spared.
    fn slowly(kernel: Kernel, size: u64) -> Expected {
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
    fn what_is_expected_is_what_the_kernels_do() {
        for kernel in ALL {
            for size in [0, 1, 1024, 4095, 4096, 100_000, 1 << 20] {
                assert_eq!(kernel.expected(size, true), slowly(kernel, size), "{kernel:?} {size}");
            }
        }
        assert_eq!(Kernel::ArrayRead.expected(4096, false).checksum, 0);
        // The counters wrap.
        let size = 256 << 20;
        let expected = Kernel::FuncCalls.expected(size, true);
        assert_eq!(expected, slowly(Kernel::FuncCalls, size));
    }

    #[test]
    fn names_and_kernels_go_together() {
        for (kernel, name) in ALL.into_iter().zip(NAMES) {
            assert_eq!((kernel.name(), Kernel::of(name).unwrap()), (*name, kernel));
        }
        assert!(Kernel::of("qsort").is_err());
    }
}
