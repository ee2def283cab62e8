//! What differs between the processors that the inside is for: how it begins, how a thread leaves, how a call ends
//! by a fault, and what is forbidden there.

#[cfg(target_arch = "wasm32")]
mod wasm32;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "wasm32")]
pub use wasm32::{below_stack, construct, leave, system_call, trap};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{below_stack, construct, leave, system_call, trap};
