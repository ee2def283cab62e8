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
//! use stream::generator::{Generator, Live, Order, Pace, Trial};
//! use stream::host::{Device, Sizes};
//! use stream::nic::flow_table::looked_up;
//! use stream::nic::pipes::{Notify, Pipes};
//! use stream::nic::{Nic, Settings};
//! use stream::wire::sample::Sample;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two packets of 64 B to two destinations, again and again.
//! let traffic = Arc::new("2_64_1_2.pcap".parse::<Sample>()?.traffic()?);
//! let generator = Generator::new(Arc::clone(&traffic), Arc::new(Live::default()))?;
//!
//! // The NIC, on a CPU of its own where there is one.
//! let sizes = Sizes::default();
//! let engine = Pipes::new(Notify::Reactively, (sizes.ring / 64) as u32, sizes.notifications);
//! let settings = Settings { cpu: machine::pin::current_cpu(), ..Settings::default() };
//! let nic = Nic::start(settings, engine, generator)?;
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
//! nic.order(Order::Start(trial, answer));
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

mod batch;
pub mod descriptors;
mod device;
mod not_configured;
mod round_trip;
mod rx;
mod rx_tx;
mod tx;

pub use batch::{Batch, Length, Messages, Packets};
pub use device::{Device, Gone, Sizes};
pub use not_configured::NotConfigured;
pub use round_trip::round_trip;
pub use rx::RxPipe;
pub use rx_tx::RxTxPipe;
pub use tx::TxPipe;
