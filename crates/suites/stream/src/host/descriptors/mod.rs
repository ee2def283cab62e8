//! The host library for descriptors: one descriptor and one buffer per packet.
//!
//! A [`Device`] is one core's access to a NIC: a pool of buffers, shared by all its queues. A [`Queue`] receives and
//! sends a [`Burst`] of packets at a time. A buffer is always in one place: in the pool, in a burst, or with
//! the NIC. Nothing is copied: to send what was received, send the burst.
//!
//! The design follows DPDK's drivers: buffers of 2 KiB from a LIFO pool, so that they are still in the cache; rings
//! refilled, read and cleaned 32 descriptors at a time; one doorbell per 32 packets; and one completion report per 32 sent
//! packets. A [`Driver`] is what can differ: by default it is [as in DPDK](driver::Dpdk).

use std::io;
use std::rc::Rc;

pub use burst::{BURST, Burst, MAX_BURST};
pub use driver::{Driver, DriverKind, WithDriver};
use machine::SysError;
pub use queue::Queue;

use crate::nic::descriptor::{RxDescriptor, RxSize};
use crate::nic::doorbells::DoorbellSender;
use crate::nic::{InterfaceConfig, Port};
use driver::Dpdk;
use pool::BufferPool;

mod burst;
pub mod driver;
mod mbuf;
mod pool;
mod queue;
mod rings;

/// Ring sizes of a queue, in descriptors: powers of two, at least 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Receive ring; it can store one packet less.
    pub rx: u32,
    /// Transmit ring.
    pub tx: u32,
}

impl Sizes {
    /// Returns the NIC's configuration with these rings and descriptors of this size to receive into.
    pub fn config(self, size: RxSize) -> InterfaceConfig {
        InterfaceConfig::Descriptors { rx: self.rx, tx: self.tx, size }
    }
}

impl Default for Sizes {
    /// The sizes of DPDK's examples.
    fn default() -> Self {
        Self { rx: 1024, tx: 1024 }
    }
}

/// One core's access to a NIC.
pub struct Device<D: Driver = Dpdk> {
    shared: Rc<Shared<D>>,
}

/// State that a device's queues share.
pub(super) struct Shared<D: Driver> {
    pub(super) port: Port,
    pub(super) doorbells: DoorbellSender,
    pair: u32,
    pub(super) sizes: Sizes,
    pool: Rc<BufferPool<D::Mbuf>>,
    /// Maximum number of packets of a burst.
    burst: usize,
}

impl Device {
    /// Attaches to a NIC with the driver and the bursts of DPDK, see [`Device::open`].
    ///
    /// # Errors
    /// See [`Device::open`].
    pub fn new(port: &Port, sizes: Sizes, queues: u32) -> Result<Self, SysError> {
        Self::open(port, sizes, queues, BURST)
    }
}

impl<D: Driver> Device<D> {
    /// Attaches to a NIC and allocates buffers for `queues` queues: enough to fill all their rings, and two bursts for
    /// each. A burst has at most `burst` packets.
    ///
    /// # Errors
    /// Returns an error if the NIC has another configuration, or memory or buffer pairs are exhausted.
    pub fn open(port: &Port, sizes: Sizes, queues: u32, burst: usize) -> Result<Self, SysError> {
        let needed = sizes.config(D::Rx::SIZE);
        if port.config() != needed {
            return Err(mismatch(needed, port.config()));
        }
        let is_valid = |size: u32| size.is_power_of_two() && size as usize >= 2 * BURST;
        assert!(is_valid(sizes.rx) && is_valid(sizes.tx), "powers of two, at least 64");
        assert!((1..=MAX_BURST).contains(&burst), "at least 1, at most 512");
        let each = u64::from(sizes.rx) + u64::from(sizes.tx) + 2 * burst.max(BURST) as u64;
        let buffers = u32::try_from(each * u64::from(queues)).ok().filter(|all| *all < 1 << 26);
        let buffers = buffers.ok_or_else(|| SysError {
            attempt: format!("allocate buffers for {queues} queues of {} + {}", sizes.rx, sizes.tx),
            source: io::ErrorKind::OutOfMemory.into(),
            remedy: "use fewer queues or shorter rings".into(),
        })?;
        let pool = BufferPool::new(port, buffers)?;
        let (pair, doorbells) = port.attach()?;
        let shared =
            Shared { port: port.clone(), doorbells, pair, sizes, pool: Rc::new(pool), burst };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// Creates a queue.
    ///
    /// # Errors
    /// Returns an error if memory or the NIC's queues are exhausted.
    pub fn queue(&self) -> Result<Queue<D>, SysError> {
        Queue::new(Rc::clone(&self.shared))
    }

    /// Creates an empty burst for this device's queues.
    pub fn burst(&self) -> Burst<D> {
        Burst::new(&self.shared.pool, self.shared.burst)
    }

    /// Returns the number of buffers in the pool and in total. They are equal if no burst and no queue has any.
    pub fn buffers(&self) -> (u32, u32) {
        self.shared.pool.count()
    }
}

/// Returns the error for a NIC with another configuration.
fn mismatch(needed: InterfaceConfig, has: InterfaceConfig) -> SysError {
    SysError {
        attempt: format!("use {needed}"),
        source: io::Error::new(io::ErrorKind::Unsupported, format!("the NIC has {has}")),
        remedy: "use the NIC's configuration".into(),
    }
}

impl<D: Driver> Drop for Shared<D> {
    fn drop(&mut self) {
        self.port.detach(self.pair);
    }
}
