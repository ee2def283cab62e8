//! The host library for pipes.
//!
//! A [`Device`] is one core's access to a NIC: a pair of notification buffers, shared by all its pipes. An [`RxPipe`]
//! returns the bytes of many packets at once, where the NIC wrote them; a [`TxPipe`] provides memory to write packets
//! to; an [`RxTxPipe`] sends packets back from its receive ring. Nothing is copied.
//!
//! An application, here in the process of a NIC with a generator on its wire:
//!
//! ```
//! # use std::time::Duration;
//! use std::sync::Arc;
//! use std::sync::mpsc::{TryRecvError, sync_channel};
//!
//! use stream::generator::{Expectation, Generator, GeneratorCommand, LiveCounters, Pace, Trial};
//! use stream::host::{Device, Sizes};
//! use stream::nic::flow_table::looked_up;
//! use stream::nic::pipes::{Notify, Pipes};
//! use stream::nic::{Nic, NicParams};
//! use stream::wire::sample::SampleTraffic;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two packets of 64 B to two destinations, repeated.
//! let traffic = Arc::new("2_64_1_2.pcap".parse::<SampleTraffic>()?.traffic()?);
//! let generator = Generator::new(Arc::clone(&traffic), Arc::new(LiveCounters::default()))?;
//!
//! // The NIC, on a separate CPU if there is one.
//! let sizes = Sizes::default();
//! let engine = Pipes::new(Notify::Reactively, (sizes.ring / 64) as u32, sizes.notifications);
//! let params = NicParams { cpu: machine::pin::current_cpu(), ..NicParams::default() };
//! let nic = Nic::start(params, engine, generator)?;
//!
//! // This core's pipes, one per destination.
//! let device = Device::new(&nic.port(), sizes)?;
//! let mut pipes = Vec::new();
//! for packet in traffic.packets() {
//!     let mut pipe = device.rx_tx_pipe()?;
//!     pipe.bind(looked_up(&packet.flow, packet.syn))?;
//!     pipes.push(pipe);
//! }
//!
//! // 10,000 packets, 100 of them in flight at a time.
//! # let hour = machine::tsc::Tsc::get()?.ticks(Duration::from_secs(3600));
//! let trial = Trial {
//!     pace: Pace::Closed { window: 100 },
//!     count: 10_000,
//! #     duration: hour,
//! #     drain: hour,
//!     expectation: Expectation::Same,
//!     ..Trial::default()
//! };
//! let (answer, report) = sync_channel(1);
//! nic.command(GeneratorCommand::Start(trial, answer));
//!
//! // The application counts the bytes to each destination and sends the packets back.
//! let mut bytes = [0; 2];
//! let report = loop {
//!     if let Some(index) = device.next() {
//!         let pipe = &mut pipes[index];
//!         let mut packets = pipe.recv().packets();
//!         for packet in &mut packets {
//!             bytes[index] += packet.len();
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
pub use device::{Device, NicClosed, NotificationBatch, Sizes};
pub use pipe::{RxPipe, RxTxPipe, TxPipe};

use crate::nic::configuration::Configuration;
use crate::nic::flow_table::FlowTableFull;
use crate::nic::layout::CYCLE;
use crate::nic::notification::{TAKEN, TxNotification};

mod batch;
pub mod descriptors;
mod device;
mod pipe;

/// Returns the round-trip time in an echoed packet, which the NIC wrote at `offset` in
/// [timestamp mode](crate::nic::configuration::Configuration::Timestamp). Returns `None` if the packet is too short. The
/// value is undefined if the packet was not sent by this NIC, and wraps after 21 seconds.
pub fn round_trip(packet: &[u8], offset: u8) -> Option<Duration> {
    let field = packet.get(usize::from(offset)..)?.first_chunk()?;
    Some(CYCLE * u32::from_be_bytes(*field))
}

/// Why a configuration was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The NIC has stopped.
    #[error(transparent)]
    NicClosed(#[from] NicClosed),
    /// The flow table has no space for the flow, whose packets go where they went before.
    #[error(transparent)]
    Full(#[from] FlowTableFull),
    /// Another client has the flow or setting.
    #[error(
        "the flow or setting belongs to another program of this NIC; end it, or choose another"
    )]
    Taken,
    /// Timestamps on a NIC with descriptors.
    #[error("timestamps are not available with descriptors; use pipes")]
    Timestamp,
    /// No buffer is free for the request to a NIC with descriptors.
    #[error("no buffer is free for the request; clear a burst first")]
    NoBuffer,
}

/// Converts the NIC's answer to a configuration request.
pub(super) fn config_result(
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
