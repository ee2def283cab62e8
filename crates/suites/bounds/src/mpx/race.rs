//! The race of Intel MPX Explained, with the instructions of MPX.

use std::sync::OnceLock;
use std::time::Duration;

use lab::sample::Failure;
use machine::timed_code;

use super::Machine;
use super::image::{self, Image};
use super::layout::{
    ANSWER_BYTES, MASK_BYTES, MASK_MAIN, MASK_OTHER, MODE, OBJECT_BYTES, OFFSET, PASSES,
    POINTER_ROOM, POINTERS, THREADED,
};
use super::proof::verify;

/// Time limit for the start of the program.
const START: Duration = Duration::from_secs(20);
/// Time limit per emulated access with a signal.
const ACCESS: Duration = Duration::from_micros(60);
/// How much longer an access may take in a system that is emulated as a whole, with its kernel.
const EMULATED_SYSTEM: u32 = 10;

/// Parameters of a race.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Race {
    /// Pointers in the array.
    pub(crate) pointers: u64,
    /// Passes over the array.
    pub(crate) passes: u64,
    /// Whether each access is one object size beyond its object.
    pub(crate) beyond: bool,
    /// CPU of the accessing thread.
    pub(crate) reader: usize,
    /// CPU of the thread that fills the array; `None` if there is none.
    pub(crate) writer: Option<usize>,
}

/// Counts and time of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RaceCounts {
    /// Violations that #BR reported.
    pub(crate) reported: u64,
    /// Times that the other thread filled the array with pointers to both objects.
    pub(crate) fills: u64,
    /// Ticks of the time-stamp counter for all passes; not meaningful under QEMU.
    pub(crate) ticks: u64,
}

impl Race {
    /// Runs the race after verifying that MPX works on the machine.
    ///
    /// # Errors
    /// Returns `unavailable` if the array is too large or the program cannot run, and a failed check if MPX does not work,
    /// the other thread did not fill the array, or no table was made.
    pub(crate) fn run(&self, on: Machine) -> Result<RaceCounts, Failure> {
        if self.pointers == 0 || self.pointers > POINTER_ROOM || self.passes == 0 {
            let why = format!(
                "{} pointers in {} passes; the MPX program supports 1 to {POINTER_ROOM} pointers",
                self.pointers, self.passes
            );
            return Err(Failure::unavailable(why, "reduce pointers or raise accesses"));
        }
        verified(on)?;
        let accesses = self.accesses();
        let each = if machine::cpu::emulated() { ACCESS * EMULATED_SYSTEM } else { ACCESS };
        let limit = START + each.saturating_mul(u32::try_from(accesses).unwrap_or(u32::MAX));
        let bytes = on.run(&self.image(), limit)?;
        timed_code::record_at(|| "the MPX program".into(), image::CODE_OFFSET, image::code());
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [tables, reported, fills, start, end] = words[..] else {
            let why = format!("the MPX program wrote {} bytes of {ANSWER_BYTES}", bytes.len());
            return Err(Failure::check(why));
        };
        if tables == 0 {
            return Err(Failure::check("bndstx made no table: MPX did not run"));
        }
        if self.writer.is_some() && fills == 0 {
            return Err(Failure::check("the thread that fills the array did not run"));
        }
        Ok(RaceCounts { reported, fills, ticks: end.saturating_sub(start) })
    }

    /// Returns the number of accesses: the factor's at most 10^10, rounded up to whole passes.
    ///
    /// Without a check for overflow, which cannot occur: QEMU 7.2 (TCG, two CPUs) reported one for 50 x 1000 in about one
    /// of 80 samples, perhaps because it emulates the overflow flag wrongly.
    pub(crate) fn accesses(&self) -> u64 {
        self.pointers.wrapping_mul(self.passes)
    }

    fn image(&self) -> Image {
        let mut image = Image::default();
        let numbers = [
            (MODE, 1),
            (POINTERS, self.pointers),
            (PASSES, self.passes),
            (OFFSET, if self.beyond { OBJECT_BYTES } else { 0 }),
            (THREADED, self.writer.is_some().into()),
        ];
        for (address, number) in numbers {
            image.number(address, number);
        }
        image.put(MASK_MAIN, &mask(self.reader));
        image.put(MASK_OTHER, &mask(self.writer.unwrap_or(self.reader)));
        image
    }
}

/// Verifies MPX once per process.
fn verified(on: Machine) -> Result<(), Failure> {
    static NATIVE: OnceLock<Result<(), Failure>> = OnceLock::new();
    static EMULATED: OnceLock<Result<(), Failure>> = OnceLock::new();
    let result = match on {
        Machine::Native => &NATIVE,
        Machine::Emulated => &EMULATED,
    };
    result.get_or_init(|| verify(on)).clone()
}

/// Returns the CPU set of one CPU; empty, and thus rejected by the kernel, if the number is too large.
fn mask(cpu: usize) -> [u8; MASK_BYTES as usize] {
    let mut mask = [0; MASK_BYTES as usize];
    if let Some(byte) = mask.get_mut(cpu / 8) {
        *byte = 1 << (cpu % 8);
    }
    mask
}
