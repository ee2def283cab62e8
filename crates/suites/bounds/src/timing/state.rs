//! What registers and memory hold when the code begins, and what registers held when it ended.

use std::mem::offset_of;

use machine::SysError;
use machine::mapping::Mapping;

/// Registers at the entry, general ones also at the exit. The assembly in `enter` knows the layout.
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
    /// Bytes of the vectors that are loaded: 16, 32 or 64.
    pub(super) width: u64,
    /// Whether there are wider vectors than 16 bytes, whose upper parts are cleared at the entry.
    pub(super) has_wide: u64,
    pub(super) signal: u64,
    /// Whether seven registers of the x87 are loaded: the top, and those below it.
    pub(super) has_x87: u64,
    pub(super) x87_top: u64,
    pub(super) x87_others: u64,
}

pub(super) const EXIT: u32 = offset_of!(State, exit) as u32;
pub(super) const SAVED_STACK: u32 = offset_of!(State, saved_stack) as u32;

/// The register that holds the data's address.
const DATA: usize = 14;

impl State {
    /// All integer registers hold 1, all vectors zero, all masks all ones.
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

    /// A general register, by its number.
    pub(crate) fn general(&self, number: u8) -> u64 {
        self.general[usize::from(number)]
    }

    /// Sets a general register, by its number.
    pub(crate) fn set_general(&mut self, number: u8, value: u64) {
        self.general[usize::from(number)] = value;
    }

    /// Has seven registers of the x87 loaded, with 64-bit numbers; one is left free.
    pub(crate) fn set_x87(&mut self, others: u64, top: u64) {
        (self.has_x87, self.x87_top, self.x87_others) = (1, top, others);
    }

    /// Has vectors of so many bits loaded; wider ones than the code needs would slow its short ones down.
    pub(crate) fn widen(&mut self, bits: u16) {
        self.width = u64::from(bits / 8).clamp(16, widest());
    }

    /// Sets every 8 bytes of a vector register.
    pub(crate) fn set_vector(&mut self, number: u8, value: u64) {
        self.vectors[usize::from(number)] = [value; 8];
    }
}

/// Bytes of the widest vectors that the kernel allows.
fn widest() -> u64 {
    match (machine::cpu::has_avx512(), std::arch::is_x86_feature_detected!("avx")) {
        (true, _) => 64,
        (false, true) => 32,
        (false, false) => 16,
    }
}

/// The memory that measured code reads and writes.
pub(crate) struct Data {
    mapping: Mapping,
}

impl Data {
    /// Bytes of it: they fit the first cache with room to spare.
    pub(crate) const LENGTH: usize = 8192;

    /// Present and all zero.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub(crate) fn new() -> Result<Self, SysError> {
        let mapping = Mapping::anonymous(Self::LENGTH)?;
        mapping.prefault()?;
        Ok(Self { mapping })
    }

    /// Where it begins: at a page's start.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.as_ptr() as u64
    }

    /// Sets every 8 bytes of it.
    pub(crate) fn fill(&self, value: u64) {
        for at in (0..Self::LENGTH).step_by(8) {
            self.set(at, value);
        }
    }

    /// The 8 bytes at an offset.
    #[cfg(test)]
    pub(crate) fn get(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset < Self::LENGTH);
        // SAFETY: inside the mapping, aligned.
        unsafe { self.mapping.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }

    /// Sets the 8 bytes at an offset.
    ///
    /// # Panics
    /// Where they do not lie inside.
    pub(crate) fn set(&self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset < Self::LENGTH);
        // SAFETY: inside the mapping, aligned; whoever runs code on it does so on this thread.
        unsafe { self.mapping.as_mut_ptr().add(offset).cast::<u64>().write_volatile(value) };
    }
}
