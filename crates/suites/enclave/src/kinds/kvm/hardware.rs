//! Whether an exit to this machine's KVM is one of the processor's.
//!
//! A KVM without hardware beneath it runs or emulates a guest's ring 0 by software, and so its exits cost
//! what that software costs. It is known by how ring 0 looks from inside (see [`machine::kvm::ring_0`]).

use std::sync::OnceLock;

use lab::sample::{Failure, FailureKind};
use machine::kvm::{self, Seen};
use machine::tsc::Tsc;

use super::guest::Guest;

const REMEDY: &str = "use a machine whose KVM is backed by hardware";

/// Whether exits mean what the kind's name says: a guest's start at the first call, then nothing.
///
/// # Errors
/// No KVM, or what was seen instead; and the remedy.
pub(super) fn measures() -> Result<(), Failure> {
    static TRIED: OnceLock<Result<(), Failure>> = OnceLock::new();
    TRIED.get_or_init(tried).clone()
}

fn tried() -> Result<(), Failure> {
    kvm::open()?;
    kvm::nested_paging()?;
    let tsc = Tsc::get().map_err(|why| Failure::unavailable(why.to_string(), REMEDY))?;
    let seen = seen().map_err(|failure| match failure.kind {
        FailureKind::Unavailable => failure,
        _ => {
            let why = format!("the guest does not run under this KVM: {}", failure.why);
            Failure::unavailable(why, REMEDY)
        }
    })?;
    kvm::ring_0(seen, tsc.step).map_err(|why| Failure::unavailable(why, REMEDY))
}

/// What a guest without a region sees of its rings.
fn seen() -> Result<Seen, Failure> {
    // SAFETY: there is no region.
    let guest = unsafe { Guest::new(0..0, &[], 1, |_| 0) }?;
    let mut processor = guest.processor(0);
    let (user, _) = processor.floor(guest.kernel(), false)?;
    let (kernel, cs) = processor.floor(guest.kernel(), true)?;
    Ok(Seen { cs, user, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rings_are_seen() {
        if let Err(why) = kvm::open() {
            return machine::untested::note("the rings of an enclave of kind kvm", &why);
        }
        let seen = seen().unwrap();
        println!("{seen:?}; {:?}", measures());
        assert!(seen.user > 0 && seen.kernel > 0 && seen.cs != 0, "{seen:?}");
    }
}
