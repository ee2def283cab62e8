//! Intel MPX itself: a small static program of our own, run by a processor that has it, or by QEMU for
//! function alone. On any other processor its instructions would do nothing, and so are never run.

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

/// MPX under QEMU, tried, with which of the faults that are worked around it still has.
pub(crate) fn capability() -> Capability {
    let program = runner::QEMU;
    let proven = proof::prove(Machine::Emulated);
    let tried =
        proven.and_then(|()| operation::faults(Machine::Emulated)).map(|faults| {
            match faults.gone().as_slice() {
                [] => "its two known faults are worked around".to_owned(),
                gone => format!("of its known faults some are gone: {}", gone.join(", ")),
            }
        });
    Capability {
        name: program.capability.into(),
        about: program.about.into(),
        state: state_of(tried),
    }
}
