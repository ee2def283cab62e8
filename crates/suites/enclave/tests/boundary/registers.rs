//! The host's control words, flags and vector registers after a fault inside.

use std::arch::asm;

use enclave::error::EcallError;
use enclave::kinds::EnclaveKind;
use enclave_interface::Ecall;

use super::{available, call, load};

/// The kinds whose calls end with this thread's registers.
const HERE: [EnclaveKind; 3] = [EnclaveKind::None, EnclaveKind::Simulate, EnclaveKind::ArchPrctl];

/// The structure that `fnstenv` stores.
#[derive(Debug, Default)]
#[repr(C)]
struct X87 {
    control: u32,
    status: u32,
    tag: u32,
    rest: [u32; 4],
}

/// Control words that no other code of this process uses: both round down, and x87 has a precision of 53 bits.
const MXCSR: u32 = 0x3f80;
const CONTROL: u16 = 0x067f;

/// Sets both control words.
fn set(mxcsr: u32, control: u16) {
    // SAFETY: the words are valid and mask all exceptions; the thread uses no floating point until they are restored.
    unsafe {
        asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack));
        asm!("fldcw [{}]", in(reg) &raw const control, options(nostack));
    }
}

/// Returns MXCSR without its sticky flags, the x87 environment, and RFLAGS.
fn now() -> (u32, X87, u64) {
    let (mut mxcsr, mut x87, flags) = (0u32, X87::default(), u64::MAX);
    let mut flags = flags;
    // SAFETY: the buffers have the required lengths; `fnstenv` masks exceptions, and `fldcw` restores the mask.
    unsafe {
        asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
        asm!("fnstenv [{0}]", "fldcw [{0}]", in(reg) &raw mut x87, options(nostack));
        asm!("pushfq", "pop {}", inout(reg) flags);
    }
    (mxcsr & !0x3f, x87, flags)
}

/// Returns the upper halves of two AVX registers, and two AVX-512 registers; zero if they do not exist.
fn wide(features: u64) -> [[u64; 8]; 4] {
    let mut words = [[0u64; 8]; 4];
    let at = words.as_mut_ptr();
    // SAFETY: the CPU has the registers, and the buffer is long enough.
    unsafe {
        if features & 1 != 0 {
            asm!("vextractf128 [{0}], ymm7, 1", "vextractf128 [{0} + 64], ymm15, 1", in(reg) at, options(nostack));
        }
        if features & 2 != 0 {
            asm!("vmovdqu64 [{0} + 128], zmm16", "vmovdqu64 [{0} + 192], zmm31", in(reg) at, options(nostack));
        }
    }
    words
}

#[test]
fn a_fault_restores_the_hosts_control_words_flags_and_vectors() {
    let features = u64::from(is_x86_feature_detected!("avx"))
        | u64::from(is_x86_feature_detected!("avx512f")) << 1;
    for kind in available(&HERE) {
        let enclave = load(kind);
        assert_eq!(call(&*enclave, Ecall::nothing, &[]), Ok(0));
        set(MXCSR, CONTROL);
        let why = call(&*enclave, Ecall::misbehave, &[8, features]);
        let (registers, (mxcsr, x87, flags)) = (wide(features), now());
        set(0x1f80, 0x37f);
        let Err(EcallError::Fault { signal: libc::SIGILL, .. }) = why else { panic!("{why:?}") };
        assert_eq!(mxcsr, MXCSR, "{kind:?}: MXCSR");
        assert_eq!(x87.control & 0xffff, u32::from(CONTROL), "{kind:?}: the control word of x87");
        assert_eq!(x87.tag & 0xffff, 0xffff, "{kind:?}: x87 has an empty stack");
        assert_eq!(x87.status & 0x3fff, 0, "{kind:?}: x87 has no exception, and its top is 0");
        // Trap, direction, nested task, alignment check.
        assert_eq!(flags & (1 << 8 | 1 << 10 | 1 << 14 | 1 << 18), 0, "{kind:?}: {flags:#x}");
        for register in registers {
            assert!(!register.contains(&u64::MAX), "{kind:?}: {register:x?}");
        }
    }
}
