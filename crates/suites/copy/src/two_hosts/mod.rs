//! Copies between two hosts on one memory, as between ESCAPE's hosts: the roles `writer` and `reader`.
//!
//! Each role runs on its host. The hosts are two guests or, with `memory = file`, two processes of this machine. The
//! roles meet through the lab and synchronise through the memory itself ([`side`]). [`delivery`] tests whether every byte
//! arrives and when it becomes visible, [`frames`] passes frames, and [`mediation`] tests a filter outside of the hosts.
//! They count; times are reported only if both hosts have a clock.

pub(crate) mod delivery;
pub(crate) mod frames;
pub(crate) mod mediation;
mod memory;
mod side;
mod visibility;

use lab::measure::Context;
use lab::sample::Failure;

/// The role that writes, which is that of the first host.
const WRITER: &str = "writer";
/// The role that reads.
const READER: &str = "reader";

/// Returns whether a probe has the role of the writer.
fn is_writer(context: &Context) -> Result<bool, Failure> {
    match context.role {
        WRITER => Ok(true),
        READER => Ok(false),
        other => Err(Failure::failed(format!(
            "role '{other}' is unknown; declare the experiment with roles = [\"{WRITER}\", \"{READER}\"]"
        ))),
    }
}
