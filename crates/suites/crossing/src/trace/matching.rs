//! Matching of tracepoint events to crossings.

use std::ops::Range;

use lab::sample::Failure;

use super::events::TraceEvent;
use super::stamps::Stamp;

/// Matches each crossing to the event with its mark between its two stamps, within `tolerance` ticks, and passes the
/// pairs to `matched` in order.
///
/// An address may fault twice if the kernel is interrupted and retries; the first event counts.
///
/// # Errors
/// Returns `check` if a crossing has no event or an event no crossing.
pub fn match_events(
    stamps: &[Stamp],
    traced: &[TraceEvent],
    marks: &Range<u64>,
    tolerance: u64,
    mut matched: impl FnMut(&Stamp, &TraceEvent),
) -> Result<(), Failure> {
    let mut events = traced.iter().filter(|event| marks.contains(&event.mark)).peekable();
    let mut found = 0;
    for stamp in stamps {
        let within = |event: &TraceEvent| {
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
            "{} events in excess of {} crossings, first {:#x} at {}",
            events.count() + 1,
            stamps.len(),
            event.mark,
            event.ticks
        ))),
        (Some(stamp), event) => Err(Failure::check(format!(
            "{found} of {} crossings traced: no event {3:#x} between {1} and {2}, next: {4}",
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

    fn match_all(events: &[(u64, u64)], tolerance: u64) -> Result<Vec<u64>, String> {
        let traced: Vec<_> =
            events.iter().map(|(ticks, mark)| TraceEvent { ticks: *ticks, mark: *mark }).collect();
        let mut times = Vec::new();
        match_events(&stamps(), &traced, &MARKS, tolerance, |stamp, event| {
            times.push(event.ticks - stamp.before);
        })
        .map(|()| times)
        .map_err(|failure| failure.to_string())
    }

    #[test]
    fn each_crossing_is_matched_to_its_event() {
        let others = [(5, 7), (20, 10), (30, 99), (120, 11), (240, 12), (245, 3)];
        assert_eq!(match_all(&others, 0), Ok(vec![20, 20, 40]));
        assert_eq!(match_all(&[(20, 10), (40, 10), (120, 11), (240, 12)], 0), Ok(vec![20, 20, 40]));
    }

    #[test]
    fn missing_excess_and_misplaced_events_are_errors() {
        let fails = |events: &[(u64, u64)], tolerance| match_all(events, tolerance).unwrap_err();
        assert!(fails(&[(20, 10), (240, 12)], 0).contains("1 of 3 crossings traced"));
        assert!(
            fails(&[], 0).contains("0 of 3 crossings traced")
                && fails(&[], 0).contains("next: none")
        );
        assert!(fails(&[(20, 10), (160, 11), (240, 12)], 5).contains("1 of 3 crossings"));
        assert!(match_all(&[(20, 10), (160, 11), (240, 12)], 10).is_ok());
        let more = [(20, 10), (120, 11), (240, 12), (260, 13), (270, 14)];
        assert!(fails(&more, 0).contains("2 events in excess of 3 crossings"));
        assert!(fails(&[(120, 11), (20, 10), (240, 12)], 0).contains("0 of 3 crossings"));
    }
}
