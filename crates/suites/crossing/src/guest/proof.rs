//! Whether the handler's ring 0 was ring 0.
//!
//! Some hypervisors have no hardware beneath them and run a guest's kernel in ring 3, or emulate it: then
//! the time of a crossing is that of the hypervisor's software. Two things show it from inside: the
//! ring in CS as the handler reads it, and the time of an `rdtsc`, which hardware does not make
//! dearer in ring 0 than in ring 3.

use lab::sample::Failure;

use super::kind::Kind;
use super::tally::Tally;

/// How many times what it is in ring 3 the floor may be in the handler.
const DEARER: u64 = 4;

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
    let ring = tally.cs & 3;
    if tally.cs == 0 || ring != 0 {
        let why = format!("not ring 0: the guest's kernel reads CS {:#x}, ring {ring}", tally.cs);
        return Err(Failure::unavailable(why, REMEDY));
    }
    let (user, handler) = (u64::from(tally.floor_user), u64::from(tally.floor_handler));
    if handler > DEARER * user.max(step) + step {
        let why = format!(
            "not ring 0: two rdtsc in a row take {handler} ticks in the guest's kernel and {user} \
             outside it, so the kernel is emulated"
        );
        return Err(Failure::unavailable(why, REMEDY));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cs: u32, floor_user: u32, floor_handler: u32) -> Result<(), Failure> {
        let tally = Tally { cs, floor_user, floor_handler, ..Tally::default() };
        ring_0(Kind::PageFault, &tally, 26)
    }

    #[test]
    fn hardware_passes_with_any_step() {
        assert_eq!(seen(0x8, 26, 52), Ok(()));
        assert_eq!(seen(0x8, 0, 26), Ok(()));
        let coarse = Tally { cs: 8, floor_user: 18, floor_handler: 25, ..Tally::default() };
        assert_eq!(ring_0(Kind::Breakpoint, &coarse, 1), Ok(()));
    }

    #[test]
    fn a_kernel_in_ring_3_or_emulated_is_named() {
        let why = seen(0x33, 26, 26).unwrap_err().to_string();
        assert!(why.contains("not ring 0: the guest's kernel reads CS 0x33, ring 3"), "{why}");
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
