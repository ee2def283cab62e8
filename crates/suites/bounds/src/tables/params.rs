//! Parameters of `bounds/tables`, and the mappings and memory that they need.

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::sample::Failure;

/// Mappings reserved for the remainder of the process.
const OTHER_MAPPINGS: u64 = 1000;
/// Bytes of memory per pointer with its table: one page each, and one page of page tables for each.
const BYTES_PER_POINTER: u64 = 4 * 4096;
/// Upper limit of the time per pointer: with its table, without it, and freeing both.
const TIME_PER_POINTER: Duration = Duration::from_micros(25);

/// Maximum number of tables: their addresses take a third of the address space of a process.
pub(super) const MAX_COUNT: usize = 10_000_000;

/// How the table of a pointer is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum TableStrategy {
    /// No tables: the baseline.
    None,
    /// The store checks for a table and maps one if it is missing.
    Inline,
    /// The store faults if the table is missing, and the handler maps one.
    Trap,
    /// The store checks for a table and takes one from a single mapping if it is missing.
    Arena,
}

impl TableStrategy {
    /// Whether the other strategies are compared with it.
    pub(super) fn is_baseline(self) -> bool {
        match self {
            Self::None => true,
            Self::Inline | Self::Trap | Self::Arena => false,
        }
    }
}

/// Lifetime of a pointer's memory and table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum TableLifetime {
    /// Until the end of the pass.
    Kept,
    /// Until the next pointer is stored.
    Freed,
}

/// Memory that contains the pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum SlotMemory {
    /// A mapping for each pointer.
    Own,
    /// One mapping for all pointers.
    Shared,
}

/// Counters recorded besides time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Counted {
    Time,
    Instructions,
}

/// Params of `tables`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct TableParams {
    /// none; inline: the store checks for a table and maps it; trap: the fault handler does; arena: from one mapping
    #[factor(default = "inline")]
    pub(super) tables: TableStrategy,
    /// kept, or freed with the pointer's memory before the next pointer is stored
    #[factor(default = "kept")]
    pub(super) life: TableLifetime,
    /// own: a mapping for each pointer; shared: one mapping for all
    #[factor(default = "own")]
    pub(super) slots: SlotMemory,
    /// time only, or also instructions by performance counters
    #[factor(default = "time")]
    pub(super) counted: Counted,
    /// the number of pointers, each with a separate table
    #[factor(default = "3000", levels = Levels::Count(1, MAX_COUNT as u64))]
    pub(super) count: usize,
}

impl TableParams {
    /// Returns the maximum number of mappings at one time. The kernel may merge adjacent ones.
    fn mappings(&self) -> u64 {
        let per_table = match self.tables {
            TableStrategy::Inline | TableStrategy::Trap => 1,
            TableStrategy::None | TableStrategy::Arena => 0,
        };
        let per_slot = match self.slots {
            SlotMemory::Own => 1,
            SlotMemory::Shared => 0,
        };
        match self.life {
            TableLifetime::Kept => self.count as u64 * (per_slot + per_table),
            TableLifetime::Freed => 2,
        }
    }

    /// Checks that the system has enough mappings (of `max_mappings`) and memory (of `free` bytes).
    ///
    /// # Errors
    /// Returns `unavailable` with the shortage and the remedy.
    pub(super) fn check_capacity(&self, max_mappings: u64, free: u64) -> Result<(), Failure> {
        let needed = self.mappings() + OTHER_MAPPINGS;
        if needed > max_mappings {
            return Err(Failure::unavailable(
                format!(
                    "{} tables need up to {needed} mappings; vm.max_map_count is {max_mappings}",
                    self.count
                ),
                format!("sysctl -w vm.max_map_count={needed}"),
            ));
        }
        let bytes = match self.life {
            TableLifetime::Kept => self.count as u64 * BYTES_PER_POINTER,
            TableLifetime::Freed => 0,
        };
        if bytes > free / 2 {
            return Err(Failure::unavailable(
                format!(
                    "{} tables need {} MiB; {} MiB are free",
                    self.count,
                    bytes >> 20,
                    free >> 20
                ),
                "free memory or reduce the number of tables",
            ));
        }
        Ok(())
    }

    /// Returns how long a sample takes.
    pub(super) fn expected(&self, budget: Duration) -> Duration {
        budget + TIME_PER_POINTER.saturating_mul(u32::try_from(self.count).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;

    fn params(
        tables: TableStrategy,
        slots: SlotMemory,
        life: TableLifetime,
        count: usize,
    ) -> TableParams {
        TableParams { tables, life, slots, counted: Counted::Time, count }
    }

    #[test]
    fn the_remedy_for_too_few_mappings_is_the_setting_to_raise() {
        use {SlotMemory::*, TableLifetime::*, TableStrategy::*};
        let check = |params: TableParams| params.check_capacity(65530, 64 << 30);
        assert_eq!(check(params(Inline, Own, Kept, 30000)), Ok(()));
        let failure = check(params(Trap, Own, Kept, 40000)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        let why = &failure.why;
        assert!(why.contains("81000 mappings") && why.contains("65530"), "{why}");
        assert_eq!(failure.remedy.as_deref(), Some("sysctl -w vm.max_map_count=81000"));
        // One mapping for all pointers, or two at a time, need no more.
        assert_eq!(check(params(Arena, Shared, Kept, 40000)), Ok(()));
        assert_eq!(check(params(Inline, Own, Freed, 40000)), Ok(()));
    }

    #[test]
    fn tables_that_do_not_fit_into_free_memory_are_unavailable() {
        let params = params(TableStrategy::Arena, SlotMemory::Shared, TableLifetime::Kept, 100_000);
        let failure = params.check_capacity(65530, 1 << 30).unwrap_err();
        assert!(failure.why.contains("1562 MiB"), "{failure}");
    }
}
