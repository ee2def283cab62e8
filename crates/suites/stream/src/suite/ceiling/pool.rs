//! Two sides that pass chunks of lines to and fro.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;
use machine::tsc::Tsc;

use super::{DURATION, PATIENCE};
use crate::generator::{TOUCH, TOUCHED, WORD};
use crate::nic::layout::FLIT;
use crate::nic::ticks;
use crate::wire::traffic::Line;
use crate::wire::vector::{Avx2, Plain, Vector};

/// Chunks under way.
const CHUNKS: usize = 4;
/// Laps over all chunks before any is counted.
const WARM_UP: u64 = 2;

/// What the giving side saw.
pub(super) struct Given {
    /// Lines a tick.
    pub(super) rate: f64,
    /// Whether every line came back as it should.
    pub(super) sound: bool,
}

/// What both sides share.
pub(super) struct Pool {
    memory: Mapping,
    lines: usize,
    /// Twice the laps that a chunk has made, and one more while it is the other side's.
    flags: [Flag; CHUNKS],
    arrived: AtomicU32,
    /// How many chunks there will have been; not known yet where it is `u64::MAX`.
    pub(super) last: AtomicU64,
    duration: u64,
    patience: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Flag(AtomicU64);

impl Pool {
    pub(super) fn new(lines: usize, tsc: &Tsc) -> Result<Self, Failure> {
        let memory = Mapping::anonymous(CHUNKS * lines * FLIT)?;
        memory.prefault()?;
        Ok(Self {
            memory,
            lines,
            flags: Default::default(),
            arrived: AtomicU32::new(0),
            last: AtomicU64::new(u64::MAX),
            duration: tsc.ticks(DURATION),
            patience: tsc.ticks(PATIENCE),
        })
    }

    fn chunk(&self, slot: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(slot * self.lines * FLIT)
    }

    /// Waits for the other side; false where it does not come.
    fn meet(&self) -> bool {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let end = ticks() + self.patience;
        self.spin(end, || self.arrived.load(Ordering::Acquire) == 2)
    }

    /// Waits until something holds; false where it does not in time.
    #[inline(always)]
    fn spin(&self, end: u64, holds: impl Fn() -> bool) -> bool {
        while !holds() {
            if ticks() > end {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Writes chunk after chunk, and reads those that came back.
    pub(super) fn give<const BACK: bool>(&self) -> Option<Given> {
        let given = match self.meet() {
            // SAFETY: the processor has it.
            true if machine::cpu::has_avx2() => unsafe { self.give_by_avx2::<BACK>() },
            true => self.give_by::<Plain, BACK>(),
            false => None,
        };
        if given.is_none() {
            self.last.store(0, Ordering::Release);
        }
        given
    }

    #[target_feature(enable = "avx2")]
    unsafe fn give_by_avx2<const BACK: bool>(&self) -> Option<Given> {
        self.give_by::<Avx2, BACK>()
    }

    #[inline(always)]
    fn give_by<V: Vector, const BACK: bool>(&self) -> Option<Given> {
        let mut from = Line([0; FLIT]);
        let (mut begun, mut number, mut wrong) = (0, 0u64, 0);
        let first = WARM_UP * CHUNKS as u64;
        let end = ticks() + self.patience;
        loop {
            let (slot, lap) = ((number % CHUNKS as u64) as usize, number / CHUNKS as u64);
            let flag = &self.flags[slot].0;
            if !self.spin(end, || flag.load(Ordering::Acquire) == 2 * lap) {
                return None;
            }
            let now = ticks();
            if number == first {
                begun = now;
            }
            if number > first && now > begun + self.duration {
                self.last.store(number, Ordering::Release);
                let lines = (number - first) as f64 * self.lines as f64;
                return Some(Given { rate: lines / (now - begun) as f64, sound: wrong == 0 });
            }
            let back = mark(lap.wrapping_sub(1)).wrapping_add(TOUCH);
            if BACK && lap > 0 {
                // SAFETY: the chunk is this side's until its flag says otherwise.
                wrong |= unsafe { differing(self.chunk(slot), self.lines, back) };
            }
            from.0[WORD..WORD + 8].copy_from_slice(&mark(lap).to_le_bytes());
            for line in 0..self.lines {
                let to = self.chunk(slot).wrapping_add(line * FLIT);
                // SAFETY: as above; both are whole lines, and the processor has what the way needs.
                unsafe { V::copy(from.0.as_ptr(), to) };
            }
            flag.store(2 * lap + 1, Ordering::Release);
            number += 1;
        }
    }

    /// Reads chunk after chunk, and where they are to go back adds 1 to a byte of each line. Gives whether
    /// all were as they should be.
    pub(super) fn take<const BACK: bool>(&self) -> Option<bool> {
        if !self.meet() {
            return None;
        }
        let (mut number, mut wrong) = (0u64, 0);
        let end = ticks() + 2 * self.patience;
        loop {
            let (slot, lap) = ((number % CHUNKS as u64) as usize, number / CHUNKS as u64);
            let flag = &self.flags[slot].0;
            let over = || self.last.load(Ordering::Acquire) <= number;
            if !self.spin(end, || flag.load(Ordering::Acquire) == 2 * lap + 1 || over()) {
                return None;
            }
            if flag.load(Ordering::Acquire) != 2 * lap + 1 {
                return Some(wrong == 0);
            }
            // SAFETY: the chunk is this side's until its flag says otherwise.
            wrong |= unsafe {
                if BACK {
                    touched(self.chunk(slot), self.lines, mark(lap))
                } else {
                    differing(self.chunk(slot), self.lines, mark(lap))
                }
            };
            flag.store(2 * lap + 2, Ordering::Release);
            number += 1;
        }
    }
}

/// The word of a lap's lines.
fn mark(lap: u64) -> u64 {
    // The uppermost byte is that which is added to.
    lap.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

/// Bits in which the words of some lines differ from one.
///
/// # Safety
/// They are so many whole lines that nobody writes meanwhile.
#[inline(always)]
unsafe fn differing(start: *const u8, lines: usize, word: u64) -> u64 {
    (0..lines).fold(0, |wrong, line| {
        // SAFETY: the word lies in the line, which is whole, by the caller's word.
        let found = unsafe { start.add(line * FLIT + WORD).cast::<u64>().read_unaligned() };
        wrong | (found ^ word)
    })
}

/// The same, and adds 1 to a byte of each.
///
/// # Safety
/// They are so many whole lines that nobody else reads or writes meanwhile.
#[inline(always)]
unsafe fn touched(start: *mut u8, lines: usize, word: u64) -> u64 {
    (0..lines).fold(0, |wrong, line| {
        // SAFETY: both lie in the line, which is whole, by the caller's word.
        let found = unsafe {
            let line = start.add(line * FLIT);
            let found = line.add(WORD).cast::<u64>().read_unaligned();
            let byte = line.add(TOUCHED);
            byte.write(byte.read().wrapping_add(1));
            found
        };
        wrong | (found ^ word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_as_it_was_written_shows() {
        let mut lines = [Line([7; FLIT]), Line([7; FLIT])];
        let word = u64::from_le_bytes([7; 8]);
        let start = lines.as_mut_ptr().cast::<u8>();
        // SAFETY: two lines, which are this test's.
        unsafe {
            assert_eq!(differing(start, 2, word), 0);
            assert_eq!(touched(start, 2, word), 0);
            assert_eq!(differing(start, 2, word.wrapping_add(TOUCH)), 0);
            assert_ne!(differing(start, 2, word), 0);
            *start.add(FLIT + WORD) ^= 1;
            assert_ne!(differing(start, 2, word.wrapping_add(TOUCH)), 0);
        }
    }
}
