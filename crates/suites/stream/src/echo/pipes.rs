//! The echo by pipes.

use machine::SysError;

use super::{Interface, has_no_place};
use crate::host::{Device, Gone, RxTxPipe, Sizes};
use crate::nic::Port;
use crate::nic::layout::FLIT;
use crate::wire::flow::Flow;

/// Bytes of a pipe echoed before anything else is looked at: enough to spread the cost of a notification
/// over many packets, and few enough that they are in the nearest cache when they are sent.
const CHUNK: usize = 256 * FLIT;

/// One core's pipes.
pub struct PipesEcho {
    device: Device,
    pipes: Vec<RxTxPipe>,
    /// Whether the next pipe's notification is asked for before this one's packets are worked on.
    prefetch: bool,
    without_place: usize,
}

impl PipesEcho {
    /// So many pipes, each with a flow of its own; see [`without_place`](Interface::without_place).
    ///
    /// # Errors
    /// Where there is not enough memory, or the NIC has gone.
    pub fn new(
        port: &Port,
        sizes: Sizes,
        flows: &[Flow],
        prefetch: bool,
    ) -> Result<Self, SysError> {
        let device = Device::new(port, sizes)?;
        let mut pipes = device.rx_tx_pipes(flows.len())?;
        let mut without_place = 0;
        for (pipe, flow) in pipes.iter_mut().zip(flows) {
            without_place += usize::from(has_no_place(pipe.bind(*flow))?);
        }
        Ok(Self { device, pipes, prefetch, without_place })
    }
}

impl Interface for PipesEcho {
    fn without_place(&self) -> usize {
        self.without_place
    }

    #[inline(always)]
    fn turn(&mut self, mut each: impl FnMut(&mut [u8])) -> Result<u64, Gone> {
        let Some(place) = self.device.next() else { return Ok(0) };
        if self.prefetch {
            // As the published echo does: that of the pipe half-way round.
            let other = (place + self.pipes.len() / 2) % self.pipes.len();
            self.pipes[other].prefetch();
        }
        let pipe = &mut self.pipes[place];
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
