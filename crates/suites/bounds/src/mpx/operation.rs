//! Single instructions of MPX with their operands, and what they did.

use std::time::Duration;

use lab::sample::Failure;

use super::image::Image;
use super::layout::{
    COMMAND_BYTES, COMMAND_ROOM, COMMANDS, COUNT, DATA, DATA_BYTES, SCRATCH, SHIFTED_DIRECTORY,
    TRUE_DIRECTORY,
};
use super::runner::Machine;

/// How long a list of operations may take.
const LIMIT: Duration = Duration::from_secs(20);

/// An instruction with its operands. Bounds are bnd0 where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `bndmk`: from an address, and so many bytes further that the last one is still inside.
    Make(u64, u64),
    /// `bndcl` of a register.
    CheckLower(u64),
    /// `bndcu` of a register.
    CheckUpper(u64),
    /// `bndcn` of a register: the bound as it is stored, not its complement.
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
    /// `bndstx` for a pointer that lies at an address.
    Store {
        /// Where the pointer lies.
        at: u64,
        /// The pointer.
        pointer: u64,
    },
    /// `bndldx` for a pointer that lies at an address.
    Load {
        /// Where the pointer lies.
        at: u64,
        /// The pointer.
        pointer: u64,
    },
    /// No MPX: puts a number in the scratch memory, the first or the second.
    Put(u64, u64),
    /// No MPX: 1 in place of BNDSTATUS where an instruction behind one with base and index runs.
    CountsBytes,
}

/// What an operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// BNDSTATUS where it raised #BR, else 0.
    pub(super) status: u64,
    /// Tables made until then.
    pub(super) tables: u64,
    /// bnd0 after it: the lower bound and the upper one, the latter as it is meant.
    pub(super) bounds: (u64, u64),
}

/// The error in BNDSTATUS.
const ERROR: u64 = 3;
/// A check failed.
const VIOLATION: u64 = 1;
/// The directory's entry was not valid.
const NO_TABLE: u64 = 2;

impl Answer {
    /// Whether it raised #BR for a check that failed.
    pub(super) fn violated(&self) -> bool {
        self.status & ERROR == VIOLATION
    }

    /// The address of the directory's entry, where #BR was raised for want of a table.
    pub(super) fn missed_entry(&self) -> Option<u64> {
        (self.status & ERROR == NO_TABLE).then_some(self.status & !ERROR)
    }
}

impl Operation {
    /// Its number among the program's stubs, and its operands.
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

/// Carries out operations in order, in one program that begins with INIT bounds and no table.
///
/// # Errors
/// Where there are none or too many, and where the program cannot be run.
pub(super) fn carry_out(on: Machine, operations: &[Operation]) -> Result<Vec<Answer>, Failure> {
    if operations.is_empty() || operations.len() > COMMAND_ROOM {
        let why = format!("{} operations; from 1 to {COMMAND_ROOM} have room", operations.len());
        return Err(Failure::failed(why));
    }
    let mut image = Image::default();
    image.number(COUNT, operations.len() as u64);
    for (place, operation) in operations.iter().enumerate() {
        let at = COMMANDS + (place * COMMAND_BYTES) as u64;
        image.put(at, &operation.command().map(u64::to_le_bytes).concat());
    }
    let bytes = on.run(&image, LIMIT)?;
    if bytes.len() != operations.len() * COMMAND_BYTES {
        let (got, due) = (bytes.len(), operations.len() * COMMAND_BYTES);
        return Err(Failure::check(format!("the MPX program answered {got} bytes of {due}")));
    }
    Ok(bytes.chunks_exact(COMMAND_BYTES).map(answer).collect())
}

fn answer(bytes: &[u8]) -> Answer {
    let (words, _) = bytes.as_chunks();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    Answer { status: word(0), tables: word(1), bounds: (word(2), !word(3)) }
}

/// Which of the faults of QEMU a machine has; the program works with and without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults {
    /// The directory's base is shifted by 8 bits.
    pub(super) directory_shifted: bool,
    /// The bytes behind an instruction with base and index are skipped.
    pub(super) bytes_skipped: bool,
}

impl Faults {
    /// Those that are gone, so that nothing need be done about them.
    pub(super) fn gone(self) -> Vec<&'static str> {
        let all = [
            (self.directory_shifted, "the directory is found where it is"),
            (self.bytes_skipped, "no byte behind base and index is skipped"),
        ];
        all.into_iter().filter(|(there, _)| !there).map(|(_, gone)| gone).collect()
    }
}

/// Looks for the faults.
///
/// # Errors
/// Where the program cannot be run, or finds no directory.
pub(super) fn faults(on: Machine) -> Result<Faults, Failure> {
    // The directory's entry says of which directory it is.
    let store = Operation::Store { at: DATA + DATA_BYTES, pointer: 1 };
    let answers = carry_out(on, &[store, Operation::CountsBytes])?;
    let [stored, counted] = answers.as_slice() else {
        return Err(Failure::check("the MPX program lost an answer"));
    };
    let index = (DATA + DATA_BYTES) >> 20 << 3;
    let directory = stored.missed_entry().map(|entry| entry.wrapping_sub(index));
    let directory_shifted = match directory {
        Some(TRUE_DIRECTORY) => false,
        Some(SHIFTED_DIRECTORY) => true,
        other => {
            let why = format!("bndstx looked for a directory at {other:x?}");
            return Err(Failure::check(why));
        }
    };
    Ok(Faults { directory_shifted, bytes_skipped: counted.status & 1 == 0 })
}
