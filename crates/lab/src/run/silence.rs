//! How long workers that carry out an order may say nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::hand::{Heard, Said};
use crate::artefact::MAX_LOCK_WAIT;
use crate::message::Answer;
use crate::quantity::format_duration;
use crate::sample::{Failure, FailureKind};

/// How much longer than a probe's limit a worker may be silent.
const MARGIN: Duration = Duration::from_secs(20);
/// How long a worker may make one artefact: it waits for the lock, and compiling Linux takes four steps of 2 h at
/// most.
const MAX_PREPARING: Duration = MAX_LOCK_WAIT.saturating_add(Duration::from_secs(9 * 3600));

/// When the workers of an order were heard last, and which of them make an artefact.
pub(super) struct Silence {
    heard: Instant,
    preparing: BTreeSet<u64>,
    max_preparing: Duration,
}

impl Silence {
    /// An order was given now.
    pub(super) fn start(now: Instant) -> Self {
        Self { heard: now, preparing: BTreeSet::new(), max_preparing: MAX_PREPARING }
    }

    /// A worker said something.
    pub(super) fn heard(&mut self, said: &Said, now: Instant) {
        self.heard = now;
        match said.heard {
            Heard::Answer(Answer::Preparing { .. }) => drop(self.preparing.insert(said.hand)),
            Heard::Answer(Answer::Prepared) | Heard::Nonsense(_) | Heard::Gone => {
                self.lost(said.hand);
            }
            Heard::Answer(_) => {}
        }
    }

    /// A worker is no longer waited for.
    pub(super) fn lost(&mut self, hand: u64) {
        self.preparing.remove(&hand);
    }

    /// Why the workers are given up, if they were silent for too long: past a point's limit, or past that of
    /// an artefact while one is made.
    pub(super) fn over(&self, point: Duration, now: Instant) -> Option<Failure> {
        let silent = now.saturating_duration_since(self.heard);
        let timeout = |why: String| Some(Failure::new(FailureKind::Timeout, why));
        if self.preparing.is_empty() {
            return if silent < point.saturating_add(MARGIN) {
                None
            } else {
                timeout("the worker is silent".into())
            };
        }
        if silent < self.max_preparing {
            return None;
        }
        let limit = format_duration(self.max_preparing);
        timeout(format!("the worker prepares one artefact for more than {limit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: Duration = Duration::from_secs(10);

    fn said(hand: u64, answer: Answer) -> Said {
        Said { hand, heard: Heard::Answer(answer) }
    }

    fn preparing() -> Answer {
        Answer::Preparing { artefact: "table".into() }
    }

    #[test]
    fn who_prepares_may_be_silent_for_longer_and_not_for_ever() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silence =
            Silence { max_preparing: Duration::from_secs(100), ..Silence::start(start) };
        assert!(silence.over(POINT, after(29)).is_none());
        assert_eq!(silence.over(POINT, after(30)).unwrap().why, "the worker is silent");

        silence.heard(&said(1, preparing()), after(29));
        assert!(silence.over(POINT, after(128)).is_none());
        let failure = silence.over(POINT, after(129)).unwrap();
        assert_eq!(failure.kind, FailureKind::Timeout);
        assert_eq!(failure.why, "the worker prepares one artefact for more than 1 min 40 s");

        silence.heard(&said(1, preparing()), after(129));
        assert!(silence.over(POINT, after(228)).is_none(), "another artefact");
        silence.heard(&said(1, Answer::Prepared), after(228));
        assert!(silence.over(POINT, after(258)).is_some(), "a probe's limit again");
    }

    #[test]
    fn a_role_that_prepares_is_waited_for_by_the_others() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::start(start);
        silence.heard(&said(1, preparing()), start);
        silence.heard(&said(2, preparing()), start);
        silence.heard(&said(1, Answer::Prepared), start);
        assert!(silence.over(POINT, after(60)).is_none(), "2 still prepares");
        silence.lost(2);
        assert!(silence.over(POINT, after(60)).is_some());
    }

    #[test]
    fn the_limit_of_preparing_is_longer_than_the_wait_for_a_lock() {
        let start = Instant::now();
        let mut silence = Silence::start(start);
        silence.heard(&said(1, preparing()), start);
        assert!(
            silence.over(POINT, start + MAX_LOCK_WAIT + Duration::from_secs(8 * 3600)).is_none()
        );
        assert!(silence.over(POINT, start + Duration::from_secs(24 * 3600)).is_some());
    }
}
