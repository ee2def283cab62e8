//! Bytes of a copy that a reader sees while another host makes it.

use crate::pattern::Pattern;

use super::side::STEP;

/// Observations of one copy, in units of [`STEP`] bytes.
#[derive(Debug)]
pub(super) struct Watch {
    old: Vec<u32>,
    new: Vec<u32>,
    /// Which units were seen with their new value.
    was_new: Vec<bool>,
    /// Number of new units in the last pass.
    visible: usize,
    pub(super) counts: VisibilityCounts,
}

/// Results of watching copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VisibilityCounts {
    /// Different states that were seen between nothing and everything.
    pub(super) stages: u64,
    /// Passes in which a unit was visible before a unit at a lower address.
    pub(super) unordered: u64,
    /// Units that were seen with some bytes old and some new.
    pub(super) split: u64,
    /// Bytes that were visible before the writer published the copy.
    pub(super) early: u64,
    /// Bytes that were not visible after the writer had published the copy.
    pub(super) missing: u64,
    /// Units that had their old value again.
    pub(super) reverted: u64,
    /// Units that had neither value in any byte.
    pub(super) foreign: u64,
}

/// Returns the units of a pattern.
fn units(pattern: Pattern, length: usize) -> Vec<u32> {
    let mut bytes = vec![0; length];
    pattern.fill(0, &mut bytes);
    let units = bytes.chunks_exact(STEP);
    units.map(|unit| u32::from_ne_bytes([unit[0], unit[1], unit[2], unit[3]])).collect()
}

impl Watch {
    /// Watches `length` bytes, a multiple of [`STEP`], change from one pattern to another.
    pub(super) fn new(old: Pattern, new: Pattern, length: usize) -> Self {
        let (old, new) = (units(old, length), units(new, length));
        let was_new = vec![false; new.len()];
        Self { old, new, was_new, visible: 0, counts: VisibilityCounts::default() }
    }

    /// Reads every unit, from the last to the first: if the writer proceeds upwards in order, the units below a new one
    /// are new when they are read.
    pub(super) fn pass(&mut self, read: impl Fn(usize) -> u32) {
        let (mut visible, mut is_unordered) = (0, false);
        for index in (0..self.new.len()).rev() {
            let unit = read(index);
            if unit == self.new[index] {
                visible += 1;
                self.was_new[index] = true;
                continue;
            }
            is_unordered |= visible > 0;
            self.counts.reverted += u64::from(self.was_new[index]);
            if unit != self.old[index] {
                let bytes = unit.to_ne_bytes().into_iter();
                let known =
                    self.old[index].to_ne_bytes().into_iter().zip(self.new[index].to_ne_bytes());
                match bytes.zip(known).all(|(byte, (old, new))| byte == old || byte == new) {
                    true => self.counts.split += 1,
                    false => self.counts.foreign += 1,
                }
            }
        }
        self.counts.unordered += u64::from(is_unordered);
        let is_between = visible > 0 && visible < self.new.len();
        self.counts.stages += u64::from(is_between && visible != self.visible);
        self.visible = visible;
    }

    /// Records that the copy was not published before the end of the last pass: what it saw was early.
    pub(super) fn keep_early(&mut self) {
        self.counts.early = (self.visible * STEP) as u64;
    }

    /// Reads every unit once more and returns the results.
    pub(super) fn finish(mut self, read: impl Fn(usize) -> u32) -> VisibilityCounts {
        self.pass(read);
        self.counts.missing = ((self.new.len() - self.visible) * STEP) as u64;
        self.counts
    }
}

impl VisibilityCounts {
    /// Adds the results of another copy.
    pub(super) fn add(&mut self, other: Self) {
        self.stages += other.stages;
        self.unordered += other.unordered;
        self.split += other.split;
        self.early += other.early;
        self.missing += other.missing;
        self.reverted += other.reverted;
        self.foreign += other.foreign;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 64;

    /// Watches states of a memory, the last of them after the copy is published.
    fn watched(states: &[Vec<u32>]) -> VisibilityCounts {
        let mut watch = Watch::new(Pattern { offset: 0 }, Pattern { offset: 1 }, LENGTH);
        let (last, before) = states.split_last().unwrap();
        for state in before {
            watch.pass(|index| state[index]);
            watch.keep_early();
        }
        watch.finish(|index| last[index])
    }

    fn state(new: impl Fn(usize) -> bool) -> Vec<u32> {
        let [old, latest] = [0, 1].map(|offset| units(Pattern { offset }, LENGTH));
        (0..LENGTH / STEP)
            .map(|index| if new(index) { latest[index] } else { old[index] })
            .collect()
    }

    #[test]
    fn a_copy_in_order_has_its_stages() {
        let states: Vec<_> = [0, 4, 4, 10, 16].map(|count| state(|index| index < count)).into();
        let expected = VisibilityCounts { stages: 2, early: 40, ..VisibilityCounts::default() };
        assert_eq!(watched(&states), expected);
    }

    #[test]
    fn every_disorder_is_counted() {
        let all = state(|_| true);
        let backwards = watched(&[state(|index| index >= 8), all.clone()]);
        assert_eq!((backwards.unordered, backwards.stages, backwards.early), (1, 1, 32));
        let reverted = watched(&[state(|index| index == 0), state(|_| false), all.clone()]);
        assert_eq!((reverted.reverted, reverted.missing), (1, 0));
        assert_eq!(watched(&[state(|index| index != 3)]).missing, 4);
        let mut split = state(|_| false);
        split[2] = split[2] & !0xff | all[2] & 0xff;
        assert_eq!(watched(&[split, all.clone()]).split, 1);
        let mut foreign = state(|_| false);
        foreign[2] = 0xffff_ffff;
        assert_eq!(watched(&[foreign, all]).foreign, 1);
    }
}
