//! Applications that process packets, independent of the interface that delivers them.
//!
//! # Design
//!
//! An interface receives packets: a pipe as contiguous bytes, a descriptor queue as buffers, a link as frames. It passes an
//! iterator over them to [`Application::process`], with a closure, `done`. The application takes packets from the iterator,
//! works on them in place, and passes each to `done` with a [`Decision`], once and in order. It may take up to
//! [`MAX_AHEAD`] packets before it returns the first, so that it can prefetch the memory of several packets at a time.
//! The compiler combines both sides into one loop: an application that decides at once, such as the [echo](echo::Echo),
//! costs nothing but its work.
//!
//! The interface acts on the decisions:
//!
//! - **Pipes** send packets from the ring into which they were received. A [run](runs::Runs) of packets ends when the decision
//!   changes, at the address of the packet. Each run of sent packets is one send; the bytes of a consumed run are freed
//!   after the bytes before it. An application that sends all packets has one run per batch.
//! - **Descriptors** have one buffer per packet, which remains in the burst or returns to the pool.
//! - **Links** receive into frames: `done` copies a packet that is sent to a free frame, and no other.
//!
//! An application changes the bytes of a packet, not its length, because a pipe cannot move the packets behind it. Formats
//! of requests therefore have space for the answer.

pub mod application;
pub mod echo;
pub mod flow_cache;
pub mod hash;
pub mod kv;
pub mod log;
pub mod maglev;
pub mod memory;
pub mod packet;
pub mod runs;
pub mod telemetry;
pub mod zipf;

pub use application::{Access, Application, Decision, MAX_AHEAD};
