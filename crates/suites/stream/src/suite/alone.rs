//! The work of an application alone: on packets in memory, without an interface.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use applications::Application;
use lab::statistics::median;
use machine::tsc::Tsc;

use crate::nic::ticks;
use crate::wire::packet::{self, FLIT};
use crate::wire::traffic::Traffic;

/// Memory for the packets of a pass, in bytes: they stay in the L2 cache, like those of a ring that is not full.
const MEMORY: usize = 256 << 10;
/// Time of one measurement.
pub(super) const BUDGET: Duration = Duration::from_millis(2);
/// Minimum number of passes of one measurement, also if the thread loses its CPU.
const PASSES: usize = 9;

/// Measurements of an application alone on traffic of which each pass takes the packets that follow.
pub(super) struct Alone {
    traffic: Arc<Traffic>,
    memory: Vec<u8>,
    next: usize,
    lengths: Vec<usize>,
    budget: u64,
    last: Option<f64>,
}

impl Alone {
    /// Creates it without a measurement.
    pub(super) fn new(traffic: Arc<Traffic>, tsc: &Tsc) -> Self {
        let memory = vec![0; MEMORY + FLIT];
        let (lengths, budget) = (Vec::new(), tsc.ticks(BUDGET));
        Self { traffic, memory, next: 0, lengths, budget, last: None }
    }

    /// Measures the ticks that the application needs per packet: the median of passes over packets that were just written to
    /// memory, in whole flits as in a pipe. Returns the lower of this and the last measurement, because load on the core only
    /// slows them; `None` without a packet that fits.
    pub(super) fn measure(&mut self, application: &mut impl Application) -> Option<f64> {
        let Self { traffic, memory, next, lengths, budget, last } = self;
        let skip = memory.as_ptr().align_offset(FLIT).min(FLIT);
        let memory = &mut memory[skip..][..MEMORY];
        let (end, mut passes) = (ticks() + *budget, Vec::new());
        while passes.len() < PASSES || ticks() < end {
            fill(memory, traffic, next, lengths);
            if lengths.is_empty() {
                return None;
            }
            passes.push(pass(application, memory, lengths) as f64 / lengths.len() as f64);
        }
        let before = std::mem::replace(last, median(&passes));
        [before, *last].into_iter().flatten().reduce(f64::min)
    }
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
            let mut alone = Alone::new(Arc::new(sample.traffic().unwrap()), tsc);
            let each = tsc.ticks(Duration::from_micros(1));
            let mut slow = Slow { each, packets: 0, bytes: 0 };
            let found = alone.measure(&mut slow).unwrap();
            assert!(found >= each as f64, "{found} of {each}");
            slow.each *= 8;
            let later = alone.measure(&mut slow).unwrap();
            assert!(later <= found, "the lower one: {later} of {found}");
            let mean = slow.bytes as f64 / slow.packets as f64;
            let expected = size.mean(|size| f64::from(size - 4));
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean} of {expected} B");
        }
    }
}
