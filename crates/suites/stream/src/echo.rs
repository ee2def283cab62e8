//! The echo: an application that modifies every packet and sends it back to where it came from.

use machine::SysError;

use crate::generator::TOUCHED;
use crate::host::descriptors::driver::Dpdk;
use crate::host::descriptors::{self, BURST, Burst, Driver, Queue};
use crate::host::{ConfigError, Device, NicClosed, RxTxPipe, Sizes};
use crate::nic::Port;
use crate::nic::layout::FLIT;
use crate::steering::CorePipes;

/// An echo on one application core, over either interface.
pub trait Echo {
    /// Polls once: takes received packets, passes each to `each`, and sends them back. Returns their number, 0 if there
    /// were none.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped.
    fn poll(&mut self, each: impl FnMut(&mut [u8])) -> Result<u64, NicClosed>;

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

/// Does the echo's work on a packet: adds 1 to a byte, then executes `nops` NOP instructions.
#[inline(always)]
pub fn work(packet: &mut [u8], nops: u32) {
    if let Some(byte) = packet.get_mut(TOUCHED) {
        *byte = byte.wrapping_add(1);
    }
    for _ in 0..nops {
        // SAFETY: NOP has no effect.
        unsafe { std::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
    }
}

/// Bytes of a pipe that are echoed at a time: enough to spread the cost of a notification over many packets, few
/// enough that they are still in the L1 cache when they are sent.
const CHUNK: usize = 256 * FLIT;

/// The echo over the pipes of one core.
pub struct PipesEcho {
    device: Device,
    pipes: Vec<RxTxPipe>,
    /// Whether to request the next pipe's notification before processing this pipe's packets.
    prefetch: bool,
    unbound: usize,
}

impl PipesEcho {
    /// Creates the pipes of a core, and has packets directed to them; see [`unbound`](Echo::unbound).
    ///
    /// # Errors
    /// Returns why memory or the NIC is unavailable.
    pub fn new(
        port: &Port,
        sizes: Sizes,
        of_core: &CorePipes,
        prefetch: bool,
    ) -> Result<Self, SysError> {
        let device = Device::new(port, sizes)?;
        let mut pipes = device.rx_tx_pipes(of_core.pipes)?;
        let mut unbound = 0;
        for (pipe, flow) in &of_core.rules {
            unbound += usize::from(is_unbound(pipes[*pipe].bind(*flow))?);
        }
        if let Some(fallback) = of_core.fallback {
            applied(device.configure(fallback), SET_FALLBACK)?;
        }
        Ok(Self { device, pipes, prefetch, unbound })
    }

    /// Requests the notification of the next pipe: the next one of the batch or, after the last, the pipe that follows this
    /// one, as in Ensō's echo.
    #[inline(always)]
    fn prefetch_after(&mut self, index: usize) {
        let following = if index + 1 == self.pipes.len() { 0 } else { index + 1 };
        let next = self.device.upcoming().unwrap_or(following);
        self.pipes[next].prefetch();
    }

    /// Echoes the packets of a pipe of which it was notified. Returns their number.
    #[inline(always)]
    fn echo_pipe(
        &mut self,
        index: usize,
        each: &mut impl FnMut(&mut [u8]),
    ) -> Result<u64, NicClosed> {
        let pipe = &mut self.pipes[index];
        let mut packets = 0;
        loop {
            let mut batch = pipe.peek_at_most(CHUNK).packets();
            for packet in &mut batch {
                each(packet);
                packets += 1;
            }
            let bytes = batch.processed();
            if bytes == 0 {
                return Ok(packets);
            }
            pipe.confirm(bytes);
            pipe.send_and_free(bytes)?;
            self.device.complete();
        }
    }
}

impl Echo for PipesEcho {
    fn unbound(&self) -> usize {
        self.unbound
    }

    #[inline(always)]
    fn poll(&mut self, mut each: impl FnMut(&mut [u8])) -> Result<u64, NicClosed> {
        let mut packets = 0;
        // A notification whose packets were received with an earlier one of its pipe finds none.
        while packets == 0 {
            let Some(index) = self.device.next() else { return Ok(0) };
            if self.prefetch {
                self.prefetch_after(index);
            }
            packets = self.echo_pipe(index, &mut each)?;
        }
        Ok(packets)
    }
}

/// The echo over the queues of one core, which it polls round-robin.
pub struct DescriptorsEcho<D: Driver = Dpdk> {
    // Dropped before the device, to whose pool its packets return.
    burst: Burst<D>,
    queues: Vec<Queue<D>>,
    misses: u64,
    unbound: usize,
    _device: descriptors::Device<D>,
}

impl DescriptorsEcho {
    /// Creates an echo with the driver and the bursts of DPDK; see [`DescriptorsEcho::open`].
    ///
    /// # Errors
    /// See [`DescriptorsEcho::open`].
    pub fn new(
        port: &Port,
        sizes: descriptors::Sizes,
        of_core: &CorePipes,
    ) -> Result<Self, SysError> {
        Self::open(port, sizes, of_core, BURST)
    }
}

impl<D: Driver> DescriptorsEcho<D> {
    /// Creates the queues of a core, and has packets directed to them; see [`unbound`](Echo::unbound). Takes at most `burst`
    /// packets at a time.
    ///
    /// # Errors
    /// Returns why memory or the NIC is unavailable.
    pub fn open(
        port: &Port,
        sizes: descriptors::Sizes,
        of_core: &CorePipes,
        burst: usize,
    ) -> Result<Self, SysError> {
        let device = descriptors::Device::open(port, sizes, of_core.pipes as u32, burst)?;
        let queues = (0..of_core.pipes).map(|_| device.queue()).collect::<Result<Vec<_>, _>>();
        let (mut queues, mut unbound) = (queues?, 0);
        for (queue, flow) in &of_core.rules {
            unbound += usize::from(is_unbound(queues[*queue].bind(*flow))?);
        }
        if let (Some(fallback), Some(queue)) = (of_core.fallback, queues.first_mut()) {
            applied(queue.configure(fallback), SET_FALLBACK)?;
        }
        Ok(Self { burst: device.burst(), queues, misses: 0, unbound, _device: device })
    }
}

impl<D: Driver> Echo for DescriptorsEcho<D> {
    fn unbound(&self) -> usize {
        self.unbound
    }

    fn queues(&self) -> u64 {
        self.queues.len() as u64
    }

    fn misses(&mut self) -> u64 {
        std::mem::take(&mut self.misses)
    }

    /// Echoes one burst per queue.
    #[inline(always)]
    fn poll(&mut self, mut each: impl FnMut(&mut [u8])) -> Result<u64, NicClosed> {
        let (mut packets, mut misses) = (0, 0);
        for queue in &mut self.queues {
            let received = queue.receive(&mut self.burst);
            if received > 0 {
                packets += received as u64;
                self.burst.packets().for_each(&mut each);
                queue.send(&mut self.burst)?;
            } else {
                misses += 1;
            }
        }
        if packets > 0 {
            self.misses += misses;
        }
        Ok(packets)
    }
}
