//! Virtual machines through KVM: opening it, vCPUs in 64-bit mode, and whether a guest's ring 0 is real.

pub mod tables;

use std::path::Path;

use kvm_bindings::{
    CpuId, KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_sregs, kvm_userspace_memory_region,
};
use kvm_ioctls::{Error, Kvm, VcpuFd, VmFd};

use crate::Unavailable;

/// Address at which KVM may place the three pages of its TSS on older Intel CPUs: below 4 GiB and far from any memory of a
/// guest. Its identity map is the page before them, 0xfffb_c000 by default.
const KVM_TSS: usize = 0xfffb_d000;

/// Opens KVM.
///
/// # Errors
/// Returns why KVM is unavailable, and the remedy.
pub fn open() -> Result<Kvm, Unavailable> {
    Kvm::new().map_err(|error| match error.errno() {
        libc::ENOENT | libc::ENODEV => Unavailable::new(
            "/dev/kvm does not exist",
            "load kvm_intel or kvm_amd; in a VM, enable nested virtualisation in the hypervisor",
        ),
        libc::EACCES | libc::EPERM => Unavailable::new(
            "no permission for /dev/kvm",
            "join the group kvm: usermod -aG kvm USER, then log in again",
        ),
        _ => Unavailable::new(format!("/dev/kvm: {error}"), "give the process access to it"),
    })
}

/// Creates a VM without memory. Guests must not use the addresses from 0xfffb_c000, KVM's identity map, to 4 GiB.
///
/// # Errors
/// Returns KVM's error.
pub fn create_vm(kvm: &Kvm) -> Result<VmFd, Error> {
    create_and_set_up(|| kvm.create_vm(), |vm| vm.set_tss_address(KVM_TSS))
}

/// Maps `length` bytes of this process at `host_address` into a guest, at its physical address `guest_address`.
///
/// # Errors
/// Returns KVM's error.
///
/// # Safety
/// The memory must stay mapped while the VM exists.
pub unsafe fn set_memory(
    vm: &VmFd,
    slot: u32,
    guest_address: u64,
    host_address: usize,
    length: usize,
) -> Result<(), Error> {
    let region = kvm_userspace_memory_region {
        slot,
        flags: 0,
        guest_phys_addr: guest_address,
        memory_size: length as u64,
        userspace_addr: host_address as u64,
    };
    // SAFETY: the caller guarantees that the memory stays mapped.
    unsafe { vm.set_user_memory_region(region) }
}

/// Creates an object and sets it up, by calls to KVM that a signal may interrupt.
fn create_and_set_up<T>(
    create: impl FnMut() -> Result<T, Error>,
    mut set_up: impl FnMut(&T) -> Result<(), Error>,
) -> Result<T, Error> {
    let created = retry_on_eintr(create)?;
    retry_on_eintr(|| set_up(&created))?;
    Ok(created)
}

/// Repeats a call to KVM that a signal interrupted: KVM_CREATE_VM waits for locks and gives up on a signal.
fn retry_on_eintr<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    /// More signals than arrive during one call, unless something is wrong.
    const MAX_ATTEMPTS: u32 = 1000;
    for _ in 1..MAX_ATTEMPTS {
        match call() {
            Err(error) if error.errno() == libc::EINTR => {}
            result => return result,
        }
    }
    call()
}

/// Returns all CPUID leaves that KVM supports for a vCPU.
///
/// # Errors
/// Returns KVM's error.
pub fn cpuid(kvm: &Kvm) -> Result<CpuId, Error> {
    retry_on_eintr(|| kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES))
}

/// Creates a vCPU.
///
/// # Errors
/// Returns KVM's error.
pub fn create_vcpu(vm: &VmFd, number: u64, cpuid: &CpuId) -> Result<VcpuFd, Error> {
    create_and_set_up(|| vm.create_vcpu(number), |vcpu| vcpu.set_cpuid2(cpuid))
}

/// Returns the type of the 64-bit TSS in TR under this KVM.
///
/// VMX enters a guest in long mode only with a busy TSS (11; Intel SDM, volume 3, checks on guest segment
/// registers). SVM has no such check, and its CPUs keep TR without the busy bit, which KVM therefore
/// adds when it reads TR. QEMU's emulation of SVM honours the I/O bitmap only of an available TSS (9).
pub fn tss_type(cpuid: &CpuId) -> u8 {
    const AVAILABLE: u8 = 9;
    const BUSY: u8 = 11;
    let vendor = cpuid.as_slice().iter().find(|leaf| leaf.function == 0);
    let vendor = vendor.map(|leaf| [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat());
    let svm: [&[u8]; 2] = [b"AuthenticAMD", b"HygonGenuine"];
    if vendor.is_some_and(|vendor| svm.contains(&vendor.as_slice())) { AVAILABLE } else { BUSY }
}

/// Sets a vCPU's system registers for 64-bit mode with paging, in the ring of its selectors.
pub fn set_long_mode(sregs: &mut kvm_sregs, page_table: u64, code: u16, data: u16) {
    let code = kvm_segment {
        limit: u32::MAX,
        selector: code,
        type_: 11,
        present: 1,
        dpl: (code & 3) as u8,
        s: 1,
        l: 1,
        g: 1,
        ..Default::default()
    };
    let data = kvm_segment { selector: data, type_: 3, l: 0, db: 1, ..code };
    sregs.cs = code;
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.cr3 = page_table;
    // PAE; then paging, write protection, native FPU errors and protection; then long mode, active.
    sregs.cr4 = 1 << 5;
    sregs.cr0 = 0x8001_0033;
    sregs.efer = 1 << 8 | 1 << 10;
}

/// Checks that page faults and CR3 loads stay inside a guest: with shadow page tables each exits to KVM.
///
/// # Errors
/// Returns the module parameter that disables nested paging, and the remedy.
pub fn nested_paging() -> Result<(), Unavailable> {
    nested_paging_of(Path::new("/sys/module"))
}

fn nested_paging_of(modules: &Path) -> Result<(), Unavailable> {
    for (module, parameter) in [("kvm_intel", "ept"), ("kvm_amd", "npt")] {
        let file = modules.join(module).join("parameters").join(parameter);
        let value = std::fs::read_to_string(file).unwrap_or_default();
        if ["N", "0"].contains(&value.trim()) {
            return Err(Unavailable::new(
                format!(
                    "KVM runs without nested paging ({module} {parameter}={}), so page faults \
                         and CR3 switches are exits to it",
                    value.trim()
                ),
                format!(
                    "load it with {parameter}=1, if the CPU or the outer hypervisor supports it"
                ),
            ));
        }
    }
    Ok(())
}

/// Observations of a guest in ring 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring0Observation {
    /// CS as read by code in ring 0; 0 if none ran.
    pub cs: u32,
    /// Minimum time between two consecutive `rdtsc` in the guest's ring 3, in ticks.
    pub user: u64,
    /// Minimum time between them in its ring 0, in ticks.
    pub kernel: u64,
}

/// Checks that a guest's ring 0 is the CPU's ring 0.
///
/// Some hypervisors lack hardware support and run a guest's kernel in ring 3, or emulate it. Two things
/// reveal this from inside: the ring in CS, and the time of an `rdtsc`, which real hardware does not make
/// slower in ring 0 than in ring 3. `step` is the step of the counter in ticks; `None` on an emulated CPU, where only CS
/// is checked, because times there are meaningless.
///
/// # Errors
/// Returns one line with the observations.
pub fn ring_0(observation: Ring0Observation, step: Option<u64>) -> Result<(), String> {
    /// Maximum ratio of the time in ring 0 to that in ring 3.
    const MAX_RATIO: u64 = 4;
    let Ring0Observation { cs, user, kernel } = observation;
    if cs == 0 || cs & 3 != 0 {
        let ring = cs & 3;
        return Err(format!("the guest's kernel runs in ring {ring} (it reads CS {cs:#x})"));
    }
    if step.is_some_and(|step| kernel > MAX_RATIO * user.max(step) + step) {
        return Err(format!(
            "the guest's kernel is emulated (two consecutive rdtsc take {kernel} ticks in it and {user} \
             outside it)"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_with_shadow_page_tables_is_reported() {
        let modules = tempfile::tempdir().unwrap();
        assert_eq!(nested_paging_of(modules.path()), Ok(()));
        let parameters = modules.path().join("kvm_intel/parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        std::fs::write(parameters.join("ept"), "Y\n").unwrap();
        assert_eq!(nested_paging_of(modules.path()), Ok(()));
        std::fs::write(parameters.join("ept"), "N\n").unwrap();
        let why = nested_paging_of(modules.path()).unwrap_err().to_string();
        assert!(why.contains("without nested paging (kvm_intel ept=N)"), "{why}");
        assert!(why.contains("ept=1"), "{why}");
    }

    #[test]
    fn hardware_passes_with_any_step() {
        for (user, kernel, step) in [(26, 52, 26), (0, 26, 26), (18, 25, 1)] {
            assert_eq!(ring_0(Ring0Observation { cs: 8, user, kernel }, Some(step)), Ok(()));
        }
    }

    #[test]
    fn a_kernel_in_ring_3_or_emulated_is_reported() {
        let why =
            |cs, kernel| ring_0(Ring0Observation { cs, user: 26, kernel }, Some(26)).unwrap_err();
        let ring = why(0x33, 26);
        assert!(ring.contains("the guest's kernel runs in ring 3 (it reads CS 0x33)"), "{ring}");
        let time = why(0x8, 14_000);
        assert!(time.contains("take 14000 ticks in it and 26 outside"), "{time}");
        // No code ran in ring 0.
        why(0, u32::MAX.into());
    }

    #[test]
    fn on_an_emulated_cpu_only_the_ring_is_checked() {
        let seen = |cs| Ring0Observation { cs, user: 26, kernel: 14_000 };
        assert_eq!(ring_0(seen(0x8), None), Ok(()));
        assert!(ring_0(seen(0x33), None).unwrap_err().contains("ring 3"));
        assert!(ring_0(seen(0), None).is_err());
    }

    #[test]
    fn an_interrupted_call_is_repeated() {
        let mut left = 3;
        let made = retry_on_eintr(|| {
            left -= 1;
            if left > 0 { Err(Error::new(libc::EINTR)) } else { Ok("made") }
        });
        assert_eq!((made, left), (Ok("made"), 0));
        let mut calls = 0;
        let mut refused = |errno| {
            calls = 0;
            let refused: Result<(), Error> = retry_on_eintr(|| {
                calls += 1;
                Err(Error::new(errno))
            });
            (refused.unwrap_err().errno(), calls)
        };
        assert_eq!(refused(libc::ENOMEM), (libc::ENOMEM, 1));
        assert_eq!(refused(libc::EINTR), (libc::EINTR, 1000), "it gives up");
    }

    #[test]
    fn both_creating_calls_are_repeated() {
        let calls = std::cell::Cell::new(0);
        let every_other = || {
            calls.set(calls.get() + 1);
            if calls.get() % 2 == 1 { Err(Error::new(libc::EINTR)) } else { Ok(()) }
        };
        assert_eq!(create_and_set_up(every_other, |()| every_other()), Ok(()));
        assert_eq!(calls.get(), 4);
        let refused = |_: &()| Err(Error::new(libc::ENOMEM));
        assert_eq!(create_and_set_up(|| Ok(()), refused).unwrap_err().errno(), libc::ENOMEM);
    }

    /// KVM_CREATE_VM takes long enough that a signal every 200 us interrupts some calls.
    #[test]
    fn a_vm_is_created_while_signals_arrive() {
        let kvm = match open() {
            Ok(kvm) => kvm,
            Err(why) => return crate::untested::note("KVM while signals arrive", &why),
        };
        extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        // SAFETY: the handler does nothing. Without SA_RESTART it interrupts calls that wait.
        let _handler =
            unsafe { crate::signal::ScopedHandler::install(libc::SIGUSR2, nothing, 0) }.unwrap();
        // SAFETY: returns this thread's handle, which lives as long as the scope below.
        let thread = unsafe { libc::pthread_self() };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread lives until this one is joined.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            let made: Vec<_> = (0..50).map(|_| create_vm(&kvm).map(drop)).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(made.iter().all(Result::is_ok), "{made:?}");
        });
    }

    #[test]
    fn the_tss_type_fits_the_processor() {
        let of = |vendor: &[u8; 12]| {
            let word = |at: usize| u32::from_le_bytes(vendor[at..at + 4].try_into().unwrap());
            let leaf = kvm_bindings::kvm_cpuid_entry2 {
                ebx: word(0),
                edx: word(4),
                ecx: word(8),
                ..Default::default()
            };
            tss_type(&CpuId::from_entries(&[leaf]).unwrap())
        };
        assert_eq!([of(b"GenuineIntel"), of(b"CentaurHauls")], [11, 11]);
        assert_eq!([of(b"AuthenticAMD"), of(b"HygonGenuine")], [9, 9]);
    }

    #[test]
    fn a_vcpu_is_created_or_the_reason_is_given() {
        match open() {
            Ok(kvm) => {
                let vm = create_vm(&kvm).unwrap();
                let vcpu = create_vcpu(&vm, 0, &cpuid(&kvm).unwrap()).unwrap();
                let mut sregs = vcpu.get_sregs().unwrap();
                set_long_mode(&mut sregs, 0x1000, 0x8, 0x10);
                vcpu.set_sregs(&sregs).unwrap();
            }
            Err(why) => {
                crate::untested::note("KVM", &why);
                assert!(!why.to_string().contains('\n'), "{why}");
            }
        }
    }
}
