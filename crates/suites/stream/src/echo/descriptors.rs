//! The echo by descriptors.

use machine::SysError;

use super::{Interface, has_no_place};
use crate::host::Gone;
use crate::host::descriptors::{Burst, Device, Queue, Sizes};
use crate::nic::Port;
use crate::wire::flow::Flow;

/// One core's queues, which it asks one after the other.
pub struct DescriptorsEcho {
    // Before the device, whose pool its packets go back to.
    burst: Burst,
    queues: Vec<Queue>,
    without_place: usize,
    _device: Device,
}

impl DescriptorsEcho {
    /// So many queues, each with a flow of its own; see [`without_place`](Interface::without_place).
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(port: &Port, sizes: Sizes, flows: &[Flow]) -> Result<Self, SysError> {
        let device = Device::new(port, sizes, flows.len() as u32)?;
        let (mut queues, mut without_place) = (Vec::new(), 0);
        for flow in flows {
            let mut queue = device.queue()?;
            without_place += usize::from(has_no_place(queue.bind(*flow))?);
            queues.push(queue);
        }
        Ok(Self { burst: device.burst(), queues, without_place, _device: device })
    }
}

impl Interface for DescriptorsEcho {
    fn without_place(&self) -> usize {
        self.without_place
    }

    /// A burst of each queue.
    #[inline(always)]
    fn turn(&mut self, mut each: impl FnMut(&mut [u8])) -> Result<u64, Gone> {
        let mut packets = 0;
        for queue in &mut self.queues {
            let received = queue.receive(&mut self.burst);
            if received > 0 {
                packets += received as u64;
                self.burst.packets().for_each(&mut each);
                queue.send(&mut self.burst)?;
            }
        }
        Ok(packets)
    }
}
