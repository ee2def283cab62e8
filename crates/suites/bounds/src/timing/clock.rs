//! Core cycles of loop bodies: repeats between two calibrations of the core clock.

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::core_clock;
use machine::timed_code;
use machine::tsc::Tsc;

use super::{Data, Placement, RaisedSignal, State, TimingLoop};

/// Repeats of each measurement, as in Intel MPX Explained.
const REPEATS: usize = 10;
/// Maximum number of instructions per repeat; Intel MPX Explained uses 100 copies × 1000 loops.
const MAX_INSTRUCTIONS: u64 = 100_000;
/// Relative difference of the calibrations before and after a measurement above which it is repeated.
const MAX_CLOCK_CHANGE: f64 = 0.005;
/// Difference of the two fastest repeats of a loop, relative to the time of the copies, above which the measurement is
/// repeated. A disturbance rarely adds the same time to both.
const MAX_SPREAD: f64 = 0.05;
/// Maximum number of attempts before a measurement is void.
const MAX_ATTEMPTS: usize = 3;

/// Two loops over copies of the measured code, with the initial registers and memory. The time of the copies is the
/// difference between the loop over all and the loop over half of them, which excludes the loop itself, entry and exit.
pub(crate) struct Body<'a> {
    /// Name of the copies in the record of timed code.
    name: Cow<'static, str>,
    pub(crate) whole: TimingLoop,
    half: TimingLoop,
    /// Number of copies in the longer loop.
    pub(crate) copies: usize,
    pub(crate) state: State,
    /// Initialises the memory.
    pub(crate) fill: Box<dyn Fn(&Data) + 'a>,
}

impl<'a> Body<'a> {
    /// Creates both loops at the same place of a page. `code` returns the code of a number of copies; `copies` is even.
    ///
    /// # Errors
    /// Returns the error of `code`, or that of the system if it does not allow code generated at run time.
    pub(crate) fn new(
        placement: Placement,
        copies: usize,
        moves_stack: bool,
        state: State,
        fill: impl Fn(&Data) + 'a,
        code: impl Fn(usize) -> Result<Vec<u8>, Failure>,
    ) -> Result<Self, Failure> {
        let loop_of = |copies| -> Result<_, Failure> {
            Ok(TimingLoop::placed(&code(copies)?, moves_stack, placement)?)
        };
        let (whole, half) = (loop_of(copies)?, loop_of(copies / 2)?);
        Ok(Self { name: "code".into(), whole, half, copies, state, fill: Box::new(fill) })
    }

    /// Names what the copies are, for the record of timed code.
    pub(crate) fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Records both loops as timed.
    fn record(&self) {
        for (timing_loop, copies) in [(&self.whole, self.copies), (&self.half, self.copies / 2)] {
            timed_code::record(|| format!("{}, {copies} copies", self.name), timing_loop.bytes());
        }
    }
}

/// Timer of bodies on this thread's CPU.
pub(crate) struct LoopTimer<'a> {
    tsc: &'a Tsc,
    data: &'a Data,
    /// Time limit of a repeat.
    repeat: Duration,
    /// Place of all loops of the sample.
    pub(crate) placement: Placement,
    /// Reason why the measurement is void, if it is.
    void: RefCell<Option<String>>,
}

/// Result of one attempt.
struct Attempt {
    /// Core cycles per copy of each body.
    cycles: Vec<f64>,
    /// Relative change of the core clock.
    clock_change: f64,
    /// Maximum over the bodies of the relative difference of the two fastest repeats.
    spread: f64,
}

impl Attempt {
    /// Returns the larger deviation relative to its limit: up to 1 is valid.
    fn doubt(&self) -> f64 {
        f64::max(self.clock_change / MAX_CLOCK_CHANGE, self.spread / MAX_SPREAD)
    }

    /// Returns the reason why the attempt is void; `None` if it is valid.
    fn void_reason(&self) -> Option<String> {
        if self.spread > MAX_SPREAD {
            let limit = MAX_SPREAD * 100.0;
            return Some(format!("the fastest repeats of a loop differ by over {limit:.0}%"));
        }
        let limit = MAX_CLOCK_CHANGE * 100.0;
        (self.clock_change > MAX_CLOCK_CHANGE)
            .then(|| format!("the core clock moved by over {limit:.1}%"))
    }
}

impl<'a> LoopTimer<'a> {
    /// Creates a timer that measures each body for about `budget`. `seed` is that of the sample.
    pub(crate) fn new(tsc: &'a Tsc, data: &'a Data, budget: Duration, seed: u64) -> Self {
        let (repeat, placement) = (budget / REPEATS as u32, Placement::draw(seed));
        Self { tsc, data, repeat, placement, void: RefCell::default() }
    }

    /// Returns whether any measurement so far is void.
    pub(crate) fn is_void(&self) -> bool {
        self.void.borrow().is_some()
    }

    /// Marks a measurement as void if its cycles are.
    ///
    /// # Errors
    /// Returns the failure of the measurement.
    pub(crate) fn judged(
        &self,
        measured: Result<Measurement, Failure>,
    ) -> Result<Measurement, Failure> {
        let void = self.void.borrow().clone();
        measured.map(|measurement| Measurement { void, ..measurement })
    }

    /// Returns the core cycles per copy of each body: from the minimum of the repeats, because interruptions only add
    /// time. Time added to the shorter loop makes the copies appear faster, so a second repeat must confirm each
    /// minimum. If none does, or if the core clock changes, in all attempts, the sample is void.
    ///
    /// # Errors
    /// Returns the signal that an instruction raised, and a failure if the core clock cannot be calibrated or if all
    /// copies took no longer than half of them.
    pub(crate) fn cycles(&self, bodies: &[&Body]) -> Result<Vec<f64>, TimingError> {
        self.cycles_under_load(bodies, || Ok(()))
    }

    /// Returns the core cycles per copy of one body.
    ///
    /// # Errors
    /// As [`cycles`](Self::cycles).
    pub(crate) fn cycles_of(&self, body: &Body) -> Result<f64, TimingError> {
        self.cycles(&[body]).map(|cycles| cycles[0])
    }

    /// Returns the core cycles per copy of each body with a concurrent load. `start` returns a guard that ends the load
    /// when dropped. The load does not run during the calibrations.
    ///
    /// # Errors
    /// As [`cycles`](Self::cycles), and the error of `start`.
    pub(crate) fn cycles_under_load<T>(
        &self,
        bodies: &[&Body],
        start: impl Fn() -> Result<T, Failure>,
    ) -> Result<Vec<f64>, TimingError> {
        let mut best: Option<Attempt> = None;
        for _ in 0..MAX_ATTEMPTS {
            let before = calibrated()?;
            let load = start().map_err(TimingError::Failure)?;
            let ticks: Result<Vec<_>, RaisedSignal> =
                bodies.iter().map(|body| self.ticks(body)).collect();
            drop(load);
            let ticks = ticks?;
            let after = calibrated()?;
            let cycles_per_tick = f64::midpoint(before, after) / self.tsc.hertz;
            let attempt = Attempt {
                cycles: ticks.iter().map(|(ticks, _)| ticks * cycles_per_tick).collect(),
                clock_change: (after / before - 1.0).abs(),
                spread: ticks.iter().map(|(_, spread)| *spread).fold(0.0, f64::max),
            };
            let doubt = attempt.doubt();
            if best.as_ref().is_none_or(|best| doubt < best.doubt()) {
                best = Some(attempt);
            }
            if doubt <= 1.0 {
                break;
            }
        }
        let Some(best) = best else { return Ok(Vec::new()) };
        bodies.iter().for_each(|body| body.record());
        let void = best.void_reason();
        if let Some(why) = &void {
            self.void.borrow_mut().get_or_insert_with(|| why.clone());
        }
        if best.cycles.iter().any(|cycles| *cycles <= 0.0) {
            let why = self.void.borrow().clone().or(void).unwrap_or_default();
            return Err(TimingError::Failure(Failure::void(why)));
        }
        Ok(best.cycles)
    }

    /// Returns the ticks per copy, and the spread of the fastest repeats: infinite if the copies took no time.
    fn ticks(&self, body: &Body) -> Result<(f64, f64), RaisedSignal> {
        let mut state = body.state.clone();
        // The first runs warm the caches and determine how many loops fit into the budget.
        let [whole, half] = self.fastest(body, &mut state, 1, 3)?;
        let fits = self.tsc.ticks(self.repeat) / whole[0].saturating_add(half[0]).max(1);
        let loops = fits.clamp(1, (MAX_INSTRUCTIONS / body.copies as u64).max(1));
        let fastest = self.fastest(body, &mut state, loops, REPEATS)?;
        let (ticks, spread) = difference(fastest, self.tsc.step);
        Ok((ticks / (loops as f64 * (body.copies - body.copies / 2) as f64), spread))
    }

    /// Returns the ticks of the two fastest of `repeats` runs of the loop over all copies, and of the loop over half of
    /// them. The runs alternate.
    fn fastest(
        &self,
        body: &Body,
        state: &mut State,
        loops: u64,
        repeats: usize,
    ) -> Result<[[u64; 2]; 2], RaisedSignal> {
        let mut fastest = [[u64::MAX; 2]; 2];
        for _ in 0..repeats {
            for (timing_loop, fastest) in [&body.whole, &body.half].into_iter().zip(&mut fastest) {
                state.clone_from(&body.state);
                (body.fill)(self.data);
                keep_fastest(fastest, timing_loop.ticks(state, loops)?);
            }
        }
        Ok(fastest)
    }
}

/// Inserts a time into the two fastest.
fn keep_fastest(fastest: &mut [u64; 2], ticks: u64) {
    if ticks < fastest[0] {
        *fastest = [ticks, fastest[0]];
    } else {
        fastest[1] = fastest[1].min(ticks);
    }
}

/// Returns the difference between the minimum times of the two loops, and the spread of their fastest repeats relative to
/// it: infinite if the difference is not positive.
fn difference([whole, half]: [[u64; 2]; 2], step: u64) -> (f64, f64) {
    let ticks = whole[0] as f64 - half[0] as f64;
    // Repeats of the same length may differ by one step of the counter.
    let spread = (whole[1] - whole[0]).max(half[1] - half[0]).saturating_sub(step) as f64;
    (ticks, if ticks > 0.0 { spread / ticks } else { f64::INFINITY })
}

/// Reason why there are no cycles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimingError {
    /// An instruction raised a signal.
    Signal(RaisedSignal),
    /// Any other failure.
    Failure(Failure),
}

impl From<RaisedSignal> for TimingError {
    fn from(signal: RaisedSignal) -> Self {
        Self::Signal(signal)
    }
}

impl From<TimingError> for Failure {
    fn from(error: TimingError) -> Self {
        match error {
            TimingError::Signal(signal) if signal.is_illegal() => Self::unsupported(
                format!("this CPU or its kernel does not support it: {signal}"),
                "use a CPU and a kernel that execute it; in a VM, let the hypervisor expose its feature",
            ),
            TimingError::Signal(signal) => Self::unsupported(
                format!("it raises {signal}"),
                "correct its operands, or leave it out",
            ),
            TimingError::Failure(failure) => failure,
        }
    }
}

fn calibrated() -> Result<f64, TimingError> {
    core_clock::hertz().map_err(|why| TimingError::Failure(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(clock_change: f64, fastest: [[u64; 2]; 2]) -> Attempt {
        let (ticks, spread) = difference(fastest, 0);
        Attempt { cycles: vec![ticks], clock_change, spread }
    }

    #[test]
    fn the_two_fastest_repeats_are_kept() {
        let mut fastest = [u64::MAX; 2];
        for ticks in [9, 5, 7, 5, 8] {
            keep_fastest(&mut fastest, ticks);
        }
        assert_eq!(fastest, [5, 5]);
    }

    #[test]
    fn a_minimum_that_no_other_repeat_confirms_is_void() {
        let calm = attempt(0.001, [[2000, 2010], [1000, 1004]]);
        assert!(calm.void_reason().is_none() && calm.doubt() <= 1.0);
        // Noise in the shorter loop only would make the copies appear faster.
        let fast = attempt(0.001, [[2000, 2001], [1300, 1400]]);
        assert!(fast.void_reason().unwrap().contains("5%") && fast.doubt() > calm.doubt());
        let moved = attempt(0.02, [[2000, 2001], [1000, 1001]]);
        assert!(moved.void_reason().unwrap().contains("core clock moved by over 0.5%"));
    }

    #[test]
    fn a_difference_of_one_counter_step_is_not_a_disturbance() {
        let fastest = [[1040, 1066], [520, 546]];
        assert!(difference(fastest, 0).1 >= 0.05 && difference(fastest, 26).1 == 0.0);
    }

    #[test]
    fn copies_that_take_no_time_are_void() {
        for half in [1000, 1200] {
            let none = attempt(0.0, [[1000, 1000], [half, half]]);
            assert!(none.cycles[0] <= 0.0 && none.doubt() > 1.0 && none.void_reason().is_some());
        }
    }

    #[test]
    fn an_invalid_time_makes_a_sample_void_but_keeps_other_failures() {
        let Ok(tsc) = Tsc::get().inspect_err(|why| machine::untested::note("bounds: void", why))
        else {
            return;
        };
        let data = Data::new().unwrap();
        let timer = LoopTimer::new(tsc, &data, Duration::from_millis(1), 0);
        // The shorter loop executes more `add rsi, rax` and takes far longer.
        let code = |copies| Ok([0x48, 0x01, 0xC6].repeat(if copies == 100 { 10 } else { 1000 }));
        let body = Body::new(timer.placement, 100, false, State::new(&data), |_| (), code).unwrap();
        let measured = timer.cycles_of(&body).map_err(Failure::from);
        let measured = measured.map(|cycles| Measurement::default().value("cycles", cycles));
        assert!(timer.is_void(), "{measured:?}");
        let is_void = match timer.judged(measured.clone()) {
            Ok(judged) => judged.void.is_some(),
            Err(failure) => failure.kind == lab::sample::FailureKind::Void,
        };
        assert!(is_void, "{measured:?}");
        let other = Failure::unsupported("it raises SIGILL", "use another CPU");
        assert_eq!(timer.judged(Err(other.clone())), Err(other));
    }
}
