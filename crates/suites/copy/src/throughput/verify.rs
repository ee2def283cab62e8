//! Verifies that the copies of a sample arrived.

use std::ops::Range;

use lab::sample::Failure;

use super::layout::Layout;
use super::params::ThroughputParams;
use super::regions::RegionPair;
use crate::memory::{Call, Region, VerifyCounts};
use crate::pattern::Pattern;

/// The last copies made.
pub(super) struct LastCopies {
    /// Their indices.
    pub(super) made: Range<usize>,
    /// Whether each was made in every lane, not in one of them.
    pub(super) in_every_lane: bool,
}

/// Verifies the last copies. Returns the bytes verified.
pub(super) fn delivery(
    params: &ThroughputParams,
    layout: Layout,
    pair: &mut RegionPair,
    pattern: Option<Pattern>,
    ring: &[Call],
    last: LastCopies,
) -> Result<u64, Failure> {
    let calls = last.made.map(|number| ring[number & (ring.len() - 1)]);
    // In a single slot each copy overwrites the previous one: the longest represents all.
    let calls: Vec<Call> = match layout.slots {
        1 => calls.max_by_key(|call| call.length).into_iter().collect(),
        _ => calls.collect(),
    };
    let mut whole = VerifyCounts::default();
    for lane in 0..layout.lanes {
        let start = lane * layout.lane();
        let counts = match pattern {
            Some(pattern) => {
                let lane_pattern = Pattern { offset: pattern.offset.wrapping_add(start as u8) };
                pair.destination.verify(lane_pattern, params.offset + start, &calls)?
            }
            None => compare(pair, params.offset, start, &calls),
        };
        whole.join(counts);
    }
    let lanes = if last.in_every_lane { layout.lanes } else { 1 };
    judge(&whole, (calls.len() * lanes) as u64, layout, params)?;
    Ok(whole.bytes)
}

/// Verifies that a pattern fills the memory of a GPU. A driver that loses a byte of each transfer would lose the same byte
/// of the fill and of the copies, and what the byte was before may be what the copies should write.
pub(super) fn fill(region: &mut Region, pattern: Pattern) -> Result<(), Failure> {
    const PIECE: usize = 64 << 20;
    if region.device().is_none() {
        return Ok(());
    }
    for start in (0..region.len()).step_by(PIECE) {
        let length = PIECE.min(region.len() - start);
        let piece = Pattern { offset: pattern.offset.wrapping_add(start as u8) };
        let counts = region.verify(piece, start, &[Call { at: 0, length: length as u32 }])?;
        if counts.delivered == 0 {
            let why = "bytes that were written to the destination before the copies did not arrive";
            return Err(Failure::check(why));
        }
    }
    Ok(())
}

/// With one lane, every copy must have arrived completely. With more, each copy was made in one of the lanes, or in
/// every lane: as many must have arrived, and none in part unless shorter ones overwrote it.
fn judge(
    counts: &VerifyCounts,
    calls: u64,
    layout: Layout,
    params: &ThroughputParams,
) -> Result<(), Failure> {
    let parts = layout.lanes > 1 && layout.slots == 1 && !params.length.is_fixed();
    if counts.delivered >= calls && (counts.torn == 0 || parts) {
        return Ok(());
    }
    let torn = match counts.torn {
        0 => String::new(),
        torn => format!(", {torn} in part, e.g. up to byte {}", counts.torn_at),
    };
    Err(Failure::check(format!("{} of {calls} copies arrived{torn}", counts.delivered)))
}

/// Compares with a source whose contents are not our pattern.
fn compare(pair: &RegionPair, offset: usize, start: usize, calls: &[Call]) -> VerifyCounts {
    let mut counts = VerifyCounts::default();
    for call in calls {
        let (at, length) = (start + call.at as usize, call.length as usize);
        // SAFETY: both regions have the layout's bytes plus the offset, and no thread copies now.
        let (is, should) = unsafe {
            (
                std::slice::from_raw_parts(pair.destination.start().add(offset + at), length),
                std::slice::from_raw_parts(pair.source.start(), at + length),
            )
        };
        let mismatch = is.iter().zip(&should[at..]).position(|(is, should)| is != should);
        counts.record(at, length, mismatch);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::Lengths;

    fn counts(delivered: u64, torn: u64, missing: u64) -> VerifyCounts {
        VerifyCounts { delivered, torn, missing, ..VerifyCounts::default() }
    }

    #[test]
    fn untimed_copies_must_arrive_in_every_lane() {
        let layout = Layout { stride: 64, slots: 1, lanes: 2 };
        let two = |counts: &VerifyCounts| judge(counts, 2, layout, &ThroughputParams::default());
        assert_eq!(two(&counts(2, 0, 0)), Ok(()));
        assert_eq!(two(&counts(1, 0, 1)).unwrap_err().why, "1 of 2 copies arrived");
    }

    #[test]
    fn in_one_lane_every_copy_must_arrive() {
        let layout = Layout { stride: 64, slots: 4, lanes: 1 };
        let judge = |counts: &VerifyCounts| judge(counts, 4, layout, &ThroughputParams::default());
        assert_eq!(judge(&counts(4, 0, 0)), Ok(()));
        assert_eq!(judge(&counts(3, 0, 1)).unwrap_err().why, "3 of 4 copies arrived");
        assert!(judge(&counts(3, 1, 0)).unwrap_err().why.ends_with("1 in part, e.g. up to byte 0"));
    }

    #[test]
    fn copies_may_arrive_in_any_lane() {
        let layout = Layout { stride: 64, slots: 1, lanes: 2 };
        let fixed = ThroughputParams::default();
        assert_eq!(judge(&counts(1, 0, 1), 1, layout, &fixed), Ok(()));
        assert!(judge(&counts(0, 0, 2), 1, layout, &fixed).is_err());
        assert!(judge(&counts(1, 1, 0), 1, layout, &fixed).is_err());
        let drawn = ThroughputParams { length: Lengths::Uniform(1, 64), ..fixed };
        assert_eq!(judge(&counts(1, 1, 0), 1, layout, &drawn), Ok(()));
    }
}
