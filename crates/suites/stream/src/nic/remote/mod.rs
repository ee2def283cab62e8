//! Access to a NIC from other processes: clients request resources over a Unix socket, and share memory with the NIC
//! like the threads of its own process.
//!
//! The NIC is robust against its clients. Shared memory has a sealed length, the NIC reads each word of it once, and it
//! accesses only memory that the client itself has registered. When a client dies, its pipes, their rules, its
//! notification buffers and its memory are freed.
//!
//! No client can block others: messages have timeouts for sending and reading, connections without a hello make way for
//! others, and the resources of a client are limited. A client changes only what it owns: its pipes, the rules that
//! lead to them, and the NIC's treatment of its packets.

// Clients may send any values, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod client_resources;
mod connection;
pub(crate) mod fds;
mod limits;
pub(crate) mod message;
pub(crate) mod server;
mod socket_path;

pub use connection::{ConnectError, Connection};
pub use limits::{Limits, MemoryUse};
pub use server::Server;
pub use socket_path::ServerError;
pub(super) use socket_path::SocketPath;
