//! The seed's race by the instructions of MPX themselves.

use std::sync::OnceLock;
use std::time::Duration;

use lab::sample::Failure;

use super::image::Image;
use super::layout::{
    ANSWER_BYTES, MASK_BYTES, MASK_MAIN, MASK_OTHER, MODE, OBJECT_BYTES, OFFSET, PASSES,
    POINTER_ROOM, POINTERS, THREADED,
};
use super::proof::prove;
use super::runner::Machine;

/// How long the program may take to start.
const START: Duration = Duration::from_secs(20);
/// How long an emulated access may take that ends in a signal.
const ACCESS: Duration = Duration::from_micros(60);

/// A race.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Race {
    /// Pointers in the array.
    pub(crate) pointers: u64,
    /// Passes over the array.
    pub(crate) passes: u64,
    /// Whether each access is beyond its object: by the size of one.
    pub(crate) beyond: bool,
    /// CPU of the accessing thread.
    pub(crate) reader: usize,
    /// CPU of the thread that fills the array; `None` if there is none.
    pub(crate) writer: Option<usize>,
}

/// What it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raced {
    /// Violations that #BR reported.
    pub(crate) reported: u64,
    /// Times that the other thread filled the array with pointers to each object.
    pub(crate) fills: u64,
    /// From the first pass to the last, ticks of the time-stamp counter: no time under QEMU.
    pub(crate) ticks: u64,
}

impl Race {
    /// Runs it on a machine whose MPX has been proven.
    ///
    /// # Errors
    /// Where the array has no room or the program cannot be run; a failed check where MPX does something
    /// else than it is to, the other thread did not fill or no table was made.
    pub(crate) fn run(&self, on: Machine) -> Result<Raced, Failure> {
        if self.pointers == 0 || self.pointers > POINTER_ROOM || self.passes == 0 {
            let why = format!(
                "{} pointers in {} passes; MPX's program takes 1 to {POINTER_ROOM} pointers",
                self.pointers, self.passes
            );
            return Err(Failure::unavailable(why, "set pointers and accesses so"));
        }
        proven(on)?;
        let accesses = self.pointers.saturating_mul(self.passes);
        let limit = START + ACCESS * u32::try_from(accesses).unwrap_or(u32::MAX);
        let bytes = on.run(&self.image(), limit)?;
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [tables, reported, fills, begin, end] = words[..] else {
            let due = ANSWER_BYTES;
            let why = format!("the MPX program answered {} bytes of {due}", bytes.len());
            return Err(Failure::check(why));
        };
        if tables == 0 {
            return Err(Failure::check("bndstx made no table: MPX did not run"));
        }
        if self.writer.is_some() && fills == 0 {
            return Err(Failure::check("the thread that fills the array did not run"));
        }
        Ok(Raced { reported, fills, ticks: end.saturating_sub(begin) })
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
        for (at, number) in numbers {
            image.number(at, number);
        }
        image.put(MASK_MAIN, &mask(self.reader));
        image.put(MASK_OTHER, &mask(self.writer.unwrap_or(self.reader)));
        image
    }
}

/// Tried once a process.
fn proven(on: Machine) -> Result<(), Failure> {
    static NATIVE: OnceLock<Result<(), Failure>> = OnceLock::new();
    static EMULATED: OnceLock<Result<(), Failure>> = OnceLock::new();
    let tried = match on {
        Machine::Native => &NATIVE,
        Machine::Emulated => &EMULATED,
    };
    tried.get_or_init(|| prove(on)).clone()
}

/// The set of one CPU; empty, and so refused, where the number is beyond it.
fn mask(cpu: usize) -> [u8; MASK_BYTES as usize] {
    let mut mask = [0; MASK_BYTES as usize];
    if let Some(byte) = mask.get_mut(cpu / 8) {
        *byte = 1 << (cpu % 8);
    }
    mask
}
