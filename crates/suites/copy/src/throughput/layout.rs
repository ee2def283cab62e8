//! Placement of a sample's copies in their buffers.

use machine::mapping::PAGE;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::params::{Buffers, MIN_ROTATING, Mode, PageState, ThroughputParams};
use crate::lengths::{Lengths, MAX_LENGTH};
use crate::memory::Call;

/// Lengths drawn before the walk repeats: too many for a branch predictor to learn.
const DRAWN: usize = 1 << 14;
/// Maximum destinations of a batch of first touches.
const COLD_SLOTS: usize = 256;
/// Bytes of a batch of first touches, unless one copy is longer.
const COLD_BYTES: usize = 16 << 20;
const LINE: usize = 64;

/// Lanes of slots: each thread with its own jobs has a lane, each copy of a walk a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes between the starts of two slots.
    pub(super) stride: usize,
    /// Slots per lane: a power of two.
    pub(super) slots: usize,
    /// Number of lanes; threads share lanes if there is no space for one each.
    pub(super) lanes: usize,
}

impl Layout {
    /// Returns the layout of a point. `last_level` is the size of the last-level cache in bytes,
    /// `huge` whether pages are huge.
    pub(super) fn new(params: &ThroughputParams, last_level: u64, huge: bool) -> Self {
        let longest = params.length.longest() as usize;
        let page = if huge { machine::huge_pages::SIZE } else { PAGE };
        let lanes = match params.mode {
            Mode::Jobs => params.threads.max(1),
            Mode::Split | Mode::Queue => 1,
        };
        // A mapping must contain the lanes and the destination's offset.
        let mapped = params.memory.max_bytes().map(|max| max.saturating_sub(params.offset));
        let max = mapped.map_or(MAX_LENGTH as usize, |mapped| mapped.min(MAX_LENGTH as usize));
        let (stride, wanted) = match (params.touch, params.buffers) {
            (PageState::Cold, _) => {
                let stride = longest.next_multiple_of(page);
                (stride, (COLD_BYTES / stride / lanes).clamp(1, COLD_SLOTS))
            }
            (PageState::Warm, Buffers::One) => (longest.next_multiple_of(PAGE), 1),
            (PageState::Warm, Buffers::Rotating) => {
                let stride = longest.next_multiple_of(LINE);
                // Larger than the cache, so that source and destination exceed twice its size.
                let each = (last_level as usize + 1).clamp(MIN_ROTATING.min(max), max);
                (stride, (each / stride / lanes + 1).next_power_of_two())
            }
        };
        let capacity = (max / stride / lanes).max(1);
        let slots = power_of_two_up_to(wanted.min(capacity));
        Self { stride, slots, lanes: lanes.min((max / (stride * slots)).max(1)) }
    }

    /// Returns the bytes of one lane.
    pub(super) fn lane(&self) -> usize {
        self.stride * self.slots
    }

    /// Returns the bytes of each buffer.
    pub(super) fn bytes(&self) -> usize {
        self.lane() * self.lanes
    }

    /// Returns the ring of copies of a lane; a single one if all are the same.
    pub(super) fn calls(&self, lengths: &Lengths, seed: u64) -> Vec<Call> {
        let count = if self.slots == 1 && !lengths.is_fixed() { DRAWN } else { self.slots };
        let mut offsets: Vec<u32> =
            (0..count).map(|number| ((number % self.slots) * self.stride) as u32).collect();
        offsets.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
        let drawn = lengths.draw(count, seed);
        offsets.into_iter().zip(drawn).map(|(at, length)| Call { at, length }).collect()
    }
}

fn power_of_two_up_to(number: usize) -> usize {
    1 << number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::TimingMode;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn params(lengths: Lengths, threads: usize) -> ThroughputParams {
        ThroughputParams { length: lengths, threads, ..ThroughputParams::default() }
    }

    proptest! {
        #[test]
        fn copies_are_disjoint_and_within_256_mib(
            length in 1u64..=MAX_LENGTH, range: bool, threads in 0usize..=64, split: bool, cold: bool, rotating: bool, cache in 0u64..1 << 30, seed: u64,
        ) {
            let lengths = if range { Lengths::Uniform(1, length) } else { Lengths::Fixed(length) };
            let params = ThroughputParams {
                mode: if split { Mode::Split } else { Mode::Jobs },
                touch: if cold { PageState::Cold } else { PageState::Warm },
                buffers: if rotating { Buffers::Rotating } else { Buffers::One },
                usage: TimingMode::Throughput,
                ..params(lengths, threads)
            };
            let layout = Layout::new(&params, cache, false);
            prop_assert!(layout.bytes() as u64 <= MAX_LENGTH && layout.stride as u64 >= length);
            prop_assert!(layout.lanes >= 1 && layout.lanes <= threads.max(1));
            if layout.slots <= 1 << 12 {
                let calls = layout.calls(&params.length, seed);
                prop_assert!(calls.len().is_power_of_two());
                let offsets: BTreeSet<_> = calls.iter().map(|call| call.at).collect();
                prop_assert_eq!(offsets.len(), layout.slots);
                prop_assert!(calls.iter().all(|call| (call.at + call.length) as usize <= layout.lane()));
            }
        }
    }

    #[test]
    fn rotating_buffers_exceed_the_cache() {
        let rotating =
            ThroughputParams { buffers: Buffers::Rotating, ..params(Lengths::Fixed(4096), 0) };
        let layout = Layout::new(&rotating, 32 << 20, false);
        assert!(2 * layout.bytes() > 2 * (32 << 20), "{layout:?}");
        let whole = Layout::new(&rotating, 1 << 30, false);
        assert_eq!(whole.bytes(), 256 << 20);
    }

    #[test]
    fn each_thread_has_a_lane_while_space_permits() {
        assert_eq!(Layout::new(&params(Lengths::Fixed(16), 64), 0, false).lanes, 64);
        assert_eq!(Layout::new(&params(Lengths::Fixed(16 << 20), 64), 0, false).lanes, 16);
        assert_eq!(Layout::new(&params(Lengths::Fixed(MAX_LENGTH), 8), 0, false).lanes, 1);
    }

    #[test]
    fn threads_share_lanes_if_little_memory_is_mapped() {
        use crate::memory::MemoryKind;
        let max = MemoryKind::HostPhysical.max_bytes().unwrap();
        for length in [16, 4096, 64 << 10, 512 << 10] {
            for threads in [0, 1, 8, 16, 32, 64] {
                for offset in [0, 15, 64, 4095] {
                    let params = ThroughputParams {
                        memory: MemoryKind::HostPhysical,
                        offset,
                        ..params(Lengths::Fixed(length), threads)
                    };
                    let layout = Layout::new(&params, 32 << 20, false);
                    assert_eq!(params.check_conflicts(), Ok(()));
                    // One copy with its offset may exceed the limit; the layout adds nothing to it.
                    if length as usize + offset <= max {
                        assert!(layout.bytes() + offset <= max, "{params:?} {layout:?}");
                    }
                }
            }
        }
        let sixteen = ThroughputParams {
            memory: MemoryKind::HostPhysical,
            ..params(Lengths::Fixed(64 << 10), 16)
        };
        assert_eq!(Layout::new(&sixteen, 32 << 20, false).lanes, 8);
    }

    #[test]
    fn first_touches_start_at_page_boundaries() {
        let cold = ThroughputParams { touch: PageState::Cold, ..params(Lengths::Fixed(16), 0) };
        let layout = Layout::new(&cold, 0, true);
        assert_eq!((layout.stride, layout.slots), (2 << 20, 8));
    }
}
