//! What one core has of a NIC: buffers, and what its queues share.

use std::io;
use std::rc::Rc;

use machine::SysError;

use super::pool::Pool;
use super::{BURST, Burst, Queue};
use crate::nic::posted::Doorbells;
use crate::nic::{Form, Port};

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
    pub(super) doorbells: Doorbells,
    pair: u32,
    pub(super) sizes: Sizes,
    pub(super) pool: Rc<Pool>,
}

impl Device {
    /// Registers of a NIC, and buffers for so many queues: as many as all their rings can hold, and two bursts
    /// for each.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(port: &Port, sizes: Sizes, queues: u32) -> Result<Self, SysError> {
        match port.form() {
            Form::Descriptors { rx, tx } if (rx, tx) == (sizes.rx, sizes.tx) => {}
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
        let pool = Pool::new(port, buffers)?;
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
fn unfit(sizes: Sizes, has: Form) -> SysError {
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
