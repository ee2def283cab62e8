//! What a point of the tables asks for, and whether the system has room for it.

use std::time::Duration;

use lab::point::Point;
use lab::sample::Failure;

use super::pass::{Kind, Pass};

/// Mappings that the rest of the process may have.
const OTHERS: u64 = 1000;
/// Memory that a pointer and its table take: their pages, and those of the page tables above both.
const BYTES: u64 = 4 * 4096;
/// What a pointer takes at most with its table, and once more without; freeing behind is as much again.
const EACH: Duration = Duration::from_micros(25);

/// The most tables: their addresses are a third of those that a program has.
pub(super) const MAX_COUNT: usize = 10_000_000;

/// A point's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) kind: Kind,
    pub(super) pass: Pass,
    /// Whether instructions are to be counted.
    pub(super) counted: bool,
}

impl Setting {
    /// Reads a point.
    ///
    /// # Errors
    /// Where its number of tables is 0.
    pub(super) fn of(point: &Point) -> Result<Self, Failure> {
        let kind = match point.text("tables") {
            "inline" => Kind::Inline,
            "trap" => Kind::Trap,
            "arena" => Kind::Arena,
            _ => Kind::None,
        };
        let count = point.get("count").and_then(|level| level.count()).unwrap_or(3000);
        let within = usize::try_from(count).ok().filter(|count| (1..=MAX_COUNT).contains(count));
        let count = within.ok_or_else(|| {
            let remedy = format!("set count to a number from 1 to {MAX_COUNT}");
            Failure::unavailable(format!("{count} tables of bounds"), remedy)
        })?;
        let (own, freed) = (point.text("slots") == "own", point.text("life") == "freed");
        let pass = Pass { count, own, freed };
        Ok(Self { kind, pass, counted: point.text("counted") == "instructions" })
    }

    /// Mappings that are there at once at most: neighbours may become one.
    fn mappings(&self) -> u64 {
        let each =
            u64::from(self.pass.own) + u64::from(matches!(self.kind, Kind::Inline | Kind::Trap));
        if self.pass.freed { 2 } else { self.pass.count as u64 * each }
    }

    /// Whether the system has room for them.
    ///
    /// # Errors
    /// For what it has none, and the remedy.
    pub(super) fn room(&self, allowed: u64, memory: u64) -> Result<(), Failure> {
        let needed = self.mappings() + OTHERS;
        if needed > allowed {
            return Err(Failure::unavailable(
                format!(
                    "{} tables take up to {needed} mappings and vm.max_map_count is {allowed}",
                    self.pass.count
                ),
                format!("sysctl -w vm.max_map_count={needed}"),
            ));
        }
        let bytes = if self.pass.freed { 0 } else { self.pass.count as u64 * BYTES };
        if bytes > memory / 2 {
            return Err(Failure::unavailable(
                format!(
                    "{} tables take {} MiB and {} are free",
                    self.pass.count,
                    bytes >> 20,
                    memory >> 20
                ),
                "free memory or make fewer tables",
            ));
        }
        Ok(())
    }

    /// How long a sample takes.
    pub(super) fn expected(&self, budget: Duration) -> Duration {
        budget + EACH.saturating_mul(u32::try_from(self.pass.count).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;

    fn setting(tables: &str, slots: &str, life: &str, count: &str) -> Setting {
        let point =
            Point::from([("tables", tables), ("slots", slots), ("life", life), ("count", count)]);
        Setting::of(&point).unwrap()
    }

    #[test]
    fn more_mappings_than_the_kernel_allows_are_refused_with_the_remedy() {
        let memory = 64 << 30;
        assert_eq!(setting("inline", "own", "kept", "30000").room(65530, memory), Ok(()));
        let why = setting("trap", "own", "kept", "40000").room(65530, memory).unwrap_err();
        assert_eq!(why.kind, FailureKind::Unavailable);
        assert!(why.why.contains("81000 mappings") && why.why.contains("65530"), "{why}");
        assert_eq!(why.remedy.as_deref(), Some("sysctl -w vm.max_map_count=81000"));
        // One mapping for all, or two at a time, need no more.
        assert_eq!(setting("arena", "shared", "kept", "40000").room(65530, memory), Ok(()));
        assert_eq!(setting("inline", "own", "freed", "40000").room(65530, memory), Ok(()));
    }

    #[test]
    fn counts_are_bounded_and_the_bounds_are_told() {
        for outside in ["0", "10000001", "18446744073709551615"] {
            let point = Point::from([("tables", "inline"), ("count", outside)]);
            let failure = Setting::of(&point).unwrap_err();
            assert_eq!(failure.why, format!("{outside} tables of bounds"));
            assert!(failure.remedy.unwrap().contains("from 1 to 10000000"));
        }
    }

    #[test]
    fn more_memory_than_is_free_is_refused() {
        let why = setting("arena", "shared", "kept", "100000").room(65530, 1 << 30).unwrap_err();
        assert!(why.why.contains("1562 MiB"), "{why}");
    }
}
