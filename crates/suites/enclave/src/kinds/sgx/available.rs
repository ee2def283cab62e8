//! The requirements of SGX enclaves, and which of them this machine lacks.

use std::io;

use lab::sample::Failure;
use libloading::os::unix::{Library, RTLD_NOW};

use super::driver::{FILE, Kernel};
use super::entry::Vdso;
use super::processor::{CpuidLeaves, Processor};

/// The vDSO's function that enters an enclave.
const ENTER: &str = "__vdso_sgx_enter_enclave";

/// The detected requirements.
struct Found {
    /// CPUID leaf 7, EBX bit 2.
    extensions: bool,
    processor: Option<Processor>,
    /// Whether the driver's file could be opened.
    driver: io::Result<()>,
    vdso: Option<Vdso>,
}

/// Returns the CPU's SGX parameters and the entry function.
///
/// # Errors
/// Returns `unavailable` with the first missing requirement and the fix.
pub(super) fn find() -> Result<(Processor, Vdso), Failure> {
    judge(Found {
        extensions: machine::cpu::has_sgx(),
        processor: CpuidLeaves::here().processor(),
        driver: Kernel::open().map(drop),
        vdso: vdso_function(ENTER),
    })
}

/// Returns the address of a function of the vDSO, which the kernel maps into every process.
fn vdso_function(name: &str) -> Option<Vdso> {
    // SAFETY: the vDSO is already loaded (RTLD_NOLOAD), so no initialiser runs.
    let vdso =
        unsafe { Library::open(Some("linux-vdso.so.1"), RTLD_NOW | libc::RTLD_NOLOAD) }.ok()?;
    // SAFETY: only the address is used; the vDSO is never unloaded.
    unsafe { vdso.get::<Vdso>(name) }.ok().map(|function| *function)
}

fn judge(found: Found) -> Result<(Processor, Vdso), Failure> {
    if !found.extensions {
        return Err(Failure::unavailable(
            "this CPU has no SGX (CPUID 7, EBX bit 2 is clear)",
            "use an Intel server CPU from Ice Lake on, with SGX enabled in the firmware, or kind=simulate",
        )
        .with_cause("this CPU has no SGX"));
    }
    let processor = found.processor.ok_or_else(|| {
        Failure::unavailable(
            "SGX is not enabled (CPUID 12H reports no enclaves)",
            "enable SGX in the firmware, and reserve memory for it",
        )
    })?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the kernel has many other errors")]
    found.driver.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => Failure::unavailable(
            format!("{FILE} does not exist"),
            "run Linux 5.11 or later with CONFIG_X86_SGX=y and enable flexible launch control in the \
             firmware",
        ),
        io::ErrorKind::PermissionDenied => Failure::unavailable(
            format!("no permission to open {FILE}: {why}"),
            "add your user to the group that ls -l shows, usually sgx, and log in again",
        ),
        _ => Failure::unavailable(
            format!("{FILE} cannot be opened: {why}"),
            "see the SGX lines of the kernel log",
        ),
    })?;
    let vdso = found.vdso.ok_or_else(|| {
        Failure::unavailable(
            format!("this kernel's vDSO has no {ENTER}"),
            "run Linux 5.11 or later with CONFIG_X86_SGX=y, without vdso=0",
        )
    })?;
    Ok((processor, vdso))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSOR: Processor = Processor { xfrm: 7, frame_pages: 1, largest: 1 << 36 };

    fn all() -> Found {
        let (processor, vdso) = (Some(PROCESSOR), Some(0x1000));
        Found { extensions: true, processor, driver: Ok(()), vdso }
    }

    #[test]
    fn each_missing_requirement_is_named_with_its_fix() {
        assert_eq!(judge(all()), Ok((PROCESSOR, 0x1000)));
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        let why = |found, reason: &str, remedy: &str| {
            let failure = judge(found).unwrap_err();
            assert!(failure.why.contains(reason), "{failure}");
            let fix = failure.remedy.unwrap();
            assert!(fix.contains(remedy), "{fix}");
            assert!(!failure.why.contains('\n') && !fix.contains('\n'));
        };
        why(Found { extensions: false, ..all() }, "CPUID 7", "kind=simulate");
        why(Found { processor: None, ..all() }, "CPUID 12H", "firmware");
        why(
            Found { driver: failed(libc::ENOENT), ..all() },
            "/dev/sgx_enclave does not exist",
            "CONFIG_X86_SGX",
        );
        why(
            Found { driver: failed(libc::EACCES), ..all() },
            "no permission to open",
            "usually sgx",
        );
        why(Found { driver: failed(libc::ENODEV), ..all() }, "cannot be opened", "log");
        why(Found { vdso: None, ..all() }, "__vdso_sgx_enter_enclave", "vdso=0");
    }

    #[test]
    fn this_machine_has_sgx_or_the_error_states_a_fix() {
        match find() {
            Ok((processor, _)) => assert!(processor.xfrm & 3 == 3 && processor.frame_pages > 0),
            Err(failure) => assert!(failure.remedy.is_some(), "{failure}"),
        }
    }

    #[test]
    fn the_kernels_clock_is_found_and_returns_the_time() {
        let clock = vdso_function("__vdso_clock_gettime").expect("every kernel has it");
        // SAFETY: it is the kernel's function, with the C library's types.
        let clock: extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32 =
            unsafe { std::mem::transmute(clock) };
        let time = |clock: &dyn Fn(libc::clockid_t, *mut libc::timespec) -> i32| {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            assert_eq!(clock(libc::CLOCK_MONOTONIC, &raw mut time), 0);
            (time.tv_sec, time.tv_nsec)
        };
        // SAFETY: it writes the time.
        let system = |which, into| unsafe { libc::clock_gettime(which, into) };
        let before = time(&system);
        let between = time(&|which, into| clock(which, into));
        assert!(before <= between && between <= time(&system));
        assert_eq!(vdso_function("__vdso_no_such_function"), None);
    }

    #[test]
    fn the_entry_function_is_found_if_the_kernel_has_it() {
        // A kernel has it if built with CONFIG_X86_SGX, regardless of the processor; both outcomes are valid.
        match vdso_function(ENTER) {
            Some(address) => assert!(address > 0x1000),
            None => machine::untested::note(ENTER, &"this kernel's vDSO has no such function"),
        }
    }
}
