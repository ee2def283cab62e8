//! The guest's initial memory, loaded directly under KVM or from a file by a multiboot loader.

use lab::sample::Failure;
use machine::kvm::tables::PageTable;

use super::GuestCrossing;
use super::code::{Code, code};
use super::layout::{
    BASE, CODE, CROSSINGS, FAULT_STACK, GDT, GDTR, IDT, IDTR, ISOLATION, KERNEL_CR3, KEY, KEY_AT,
    LOADED_END, PAGE, ROUNDS, SAMPLES, SCHEDULE, SCHEDULE_CAPACITY, SEED, STANDALONE, TABLES,
    TRAP_STACK, TSS, USER_CR3, VARIANT, WARMUP,
};
use super::tables;

/// The loaded bytes, starting at address [`BASE`].
#[derive(Debug, Clone)]
pub(super) struct Image {
    bytes: Vec<u8>,
    code: Code,
}

/// One sample of the schedule of a standalone guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScheduledSample {
    /// Round, below 65,536, because the schedule packs it in 16 bits.
    pub round: u32,
    /// Crossing.
    pub crossing: GuestCrossing,
}

impl Image {
    /// Creates an image with code and tables, and with all parameters zero.
    pub(super) fn new() -> Self {
        let code = code();
        let mut image = Self { bytes: vec![0; (LOADED_END - BASE) as usize], code };
        image.put(CODE, code.bytes);
        let gdt = tables::gdt();
        image.put(GDT, &gdt);
        image.put(TSS, &machine::kvm::tables::tss(TRAP_STACK, FAULT_STACK));
        let idt = tables::idt(&code);
        image.put(IDT, &idt);
        image.put(GDTR, &tables::pointer(GDT, gdt.len()));
        image.put(IDTR, &tables::pointer(IDT, idt.len()));
        let paging = tables::page_tables(&code);
        let paging = paging.iter().flat_map(PageTable::entries).copied();
        image.put(TABLES, &paging.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
        image.put_u64(KERNEL_CR3, TABLES);
        image.put_u64(USER_CR3, TABLES + tables::LEVELS * PAGE);
        image.put_u64(KEY_AT, KEY);
        image
    }

    /// Sets the number of crossings per sample, and of warm-up crossings before them.
    #[must_use]
    pub(super) fn with_crossings(mut self, crossings: u64, warmup: u64) -> Self {
        self.put_u64(CROSSINGS, crossings);
        self.put_u64(WARMUP, warmup);
        self
    }

    /// Makes the guest run a schedule and print its results. Samples after the first [`SCHEDULE_CAPACITY`] are
    /// dropped.
    ///
    /// # Errors
    /// Returns `unavailable` if the guest has no code for a crossing.
    pub(super) fn standalone(
        mut self,
        samples: &[ScheduledSample],
        rounds: u32,
        seed: u64,
    ) -> Result<Self, Failure> {
        let samples = &samples[..samples.len().min(SCHEDULE_CAPACITY)];
        self.put(STANDALONE, &1u32.to_le_bytes());
        self.put_u64(SAMPLES, samples.len() as u64);
        self.put_u64(ROUNDS, rounds.into());
        self.put_u64(SEED, seed);
        let mut packed = Vec::new();
        for ScheduledSample { round, crossing } in samples {
            packed.extend([crossing.variant()?, crossing.isolated.into()]);
            packed.extend((*round as u16).to_le_bytes());
        }
        self.put(SCHEDULE, &packed);
        Ok(self)
    }

    /// Returns the loaded bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the entry address for a multiboot loader.
    pub(super) fn start32(&self) -> u64 {
        CODE + self.code.start32 as u64
    }

    /// Returns the entry address under KVM.
    pub(super) fn start64(&self) -> u64 {
        CODE + self.code.start64 as u64
    }

    /// Writes bytes at an address.
    pub(super) fn put(&mut self, address: u64, bytes: &[u8]) {
        let start = (address - BASE) as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u64(&mut self, address: u64, number: u64) {
        self.put(address, &number.to_le_bytes());
    }
}

// The host writes these between samples, so they must not overlap.
const _: () = assert!(VARIANT + 4 == ISOLATION && ISOLATION + 4 <= CROSSINGS);
