//! The counts that a user can set, with their limits. They are the same in a `.conf` file, as a level, and as an
//! option.

use std::ops::RangeInclusive;

use lab::quantity;

/// The minimum and the maximum of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The minimum.
    pub min: u64,
    /// The maximum.
    pub max: u64,
}

/// `NumHeapPages`, pages: at most 64 GiB.
pub const HEAP: Limit = Limit::up_to(1 << 24);
/// `NumStackPages`, pages of each thread: at most 256 MiB.
pub const STACK: Limit = Limit::up_to(1 << 16);
/// `NumTCS`.
pub const TCS: Limit = Limit::up_to(1024);
/// `Debug`.
pub const DEBUG: Limit = Limit { min: 0, max: 1 };
/// Host threads.
pub const THREADS: Limit = Limit::up_to(1024);
/// Allocations per thread.
pub const ALLOCATIONS: Limit = Limit::up_to(1_000_000_000);
/// The upper bound of an allocation's size, in bytes.
pub const SIZE: Limit = Limit::up_to(1 << 40);
/// Customers of the bank, whose names have eight digits.
pub const ACCOUNTS: Limit = Limit::up_to(100_000_000);
/// Transactions of all threads.
pub const TRANSACTIONS: Limit = Limit::up_to(1_000_000_000);

impl Limit {
    const fn up_to(max: u64) -> Self {
        Self { min: 1, max }
    }

    /// Returns all valid values.
    pub fn range(self) -> RangeInclusive<u64> {
        self.min..=self.max
    }

    /// Returns all valid values as arguments, whose type is signed.
    pub fn arguments(self) -> RangeInclusive<i64> {
        self.min.cast_signed()..=self.max.cast_signed()
    }

    /// Returns the value if it is within the limits.
    ///
    /// # Errors
    /// Returns one line that names `what` and the limits.
    pub fn check(self, what: &str, value: u64) -> Result<u64, String> {
        if self.range().contains(&value) { Ok(value) } else { Err(self.wrong(what, value)) }
    }

    /// Parses a count: only decimal digits, because `parse` also accepts a sign.
    ///
    /// # Errors
    /// Returns one line that names `what` and the limits.
    pub fn read(self, what: &str, text: &str) -> Result<u64, String> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = digits.then(|| text.parse().ok()).flatten();
        let value = value.ok_or_else(|| self.wrong(what, format!("'{text}'")))?;
        self.check(what, value)
    }

    /// Parses a level that is a count.
    ///
    /// # Errors
    /// Returns one line that states the limits.
    pub fn level(self, text: &str) -> Result<String, String> {
        self.read("it", text).map(|value| value.to_string())
    }

    /// Parses a level that is a number of bytes.
    ///
    /// # Errors
    /// Returns one line that states the format or the limits.
    pub fn bytes(self, text: &str) -> Result<String, String> {
        let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
        self.check("it", bytes).map(quantity::format_bytes)
    }

    fn wrong(self, what: &str, value: impl std::fmt::Display) -> String {
        format!("{what} is {value}: give a number from {} to {}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_beyond_a_limit_are_refused_in_one_line() {
        for text in ["0", "1025", "4503599627374592", "99999999999999999999", "+8", "-1", "8 ", ""]
        {
            let why = TCS.level(text).unwrap_err();
            assert!(why.contains("give a number from 1 to 1024") && !why.contains('\n'), "{why}");
        }
        assert_eq!(TCS.level("1024").as_deref(), Ok("1024"));
        assert_eq!(TCS.level("007").as_deref(), Ok("7"));
        assert!(SIZE.bytes("0 B").is_err() && SIZE.bytes("2 TiB").is_err());
        assert_eq!(SIZE.bytes("65536").as_deref(), Ok("64 KiB"));
    }

    proptest! {
        #[test]
        fn parsed_counts_are_within_their_limits(text in "[0-9]{0,25}|.*") {
            for limit in [HEAP, STACK, TCS, DEBUG, THREADS, ALLOCATIONS, ACCOUNTS, TRANSACTIONS] {
                match limit.read("it", &text) {
                    Ok(value) => prop_assert!(limit.range().contains(&value)),
                    Err(why) => prop_assert!(why.contains("give a number from"), "{}", why),
                }
            }
            let _ = SIZE.bytes(&text);
        }
    }
}
