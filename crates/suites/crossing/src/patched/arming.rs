//! State of the running kernel: stamping for one thread, with `CONFIG_CROSSING_STAMPS`, and page-table isolation.
//!
//! `kernel/README.md` of this crate describes the kernel's side of stamping.

use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;

use lab::sample::Failure;
use machine::cpu;

use super::touch::instruction;

/// The prctl that registers an instruction. Source: the patched `linux/prctl.h`.
const PR_SET_CROSSING_STAMPS: libc::c_int = 0x5853_5453;

/// Guard that has the kernel stamp the page faults of the touching instruction, and no others, until dropped.
///
/// The kernel registers the instruction for the calling thread only, so the guard cannot move to another thread.
#[derive(Debug)]
pub(super) struct Armed(PhantomData<*const ()>);

/// Starts stamping the faults of this thread's touches.
///
/// # Errors
/// Returns `unavailable` if this kernel does not stamp.
pub(super) fn arm() -> Result<Armed, Failure> {
    register(instruction()).map_err(|why| to_failure(&why))?;
    Ok(Armed(PhantomData))
}

impl Drop for Armed {
    fn drop(&mut self) {
        // A kernel that accepted the address accepts 0 too, and the registration ends with the thread.
        let _ = register(0);
    }
}

/// Checks that this kernel can stamp.
///
/// # Errors
/// Returns `unavailable` with the cause and the fix.
pub(super) fn available() -> Result<(), Failure> {
    static RESULT: OnceLock<Result<(), Failure>> = OnceLock::new();
    // Registering address 0 has no effect except to disarm this thread.
    RESULT.get_or_init(|| register(0).map_err(|why| to_failure(&why))).clone()
}

fn register(instruction: usize) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    let address = instruction as libc::c_ulong;
    // SAFETY: the call takes only numbers. The kernel may change registers when that instruction faults: it is
    // none, or the touch, whose code declares them as clobbered.
    let code = unsafe { libc::prctl(PR_SET_CROSSING_STAMPS, address, none, none, none) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn to_failure(why: &io::Error) -> Failure {
    match why.raw_os_error() {
        Some(libc::EINVAL) => Failure::unavailable(
            "the running kernel does not stamp crossings",
            "build and boot a patched kernel: see crates/suites/crossing/kernel/README.md",
        ),
        Some(libc::EOPNOTSUPP) => Failure::unavailable(
            "the running kernel cannot stamp page faults, which do not arrive through the IDT (FRED or Xen PV)",
            "boot with fred=off, on bare metal or under KVM",
        ),
        _ => Failure::failed(format!("prctl(PR_SET_CROSSING_STAMPS): {why}")),
    }
}

/// Returns whether the running kernel isolates the page tables of kernel and user.
///
/// # Errors
/// Returns `failed` if /proc/cpuinfo cannot be read.
pub(super) fn is_isolated() -> Result<bool, Failure> {
    // The kernel lists `pti` if it is in use, forced or not.
    cpu::has_kernel_flag("pti").map_err(|why| Failure::failed(format!("/proc/cpuinfo: {why}")))
}

/// Checks that page-table isolation is on or off in this boot, as requested.
///
/// # Errors
/// Returns `unavailable` if this boot has the other.
pub(super) fn check_isolation(isolated: bool) -> Result<(), Failure> {
    let current = is_isolated()?;
    if isolated == current {
        return Ok(());
    }
    let level = |isolated| if isolated { "on" } else { "off" };
    Err(Failure::unavailable(
        format!("page-table isolation is {} in this boot", level(current)),
        format!("boot with pti={} and resume the run", level(isolated)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_works_or_is_unavailable_with_a_fix() {
        match register(0) {
            Ok(()) => drop(arm().unwrap()),
            Err(why) => {
                let failure = arm().unwrap_err();
                assert_eq!(failure, to_failure(&why));
                assert_eq!(failure.kind, lab::sample::FailureKind::Unavailable);
                assert!(failure.remedy.is_some());
                assert_eq!(available().unwrap_err(), failure);
            }
        }
    }

    #[test]
    fn each_error_of_the_kernel_has_its_message() {
        let message = |errno| to_failure(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(message(libc::EINVAL).contains("does not stamp crossings"));
        assert!(message(libc::EOPNOTSUPP).contains("FRED"));
        assert!(message(libc::EPERM).starts_with("failed: prctl"));
    }

    #[test]
    fn exactly_one_isolation_is_available_in_this_boot() {
        let current = is_isolated().unwrap();
        assert_eq!(check_isolation(current), Ok(()));
        let other = if current { "pti=off" } else { "pti=on" };
        assert!(check_isolation(!current).unwrap_err().to_string().contains(other));
    }
}
