//! What a kernel's program prints.

use lab::sample::Failure;

use super::kernel::Expected;

/// `ticks=1 operations=2 checksum=3 memory=4`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Printed {
    /// Of the time-stamp counter, in the timed part.
    pub(super) ticks: u64,
    pub(super) operations: u64,
    pub(super) checksum: u64,
    /// Most memory that it had, bytes.
    pub(super) memory: u64,
}

impl Printed {
    /// Reads the one line.
    ///
    /// # Errors
    /// It is another.
    pub(super) fn parse(output: &str) -> Result<Self, Failure> {
        let line = output.trim();
        let wrong = || Failure::failed(format!("the program printed '{line}'"));
        let value = |key: &str| {
            let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
            let found = words.find(|(name, _)| *name == key);
            found.and_then(|(_, value)| value.parse().ok()).ok_or_else(wrong)
        };
        Ok(Self {
            ticks: value("ticks")?,
            operations: value("operations")?,
            checksum: value("checksum")?,
            memory: value("memory")?,
        })
    }

    /// Whether the program did what its kernel does.
    ///
    /// # Errors
    /// What it did instead.
    pub(super) fn check(&self, expected: Expected) -> Result<(), Failure> {
        let did = Expected { operations: self.operations, checksum: self.checksum };
        if did == expected && self.ticks > 0 {
            return Ok(());
        }
        let told = |it: Expected| format!("{} operations with sum {}", it.operations, it.checksum);
        let (did, due) = (told(did), told(expected));
        Err(Failure::check(format!("the program did {did} in {} ticks, not {due}", self.ticks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn its_line_is_read_and_checked() {
        let printed = Printed::parse("ticks=10 operations=2 checksum=3 memory=4096\n").unwrap();
        assert_eq!(printed, Printed { ticks: 10, operations: 2, checksum: 3, memory: 4096 });
        let due = Expected { operations: 2, checksum: 3 };
        assert!(printed.check(due).is_ok());
        assert!(printed.check(Expected { checksum: 4, ..due }).is_err());
        assert!(printed.check(Expected { operations: 1, ..due }).is_err());
        assert!(Printed { ticks: 0, ..printed }.check(due).is_err());
        for wrong in ["", "ticks=10", "ticks=-1 operations=2 checksum=3 memory=4", "done"] {
            assert!(Printed::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "(ticks|operations|checksum|memory|=|[0-9]{1,22}| ){0,16}") {
            let _ = Printed::parse(&line);
        }
    }
}
