//! The bounds registers of MPX, enabled for this thread. Their instructions are NOPs while they are disabled.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use iced_x86::CpuidFeature;
use lab::sample::Failure;
use machine::capability::MPX_REMEDY;
use machine::mapping::Mapping;

use crate::timing::{Data, State, TimingError, TimingLoop};

/// Bit of the XSAVE state component with their configuration.
const CONFIGURATION: u64 = 1 << 4;
/// Offset of the component bits in an XSAVE area.
const HEADER: usize = 512;
/// Bits of BNDCFGU: enabled, and preserved across branches.
const ENABLED: u64 = 1 | 2;
/// Bytes of the directory: an 8-byte entry per MiB of a 48-bit address space.
const DIRECTORY: usize = 1 << 31;
/// Bytes of a row of a table, which has one per 8 bytes of a MiB.
const ROW: usize = 32;
/// Bytes of a table.
const TABLE: usize = 1 << 22;

/// Directory and table for pointers in the data. The registers are enabled while it lives.
pub(crate) struct BoundsRegisters {
    directory: Mapping,
    table: Mapping,
}

impl BoundsRegisters {
    /// Enables the registers if the features include MPX; returns `None` otherwise.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub(crate) fn for_code(
        features: &[CpuidFeature],
        data: &Data,
    ) -> Result<Option<Self>, Failure> {
        features.contains(&CpuidFeature::MPX).then(|| Self::on(data)).transpose()
    }

    /// Enables the registers for this thread, with a table for pointers in the data, and verifies that checks work.
    ///
    /// # Errors
    /// Returns `unsupported` if the CPU or the kernel does not support MPX.
    pub(crate) fn on(data: &Data) -> Result<Self, Failure> {
        if !machine::cpu::has_mpx() {
            return Err(no_mpx(""));
        }
        let directory = Mapping::anonymous(DIRECTORY)?;
        let table = Mapping::anonymous(TABLE)?;
        table.prefault()?;
        let entry = (data.address() as usize >> 20 & ((1 << 28) - 1)) * 8;
        // SAFETY: the entry is within the directory, because user addresses have 47 bits; nothing else uses it yet.
        unsafe {
            directory.as_mut_ptr().add(entry).cast::<u64>().write(table.as_ptr() as u64 | 1);
        }
        let registers = Self { directory, table };
        let start = registers.directory.as_ptr() as u64;
        configure(start | ENABLED);
        if machine::cpu::lacks_time() && !stores_work(data)? {
            // QEMU 7.2 takes bits 20 and above of the configuration as bits 12 and above of the directory's address.
            configure(start << 8 | ENABLED);
        }
        match checks_work(data)? {
            true => open_bounds(data).map(|()| registers),
            false => Err(Failure::unsupported(
                "the bounds registers exist but cannot be enabled: their instructions execute as NOP",
                MPX_REMEDY,
            )),
        }
    }

    /// Returns the row of the table for a pointer at the start of the data: lower bound, upper bound in one's complement,
    /// and the pointer.
    pub(crate) fn row(&self, data: &Data) -> [u64; 3] {
        let row = self.row_of(data);
        // SAFETY: the row is within the table; code that uses it runs on this thread.
        std::array::from_fn(|word| unsafe { row.add(word).read_volatile() })
    }

    /// Sets the row of the table for a pointer at the start of the data.
    pub(crate) fn set_row(&self, data: &Data, words: [u64; 3]) {
        let row = self.row_of(data);
        for (at, word) in words.into_iter().enumerate() {
            // SAFETY: as in `row`.
            unsafe { row.add(at).write_volatile(word) };
        }
    }

    /// Returns the start of the row of a pointer at the start of the data.
    fn row_of(&self, data: &Data) -> *mut u64 {
        let row = (data.address() as usize >> 3 & (TABLE / ROW - 1)) * ROW;
        self.table.as_mut_ptr().wrapping_add(row).cast()
    }
}

/// Cause of what a CPU or kernel without MPX cannot measure.
const NO_MPX: &str = "this CPU has no MPX";

/// Checks that CPU and kernel support MPX.
///
/// # Errors
/// Returns `unavailable` with the remedy if they do not.
pub(crate) fn has_mpx() -> Result<(), Failure> {
    lab::capability::has("mpx").map_err(|failure| failure.with_cause(NO_MPX))
}

/// Returns the failure of a CPU or kernel without MPX; `details` follow the reason.
pub(crate) fn no_mpx(details: &str) -> Failure {
    let why = format!("{NO_MPX} (CPUID and XCR0){details}");
    Failure::unsupported(why, MPX_REMEDY).with_cause(NO_MPX)
}

impl Drop for BoundsRegisters {
    fn drop(&mut self) {
        configure(0);
    }
}

/// Sets BNDCFGU. Requires a CPU with MPX and a kernel that has enabled its states.
fn configure(value: u64) {
    /// Larger than any XSAVE area in the standard format.
    #[repr(C, align(64))]
    struct Area([u64; 2048]);
    let mut area = Box::new(Area([0; 2048]));
    let at = __cpuid_count(0xD, 4).ebx as usize / 8;
    area.0[HEADER / 8] = CONFIGURATION;
    if let Some(word) = area.0.get_mut(at) {
        *word = value;
    }
    // SAFETY: the area is aligned, large enough, and contains one component. Only that component is restored, and
    // compiled code does not use it.
    unsafe {
        asm!("xrstor64 [{area}]", area = in(reg) &raw const *area, in("eax") CONFIGURATION as u32,
            in("edx") 0, options(nostack));
    }
}

/// Sets all bounds registers such that every check of a user address passes. `bndcn` compares with the upper bound as it is,
/// the others with its complement; so the bounds in which registers start, 0, stop every `bndcn`.
fn open_bounds(data: &Data) -> Result<(), Failure> {
    let before = [data.get(0), data.get(8)];
    data.set(0, 0);
    data.set(8, 1 << 62);
    // bndmov bndN, [r14]
    let code: Vec<u8> =
        (0..4).flat_map(|number| [0x66, 0x41, 0x0F, 0x1A, 0x06 | number << 3]).collect();
    let result = TimingLoop::new(&code, false)?.run(&mut State::new(data), 1);
    data.set(0, before[0]);
    data.set(8, before[1]);
    Ok(result.map_err(TimingError::from)?)
}

/// Returns whether bounds of a pointer in the data can be stored in the table.
fn stores_work(data: &Data) -> Result<bool, Failure> {
    // bndstx [r14+rax], bnd0; QEMU 7.2 skips a byte after it.
    let code = [0x41, 0x0F, 0x1B, 0x04, 0x06, 0x90, 0x90];
    Ok(TimingLoop::new(&code, false)?.run(&mut State::new(data), 1).is_ok())
}

/// Returns whether a check of an address below the lower bound faults, and one within the bounds does not.
fn checks_work(data: &Data) -> Result<bool, Failure> {
    // bndmk bnd0, [r14]; bndcl bnd0, rcx
    let code = [0xF3, 0x41, 0x0F, 0x1B, 0x06, 0xF3, 0x0F, 0x1A, 0xC1];
    let timing_loop = TimingLoop::new(&code, false)?;
    let outcome = |address| {
        let mut state = State::new(data);
        state.set_general(1, address);
        timing_loop.run(&mut state, 1)
    };
    Ok(outcome(data.address()).is_ok() && outcome(data.address() - 1).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Complete under `qemu-x86_64 -cpu max`, which emulates MPX.
    #[test]
    fn checks_work_only_while_the_registers_are_enabled() {
        let data = Data::new().unwrap();
        if !machine::cpu::has_mpx() {
            assert!(BoundsRegisters::on(&data).is_err());
            return machine::untested::note("bounds: bounds registers enabled", &"no MPX");
        }
        assert!(!checks_work(&data).unwrap());
        let registers = BoundsRegisters::on(&data).unwrap();
        assert!(checks_work(&data).unwrap());
        drop(registers);
        assert!(!checks_work(&data).unwrap());
    }
}
