//! Cycles of a body: repeats between two calibrations of the core clock.

use std::time::Duration;

use lab::sample::Failure;
use machine::core_clock;
use machine::tsc::Tsc;

use super::{Data, Fault, Looped, State};

/// Repeats of each measurement, as published.
const REPEATS: usize = 10;
/// Instructions that a repeat runs at most: 100 copies x 1000 loops were published.
const MOST: u64 = 100_000;
/// By how much two calibrations around a measurement may differ before it is taken again.
const CLOCK_MOVED: f64 = 0.005;
/// How often it is taken.
const TRIES: usize = 3;

/// A body with what its registers and memory hold at first.
pub(crate) struct Body<'a> {
    pub(crate) looped: Looped,
    /// How many times what is asked about stands in it.
    pub(crate) copies: usize,
    pub(crate) state: State,
    /// Makes the memory what it has to be.
    pub(crate) fill: Box<dyn Fn(&Data) + 'a>,
}

/// What times bodies on this thread's CPU.
pub(crate) struct Timed<'a> {
    tsc: &'a Tsc,
    data: &'a Data,
    /// How long a repeat may take.
    repeat: Duration,
    empty: Looped,
}

impl<'a> Timed<'a> {
    /// Bodies are measured for about `budget` each.
    ///
    /// # Errors
    /// Where the system allows no code made at run time.
    pub(crate) fn new(tsc: &'a Tsc, data: &'a Data, budget: Duration) -> Result<Self, Failure> {
        Ok(Self { tsc, data, repeat: budget / REPEATS as u32, empty: Looped::empty()? })
    }

    /// Core cycles of one copy of each body, in their order: the least of the repeats, for interruptions only add.
    ///
    /// # Errors
    /// The signal that an instruction raised; where the core clock cannot be calibrated.
    pub(crate) fn cycles(&self, bodies: &[&Body]) -> Result<Vec<f64>, Stopped> {
        self.cycles_beside(bodies, || Ok(()))
    }

    /// The same of one body alone.
    ///
    /// # Errors
    /// As for [`Timed::cycles`].
    pub(crate) fn cycles_of(&self, body: &Body) -> Result<f64, Stopped> {
        self.cycles(&[body]).map(|cycles| cycles[0])
    }

    /// The same while something else goes on that `start` begins and that ends when it is dropped. It goes
    /// on beside the bodies alone, not beside the calibrations.
    ///
    /// # Errors
    /// As for [`Timed::cycles`], and where it does not start.
    pub(crate) fn cycles_beside<T>(
        &self,
        bodies: &[&Body],
        start: impl Fn() -> Result<T, Failure>,
    ) -> Result<Vec<f64>, Stopped> {
        let mut best: Option<(f64, Vec<f64>)> = None;
        for _ in 0..TRIES {
            let before = calibrated()?;
            let beside = start().map_err(Stopped::Failure)?;
            let ticks: Result<Vec<f64>, Fault> =
                bodies.iter().map(|body| self.ticks(body)).collect();
            drop(beside);
            let ticks = ticks?;
            let after = calibrated()?;
            let moved = (after / before - 1.0).abs();
            if best.as_ref().is_none_or(|(least, _)| moved < *least) {
                let each = f64::midpoint(before, after) / self.tsc.hertz;
                best = Some((moved, ticks.into_iter().map(|ticks| ticks * each).collect()));
            }
            if moved <= CLOCK_MOVED {
                break;
            }
        }
        Ok(best.map(|(_, cycles)| cycles).unwrap_or_default())
    }

    /// Ticks of one copy.
    fn ticks(&self, body: &Body) -> Result<f64, Fault> {
        let mut state = body.state.clone();
        let empty = self.least(&self.empty, body, &mut state, 1, 3)?;
        // The first runs warm the caches and tell how many loops fill the time.
        let one = self.least(&body.looped, body, &mut state, 1, 3)?.saturating_sub(empty).max(1);
        let fits = self.tsc.ticks(self.repeat) / one;
        let loops = fits.clamp(1, (MOST / body.copies as u64).max(1));
        let ticks = self.least(&body.looped, body, &mut state, loops, REPEATS)?;
        let ran = loops as f64 * body.copies as f64;
        Ok(ticks.saturating_sub(empty) as f64 / ran)
    }

    fn least(
        &self,
        looped: &Looped,
        body: &Body,
        state: &mut State,
        loops: u64,
        repeats: usize,
    ) -> Result<u64, Fault> {
        let mut least = u64::MAX;
        for _ in 0..repeats {
            state.clone_from(&body.state);
            (body.fill)(self.data);
            least = least.min(looped.ticks(state, loops)?);
        }
        Ok(least)
    }
}

/// Why there are no cycles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stopped {
    /// An instruction raised a signal.
    Fault(Fault),
    /// Something else.
    Failure(Failure),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Fault(fault) if fault.is_illegal() => {
                Self::unsupported(format!("this CPU or its kernel does not run it: {fault}"))
            }
            Stopped::Fault(fault) => Self::unsupported(format!("it faults here: {fault}")),
            Stopped::Failure(failure) => failure,
        }
    }
}

fn calibrated() -> Result<f64, Stopped> {
    let clock = core_clock::calibrate()
        .map_err(|why| Stopped::Failure(Failure::failed(format!("the core clock: {why}"))))?;
    Ok(clock.hertz())
}
