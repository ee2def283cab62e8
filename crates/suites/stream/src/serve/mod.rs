//! Applications over interfaces: each interface receives packets, passes them to an
//! [`Application`], and sends or frees them as it decides.
//!
//! A poll and the work of the application are compiled into one loop. With an application that decides at once, such as the
//! echo, a packet costs nothing but the work.

mod descriptors;
#[cfg(feature = "dpdk")]
mod dpdk;
mod link;
mod pipes;

use applications::{Access, Application};
use machine::SysError;

pub use descriptors::DescriptorsServer;
#[cfg(feature = "dpdk")]
pub use dpdk::DpdkServer;
pub use link::{LinkAddresses, LinkServer};
pub use pipes::PipesServer;

use crate::host::{ConfigError, NicClosed};
use crate::nic::layout::FLIT;
use crate::wire::vector::prefetch_to_write;

/// An interface on one application core.
pub trait Server {
    /// Polls once: takes received packets and passes them to the application. Packets that it decides to send are sent,
    /// in order; the memory of others is freed. Returns the number of packets, 0 if there were none.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped.
    fn poll<A: Application>(&mut self, application: &mut A) -> Result<u64, NicClosed>;

    /// Returns how many queues each poll looks at. A notification buffer is one, whatever its number of pipes.
    fn queues(&self) -> u64 {
        1
    }

    /// Returns how many queues the polls that found packets have looked at in vain since the last call.
    fn misses(&mut self) -> u64 {
        0
    }

    /// Returns the number of flows without a rule, because the NIC's flow table has no space for it.
    fn unbound(&self) -> usize;
}

/// Prefetches the lines of a packet after its first one, which its interface has prefetched, if the application accesses them.
/// Called when the application takes the packet: it takes those of a group before it processes the first of them.
#[inline(always)]
fn prefetch_rest<A: Application>(packet: &[u8]) {
    if let Access::Whole { .. } = A::ACCESS {
        for line in (FLIT..packet.len()).step_by(FLIT) {
            prefetch_to_write(packet.as_ptr().wrapping_add(line));
        }
    }
}

/// Returns whether the flow table had no space for a flow to bind.
fn is_unbound(bound: Result<(), ConfigError>) -> Result<bool, SysError> {
    match bound {
        Err(ConfigError::Full(_)) => Ok(true),
        other => applied(other, "bind a flow").map(|()| false),
    }
}

/// Returns why the NIC has not applied a configuration.
fn applied(configured: Result<(), ConfigError>, attempt: &str) -> Result<(), SysError> {
    configured.map_err(|why| SysError {
        attempt: attempt.into(),
        source: std::io::Error::other(why),
        remedy: "or start the NIC again".into(),
    })
}

const SET_FALLBACK: &str = "direct packets without a rule to the pipes";
