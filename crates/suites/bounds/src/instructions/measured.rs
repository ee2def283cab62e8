//! What is measured of one form: copies that do not wait for one another, a chain of them, and counts.

use lab::measure::Measurement;
use lab::sample::Failure;

use super::chain::Chased;
use super::counted::{Counted, Counting};
use super::list::InstructionForm;
use super::plan::memory;
use super::prepared::Prepared;
use super::register_set::RegisterSet;
use super::sibling::Sibling;
use crate::timing::{Body, Data, LoopTimer, State, TimingError, TimingLoop, unroll};

/// Copies of what takes microseconds.
const FEW: usize = 12;
/// Loops of a few copies that take longer than this are not of many.
const LONG: u64 = 20_000;

/// One form under measurement.
pub(super) struct Measured<'a> {
    pub(super) form: &'a InstructionForm,
    pub(super) prepared: &'a Prepared,
    pub(super) data: &'a Data,
    pub(super) timer: LoopTimer<'a>,
    pub(super) counting: Option<&'a Counting>,
}

impl Measured<'_> {
    /// Throughput, latency where copies can feed one another, and what was counted; beside the same form on
    /// the core's other thread where that is asked for.
    ///
    /// # Errors
    /// What the form faults by; where there is no sibling, or a count is not of what was executed.
    pub(super) fn measure(&self, sibling_busy: bool) -> Result<Measurement, Failure> {
        if sibling_busy && self.form.reset_inputs {
            let why = "what its registers point to is this thread's alone";
            return Err(Failure::unavailable(why, "measure it with the sibling idle"));
        }
        let copies = self.copies()?;
        let state = || self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
        let breakers = self.prepared.plan.breakers(&state());
        let mut bodies = Vec::new();
        if !self.form.reset_inputs {
            bodies.push(self.body(copies, state(), |copies| self.independent(copies, &[]))?);
        }
        if !breakers.is_empty() || self.form.reset_inputs {
            bodies.push(self.body(copies, state(), |copies| self.independent(copies, &breakers))?);
        }
        let throughputs = bodies.len();
        let chain = self.chain(copies)?;
        let feeding = chain.as_ref().map(|(feeding, _)| feeding.clone()).map_err(String::clone);
        bodies.extend(chain.map(|(_, body)| body));
        if let Some(code) = &self.prepared.round_trip {
            bodies.push(self.body(copies / 2, state(), |pairs| code.repeat(pairs))?);
        }
        let bodies: Vec<&Body> = bodies.iter().collect();
        let beside = || sibling_busy.then(|| self.sibling(copies)).transpose();
        let cycles = self.timer.cycles_beside(&bodies, beside)?;
        let measurement = self.measurement(&cycles, throughputs, feeding);
        // Where registers are set anew, what sets them would be counted too.
        match self.counting.filter(|_| !sibling_busy && !self.form.reset_inputs) {
            Some(counting) => {
                let instructions = self.prepared.plan.effects().instructions;
                let counted = counting.of(bodies[0], self.data, cycles[0], instructions)?;
                Ok(with(measurement, &counted, cycles[0]))
            }
            None => Ok(measurement),
        }
    }

    fn measurement(
        &self,
        cycles: &[f64],
        throughputs: usize,
        feeding: Result<String, String>,
    ) -> Measurement {
        let throughput = cycles[..throughputs].iter().copied().fold(f64::INFINITY, f64::min);
        let mut rest = cycles[throughputs..].iter().copied();
        let mut measurement = Measurement::default().value("throughput", throughput);
        match feeding {
            Ok(feeding) => {
                if let Some(latency) = rest.next() {
                    measurement = measurement.value("latency", latency);
                    if self.form.integer {
                        measurement = measurement.value("off_integer", off_integer(latency));
                    }
                }
                measurement = measurement.covariate("chain", feeding.as_str());
            }
            Err(why) => measurement = measurement.covariate("chain", why.as_str()),
        }
        if let (Some(_), Some(both)) = (&self.prepared.round_trip, rest.next()) {
            measurement = measurement.value("round_trip", both);
        }
        measurement
    }

    /// As many as the processor keeps decoded, unless a few take long. The first run of a form: what faults
    /// does so here.
    fn copies(&self) -> Result<usize, Failure> {
        let state = self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
        let breakers = self.prepared.plan.breakers(&state);
        let few = TimingLoop::new(&self.independent(FEW, &breakers), self.moves_stack())?;
        let mut least = u64::MAX;
        for _ in 0..2 {
            self.data.fill(memory(self.form));
            least = least.min(few.ticks(&mut state.clone(), 1).map_err(TimingError::from)?);
        }
        if least > LONG { Ok(FEW) } else { unroll::copies(&self.independent(1, &breakers)) }
    }

    fn moves_stack(&self) -> bool {
        self.prepared.plan.effects().moves_stack
    }

    fn independent(&self, copies: usize, breakers: &[u8]) -> Vec<u8> {
        let all = self.prepared.independent.iter().cycle().take(copies);
        all.flat_map(|code| breakers.iter().chain(code)).copied().collect()
    }

    fn body(
        &self,
        copies: usize,
        state: State,
        code: impl Fn(usize) -> Vec<u8>,
    ) -> Result<Body<'_>, Failure> {
        let fill = memory(self.form);
        let fill = move |data: &Data| data.fill(fill);
        Body::new(copies, self.moves_stack(), state, fill, |copies| Ok(code(copies)))
    }

    /// The chain, with what its copies feed one another by; or why there is none.
    fn chain(&self, copies: usize) -> Result<Result<(String, Body<'_>), String>, Failure> {
        let (feeding, links) = match &self.prepared.chain {
            Ok(chain) => chain,
            Err(why) => return Ok(Err(why.clone())),
        };
        for link in links {
            let state = self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
            let code = |copies| link.code.repeat(copies / link.copies);
            let mut body = self.body(copies, state, code)?;
            if let Some(chased) = link.chased {
                begin(&mut body.state, &chased, self.data);
                let fill = body.fill;
                body.fill = Box::new(move |data| {
                    fill(data);
                    data.set(0, chased.memory(data));
                });
                if !self.holds_still(&link.code, &chased, &body)? {
                    continue;
                }
            }
            return Ok(Ok((feeding.to_string(), body)));
        }
        Ok(Err("what it loads cannot be made the address of the next load".into()))
    }

    /// Whether one link of a pointer chase, run in the body's place, leaves the chased register as it was.
    fn holds_still(&self, link: &[u8], chased: &Chased, body: &Body) -> Result<bool, Failure> {
        let mut state = body.state.clone();
        let before = state.general(chased.register);
        (body.fill)(self.data);
        let once = TimingLoop::new(link, self.moves_stack())?;
        Ok(once.run(&mut state, 1).is_ok() && state.general(chased.register) == before)
    }

    /// The other thread of this core, running the same independent copies.
    fn sibling(&self, copies: usize) -> Result<Sibling, Failure> {
        let code = self.independent(copies, &[]);
        let looped = TimingLoop::new(&code, self.moves_stack())?;
        let (form, plan) = (self.form.clone(), self.prepared.plan.clone());
        Sibling::start(looped, move |data| {
            data.fill(memory(&form));
            plan.state(&form, data, RegisterSet::Whole)
        })
    }
}

/// What was counted of copies that take so many core cycles each.
fn with(measurement: Measurement, counted: &Counted, cycles: f64) -> Measurement {
    let measurement = measurement.value("uops", counted.uops);
    let measurement = measurement.covariate("uops_event", counted.event);
    let ports = counted.ports.iter();
    ports.fold(measurement, |told, (port, uops)| told.value(port, uops / cycles))
}

fn begin(state: &mut State, chased: &Chased, data: &Data) {
    state.set_general(chased.register, if chased.holds_address { data.address() } else { 0 });
}

impl Chased {
    /// What the memory holds at first.
    fn memory(&self, data: &Data) -> u64 {
        if self.memory_holds_address { data.address() } else { 0 }
    }
}

/// How far a value is from a whole number, over what is allowed: 0.05 cycles or 0.5%, the larger.
fn off_integer(cycles: f64) -> f64 {
    let whole = cycles.round().max(1.0);
    (cycles - whole).abs() / f64::max(0.05, 0.005 * whole)
}

#[cfg(test)]
mod tests;
