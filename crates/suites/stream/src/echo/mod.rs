//! The echo: an application that touches every packet and sends it back from where it came.

mod descriptors;
mod pipes;

pub use descriptors::DescriptorsEcho;
pub use pipes::PipesEcho;

use machine::SysError;

use crate::generator::TOUCHED;
use crate::host::{Gone, NotConfigured};

/// What an application core does with packets, by whichever interface they come.
pub trait Interface {
    /// Takes some of what has come, gives each packet to `each`, and sends them back. Gives how many they
    /// were; 0 where nothing had come.
    ///
    /// # Errors
    /// Where the NIC has gone.
    fn turn(&mut self, each: impl FnMut(&mut [u8])) -> Result<u64, Gone>;

    /// How many of its pipes or queues get no packets, for the NIC's flow table has no place for their flows.
    fn without_place(&self) -> usize;
}

/// Whether a flow that was to be bound has no place.
fn has_no_place(bound: Result<(), NotConfigured>) -> Result<bool, SysError> {
    match bound {
        Ok(()) => Ok(false),
        Err(NotConfigured::Full(_)) => Ok(true),
        Err(why) => Err(SysError {
            attempt: "bind a flow".into(),
            source: std::io::Error::other(why),
            remedy: "or start the NIC again".into(),
        }),
    }
}

/// The echo's work on a packet: it adds 1 to a byte, and then does nothing for so many instructions.
#[inline(always)]
pub fn work(packet: &mut [u8], cycles: u32) {
    if let Some(byte) = packet.get_mut(TOUCHED) {
        *byte = byte.wrapping_add(1);
    }
    for _ in 0..cycles {
        // SAFETY: it does nothing, which is what is asked for.
        unsafe { std::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
    }
}
