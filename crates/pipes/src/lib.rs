//! The library for programs in C, and by it in Python, that use pipes of a NIC in another process. Programs in Rust use
//! [`stream::host`] directly.
//!
//! `include/tollgate_pipes.h` is the documentation of the functions. They are called by foreign code, so none of them
//! panics, unwinds into it, or follows a handle as a pointer: [`handles`] checks each.

mod connections;
pub mod device;
pub mod error;
mod handles;
pub mod pipe;
