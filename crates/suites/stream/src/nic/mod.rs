//! The software NIC: a thread that behaves, as a program sees it, as the hardware does.
//!
//! It only copies what the hardware would copy. What a program and it share has the hardware's layout:
//! see [`layout`].

pub mod configuration;
mod control;
pub mod counters;
pub mod descriptors;
pub mod engine;
pub mod fallback;
pub mod flow_table;
mod held;
pub mod layout;
mod limit;
pub mod memory;
pub mod notification;
pub mod pipes;
mod placing;
pub(crate) mod posted;
mod steering;
mod sync;
mod tail;
mod thread;
mod writes;

pub use counters::Counters;
#[cfg(test)]
mod tests;

pub(crate) use thread::ticks;
pub use thread::{Error, Nic, Port, Settings};
