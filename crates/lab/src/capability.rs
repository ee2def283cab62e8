//! Capabilities of the machine, for suites.

pub use machine::capability::{Capability, State};

use crate::sample::Failure;

/// Returns a capability from the result of its check: the detail, or why it is absent.
pub fn checked(
    name: impl Into<String>,
    about: impl Into<String>,
    result: Result<String, Failure>,
) -> Capability {
    let state = match result {
        Ok(detail) => State::Present { detail },
        Err(failure) => {
            State::Absent { reason: failure.why, remedy: failure.remedy.unwrap_or_default() }
        }
    };
    Capability { name: name.into(), about: about.into(), state }
}

/// Checks that the machine has a capability. A name that `machine` does not know passes.
///
/// # Errors
/// Returns `unavailable` with the reason and the remedy.
pub fn has(name: &str) -> Result<(), Failure> {
    let Some(Capability { about, state, .. }) = machine::capability::find(name) else {
        return Ok(());
    };
    present(state).map_err(|failure| failure.with_cause(format!("{about}: not available")))
}

fn present(state: State) -> Result<(), Failure> {
    match state {
        State::Absent { reason, remedy } => Err(Failure::unavailable(reason, remedy)),
        State::Present { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_an_absence_with_its_remedy() {
        let state = |result| checked("unit", "a unit", result).state;
        let absent = state(Err(Failure::unavailable("no such unit", "buy one")));
        let expected = State::Absent { reason: "no such unit".into(), remedy: "buy one".into() };
        assert_eq!(absent, expected);
        assert_eq!(state(Ok("two".into())), State::Present { detail: "two".into() });
    }

    #[test]
    fn only_a_present_capability_passes() {
        let absent = State::Absent { reason: "no unit".into(), remedy: "buy one".into() };
        assert_eq!(present(absent), Err(Failure::unavailable("no unit", "buy one")));
        assert_eq!(present(State::Present { detail: "two".into() }), Ok(()));
    }

    #[test]
    fn an_unknown_name_passes() {
        assert_eq!(has("warp-drive"), Ok(()));
    }
}
