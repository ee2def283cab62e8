//! Memory layout of the MPX program.

/// Load address of the file header and the code.
pub(super) const BASE: u64 = 0x40_0000;
/// Load address of the data.
pub(super) const DATA: u64 = 0x60_0000;
/// Bytes of the data.
pub(super) const DATA_BYTES: u64 = 0x10_0000;

/// Requested address of the directory, which CPUs use.
pub(super) const TRUE_DIRECTORY: u64 = 1 << 44;
/// Address that QEMU uses: it interprets bits 20 and above of the base as bits 12 and above.
pub(super) const SHIFTED_DIRECTORY: u64 = TRUE_DIRECTORY >> 8;
/// Bytes of the directory.
pub(super) const DIRECTORY_BYTES: u64 = 1 << 31;
/// Bytes of a table.
pub(super) const TABLE_BYTES: u64 = 4 << 20;

/// Mode: 0 for a list of operations, 1 for a race.
pub(super) const MODE: u64 = DATA;
/// Number of operations.
pub(super) const COUNT: u64 = DATA + 0x08;
/// Number of pointers in the array.
pub(super) const POINTERS: u64 = DATA + 0x10;
/// Number of passes over the array.
pub(super) const PASSES: u64 = DATA + 0x18;
/// Offset that is added to a pointer before its access.
pub(super) const OFFSET: u64 = DATA + 0x20;
/// 1 if another thread fills the array.
pub(super) const THREADED: u64 = DATA + 0x28;
/// BNDSTATUS at the last #BR.
pub(super) const STATUS: u64 = DATA + 0x40;
/// 1 to stop the other thread.
pub(super) const STOP: u64 = DATA + 0x48;
/// Results of a race: five numbers.
pub(super) const ANSWERS: u64 = DATA + 0x80;
/// Number of tables made.
pub(super) const TABLES: u64 = ANSWERS;
/// Number of violations.
pub(super) const VIOLATIONS: u64 = ANSWERS + 0x08;
/// Times that the other thread filled the array with pointers to both objects.
pub(super) const FILLS: u64 = ANSWERS + 0x10;
/// The time-stamp counter before the passes.
pub(super) const BEGIN: u64 = ANSWERS + 0x18;
/// The time-stamp counter after the passes.
pub(super) const END: u64 = ANSWERS + 0x20;
/// Bytes of the results.
pub(super) const ANSWER_BYTES: u64 = 0x28;
/// CPU set of the main thread.
pub(super) const MASK_MAIN: u64 = DATA + 0x100;
/// CPU set of the other thread.
pub(super) const MASK_OTHER: u64 = DATA + 0x180;
/// Bytes of a CPU set.
pub(super) const MASK_BYTES: u64 = 0x80;
/// The first object; the second follows.
pub(super) const OBJECTS: u64 = DATA + 0x200;
/// Bytes of an object.
pub(super) const OBJECT_BYTES: u64 = 0x40;
/// The sigaction.
pub(super) const ACTION: u64 = DATA + 0x300;
/// Scratch memory of operations.
pub(super) const SCRATCH: u64 = DATA + 0x400;
/// XSAVE area that XRSTOR loads.
pub(super) const ENABLED: u64 = DATA + 0x800;
/// The top of the other thread's stack.
pub(super) const OTHER_STACK: u64 = DATA + 0x1_0000;
/// The operations.
pub(super) const COMMANDS: u64 = DATA + 0x1_0000;
/// The results of the operations.
pub(super) const RESULTS: u64 = DATA + 0x4_0000;
/// Maximum number of operations.
pub(super) const COMMAND_ROOM: usize = ((RESULTS - COMMANDS) / COMMAND_BYTES as u64) as usize;
/// Bytes of an operation and of its result.
pub(super) const COMMAND_BYTES: usize = 32;
/// The array.
pub(super) const ARRAY: u64 = DATA + 0x8_0000;
/// Maximum number of pointers.
pub(super) const POINTER_ROOM: u64 = (DATA + DATA_BYTES - ARRAY) / 8;

/// Exit status if a system call fails.
pub(super) const EXIT_REFUSED: i32 = 3;
/// Exit status after a fault other than #BR.
pub(super) const EXIT_FAULT: i32 = 4;
