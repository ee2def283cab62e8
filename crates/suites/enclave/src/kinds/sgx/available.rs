//! The requirements of SGX enclaves, and which of them this machine lacks.

use std::io;

use lab::sample::Failure;
use libloading::os::unix::{Library, RTLD_NOW};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::driver::{FILE, Kernel};
use super::entry::Vdso;
use super::processor::{CpuidLeaves, Processor};

/// The vDSO's function that enters an enclave.
const ENTER: &str = "__vdso_sgx_enter_enclave";

/// The detected requirements.
struct Found {
    /// CPUID leaf 7, EBX bit 2.
    extensions: bool,
    /// CPUID leaf 7, ECX bit 30.
    launch_control: bool,
    processor: Option<Processor>,
    /// Whether the kernel uses SGX, and may launch enclaves: the flags `sgx` and `sgx_lc` of `/proc/cpuinfo`.
    kernel: [bool; 2],
    /// Whether the driver's file could be opened.
    driver: io::Result<()>,
    /// Whether the file is on a file system from which no code can be mapped.
    noexec: bool,
    vdso: Option<Vdso>,
}

/// Returns the CPU's SGX parameters and the entry function.
///
/// # Errors
/// Returns `unavailable` with the first missing requirement and the fix.
pub(super) fn find() -> Result<(Processor, Vdso), Failure> {
    let leaves = CpuidLeaves::here();
    judge(Found {
        extensions: machine::cpu::has_sgx(),
        launch_control: leaves.has_launch_control(),
        processor: leaves.processor(),
        kernel: ["sgx", "sgx_lc"].map(|flag| machine::cpu::has_kernel_flag(flag).unwrap_or(false)),
        driver: Kernel::open().map(drop),
        noexec: statvfs(FILE).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC)),
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
            "use an Intel server CPU from Ice Lake on, with SGX enabled in the firmware and, in a VM, exposed by the \
             hypervisor; or kind=simulate",
        )
        .with_cause("this CPU has no SGX"));
    }
    let processor = found.processor.ok_or_else(|| {
        Failure::unavailable(
            "SGX is not enabled (CPUID 12H reports no enclaves)",
            "set SGX to enabled in the firmware, not to software controlled; servers also require memory encryption \
             (TME), no node interleaving, and memory modules as in their manual",
        )
    })?;
    if processor.epc == 0 {
        return Err(Failure::unavailable(
            "no memory is reserved for SGX (CPUID 12H reports no EPC)",
            "set the size of the SGX memory (PRMRR, EPC) in the firmware; in a VM, let the hypervisor add a section",
        ));
    }
    if !found.launch_control {
        return Err(Failure::unavailable(
            "this CPU has no flexible launch control (CPUID 7, ECX bit 30 is clear), which Linux's driver requires",
            "use an Intel server CPU from Ice Lake on; in a VM, let the hypervisor expose launch control",
        ));
    }
    found.driver.map_err(|why| no_driver(&why, found.kernel))?;
    if found.noexec {
        return Err(Failure::unavailable(
            format!(
                "{FILE} is on a file system that is mounted noexec, so no code of an enclave can be mapped"
            ),
            "as root: mount -o remount,exec /dev",
        ));
    }
    let vdso = found.vdso.ok_or_else(|| {
        Failure::unavailable(
            format!("this kernel's vDSO has no {ENTER}"),
            "run Linux 5.11 or later with CONFIG_X86_SGX=y, without vdso=0",
        )
    })?;
    Ok((processor, vdso))
}

/// Returns why the driver's file cannot be opened, by the kernel's flags `sgx` and `sgx_lc`.
fn no_driver(why: &io::Error, [sgx, launch]: [bool; 2]) -> Failure {
    let absent = |cause: &str| format!("{FILE} does not exist: {cause}");
    match why.raw_os_error() {
        Some(libc::ENOENT) if !sgx => Failure::unavailable(
            absent("the kernel does not use SGX (no sgx in /proc/cpuinfo)"),
            "run Linux 5.11 or later with CONFIG_X86_SGX=y and without nosgx; enable SGX and unlock its launch control \
             in the firmware; the kernel log states what is missing: dmesg | grep -i sgx",
        ),
        Some(libc::ENOENT) if !launch => Failure::unavailable(
            absent("the firmware has locked launch control (no sgx_lc in /proc/cpuinfo)"),
            "unlock it in the firmware (SGX launch control policy: unlocked)",
        ),
        Some(libc::ENOENT) => Failure::unavailable(
            absent("the kernel could launch enclaves"),
            format!(
                "in a container, pass the file: docker run --device {FILE}; otherwise see: dmesg | grep -i sgx"
            ),
        ),
        Some(libc::EACCES) => Failure::unavailable(
            format!("no permission to open {FILE}"),
            format!(
                "join the group that ls -l {FILE} shows, usually by sudo usermod -aG sgx $USER, and log in again; \
                 if it is root, add a udev rule (systemd has one from 248 on): KERNEL==\"sgx_enclave\", \
                 GROUP=\"sgx\", MODE=\"0660\""
            ),
        ),
        Some(libc::EPERM) => Failure::unavailable(
            format!("no permission to open {FILE}, e.g. in a container without it"),
            format!("pass the file to the container: docker run --device {FILE}"),
        ),
        _ => Failure::unavailable(
            format!("{FILE} cannot be opened: {why}"),
            "see the kernel log: dmesg | grep -i sgx",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSOR: Processor =
        Processor { xfrm: 7, frame_pages: 1, largest: 1 << 36, epc: 1 << 32 };

    fn all() -> Found {
        let (processor, vdso) = (Some(PROCESSOR), Some(0x1000));
        let (extensions, launch_control, kernel) = (true, true, [true; 2]);
        Found { extensions, launch_control, processor, kernel, driver: Ok(()), noexec: false, vdso }
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
        let processor = Some(Processor { epc: 0, ..PROCESSOR });
        why(Found { processor, ..all() }, "no EPC", "PRMRR");
        why(Found { launch_control: false, ..all() }, "launch control", "hypervisor");
        let absent = |kernel| Found { driver: failed(libc::ENOENT), kernel, ..all() };
        why(absent([false; 2]), "/dev/sgx_enclave does not exist", "CONFIG_X86_SGX");
        why(absent([true, false]), "locked launch control", "unlock");
        why(absent([true; 2]), "does not exist", "--device");
        let refused = |errno| Found { driver: failed(errno), ..all() };
        why(refused(libc::EACCES), "no permission", "usermod -aG sgx");
        why(refused(libc::EPERM), "container", "--device");
        why(refused(libc::ENODEV), "cannot be opened", "dmesg");
        why(Found { noexec: true, ..all() }, "noexec", "remount,exec");
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
