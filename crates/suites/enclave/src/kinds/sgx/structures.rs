//! The structures that the CPU reads, in their exact layout.
//!
//! Source: Intel SDM, volume 3D, "Enclave access control and data structures". The licence of the crate `sgx-isa` is
//! MPL-2.0, so only tests use it, to check these structures. The crate `sgx` has no TCS and hides the fields that the
//! emulation for tests reads.

use std::mem::{offset_of, size_of};

use crate::conf::PAGE;

/// A structure of integers and arrays of integers, without padding: any bytes are a valid value.
///
/// # Safety
/// The type must be such a structure.
pub(super) unsafe trait Plain: Sized {
    /// Returns the value with all bytes zero.
    fn zero() -> Self {
        // SAFETY: any bytes are a valid value.
        unsafe { std::mem::zeroed() }
    }

    /// Returns the bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it has no padding, so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

/// The attributes of an enclave (ATTRIBUTES).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Attributes {
    /// [`DEBUG`] and [`MODE64`].
    pub(super) flags: u64,
    /// The state components that it uses, in the format of XCR0.
    pub(super) xfrm: u64,
}

impl Attributes {
    /// Returns the attributes as 32-bit words, because they are unaligned in SIGSTRUCT.
    pub(super) fn words(self) -> [u32; 4] {
        let Self { flags, xfrm } = self;
        [flags as u32, (flags >> 32) as u32, xfrm as u32, (xfrm >> 32) as u32]
    }
}

/// A debugger may read and write the enclave: `Debug` of a configuration.
pub(super) const DEBUG: u64 = 1 << 1;
/// The enclave runs in 64-bit mode.
pub(super) const MODE64: u64 = 1 << 2;

/// SGX enclave control structure, aligned as ECREATE requires.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct Secs {
    /// The length of its address range, a power of two.
    pub(super) size: u64,
    /// The start of its address range, a multiple of the length.
    pub(super) base: u64,
    /// Pages per frame of saved state.
    pub(super) frame_pages: u32,
    /// The extended information that is saved at an exception.
    pub(super) misc_select: u32,
    cet: [u8; 24],
    /// The enclave's attributes.
    pub(super) attributes: Attributes,
    /// Reserved for the CPU, or zero.
    rest: [u8; 4032],
}

/// Thread control structure, which fills a page.
#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub(super) struct SgxTcs {
    state: u64,
    flags: u64,
    /// The frames of saved state, relative to the enclave's first byte.
    pub(super) frames: u64,
    /// The next frame to use; the CPU updates it.
    current_frame: u32,
    /// Number of frames.
    pub(super) frame_count: u32,
    /// The entry point, relative to the enclave's first byte.
    pub(super) entry: u64,
    exit: u64,
    /// FS while a thread is inside, relative to the enclave's first byte: page-aligned.
    pub(super) fs: u64,
    /// As `fs`, for GS.
    pub(super) gs: u64,
    /// Limit in 32-bit mode; all ones.
    pub(super) fs_limit: u32,
    /// Limit in 32-bit mode; all ones.
    pub(super) gs_limit: u32,
    rest: [u8; 4024],
}

/// The type and rights of a page (SECINFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct SecInfo {
    /// [`READ`], [`WRITE`], [`EXECUTE`], and [`THREAD_PAGE`] or [`REGULAR_PAGE`].
    pub(super) flags: u64,
    rest: [u64; 7],
}

impl SecInfo {
    /// Creates the SECINFO of pages with these flags.
    pub(super) fn new(flags: u64) -> Self {
        Self { flags, rest: [0; 7] }
    }
}

/// The page is readable.
pub(super) const READ: u64 = 1;
/// The page is writable.
pub(super) const WRITE: u64 = 1 << 1;
/// The page is executable.
pub(super) const EXECUTE: u64 = 1 << 2;
/// The page is an [`SgxTcs`], which has none of these rights.
pub(super) const THREAD_PAGE: u64 = 1 << 8;
/// The page is a regular page.
pub(super) const REGULAR_PAGE: u64 = 2 << 8;

/// The bytes of a 3072-bit number of RSA, least significant first.
pub(super) type Large = [u8; 384];

/// The signature of an enclave and of its identity (SIGSTRUCT).
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SigStruct {
    /// The first signed part.
    pub(super) header: SignedHeader,
    /// The key's modulus.
    pub(super) modulus: Large,
    /// The key's exponent: 3.
    pub(super) exponent: u32,
    /// The signature of header and body.
    pub(super) signature: Large,
    /// The second signed part.
    pub(super) body: SignedBody,
    /// Not signed; the CPU requires zeros.
    pub(super) unsigned: [u8; 12],
    /// `signature^2 / modulus`, so that the CPU need not divide.
    pub(super) q1: Large,
    /// `(signature^3 - q1 * signature * modulus) / modulus`.
    pub(super) q2: Large,
}

/// The first signed part of SIGSTRUCT.
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SignedHeader {
    /// Constant.
    pub(super) first: [u8; 16],
    vendor_and_date: [u32; 2],
    /// Constant.
    pub(super) second: [u8; 16],
    rest: [u8; 88],
}

/// The second signed part of SIGSTRUCT.
#[derive(Debug, Clone)]
#[repr(C)]
pub(super) struct SignedBody {
    /// Required value of [`Secs::misc_select`].
    pub(super) misc_select: u32,
    /// Mask of the bits that are compared.
    pub(super) misc_mask: u32,
    rest: [u8; 20],
    /// Required value of [`Secs::attributes`].
    pub(super) attributes: [u32; 4],
    /// Mask of the bits that are compared.
    pub(super) attributes_mask: [u32; 4],
    /// The enclave's measurement.
    pub(super) measurement: [u8; 32],
    product: [u8; 32],
    product_number: u16,
    security_version: u16,
}

/// The registers that the CPU saves at the end of a frame (GPRSGX).
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
    /// RSP outside.
    pub(super) outer_rsp: u64,
    /// RBP outside.
    pub(super) outer_rbp: u64,
    /// The exception's information (EXITINFO).
    pub(super) exit: u32,
    rest: u32,
    bases: [u64; 2],
}

/// Value of [`GprSgx::exit`] for an invalid instruction: vector 6, hardware exception (type 3), valid.
pub(super) const INVALID_OPCODE: u32 = 1 << 31 | 3 << 8 | 6;

// SAFETY: integers and arrays of integers; the lengths below leave no space for padding.
unsafe impl Plain for Secs {}
// SAFETY: integers and arrays of integers without padding.
unsafe impl Plain for SgxTcs {}
// SAFETY: integers and arrays of integers without padding.
unsafe impl Plain for SecInfo {}
// SAFETY: integers and arrays of integers without padding.
unsafe impl Plain for SigStruct {}
// SAFETY: integers and arrays of integers without padding.
unsafe impl Plain for SignedHeader {}
// SAFETY: integers and arrays of integers without padding.
unsafe impl Plain for SignedBody {}

// No structure has padding. Tests compare the fields with those of the crate `sgx-isa`, which has no GPRSGX.
const _: () = {
    assert!(size_of::<Secs>() == PAGE);
    assert!(size_of::<SgxTcs>() == PAGE);
    assert!(size_of::<SecInfo>() == 64);
    assert!(size_of::<SigStruct>() == 1808);
    assert!(size_of::<SignedHeader>() == 128);
    assert!(size_of::<SignedBody>() == 128);
    assert!(size_of::<GprSgx>() == 184);
    assert!(offset_of!(GprSgx, rsp) == 32 && offset_of!(GprSgx, flags) == 128);
    assert!(offset_of!(GprSgx, rip) == 136 && offset_of!(GprSgx, exit) == 160);
};
