//! Whether the copies of a sample arrived.

use std::ops::Range;

use lab::sample::Failure;

use super::Call;
use super::layout::Layout;
use super::params::ThroughputParams;
use super::regions::Pair;
use crate::memory::Tally;
use crate::pattern::Pattern;

/// Verifies the last copies that were made, by number; gives the bytes verified.
pub(super) fn delivery(
    params: &ThroughputParams,
    layout: Layout,
    pair: &mut Pair,
    pattern: Option<Pattern>,
    ring: &[Call],
    made: Range<usize>,
) -> Result<u64, Failure> {
    let calls = made.map(|number| ring[number & (ring.len() - 1)]);
    // In one slot each copy overwrites the one before: the longest tells of all.
    let calls: Vec<Call> = match layout.slots {
        1 => calls.max_by_key(|call| call.length).into_iter().collect(),
        _ => calls.collect(),
    };
    let mut whole = Tally::default();
    for lane in 0..layout.lanes {
        let start = lane * layout.lane();
        let tally = match pattern {
            Some(pattern) => {
                let here = Pattern { offset: pattern.offset.wrapping_add(start as u8) };
                pair.destination.verify(here, params.offset + start, &calls)?
            }
            None => compared(pair, params.offset, start, &calls),
        };
        whole.delivered += tally.delivered;
        whole.bytes += tally.bytes;
        whole.missing += tally.missing;
        whole.torn += tally.torn;
        whole.torn_at = whole.torn_at.max(tally.torn_at);
    }
    judged(&whole, calls.len() as u64, layout, params)?;
    Ok(whole.bytes)
}

/// With one lane every copy must be there, whole. With more, each was made in a lane that was free:
/// as many must be there, and none in part, unless shorter ones went to the same place.
fn judged(
    tally: &Tally,
    calls: u64,
    layout: Layout,
    params: &ThroughputParams,
) -> Result<(), Failure> {
    let parts = layout.lanes > 1 && layout.slots == 1 && !params.length.is_fixed();
    if tally.delivered >= calls && (tally.torn == 0 || parts) {
        return Ok(());
    }
    let torn = match tally.torn {
        0 => String::new(),
        torn => format!(", {torn} in part, as at byte {}", tally.torn_at),
    };
    Err(Failure::check(format!("{} of {calls} copies arrived{torn}", tally.delivered)))
}

/// Compares with a source whose bytes are not ours.
fn compared(pair: &Pair, offset: usize, start: usize, calls: &[Call]) -> Tally {
    let mut tally = Tally::default();
    for call in calls {
        let (at, length) = (start + call.at as usize, call.length as usize);
        // SAFETY: both regions hold the layout's bytes and the offset, and nobody copies now.
        let (is, should) = unsafe {
            (
                std::slice::from_raw_parts(pair.destination.start().add(offset + at), length),
                std::slice::from_raw_parts(pair.source.start(), at + length),
            )
        };
        match is.iter().zip(&should[at..]).position(|(is, should)| is != should) {
            None => {
                tally.delivered += 1;
                tally.bytes += length as u64;
            }
            Some(0) => tally.missing += 1,
            Some(first) => {
                tally.torn += 1;
                tally.torn_at = (at + first) as u64;
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengths::Lengths;

    fn tally(delivered: u64, torn: u64, missing: u64) -> Tally {
        Tally { delivered, torn, missing, ..Tally::default() }
    }

    #[test]
    fn one_lane_must_hold_all() {
        let layout = Layout { stride: 64, slots: 4, lanes: 1 };
        let judge = |tally: &Tally| judged(tally, 4, layout, &ThroughputParams::default());
        assert_eq!(judge(&tally(4, 0, 0)), Ok(()));
        assert_eq!(judge(&tally(3, 0, 1)).unwrap_err().why, "3 of 4 copies arrived");
        assert!(judge(&tally(3, 1, 0)).unwrap_err().why.ends_with("1 in part, as at byte 0"));
    }

    #[test]
    fn lanes_share_the_copies() {
        let layout = Layout { stride: 64, slots: 1, lanes: 2 };
        let fixed = ThroughputParams::default();
        assert_eq!(judged(&tally(1, 0, 1), 1, layout, &fixed), Ok(()));
        assert!(judged(&tally(0, 0, 2), 1, layout, &fixed).is_err());
        assert!(judged(&tally(1, 1, 0), 1, layout, &fixed).is_err());
        let drawn = ThroughputParams { length: Lengths::Uniform(1, 64), ..fixed };
        assert_eq!(judged(&tally(1, 1, 0), 1, layout, &drawn), Ok(()));
    }
}
