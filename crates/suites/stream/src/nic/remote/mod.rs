//! A NIC used from other processes: they ask for what they need over a Unix socket, and share memory with it
//! as the threads of its own process do.
//!
//! The NIC outlives whatever they do. What is shared has a length that nobody can change, the NIC reads each
//! word of it once, and it touches only what the program itself has lent it. A program that dies takes its
//! pipes, their rules, its notification buffers and its memory with it.
//!
//! Nothing that a program says, or does not say, keeps others from the NIC: messages have a time to come in and
//! to be read, who says no hello makes way for others, and what one program may have is limited. A program
//! changes only what it owns: its pipes, the rules that lead to them, and what the NIC does to its packets.

// Another process may say anything: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod connection;
pub(crate) mod fds;
mod limits;
pub(crate) mod message;
pub(crate) mod server;
mod serving;
mod socket_path;

pub use connection::{ConnectError, Connection};
pub use limits::{Limits, MemoryUse};
pub use server::Server;
pub use socket_path::ServerError;
