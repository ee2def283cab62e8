//! Ports of DPDK: network cards that its drivers in this process operate, without the kernel, and its software ports.
//!
//! The feature `dpdk` links DPDK's libraries. Its functions that are inline in C, and structures whose layout depends on its
//! version, are in `shim.c`.

// A number that DPDK reports may have any value, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod eal;
mod ffi;
mod output;
mod port;

pub use eal::Eal;
pub(crate) use ffi::{Mbuf, Packet};
pub use port::{Drops, Port, PortDescription, Queue};
pub(crate) use port::{Registered, free, set_length};

use std::ffi::CStr;
use std::io;

use machine::SysError;

/// Creates the error of a function of DPDK, which returned a negative error number.
fn failed(attempt: impl Into<String>, status: i32, remedy: impl Into<String>) -> SysError {
    // SAFETY: the function returns a string that is valid until this thread calls it again.
    let why = unsafe { CStr::from_ptr(ffi::rte_strerror(status.saturating_neg())) };
    let source = io::Error::other(why.to_string_lossy().into_owned());
    SysError { attempt: attempt.into(), source, remedy: remedy.into() }
}

/// Returns the version of the linked DPDK, e.g. `DPDK 22.11.11`.
pub fn version() -> String {
    // SAFETY: the function returns a constant string.
    unsafe { CStr::from_ptr(ffi::rte_version()) }.to_string_lossy().into_owned()
}
