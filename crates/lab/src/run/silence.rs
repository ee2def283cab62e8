//! The maximum time for which workers may be silent during an order.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::artefact::MAX_LOCK_WAIT;
use crate::link::{LinkOutput, Output};
use crate::message::Answer;
use crate::quantity::format_duration;
use crate::sample::{Failure, FailureKind};

/// How much longer than the limit of a sample a worker may be silent.
const MARGIN: Duration = Duration::from_secs(20);
/// The maximum time to make one artefact: the wait for its lock, then e.g. the four steps of compiling Linux of at most
/// 2 h each.
const MAX_PREPARATION: Duration = MAX_LOCK_WAIT.saturating_add(Duration::from_secs(9 * 3600));

/// The time of the last output of the workers of an order, and which of them are making an artefact.
pub(super) struct Silence {
    last_output: Instant,
    preparing: BTreeSet<u64>,
    max_preparation: Duration,
}

impl Silence {
    /// Starts with an order that is given now.
    pub(super) fn start(now: Instant) -> Self {
        Self { last_output: now, preparing: BTreeSet::new(), max_preparation: MAX_PREPARATION }
    }

    /// Records an output of a worker.
    pub(super) fn heard(&mut self, from: &LinkOutput, now: Instant) {
        self.last_output = now;
        match from.output {
            Output::Answer(Answer::Preparing { .. }) => drop(self.preparing.insert(from.link)),
            Output::Answer(Answer::Prepared) | Output::Garbage(_) | Output::Closed => {
                self.lost(from.link);
            }
            Output::Answer(_) => {}
        }
    }

    /// Records that a worker was lost.
    pub(super) fn lost(&mut self, link: u64) {
        self.preparing.remove(&link);
    }

    /// Returns a timeout if the workers were silent for too long: longer than the limit of a sample, or than the limit of
    /// an artefact while one of them is making one.
    pub(super) fn timeout(&self, limit: Duration, now: Instant) -> Option<Failure> {
        let silent = now.saturating_duration_since(self.last_output);
        let timeout = |why: String| Some(Failure::new(FailureKind::Timeout, why));
        if self.preparing.is_empty() {
            let is_late = silent >= limit.saturating_add(MARGIN);
            return if is_late { timeout("the worker is silent".into()) } else { None };
        }
        if silent < self.max_preparation {
            return None;
        }
        let limit = format_duration(self.max_preparation);
        timeout(format!("the worker has been making one artefact for more than {limit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn output(link: u64, answer: Answer) -> LinkOutput {
        LinkOutput { link, output: Output::Answer(answer) }
    }

    fn preparing() -> Answer {
        Answer::Preparing { artefact: "table".into() }
    }

    #[test]
    fn a_worker_that_makes_an_artefact_has_a_longer_limit() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silence =
            Silence { max_preparation: Duration::from_secs(100), ..Silence::start(start) };
        assert!(silence.timeout(LIMIT, after(29)).is_none());
        assert_eq!(silence.timeout(LIMIT, after(30)).unwrap().why, "the worker is silent");

        silence.heard(&output(1, preparing()), after(29));
        assert!(silence.timeout(LIMIT, after(128)).is_none());
        let failure = silence.timeout(LIMIT, after(129)).unwrap();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let why = "the worker has been making one artefact for more than 1 min 40 s";
        assert_eq!(failure.why, why);

        silence.heard(&output(1, preparing()), after(129));
        assert!(silence.timeout(LIMIT, after(228)).is_none(), "another artefact");
        silence.heard(&output(1, Answer::Prepared), after(228));
        assert!(silence.timeout(LIMIT, after(258)).is_some(), "the limit of a sample again");
    }

    #[test]
    fn the_other_roles_wait_for_a_role_that_makes_an_artefact() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::start(start);
        silence.heard(&output(1, preparing()), start);
        silence.heard(&output(2, preparing()), start);
        silence.heard(&output(1, Answer::Prepared), start);
        assert!(silence.timeout(LIMIT, after(60)).is_none(), "2 is not ready");
        silence.lost(2);
        assert!(silence.timeout(LIMIT, after(60)).is_some());
    }

    #[test]
    fn the_limit_of_an_artefact_is_longer_than_the_wait_for_its_lock() {
        let start = Instant::now();
        let mut silence = Silence::start(start);
        silence.heard(&output(1, preparing()), start);
        let after = |time: Duration| start + time;
        assert!(
            silence.timeout(LIMIT, after(MAX_LOCK_WAIT + Duration::from_secs(8 * 3600))).is_none()
        );
        assert!(silence.timeout(LIMIT, after(Duration::from_secs(24 * 3600))).is_some());
    }
}
