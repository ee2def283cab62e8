//! Which event of the tracepoint belongs to which crossing.

use std::ops::Range;

use lab::sample::Failure;

use super::events::Traced;
use super::stamps::Stamp;

/// Pairs each crossing with the event that has its mark and lies between its two stamps, by so many
/// ticks that are uncertain; hands each pair on, in order.
///
/// The kernel may have one address fault twice (it was interrupted, and tried again): the first counts.
///
/// # Errors
/// A check where a crossing has no event of its own, or an event no crossing.
pub fn pair(
    stamps: &[Stamp],
    traced: &[Traced],
    marks: &Range<u64>,
    tolerance: u64,
    mut matched: impl FnMut(&Stamp, &Traced),
) -> Result<(), Failure> {
    let mut events = traced.iter().filter(|event| marks.contains(&event.mark)).peekable();
    let mut found = 0;
    for stamp in stamps {
        let within = |event: &Traced| {
            let window =
                stamp.before.saturating_sub(tolerance)..=stamp.after.saturating_add(tolerance);
            event.mark == stamp.mark && window.contains(&event.ticks)
        };
        let Some(event) = events.next_if(|event| within(event)) else { break };
        matched(stamp, event);
        found += 1;
        while events.next_if(|event| within(event)).is_some() {}
    }
    match (stamps.get(found), events.next()) {
        (None, None) => Ok(()),
        (None, Some(event)) => Err(Failure::check(format!(
            "the tracepoint saw {} more than {} crossings, first {:#x} at {}",
            events.count() + 1,
            stamps.len(),
            event.mark,
            event.ticks
        ))),
        (Some(stamp), event) => Err(Failure::check(format!(
            "the tracepoint saw {found} of {} crossings: between {} and {} is no event {:#x}, next is {}",
            stamps.len(),
            stamp.before,
            stamp.after,
            stamp.mark,
            event.map_or("none".into(), |event| format!("{:#x} at {}", event.mark, event.ticks))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Range<u64> = 10..20;

    fn stamps() -> Vec<Stamp> {
        (0..3).map(|n| Stamp { before: n * 100, after: n * 100 + 50, mark: 10 + n }).collect()
    }

    fn told(events: &[(u64, u64)], tolerance: u64) -> Result<Vec<u64>, String> {
        let traced: Vec<_> =
            events.iter().map(|(ticks, mark)| Traced { ticks: *ticks, mark: *mark }).collect();
        let mut took = Vec::new();
        pair(&stamps(), &traced, &MARKS, tolerance, |stamp, event| {
            took.push(event.ticks - stamp.before);
        })
        .map(|()| took)
        .map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_crossing_gets_its_own_event() {
        let strangers = [(5, 7), (20, 10), (30, 99), (120, 11), (240, 12), (245, 3)];
        assert_eq!(told(&strangers, 0), Ok(vec![20, 20, 40]));
        assert_eq!(told(&[(20, 10), (40, 10), (120, 11), (240, 12)], 0), Ok(vec![20, 20, 40]));
    }

    #[test]
    fn what_is_missing_too_much_or_outside_its_time_is_an_error() {
        let fails = |events: &[(u64, u64)], tolerance| told(events, tolerance).unwrap_err();
        assert!(fails(&[(20, 10), (240, 12)], 0).contains("saw 1 of 3 crossings"));
        assert!(
            fails(&[], 0).contains("saw 0 of 3 crossings") && fails(&[], 0).contains("is none")
        );
        assert!(fails(&[(20, 10), (160, 11), (240, 12)], 5).contains("saw 1 of 3"));
        assert!(told(&[(20, 10), (160, 11), (240, 12)], 10).is_ok());
        let more = [(20, 10), (120, 11), (240, 12), (260, 13), (270, 14)];
        assert!(fails(&more, 0).contains("2 more than 3 crossings"));
        assert!(fails(&[(120, 11), (20, 10), (240, 12)], 0).contains("saw 0 of 3"));
    }
}
