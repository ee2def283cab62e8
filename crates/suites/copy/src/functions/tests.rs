//! Every function leaves the upper halves of the vector registers clean at every length.
//!
//! Otherwise the code without AVX that follows would run slower: later samples, and the program itself.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use super::*;
use std::arch::is_x86_feature_detected;

/// Lengths in bytes at which our functions switch strategy, on any machine.
const EDGES: [usize; 12] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    48 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    8 << 20,
    24 << 20,
];
/// The upper halves of the first sixteen vector registers: of ymm, and of zmm.
const UPPER: u64 = 1 << 2 | 1 << 6;

/// State of the registers after a copy.
struct Left {
    /// The CPU's record of the registers in use, if it keeps one.
    in_use: Option<u64>,
    /// ymm0 to ymm15.
    registers: [[u8; 32]; 16],
}

impl Left {
    fn is_clean(&self) -> bool {
        let zero = self.registers.iter().all(|register| register[16..] == [0; 16]);
        zero && self.in_use.is_none_or(|state| state & UPPER == 0)
    }
}

/// Returns whether `xgetbv` reports the registers in use: leaf 13, subleaf 1, EAX bit 2.
fn tells_use() -> bool {
    is_x86_feature_detected!("xsave") && __cpuid_count(13, 1).eax & 1 << 2 != 0
}

fn left_by(copy: CopyFn, to: &mut [u8], from: &[u8]) -> Left {
    let mut registers = [[0; 32]; 16];
    let (low, high): (u64, usize);
    // SAFETY: the CPU has AVX, the buffers have this length and do not overlap, and every register
    // that a function may change is declared. `xgetbv` runs only if the CPU supports it.
    unsafe {
        asm!(
            "vzeroupper",
            "call r12",
            "xor eax, eax",
            "xor edx, edx",
            "mov ecx, 1",
            "test r14, r14",
            "jz 2f",
            "xgetbv",
            "2:",
            "vmovdqu [r13], ymm0",
            "vmovdqu [r13 + 32], ymm1",
            "vmovdqu [r13 + 64], ymm2",
            "vmovdqu [r13 + 96], ymm3",
            "vmovdqu [r13 + 128], ymm4",
            "vmovdqu [r13 + 160], ymm5",
            "vmovdqu [r13 + 192], ymm6",
            "vmovdqu [r13 + 224], ymm7",
            "vmovdqu [r13 + 256], ymm8",
            "vmovdqu [r13 + 288], ymm9",
            "vmovdqu [r13 + 320], ymm10",
            "vmovdqu [r13 + 352], ymm11",
            "vmovdqu [r13 + 384], ymm12",
            "vmovdqu [r13 + 416], ymm13",
            "vmovdqu [r13 + 448], ymm14",
            "vmovdqu [r13 + 480], ymm15",
            "vzeroupper",
            in("r12") copy,
            in("r13") registers.as_mut_ptr(),
            in("r14") u64::from(tells_use()),
            inout("rdi") to.as_mut_ptr() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdx") from.len() => high,
            lateout("rax") low,
            clobber_abi("C"),
        );
    }
    let in_use = (high as u64) << 32 | low;
    Left { in_use: tells_use().then_some(in_use), registers }
}

/// Leaves a whole ymm register dirty.
#[unsafe(naked)]
unsafe extern "C" fn unclean(_destination: *mut u8, _source: *const u8, _length: usize) {
    core::arch::naked_asm!("vmovdqu ymm3, [rsi]", "ret")
}

#[test]
fn functions_leave_the_upper_halves_clean_at_every_length() {
    if !is_x86_feature_detected!("avx2") {
        return machine::untested::note("upper halves after a copy", &"this CPU lacks AVX2");
    }
    if !tells_use() {
        machine::untested::note(
            "registers in use after a copy",
            &"xgetbv does not report them here",
        );
    }
    let near = |edge: usize| (edge - 70..edge + 140).step_by(if edge > 1 << 20 { 23 } else { 1 });
    let lengths: Vec<usize> = (1..=600)
        .chain(EDGES.into_iter().flat_map(near))
        // Lengths at which four quarters leave only a few bytes.
        .chain((64 << 10) - 70..(64 << 10) + 300)
        .collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let (mut to, from) = (vec![0; longest], vec![0xff; longest]);
    assert!(!left_by(unclean, &mut to, &from[..64]).is_clean(), "the test detects nothing");
    let known = all().iter().chain([load_store_limit()]).filter(|one| one.name != "glibc");
    let known = known.filter_map(|one| (one.resolve)().ok().map(|copy| (one.name, copy)));
    // The variants for other CPUs.
    let others =
        [("tollgate without AVX-512", tollgate::WITH_AVX2), ("32 B", load_store_limit::WITH_AVX2)];
    for (name, copy) in known.chain(others) {
        for length in &lengths {
            let left = left_by(copy, &mut to[..*length], &from[..*length]);
            assert!(left.is_clean(), "{name}, {length} B: {:x?}", left.in_use);
        }
    }
}
