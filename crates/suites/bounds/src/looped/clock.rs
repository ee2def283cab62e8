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

/// Loops over copies of what is asked about, with what their registers and memory hold at first. What the
/// copies take is what the longer loop takes more than one of half as many: so neither the loop nor entering
/// and leaving it is in it.
pub(crate) struct Body<'a> {
    pub(crate) looped: Looped,
    half: Looped,
    /// How many copies there are in the longer loop.
    pub(crate) copies: usize,
    pub(crate) state: State,
    /// Makes the memory what it has to be.
    pub(crate) fill: Box<dyn Fn(&Data) + 'a>,
}

impl<'a> Body<'a> {
    /// An even number of copies; `code` makes the code of so many.
    ///
    /// # Errors
    /// What keeps the code from being made; where the system allows none that is made at run time.
    pub(crate) fn new(
        copies: usize,
        moves_stack: bool,
        state: State,
        fill: impl Fn(&Data) + 'a,
        code: impl Fn(usize) -> Result<Vec<u8>, Failure>,
    ) -> Result<Self, Failure> {
        let looped =
            |copies| -> Result<_, Failure> { Ok(Looped::new(&code(copies)?, moves_stack)?) };
        let (looped, half) = (looped(copies)?, looped(copies / 2)?);
        Ok(Self { looped, half, copies, state, fill: Box::new(fill) })
    }
}

/// What times bodies on this thread's CPU.
pub(crate) struct Timed<'a> {
    tsc: &'a Tsc,
    data: &'a Data,
    /// How long a repeat may take.
    repeat: Duration,
}

impl<'a> Timed<'a> {
    /// Bodies are measured for about `budget` each.
    pub(crate) fn new(tsc: &'a Tsc, data: &'a Data, budget: Duration) -> Self {
        Self { tsc, data, repeat: budget / REPEATS as u32 }
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
        // The first runs warm the caches and tell how many loops fill the time.
        let one = self.least(body, &mut state, 1, 3)?;
        let fits = self.tsc.ticks(self.repeat) / one[0].saturating_add(one[1]).max(1);
        let loops = fits.clamp(1, (MOST / body.copies as u64).max(1));
        let [whole, half] = self.least(body, &mut state, loops, REPEATS)?;
        let ran = loops as f64 * (body.copies - body.copies / 2) as f64;
        Ok(whole.saturating_sub(half) as f64 / ran)
    }

    /// The least ticks of so many loops over all copies, and over half of them, taken in turn.
    fn least(
        &self,
        body: &Body,
        state: &mut State,
        loops: u64,
        repeats: usize,
    ) -> Result<[u64; 2], Fault> {
        let mut least = [u64::MAX; 2];
        for _ in 0..repeats {
            for (looped, least) in [&body.looped, &body.half].into_iter().zip(&mut least) {
                state.clone_from(&body.state);
                (body.fill)(self.data);
                *least = (*least).min(looped.ticks(state, loops)?);
            }
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
