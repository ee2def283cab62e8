//! Single MPX instructions with their operands and results.

use std::time::Duration;

use lab::sample::Failure;

use super::Machine;
use super::image::Image;
use super::layout::{
    COMMAND_BYTES, COMMAND_ROOM, COMMANDS, COUNT, DATA, DATA_BYTES, SCRATCH, SHIFTED_DIRECTORY,
    TRUE_DIRECTORY,
};

/// Time limit for a list of operations.
const LIMIT: Duration = Duration::from_secs(20);

/// Instruction with its operands. It uses bnd0 unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `bndmk`: the lower bound, and the offset of the upper bound, which is inclusive.
    Make(u64, u64),
    /// `bndcl` of a register.
    CheckLower(u64),
    /// `bndcu` of a register.
    CheckUpper(u64),
    /// `bndcn` of a register: compares with the stored bound, not with its complement.
    CheckUpperStored(u64),
    /// `bndcl` of base and index.
    CheckLowerOf(u64, u64),
    /// `bndcu` of base and index.
    CheckUpperOf(u64, u64),
    /// `bndcn` of base and index.
    CheckUpperStoredOf(u64, u64),
    /// `bndmov` to the scratch memory.
    ToMemory,
    /// `bndmov` from the scratch memory.
    FromMemory,
    /// `bndmov` to bnd1.
    ToOther,
    /// `bndmov` from bnd1.
    FromOther,
    /// `bndstx`.
    Store {
        /// Address at which the pointer is stored.
        at: u64,
        pointer: u64,
    },
    /// `bndldx`.
    Load {
        /// Address at which the pointer is stored.
        at: u64,
        pointer: u64,
    },
    /// Not MPX: stores a number in the first or second word of the scratch memory.
    Put(u64, u64),
    /// Not MPX: reports 1 in place of BNDSTATUS if the instruction after one with base and index is executed.
    CountsBytes,
}

/// Result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// BNDSTATUS if it raised #BR, 0 otherwise.
    pub(super) status: u64,
    /// Number of tables made so far.
    pub(super) tables: u64,
    /// Lower and upper bound in bnd0; the upper bound is not complemented.
    pub(super) bounds: (u64, u64),
}

/// Error bits of BNDSTATUS.
const ERROR: u64 = 3;
/// Error of a failed check.
const VIOLATION: u64 = 1;
/// Error of an invalid directory entry.
const NO_TABLE: u64 = 2;

impl Answer {
    /// Returns whether it raised #BR for a failed check.
    pub(super) fn violated(&self) -> bool {
        self.status & ERROR == VIOLATION
    }

    /// Returns the address of the directory entry if it raised #BR for a missing table.
    pub(super) fn missed_entry(&self) -> Option<u64> {
        (self.status & ERROR == NO_TABLE).then_some(self.status & !ERROR)
    }
}

impl Operation {
    /// Returns the number of its stub in the program, and its operands.
    fn command(self) -> [u64; 3] {
        match self {
            Self::Make(lower, more) => [0, lower, more],
            Self::CheckLower(pointer) => [1, pointer, 0],
            Self::CheckUpper(pointer) => [2, pointer, 0],
            Self::CheckUpperStored(pointer) => [3, pointer, 0],
            Self::CheckLowerOf(base, index) => [4, base, index],
            Self::CheckUpperOf(base, index) => [5, base, index],
            Self::CheckUpperStoredOf(base, index) => [6, base, index],
            Self::ToMemory => [7, SCRATCH, 0],
            Self::FromMemory => [8, SCRATCH, 0],
            Self::ToOther => [9, 0, 0],
            Self::FromOther => [10, 0, 0],
            Self::Store { at, pointer } => [11, at, pointer],
            Self::Load { at, pointer } => [12, at, pointer],
            Self::Put(which, number) => [13, SCRATCH + 8 * (which & 1), number],
            Self::CountsBytes => [14, 0, 0],
        }
    }
}

/// Executes operations in one program that starts with INIT bounds and without tables.
///
/// # Errors
/// Returns `failed` if there are no or too many operations, or if the program cannot run.
pub(super) fn execute(on: Machine, operations: &[Operation]) -> Result<Vec<Answer>, Failure> {
    if operations.is_empty() || operations.len() > COMMAND_ROOM {
        let why = format!("{} operations; expected 1 to {COMMAND_ROOM}", operations.len());
        return Err(Failure::failed(why));
    }
    let mut image = Image::default();
    image.number(COUNT, operations.len() as u64);
    for (index, operation) in operations.iter().enumerate() {
        let at = COMMANDS + (index * COMMAND_BYTES) as u64;
        image.put(at, &operation.command().map(u64::to_le_bytes).concat());
    }
    let bytes = on.run(&image, LIMIT)?;
    if bytes.len() != operations.len() * COMMAND_BYTES {
        let (actual, expected) = (bytes.len(), operations.len() * COMMAND_BYTES);
        return Err(Failure::check(format!("the MPX program wrote {actual} bytes of {expected}")));
    }
    Ok(bytes.chunks_exact(COMMAND_BYTES).map(answer).collect())
}

fn answer(bytes: &[u8]) -> Answer {
    let (words, _) = bytes.as_chunks();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    Answer { status: word(0), tables: word(1), bounds: (word(2), !word(3)) }
}

/// Known faults of QEMU that a machine has; the program works with and without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults {
    /// The base of the directory is shifted by 8 bits.
    pub(super) directory_shifted: bool,
    /// The bytes after an instruction with base and index are skipped.
    pub(super) bytes_skipped: bool,
}

impl Faults {
    /// Describes the faults that are fixed.
    pub(super) fn fixed(self) -> Vec<&'static str> {
        let all = [
            (self.directory_shifted, "the address of the directory"),
            (self.bytes_skipped, "the length of instructions with base and index"),
        ];
        all.into_iter().filter(|(present, _)| !present).map(|(_, fixed)| fixed).collect()
    }
}

/// Determines the faults of a machine.
///
/// # Errors
/// Returns a failure if the program cannot run or finds no directory.
pub(super) fn faults(on: Machine) -> Result<Faults, Failure> {
    // The address of the directory entry reveals the address of the directory.
    let store = Operation::Store { at: DATA + DATA_BYTES, pointer: 1 };
    let answers = execute(on, &[store, Operation::CountsBytes])?;
    let [stored, counted] = answers.as_slice() else {
        return Err(Failure::check("the MPX program wrote too few results"));
    };
    let index = (DATA + DATA_BYTES) >> 20 << 3;
    let directory = stored.missed_entry().map(|entry| entry.wrapping_sub(index));
    let directory_shifted = match directory {
        Some(TRUE_DIRECTORY) => false,
        Some(SHIFTED_DIRECTORY) => true,
        other => {
            let why = format!("bndstx used a directory at {other:x?}");
            return Err(Failure::check(why));
        }
    };
    Ok(Faults { directory_shifted, bytes_skipped: counted.status & 1 == 0 })
}
