//! A test whether exits of this machine's KVM are hardware exits.
//!
//! A KVM without hardware support runs or emulates the guest's ring 0 in software, so its exits cost what that
//! software costs. The test detects it by the behaviour of ring 0 inside the guest (see [`machine::kvm::ring_0`]).

use std::sync::OnceLock;

use lab::sample::{Failure, FailureKind};
use machine::kvm::{self, Ring0Observation};
use machine::tsc::Tsc;

use super::guest::Guest;

const REMEDY: &str = "use a machine whose KVM has hardware support";

/// Checks that exits cost what the kind's name implies. The first call starts a guest; later calls return its result.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix, if there is no KVM or its exits are not hardware exits.
pub(super) fn measures() -> Result<(), Failure> {
    static TRIED: OnceLock<Result<(), Failure>> = OnceLock::new();
    TRIED.get_or_init(tried).clone()
}

fn tried() -> Result<(), Failure> {
    kvm::open()?;
    kvm::nested_paging()?;
    let tsc = Tsc::get().map_err(|why| Failure::unavailable(why.to_string(), REMEDY))?;
    let observation = observe_rings().map_err(|failure| {
        if failure.kind == FailureKind::Unavailable {
            return failure;
        }
        let cause = "the guest does not run under this KVM";
        let why = format!("{cause}: {}", failure.why);
        Failure::unavailable(why, REMEDY).with_cause(cause)
    })?;
    kvm::ring_0(observation, Some(tsc.step)).map_err(|why| {
        let cause = "the guest's kernel does not run on the CPU itself";
        Failure::unavailable(why, REMEDY).with_cause(cause)
    })
}

/// Returns the observations of a guest without a region in its two rings.
fn observe_rings() -> Result<Ring0Observation, Failure> {
    // SAFETY: there is no region that could be dropped too early.
    let guest = unsafe { Guest::new(0..0, &[], 1, |_| 0) }?;
    let mut processor = guest.processor(0);
    let (user, _) = processor.floor(guest.kernel(), false)?;
    let (kernel, cs) = processor.floor(guest.kernel(), true)?;
    Ok(Ring0Observation { cs, user, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rings_are_observed() {
        if let Err(why) = kvm::open() {
            return machine::untested::note("the rings of an enclave of kind kvm", &why);
        }
        let seen = observe_rings().unwrap();
        println!("{seen:?}; {:?}", measures());
        assert!(seen.user > 0 && seen.kernel > 0 && seen.cs != 0, "{seen:?}");
    }
}
