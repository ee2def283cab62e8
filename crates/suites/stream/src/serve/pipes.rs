//! Pipes: packets are sent from the rings into which they were received.

use applications::runs::{Run, Runs};
use applications::{Access, Application};
use machine::SysError;

use super::{SET_FALLBACK, Server, applied, is_unbound};
use crate::host::{Device, NicClosed, RxTxPipe, Sizes};
use crate::nic::Port;
use crate::nic::layout::FLIT;
use crate::steering::CorePipes;
use crate::wire::packet::flits;
use crate::wire::vector::prefetch_to_write;

/// Maximum number of packets that are processed before they are sent.
const MAX_PACKETS: usize = 256;

/// Bytes of a pipe that are processed at a time: enough to spread the cost of a notification over many packets, few
/// enough that they are still in the L1 cache when they are sent.
const CHUNK: usize = MAX_PACKETS * FLIT;

/// The pipes of one core.
pub struct PipesServer {
    device: Device,
    pipes: Vec<RxTxPipe>,
    /// Whether to request the next pipe's notification before processing this pipe's packets.
    prefetch: bool,
    unbound: usize,
    /// Runs of a chunk before its last one.
    ended: Box<[Run; MAX_PACKETS]>,
}

impl PipesServer {
    /// Creates the pipes of a core, and has packets directed to them; see [`unbound`](Server::unbound).
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
        let ended = Box::new([Run::default(); MAX_PACKETS]);
        Ok(Self { device, pipes, prefetch, unbound, ended })
    }

    /// Requests the notification of the next pipe: the next one of the batch or, after the last, the pipe that follows this
    /// one, as in Ensō's echo.
    #[inline(always)]
    fn prefetch_after(&mut self, index: usize) {
        let following = if index + 1 == self.pipes.len() { 0 } else { index + 1 };
        let next = self.device.upcoming().unwrap_or(following);
        self.pipes[next].prefetch();
    }

    /// Processes the packets of a pipe of which it was notified. Returns their number.
    #[inline(always)]
    fn serve_pipe<A: Application>(
        &mut self,
        index: usize,
        application: &mut A,
    ) -> Result<u64, NicClosed> {
        let Self { device, pipes, ended, .. } = self;
        let pipe = &mut pipes[index];
        let mut packets = 0;
        loop {
            let mut chunk = pipe.peek_at_most(CHUNK);
            let start = chunk.bytes().as_ptr().addr();
            let mut chunk = chunk.packets();
            let packets_ahead = chunk.by_ref().inspect(|packet| {
                if A::ACCESS == Access::Headers {
                    prefetch_to_write(packet.as_ptr().wrapping_add(AHEAD));
                }
            });
            let (mut runs, mut count) = (Runs::default(), 0);
            application.process(packets_ahead, |packet, decision| {
                packets += 1;
                if let Access::Whole { ahead } = A::ACCESS {
                    prefetch_ahead(packet, ahead);
                }
                // The position follows from the address, so lengths, which another process can change, are not read again.
                let position = packet.as_ptr().addr().wrapping_sub(start);
                if let Some(run) = runs.add(position, decision) {
                    ended[count] = run;
                    count += 1;
                }
            });
            let bytes = chunk.processed();
            if bytes == 0 {
                return Ok(packets);
            }
            pipe.confirm(bytes);
            for run in &ended[..count] {
                send_or_free(pipe, *run)?;
            }
            if let Some(run) = runs.end(bytes) {
                send_or_free(pipe, run)?;
            }
            device.complete();
        }
    }
}

/// Distance of the prefetch, in bytes. The work on a packet may fill the window in which the CPU looks ahead, so that it would
/// wait for each packet, which another core has written.
const AHEAD: usize = 16 * FLIT;

/// Prefetches all lines of the packet that is `packets` ahead, if they have one size. Called when a packet is returned: an
/// application that takes a group of packets would request the lines of all of them in a burst, which exceeds what a core can
/// have in flight.
#[inline(always)]
fn prefetch_ahead(packet: &[u8], packets: usize) {
    let bytes = flits(packet.len()) * FLIT;
    let ahead = packet.as_ptr().wrapping_add(packets * bytes);
    for line in (0..bytes).step_by(FLIT) {
        prefetch_to_write(ahead.wrapping_add(line));
    }
}

/// Sends or frees the oldest confirmed bytes of a pipe.
#[inline(always)]
fn send_or_free(pipe: &mut RxTxPipe, run: Run) -> Result<(), NicClosed> {
    if run.sent {
        pipe.send_and_free(run.bytes)
    } else {
        pipe.free(run.bytes);
        Ok(())
    }
}

impl Server for PipesServer {
    #[inline(always)]
    fn poll<A: Application>(&mut self, application: &mut A) -> Result<u64, NicClosed> {
        let mut packets = 0;
        // A notification whose packets were received with an earlier one of its pipe finds none.
        while packets == 0 {
            let Some(index) = self.device.next() else { return Ok(0) };
            if self.prefetch {
                self.prefetch_after(index);
            }
            packets = self.serve_pipe(index, application)?;
        }
        Ok(packets)
    }

    fn unbound(&self) -> usize {
        self.unbound
    }
}
