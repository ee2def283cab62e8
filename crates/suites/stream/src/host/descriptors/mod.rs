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

use std::io;
use std::rc::Rc;

pub use burst::{BURST, Burst};
use machine::SysError;
pub use queue::Queue;

use crate::nic::doorbells::DoorbellSender;
use crate::nic::{InterfaceConfig, Port};
use pool::BufferPool;

mod burst;
mod pool;
mod queue;
mod rings;

/// How many descriptors the rings of a queue have; powers of two, 64 at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// To receive: one less than as many packets can wait for the program.
    pub rx: u32,
    /// To send.
    pub tx: u32,
}

impl Default for Sizes {
    /// As DPDK's examples have them.
    fn default() -> Self {
        Self { rx: 1024, tx: 1024 }
    }
}

/// What one core has of a NIC.
pub struct Device {
    shared: Rc<Shared>,
}

/// What a device's queues share.
pub(super) struct Shared {
    pub(super) port: Port,
    pub(super) doorbells: DoorbellSender,
    pair: u32,
    pub(super) sizes: Sizes,
    pool: Rc<BufferPool>,
}

impl Device {
    /// Registers of a NIC, and buffers for so many queues: as many as all their rings can hold, and two bursts
    /// for each.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(port: &Port, sizes: Sizes, queues: u32) -> Result<Self, SysError> {
        match port.config() {
            InterfaceConfig::Descriptors { rx, tx } if (rx, tx) == (sizes.rx, sizes.tx) => {}
            other => return Err(unfit(sizes, other)),
        }
        let sound = |size: u32| size.is_power_of_two() && size as usize >= 2 * BURST;
        assert!(sound(sizes.rx) && sound(sizes.tx), "powers of two, 64 at least");
        let each = u64::from(sizes.rx) + u64::from(sizes.tx) + 2 * BURST as u64;
        let buffers = u32::try_from(each * u64::from(queues)).ok().filter(|all| *all < 1 << 26);
        let buffers = buffers.ok_or_else(|| SysError {
            attempt: format!("make buffers for {queues} queues of {} + {}", sizes.rx, sizes.tx),
            source: io::ErrorKind::OutOfMemory.into(),
            remedy: "ask for fewer queues or shorter rings".into(),
        })?;
        let pool = BufferPool::new(port, buffers)?;
        let (pair, doorbells) = port.attach()?;
        let shared = Shared { port: port.clone(), doorbells, pair, sizes, pool: Rc::new(pool) };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// A queue to receive from and to send by.
    ///
    /// # Errors
    /// Where there is not enough memory, or the NIC has no queue left.
    pub fn queue(&self) -> Result<Queue, SysError> {
        Queue::new(Rc::clone(&self.shared))
    }

    /// An empty burst, for this device's queues.
    pub fn burst(&self) -> Burst {
        Burst::new(&self.shared.pool)
    }

    /// How many buffers are in the pool, and how many there are: as many once no burst and no queue has any.
    pub fn buffers(&self) -> (u32, u32) {
        self.shared.pool.count()
    }
}

/// The NIC lays out what it shares in another way.
fn unfit(sizes: Sizes, has: InterfaceConfig) -> SysError {
    SysError {
        attempt: format!(
            "use rings of {} descriptors to receive and {} to send",
            sizes.rx, sizes.tx
        ),
        source: io::Error::new(io::ErrorKind::Unsupported, format!("the NIC has {has}")),
        remedy: "ask for what it has".into(),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.port.detach(self.pair);
    }
}
