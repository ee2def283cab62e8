//! The echo: adds 1 to a byte of each packet and sends it back.

use crate::application::{Application, Count, Decision};

/// The echo. Its work is independent of a packet's content, so it measures the interface. It changes the byte at offset
/// `TOUCHED`; a shorter packet is sent unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Echo<const TOUCHED: usize> {
    /// Number of NOP instructions per packet.
    pub nops: u32,
}

impl<const TOUCHED: usize> Application for Echo<TOUCHED> {
    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        let Self { nops } = *self;
        // Some iterators, e.g. that over a burst, have a faster loop inside than outside.
        packets.for_each(|packet| {
            if let Some(byte) = packet.get_mut(TOUCHED) {
                *byte = byte.wrapping_add(1);
            }
            for _ in 0..nops {
                // SAFETY: NOP has no effect.
                unsafe { std::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
            }
            done(packet, Decision::Send);
        });
    }

    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::tests::run;

    #[test]
    fn each_packet_returns_with_one_changed_byte() {
        let mut packets = vec![vec![255; 60], vec![7; 5], vec![0; 1514]];
        let decisions = run(&mut Echo::<5> { nops: 3 }, &mut packets);
        assert_eq!(decisions, [Decision::Send; 3]);
        assert_eq!((packets[0][5], packets[2][5]), (0, 1));
        assert_eq!(packets[0].iter().filter(|byte| **byte != 255).count(), 1);
        assert_eq!(packets[1], [7; 5], "too short to be changed");
    }
}
