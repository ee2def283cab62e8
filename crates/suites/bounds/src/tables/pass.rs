//! One pass: so many pointers stored, each in a MiB of its own, with or without tables.

use std::io;

use lab::sample::Failure;
use machine::tsc::{self, Tsc};

use super::instructions::Instructions;
use super::slots::Slots;
use super::usage::Usage;
use super::ways::{Arena, Base, Inline, Tables, Trap, Untracked};

/// How a pass goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    /// Pointers, and tables.
    pub(super) count: usize,
    /// Whether each pointer lies in memory of its own.
    pub(super) own: bool,
    /// Whether each pointer's memory, and its table, is freed at once.
    pub(super) freed: bool,
}

/// How tables are come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There are none: the baseline.
    None,
    /// The store looks and maps.
    Inline,
    /// The store faults and the handler maps.
    Trap,
    /// The store looks and takes one of a mapping.
    Arena,
}

/// What a pass took, all pointers together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Took {
    /// ns.
    pub(super) time: f64,
    pub(super) usage: Usage,
    /// In user mode and in the kernel, where they are counted.
    pub(super) instructions: Option<[f64; 2]>,
}

impl Pass {
    /// Makes a pass. All that it prepares and leaves is made before and freed behind what is timed.
    ///
    /// # Errors
    /// Where the system gives no memory; a failed check where bounds or tables are not what was stored.
    pub(super) fn run(
        &self,
        kind: Kind,
        tsc: &Tsc,
        counters: Option<&Instructions>,
    ) -> Result<Took, Failure> {
        match kind {
            Kind::None => self.with(&mut Untracked, false, tsc, counters),
            Kind::Inline => self.with(&mut Inline(Base::new()?), true, tsc, counters),
            Kind::Trap => self.with(&mut Trap::new(Base::new()?)?, true, tsc, counters),
            Kind::Arena => {
                let mut arena = Arena::new(Base::new()?, self.count)?;
                self.with(&mut arena, true, tsc, counters)
            }
        }
    }

    fn with<T: Tables>(
        &self,
        tables: &mut T,
        tracked: bool,
        tsc: &Tsc,
        counters: Option<&Instructions>,
    ) -> Result<Took, Failure> {
        let mut slots = Slots::new(self.own, self.count)?;
        let counted = counters.map(Instructions::now).transpose()?;
        let usage = Usage::now();
        let begin = tsc::start();
        let stored = self.store_all(&mut slots, tables);
        let ticks = tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead);
        let usage = Usage::now() - usage;
        let now = counters.map(Instructions::now).transpose()?;
        stored.map_err(|why| Failure::failed(format!("a table of 4 MiB: {why}")))?;
        let instructions =
            counted.zip(now).map(|(before, now)| [now[0] - before[0], now[1] - before[1]]);
        if tracked {
            self.check(&slots, tables)?;
        }
        for at in slots.used() {
            tables.free(at)?;
        }
        Ok(Took { time: tsc.nanoseconds(ticks as f64), usage, instructions })
    }

    #[inline(never)]
    fn store_all<T: Tables>(&self, slots: &mut Slots, tables: &mut T) -> io::Result<()> {
        for number in 0..self.count {
            let at = slots.next()?;
            let pointer = pointer(number);
            // SAFETY: the slot is 8 aligned bytes of our own memory.
            unsafe { (at as *mut u64).write_volatile(pointer) };
            tables.store(at, pointer)?;
            if self.freed {
                tables.free(at)?;
                slots.free(at)?;
            }
        }
        Ok(())
    }

    /// Whether every pointer had a table of its own, and its bounds are there where they were kept.
    fn check<T: Tables>(&self, slots: &Slots, tables: &T) -> Result<(), Failure> {
        let (made, count) = (tables.made(), self.count);
        if made != count as u64 {
            return Err(Failure::check(format!("{made} tables were made for {count} pointers")));
        }
        if self.freed {
            return Ok(());
        }
        for (number, at) in slots.used().into_iter().enumerate() {
            if tables.kept(at) != Some(pointer(number)) {
                return Err(Failure::check(format!("the bounds of pointer {number} are lost")));
            }
        }
        Ok(())
    }
}

/// A pointer that is stored; nobody goes where it points.
#[inline(always)]
fn pointer(number: usize) -> u64 {
    (number as u64).wrapping_add(1) << 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::memory::SmallPages;

    fn took(kind: Kind, own: bool, freed: bool) -> Took {
        let pass = Pass { count: 300, own, freed };
        pass.run(kind, Tsc::get().unwrap(), None).unwrap()
    }

    #[test]
    fn every_way_makes_a_table_for_each_pointer() {
        let _small = SmallPages::only();
        for own in [false, true] {
            for freed in [false, true] {
                let plain = took(Kind::None, own, freed);
                for kind in [Kind::Inline, Kind::Trap, Kind::Arena] {
                    let tables = took(kind, own, freed);
                    // The pointer's page and the table's. Other causes add to both, as pages of the program
                    // that come back.
                    let [plain, tables] = [&plain, &tables].map(|took| took.usage.faults);
                    assert!(plain >= 300.0 && tables >= 600.0, "{kind:?} {own} {freed}: {tables}");
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
            // SAFETY: it faults, which is the test.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "tables::pass::tests::a_fault_elsewhere_still_ends_the_process";
        command.args(["--exact", name]).env(CRASH, "1");
        assert_eq!(command.output().unwrap().status.signal(), Some(libc::SIGSEGV));
    }
}
