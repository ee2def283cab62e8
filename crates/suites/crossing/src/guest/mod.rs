//! The route `guest`: a micro-guest that stamps each way separately.
//!
//! It has page tables, a GDT, a TSS and an IDT, ring-3 code and ring-0 handlers, all in assembly (`code/`), and
//! no interrupts, devices or other work. The same image runs under KVM ([`measure`]) and, as a multiboot image
//! ([`multiboot_image`]), standalone under QEMU or on bare metal, where it prints what [`report`] parses.
//!
//! # Contents of the stamped intervals
//!
//! By default ([`Stamp::Lfence`]) a stamp is `lfence; rdtsc; lfence`: it waits for all earlier instructions and holds
//! back all later ones. An interval starts when the `rdtsc` of its first stamp reads the counter and ends when that of
//! its second does.
//! Two register moves save the first stamp, in the empty pair too. No stamp is stored to memory before the
//! crossing has ended. So an interval exceeds the crossing by exactly the empty pair; the guest measures empty
//! pairs just before each sample, and their trimmed mean is subtracted.
//!
//! | kind | user to kernel, between the stamps | kernel to user, between the stamps |
//! | --- | --- | --- |
//! | page-fault | `mov %ebx,(%rdi)` to an unmapped page: the walk, delivery by IDT and TSS | `iretq` |
//! | software-interrupt | `int $0x80` | `iretq` |
//! | breakpoint | `int3` | `iretq` |
//! | invalid-opcode | `ud2` | `iretq` |
//! | syscall-sysret | `syscall` | `sysretq` |
//! | syscall-iretq | `syscall` | `iretq` |
//! | same-ring | `int $0x80` in ring 0: no change of ring or stack | `iretq` to ring 0 |
//! | none | nothing | nothing |
//!
//! With isolation on, `mov %r12,%cr3` comes between the crossing and the second stamp of the entry, and
//! `mov %r13,%cr3` between the first stamp and the crossing of the exit. Both values are ready in registers,
//! so only the write is timed, with its effect on the TLB. If the CPU has PCID, each page table has its
//! own PCID and neither is flushed (bit 63), as in Linux. Otherwise each write flushes, and the page walks of the
//! entry code fall inside the interval. Ring 3's page table maps the entries' code, stacks, GDT, IDT and TSS, and
//! no other page of the kernel.
//!
//! The tests check each interval with an emulator whose counter counts instructions: it shows the crossing, with
//! isolation one more instruction, and nothing else.
//!
//! Page faults and `none`, with isolation off, are also stamped in other ways, to quantify what xperf's stamps add:
//!
//! | stamp | user to kernel, with the crossing | kernel to user, with the crossing |
//! | --- | --- | --- |
//! | unfenced | `rdtsc`, 2 moves, crossing, `rdtsc` | the same |
//! | mfence | `mfence; rdtsc`, 2 moves, crossing, `rdtsc; mfence` | the same |
//! | xperf | `mfence; rdtsc; shl; or; mov` to memory, crossing, `testb; jz; mov; mov; rdtsc; mfence` | `mfence; rdtsc; shl; or; mov` to memory`; pop; pop; pop`, crossing, `rdtsc; mfence` |
//!
//! The empty pairs have the stamps of the sample. From the times of [`Stamp::Xperf`] nothing is subtracted, because xperf
//! subtracts nothing.
//!
//! KVM intercepts every #UD, on Intel and AMD, so under KVM the time of invalid-opcode would be that of an exit,
//! and the kind is unavailable. All others stay inside the guest if KVM has nested paging, which [`available`]
//! requires. Every sample proves that ring 0 is ring 0 (see [`machine::kvm::ring_0`]). Under the emulator times
//! are meaningless, so [`emulated`] only counts.
//!
//! Unlike in Linux, no interval contains `swapgs`, saving of registers, the look-up of CR3's values, or
//! mitigations of speculative execution. After a fault the handler changes the RIP and maps nothing.
//!
//! # Why a stamp is never stale
//!
//! Ring 3 clears the handler's stamps and makes a new sentinel for each crossing. Between its two stamps, the
//! handler transforms the sentinel with a key in a page that only the kernel's page table maps (so it faults
//! unless CR3 was switched), checks the RIP of the exception, and reads CS. Ring 3 counts a crossing as stamped
//! if the transformed sentinel is right and the four stamps are in order. The two times are then counted in bins
//! of one tick, exact up to 65,534 ticks; a longer time is counted as 65,535, and the maximum is kept. Warm-up
//! crossings are not counted.

use lab::factor::LevelType;
use lab::sample::Failure;

mod code;
mod counts;
mod emulated;
mod image;
mod kvm;
mod layout;
mod measure;
mod multiboot;
pub mod report;
mod tables;
mod watchdog;

pub use counts::{SampleCounts, TickBins};
pub use emulated::emulated;
pub use measure::{available, capability, clock, count, countable, measure, ring_0};
pub use multiboot::{StandaloneParams, multiboot_image};

/// How the counter is read on both sides of a crossing. The guest's code depends on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, LevelType)]
#[repr(u8)]
pub enum Stamp {
    /// `lfence; rdtsc; lfence`, kept in registers.
    Lfence,
    /// `rdtsc`, kept in registers.
    Unfenced,
    /// `mfence; rdtsc` before the crossing and `rdtsc; mfence` after it, kept in registers.
    Mfence,
    /// The same with xperf's instructions between stamps and crossing; first stamps are stored to memory.
    Xperf,
}

/// How the kernel is entered and left. The guest's code depends on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, LevelType)]
#[repr(u8)]
pub enum CrossingKind {
    /// A write from ring 3 to an unmapped page, and `iretq`.
    PageFault,
    /// `int 0x80` and `iretq`.
    SoftwareInterrupt,
    /// `int3` and `iretq`.
    Breakpoint,
    /// `ud2` and `iretq`.
    InvalidOpcode,
    /// `syscall` and `sysretq`.
    SyscallSysret,
    /// `syscall` and `iretq`.
    SyscallIretq,
    /// `int 0x80` from ring 0 to ring 0, and `iretq` there.
    SameRing,
    /// The stamps with no crossing between them.
    None,
}

impl CrossingKind {
    /// Returns whether the kind has a handler, which must run in ring 0.
    pub fn needs_ring_0(self) -> bool {
        self != Self::None
    }
}

/// A crossing of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestCrossing {
    /// Kind.
    pub kind: CrossingKind,
    /// How it is stamped.
    pub stamp: Stamp,
    /// Whether CR3 is switched.
    pub isolated: bool,
}

impl GuestCrossing {
    /// Number of crossings for which the guest has code.
    pub const COUNT: usize = 2 * CrossingKind::ALL.len() + 2 * (Stamp::ALL.len() - 1);

    /// Returns all crossings for which the guest has code.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        let kinds = CrossingKind::ALL.into_iter();
        let crossings =
            kinds.flat_map(|kind| Stamp::ALL.into_iter().map(move |stamp| (kind, stamp)));
        crossings
            .flat_map(|(kind, stamp)| [false, true].map(|isolated| Self { kind, stamp, isolated }))
            .filter(|crossing| crossing.variant().is_ok())
    }

    /// Returns the crossing with the default stamps.
    pub fn with_lfence(kind: CrossingKind, isolated: bool) -> Self {
        Self { kind, stamp: Stamp::Lfence, isolated }
    }

    /// Returns the number that selects kind and stamp in the guest.
    ///
    /// # Errors
    /// Returns `unavailable` if the guest has no code for them.
    pub fn variant(self) -> Result<u8, Failure> {
        if self.stamp == Stamp::Lfence {
            return Ok(self.kind as u8);
        }
        let first = CrossingKind::ALL.len() as u8 + 2 * (self.stamp as u8 - 1);
        match self.kind {
            CrossingKind::PageFault if !self.isolated => Ok(first),
            CrossingKind::None if !self.isolated => Ok(first + 1),
            CrossingKind::PageFault
            | CrossingKind::SoftwareInterrupt
            | CrossingKind::Breakpoint
            | CrossingKind::InvalidOpcode
            | CrossingKind::SyscallSysret
            | CrossingKind::SyscallIretq
            | CrossingKind::SameRing
            | CrossingKind::None => Err(Failure::unavailable(
                format!(
                    "stamp {} has only the kinds page-fault and none, with isolation off",
                    self.stamp
                ),
                "use stamp = lfence",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_consecutive_numbers_and_parse_from_their_names() {
        for (index, kind) in CrossingKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(CrossingKind::from_level(kind.name()), Some(kind));
        }
        assert_eq!(CrossingKind::from_level("teleport"), None);
        assert_eq!(CrossingKind::PageFault.name(), "page-fault");
        assert_eq!(CrossingKind::None.name(), "none");
    }

    #[test]
    fn every_variant_has_its_number() {
        let all: Vec<GuestCrossing> = GuestCrossing::all().collect();
        assert_eq!(all.len(), GuestCrossing::COUNT);
        let mut numbers: Vec<u8> = all.iter().map(|crossing| crossing.variant().unwrap()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..14).collect::<Vec<u8>>());
        let crossing = |kind, stamp| GuestCrossing { kind, stamp, isolated: false };
        assert_eq!(crossing(CrossingKind::None, Stamp::Xperf).variant(), Ok(13));
        let failure = crossing(CrossingKind::Breakpoint, Stamp::Mfence).variant().unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("use stamp = lfence"));
        let isolated =
            GuestCrossing { isolated: true, ..crossing(CrossingKind::PageFault, Stamp::Xperf) };
        assert!(isolated.variant().is_err());
    }
}
