//! A virtual machine with one vCPU per TCS, entered on the caller's thread.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvm_bindings::{
    CpuId, Msrs, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_xcr, kvm_xcrs,
};
use kvm_ioctls::{Error, VcpuExit, VcpuFd, VmFd};
use lab::sample::Failure;
use machine::kvm;
use machine::kvm::tables::{
    KERNEL_CS, KERNEL_SS, PageTable, SYSRET_BASE, TSS_SELECTOR, USER_CS, USER_SS,
};
use machine::mapping::Mapping;

use super::code::{ENDED, FAULT, OCALL};
use super::kernel::{Kernel, Part, TSS};
use crate::error::EcallError;

// The guest-physical addresses: far enough apart for any heap, and clear of the pages that KVM itself uses.
const KERNEL: u64 = 1 << 20;
const PAGE_TABLE: u64 = 1 << 30;
const REGION: u64 = 1 << 32;

/// The state components that code inside may use: x87, SSE, AVX and AVX-512.
const VECTORS: u64 = 0xe7;

/// A virtual machine. The vCPUs are dropped first.
#[derive(Debug)]
pub(super) struct Guest {
    processors: Box<[Mutex<Processor>]>,
    _vm: VmFd,
    _page_table: Mapping,
    kernel: Kernel,
}

/// A vCPU and its initial registers.
#[derive(Debug)]
pub(super) struct Processor {
    vcpu: VcpuFd,
    sregs: kvm_sregs,
    regs: kvm_regs,
}

/// The reason for an exit of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// A call has ended.
    Ended,
    /// The enclave makes an OCALL.
    Ocall,
    /// An exception occurred.
    Fault,
}

/// Returns a function that names the step in which KVM failed.
fn step(step: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::failed(format!("KVM: {step}: {error}: see `dmesg`"))
}

impl Guest {
    /// Creates a VM with the parts of a region and the guest's kernel. `fs` returns the initial FS of a vCPU by its
    /// number.
    ///
    /// # Errors
    /// Returns an error if there is no KVM, or the step that failed.
    ///
    /// # Safety
    /// The region's memory must live longer than this.
    pub(super) unsafe fn new(
        region: Range<usize>,
        parts: &[Part],
        tcs: usize,
        fs: impl Fn(usize) -> u64,
    ) -> Result<Self, Failure> {
        let kvm = kvm::open()?;
        let max = kvm.get_max_vcpus();
        if tcs > max {
            let why = format!("{tcs} TCS need as many vCPUs, but KVM supports {max} per VM");
            return Err(Failure::unavailable(why, format!("set NumTCS to {max} or less")));
        }
        let vm = kvm::create_vm(&kvm).map_err(step("create a VM"))?;
        let kernel = Kernel::new(tcs)?;
        let page_table = page_table(&kernel, &region, parts)?;
        let slots = [
            (KERNEL, kernel.base(), kernel.len()),
            (PAGE_TABLE, page_table.as_ptr() as usize, page_table.len()),
            (REGION, region.start, region.len()),
        ];
        for (slot, (guest, host, length)) in (0..).zip(slots).filter(|(_, slot)| slot.2 > 0) {
            // SAFETY: the first two are fields of Self that are dropped after the VM, and the region outlives it.
            unsafe { kvm::set_memory(&vm, slot, guest, host, length) }
                .map_err(step("set the guest's memory"))?;
        }
        let cpuid = kvm::cpuid(&kvm).map_err(step("read the supported CPUID"))?;
        let components = components(&cpuid);
        let one = |number| {
            let vcpu =
                kvm::create_vcpu(&vm, number as u64, &cpuid).map_err(step("create a vCPU"))?;
            let tss = kvm::tss_type(&cpuid);
            Processor::new(vcpu, &kernel, number, fs(number), components, tss).map(Mutex::new)
        };
        let processors = (0..tcs).map(one).collect::<Result<_, Failure>>()?;
        Ok(Self { processors, _vm: vm, _page_table: page_table, kernel })
    }

    /// Returns the guest's memory beyond the region.
    pub(super) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Returns the vCPU of a TCS. No other thread uses it while the TCS is bound.
    pub(super) fn processor(&self, tcs: usize) -> MutexGuard<'_, Processor> {
        // After a panic, the next call restores the vCPU's state or fails.
        self.processors[tcs].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds the page table of both, in its own memory.
fn page_table(kernel: &Kernel, region: &Range<usize>, parts: &[Part]) -> Result<Mapping, Failure> {
    let mut table = PageTable::new(PAGE_TABLE);
    let mut map = |part: &Part, start: usize, memory: u64| {
        let range = part.range.start as u64..part.range.end as u64;
        table.map(range, memory + (part.range.start - start) as u64, part.flags);
    };
    kernel.parts().iter().for_each(|part| map(part, kernel.base(), KERNEL));
    parts.iter().for_each(|part| map(part, region.start, REGION));
    let entries = table.entries();
    let memory = Mapping::anonymous(size_of_val(entries))
        .map_err(|why| Failure::failed(format!("the guest's page table: {why}")))?;
    // SAFETY: the mapping is new, page-aligned, and as long as the entries.
    unsafe {
        let to = memory.as_ptr().cast_mut().cast::<u64>();
        to.copy_from_nonoverlapping(entries.as_ptr(), entries.len());
    }
    Ok(memory)
}

impl Processor {
    fn new(
        vcpu: VcpuFd,
        kernel: &Kernel,
        number: usize,
        fs: u64,
        components: u64,
        tss_type: u8,
    ) -> Result<Self, Failure> {
        let mut sregs = vcpu.get_sregs().map_err(step("read a vCPU's system registers"))?;
        kvm::set_long_mode(&mut sregs, PAGE_TABLE, USER_CS, USER_SS);
        // FXSAVE and SSE exceptions; XSAVE if there are state components.
        sregs.cr4 |= 1 << 9 | 1 << 10 | u64::from(components != 0) << 18;
        // SYSCALL, by which system calls are detected, and no-execute pages.
        sregs.efer |= 1 | 1 << 11;
        sregs.fs.base = fs;
        (sregs.gdt.base, sregs.gdt.limit) = kernel.gdt();
        (sregs.idt.base, sregs.idt.limit) = kernel.idt();
        sregs.tr = kvm_segment {
            base: kernel.tss(number) as u64,
            limit: TSS as u32 - 1,
            selector: TSS_SELECTOR,
            type_: tss_type,
            present: 1,
            ..Default::default()
        };
        let regs = kvm_regs {
            rip: kernel.code(|code| code.enter),
            rbx: std::ptr::from_ref(kernel.mailbox(number)) as u64,
            rflags: 2,
            ..Default::default()
        };
        let mut fpu = vcpu.get_fpu().map_err(step("read a vCPU's vector registers"))?;
        // The state that the System V ABI requires at a function's entry.
        (fpu.fcw, fpu.mxcsr) = (0x37f, 0x1f80);
        system_calls(&vcpu, kernel.system_call())?;
        let set = vcpu.set_sregs(&sregs).and_then(|()| vcpu.set_regs(&regs));
        set.and_then(|()| vcpu.set_fpu(&fpu)).map_err(step("set a vCPU's registers"))?;
        if components != 0 {
            let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..Default::default() };
            xcrs.xcrs[0] = kvm_xcr { value: components, ..Default::default() };
            vcpu.set_xcrs(&xcrs).map_err(step("enable a vCPU's vector registers"))?;
        }
        Ok(Self { vcpu, sregs, regs })
    }

    /// Runs the guest until it exits.
    ///
    /// # Errors
    /// Returns an error if the VM stops with an exit reason that this guest does not use.
    pub(super) fn run(&mut self) -> Result<Exit, EcallError> {
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::IoOut(ENDED, _)) => return Ok(Exit::Ended),
                Ok(VcpuExit::IoOut(OCALL, _)) => return Ok(Exit::Ocall),
                Ok(VcpuExit::IoOut(FAULT, _)) => return Ok(Exit::Fault),
                Ok(VcpuExit::Intr) => {}
                Ok(_) => {
                    let reason = self.vcpu.get_kvm_run().exit_reason;
                    return Err(EcallError::Stopped { reason });
                }
                Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
                Err(error) => return Err(refused("KVM_RUN")(error)),
            }
        }
    }

    /// Returns RCX, in which `syscall` stores the address after it.
    pub(super) fn rcx(&self) -> Result<u64, EcallError> {
        Ok(self.vcpu.get_regs().map_err(refused("KVM_GET_REGS"))?.rcx)
    }

    /// Returns the minimum time between two consecutive `rdtsc`, ticks, and CS, measured in ring 0 or 3.
    pub(super) fn floor(&mut self, kernel: &Kernel, zero: bool) -> Result<(u64, u32), Failure> {
        let (mut sregs, mut regs) = (self.sregs, self.regs);
        if zero {
            let (cr4, efer) = (sregs.cr4, sregs.efer);
            kvm::set_long_mode(&mut sregs, PAGE_TABLE, KERNEL_CS, KERNEL_SS);
            (sregs.cr4, sregs.efer) = (cr4, efer);
        }
        regs.rip = kernel.code(|code| code.floor);
        self.vcpu.set_sregs(&sregs).map_err(step("set a vCPU's system registers"))?;
        self.vcpu.set_regs(&regs).map_err(step("set a vCPU's registers"))?;
        match self.run() {
            Ok(Exit::Ended) => {}
            other => {
                return Err(Failure::failed(format!("unexpected exit of the guest: {other:?}")));
            }
        }
        let regs = self.vcpu.get_regs().map_err(step("read a vCPU's registers"))?;
        Ok((regs.r8, regs.r9 as u32))
    }
}

/// Sets the target and the segments of `syscall`.
fn system_calls(vcpu: &VcpuFd, to: u64) -> Result<(), Failure> {
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const MASK: u32 = 0xc000_0084;
    let star = u64::from(SYSRET_BASE) << 48 | u64::from(KERNEL_CS) << 32;
    // The mask: trap, interrupt, direction, IOPL, nested task and alignment check.
    let entries = [(STAR, star), (LSTAR, to), (MASK, 0x4_7700)]
        .map(|(index, data)| kvm_msr_entry { index, data, ..Default::default() });
    let refused = |why: String| Failure::failed(format!("KVM: set the target of syscall: {why}"));
    let msrs = Msrs::from_entries(&entries).map_err(|why| refused(format!("{why:?}")))?;
    match vcpu.set_msrs(&msrs).map_err(|error| refused(error.to_string()))? {
        3 => Ok(()),
        set => Err(refused(format!("only {set} of 3 registers were set"))),
    }
}

/// Returns the state components that code inside may use and KVM supports; 0 without XSAVE.
fn components(cpuid: &CpuId) -> u64 {
    let leaf = cpuid.as_slice().iter().find(|leaf| (leaf.function, leaf.index) == (0xd, 0));
    leaf.map_or(0, |leaf| u64::from(leaf.eax) & VECTORS)
}

/// Returns a function that converts KVM's error to the reason why a thread cannot enter.
fn refused(what: &'static str) -> impl Fn(Error) -> EcallError {
    move |error| EcallError::Unprepared { what, errno: error.errno() }
}
