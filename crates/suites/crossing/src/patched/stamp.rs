//! Arming a kernel that was built with `CONFIG_CROSSING_STAMPS`, for one thread.
//!
//! The kernel's side of it is described in `kernel/README.md` of this crate.

use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;

use lab::sample::Failure;

use super::touch::instruction;

/// The prctl that registers an instruction: the patched `linux/prctl.h`.
const PR_SET_CROSSING_STAMPS: libc::c_int = 0x5853_5453;

/// While it lives, page faults of the touching instruction in this thread are stamped, and no others.
///
/// The kernel keeps the registration by thread, so it stays with the thread that made it.
#[derive(Debug)]
pub(super) struct Arming(PhantomData<*const ()>);

/// Has this thread's touches stamped where they fault.
///
/// # Errors
/// Where this kernel cannot stamp.
pub(super) fn armed() -> Result<Arming, Failure> {
    register(instruction()).map_err(|why| refused(&why))?;
    Ok(Arming(PhantomData))
}

impl Drop for Arming {
    fn drop(&mut self) {
        // A kernel that took the address takes this too; and the registration ends with the thread.
        let _ = register(0);
    }
}

/// Whether this kernel can stamp.
///
/// # Errors
/// Why not, and the remedy.
pub(super) fn available() -> Result<(), Failure> {
    static ASKED: OnceLock<Result<(), Failure>> = OnceLock::new();
    // Registering no instruction changes nothing, unless this thread is armed: that ends.
    ASKED.get_or_init(|| register(0).map_err(|why| refused(&why))).clone()
}

fn register(instruction: usize) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    let address = instruction as libc::c_ulong;
    // SAFETY: the call takes numbers alone. The kernel may change registers where that instruction
    // faults; it is none, or the touch's, whose code counts them as lost.
    let code = unsafe { libc::prctl(PR_SET_CROSSING_STAMPS, address, none, none, none) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn refused(why: &io::Error) -> Failure {
    match why.raw_os_error() {
        Some(libc::EINVAL) => Failure::unavailable(
            "this kernel has no crossing stamps",
            "build and boot it with crates/suites/crossing/kernel: its README says how",
        ),
        Some(libc::EOPNOTSUPP) => Failure::unavailable(
            "page faults do not come by the IDT here (FRED, or a Xen PV guest): no crossing stamps",
            "boot with fred=off, on hardware or under KVM",
        ),
        _ => Failure::failed(format!("prctl(PR_SET_CROSSING_STAMPS): {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_the_patch_says_so_and_one_with_it_arms() {
        match register(0) {
            Ok(()) => drop(armed().unwrap()),
            Err(why) => {
                let failure = armed().unwrap_err();
                assert_eq!(failure, refused(&why));
                assert_eq!(failure.kind, lab::sample::FailureKind::Unavailable);
                assert!(failure.remedy.is_some());
                assert_eq!(available().unwrap_err(), failure);
            }
        }
    }

    #[test]
    fn each_refusal_is_told_apart() {
        let told = |errno| refused(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(told(libc::EINVAL).contains("no crossing stamps"));
        assert!(told(libc::EOPNOTSUPP).contains("FRED"));
        assert!(told(libc::EPERM).starts_with("failed: prctl"));
    }
}
