//! The bounds registers of MPX, enabled for this thread. Their instructions are NOPs while they are disabled.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use iced_x86::CpuidFeature;
use lab::sample::Failure;
use machine::mapping::Mapping;

use crate::timing::{Data, State, TimingLoop};

/// Bit of the XSAVE state component with their configuration.
const CONFIGURATION: u64 = 1 << 4;
/// Offset of the component bits in an XSAVE area.
const HEADER: usize = 512;
/// Bits of BNDCFGU: enabled, and preserved across branches.
const ENABLED: u64 = 1 | 2;
/// Bytes of the directory: an 8-byte entry per MiB of a 48-bit address space.
const DIRECTORY: usize = 1 << 31;
/// Bytes of a table: 32 per 8 bytes of a MiB.
const TABLE: usize = 1 << 22;

/// Directory and table for pointers in the data. The registers are enabled while it lives.
pub(crate) struct BoundsRegisters {
    directory: Mapping,
    _table: Mapping,
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
        let registers = Self { directory, _table: table };
        configure(registers.directory.as_ptr() as u64 | ENABLED);
        match checks_work(data)? {
            true => Ok(registers),
            false => Err(Failure::unsupported(
                "the bounds registers exist but cannot be enabled: their instructions execute as NOP",
            )),
        }
    }
}

/// Returns the failure of a CPU or kernel without MPX; `details` follow the reason.
pub(crate) fn no_mpx(details: &str) -> Failure {
    let why = format!("this CPU has no MPX (CPUID and XCR0){details}");
    Failure::unsupported(why).with_cause("this CPU has no MPX")
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
