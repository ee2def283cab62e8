//! Measurements of one form: independent copies, a chain of copies, and counters.

use lab::measure::Measurement;
use lab::sample::Failure;

use super::chain::Chased;
use super::counted::{Counted, Counting};
use super::list::InstructionForm;
use super::plan::memory;
use super::prepared::Prepared;
use super::register_set::RegisterSet;
use super::sibling::{self, Sibling};
use crate::timing::{Body, Data, LoopTimer, State, TimingError, TimingLoop, unroll};

/// Number of copies of a form that takes microseconds.
const FEW: usize = 12;
/// Ticks of a loop of [`FEW`] copies above which no more copies are used.
const LONG: u64 = 20_000;

/// Form under measurement.
pub(super) struct Measured<'a> {
    pub(super) form: &'a InstructionForm,
    pub(super) prepared: &'a Prepared,
    pub(super) data: &'a Data,
    pub(super) timer: LoopTimer<'a>,
    pub(super) counting: Option<&'a Counting>,
}

impl Measured<'_> {
    /// Measures throughput, latency if copies can depend on each other, and counters; with `sibling_busy`, while the
    /// core's other thread executes the same form.
    ///
    /// # Errors
    /// Returns the signal of the form, `unavailable` if there is no sibling, and a failed check if a count is wrong.
    pub(super) fn measure(&self, sibling_busy: bool) -> Result<Measurement, Failure> {
        if sibling_busy {
            sibling::check(self.form)?;
        }
        let copies = self.copies()?;
        let state = || self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
        let breakers = self.prepared.plan.breakers(&state());
        let mut bodies = Vec::new();
        if !self.form.reset_inputs {
            let body = self.body(copies, state(), |copies| self.independent(copies, &[]))?;
            bodies.push(body.named("independent"));
        }
        if !breakers.is_empty() || self.form.reset_inputs {
            let body = self.body(copies, state(), |copies| self.independent(copies, &breakers))?;
            bodies.push(body.named("independent, dependencies broken"));
        }
        let throughputs = bodies.len();
        let chain = self.chain(copies)?;
        let dependency = chain.as_ref().map(|(name, _)| name.clone()).map_err(String::clone);
        bodies.extend(chain.map(|(name, body)| body.named(format!("chain through {name}"))));
        if let Some(code) = &self.prepared.round_trip {
            let body = self.body(copies / 2, state(), |pairs| code.repeat(pairs))?;
            bodies.push(body.named("round trip"));
        }
        let bodies: Vec<&Body> = bodies.iter().collect();
        let load = || sibling_busy.then(|| self.sibling(copies)).transpose();
        let cycles = self.timer.cycles_under_load(&bodies, load)?;
        let measurement = self.to_measurement(&cycles, throughputs, dependency);
        // The instructions that reset registers would be counted, too.
        match self.counting.filter(|_| !sibling_busy && !self.form.reset_inputs) {
            Some(counting) => {
                let instructions = self.prepared.plan.effects().instructions;
                let counted = counting.of(bodies[0], self.data, cycles[0], instructions)?;
                Ok(with_counts(measurement, &counted, cycles[0]))
            }
            None => Ok(measurement),
        }
    }

    fn to_measurement(
        &self,
        cycles: &[f64],
        throughputs: usize,
        dependency: Result<String, String>,
    ) -> Measurement {
        let throughput = cycles[..throughputs].iter().copied().fold(f64::INFINITY, f64::min);
        let mut rest = cycles[throughputs..].iter().copied();
        let mut measurement = Measurement::default().value("throughput", throughput);
        match dependency {
            Ok(dependency) => {
                if let Some(latency) = rest.next() {
                    measurement = measurement.value("latency", latency);
                    if self.form.integer {
                        measurement = measurement.value("off_integer", off_integer(latency));
                    }
                }
                measurement = measurement.covariate("chain", dependency.as_str());
            }
            Err(why) => measurement = measurement.covariate("chain", why.as_str()),
        }
        if let (Some(_), Some(both)) = (&self.prepared.round_trip, rest.next()) {
            measurement = measurement.value("round_trip", both);
        }
        measurement
    }

    /// Returns the number of copies: as many as the cache of decoded instructions can contain, or a few if the form takes
    /// long. This is the first run of a form, so a fault occurs here.
    fn copies(&self) -> Result<usize, Failure> {
        let state = self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
        let breakers = self.prepared.plan.breakers(&state);
        let few = TimingLoop::new(&self.independent(FEW, &breakers), self.moves_stack())?;
        let mut fastest = u64::MAX;
        for _ in 0..2 {
            self.data.fill(memory(self.form));
            fastest = fastest.min(few.ticks(&mut state.clone(), 1).map_err(TimingError::from)?);
        }
        if fastest > LONG { Ok(FEW) } else { unroll::copies(&self.independent(1, &breakers)) }
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
        let placement = self.timer.placement;
        Body::new(placement, copies, self.moves_stack(), state, fill, |copies| Ok(code(copies)))
    }

    /// Returns the dependency and the body of the chain, or the reason why there is none.
    fn chain(&self, copies: usize) -> Result<Result<(String, Body<'_>), String>, Failure> {
        let (dependency, links) = match &self.prepared.chain {
            Ok(chain) => chain,
            Err(why) => return Ok(Err(why.clone())),
        };
        for link in links {
            let state = self.prepared.plan.state(self.form, self.data, RegisterSet::Whole);
            let code = |copies| link.code.repeat(copies / link.copies);
            let mut body = self.body(copies, state, code)?;
            if let Some(chased) = link.chased {
                init_chase(&mut body.state, &chased, self.data);
                let fill = body.fill;
                body.fill = Box::new(move |data| {
                    fill(data);
                    data.set(0, chased.memory(data));
                });
                if !self.is_stable(&link.code, &chased, &body)? {
                    continue;
                }
            }
            return Ok(Ok((dependency.to_string(), body)));
        }
        Ok(Err("the loaded value cannot be the address of the next load".into()))
    }

    /// Returns whether one link of a pointer chase preserves the chased register.
    fn is_stable(&self, link: &[u8], chased: &Chased, body: &Body) -> Result<bool, Failure> {
        let mut state = body.state.clone();
        let before = state.general(chased.register);
        (body.fill)(self.data);
        let once = TimingLoop::new(link, self.moves_stack())?;
        Ok(once.run(&mut state, 1).is_ok() && state.general(chased.register) == before)
    }

    /// Starts the same independent copies on the core's other thread.
    fn sibling(&self, copies: usize) -> Result<Sibling, Failure> {
        let code = self.independent(copies, &[]);
        let timing_loop = TimingLoop::placed(&code, self.moves_stack(), self.timer.placement)?;
        Sibling::of_form(self.form, self.prepared, timing_loop)
    }
}

/// Adds the counts of copies to a measurement, given the core cycles per copy.
fn with_counts(measurement: Measurement, counted: &Counted, cycles: f64) -> Measurement {
    let measurement = measurement.value("uops", counted.uops);
    let measurement = measurement.covariate("uops_event", counted.event);
    let ports = counted.ports.iter();
    ports.fold(measurement, |measurement, (port, uops)| measurement.value(port, uops / cycles))
}

fn init_chase(state: &mut State, chased: &Chased, data: &Data) {
    state.set_general(chased.register, if chased.holds_address { data.address() } else { 0 });
}

impl Chased {
    /// Returns the initial content of the memory.
    fn memory(&self, data: &Data) -> u64 {
        if self.memory_holds_address { data.address() } else { 0 }
    }
}

/// Returns the distance of a value from a whole number, relative to the tolerance: 0.05 cycles or 0.5%, whichever is
/// larger.
fn off_integer(cycles: f64) -> f64 {
    let whole = cycles.round().max(1.0);
    (cycles - whole).abs() / f64::max(0.05, 0.005 * whole)
}

#[cfg(test)]
pub(crate) mod tests;
