//! Where everything lies in the guest's memory. Virtual and physical addresses are the same.

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Where the image is loaded: 1 MiB, the first address that a multiboot loader gives.
pub(super) const BASE: u64 = 0x10_0000;

/// The code: first the kernel's own pages, then those of the entries, then ring 3's.
pub(super) const CODE: u64 = BASE;
/// Bytes that the code may have.
pub(super) const CODE_ROOM: u64 = 0x8000;
/// The GDT, and the TSS behind it. In both page tables.
pub(super) const GDT: u64 = 0x10_8000;
/// The TSS.
pub(super) const TSS: u64 = GDT + 0x100;
/// The IDT. In both page tables.
pub(super) const IDT: u64 = 0x10_9000;
/// The top of the stack that traps from ring 3 take. In both page tables.
pub(super) const TRAP_STACK: u64 = 0x10_b000;
/// The top of the stack of the exceptions that nobody expects. In both page tables.
pub(super) const FAULT_STACK: u64 = 0x10_c000;
/// What the entries need before CR3 is switched. In both page tables.
pub(super) const ENTRY_DATA: u64 = 0x10_c000;
/// The kernel's own data: parameters, results, the key. In the kernel's page table alone.
pub(super) const KERNEL_DATA: u64 = 0x10_d000;
/// The top of the kernel's own stack. In the kernel's page table alone.
pub(super) const KERNEL_STACK: u64 = 0x10_f000;
/// The counters of ring 3.
pub(super) const USER_DATA: u64 = 0x10_f000;
/// The top of the stack of ring 3.
pub(super) const USER_STACK: u64 = 0x11_1000;
/// The page tables: four levels of the kernel's, then four of ring 3's under isolation.
pub(super) const TABLES: u64 = 0x11_2000;
/// Which samples are taken, in order, where the guest runs by itself.
pub(super) const SCHEDULE: u64 = 0x11_c000;
/// Where the loaded part ends; what follows is zero at first.
pub(super) const LOADED_END: u64 = 0x12_c000;
/// Samples that the schedule has room for.
pub(super) const SCHEDULE_ROOM: usize = ((LOADED_END - SCHEDULE) / 4) as usize;
/// Counts of empty pairs by ticks, 32 bits each.
pub(super) const EMPTY_BINS: u64 = LOADED_END;
/// Counts of user to kernel by ticks.
pub(super) const U2K_BINS: u64 = EMPTY_BINS + 4 * EMPTY_COUNT as u64;
/// Counts of kernel to user by ticks.
pub(super) const K2U_BINS: u64 = U2K_BINS + 4 * COUNT as u64;
/// Where the counts end.
pub(super) const BINS_END: u64 = K2U_BINS + 4 * COUNT as u64;
/// Where the memory ends.
pub(super) const END: u64 = BINS_END;
/// The page that is in no page table: ring 3 writes to it to fault.
pub(super) const HOLE: u64 = 0x1f_f000;
/// VGA text memory, in the kernel's page table alone.
pub(super) const VGA: u64 = 0xb_8000;

/// Bins of the empty pairs; the last counts all that took longer.
pub(super) const EMPTY_COUNT: usize = 4096;
/// Bins of each way; the last counts all that took longer.
pub(super) const COUNT: usize = 65536;
/// The last bin of the empty pairs.
pub(super) const EMPTY_LAST: usize = EMPTY_COUNT - 1;
/// The last bin of each way.
pub(super) const BINS_LAST: usize = COUNT - 1;
/// Empty pairs that are measured before each sample.
pub(super) const EMPTY_PAIRS: u64 = 2000;

/// What the handler folds into the sentinel; it lies in a page of the kernel's alone.
pub(super) const KEY: u64 = 0x5bd1_e995_9d6e_a3c7;

/// Dependent adds in one chain that shows the core's clock.
pub(super) const ADDS: u64 = 48 * 1024;
/// Dependent integer multiplies in the other, which take about as long.
pub(super) const MULTIPLIES: u64 = 16 * 1024;
/// Steps of the PIT, at 1,193,182 Hz, against which the counter is held: 50 ms.
pub(super) const PIT_COUNT: u64 = 59_659;

/// Port on which the guest says that it is done; QEMU's isa-debug-exit listens there.
pub(super) const EXIT_PORT: u16 = 0xf4;
/// A sample, or the whole run, is done.
pub(super) const EXIT_DONE: u32 = 0x10;
/// An exception came that nobody expected.
pub(super) const EXIT_FAULT: u32 = 0x11;

/// Kernel code.
pub(super) const KERNEL_CS: u64 = 0x08;
/// Kernel data.
pub(super) const KERNEL_SS: u64 = 0x10;
/// What sysretq counts its selectors from.
pub(super) const SYSRET_BASE: u64 = 0x18;
/// Ring 3's data.
pub(super) const USER_SS: u64 = 0x23;
/// Ring 3's code.
pub(super) const USER_CS: u64 = 0x2b;
/// The TSS's selector.
pub(super) const TSS_SELECTOR: u64 = 0x30;

/// The vector of the software interrupt.
pub(super) const INT_VECTOR: u64 = 0x80;
/// Gates of the IDT.
pub(super) const GATES: u64 = INT_VECTOR + 1;

macro_rules! fields {
    ($($(#[$about:meta])* $name:ident = $base:ident + $at:literal;)*) => {
        $($(#[$about])* pub(super) const $name: u64 = $base + $at;)*
    };
}

fields! {
    /// The kernel's CR3, as it is to be loaded.
    KERNEL_CR3 = ENTRY_DATA + 0;
    /// Ring 3's CR3 under isolation, as it is to be loaded.
    USER_CR3 = ENTRY_DATA + 8;

    /// 0: each sample ends in an exit to the host; 1: the whole schedule, printed.
    ALONE = KERNEL_DATA + 0x00;
    /// The kind, by its place in the factor's levels.
    KIND = KERNEL_DATA + 0x04;
    /// 1 where CR3 is switched.
    ISOLATION = KERNEL_DATA + 0x08;
    /// Crossings that count.
    CROSSINGS = KERNEL_DATA + 0x10;
    /// Crossings before those.
    WARMUP = KERNEL_DATA + 0x18;
    /// Samples in the schedule.
    SAMPLES = KERNEL_DATA + 0x20;
    /// Rounds in the schedule.
    ROUNDS = KERNEL_DATA + 0x28;
    /// The seed of the schedule's order.
    SEED = KERNEL_DATA + 0x30;
    /// What lgdt reads.
    GDTR = KERNEL_DATA + 0x40;
    /// What lidt reads.
    IDTR = KERNEL_DATA + 0x50;
    /// The key of the sentinels.
    KEY_AT = KERNEL_DATA + 0x60;
    /// 1 where CR3 is switched with PCID and without flushing.
    PCID = KERNEL_DATA + 0x80;
    /// All CS that handlers read, or'ed.
    SEEN_CS = KERNEL_DATA + 0x84;
    /// The least that two rdtsc in a row took in a handler, ticks.
    FLOOR_HANDLER = KERNEL_DATA + 0x88;
    /// The vector whose gate the sample took.
    GATE_TAKEN = KERNEL_DATA + 0x8c;
    /// The kernel's stack while a sample runs.
    KERNEL_RSP = KERNEL_DATA + 0x90;
    /// The exception that nobody expected: its vector.
    FAULT_VECTOR = KERNEL_DATA + 0xa0;
    /// Its error code.
    FAULT_ERROR = KERNEL_DATA + 0xa8;
    /// Its RIP.
    FAULT_RIP = KERNEL_DATA + 0xb0;
    /// Its CS.
    FAULT_CS = KERNEL_DATA + 0xb8;
    /// CR2 as it was then.
    FAULT_CR2 = KERNEL_DATA + 0xc0;
    /// Ticks of the chain of adds before the sample.
    ADDS_BEFORE = KERNEL_DATA + 0xd0;
    /// Ticks of the chain of adds after the sample.
    ADDS_AFTER = KERNEL_DATA + 0xd8;
    /// Ticks of the chain of multiplies before the sample.
    MULTIPLIES_BEFORE = KERNEL_DATA + 0xc8;
    /// Ticks of the chain of multiplies after the sample.
    MULTIPLIES_AFTER = KERNEL_DATA + 0xf8;
    /// The checksum of the line being printed.
    LINE_SUM = KERNEL_DATA + 0xe0;
    /// The sample of the schedule under way.
    POSITION = KERNEL_DATA + 0xe8;
    /// Its round.
    ROUND = KERNEL_DATA + 0xf0;
    /// Room for text.
    TEXT = KERNEL_DATA + 0x100;

    /// The last sentinel.
    SENTINEL = USER_DATA + 0x00;
    /// What the handler must have made of it.
    EXPECTED = USER_DATA + 0x08;
    /// Crossings left that count.
    LEFT = USER_DATA + 0x10;
    /// Crossings left that only warm up.
    WARM_LEFT = USER_DATA + 0x18;
    /// Crossings made.
    MADE = USER_DATA + 0x20;
    /// Crossings made with both stamps, each its own.
    STAMPED = USER_DATA + 0x28;
    /// The longest user to kernel, ticks, where it was over the last bin.
    U2K_LONGEST = USER_DATA + 0x30;
    /// The longest kernel to user, ticks, where it was over the last bin.
    K2U_LONGEST = USER_DATA + 0x38;
    /// The longest empty pair, ticks, where it was over the last bin.
    EMPTY_LONGEST = USER_DATA + 0x40;
    /// The loop of the sample's kind.
    LOOP = USER_DATA + 0x48;
    /// The least that two rdtsc in a row took in ring 3 (or where the loop runs), ticks.
    FLOOR_USER = USER_DATA + 0x50;
}
