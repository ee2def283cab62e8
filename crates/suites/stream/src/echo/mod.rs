//! The echo: an application that touches every packet and sends it back from where it came.

mod descriptors;
mod pipes;

pub use descriptors::DescriptorsEcho;
pub use pipes::PipesEcho;

use crate::generator::TOUCHED;
use crate::host::Gone;

/// What an application core does with packets, by whichever interface they come.
pub trait Interface {
    /// Takes some of what has come, gives each packet to `each`, and sends them back. Gives how many they
    /// were; 0 where nothing had come.
    ///
    /// # Errors
    /// Where the NIC has gone.
    fn turn(&mut self, each: impl FnMut(&mut [u8])) -> Result<u64, Gone>;
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
