//! The processor: its names, its features, and the hypervisor above it.

use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

use raw_cpuid::CpuId;
use serde::{Deserialize, Serialize};

/// What the processor says of itself, by CPUID, and what the kernel says of it, by `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPUID vendor, such as `AuthenticAMD`; empty where the processor gives none.
    pub vendor: String,
    /// Brand string; empty where the processor gives none.
    pub brand: String,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Microcode revision as the kernel prints it.
    pub microcode: Option<String>,
    /// The kernel's feature flags, sorted.
    pub features: Vec<String>,
    /// The 12 letters with which the hypervisor signs, such as `KVMKVMKVM`; none on bare metal.
    pub hypervisor: Option<String>,
}

impl Cpu {
    /// Reads CPUID and the first processor of `/proc/cpuinfo`.
    pub fn detect() -> Self {
        let cpuid = CpuId::new();
        let (family, model, stepping) = cpuid.get_feature_info().map_or((0, 0, 0), |info| {
            (u32::from(info.family_id()), u32::from(info.model_id()), u32::from(info.stepping_id()))
        });
        let vendor = cpuid.get_vendor_info();
        let brand = cpuid.get_processor_brand_string();
        let kernel = std::fs::File::open("/proc/cpuinfo")
            .map(|file| KernelView::parse(BufReader::new(file)))
            .unwrap_or_default();
        Self {
            vendor: vendor.map_or_else(String::new, |vendor| vendor.as_str().to_owned()),
            brand: brand.map_or_else(String::new, |brand| brand.as_str().trim().to_owned()),
            family,
            model,
            stepping,
            microcode: kernel.microcode,
            features: kernel.features,
            hypervisor: hypervisor().map(str::to_owned),
        }
    }
}

/// What `/proc/cpuinfo` says of its first processor.
#[derive(Debug, Default, PartialEq)]
struct KernelView {
    microcode: Option<String>,
    features: Vec<String>,
}

impl KernelView {
    /// Stops at the first empty line: on a large host the whole file takes milliseconds.
    fn parse(cpuinfo: impl BufRead) -> Self {
        let mut view = Self::default();
        for line in cpuinfo.lines().map_while(Result::ok) {
            let Some((key, value)) = line.split_once(':') else {
                break;
            };
            match key.trim() {
                "microcode" => view.microcode = Some(value.trim().to_owned()),
                "flags" => {
                    view.features = value.split_whitespace().map(str::to_owned).collect();
                    view.features.sort();
                }
                _ => {}
            }
        }
        view
    }
}

/// The features that probes ask for, read once: CPUID traps under a hypervisor.
struct Predicates {
    hypervisor: Option<String>,
    erms: bool,
    fsrm: bool,
    mpx: bool,
    sgx: bool,
}

fn predicates() -> &'static Predicates {
    static PREDICATES: OnceLock<Predicates> = OnceLock::new();
    PREDICATES.get_or_init(|| {
        let seven = if std::arch::x86_64::__cpuid(0).eax >= 7 {
            Some(std::arch::x86_64::__cpuid_count(7, 0))
        } else {
            None
        };
        let ebx = |bit: u32| seven.is_some_and(|leaf| leaf.ebx >> bit & 1 == 1);
        let edx = |bit: u32| seven.is_some_and(|leaf| leaf.edx >> bit & 1 == 1);
        Predicates {
            hypervisor: hypervisor_signature(),
            erms: ebx(9),
            fsrm: edx(4),
            mpx: ebx(14) && bounds_state_enabled(),
            sgx: ebx(2),
        }
    })
}

/// Whether XCR0 holds the two MPX states (bits 3 and 4), so that the kernel lets the registers live.
fn bounds_state_enabled() -> bool {
    let leaf_one = std::arch::x86_64::__cpuid(1);
    if leaf_one.ecx >> 27 & 1 == 0 {
        return false;
    }
    let (low, _high): (u32, u32);
    // SAFETY: OSXSAVE is set, so XGETBV of register 0 is allowed in user mode and only reads.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _high,
            options(nomem, nostack, preserves_flags));
    }
    low >> 3 & 3 == 3
}

/// The vendor letters of CPUID leaf 0x40000000, where leaf 1 says that there is a hypervisor.
fn hypervisor_signature() -> Option<String> {
    if std::arch::x86_64::__cpuid(1).ecx >> 31 == 0 {
        return None;
    }
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let letters = String::from_utf8_lossy(&bytes);
    Some(letters.trim_matches(['\0', ' ']).to_owned())
}

/// The hypervisor's signature; none on bare metal.
pub fn hypervisor() -> Option<&'static str> {
    predicates().hypervisor.as_deref()
}

/// Whether this processor is emulated by QEMU's TCG, so that no time measured here means anything.
pub fn emulated() -> bool {
    hypervisor() == Some("TCGTCGTCGTCG")
}

/// AVX2, allowed by the kernel.
pub fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// AVX-512 F, BW and VL, allowed by the kernel.
pub fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vl")
}

/// Enhanced `rep movsb` and `rep stosb`.
pub fn has_erms() -> bool {
    predicates().erms
}

/// Fast short `rep movsb`.
pub fn has_fsrm() -> bool {
    predicates().fsrm
}

/// MPX in the processor and its states in XCR0. Without both, its instructions do nothing.
pub fn has_mpx() -> bool {
    predicates().mpx
}

/// SGX in the processor. Whether the kernel offers it is another question.
pub fn has_sgx() -> bool {
    predicates().sgx
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_of_first_processor_only() {
        let text = "processor\t: 0\nmicrocode\t: 0xa1\nflags\t\t: sse2 avx2 aes\n\nprocessor\t: 1\nmicrocode\t: 0xb2\n";
        let view = KernelView::parse(text.as_bytes());
        assert_eq!(view.microcode.as_deref(), Some("0xa1"));
        assert_eq!(view.features, ["aes", "avx2", "sse2"]);
        assert_eq!(KernelView::parse("".as_bytes()), KernelView::default());
    }

    #[test]
    fn what_the_kernel_shows_is_seen() {
        let cpu = Cpu::detect();
        assert!(!cpu.vendor.is_empty());
        let seen = [
            ("avx2", has_avx2()),
            ("erms", has_erms()),
            ("fsrm", has_fsrm()),
            ("hypervisor", cpu.hypervisor.is_some()),
        ];
        // The kernel may hide what the processor has (clearcpuid=erms), but shows nothing that it has not.
        let shown = seen.iter().filter(|(flag, _)| cpu.features.iter().any(|shown| shown == flag));
        let mut compared = 0;
        for (flag, seen) in shown {
            assert!(seen, "{flag}");
            compared += 1;
        }
        if compared == 0 {
            crate::untested::note("CPU features by the kernel", &"it shows none of them");
        }
    }
}
