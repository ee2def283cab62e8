//! A build without WebAssembly.

use lab::sample::Failure;

use super::Enclave;
use crate::conf::Conf;
use crate::images::Image;

/// Whether modules can be run here.
///
/// # Errors
/// Always.
pub(super) fn available() -> Result<(), Failure> {
    Err(absence())
}

/// Whether an allocator has a module.
///
/// # Errors
/// Always.
pub(super) fn has(_: &str) -> Result<(), Failure> {
    Err(absence())
}

/// Loads an image's module.
///
/// # Errors
/// Always.
pub(super) fn load(_: &Image, _: &Conf) -> Result<impl Enclave + use<>, Failure> {
    // Of any type that is one: there is none.
    Err::<super::none::None, _>(absence())
}

fn absence() -> Failure {
    Failure::unavailable(
        "this build of tollgate has no WebAssembly",
        "build it with --features wasm: docs/enclave.md says what that takes",
    )
}
