//! Whether CPU and kernel support an instruction. This is checked before it runs, because some unsupported instructions
//! execute as another one (MPX as NOP, LZCNT as BSR).

use std::arch::x86_64::__cpuid_count;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use iced_x86::CpuidFeature;
use lab::sample::Failure;
use machine::capability::MPX_REMEDY;
use serde::Deserialize;

static KNOWN: LazyLock<Result<File, String>> = LazyLock::new(|| {
    let text = include_str!("../../features.toml");
    lab::data::read_toml("features.toml", text).map_err(|fault| fault.to_string())
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    base: Vec<String>,
    feature: BTreeMap<String, Bit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bit {
    leaf: u32,
    #[serde(default)]
    subleaf: u32,
    register: CpuidRegister,
    bit: u32,
    /// Bits that must be set in XCR0.
    #[serde(default)]
    states: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CpuidRegister {
    Eax,
    Ebx,
    Ecx,
    Edx,
}

impl Bit {
    fn is_set(&self) -> bool {
        let [max_leaf, ..] = leaf(self.leaf & 0x8000_0000, 0);
        self.leaf <= max_leaf
            && leaf(self.leaf, self.subleaf)[self.register as usize] >> self.bit & 1 == 1
    }

    fn is_enabled(&self) -> bool {
        self.states == 0 || xcr0() & self.states == self.states
    }
}

/// Returns a CPUID leaf from a cache, because CPUID traps under a hypervisor.
fn leaf(leaf: u32, subleaf: u32) -> [u32; 4] {
    static CACHE: Mutex<BTreeMap<(u32, u32), [u32; 4]>> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    *cache.entry((leaf, subleaf)).or_insert_with(|| {
        let answer = __cpuid_count(leaf, subleaf);
        [answer.eax, answer.ebx, answer.ecx, answer.edx]
    })
}

/// Returns the state components that the kernel has enabled; 0 if it has not enabled XGETBV.
fn xcr0() -> u64 {
    if leaf(1, 0)[2] >> 27 & 1 == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE is set, so XGETBV of register 0 is allowed in user mode; it only reads.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the failure for a feature that this CPU or its kernel lacks.
fn missing(feature: &str, where_from: &str, cause: String) -> Failure {
    let remedy = match feature {
        "MPX" => MPX_REMEDY.to_owned(),
        _ => {
            format!("use a CPU and a kernel with {feature}; in a VM, let the hypervisor expose it")
        }
    };
    Failure::unsupported(format!("{cause} {where_from}"), remedy).with_cause(cause)
}

/// Checks that CPU and kernel support all features.
///
/// # Errors
/// Returns `unsupported` with the first that is missing.
pub(crate) fn check_features(features: &[CpuidFeature]) -> Result<(), Failure> {
    let known = KNOWN.as_ref().map_err(|fault| Failure::failed(fault.clone()))?;
    for feature in features {
        let name = format!("{feature:?}");
        if known.base.contains(&name) {
            continue;
        }
        let bit = known.feature.get(&name).ok_or_else(|| {
            Failure::unsupported(
                format!("features.toml has no CPUID bit of {name}"),
                "add it to features.toml",
            )
        })?;
        if !bit.is_set() {
            let cause = format!("this CPU has no {name}");
            return Err(missing(&name, "(CPUID)", cause));
        }
        if !bit.is_enabled() {
            let cause = format!("the kernel has not enabled {name}");
            return Err(missing(&name, "(XCR0)", cause));
        }
        if *feature == CpuidFeature::CET_SS && !shadow_stack_is_on() {
            return Err(Failure::unsupported(
                "this program has no shadow stack (CET_SS is off)",
                "start it with a kernel and a C library that enable shadow stacks",
            ));
        }
    }
    Ok(())
}

/// Returns the bits of the widest vectors that the features use; 128 if they use no vector state.
pub(crate) fn widest(features: &[CpuidFeature]) -> u16 {
    let Ok(known) = KNOWN.as_ref() else { return 128 };
    let of = |feature: &CpuidFeature| known.feature.get(&format!("{feature:?}"));
    match features.iter().filter_map(of).fold(0, |states, bit| states | bit.states) {
        states if states & 0xE0 != 0 => 512,
        states if states & 4 != 0 => 256,
        _ => 128,
    }
}

/// Returns whether a feature belongs to the x87.
pub(crate) fn is_x87(feature: CpuidFeature) -> bool {
    matches!(feature, CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387)
}

/// Returns whether this process has a shadow stack; without one its instructions execute as NOP.
fn shadow_stack_is_on() -> bool {
    const ARCH_SHSTK_STATUS: libc::c_long = 0x5005;
    let mut status: u64 = 0;
    // SAFETY: the kernel writes 8 bytes to `status`, or rejects the request.
    let answer = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut status) };
    answer == 0 && status & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_in_the_kernels_flags_are_supported() {
        let flags = machine::cpu::Cpu::detect().features;
        let same = [
            (CpuidFeature::AVX2, "avx2"),
            (CpuidFeature::AVX512F, "avx512f"),
            (CpuidFeature::GFNI, "gfni"),
            (CpuidFeature::VAES, "vaes"),
            (CpuidFeature::SHA, "sha_ni"),
            (CpuidFeature::BMI2, "bmi2"),
            (CpuidFeature::PKU, "ospke"),
            (CpuidFeature::LZCNT, "abm"),
            (CpuidFeature::AVX512_BF16, "avx512_bf16"),
        ];
        for (feature, flag) in same {
            let kernel = flags.iter().any(|one| one == flag);
            // A kernel may hide features of the CPU, but does not list missing ones.
            assert!(!kernel || check_features(&[feature]).is_ok(), "{flag}");
        }
        assert_eq!(check_features(&[CpuidFeature::MPX]).is_ok(), machine::cpu::has_mpx());
        assert_eq!(check_features(&[CpuidFeature::X64]), Ok(()));
    }

    #[test]
    fn features_determine_the_vector_width() {
        assert_eq!(widest(&[CpuidFeature::SSE2]), 128);
        assert_eq!(widest(&[CpuidFeature::AVX, CpuidFeature::GFNI]), 256);
        assert_eq!(widest(&[CpuidFeature::AVX512VL, CpuidFeature::AVX512F]), 512);
    }

    #[test]
    fn an_unsupported_feature_is_named_in_the_failure() {
        let failure = check_features(&[CpuidFeature::SSE2, CpuidFeature::KNC]).unwrap_err();
        assert!(failure.to_string().contains("KNC"), "{failure}");
    }
}
