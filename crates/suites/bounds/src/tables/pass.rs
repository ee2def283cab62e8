//! One pass: stores pointers a MiB apart, with or without bounds tables.

use std::io;

use lab::sample::Failure;
use machine::tsc::{self, Tsc};
use machine::usage::Usage;

use super::params::{SlotMemory, TableLifetime, TableParams, TableStrategy};
use super::slots::Slots;
use super::strategies::{Arena, Base, BoundsTables, Inline, Trap, Untracked};
use super::usage::InstructionCounters;

/// Size and memory of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// Number of pointers, and of tables.
    pub(super) count: usize,
    /// Whether each pointer has a separate mapping.
    pub(super) separate: bool,
    /// Whether each pointer's memory and table are freed before the next store.
    pub(super) freed: bool,
}

/// Cost of a pass: the total over all pointers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PassCost {
    /// ns; `None` without a usable clock.
    pub(super) time: Option<f64>,
    pub(super) usage: Usage,
    /// In user mode and in the kernel, if they are counted.
    pub(super) instructions: Option<[f64; 2]>,
}

impl Pass {
    pub(super) fn from_params(params: &TableParams) -> Self {
        Self {
            count: params.count,
            separate: match params.slots {
                SlotMemory::Own => true,
                SlotMemory::Shared => false,
            },
            freed: match params.life {
                TableLifetime::Freed => true,
                TableLifetime::Kept => false,
            },
        }
    }

    /// Runs a pass. Preparation and clean-up are outside the timed part.
    ///
    /// # Errors
    /// Returns `failed` if the system has no memory, and a failed check if the tables or bounds are not those stored.
    pub(super) fn run(
        &self,
        strategy: TableStrategy,
        tsc: Option<&Tsc>,
        counters: Option<&InstructionCounters>,
    ) -> Result<PassCost, Failure> {
        match strategy {
            TableStrategy::None => self.with(&mut Untracked, false, tsc, counters),
            TableStrategy::Inline => self.with(&mut Inline(Base::new()?), true, tsc, counters),
            TableStrategy::Trap => self.with(&mut Trap::new(Base::new()?)?, true, tsc, counters),
            TableStrategy::Arena => {
                let mut arena = Arena::new(Base::new()?, self.count)?;
                self.with(&mut arena, true, tsc, counters)
            }
        }
    }

    fn with<T: BoundsTables>(
        &self,
        tables: &mut T,
        tracked: bool,
        tsc: Option<&Tsc>,
        counters: Option<&InstructionCounters>,
    ) -> Result<PassCost, Failure> {
        let mut slots = Slots::new(self.separate, self.count)?;
        let before = counters.map(InstructionCounters::now).transpose()?;
        let usage = Usage::of_thread();
        let start = tsc::start();
        let stored = self.store_all(&mut slots, tables);
        let end = if tsc.is_some() { tsc::stop() } else { start };
        let usage = Usage::of_thread().since(usage);
        let after = counters.map(InstructionCounters::now).transpose()?;
        stored.map_err(|why| Failure::failed(format!("a table of 4 MiB: {why}")))?;
        let instructions =
            before.zip(after).map(|(before, after)| [after[0] - before[0], after[1] - before[1]]);
        if tracked {
            self.check(&slots, tables)?;
        }
        for address in slots.used() {
            tables.free(address)?;
        }
        let time = tsc.map(|tsc| {
            tsc.nanoseconds(end.saturating_sub(start).saturating_sub(tsc.overhead) as f64)
        });
        Ok(PassCost { time, usage, instructions })
    }

    #[inline(never)]
    fn store_all<T: BoundsTables>(&self, slots: &mut Slots, tables: &mut T) -> io::Result<()> {
        for number in 0..self.count {
            let address = slots.next()?;
            let pointer = pointer(number);
            // SAFETY: the slot is 8 aligned bytes of a mapping of `slots`.
            unsafe { (address as *mut u64).write_volatile(pointer) };
            tables.store(address, pointer)?;
            if self.freed {
                tables.free(address)?;
                slots.free(address)?;
            }
        }
        Ok(())
    }

    /// Checks that every pointer got a table and, if tables are kept, that the tables contain the bounds.
    fn check<T: BoundsTables>(&self, slots: &Slots, tables: &T) -> Result<(), Failure> {
        let (made, count) = (tables.made(), self.count);
        if made != count as u64 {
            return Err(Failure::check(format!("{made} tables were made for {count} pointers")));
        }
        if self.freed {
            return Ok(());
        }
        for (number, address) in slots.used().into_iter().enumerate() {
            if tables.stored_pointer(address) != Some(pointer(number)) {
                return Err(Failure::check(format!("the bounds of pointer {number} are lost")));
            }
        }
        Ok(())
    }
}

/// Returns the pointer to store; it is never dereferenced.
#[inline(always)]
fn pointer(number: usize) -> u64 {
    (number as u64).wrapping_add(1) << 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::memory::SmallPages;

    fn cost(strategy: TableStrategy, separate: bool, freed: bool) -> PassCost {
        let pass = Pass { count: 300, separate, freed };
        pass.run(strategy, Tsc::get().ok(), None).unwrap()
    }

    #[test]
    fn every_strategy_makes_a_table_for_each_pointer() {
        let _small_pages = SmallPages::only();
        for separate in [false, true] {
            for freed in [false, true] {
                let plain = cost(TableStrategy::None, separate, freed).usage.faults();
                assert!(plain >= 300, "{separate} {freed}: {plain}");
                for strategy in [TableStrategy::Inline, TableStrategy::Trap, TableStrategy::Arena] {
                    // At least one fault for the pointer's page and one for the table's.
                    let faults = cost(strategy, separate, freed).usage.faults();
                    assert!(faults >= 600, "{strategy} {separate} {freed}: {faults}");
                }
            }
        }
    }

    #[test]
    fn a_fault_elsewhere_still_ends_the_process() {
        use std::os::unix::process::ExitStatusExt as _;
        const CRASH: &str = "TOLLGATE_TEST_CRASH";
        if std::env::var_os(CRASH).is_some() {
            let _trap = Trap::new(Base::new().unwrap()).unwrap();
            // SAFETY: the write faults, which is the purpose of the test.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "tables::pass::tests::a_fault_elsewhere_still_ends_the_process";
        command.args(["--exact", name]).env(CRASH, "1");
        assert_eq!(command.output().unwrap().status.signal(), Some(libc::SIGSEGV));
    }
}
