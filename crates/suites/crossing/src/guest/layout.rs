//! Addresses and constants of the guest. Virtual addresses equal physical addresses.

pub(super) use machine::kvm::tables::{
    KERNEL_CS, KERNEL_SS, SYSRET_BASE, TSS_SELECTOR, USER_CS, USER_SS,
};

/// Size of a page, in bytes.
pub(super) const PAGE: u64 = 4096;
/// Load address: 1 MiB, the lowest address available from a multiboot loader.
pub(super) const BASE: u64 = 0x10_0000;

/// The code: the kernel's private pages, then the entries', then ring 3's.
pub(super) const CODE: u64 = BASE;
/// Maximum size of the code, in bytes.
pub(super) const CODE_CAPACITY: u64 = 0x8000;
/// The GDT, followed by the TSS. In both page tables.
pub(super) const GDT: u64 = 0x10_8000;
/// The TSS.
pub(super) const TSS: u64 = GDT + 0x100;
/// The IDT. In both page tables.
pub(super) const IDT: u64 = 0x10_9000;
/// Top of the stack for traps from ring 3. In both page tables.
pub(super) const TRAP_STACK: u64 = 0x10_b000;
/// Top of the stack for unexpected exceptions. In both page tables.
pub(super) const FAULT_STACK: u64 = 0x10_c000;
/// Data that the entries need before CR3 is switched. In both page tables.
pub(super) const ENTRY_DATA: u64 = 0x10_c000;
/// The kernel's private data: parameters, results, the key. Only in the kernel's page table.
pub(super) const KERNEL_DATA: u64 = 0x10_d000;
/// Top of the kernel's private stack. Only in the kernel's page table.
pub(super) const KERNEL_STACK: u64 = 0x10_f000;
/// Counters of ring 3.
pub(super) const USER_DATA: u64 = 0x10_f000;
/// Top of ring 3's stack.
pub(super) const USER_STACK: u64 = 0x11_1000;
/// Page tables: four levels of the kernel's, then four of ring 3's under isolation.
pub(super) const TABLES: u64 = 0x11_2000;
/// Schedule of a standalone guest: its samples in order.
pub(super) const SCHEDULE: u64 = 0x11_c000;
/// End of the loaded part; the memory after it is initially zero.
pub(super) const LOADED_END: u64 = 0x12_c000;
/// Capacity of the schedule, samples.
pub(super) const SCHEDULE_CAPACITY: usize = ((LOADED_END - SCHEDULE) / 4) as usize;
/// Counts of empty pairs by ticks, 32 bits each.
pub(super) const EMPTY_BINS: u64 = LOADED_END;
/// Counts of user to kernel by ticks.
pub(super) const U2K_BINS: u64 = EMPTY_BINS + 4 * EMPTY_COUNT as u64;
/// Counts of kernel to user by ticks.
pub(super) const K2U_BINS: u64 = U2K_BINS + 4 * COUNT as u64;
/// End of the counts.
pub(super) const BINS_END: u64 = K2U_BINS + 4 * COUNT as u64;
/// End of the memory.
pub(super) const END: u64 = BINS_END;
/// A page that no page table maps; ring 3 writes to it to fault.
pub(super) const HOLE: u64 = 0x1f_f000;
/// VGA text memory. Only in the kernel's page table.
pub(super) const VGA: u64 = 0xb_8000;

/// Number of bins of the empty pairs; the last includes all longer times.
pub(super) const EMPTY_COUNT: usize = 4096;
/// Number of bins of each way; the last includes all longer times.
pub(super) const COUNT: usize = 65536;
/// Last bin of the empty pairs.
pub(super) const EMPTY_LAST: usize = EMPTY_COUNT - 1;
/// Last bin of each way.
pub(super) const BINS_LAST: usize = COUNT - 1;
/// Empty pairs measured before each sample.
pub(super) const EMPTY_PAIRS: u64 = 2000;

/// Key that the handler combines with the sentinel. Only the kernel's page table maps it.
pub(super) const KEY: u64 = 0x5bd1_e995_9d6e_a3c7;

/// Length of the chain of dependent adds that shows the core clock.
pub(super) const ADDS: u64 = 48 * 1024;
/// Length of the chain of dependent integer multiplies, which takes about as long.
pub(super) const MULTIPLIES: u64 = 16 * 1024;
/// Steps of the PIT, at 1,193,182 Hz, over which the counter is calibrated: 50 ms.
pub(super) const PIT_COUNT: u64 = 59_659;

/// Port of the guest's exit code, which is that of QEMU's isa-debug-exit.
pub(super) const EXIT_PORT: u16 = 0xf4;
/// Exit code of a completed sample or schedule.
pub(super) const EXIT_DONE: u32 = 0x10;
/// Exit code after an unexpected exception.
pub(super) const EXIT_FAULT: u32 = 0x11;

/// Vector of the software interrupt.
pub(super) const INT_VECTOR: u64 = 0x80;

macro_rules! fields {
    ($($(#[$about:meta])* $name:ident = $base:ident + $at:literal;)*) => {
        $($(#[$about])* pub(super) const $name: u64 = $base + $at;)*
    };
}

fields! {
    /// Value to load for the kernel's CR3.
    KERNEL_CR3 = ENTRY_DATA + 0;
    /// Value to load for ring 3's CR3 under isolation.
    USER_CR3 = ENTRY_DATA + 8;

    /// 0: exit to the host after each sample; 1: run the schedule and print its results.
    STANDALONE = KERNEL_DATA + 0x00;
    /// Number of the variant: kind and stamp.
    VARIANT = KERNEL_DATA + 0x04;
    /// 1 if CR3 is switched.
    ISOLATION = KERNEL_DATA + 0x08;
    /// Crossings per sample.
    CROSSINGS = KERNEL_DATA + 0x10;
    /// Warm-up crossings before them.
    WARMUP = KERNEL_DATA + 0x18;
    /// Samples in the schedule.
    SAMPLES = KERNEL_DATA + 0x20;
    /// Rounds in the schedule.
    ROUNDS = KERNEL_DATA + 0x28;
    /// Seed of the schedule's order.
    SEED = KERNEL_DATA + 0x30;
    /// Operand of lgdt.
    GDTR = KERNEL_DATA + 0x40;
    /// Operand of lidt.
    IDTR = KERNEL_DATA + 0x50;
    /// Key of the sentinels.
    KEY_AT = KERNEL_DATA + 0x60;
    /// 1 if CR3 is switched with PCID, without a flush.
    PCID = KERNEL_DATA + 0x80;
    /// Bitwise or of all CS that handlers read.
    SEEN_CS = KERNEL_DATA + 0x84;
    /// Minimum time of two consecutive rdtsc in a handler, in ticks.
    FLOOR_HANDLER = KERNEL_DATA + 0x88;
    /// Vector whose gate the sample redirected.
    GATE_TAKEN = KERNEL_DATA + 0x8c;
    /// The kernel's stack pointer while a sample runs.
    KERNEL_RSP = KERNEL_DATA + 0x90;
    /// Vector of the unexpected exception.
    FAULT_VECTOR = KERNEL_DATA + 0xa0;
    /// Its error code.
    FAULT_ERROR = KERNEL_DATA + 0xa8;
    /// Its RIP.
    FAULT_RIP = KERNEL_DATA + 0xb0;
    /// Its CS.
    FAULT_CS = KERNEL_DATA + 0xb8;
    /// CR2 at that time.
    FAULT_CR2 = KERNEL_DATA + 0xc0;
    /// Ticks of the chain of adds before the sample.
    ADDS_BEFORE = KERNEL_DATA + 0xd0;
    /// Ticks of the chain of adds after the sample.
    ADDS_AFTER = KERNEL_DATA + 0xd8;
    /// Ticks of the chain of multiplies before the sample.
    MULTIPLIES_BEFORE = KERNEL_DATA + 0xc8;
    /// Ticks of the chain of multiplies after the sample.
    MULTIPLIES_AFTER = KERNEL_DATA + 0xf8;
    /// Checksum of the line being printed.
    LINE_SUM = KERNEL_DATA + 0xe0;
    /// Current sample of the schedule.
    POSITION = KERNEL_DATA + 0xe8;
    /// Its round.
    ROUND = KERNEL_DATA + 0xf0;
    /// Text buffer.
    TEXT = KERNEL_DATA + 0x100;

    /// Sentinel of the current crossing.
    SENTINEL = USER_DATA + 0x00;
    /// Sentinel expected from the handler.
    EXPECTED = USER_DATA + 0x08;
    /// Remaining crossings of the sample.
    LEFT = USER_DATA + 0x10;
    /// Remaining warm-up crossings.
    WARM_LEFT = USER_DATA + 0x18;
    /// Crossings made.
    MADE = USER_DATA + 0x20;
    /// Crossings with both stamps, each from that crossing.
    STAMPED = USER_DATA + 0x28;
    /// Maximum user to kernel, ticks, if the last bin was used.
    U2K_LONGEST = USER_DATA + 0x30;
    /// Maximum kernel to user, ticks, if the last bin was used.
    K2U_LONGEST = USER_DATA + 0x38;
    /// Maximum empty pair, ticks, if the last bin was used.
    EMPTY_LONGEST = USER_DATA + 0x40;
    /// Address of the loop of the sample's kind.
    LOOP = USER_DATA + 0x48;
    /// Minimum time of two consecutive rdtsc where the loop runs, in ticks.
    FLOOR_USER = USER_DATA + 0x50;
    /// Address of the loop of the sample's empty pairs.
    PAIRS = USER_DATA + 0x58;
    /// First stamps of both ways as xperf stores them, 64 bits each, in one cache line.
    STAMPS = USER_DATA + 0x80;
}
