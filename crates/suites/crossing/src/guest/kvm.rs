//! The guest under KVM: one vCPU, on the calling thread.

use std::time::Duration;

use kvm_ioctls::{Error, VcpuExit, VcpuFd, VmFd};
use lab::sample::{Failure, FailureKind};
use machine::kvm;
use machine::mapping::Mapping;

use super::GuestCrossing;
use super::counts::{SampleCounts, TickBins};
use super::image::Image;
use super::layout::{
    BASE, COUNT, CROSSINGS, EMPTY_BINS, EMPTY_COUNT, EMPTY_LONGEST, END, EXIT_DONE, EXIT_FAULT,
    EXIT_PORT, FAULT_CR2, FAULT_CS, FAULT_ERROR, FAULT_RIP, FAULT_VECTOR, FLOOR_HANDLER,
    FLOOR_USER, ISOLATION, K2U_BINS, K2U_LONGEST, KERNEL_CS, KERNEL_SS, MADE, PCID, SEEN_CS,
    STAMPED, TABLES, U2K_BINS, U2K_LONGEST, VARIANT, WARMUP,
};
use super::watchdog::Watchdog;

/// A loaded guest, ready for its first sample.
pub(super) struct Guest {
    vcpu: VcpuFd,
    _vm: VmFd,
    memory: Memory,
}

/// Names the step in which KVM failed.
fn step(step: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::failed(format!("KVM: {step}: {error}"))
}

impl Guest {
    /// Creates a VM with one vCPU and loads the image.
    ///
    /// # Errors
    /// Returns `unavailable` without KVM, `failed` with the step that KVM refused.
    pub(super) fn new(image: &Image) -> Result<Self, Failure> {
        let kvm = kvm::open()?;
        let vm = kvm::create_vm(&kvm).map_err(step("create a VM"))?;
        let memory = Memory::load(image)?;
        let (host, length) = (memory.0.as_ptr() as usize, memory.0.len());
        // SAFETY: the memory stays mapped while the VM exists: both are fields of Self, and the VM is
        // dropped first.
        unsafe { kvm::set_memory(&vm, 0, BASE, host, length) }
            .map_err(step("set the guest's memory"))?;
        let cpuid = kvm::cpuid(&kvm).map_err(step("get the supported CPUID"))?;
        let vcpu = kvm::create_vcpu(&vm, 0, &cpuid).map_err(step("create a vCPU"))?;
        enter_long_mode(&vcpu, image.start64())?;
        Ok(Self { vcpu, _vm: vm, memory })
    }

    /// Takes one sample within a time limit.
    ///
    /// # Errors
    /// Returns `unavailable` if the guest has no code for the crossing, `timeout` after the limit, `failed` after an
    /// unexpected exception or exit.
    pub(super) fn sample(
        &mut self,
        crossing: GuestCrossing,
        crossings: u64,
        warmup: u64,
        limit: Duration,
    ) -> Result<SampleCounts, Failure> {
        let variant = crossing.variant()?;
        self.memory.write(VARIANT, &u32::from(variant).to_le_bytes());
        self.memory.write(ISOLATION, &u32::from(crossing.isolated).to_le_bytes());
        self.memory.write(CROSSINGS, &crossings.to_le_bytes());
        self.memory.write(WARMUP, &warmup.to_le_bytes());
        self.run(limit)?;
        Ok(self.counts())
    }

    /// Returns whether CR3 is switched with PCID, without a flush. Valid after the first sample.
    pub(super) fn pcid(&self) -> bool {
        self.memory.u32(PCID) != 0
    }

    fn run(&mut self, limit: Duration) -> Result<(), Failure> {
        let watchdog =
            Watchdog::start(limit).map_err(|e| Failure::failed(format!("create a timer: {e}")))?;
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::IoOut(EXIT_PORT, code)) => {
                    let code = code.try_into().map_or(0, u32::from_le_bytes);
                    return match code {
                        EXIT_DONE => Ok(()),
                        EXIT_FAULT => Err(self.fault()),
                        other => Err(Failure::failed(format!("the guest exited with {other:#x}"))),
                    };
                }
                Ok(VcpuExit::Shutdown) => {
                    return Err(Failure::failed("the guest shut down after a triple fault"));
                }
                Ok(VcpuExit::Intr) => {}
                Ok(exit) => {
                    let exit = format!("{exit:?}");
                    return Err(Failure::failed(format!("unexpected exit of the guest: {exit}")));
                }
                Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
                Err(error) => return Err(step("run the guest")(error)),
            }
            if watchdog.has_expired() {
                let seconds = limit.as_secs_f64();
                let rip = self.rip().map_or_else(String::new, |rip| format!(", RIP {rip:#x}"));
                let why = format!("the guest did not finish in {seconds} s{rip}");
                return Err(Failure::new(FailureKind::Timeout, why));
            }
        }
    }

    fn rip(&self) -> Option<u64> {
        self.vcpu.get_regs().ok().map(|regs| regs.rip)
    }

    fn fault(&self) -> Failure {
        let at = |address| self.memory.u64(address);
        Failure::failed(format!(
            "unexpected exception {} in the guest: error code {:#x}, RIP {:#x}, CS {:#x}, CR2 {:#x}",
            at(FAULT_VECTOR),
            at(FAULT_ERROR),
            at(FAULT_RIP),
            at(FAULT_CS),
            at(FAULT_CR2),
        ))
    }

    fn counts(&self) -> SampleCounts {
        SampleCounts {
            made: self.memory.u64(MADE),
            stamped: self.memory.u64(STAMPED),
            cs: self.memory.u32(SEEN_CS),
            floor_user: self.memory.u32(FLOOR_USER),
            floor_handler: self.memory.u32(FLOOR_HANDLER),
            empty: self.bins(EMPTY_BINS, EMPTY_COUNT, EMPTY_LONGEST),
            u2k: self.bins(U2K_BINS, COUNT, U2K_LONGEST),
            k2u: self.bins(K2U_BINS, COUNT, K2U_LONGEST),
        }
    }

    fn bins(&self, address: u64, bins: usize, longest: u64) -> TickBins {
        let bytes = self.memory.read(address, 4 * bins);
        let words = bytes.chunks_exact(4).map(|word| {
            u64::from(word.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte)))
        });
        TickBins {
            bins: (0u32..).zip(words).filter(|(_, count)| *count > 0).collect(),
            longest: self.memory.u64(longest),
        }
    }
}

/// Sets the vCPU to 64-bit mode in ring 0, with the kernel's page table and interrupts off.
fn enter_long_mode(vcpu: &VcpuFd, start: u64) -> Result<(), Failure> {
    let mut sregs = vcpu.get_sregs().map_err(step("get the vCPU's system registers"))?;
    kvm::set_long_mode(&mut sregs, TABLES, KERNEL_CS, KERNEL_SS);
    vcpu.set_sregs(&sregs).map_err(step("set the vCPU's system registers"))?;
    let mut regs = vcpu.get_regs().map_err(step("get the vCPU's registers"))?;
    regs.rip = start;
    regs.rflags = 2;
    vcpu.set_regs(&regs).map_err(step("set the vCPU's registers"))
}

/// The guest's memory, from [`BASE`] to [`END`]. The host accesses it only while the guest does not run.
#[derive(Debug)]
struct Memory(Mapping);

impl Memory {
    /// Loads an image; the remaining memory is zero.
    fn load(image: &Image) -> Result<Self, Failure> {
        let mapping = Mapping::anonymous((END - BASE) as usize)
            .map_err(|why| Failure::failed(format!("the guest's memory: {why}")))?;
        mapping.prefault().map_err(|why| Failure::failed(format!("the guest's memory: {why}")))?;
        let mut memory = Self(mapping);
        memory.write(BASE, image.bytes());
        Ok(memory)
    }

    /// Writes bytes at an address of the guest.
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let offset = self.offset(address, bytes.len());
        // SAFETY: `offset` checked that the bytes are inside the mapping. The guest does not run, because
        // its only vCPU runs inside calls of this thread.
        unsafe {
            self.0.as_mut_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Reads bytes at an address of the guest.
    fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let offset = self.offset(address, length);
        let mut bytes = vec![0; length];
        // SAFETY: `offset` checked that the bytes are inside the mapping, and the guest does not run.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.0.as_ptr().add(offset), length) };
        bytes
    }

    fn u32(&self, address: u64) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.read(address, 4));
        u32::from_le_bytes(word)
    }

    fn u64(&self, address: u64) -> u64 {
        u64::from(self.u32(address)) | u64::from(self.u32(address + 4)) << 32
    }

    fn offset(&self, address: u64, length: usize) -> usize {
        let offset = (address - BASE) as usize;
        assert!(offset + length <= self.0.len(), "{address:#x} is outside the guest's memory");
        offset
    }
}
