//! The library: descriptors as a program uses them, a packet a buffer.
//!
//! A [`Device`] is what one core has of a NIC: a pool of buffers, shared by all its queues. A [`Queue`] receives
//! and sends a [`Burst`] of up to 32 packets at a time. A buffer is always in one place: in the pool, in a
//! burst, or with the NIC. Nothing is copied: to send what was received, send the burst.
//!
//! It is made as DPDK's drivers are: buffers of 2 KiB from a pool whose last ones in are the first out, so that
//! they are still in the cache; rings refilled 32 at a time; a doorbell for each burst; and a report of what was
//! sent for every 32 packets. What DPDK keeps in a header before each buffer, whose line it touches for each
//! packet, is here in arrays, and there is no headroom before packets, for nobody here puts anything before them.

mod burst;
mod device;
mod pool;
mod queue;
mod rx;
mod tx;

pub use burst::{BURST, Burst};
pub use device::{Device, Sizes};
pub use queue::Queue;
