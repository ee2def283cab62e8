//! The code that differs between CPUs: constructors, OCALLs, faults, and the operations that are forbidden
//! inside.

#[cfg(target_arch = "wasm32")]
mod wasm32;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "wasm32")]
pub use wasm32::{below_stack, construct, leave, system_call, trap};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{below_stack, construct, leave, system_call, trap};
