//! What the processor reads of an enclave, bit for bit.
//!
//! Source: Intel SDM, volume 3D, "Enclave access control and data structures".

use std::mem::{offset_of, size_of};

use crate::conf::PAGE;

/// A structure of integers and arrays of them, with no padding: any bytes are one, and it is its bytes.
///
/// # Safety
/// So it must be.
pub(super) unsafe trait Plain: Sized {
    /// All zero.
    fn zero() -> Self {
        // SAFETY: any bytes are one.
        unsafe { std::mem::zeroed() }
    }

    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it has no padding, so that all its bytes are written.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// What an enclave is (ATTRIBUTES).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Attributes {
    /// [`DEBUG`] and [`MODE64`].
    pub(super) flags: u64,
    /// What of the processor's state it uses, as XCR0 has it.
    pub(super) xfrm: u64,
}

impl Attributes {
    /// As the signature's structure has them, where they lie unaligned.
    pub(super) fn words(self) -> [u32; 4] {
        let Self { flags, xfrm } = self;
        [flags as u32, (flags >> 32) as u32, xfrm as u32, (xfrm >> 32) as u32]
    }
}

/// A debugger may read and write it: what `Debug` of a configuration means.
pub(super) const DEBUG: u64 = 1 << 1;
/// It runs in 64-bit mode.
pub(super) const MODE64: u64 = 1 << 2;

/// SGX enclave control structure, aligned as ECREATE wants it.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct Secs {
    /// The length of its range of addresses, a power of two.
    pub(super) size: u64,
    /// Where that begins, a multiple of its length.
    pub(super) base: u64,
    /// Pages of one frame of saved state.
    pub(super) frame_pages: u32,
    /// What more is saved at an exception.
    pub(super) misc_select: u32,
    cet: [u8; 24],
    /// What it is.
    pub(super) attributes: Attributes,
    /// The rest is the processor's, or zero.
    rest: [u8; 4032],
}

/// Thread control structure: a page of its own.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct SgxTcs {
    state: u64,
    flags: u64,
    /// The frames of saved state, from the enclave's first byte.
    pub(super) frames: u64,
    /// The frame that is used next. The processor's.
    current_frame: u32,
    /// How many frames there are.
    pub(super) frame_count: u32,
    /// Where it is entered, from the enclave's first byte.
    pub(super) entry: u64,
    exit: u64,
    /// FS while a thread is inside, from the enclave's first byte: whole pages.
    pub(super) fs: u64,
    /// And GS.
    pub(super) gs: u64,
    /// Of 32-bit mode; all ones.
    pub(super) fs_limit: u32,
    /// Of 32-bit mode; all ones.
    pub(super) gs_limit: u32,
    rest: [u8; 4024],
}

/// What a page is (SECINFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct SecInfo {
    /// [`READ`], [`WRITE`], [`EXECUTE`], and [`THREAD_PAGE`] or [`REGULAR_PAGE`].
    pub(super) flags: u64,
    rest: [u64; 7],
}

impl SecInfo {
    /// A page with these flags.
    pub(super) fn new(flags: u64) -> Self {
        Self { flags, rest: [0; 7] }
    }
}

/// Its bytes are read.
pub(super) const READ: u64 = 1;
/// They are written.
pub(super) const WRITE: u64 = 1 << 1;
/// They are executed.
pub(super) const EXECUTE: u64 = 1 << 2;
/// It is a [`SgxTcs`], which has none of these.
pub(super) const THREAD_PAGE: u64 = 1 << 8;
/// It is any other.
pub(super) const REGULAR_PAGE: u64 = 2 << 8;

/// The bytes of an RSA key of 3072 bits, the lowest first.
pub(super) type Large = [u8; 384];

/// Who answers for an enclave, and for which (SIGSTRUCT).
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SigStruct {
    /// What is signed first.
    pub(super) header: SignedHeader,
    /// The key's modulus.
    pub(super) modulus: Large,
    /// Its exponent: 3.
    pub(super) exponent: u32,
    /// The signature of header and body.
    pub(super) signature: Large,
    /// What is signed next.
    pub(super) body: SignedBody,
    rest: [u8; 12],
    /// `signature^2 / modulus`, so that the processor need not divide.
    pub(super) q1: Large,
    /// `(signature^3 - q1 * signature * modulus) / modulus`.
    pub(super) q2: Large,
}

/// Its first part.
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SignedHeader {
    /// Fixed by Intel.
    pub(super) first: [u8; 16],
    vendor_and_date: [u32; 2],
    /// Fixed by Intel.
    pub(super) second: [u8; 16],
    rest: [u8; 88],
}

/// Its second part.
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SignedBody {
    /// What [`Secs::misc_select`] must be.
    pub(super) misc_select: u32,
    /// Which of its bits are compared.
    pub(super) misc_mask: u32,
    rest: [u8; 20],
    /// What [`Secs::attributes`] must be.
    pub(super) attributes: [u32; 4],
    /// Which of their bits are compared.
    pub(super) attributes_mask: [u32; 4],
    /// What the enclave was measured as.
    pub(super) measurement: [u8; 32],
    product: [u8; 32],
    product_number: u16,
    security_version: u16,
}

/// What the processor saves of the registers at the end of a frame (GPRSGX).
#[derive(Debug)]
#[repr(C)]
pub(super) struct GprSgx {
    /// RAX.
    pub(super) rax: u64,
    /// RCX, RDX, RBX.
    pub(super) middle: [u64; 3],
    /// RSP.
    pub(super) rsp: u64,
    /// RBP, RSI, RDI, R8 to R15.
    pub(super) others: [u64; 11],
    /// RFLAGS.
    pub(super) flags: u64,
    /// RIP.
    pub(super) rip: u64,
    /// RSP of outside.
    pub(super) outer_rsp: u64,
    /// RBP of outside.
    pub(super) outer_rbp: u64,
    /// Which exception it was.
    pub(super) exit: u32,
    rest: u32,
    bases: [u64; 2],
}

/// As [`GprSgx::exit`] tells of an instruction that the processor does not know: vector 6, a hardware
/// exception (type 3), valid.
pub(super) const INVALID_OPCODE: u32 = 1 << 31 | 3 << 8 | 6;

// SAFETY: integers and arrays of them; the lengths below leave no room for padding.
unsafe impl Plain for Secs {}
// SAFETY: as above.
unsafe impl Plain for SgxTcs {}
// SAFETY: as above.
unsafe impl Plain for SecInfo {}
// SAFETY: as above.
unsafe impl Plain for SigStruct {}
// SAFETY: as above.
unsafe impl Plain for SignedHeader {}
// SAFETY: as above.
unsafe impl Plain for SignedBody {}

const _: () = {
    assert!(size_of::<Secs>() == PAGE);
    assert!(offset_of!(Secs, frame_pages) == 16);
    assert!(offset_of!(Secs, attributes) == 48 && offset_of!(Secs, rest) == 64);
    assert!(size_of::<SgxTcs>() == PAGE);
    assert!(offset_of!(SgxTcs, frames) == 16 && offset_of!(SgxTcs, entry) == 32);
    assert!(offset_of!(SgxTcs, fs) == 48 && offset_of!(SgxTcs, fs_limit) == 64);
    assert!(offset_of!(SgxTcs, rest) == 72);
    assert!(size_of::<SecInfo>() == 64);
    assert!(size_of::<SigStruct>() == 1808);
    assert!(size_of::<SignedHeader>() == 128 && offset_of!(SignedHeader, second) == 24);
    assert!(offset_of!(SigStruct, exponent) == 512);
    assert!(offset_of!(SigStruct, signature) == 516);
    assert!(size_of::<SignedBody>() == 128 && offset_of!(SigStruct, body) == 900);
    assert!(offset_of!(SignedBody, attributes) + 900 == 928);
    assert!(offset_of!(SignedBody, measurement) + 900 == 960);
    assert!(offset_of!(SignedBody, product_number) + 900 == 1024);
    assert!(offset_of!(SigStruct, q1) == 1040);
    assert!(offset_of!(SigStruct, q2) == 1424);
    assert!(size_of::<GprSgx>() == 184);
    assert!(offset_of!(GprSgx, rsp) == 32 && offset_of!(GprSgx, flags) == 128);
    assert!(offset_of!(GprSgx, rip) == 136 && offset_of!(GprSgx, exit) == 160);
};
