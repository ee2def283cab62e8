//! Whether a point can be measured under this machine's KVM, and why not.

use std::sync::OnceLock;

use lab::capability::{Capability, state_of};
use lab::sample::{Failure, FailureKind};
use machine::kvm;
use machine::tsc::Tsc;

use super::image::Image;
use super::kind::Kind;
use super::kvm::Guest;
use super::measure::START;
use super::proof;

/// Crossings by which ring 0 is tried.
const TRY: u64 = 64;

/// Whether a point can be measured here: a guest's start at the first call, then nothing.
///
/// # Errors
/// No KVM, one whose guests do not run ring 0, or one that takes this kind of crossing itself; and
/// the remedy.
pub fn available(kind: Kind) -> Result<(), Failure> {
    match kind {
        Kind::None => Ok(kvm::open().map(drop)?),
        // Source: Linux 6.12, vmx_update_exception_bitmap and init_vmcb: both always intercept #UD.
        Kind::InvalidOpcode => tried().clone().and(Err(Failure::unavailable(
            "KVM takes invalid opcodes itself, since it emulates some: the time would be an exit's",
            "boot the guest on bare metal: tollgate crossing guest --write FILE",
        ))),
        _ => ring_0(),
    }
}

/// Whether this machine's KVM runs a guest's ring 0.
///
/// # Errors
/// What was seen instead, and the remedy.
pub fn ring_0() -> Result<(), Failure> {
    tried().clone().map(drop)
}

/// The same for those who ask what this machine can measure.
pub fn capability() -> Capability {
    let state = state_of(tried().clone());
    Capability { name: "kvm-ring-0".into(), about: "a KVM whose guests run ring 0".into(), state }
}

/// Ring 0 as a few page faults see it, tried once a process.
pub(super) fn tried() -> &'static Result<String, Failure> {
    static TRIED: OnceLock<Result<String, Failure>> = OnceLock::new();
    TRIED.get_or_init(|| {
        kvm::open()?;
        kvm::nested_paging()?;
        let tsc = Tsc::get().map_err(|why| Failure::unavailable(why.to_string(), proof::REMEDY))?;
        let tally = Guest::new(&Image::new())
            .and_then(|mut guest| guest.sample(Kind::PageFault, false, TRY, TRY, START))
            .map_err(|failure| match failure.kind {
                FailureKind::Unavailable => failure,
                _ => Failure::unavailable(
                    format!("the guest does not run under this KVM: {}", failure.why),
                    proof::REMEDY,
                ),
            })?;
        proof::ring_0(Kind::PageFault, &tally, tsc.step)?;
        Ok(format!(
            "CS {:#x}; two rdtsc in a row {} ticks, in ring 3 {}",
            tally.cs, tally.floor_handler, tally.floor_user
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_0_is_real_or_named() {
        match tried() {
            Ok(seen) => println!("{seen}"),
            Err(failure) => {
                println!("{failure}");
                assert_eq!(failure.kind, FailureKind::Unavailable);
                assert!(failure.remedy.is_some() && !failure.why.contains('\n'));
            }
        }
        let capability = capability();
        assert_eq!(capability.name, "kvm-ring-0");
        assert_eq!(capability.state.is_present(), tried().is_ok());
    }

    #[test]
    fn invalid_opcodes_are_never_timed_under_kvm() {
        let failure = available(Kind::InvalidOpcode).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
    }
}
