//! Registers and memory of measured code.

use std::mem::offset_of;

use machine::SysError;
use machine::mapping::Mapping;

/// Registers at the entry, and general registers at the exit. The assembly in `enter` uses this layout.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct State {
    pub(super) vectors: [[u64; 8]; 32],
    pub(super) masks: [u64; 8],
    /// By their numbers: rax, rcx, rdx, rbx, (rsp), rbp, rsi, rdi, r8 to r15.
    pub(super) general: [u64; 16],
    pub(super) code: u64,
    pub(super) exit: u64,
    pub(super) saved_stack: u64,
    /// Bytes of the loaded vectors: 16, 32 or 64.
    pub(super) width: u64,
    /// Whether the CPU has vectors wider than 16 bytes, whose upper halves are cleared at the entry.
    pub(super) has_wide: u64,
    pub(super) signal: u64,
    /// Whether seven x87 registers are loaded: the top and those below it.
    pub(super) has_x87: u64,
    pub(super) x87_top: u64,
    pub(super) x87_others: u64,
}

pub(super) const EXIT: u32 = offset_of!(State, exit) as u32;
pub(super) const SAVED_STACK: u32 = offset_of!(State, saved_stack) as u32;

/// Number of the register with the address of the data.
const DATA: usize = 14;

impl State {
    /// Sets all general registers to 1, all vectors to zero and all mask bits to 1.
    pub(crate) fn new(data: &Data) -> Self {
        let mut general = [1; 16];
        general[DATA] = data.address();
        Self {
            vectors: [[0; 8]; 32],
            masks: [u64::MAX; 8],
            general,
            code: 0,
            exit: 0,
            saved_stack: 0,
            width: 16,
            has_wide: u64::from(widest() > 16),
            signal: 0,
            has_x87: 0,
            x87_top: 0,
            x87_others: 0,
        }
    }

    /// Returns a general register by its number.
    pub(crate) fn general(&self, number: u8) -> u64 {
        self.general[usize::from(number)]
    }

    /// Sets a general register by its number.
    pub(crate) fn set_general(&mut self, number: u8, value: u64) {
        self.general[usize::from(number)] = value;
    }

    /// Sets seven x87 registers to 64-bit values; one stays empty.
    pub(crate) fn set_x87(&mut self, others: u64, top: u64) {
        (self.has_x87, self.x87_top, self.x87_others) = (1, top, others);
    }

    /// Sets the width of the loaded vectors. Vectors wider than the code needs would slow down its shorter ones.
    pub(crate) fn widen(&mut self, bits: u16) {
        self.width = u64::from(bits / 8).clamp(16, widest());
    }

    /// Sets every 8 bytes of a vector register.
    pub(crate) fn set_vector(&mut self, number: u8, value: u64) {
        self.vectors[usize::from(number)] = [value; 8];
    }
}

/// Returns the bytes of the widest vectors that CPU and kernel support.
fn widest() -> u64 {
    match (machine::cpu::has_avx512(), std::arch::is_x86_feature_detected!("avx")) {
        (true, _) => 64,
        (false, true) => 32,
        (false, false) => 16,
    }
}

/// Memory that measured code reads and writes.
pub(crate) struct Data {
    mapping: Mapping,
}

impl Data {
    /// Size in bytes; it fits into the L1 cache.
    pub(crate) const LENGTH: usize = 8192;

    /// Maps resident, zero-filled memory.
    ///
    /// # Errors
    /// Returns the error of the kernel if there is not enough memory.
    pub(crate) fn new() -> Result<Self, SysError> {
        let mapping = Mapping::anonymous(Self::LENGTH)?;
        mapping.prefault()?;
        Ok(Self { mapping })
    }

    /// Returns its address, aligned to a page.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.as_ptr() as u64
    }

    /// Sets every 8-byte word.
    pub(crate) fn fill(&self, value: u64) {
        for offset in (0..Self::LENGTH).step_by(8) {
            self.set(offset, value);
        }
    }

    /// Returns the 8-byte word at an offset.
    pub(crate) fn get(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset < Self::LENGTH);
        // SAFETY: the word is aligned and within the mapping.
        unsafe { self.mapping.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }

    /// Sets the 8-byte word at an offset.
    ///
    /// # Panics
    /// Panics if the offset is not a multiple of 8 within the memory.
    pub(crate) fn set(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset < Self::LENGTH);
        // SAFETY: the word is aligned and within the mapping; code that uses it runs on this thread.
        unsafe { self.mapping.as_mut_ptr().add(offset).cast::<u64>().write_volatile(value) };
    }
}
