//! Crossings with a stamp before and after each. Both stamps stay in registers until both are taken.

use std::arch::asm;
use std::ops::Range;

use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE};

use super::Event;

/// The traced system call. It is almost empty and ignores its arguments.
pub(super) const CALL: u64 = libc::SYS_getppid as u64;

/// Stamps and mark of one crossing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Counter before the crossing, in ticks.
    pub before: u64,
    /// Counter after the crossing, in ticks.
    pub after: u64,
    /// Mark of the crossing: the faulting address, or the argument of the call.
    pub mark: u64,
}

/// Maker of batches of crossings.
#[derive(Debug)]
pub struct Crossings {
    event: Event,
    pages: Mapping,
    stamps: Vec<Stamp>,
}

impl Crossings {
    /// Allocates memory for batches of up to `capacity` crossings.
    ///
    /// # Errors
    /// Returns `failed` without memory.
    pub fn new(event: Event, capacity: usize) -> Result<Self, Failure> {
        let pages =
            Mapping::anonymous(capacity * PAGE).map_err(|why| Failure::failed(why.to_string()));
        Ok(Self { event, pages: pages?, stamps: vec![Stamp::default(); capacity] })
    }

    /// Returns the maximum number of crossings per batch.
    pub fn capacity(&self) -> usize {
        self.stamps.len()
    }

    /// Returns the range of marks.
    pub fn marks(&self) -> Range<u64> {
        match self.event {
            Event::PageFault => {
                let first = self.pages.as_ptr() as u64;
                first..first + self.pages.len() as u64
            }
            Event::Syscall => 0..self.stamps.len() as u64,
        }
    }

    /// Discards the pages, so that each will fault.
    pub fn prepare(&mut self) {
        if self.event == Event::PageFault {
            self.pages.madvise_dontneed();
        }
    }

    /// Makes `count` crossings, at most [`capacity`](Self::capacity), with distinct marks in ascending order.
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
        // SAFETY: the byte is inside a writable mapping without references; the fault preserves all
        // registers. There is no instruction between the fence of the first stamp and the store.
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
            before: join(before_low, before_high),
            after: join(after_low, after_high),
            mark: byte as u64,
        };
    }
}

#[inline(never)]
fn call(stamps: &mut [Stamp]) {
    for (stamp, mark) in stamps.iter_mut().zip(0u64..) {
        let (before_low, before_high, after_low, after_high): (u32, u32, u32, u32);
        // SAFETY: getppid reads no argument or memory; the kernel preserves all registers except rax, rcx and
        // r11. Between the fence of the first stamp and the call there are only moves between registers.
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
            before: join(before_low, before_high),
            after: join(after_low, after_high),
            mark,
        };
    }
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::usage::Usage;

    #[test]
    fn crossings_have_distinct_marks_and_ascending_stamps() {
        for event in [Event::PageFault, Event::Syscall] {
            let mut crossings = Crossings::new(event, 100).unwrap();
            let marks = crossings.marks();
            crossings.prepare();
            let stamps = crossings.make(1000).to_vec();
            assert_eq!(stamps.len(), 100, "the capacity");
            assert!(stamps.iter().all(|stamp| stamp.after > stamp.before));
            assert!(stamps.windows(2).all(|two| two[0].after <= two[1].before));
            assert!(stamps.windows(2).all(|two| two[0].mark < two[1].mark));
            assert!(stamps.iter().all(|stamp| marks.contains(&stamp.mark)));
        }
    }

    #[test]
    fn prepared_pages_fault_again() {
        // Reclaimed pages of this program may fault too.
        const MAX_STRAY_FAULTS: u64 = 8;
        let mut crossings = Crossings::new(Event::PageFault, 64).unwrap();
        crossings.make(64);
        let before = Usage::of_thread().faults();
        crossings.make(64);
        assert!(Usage::of_thread().faults() - before <= MAX_STRAY_FAULTS, "the pages are present");
        let before = Usage::of_thread().faults();
        crossings.prepare();
        crossings.make(64);
        assert!((64..=64 + MAX_STRAY_FAULTS).contains(&(Usage::of_thread().faults() - before)));
    }
}
