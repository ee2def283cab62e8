//! Chunks of cache lines that two cores pass back and forth.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;
use machine::tsc::Tsc;

use super::{DURATION, TIMEOUT};
use crate::generator::{TOUCH, TOUCHED, WORD};
use crate::nic::layout::FLIT;
use crate::nic::ticks;
use crate::wire::traffic::CacheLine;
use crate::wire::vector::{Avx2, Plain, Vector};

/// Chunks in flight.
const CHUNKS: usize = 4;
/// Laps over all chunks before the timing starts.
const WARM_UP: u64 = 2;

/// Result of the sending core.
pub(super) struct Sent {
    /// Lines per tick.
    pub(super) rate: f64,
    /// Whether every line returned as expected.
    pub(super) intact: bool,
}

/// The chunks and the state that both cores share.
pub(super) struct Chunks {
    memory: Mapping,
    lines: usize,
    /// For each chunk, twice the number of its laps, plus 1 while the receiver owns it.
    flags: [Flag; CHUNKS],
    arrived: AtomicU32,
    /// Total number of chunks to pass; `u64::MAX` until it is known.
    pub(super) last: AtomicU64,
    duration: u64,
    timeout: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Flag(AtomicU64);

impl Chunks {
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
            timeout: tsc.ticks(TIMEOUT),
        })
    }

    fn chunk(&self, slot: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(slot * self.lines * FLIT)
    }

    /// Waits for the other core. Returns false if it does not arrive in time.
    fn meet(&self) -> bool {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let end = ticks() + self.timeout;
        self.spin(end, || self.arrived.load(Ordering::Acquire) == 2)
    }

    /// Spins until `ready` returns true. Returns false if that takes beyond `end`, in ticks.
    #[inline(always)]
    fn spin(&self, end: u64, ready: impl Fn() -> bool) -> bool {
        while !ready() {
            if ticks() > end {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Writes chunk after chunk and, if `BACK`, checks the returned ones. Returns `None` on a timeout.
    pub(super) fn send<const BACK: bool>(&self) -> Option<Sent> {
        let sent = match self.meet() {
            // SAFETY: the CPU has AVX2.
            true if machine::cpu::has_avx2() => unsafe { self.send_with_avx2::<BACK>() },
            true => self.send_with::<Plain, BACK>(),
            false => None,
        };
        if sent.is_none() {
            self.last.store(0, Ordering::Release);
        }
        sent
    }

    #[target_feature(enable = "avx2")]
    unsafe fn send_with_avx2<const BACK: bool>(&self) -> Option<Sent> {
        self.send_with::<Avx2, BACK>()
    }

    #[inline(always)]
    fn send_with<V: Vector, const BACK: bool>(&self) -> Option<Sent> {
        let mut from = CacheLine([0; FLIT]);
        let (mut start, mut number, mut wrong) = (0, 0u64, 0);
        let first = WARM_UP * CHUNKS as u64;
        let end = ticks() + self.timeout;
        loop {
            let (slot, lap) = ((number % CHUNKS as u64) as usize, number / CHUNKS as u64);
            let flag = &self.flags[slot].0;
            if !self.spin(end, || flag.load(Ordering::Acquire) == 2 * lap) {
                return None;
            }
            let now = ticks();
            if number == first {
                start = now;
            }
            if number > first && now > start + self.duration {
                self.last.store(number, Ordering::Release);
                let lines = (number - first) as f64 * self.lines as f64;
                return Some(Sent { rate: lines / (now - start) as f64, intact: wrong == 0 });
            }
            let back = mark(lap.wrapping_sub(1)).wrapping_add(TOUCH);
            if BACK && lap > 0 {
                // SAFETY: this core owns the chunk until it changes the flag.
                wrong |= unsafe { differing(self.chunk(slot), self.lines, back) };
            }
            from.0[WORD..WORD + 8].copy_from_slice(&mark(lap).to_le_bytes());
            for line in 0..self.lines {
                let to = self.chunk(slot).wrapping_add(line * FLIT);
                // SAFETY: this core owns the chunk; both are whole lines, and the caller has checked that the CPU
                // supports `V`.
                unsafe { V::copy(from.0.as_ptr(), to) };
            }
            flag.store(2 * lap + 1, Ordering::Release);
            number += 1;
        }
    }

    /// Reads chunk after chunk and, if `BACK`, adds 1 to a byte of each line. Returns whether all lines were as
    /// written, or `None` on a timeout.
    pub(super) fn receive<const BACK: bool>(&self) -> Option<bool> {
        if !self.meet() {
            return None;
        }
        let (mut number, mut wrong) = (0u64, 0);
        let end = ticks() + 2 * self.timeout;
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
            // SAFETY: this core owns the chunk until it changes the flag.
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

/// Returns the word in each line of a lap.
fn mark(lap: u64) -> u64 {
    // The uppermost byte stays 0: the receiver adds to it.
    lap.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

/// Returns the bits in which the words of the lines differ from `word`.
///
/// # Safety
/// `start` points to `lines` whole lines that no thread writes during the call.
#[inline(always)]
unsafe fn differing(start: *const u8, lines: usize, word: u64) -> u64 {
    (0..lines).fold(0, |wrong, line| {
        // SAFETY: the caller guarantees that the line is whole, so the word is inside it.
        let found = unsafe { start.add(line * FLIT + WORD).cast::<u64>().read_unaligned() };
        wrong | (found ^ word)
    })
}

/// Does the same as [`differing`] and adds 1 to a byte of each line.
///
/// # Safety
/// `start` points to `lines` whole lines that no other thread accesses during the call.
#[inline(always)]
unsafe fn touched(start: *mut u8, lines: usize, word: u64) -> u64 {
    (0..lines).fold(0, |wrong, line| {
        // SAFETY: the caller guarantees that the line is whole, so both are inside it.
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
    fn a_changed_line_is_detected() {
        let mut lines = [CacheLine([7; FLIT]), CacheLine([7; FLIT])];
        let word = u64::from_le_bytes([7; 8]);
        let start = lines.as_mut_ptr().cast::<u8>();
        // SAFETY: both lines are local variables.
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
