//! The guest's memory as it is loaded: by KVM at once, by a multiboot loader from a file.

use super::code::{Code, code};
use super::kind::Kind;
use super::layout::{
    ALONE, BASE, CODE, CROSSINGS, GDT, GDTR, IDT, IDTR, ISOLATION, KERNEL_CR3, KEY, KEY_AT, KIND,
    LOADED_END, PAGE, ROUNDS, SAMPLES, SCHEDULE, SCHEDULE_ROOM, SEED, TABLES, TSS, USER_CR3,
    WARMUP,
};
use super::tables;

/// What is loaded, from [`BASE`] on.
#[derive(Debug, Clone)]
pub(super) struct Image {
    bytes: Vec<u8>,
    code: Code,
}

/// One sample of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// The round: below 65,536, as the schedule packs it.
    pub round: u32,
    /// The kind.
    pub kind: Kind,
    /// Whether CR3 is switched.
    pub isolation: bool,
}

impl Image {
    /// Code and tables; no parameters yet.
    pub(super) fn new() -> Self {
        let code = code();
        let mut image = Self { bytes: vec![0; (LOADED_END - BASE) as usize], code };
        image.put(CODE, code.bytes);
        image.put(GDT, &tables::gdt().map(u64::to_le_bytes).concat());
        image.put(TSS, &tables::tss());
        let idt = tables::idt(&code);
        image.put(IDT, &idt);
        image.put(GDTR, &tables::pointer(GDT, tables::GDT_BYTES));
        image.put(IDTR, &tables::pointer(IDT, idt.len()));
        let paging: Vec<u8> =
            tables::page_tables(&code).into_iter().flat_map(u64::to_le_bytes).collect();
        image.put(TABLES, &paging);
        image.number(KERNEL_CR3, TABLES);
        image.number(USER_CR3, TABLES + tables::LEVELS * PAGE);
        image.number(KEY_AT, KEY);
        image
    }

    /// How many crossings a sample makes, after how many that do not count.
    #[must_use]
    pub(super) fn crossings(mut self, crossings: u64, warmup: u64) -> Self {
        self.number(CROSSINGS, crossings);
        self.number(WARMUP, warmup);
        self
    }

    /// Runs by itself through a schedule and prints; what is over [`SCHEDULE_ROOM`] is left out.
    #[must_use]
    pub(super) fn alone(mut self, turns: &[Turn], rounds: u32, seed: u64) -> Self {
        let turns = &turns[..turns.len().min(SCHEDULE_ROOM)];
        self.put(ALONE, &1u32.to_le_bytes());
        self.number(SAMPLES, turns.len() as u64);
        self.number(ROUNDS, rounds.into());
        self.number(SEED, seed);
        let packed = turns.iter().flat_map(|turn| {
            [turn.kind as u8, turn.isolation.into()]
                .into_iter()
                .chain((turn.round as u16).to_le_bytes())
        });
        let packed: Vec<u8> = packed.collect();
        self.put(SCHEDULE, &packed);
        self
    }

    /// What is loaded.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where a multiboot loader enters.
    pub(super) fn start32(&self) -> u64 {
        CODE + self.code.start32 as u64
    }

    /// Where KVM enters.
    pub(super) fn start64(&self) -> u64 {
        CODE + self.code.start64 as u64
    }

    /// Writes at an address.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        let start = (at - BASE) as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn number(&mut self, at: u64, number: u64) {
        self.put(at, &number.to_le_bytes());
    }
}

// KVM's host writes these between samples; they must not overlap.
const _: () = assert!(KIND + 4 == ISOLATION && ISOLATION + 4 <= CROSSINGS);
