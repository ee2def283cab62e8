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
pub mod form;
mod held;
pub mod layout;
mod limit;
pub mod memory;
pub mod notification;
mod numbers;
mod owners;
pub mod pipes;
mod placing;
mod port;
pub(crate) mod posted;
mod region;
pub mod remote;
mod shared;
mod steering;
mod sync;
mod tail;
mod thread;
mod writes;

#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use form::Form;
pub use port::Port;
pub use region::Region;
pub(crate) use thread::ticks;
pub use thread::{Access, Error, Nic, Settings};
