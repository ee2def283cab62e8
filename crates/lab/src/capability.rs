//! Capabilities of the machine, for suites.

pub use machine::capability::{Capability, State};

use crate::sample::Failure;

/// Converts the result of a check into the state of a capability.
pub fn state_of(result: Result<String, Failure>) -> State {
    match result {
        Ok(detail) => State::Present { detail },
        Err(failure) => {
            State::Absent { reason: failure.why, remedy: failure.remedy.unwrap_or_default() }
        }
    }
}

/// Checks that the machine has a capability. A name that `machine` does not know passes.
///
/// # Errors
/// Returns `unavailable` with the reason and the remedy.
pub fn has(name: &str) -> Result<(), Failure> {
    match machine::capability::find(name).map(|capability| capability.state) {
        Some(State::Absent { reason, remedy }) => Err(Failure::unavailable(reason, remedy)),
        Some(State::Present { .. }) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_an_absence_with_its_remedy() {
        let absent = state_of(Err(Failure::unavailable("no such unit", "buy one")));
        let expected = State::Absent { reason: "no such unit".into(), remedy: "buy one".into() };
        assert_eq!(absent, expected);
        assert_eq!(state_of(Ok("two".into())), State::Present { detail: "two".into() });
    }

    #[test]
    fn only_a_present_capability_passes() {
        for capability in Capability::all() {
            assert_eq!(has(&capability.name).is_ok(), capability.state.is_present());
        }
        assert_eq!(has("warp-drive"), Ok(()));
    }
}
