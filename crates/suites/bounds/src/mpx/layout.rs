//! Where everything lies in the program's memory.

/// Where the file's head and the code are loaded.
pub(super) const BASE: u64 = 0x40_0000;
/// Where the data are loaded.
pub(super) const DATA: u64 = 0x60_0000;
/// Bytes of the data.
pub(super) const DATA_BYTES: u64 = 0x10_0000;

/// The directory as it is asked for. A processor finds it here.
pub(super) const TRUE_DIRECTORY: u64 = 1 << 44;
/// Where QEMU looks for it: it takes bits 20 and up of the base for bits 12 and up.
pub(super) const SHIFTED_DIRECTORY: u64 = TRUE_DIRECTORY >> 8;
/// Bytes of a directory.
pub(super) const DIRECTORY_BYTES: u64 = 1 << 31;
/// Bytes of a table.
pub(super) const TABLE_BYTES: u64 = 4 << 20;

/// 0: a list of operations; 1: a race.
pub(super) const MODE: u64 = DATA;
/// How many operations.
pub(super) const COUNT: u64 = DATA + 0x08;
/// Pointers in the array.
pub(super) const POINTERS: u64 = DATA + 0x10;
/// Passes over the array.
pub(super) const PASSES: u64 = DATA + 0x18;
/// What is added to a pointer before its access.
pub(super) const OFFSET: u64 = DATA + 0x20;
/// 1 where another thread fills the array.
pub(super) const THREADED: u64 = DATA + 0x28;
/// BNDSTATUS at the last #BR.
pub(super) const STATUS: u64 = DATA + 0x40;
/// 1 when the other thread is to end.
pub(super) const STOP: u64 = DATA + 0x48;
/// What a race answers with: five numbers.
pub(super) const ANSWERS: u64 = DATA + 0x80;
/// Tables made.
pub(super) const TABLES: u64 = ANSWERS;
/// Violations.
pub(super) const VIOLATIONS: u64 = ANSWERS + 0x08;
/// Times that the other thread filled the array with each object.
pub(super) const FILLS: u64 = ANSWERS + 0x10;
/// The time-stamp counter before the passes.
pub(super) const BEGIN: u64 = ANSWERS + 0x18;
/// The time-stamp counter behind them.
pub(super) const END: u64 = ANSWERS + 0x20;
/// Bytes of the answers.
pub(super) const ANSWER_BYTES: u64 = 0x28;
/// The CPUs of the main thread.
pub(super) const MASK_MAIN: u64 = DATA + 0x100;
/// The CPUs of the other one.
pub(super) const MASK_OTHER: u64 = DATA + 0x180;
/// Bytes of a mask.
pub(super) const MASK_BYTES: u64 = 0x80;
/// The first object; the second follows.
pub(super) const OBJECTS: u64 = DATA + 0x200;
/// Bytes of an object.
pub(super) const OBJECT_BYTES: u64 = 0x40;
/// The sigaction.
pub(super) const ACTION: u64 = DATA + 0x300;
/// Memory for whoever makes operations.
pub(super) const SCRATCH: u64 = DATA + 0x400;
/// What XRSTOR loads.
pub(super) const ENABLED: u64 = DATA + 0x800;
/// The top of the other thread's stack.
pub(super) const OTHER_STACK: u64 = DATA + 0x1_0000;
/// The operations.
pub(super) const COMMANDS: u64 = DATA + 0x1_0000;
/// Their answers.
pub(super) const RESULTS: u64 = DATA + 0x4_0000;
/// How many operations there is room for.
pub(super) const COMMAND_ROOM: usize = ((RESULTS - COMMANDS) / COMMAND_BYTES as u64) as usize;
/// Bytes of an operation, and of its answer.
pub(super) const COMMAND_BYTES: usize = 32;
/// The array.
pub(super) const ARRAY: u64 = DATA + 0x8_0000;
/// How many pointers there is room for.
pub(super) const POINTER_ROOM: u64 = (DATA + DATA_BYTES - ARRAY) / 8;

/// The system would not do something.
pub(super) const EXIT_REFUSED: i32 = 3;
/// A fault that is no #BR.
pub(super) const EXIT_FAULT: i32 = 4;
