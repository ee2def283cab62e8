//! The CPU's SGX parameters.
//!
//! Source: Intel SDM, volume 3D, "Enumeration of SGX" (CPUID leaf 12H), and volume 1, "XSAVE-supported features"
//! (CPUID leaf 0DH).

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::mem::size_of;

use super::structures::GprSgx;
use crate::conf::PAGE;

/// The state components that an enclave's code may use: x87, SSE, AVX and AVX-512.
const USED: u64 = 0xe7;
/// Maximum number of sections of the EPC that Linux uses.
const MAX_SECTIONS: usize = 8;
/// The components that every enclave has, x87 and SSE, which are saved at the start of a frame.
const LEGACY: u64 = 3;

/// The SGX parameters of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processor {
    /// The state components that an enclave uses, in the format of XCR0.
    pub(super) xfrm: u64,
    /// Pages per frame of saved state.
    pub(super) frame_pages: u32,
    /// Maximum size of an enclave, in bytes.
    pub(super) largest: u64,
    /// Size of the memory for all enclaves (EPC), in bytes.
    pub(super) epc: u64,
}

/// The results of CPUID and XGETBV, in registers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuidLeaves {
    /// Leaf 7: ECX.
    pub(super) features: u32,
    /// Leaf 12H, subleaf 0: EAX and EDX.
    pub(super) capabilities: [u32; 2],
    /// Subleaf 1: ECX and EDX.
    pub(super) xfrm: [u32; 2],
    /// Subleaves from 2: the sections of the EPC.
    pub(super) sections: [[u32; 4]; MAX_SECTIONS],
    /// XCR0.
    pub(super) enabled: u64,
    /// Leaf 0DH: length and offset of each state component from the third.
    pub(super) state: [(u32, u32); 8],
}

impl CpuidLeaves {
    /// Reads this CPU's leaves; all zero if they do not exist.
    pub(super) fn here() -> Self {
        if !machine::cpu::has_sgx() || __cpuid(0).eax < 0x12 {
            return Self::default();
        }
        let (capabilities, xfrm) = (__cpuid_count(0x12, 0), __cpuid_count(0x12, 1));
        let saves = __cpuid(1).ecx >> 27 & 1 == 1;
        Self {
            features: __cpuid_count(7, 0).ecx,
            capabilities: [capabilities.eax, capabilities.edx],
            xfrm: [xfrm.ecx, xfrm.edx],
            sections: std::array::from_fn(|section| {
                let leaf = __cpuid_count(0x12, 2 + section as u32);
                [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]
            }),
            enabled: if saves { xcr0() } else { LEGACY },
            state: std::array::from_fn(|part| {
                let part = if saves && part >= 2 { part as u32 } else { return (0, 0) };
                let leaf = __cpuid_count(0x0d, part);
                (leaf.eax, leaf.ebx)
            }),
        }
    }

    /// Returns whether the kernel may set the keys that sign enclaves (flexible launch control).
    pub(super) fn has_launch_control(&self) -> bool {
        self.features >> 30 & 1 == 1
    }

    /// Returns the size of the EPC, in bytes.
    fn epc(&self) -> u64 {
        // Type 1 is a section; the first other type ends the list.
        let sections = self.sections.iter().take_while(|[eax, ..]| eax & 0xf == 1);
        let size = |[_, _, ecx, edx]: &[u32; 4]| {
            u64::from(edx & 0xf_ffff) << 32 | u64::from(ecx & 0xffff_f000)
        };
        sections.map(size).sum()
    }

    /// Returns the SGX parameters, or `None` if the CPU does not support enclaves.
    pub(super) fn processor(&self) -> Option<Processor> {
        let [versions, lengths] = self.capabilities;
        if versions & 1 == 0 {
            return None;
        }
        let allowed = u64::from(self.xfrm[1]) << 32 | u64::from(self.xfrm[0]);
        let xfrm = allowed & self.enabled & USED | LEGACY;
        // The first 576 bytes contain x87, SSE, and the header that lists the components.
        let saved = (0..).zip(self.state).filter(|(part, _)| xfrm >> part & 1 == 1);
        let state = saved.map(|(_, (length, at))| length + at).fold(576, u32::max) as usize;
        let frame_pages = (state + size_of::<GprSgx>()).div_ceil(PAGE) as u32;
        let largest = 1 << (lengths >> 8 & 63);
        Some(Processor { xfrm, frame_pages, largest, epc: self.epc() })
    }
}

fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: it is only executed if CPUID reports OSXSAVE; it reads a register.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SECTION: [u32; 4] = [0; 4];

    /// The values of an Ice Lake server with AVX-512, PKRU, and two sections of EPC.
    const SERVER: CpuidLeaves = CpuidLeaves {
        features: 1 << 30,
        capabilities: [3, 0x381f],
        xfrm: [0x2e7, 0],
        sections: [
            [0x70c0_0001, 0x10, 0xec00_0001, 0],
            [0x70c0_0001, 0x20, 0xec00_0001, 1],
            NO_SECTION,
            // Not in the list, because it is after its end.
            [0x70c0_0001, 0x30, 0x1000_0001, 0],
            NO_SECTION,
            NO_SECTION,
            NO_SECTION,
            NO_SECTION,
        ],
        enabled: 0x2e7,
        state: [
            (0, 0),
            (0, 0),
            (256, 576),
            (64, 960),
            (64, 1024),
            (64, 1088),
            (512, 1152),
            (1024, 1664),
        ],
    };

    #[test]
    fn an_enclave_uses_the_state_that_processor_and_system_support() {
        let server = SERVER.processor().unwrap();
        let epc = (1 << 32) + 2 * 0xec00_0000;
        assert_eq!(server, Processor { xfrm: 0xe7, frame_pages: 1, largest: 1 << 56, epc });
        assert!(SERVER.has_launch_control());
        let avx = CpuidLeaves { enabled: 7, ..SERVER }.processor().unwrap();
        assert_eq!((avx.xfrm, avx.frame_pages), (7, 1));
        let none = CpuidLeaves { xfrm: [3, 0], ..SERVER }.processor().unwrap();
        assert_eq!(none.xfrm, 3);
        let mut long = SERVER;
        // A frame of one page has space for 3912 bytes of state.
        long.state[7] = (1024, 3912 - 1024);
        assert_eq!(long.processor().unwrap().frame_pages, 1);
        long.state[7].0 += 1;
        assert_eq!(long.processor().unwrap().frame_pages, 2);
    }

    #[test]
    fn a_processor_without_sgx_has_no_parameters() {
        assert_eq!(CpuidLeaves::default().processor(), None);
        assert!(!CpuidLeaves::default().has_launch_control());
        assert_eq!(CpuidLeaves { capabilities: [2, 0x381f], ..SERVER }.processor(), None);
        if !machine::cpu::has_sgx() {
            assert_eq!(CpuidLeaves::here().processor(), None);
        }
    }
}
