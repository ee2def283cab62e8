//! The work of an application alone: on packets in memory, without an interface.

use std::hint::black_box;
use std::time::Duration;

use applications::Application;
use machine::tsc::Tsc;

use crate::nic::ticks;
use crate::wire::packet::{self, FLIT};
use crate::wire::traffic::Traffic;

/// Memory for the packets of a pass, in bytes: they stay in the L2 cache, like those of a ring that is not full.
const MEMORY: usize = 256 << 10;
/// Time of all passes.
pub(super) const BUDGET: Duration = Duration::from_millis(5);
/// Minimum number of passes, also if the thread lost its CPU.
const PASSES: usize = 20;
/// Passes before these, in which the application touches its memory for the first time.
const WARM_UP: usize = 2;

/// Returns the ticks that the application needs per packet: in the fastest of several passes over packets that were just
/// written to memory, in whole flits as in a pipe. Load on the core only slows a pass, so that the difference to a slower time
/// is at most too large. `None` without a packet that fits.
pub(super) fn ticks_per_packet(
    application: &mut impl Application,
    traffic: &Traffic,
    tsc: &Tsc,
) -> Option<f64> {
    let mut memory = vec![0; MEMORY + FLIT];
    let skip = memory.as_ptr().align_offset(FLIT).min(FLIT);
    let memory = &mut memory[skip..][..MEMORY];
    let (mut next, mut lengths, mut passes) = (0, Vec::new(), Vec::<f64>::new());
    let end = ticks() + tsc.ticks(BUDGET);
    while passes.len() < WARM_UP + PASSES || ticks() < end {
        fill(memory, traffic, &mut next, &mut lengths);
        if lengths.is_empty() {
            return None;
        }
        passes.push(pass(application, memory, &lengths) as f64 / lengths.len() as f64);
    }
    passes[WARM_UP..].iter().copied().reduce(f64::min)
}

/// Fills the memory with the packets of the traffic that follow.
fn fill(memory: &mut [u8], traffic: &Traffic, next: &mut usize, lengths: &mut Vec<usize>) {
    lengths.clear();
    let mut at = 0;
    loop {
        let bytes = traffic.bytes(*next);
        let end = at + packet::flits(bytes.len()) * FLIT;
        if end > memory.len() {
            return;
        }
        memory[at..][..bytes.len()].copy_from_slice(bytes);
        lengths.push(bytes.len());
        at = end;
        *next = (*next + 1) % traffic.len();
    }
}

/// Returns the ticks of one pass. Not inlined, so that its loop is the same for every caller.
#[inline(never)]
fn pass(application: &mut impl Application, memory: &mut [u8], lengths: &[usize]) -> u64 {
    let mut left = memory;
    let packets = lengths.iter().map(|length| {
        let flits = packet::flits(*length) * FLIT;
        let (packet, rest) = std::mem::take(&mut left).split_at_mut(flits);
        left = rest;
        &mut packet[..*length]
    });
    let start = ticks();
    application.process(packets, |packet, decision| {
        black_box((packet.as_ptr(), decision));
    });
    ticks() - start
}

#[cfg(test)]
mod tests {
    use applications::application::{Count, Decision};

    use super::*;
    use crate::wire::sample::{SampleTraffic, Sizes};

    /// Spends a number of ticks on each packet, and counts packets and bytes.
    struct Slow {
        each: u64,
        packets: u64,
        bytes: u64,
    }

    impl Application for Slow {
        fn process<'a>(
            &mut self,
            packets: impl Iterator<Item = &'a mut [u8]>,
            mut done: impl FnMut(&'a mut [u8], Decision),
        ) {
            for packet in packets {
                let end = ticks() + self.each;
                while ticks() < end {}
                self.packets += 1;
                self.bytes += packet.len() as u64;
                done(packet, Decision::Send);
            }
        }

        fn counts(&self) -> Vec<Count> {
            Vec::new()
        }
    }

    #[test]
    fn the_work_per_packet_is_found_whatever_the_sizes() {
        let Some(tsc) = machine::untested::tsc("stream: the work of an application alone") else {
            return;
        };
        for size in [Sizes::One(64), Sizes::Imix, Sizes::One(1518)] {
            let sample = SampleTraffic { packets: 24, size, sources: 1, destinations: 2 };
            let traffic = sample.traffic().unwrap();
            let each = tsc.ticks(Duration::from_micros(1));
            let mut slow = Slow { each, packets: 0, bytes: 0 };
            let found = ticks_per_packet(&mut slow, &traffic, tsc).unwrap();
            assert!(found >= each as f64, "{found} of {each}");
            let mean = slow.bytes as f64 / slow.packets as f64;
            let expected = size.mean(|size| f64::from(size - 4));
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean} of {expected} B");
        }
    }
}
