//! Other hosts over SSH: `tollgate.toml`, which names them, connections by the system's `ssh`, and the program there.
//!
//! A run on a host starts the same worker as on this machine; the [`SshHost`] is its link. Everything that is left on a host
//! is the program in the cache folder of the user, by the hash of its content.

mod config;
mod error;
mod host;
mod program;
mod script;
mod ssh;

pub use config::{CONFIG, Config, Host, HostName, SshName};
pub use error::HostError;
pub use host::SshHost;
pub use program::{Installed, Program};
pub use ssh::Connection;
