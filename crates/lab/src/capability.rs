//! Capabilities as suites ask for them and tell of them.

pub use machine::capability::{Capability, State};

use crate::sample::Failure;

/// What a try showed, as a capability's state.
pub fn state_of(tried: Result<String, Failure>) -> State {
    match tried {
        Ok(detail) => State::Present { detail },
        Err(failure) => {
            State::Absent { reason: failure.why, remedy: failure.remedy.unwrap_or_default() }
        }
    }
}

/// Whether the machine has one of the capabilities that `machine` knows; a name that it does not know
/// stands in no point's way.
///
/// # Errors
/// The reason why not, and the remedy.
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
    fn a_failed_try_is_an_absence_with_its_remedy() {
        let absent = state_of(Err(Failure::unavailable("no such unit", "buy one")));
        let expected = State::Absent { reason: "no such unit".into(), remedy: "buy one".into() };
        assert_eq!(absent, expected);
        assert_eq!(state_of(Ok("two".into())), State::Present { detail: "two".into() });
    }

    #[test]
    fn a_capability_is_there_or_says_why_not() {
        for capability in Capability::all() {
            assert_eq!(has(&capability.name).is_ok(), capability.state.is_present());
        }
        assert_eq!(has("warp-drive"), Ok(()));
    }
}
