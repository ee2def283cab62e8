//! The CPU: name, features and hypervisor.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::sync::OnceLock;

use raw_cpuid::CpuId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The CPU as CPUID and `/proc/cpuinfo` describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// CPUID vendor, e.g. `AuthenticAMD`; empty if unknown.
    pub vendor: String,
    /// Brand string; empty if unknown.
    pub brand: String,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Microcode revision in the kernel's notation.
    pub microcode: Option<String>,
    /// The kernel's feature flags, sorted.
    pub features: Vec<String>,
    /// The 12-character signature of the hypervisor, e.g. `KVMKVMKVM`; `None` on bare metal.
    pub hypervisor: Option<String>,
}

impl Cpu {
    /// Reads CPUID and the first CPU in `/proc/cpuinfo`.
    pub fn detect() -> Self {
        let cpuid = CpuId::new();
        let (family, model, stepping) = cpuid.get_feature_info().map_or((0, 0, 0), |info| {
            (u32::from(info.family_id()), u32::from(info.model_id()), u32::from(info.stepping_id()))
        });
        let vendor = cpuid.get_vendor_info();
        let brand = cpuid.get_processor_brand_string();
        let kernel = KernelView::read().unwrap_or_default();
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

/// The first CPU in `/proc/cpuinfo`.
#[derive(Debug, Default, PartialEq)]
struct KernelView {
    microcode: Option<String>,
    features: Vec<String>,
}

impl KernelView {
    fn read() -> io::Result<Self> {
        std::fs::File::open("/proc/cpuinfo").map(|file| Self::parse(BufReader::new(file)))
    }

    /// Stops at the first empty line: on a large host the whole file takes milliseconds to read.
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

/// The features that probes query, read once because CPUID traps under a hypervisor.
struct Predicates {
    hypervisor: Option<String>,
    clock: CpuClock,
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
        let hypervisor = hypervisor_signature();
        let brand = CpuId::new().get_processor_brand_string();
        let brand = brand.as_ref().map_or("", |brand| brand.as_str());
        let is_known = is_emulated(hypervisor.as_deref(), brand);
        Predicates {
            clock: CpuClock::declared(std::env::var_os(EMULATED_VARIABLE).as_deref(), is_known),
            hypervisor,
            erms: ebx(9),
            fsrm: edx(4),
            mpx: ebx(14) && bounds_state_enabled(),
            sgx: ebx(2),
        }
    })
}

/// Returns whether XCR0 enables the two MPX states (bits 3 and 4), so that the registers are preserved.
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

/// Meaning of the clock of a CPU, or of a guest's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuClock {
    /// The CPU is real: its times are.
    Real,
    /// The CPU is emulated, so no time is measured.
    #[serde(rename = "none")]
    Untimed,
    /// The CPU is emulated, but times are measured nevertheless, to test the instrument: the emulator counts instructions as
    /// time.
    Planted,
}

impl CpuClock {
    /// Returns whether the CPU is emulated.
    pub fn is_emulated(self) -> bool {
        self != Self::Real
    }

    /// Returns its name in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Untimed => "none",
            Self::Planted => "planted clock",
        }
    }

    /// Returns the value of [`EMULATED_VARIABLE`] that declares it; `None` if the CPU is real.
    pub fn declaration(self) -> Option<&'static str> {
        match self {
            Self::Real => None,
            Self::Untimed => Some("yes"),
            Self::Planted => Some(PLANTED_CLOCK),
        }
    }

    /// Returns the clock of a CPU of which the environment declares this, and which is known to be emulated or not.
    fn declared(declaration: Option<&OsStr>, is_known: bool) -> Self {
        match declaration {
            None if !is_known => Self::Real,
            // A clock is planted in an emulator that hides; the times of any other are refused.
            Some(value) if value == PLANTED_CLOCK && !is_known => Self::Planted,
            None | Some(_) => Self::Untimed,
        }
    }
}

/// Environment variable that declares this CPU emulated: the program that starts an emulator sets it, even if the
/// emulator hides.
pub const EMULATED_VARIABLE: &str = "TOLLGATE_EMULATED";
/// Value of [`EMULATED_VARIABLE`] if times are measured nevertheless.
const PLANTED_CLOCK: &str = "planted-clock";
/// Signature of QEMU's TCG.
const TCG_SIGNATURE: &str = "TCGTCGTCGTCG";

/// Returns the vendor signature in CPUID leaf 0x40000000 if leaf 1 reports a hypervisor, or if it is that of an emulator
/// that hides: a CPU has other data there, or none.
fn hypervisor_signature() -> Option<String> {
    let is_reported = std::arch::x86_64::__cpuid(1).ecx >> 31 == 1;
    Some(signature()).filter(|text| is_reported || text == TCG_SIGNATURE)
}

fn signature() -> String {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let letters = String::from_utf8_lossy(&bytes);
    letters.trim_matches(['\0', ' ']).to_owned()
}

/// Returns the signature of the hypervisor; `None` on bare metal.
pub fn hypervisor() -> Option<&'static str> {
    predicates().hypervisor.as_deref()
}

/// Returns the clock of this CPU. It is emulated by its signature, its brand or [`EMULATED_VARIABLE`].
pub fn clock() -> CpuClock {
    predicates().clock
}

/// Returns whether this CPU is emulated.
pub fn emulated() -> bool {
    clock().is_emulated()
}

/// Returns whether no time can be measured because this CPU is emulated and its clock is not planted.
pub fn lacks_time() -> bool {
    clock() == CpuClock::Untimed
}

/// Returns whether a CPU with this hypervisor and brand is emulated by QEMU's TCG. In a virtual machine on an emulated CPU
/// the signature is that of its own hypervisor, so only the brand reveals the emulation.
pub fn is_emulated(hypervisor: Option<&str>, brand: &str) -> bool {
    hypervisor == Some(TCG_SIGNATURE) || brand.contains("QEMU TCG")
}

/// Returns whether `/proc/cpuinfo` lists a flag, which may also be a feature of the kernel, e.g. `pti`.
///
/// # Errors
/// Returns the error of opening the file.
pub fn has_kernel_flag(flag: &str) -> io::Result<bool> {
    Ok(KernelView::read()?.features.iter().any(|listed| listed == flag))
}

/// Returns whether AVX2 is present and enabled by the kernel.
pub fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Returns whether AVX-512 F, BW and VL are present and enabled by the kernel.
pub fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512vl")
}

/// Returns whether `rep movsb` and `rep stosb` are enhanced (ERMS).
pub fn has_erms() -> bool {
    predicates().erms
}

/// Returns whether short `rep movsb` is fast (FSRM).
pub fn has_fsrm() -> bool {
    predicates().fsrm
}

/// Returns whether the CPU has MPX and XCR0 enables its states. Otherwise its instructions are no-ops.
pub fn has_mpx() -> bool {
    predicates().mpx
}

/// Returns whether the CPU has SGX, regardless of kernel support.
pub fn has_sgx() -> bool {
    predicates().sgx
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_an_emulator_declares_its_clock() {
        let clock = |declared: Option<&str>, is_known| {
            CpuClock::declared(declared.map(OsStr::new), is_known)
        };
        for one in [CpuClock::Real, CpuClock::Untimed, CpuClock::Planted] {
            assert_eq!(clock(one.declaration(), false), one);
            assert_eq!(
                clock(one.declaration(), true),
                CpuClock::Untimed,
                "an emulator that shows itself"
            );
        }
        assert_eq!(clock(Some("anything"), false), CpuClock::Untimed);
    }

    #[test]
    fn only_the_first_processor_of_cpuinfo_is_read() {
        let text = "processor\t: 0\nmicrocode\t: 0xa1\nflags\t\t: sse2 avx2 aes\n\nprocessor\t: 1\nmicrocode\t: 0xb2\n";
        let view = KernelView::parse(text.as_bytes());
        assert_eq!(view.microcode.as_deref(), Some("0xa1"));
        assert_eq!(view.features, ["aes", "avx2", "sse2"]);
        assert_eq!(KernelView::parse("".as_bytes()), KernelView::default());
    }

    #[test]
    fn an_emulated_cpu_is_known_by_signature_or_brand() {
        let brand = "QEMU TCG CPU version 2.5+";
        assert!(is_emulated(Some("TCGTCGTCGTCG"), "AMD EPYC Processor"));
        assert!(is_emulated(Some("KVMKVMKVM"), brand), "two levels down");
        assert!(is_emulated(None, brand));
        for hypervisor in [None, Some("KVMKVMKVM")] {
            assert!(!is_emulated(hypervisor, "AMD EPYC 9R14"));
            assert!(!is_emulated(hypervisor, "QEMU Virtual CPU version 2.5+"), "also under KVM");
        }
    }

    #[test]
    fn features_agree_with_the_kernel() {
        let cpu = Cpu::detect();
        assert!(!cpu.vendor.is_empty());
        let seen = [
            ("avx2", has_avx2()),
            ("erms", has_erms()),
            ("fsrm", has_fsrm()),
            ("hypervisor", cpu.hypervisor.is_some()),
        ];
        // The kernel may hide a feature (clearcpuid=erms), but never reports one that is missing.
        let shown = seen.iter().filter(|(flag, _)| cpu.features.iter().any(|shown| shown == flag));
        let mut compared = 0;
        for (flag, seen) in shown {
            assert!(seen, "{flag}");
            compared += 1;
        }
        if compared == 0 {
            crate::untested::note("CPU features by the kernel", &"the kernel reports none of them");
        }
    }
}
