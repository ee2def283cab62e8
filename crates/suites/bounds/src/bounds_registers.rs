//! The bounds registers of MPX, switched on for this thread; where they are off, their instructions are NOPs.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use iced_x86::CpuidFeature;
use lab::sample::Failure;
use machine::mapping::Mapping;

use crate::timing::{Data, State, TimingLoop};

/// The state component that holds their configuration, by its bit.
const CONFIGURATION: u64 = 1 << 4;
/// Where the header of an XSAVE area says which components it holds.
const HEADER: usize = 512;
/// Enabled, and kept over branches.
const ENABLED: u64 = 1 | 2;
/// Bytes of a directory: an entry of 8 bytes for each MiB of 2^48.
const DIRECTORY: usize = 1 << 31;
/// Bytes of a table: 32 for each 8 of a MiB.
const TABLE: usize = 1 << 22;

/// What bounds of pointers in the data are kept in; the registers are on while it lives.
pub(crate) struct BoundsRegisters {
    directory: Mapping,
    _table: Mapping,
}

impl BoundsRegisters {
    /// The same for code that needs these features; nothing where it needs no bounds registers.
    ///
    /// # Errors
    /// As for [`BoundsRegisters::on`].
    pub(crate) fn for_code(
        features: &[CpuidFeature],
        data: &Data,
    ) -> Result<Option<Self>, Failure> {
        features.contains(&CpuidFeature::MPX).then(|| Self::on(data)).transpose()
    }

    /// Switches them on for this thread, with a table for the bounds of pointers that lie in the data, and
    /// makes sure that a check fails where it must.
    ///
    /// # Errors
    /// Where this CPU or its kernel has none.
    pub(crate) fn on(data: &Data) -> Result<Self, Failure> {
        if !machine::cpu::has_mpx() {
            return Err(Failure::unsupported("this CPU has no MPX (CPUID and XCR0)"));
        }
        let directory = Mapping::anonymous(DIRECTORY)?;
        let table = Mapping::anonymous(TABLE)?;
        table.prefault()?;
        let entry = (data.address() as usize >> 20 & ((1 << 28) - 1)) * 8;
        // SAFETY: the entry lies in the directory, for user addresses have 47 bits; nobody else has it yet.
        unsafe {
            directory.as_mut_ptr().add(entry).cast::<u64>().write(table.as_ptr() as u64 | 1);
        }
        let registers = Self { directory, _table: table };
        configure(registers.directory.as_ptr() as u64 | ENABLED);
        match checks_fail_where_they_must(data)? {
            true => Ok(registers),
            false => Err(Failure::unsupported(
                "the bounds registers are here and cannot be switched on: their instructions run as NOP",
            )),
        }
    }
}

impl Drop for BoundsRegisters {
    fn drop(&mut self) {
        configure(0);
    }
}

/// Sets BNDCFGU. Only where the CPU has MPX and the kernel has enabled its states.
fn configure(value: u64) {
    /// Larger than any XSAVE area in the standard form.
    #[repr(C, align(64))]
    struct Area([u64; 2048]);
    let mut area = Box::new(Area([0; 2048]));
    let at = __cpuid_count(0xD, 4).ebx as usize / 8;
    area.0[HEADER / 8] = CONFIGURATION;
    if let Some(word) = area.0.get_mut(at) {
        *word = value;
    }
    // SAFETY: the area is aligned, as large as CPUID says and holds one component, which alone is restored;
    // it is none that compiled code uses.
    unsafe {
        asm!("xrstor64 [{area}]", area = in(reg) &raw const *area, in("eax") CONFIGURATION as u32,
            in("edx") 0, options(nostack));
    }
}

/// Whether a check of an address below the lower bound raises a fault, and one inside none.
fn checks_fail_where_they_must(data: &Data) -> Result<bool, Failure> {
    // bndmk bnd0, [r14]; bndcl bnd0, rcx
    let code = [0xF3, 0x41, 0x0F, 0x1B, 0x06, 0xF3, 0x0F, 0x1A, 0xC1];
    let looped = TimingLoop::new(&code, false)?;
    let outcome = |address| {
        let mut state = State::new(data);
        state.set_general(1, address);
        looped.run(&mut state, 1)
    };
    Ok(outcome(data.address()).is_ok() && outcome(data.address() - 1).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in full under `qemu-x86_64 -cpu max`, which has MPX for function alone.
    #[test]
    fn checks_fail_once_they_are_on() {
        let data = Data::new().unwrap();
        if !machine::cpu::has_mpx() {
            assert!(BoundsRegisters::on(&data).is_err());
            return machine::untested::note("bounds: bounds registers switched on", &"no MPX here");
        }
        assert!(!checks_fail_where_they_must(&data).unwrap());
        let registers = BoundsRegisters::on(&data).unwrap();
        assert!(checks_fail_where_they_must(&data).unwrap());
        drop(registers);
        assert!(!checks_fail_where_they_must(&data).unwrap());
    }
}
