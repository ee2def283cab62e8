//! The library: pipes as a program uses them.
//!
//! A [`Device`] is what one core has of a NIC: a pair of notification buffers, shared by all its pipes.
//! An [`RxPipe`] gives the bytes of many packets at once, where the NIC wrote them; a [`TxPipe`] gives
//! memory to write packets to; an [`RxTxPipe`] sends back from where it received. Nothing is copied.
//!
//! A program of one's own, here beside a NIC whose wire has a generator at its end:
//!
//! ```
//! # use std::time::Duration;
//! use std::sync::Arc;
//! use std::sync::mpsc::{TryRecvError, sync_channel};
//!
//! use stream::generator::{Generator, GeneratorCommand, LiveCounters, Pace, Trial};
//! use stream::host::{Device, Sizes};
//! use stream::nic::flow_table::looked_up;
//! use stream::nic::pipes::{Notify, Pipes};
//! use stream::nic::{Nic, NicParams};
//! use stream::wire::sample::SampleTraffic;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two packets of 64 B to two destinations, again and again.
//! let traffic = Arc::new("2_64_1_2.pcap".parse::<SampleTraffic>()?.traffic()?);
//! let generator = Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default()))?;
//!
//! // The NIC, on a CPU of its own where there is one.
//! let sizes = Sizes::default();
//! let engine = Pipes::new(Notify::Reactively, (sizes.ring / 64) as u32, sizes.notifications);
//! let params = NicParams { cpu: machine::pin::current_cpu(), ..NicParams::default() };
//! let nic = Nic::start(params, engine, generator)?;
//!
//! // This core's pipes, one for each destination.
//! let device = Device::new(&nic.port(), sizes)?;
//! let mut pipes = Vec::new();
//! for packet in traffic.packets() {
//!     let mut pipe = device.rx_tx_pipe()?;
//!     pipe.bind(looked_up(&packet.flow, packet.syn))?;
//!     pipes.push(pipe);
//! }
//!
//! // 10,000 packets, 100 of them under way at a time.
//! # let hour = machine::tsc::Tsc::get()?.ticks(Duration::from_secs(3600));
//! let trial = Trial {
//!     pace: Pace::Closed { window: 100 },
//!     count: 10_000,
//! #     duration: hour,
//! #     drain: hour,
//!     touched: false,
//!     ..Trial::default()
//! };
//! let (answer, report) = sync_channel(1);
//! nic.command(GeneratorCommand::Start(trial, answer));
//!
//! // The program: it counts each destination's bytes, and sends the packets back.
//! let mut bytes = [0; 2];
//! let report = loop {
//!     if let Some(place) = device.next() {
//!         let pipe = &mut pipes[place];
//!         let mut packets = pipe.recv().packets();
//!         for packet in &mut packets {
//!             bytes[place] += packet.len();
//!         }
//!         let all = packets.processed();
//!         pipe.send_and_free(all)?;
//!     }
//!     match report.try_recv() {
//!         Err(TryRecvError::Empty) => {}
//!         done => break done?,
//!     }
//! };
//! assert_eq!((report.received, report.corrupted, report.late), (10_000, 0, 0));
//! // Without the check sequence.
//! assert_eq!(bytes, [5_000 * 60; 2]);
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

pub use batch::{Batch, Length, Messages, Packets};
pub use device::{Device, NicClosed, Sizes};
pub use pipe::{RxPipe, RxTxPipe, TxPipe};

use crate::nic::configuration::Configuration;
use crate::nic::flow_table::FlowTableFull;
use crate::nic::layout::CYCLE;
use crate::nic::notification::{TAKEN, TxNotification};

mod batch;
pub mod descriptors;
mod device;
mod pipe;

/// How long ago a packet left this NIC that now came back, where
/// [timestamps](crate::nic::configuration::Configuration::Timestamp) lie at this offset; what did not leave
/// this NIC says nothing, or anything. None where the packet is too short. It begins anew after 21 seconds.
pub fn round_trip(packet: &[u8], offset: u8) -> Option<Duration> {
    let field = packet.get(usize::from(offset)..)?.first_chunk()?;
    Some(CYCLE * u32::from_be_bytes(*field))
}

/// Why the NIC was not configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It has ended.
    #[error(transparent)]
    NicClosed(#[from] NicClosed),
    /// A flow was to be bound, and its packets go where they went before.
    #[error(transparent)]
    Full(#[from] FlowTableFull),
    /// Another program has the flow, or what was to be set.
    #[error("another program of this NIC has the flow or setting; end it, or ask for another")]
    Taken,
    /// It has descriptors.
    #[error("a NIC with descriptors writes no timestamps into packets; use pipes for them")]
    Timestamp,
    /// It has descriptors, and all buffers for them are in bursts or with the NIC.
    #[error("no buffer is free to configure the NIC by; clear a burst first")]
    NoBuffer,
}

/// What the NIC, which is done with it, says of a configuration.
pub(super) fn answer(
    configuration: Configuration,
    notification: &TxNotification,
) -> Result<(), ConfigError> {
    match (configuration, notification.refused()) {
        (_, TAKEN) => Err(ConfigError::Taken),
        (Configuration::Bind { flow, .. }, rules @ 1..) => {
            Err(FlowTableFull { flow, rules: rules as usize }.into())
        }
        _ => Ok(()),
    }
}
