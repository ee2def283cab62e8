//! Runs the guest under KVM: one vCPU, on the calling thread.

use std::time::Duration;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Error, VcpuExit, VcpuFd, VmFd};
use lab::sample::Failure;
use machine::kvm;

use super::image::Image;
use super::kind::Kind;
use super::layout::{
    BASE, COUNT, CROSSINGS, EMPTY_BINS, EMPTY_COUNT, EMPTY_LONGEST, EXIT_DONE, EXIT_FAULT,
    EXIT_PORT, FAULT_CR2, FAULT_CS, FAULT_ERROR, FAULT_RIP, FAULT_VECTOR, FLOOR_HANDLER,
    FLOOR_USER, ISOLATION, K2U_BINS, K2U_LONGEST, KERNEL_CS, KERNEL_SS, KIND, MADE, PCID, SEEN_CS,
    STAMPED, TABLES, U2K_BINS, U2K_LONGEST, WARMUP,
};
use super::memory::Memory;
use super::tally::{Counts, Tally};
use super::watchdog::Watchdog;

/// A guest that is loaded and waits for its first sample.
pub(super) struct Guest {
    vcpu: VcpuFd,
    _vm: VmFd,
    memory: Memory,
}

/// Says in which step KVM failed.
fn step(step: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::failed(format!("KVM: {step}: {error}"))
}

impl Guest {
    /// Makes a VM of one vCPU and loads the image.
    ///
    /// # Errors
    /// Where there is no KVM, and what it refused.
    pub(super) fn new(image: &Image) -> Result<Self, Failure> {
        let kvm = kvm::open()?;
        let vm = kvm::create_vm(&kvm).map_err(step("make a VM"))?;
        let memory = Memory::load(image)?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: BASE,
            memory_size: memory.len(),
            userspace_addr: memory.host_address(),
        };
        // SAFETY: the memory is mapped for as long as the VM lives: both are fields of Self, and the
        // VM is dropped first.
        unsafe { vm.set_user_memory_region(region) }.map_err(step("give the guest memory"))?;
        let cpuid = kvm::cpuid(&kvm).map_err(step("ask which CPUID it supports"))?;
        let vcpu = kvm::create_vcpu(&vm, 0, &cpuid).map_err(step("make a vCPU"))?;
        enter_long_mode(&vcpu, image.start64())?;
        Ok(Self { vcpu, _vm: vm, memory })
    }

    /// Takes one sample, within a time limit.
    ///
    /// # Errors
    /// The exception that nobody expected, the guest's death, or the limit: a line each.
    pub(super) fn sample(
        &mut self,
        kind: Kind,
        isolation: bool,
        crossings: u64,
        warmup: u64,
        limit: Duration,
    ) -> Result<Tally, Failure> {
        self.memory.write(KIND, &u32::from(kind as u8).to_le_bytes());
        self.memory.write(ISOLATION, &u32::from(isolation).to_le_bytes());
        self.memory.write(CROSSINGS, &crossings.to_le_bytes());
        self.memory.write(WARMUP, &warmup.to_le_bytes());
        self.run(limit)?;
        Ok(self.tally())
    }

    /// Whether CR3 is switched with PCID, and so without flushing; known after the first sample.
    pub(super) fn pcid(&self) -> bool {
        self.memory.word(PCID) != 0
    }

    fn run(&mut self, limit: Duration) -> Result<(), Failure> {
        let watchdog =
            Watchdog::start(limit).map_err(|e| Failure::failed(format!("a timer: {e}")))?;
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::IoOut(EXIT_PORT, code)) => {
                    let code = code.try_into().map_or(0, u32::from_le_bytes);
                    return match code {
                        EXIT_DONE => Ok(()),
                        EXIT_FAULT => Err(self.fault()),
                        other => Err(Failure::failed(format!("the guest ended with {other:#x}"))),
                    };
                }
                Ok(VcpuExit::Shutdown) => {
                    return Err(Failure::failed("the guest shut down by a triple fault"));
                }
                Ok(VcpuExit::Intr) => {}
                Ok(exit) => {
                    let exit = format!("{exit:?}");
                    return Err(Failure::failed(format!("the guest left KVM by {exit}")));
                }
                Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
                Err(error) => return Err(step("run the guest")(error)),
            }
            if watchdog.is_over() {
                let seconds = limit.as_secs_f64();
                let why = format!("the guest did not end in {seconds} s{}", self.place());
                return Err(Failure::new(lab::sample::FailureKind::Timeout, why));
            }
        }
    }

    /// Where the guest stands, as far as KVM says.
    fn place(&self) -> String {
        self.vcpu.get_regs().map_or_else(|_| String::new(), |regs| format!(", at {:#x}", regs.rip))
    }

    fn fault(&self) -> Failure {
        let at = |address| self.memory.number(address);
        Failure::failed(format!(
            "the guest met exception {} with error code {:#x} at RIP {:#x}, CS {:#x}, CR2 {:#x}",
            at(FAULT_VECTOR),
            at(FAULT_ERROR),
            at(FAULT_RIP),
            at(FAULT_CS),
            at(FAULT_CR2),
        ))
    }

    fn tally(&self) -> Tally {
        Tally {
            made: self.memory.number(MADE),
            stamped: self.memory.number(STAMPED),
            cs: self.memory.word(SEEN_CS),
            floor_user: self.memory.word(FLOOR_USER),
            floor_handler: self.memory.word(FLOOR_HANDLER),
            empty: self.counts(EMPTY_BINS, EMPTY_COUNT, EMPTY_LONGEST),
            u2k: self.counts(U2K_BINS, COUNT, U2K_LONGEST),
            k2u: self.counts(K2U_BINS, COUNT, K2U_LONGEST),
        }
    }

    fn counts(&self, at: u64, bins: usize, longest: u64) -> Counts {
        let bytes = self.memory.read(at, 4 * bins);
        let words = bytes.chunks_exact(4).map(|word| {
            u64::from(word.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte)))
        });
        Counts {
            bins: (0u32..).zip(words).filter(|(_, count)| *count > 0).collect(),
            longest: self.memory.number(longest),
        }
    }
}

/// 64-bit mode in ring 0, paging by the kernel's page table, interrupts off.
fn enter_long_mode(vcpu: &VcpuFd, start: u64) -> Result<(), Failure> {
    let mut sregs = vcpu.get_sregs().map_err(step("read the vCPU's registers"))?;
    kvm::long_mode(&mut sregs, TABLES, KERNEL_CS as u16, KERNEL_SS as u16);
    vcpu.set_sregs(&sregs).map_err(step("set the vCPU's system registers"))?;
    let mut regs = vcpu.get_regs().map_err(step("read the vCPU's registers"))?;
    regs.rip = start;
    regs.rflags = 2;
    vcpu.set_regs(&regs).map_err(step("set the vCPU's registers"))
}
