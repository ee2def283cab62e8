//! The library: pipes as a program uses them.
//!
//! A [`Device`] is what one core has of a NIC: a pair of notification buffers, shared by all its pipes.
//! An [`RxPipe`] gives the bytes of many packets at once, where the NIC wrote them; a [`TxPipe`] gives
//! memory to write packets to; an [`RxTxPipe`] sends back from where it received. Nothing is copied.

mod batch;
pub mod descriptors;
mod device;
mod round_trip;
mod rx;
mod rx_tx;
mod tx;

pub use batch::{Batch, Length, Messages, Packets};
pub use device::{Device, Gone, Sizes};
pub use round_trip::round_trip;
pub use rx::RxPipe;
pub use rx_tx::RxTxPipe;
pub use tx::TxPipe;
