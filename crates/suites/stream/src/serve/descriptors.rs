//! Descriptors: one buffer per packet, which is sent or returned to the pool.

use applications::Application;
use machine::SysError;

use super::{SET_FALLBACK, Server, applied, is_unbound, prefetch_rest};
use crate::host::NicClosed;
use crate::host::descriptors::driver::Dpdk;
use crate::host::descriptors::{BURST, Burst, Device, Driver, Queue, Sizes};
use crate::nic::Port;
use crate::steering::CorePipes;

/// The queues of one core, which it polls round-robin.
pub struct DescriptorsServer<D: Driver = Dpdk> {
    // Dropped before the device, to whose pool its packets return.
    burst: Burst<D>,
    queues: Vec<Queue<D>>,
    /// Indices of a burst's packets that are not sent.
    consumed: Box<[u32]>,
    misses: u64,
    unbound: usize,
    _device: Device<D>,
}

impl DescriptorsServer {
    /// Creates the queues of a core with the driver and the bursts of DPDK; see [`DescriptorsServer::open`].
    ///
    /// # Errors
    /// See [`DescriptorsServer::open`].
    pub fn new(port: &Port, sizes: Sizes, of_core: &CorePipes) -> Result<Self, SysError> {
        Self::open(port, sizes, of_core, BURST)
    }
}

impl<D: Driver> DescriptorsServer<D> {
    /// Creates the queues of a core, and has packets directed to them; see [`unbound`](Server::unbound). Takes at most
    /// `burst` packets at a time.
    ///
    /// # Errors
    /// Returns why memory or the NIC is unavailable.
    pub fn open(
        port: &Port,
        sizes: Sizes,
        of_core: &CorePipes,
        burst: usize,
    ) -> Result<Self, SysError> {
        let device = Device::open(port, sizes, of_core.pipes as u32, burst)?;
        let queues = (0..of_core.pipes).map(|_| device.queue()).collect::<Result<Vec<_>, _>>();
        let (mut queues, mut unbound) = (queues?, 0);
        for (queue, flow) in &of_core.rules {
            unbound += usize::from(is_unbound(queues[*queue].bind(*flow))?);
        }
        if let (Some(fallback), Some(queue)) = (of_core.fallback, queues.first_mut()) {
            applied(queue.configure(fallback), SET_FALLBACK)?;
        }
        let consumed = vec![0; burst].into();
        let burst = device.burst();
        Ok(Self { burst, queues, consumed, misses: 0, unbound, _device: device })
    }
}

impl<D: Driver> Server for DescriptorsServer<D> {
    /// Processes one burst per queue.
    #[inline(always)]
    fn poll<A: Application>(&mut self, application: &mut A) -> Result<u64, NicClosed> {
        let Self { burst, queues, consumed, .. } = self;
        let (mut packets, mut misses) = (0, 0);
        for queue in queues {
            let received = queue.receive(burst);
            if received > 0 {
                packets += received as u64;
                let (mut index, mut removed) = (0, 0);
                let packets = burst.packets().inspect(|packet| prefetch_rest::<A>(packet));
                application.process(packets, |_, decision| {
                    if !decision.is_sent() {
                        consumed[removed] = index;
                        removed += 1;
                    }
                    index += 1;
                });
                burst.remove(&consumed[..removed]);
                queue.send(burst)?;
            } else {
                misses += 1;
            }
        }
        if packets > 0 {
            self.misses += misses;
        }
        Ok(packets)
    }

    fn queues(&self) -> u64 {
        self.queues.len() as u64
    }

    fn misses(&mut self) -> u64 {
        std::mem::take(&mut self.misses)
    }

    fn unbound(&self) -> usize {
        self.unbound
    }
}
