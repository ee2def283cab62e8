//! The route `guest`: a micro-guest of our own that stamps each way alone.
//!
//! It has page tables, a GDT, a TSS and an IDT, code for ring 3 and handlers for ring 0, all in
//! assembly (`code/`), and no interrupts, no devices and no other work. The same image runs under KVM
//! ([`measure`]) and, as a multiboot image ([`multiboot_image`]), whole and by itself under QEMU or on bare
//! metal, where it prints what [`report`] reads back.
//!
//! # What the stamped intervals contain
//!
//! A stamp is `lfence; rdtsc; lfence`. It waits for all that stands before it and holds back all that
//! follows. An interval begins when the first stamp's `rdtsc` reads the counter and ends when the
//! second's does. The first stamp is kept by two register moves, which stand in the empty pair too.
//! No stamp is stored before the crossing is over. So the empty pair, measured in the guest just before
//! each sample, is what an interval holds beyond the crossing; its median is subtracted.
//!
//! | kind | user to kernel, between the stamps | kernel to user, between the stamps |
//! | --- | --- | --- |
//! | page-fault | `mov %ebx,(%rdi)` to a page that is not there: the walk, delivery by IDT and TSS | `iretq` |
//! | software-interrupt | `int $0x80` | `iretq` |
//! | breakpoint | `int3` | `iretq` |
//! | invalid-opcode | `ud2` | `iretq` |
//! | syscall-sysret | `syscall` | `sysretq` |
//! | syscall-iretq | `syscall` | `iretq` |
//! | same-ring | `int $0x80` in ring 0: no change of ring and no other stack | `iretq` to ring 0 |
//! | none | nothing | nothing |
//!
//! With isolation on, `mov %r12,%cr3` stands between the crossing and the second stamp of the way in,
//! and `mov %r13,%cr3` between the first stamp and the crossing of the way out: both values wait in
//! registers, so that the write alone is timed, with what it does to the TLB. Where the processor has
//! PCID each page table has its own and neither is flushed (bit 63), as in Linux; else each write
//! flushes, and the entry's pages are walked again inside the interval. Ring 3's page table holds the
//! entries' code, stacks, GDT, IDT and TSS, and nothing else of the kernel.
//!
//! The tests hold each interval to this: where the emulator's counter counts instructions, it shows the
//! crossing, with isolation one more, and nothing else.
//!
//! Under KVM one kind is not measured: KVM takes each #UD to itself, on Intel and AMD, so the time of
//! invalid-opcode would be that of an exit. Every other stays inside the guest, where KVM has nested
//! paging; [`available`] asks for it. Whether ring 0 is ring 0 is proved in every sample (see `proof`).
//! Under the emulator times mean nothing: there [`emulated`] counts alone.
//!
//! Not in any interval, as there is in Linux: `swapgs`, saving registers, the look-up of CR3's values,
//! mitigations of speculation. After a fault the handler sets the RIP and maps nothing.
//!
//! # Why a stamp is never stale
//!
//! Ring 3 clears the handler's stamps and makes a sentinel for each crossing. The handler, between its
//! two stamps, changes the sentinel by a key that lies in a page of the kernel's alone (so with isolation
//! on CR3 was switched, or it faults), checks the RIP that the exception shows, and reads CS. Ring 3
//! counts a crossing as stamped if the sentinel is changed rightly and the four stamps are in order.
//! Then the two times are counted in bins of one tick, exact to 65,534 ticks; what takes longer is
//! counted as 65,535, and the longest is kept. Crossings that warm up are not counted.

mod available;
mod code;
mod emulated;
mod image;
mod kind;
mod kvm;
mod layout;
mod measure;
mod memory;
mod multiboot;
mod proof;
pub mod report;
mod tables;
mod tally;
mod watchdog;

pub use available::{available, capability, ring_0};
pub use emulated::emulated;
pub use kind::Kind;
pub use measure::measure;
pub use multiboot::{ImageError, Settings, multiboot_image};
pub use tally::{Counts, Tally};
