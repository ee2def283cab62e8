//! A NIC used from other processes: they ask for what they need over a Unix socket, and share memory with it
//! as the threads of its own process do.
//!
//! The NIC outlives whatever they do. What is shared has a length that nobody can change, the NIC reads each
//! word of it once, and it touches only what the program itself has lent it. A program that dies takes its
//! pipes, their rules, its notification buffers and its memory with it.

mod connection;
mod fds;
mod message;
mod server;
mod serving;
#[cfg(test)]
mod tests;

pub use connection::{ConnectError, Connection};
pub use server::{Limits, Server, ServerError};
