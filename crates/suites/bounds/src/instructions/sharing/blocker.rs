//! Blockers: forms that keep one kind of execution unit busy (`blockers.toml`), with their times.

use lab::data::read_toml;
use lab::sample::Failure;
use serde::Deserialize;

use super::mixture::times;
use crate::instructions::list::List;
use crate::instructions::prepared::prepare;
use crate::instructions::register_set::RegisterSet;
use crate::timing::{Body, Data, LoopTimer, State, unroll};

const FILE: &str = "blockers.toml";
/// Initial value of the vectors of blockers: 1.0 in each element.
const ONE: u64 = 0x3FF0_0000_0000_0000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    blocker: Vec<Declared>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    against: String,
    form: String,
}

/// A blocker as machine code.
pub(super) struct Blocker {
    /// Metric of the slowdown that it causes.
    pub(super) against: String,
    pub(super) names_general: bool,
    pub(super) copies: Vec<Vec<u8>>,
    /// Instructions per copy, including those that make it independent.
    pub(super) instructions: usize,
    /// Core cycles per copy without another form.
    pub(super) alone: f64,
}

/// Measures the blockers that this CPU supports.
///
/// # Errors
/// Returns the fault in the file, or the failure of a measurement.
pub(super) fn all(data: &Data, timer: &LoopTimer) -> Result<Vec<Blocker>, Failure> {
    let declared = declared()?;
    let blockers = declared.iter().map(|one| Blocker::new(one, data, timer));
    blockers.filter_map(Result::transpose).collect()
}

fn declared() -> Result<Vec<Declared>, Failure> {
    let file = read_toml(FILE, include_str!("../../../blockers.toml"));
    file.map(|File { blocker }| blocker).map_err(|fault| Failure::failed(fault.to_string()))
}

impl Blocker {
    /// Measures a blocker; `None` if this CPU does not support it.
    fn new(declared: &Declared, data: &Data, timer: &LoopTimer) -> Result<Option<Self>, Failure> {
        let failed = |why| Failure::failed(format!("{FILE}: '{}': {why}", declared.form));
        let list = List::of_text(FILE, &declared.form).map_err(failed)?;
        let Some(Ok(prepared)) = prepare(&list).pop() else { return Ok(None) };
        let (form, plan) = (&list.forms[0], &prepared.plan);
        let mut state = plan.state(form, data, RegisterSet::Second);
        // The upper half of a dividend.
        state.set_general(2, 0);
        let breakers = plan.breakers(&state);
        let copies = super::copies(form, plan, RegisterSet::Second, &breakers)?;
        let named = if breakers.is_empty() { 0 } else { 2 };
        let alone = alone(&copies, data, timer, &declared.against)?;
        Ok(Some(Self {
            against: declared.against.clone(),
            names_general: plan.names_general(),
            copies,
            instructions: 1 + named,
            alone,
        }))
    }
}

/// Returns the core cycles per copy without another form.
fn alone(
    copies: &[Vec<u8>],
    data: &Data,
    timer: &LoopTimer,
    against: &str,
) -> Result<f64, Failure> {
    let mut state = State::new(data);
    prepare_second(&mut state);
    let code = |times| Ok(copies.iter().cycle().take(times).flatten().copied().collect());
    let times = times(1, unroll::instructions()?);
    let body = Body::new(timer.placement, times, false, state, |data| data.fill(1), code)?;
    Ok(timer.cycles_of(&body.named(format!("blocker of {against}")))?)
}

/// Initialises the registers of [`RegisterSet::Second`].
pub(super) fn prepare_second(state: &mut State) {
    (9..16).for_each(|number| state.set_vector(number, ONE));
    (8..13).for_each(|number| state.set_general(number, 1));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::METRICS;
    use super::*;
    use crate::instructions::measured::tests::at_a_quiet_moment;

    #[test]
    fn every_blocker_has_a_metric_and_assembles() {
        let declared = declared().unwrap();
        assert_eq!(declared.len() + 1, METRICS.len());
        for one in &declared {
            assert!(METRICS.iter().any(|metric| metric.name == one.against), "{}", one.against);
        }
        let tsc = match machine::tsc::Tsc::get() {
            Ok(tsc) => tsc,
            Err(why) => return machine::untested::note("bounds: blockers measured alone", &why),
        };
        let data = Data::new().unwrap();
        let timer = LoopTimer::new(tsc, &data, Duration::from_millis(1), 0);
        at_a_quiet_moment(|| {
            let blockers = all(&data, &timer).unwrap();
            // Every 64-bit CPU supports the blockers of integers, SSE2 and memory.
            assert!(blockers.len() >= 9, "{} blockers", blockers.len());
            for one in blockers {
                assert!(one.instructions >= 1 && one.copies.len() >= 4 && one.alone > 0.1);
            }
        });
    }
}
