//! Intel MPX: a small static program, run by a CPU with MPX, or by QEMU to check function only. It is never run on other
//! CPUs, where the instructions are NOPs.

mod code;
mod image;
mod layout;
mod operation;
mod proof;
mod race;
mod runner;
#[cfg(test)]
mod tests;

use lab::capability::{Capability, state_of};

pub(crate) use race::Race;
pub(crate) use runner::Machine;

/// Returns MPX under QEMU as a capability of this machine, with the state of its known faults.
pub(crate) fn capability() -> Capability {
    let program = runner::QEMU;
    let verified = proof::verify(Machine::Emulated);
    let result = verified.and_then(|()| operation::faults(Machine::Emulated)).map(|faults| {
        match faults.fixed().as_slice() {
            [] => "workarounds for two known faults".to_owned(),
            fixed => format!("known faults that are fixed: {}", fixed.join(", ")),
        }
    });
    Capability {
        name: program.capability.into(),
        about: program.about.into(),
        state: state_of(result),
    }
}
