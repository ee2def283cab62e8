//! Whether the handler's ring 0 was ring 0, by what each sample itself saw of it: see [`machine::kvm::ring_0`].

use lab::sample::Failure;
use machine::kvm::Seen;

use super::kind::Kind;
use super::tally::Tally;

/// What helps where ring 0 is not real.
pub(super) const REMEDY: &str = "use a machine whose KVM is backed by hardware, or boot the guest on \
                                 bare metal: tollgate crossing guest --write FILE";

/// Whether the handler ran in ring 0, where the kind has one.
///
/// # Errors
/// 'not ring 0', with what was seen and the remedy.
pub(super) fn ring_0(kind: Kind, tally: &Tally, step: u64) -> Result<(), Failure> {
    if !kind.needs_ring_0() {
        return Ok(());
    }
    let seen =
        Seen { cs: tally.cs, user: tally.floor_user.into(), kernel: tally.floor_handler.into() };
    machine::kvm::ring_0(seen, step).map_err(|why| Failure::unavailable(why, REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cs: u32, floor_user: u32, floor_handler: u32) -> Result<(), Failure> {
        let tally = Tally { cs, floor_user, floor_handler, ..Tally::default() };
        ring_0(Kind::PageFault, &tally, 26)
    }

    #[test]
    fn a_kernel_that_is_not_ring_0_is_named_with_the_remedy() {
        assert_eq!(seen(0x8, 26, 52), Ok(()));
        let why = seen(0x8, 26, 14_000).unwrap_err().to_string();
        assert!(why.contains("take 14000 ticks in the guest's kernel and 26 outside"), "{why}");
        assert!(why.contains("tollgate crossing guest --write FILE"), "{why}");
        // No handler ever ran.
        assert!(seen(0, 26, u32::MAX).is_err());
    }

    #[test]
    fn stamps_alone_need_no_ring_0() {
        let tally = Tally { floor_handler: u32::MAX, ..Tally::default() };
        assert_eq!(ring_0(Kind::None, &tally, 26), Ok(()));
    }
}
