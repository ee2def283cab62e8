//! Where the copies of a sample lie in their buffers.

use machine::mapping::PAGE;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::Call;
use super::params::{Buffers, Mode, ThroughputParams, Touch};
use crate::lengths::{LONGEST, Lengths};

/// Lengths that are drawn before a walk repeats: too many for a branch predictor to learn.
const DRAWN: usize = 1 << 14;
/// Destinations that a batch of first touches goes through, at most.
const COLD_SLOTS: usize = 256;
/// Bytes of each buffer that copies rotate through, at least.
pub(super) const LEAST_ROTATING: usize = 1 << 20;
/// Bytes that a batch of first touches goes through, unless one copy is longer.
const COLD_BYTES: usize = 16 << 20;
const LINE: usize = 64;

/// Lanes of slots: each thread that copies jobs of its own has a lane, each copy of a walk a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes from one slot to the next.
    pub(super) stride: usize,
    /// Slots of a lane: a power of two.
    pub(super) slots: usize,
    /// Lanes; threads share them where there is no room for all.
    pub(super) lanes: usize,
}

impl Layout {
    /// The layout of a point; `last_level` is the size of the last-level cache.
    pub(super) fn of(params: &ThroughputParams, last_level: u64, huge: bool) -> Self {
        let longest = params.length.longest() as usize;
        let page = if huge { machine::huge_pages::SIZE } else { PAGE };
        let lanes = match params.mode {
            Mode::Jobs => params.threads.max(1),
            Mode::Split | Mode::Queue => 1,
        };
        // What is mapped of the memory has room for the lanes and the destination's offset.
        let mapped = params.memory.most().map(|most| most.saturating_sub(params.offset));
        let most = mapped.map_or(LONGEST as usize, |mapped| mapped.min(LONGEST as usize));
        let (stride, wanted) = match (params.touch, params.buffers) {
            (Touch::Cold, _) => {
                let stride = longest.next_multiple_of(page);
                (stride, (COLD_BYTES / stride / lanes).clamp(1, COLD_SLOTS))
            }
            (Touch::Warm, Buffers::One) => (longest.next_multiple_of(PAGE), 1),
            (Touch::Warm, Buffers::Rotating) => {
                let stride = longest.next_multiple_of(LINE);
                // Source and destination together are then more than twice the cache.
                let each = (last_level as usize + 1).clamp(LEAST_ROTATING.min(most), most);
                (stride, (each / stride / lanes + 1).next_power_of_two())
            }
        };
        let room = (most / stride / lanes).max(1);
        let slots = power_of_two_up_to(wanted.min(room));
        Self { stride, slots, lanes: lanes.min((most / (stride * slots)).max(1)) }
    }

    /// Bytes of one lane.
    pub(super) fn lane(&self) -> usize {
        self.stride * self.slots
    }

    /// Bytes of each buffer.
    pub(super) fn bytes(&self) -> usize {
        self.lane() * self.lanes
    }

    /// The ring of copies of a lane; one alone where all are the same.
    pub(super) fn calls(&self, lengths: &Lengths, seed: u64) -> Vec<Call> {
        let count = match lengths {
            Lengths::Fixed(_) => self.slots,
            _ if self.slots == 1 => DRAWN,
            _ => self.slots,
        };
        let mut places: Vec<u32> =
            (0..count).map(|number| ((number % self.slots) * self.stride) as u32).collect();
        places.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
        let drawn = lengths.draw(count, seed);
        places.into_iter().zip(drawn).map(|(at, length)| Call { at, length }).collect()
    }
}

fn power_of_two_up_to(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factors::Use;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn params(lengths: Lengths, threads: usize) -> ThroughputParams {
        ThroughputParams { length: lengths, threads, ..ThroughputParams::default() }
    }

    proptest! {
        #[test]
        fn copies_lie_apart_and_within_256_mib(
            length in 1u64..=LONGEST, range: bool, threads in 0usize..=64, split: bool, cold: bool, rotating: bool, cache in 0u64..1 << 30, seed: u64,
        ) {
            let lengths = if range { Lengths::Uniform(1, length) } else { Lengths::Fixed(length) };
            let params = ThroughputParams {
                mode: if split { Mode::Split } else { Mode::Jobs },
                touch: if cold { Touch::Cold } else { Touch::Warm },
                buffers: if rotating { Buffers::Rotating } else { Buffers::One },
                usage: Use::Throughput,
                ..params(lengths, threads)
            };
            let layout = Layout::of(&params, cache, false);
            prop_assert!(layout.bytes() as u64 <= LONGEST && layout.stride as u64 >= length);
            prop_assert!(layout.lanes >= 1 && layout.lanes <= threads.max(1));
            if layout.slots <= 1 << 12 {
                let calls = layout.calls(&params.length, seed);
                prop_assert!(calls.len().is_power_of_two());
                let places: BTreeSet<_> = calls.iter().map(|call| call.at).collect();
                prop_assert_eq!(places.len(), layout.slots);
                prop_assert!(calls.iter().all(|call| (call.at + call.length) as usize <= layout.lane()));
            }
        }
    }

    #[test]
    fn rotating_buffers_exceed_the_cache() {
        let rotating =
            ThroughputParams { buffers: Buffers::Rotating, ..params(Lengths::Fixed(4096), 0) };
        let layout = Layout::of(&rotating, 32 << 20, false);
        assert!(2 * layout.bytes() > 2 * (32 << 20), "{layout:?}");
        let whole = Layout::of(&rotating, 1 << 30, false);
        assert_eq!(whole.bytes(), 256 << 20);
    }

    #[test]
    fn threads_have_lanes_while_there_is_room() {
        assert_eq!(Layout::of(&params(Lengths::Fixed(16), 64), 0, false).lanes, 64);
        assert_eq!(Layout::of(&params(Lengths::Fixed(16 << 20), 64), 0, false).lanes, 16);
        assert_eq!(Layout::of(&params(Lengths::Fixed(LONGEST), 8), 0, false).lanes, 1);
    }

    #[test]
    fn threads_share_lanes_of_memory_that_is_mapped_in_part() {
        use crate::memory::Kind;
        let most = Kind::HostPhysical.most().unwrap();
        for length in [16, 4096, 64 << 10, 512 << 10] {
            for threads in [0, 1, 8, 16, 32, 64] {
                for offset in [0, 15, 64, 4095] {
                    let params = ThroughputParams {
                        memory: Kind::HostPhysical,
                        offset,
                        ..params(Lengths::Fixed(length), threads)
                    };
                    let layout = Layout::of(&params, 32 << 20, false);
                    assert_eq!(params.consistent(), Ok(()));
                    // One copy with its offset may be too long; what fits once fits.
                    if length as usize + offset <= most {
                        assert!(layout.bytes() + offset <= most, "{params:?} {layout:?}");
                    }
                }
            }
        }
        let sixteen =
            ThroughputParams { memory: Kind::HostPhysical, ..params(Lengths::Fixed(64 << 10), 16) };
        assert_eq!(Layout::of(&sixteen, 32 << 20, false).lanes, 8);
    }

    #[test]
    fn first_touches_begin_pages() {
        let cold = ThroughputParams { touch: Touch::Cold, ..params(Lengths::Fixed(16), 0) };
        let layout = Layout::of(&cold, 0, true);
        assert_eq!((layout.stride, layout.slots), (2 << 20, 8));
    }
}
