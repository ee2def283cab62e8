//! The user's side: a stamp, the crossing at once, a stamp. Both stay in registers until both are taken.

use std::arch::asm;
use std::ops::Range;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

use super::Event;

/// The system call that is made: one that does next to nothing, and looks at no argument.
pub(super) const CALL: u64 = libc::SYS_getppid as u64;

/// One crossing as the user saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Ticks before it.
    pub before: u64,
    /// Ticks after it.
    pub after: u64,
    /// Its own mark: the address that faults, or the argument of the call.
    pub mark: u64,
}

/// What crosses, and keeps the stamps of one batch.
#[derive(Debug)]
pub struct Crossings {
    event: Event,
    pages: Mapping,
    stamps: Vec<Stamp>,
}

impl Crossings {
    /// Room for batches of so many.
    ///
    /// # Errors
    /// Where memory is short.
    pub fn new(event: Event, most: usize) -> Result<Self, Failure> {
        let pages = Mapping::anonymous(most * PAGE).map_err(|why| Failure::failed(why.to_string()));
        Ok(Self { event, pages: pages?, stamps: vec![Stamp::default(); most] })
    }

    /// How many fit into a batch.
    pub fn most(&self) -> usize {
        self.stamps.len()
    }

    /// The marks that crossings may have.
    pub fn marks(&self) -> Range<u64> {
        match self.event {
            Event::PageFault => {
                let first = self.pages.as_ptr() as u64;
                first..first + self.pages.len() as u64
            }
            Event::Syscall => 0..self.stamps.len() as u64,
        }
    }

    /// Makes the pages absent, so that each will fault.
    pub fn prepare(&mut self) {
        if self.event == Event::PageFault {
            self.pages.madvise_dontneed();
        }
    }

    /// Crosses so many times, at most as often as there is room; each crossing has a mark of its own.
    pub fn make(&mut self, count: usize) -> &[Stamp] {
        let count = count.min(self.stamps.len());
        let stamps = &mut self.stamps[..count];
        match self.event {
            Event::PageFault => fault(&self.pages, stamps),
            Event::Syscall => call(stamps),
        }
        stamps
    }
}

#[inline(never)]
fn fault(pages: &Mapping, stamps: &mut [Stamp]) {
    for (stamp, page) in stamps.iter_mut().zip((0..pages.len()).step_by(PAGE)) {
        let byte = pages.as_mut_ptr().wrapping_add(page);
        let (before_low, before_high, after_low, after_high): (u32, u32, u32, u32);
        // SAFETY: the byte lies in the mapping, which is writable and ours; the fault keeps all
        // registers. Nothing stands between the first stamp's fence and the store.
        unsafe {
            asm!(
                "lfence", "rdtsc", "lfence",
                "mov byte ptr [{byte}], 1",
                "mov {low:e}, eax", "mov {high:e}, edx",
                "lfence", "rdtsc", "lfence",
                byte = in(reg) byte,
                low = out(reg) before_low, high = out(reg) before_high,
                out("eax") after_low, out("edx") after_high,
                options(nostack, preserves_flags)
            );
        }
        *stamp = Stamp {
            before: whole(before_low, before_high),
            after: whole(after_low, after_high),
            mark: byte as u64,
        };
    }
}

#[inline(never)]
fn call(stamps: &mut [Stamp]) {
    for (stamp, mark) in stamps.iter_mut().zip(0u64..) {
        let (before_low, before_high, after_low, after_high): (u32, u32, u32, u32);
        // SAFETY: getppid reads no argument and no memory; the kernel keeps all registers but rax, rcx
        // and r11. Between the first stamp's fence and the call stand moves between registers alone.
        unsafe {
            asm!(
                "lfence", "rdtsc", "lfence",
                "mov r8d, eax", "mov r9d, edx", "mov eax, {number:e}",
                "syscall",
                "lfence", "rdtsc", "lfence",
                number = in(reg) CALL as u32, in("rdi") mark,
                out("r8") before_low, out("r9") before_high,
                out("eax") after_low, out("edx") after_high, out("rcx") _, out("r11") _,
                options(nostack)
            );
        }
        *stamp = Stamp {
            before: whole(before_low, before_high),
            after: whole(after_low, after_high),
            mark,
        };
    }
}

fn whole(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_faults_of_thread;

    #[test]
    fn every_crossing_has_its_own_mark_and_takes_time() {
        for event in [Event::PageFault, Event::Syscall] {
            let mut crossings = Crossings::new(event, 100).unwrap();
            let marks = crossings.marks();
            crossings.prepare();
            let stamps = crossings.make(1000).to_vec();
            assert_eq!(stamps.len(), 100, "no more than there is room for");
            assert!(stamps.iter().all(|stamp| stamp.after > stamp.before));
            assert!(stamps.windows(2).all(|two| two[0].after <= two[1].before));
            assert!(stamps.windows(2).all(|two| two[0].mark < two[1].mark));
            assert!(stamps.iter().all(|stamp| marks.contains(&stamp.mark)));
        }
    }

    #[test]
    fn pages_fault_again_once_prepared() {
        // Pages of the program may come back beside them.
        const STRAY: u64 = 8;
        let mut crossings = Crossings::new(Event::PageFault, 64).unwrap();
        crossings.make(64);
        let before = page_faults_of_thread();
        crossings.make(64);
        assert!(page_faults_of_thread() - before <= STRAY, "the pages are there");
        let before = page_faults_of_thread();
        crossings.prepare();
        crossings.make(64);
        assert!((64..=64 + STRAY).contains(&(page_faults_of_thread() - before)));
    }
}
