//! Cycles of a body: repeats between two calibrations of the core clock.

use std::cell::RefCell;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::core_clock;
use machine::tsc::Tsc;

use super::{Data, RaisedSignal, State, TimingLoop};

/// Repeats of each measurement, as published.
const REPEATS: usize = 10;
/// Instructions that a repeat runs at most: 100 copies x 1000 loops were published.
const MOST: u64 = 100_000;
/// By how much two calibrations around a measurement may differ before it is taken again.
const CLOCK_MOVED: f64 = 0.005;
/// How far the two least repeats of a loop may lie apart, as a share of what the copies take: what disturbed
/// the one disturbed the other by another time as a rule. Beyond it the measurement is taken again.
const APART: f64 = 0.05;
/// How often it is taken before it is void.
const TRIES: usize = 3;

/// Loops over copies of what is asked about, with what their registers and memory hold at first. What the
/// copies take is what the longer loop takes more than one of half as many: so neither the loop nor entering
/// and leaving it is in it.
pub(crate) struct Body<'a> {
    pub(crate) looped: TimingLoop,
    half: TimingLoop,
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
            |copies| -> Result<_, Failure> { Ok(TimingLoop::new(&code(copies)?, moves_stack)?) };
        let (looped, half) = (looped(copies)?, looped(copies / 2)?);
        Ok(Self { looped, half, copies, state, fill: Box::new(fill) })
    }
}

/// What times bodies on this thread's CPU.
pub(crate) struct LoopTimer<'a> {
    tsc: &'a Tsc,
    data: &'a Data,
    /// How long a repeat may take.
    repeat: Duration,
    /// Why what was measured does not count, where it does not.
    void: RefCell<Option<String>>,
}

/// What one try gave.
struct Try {
    /// Core cycles of a copy of each body.
    cycles: Vec<f64>,
    /// How far the core clock moved, relative.
    moved: f64,
    /// How far the two least repeats lay apart, of the body where that is most.
    apart: f64,
}

impl Try {
    /// How far it is from what is allowed: up to 1 is sound.
    fn doubt(&self) -> f64 {
        f64::max(self.moved / CLOCK_MOVED, self.apart / APART)
    }

    /// Why it does not count; nothing where it does.
    fn void(&self) -> Option<String> {
        if self.apart > APART {
            let limit = APART * 100.0;
            return Some(format!("the least repeats of a loop differ by over {limit:.0}%"));
        }
        let limit = CLOCK_MOVED * 100.0;
        (self.moved > CLOCK_MOVED).then(|| format!("the core clock moved by over {limit:.1}%"))
    }
}

impl<'a> LoopTimer<'a> {
    /// Bodies are measured for about `budget` each.
    pub(crate) fn new(tsc: &'a Tsc, data: &'a Data, budget: Duration) -> Self {
        Self { tsc, data, repeat: budget / REPEATS as u32, void: RefCell::default() }
    }

    /// Whether something measured so far does not count.
    pub(crate) fn is_void(&self) -> bool {
        self.void.borrow().is_some()
    }

    /// A measurement of these cycles: void where they do not count.
    ///
    /// # Errors
    /// What kept it from being made.
    pub(crate) fn judged(
        &self,
        measured: Result<Measurement, Failure>,
    ) -> Result<Measurement, Failure> {
        let void = self.void.borrow().clone();
        measured.map(|measurement| Measurement { void, ..measurement })
    }

    /// Core cycles of one copy of each body, in their order: by the least of the repeats, for interruptions only
    /// add. They add to the shorter loop too, which makes the copies too fast: so another repeat must bear out
    /// each least one. Where none does, or the core clock moves, on all tries, the sample is void.
    ///
    /// # Errors
    /// The signal that an instruction raised; where the core clock cannot be calibrated; where more copies took
    /// no longer than half of them.
    pub(crate) fn cycles(&self, bodies: &[&Body]) -> Result<Vec<f64>, TimingError> {
        self.cycles_beside(bodies, || Ok(()))
    }

    /// The same of one body alone.
    ///
    /// # Errors
    /// As for [`LoopTimer::cycles`].
    pub(crate) fn cycles_of(&self, body: &Body) -> Result<f64, TimingError> {
        self.cycles(&[body]).map(|cycles| cycles[0])
    }

    /// The same while something else goes on that `start` begins and that ends when it is dropped. It goes
    /// on beside the bodies alone, not beside the calibrations.
    ///
    /// # Errors
    /// As for [`LoopTimer::cycles`], and where it does not start.
    pub(crate) fn cycles_beside<T>(
        &self,
        bodies: &[&Body],
        start: impl Fn() -> Result<T, Failure>,
    ) -> Result<Vec<f64>, TimingError> {
        let mut best: Option<Try> = None;
        for _ in 0..TRIES {
            let before = calibrated()?;
            let beside = start().map_err(TimingError::Failure)?;
            let ticks: Result<Vec<_>, RaisedSignal> =
                bodies.iter().map(|body| self.ticks(body)).collect();
            drop(beside);
            let ticks = ticks?;
            let after = calibrated()?;
            let each = f64::midpoint(before, after) / self.tsc.hertz;
            let tried = Try {
                cycles: ticks.iter().map(|(ticks, _)| ticks * each).collect(),
                moved: (after / before - 1.0).abs(),
                apart: ticks.iter().map(|(_, apart)| *apart).fold(0.0, f64::max),
            };
            let doubt = tried.doubt();
            if best.as_ref().is_none_or(|best| doubt < best.doubt()) {
                best = Some(tried);
            }
            if doubt <= 1.0 {
                break;
            }
        }
        let Some(best) = best else { return Ok(Vec::new()) };
        let void = best.void();
        if let Some(why) = &void {
            self.void.borrow_mut().get_or_insert_with(|| why.clone());
        }
        if best.cycles.iter().any(|cycles| *cycles <= 0.0) {
            let why = self.void.borrow().clone().or(void).unwrap_or_default();
            return Err(TimingError::Failure(Failure::void(why)));
        }
        Ok(best.cycles)
    }

    /// Ticks of one copy, and how far the least repeats lie apart: without end where the copies took none.
    fn ticks(&self, body: &Body) -> Result<(f64, f64), RaisedSignal> {
        let mut state = body.state.clone();
        // The first runs warm the caches and tell how many loops fill the time.
        let [whole, half] = self.least(body, &mut state, 1, 3)?;
        let fits = self.tsc.ticks(self.repeat) / whole[0].saturating_add(half[0]).max(1);
        let loops = fits.clamp(1, (MOST / body.copies as u64).max(1));
        let least = self.least(body, &mut state, loops, REPEATS)?;
        let (took, apart) = difference(least, self.tsc.step);
        Ok((took / (loops as f64 * (body.copies - body.copies / 2) as f64), apart))
    }

    /// The two least ticks of so many loops over all copies, and over half of them, taken in turn.
    fn least(
        &self,
        body: &Body,
        state: &mut State,
        loops: u64,
        repeats: usize,
    ) -> Result<[[u64; 2]; 2], RaisedSignal> {
        let mut least = [[u64::MAX; 2]; 2];
        for _ in 0..repeats {
            for (looped, least) in [&body.looped, &body.half].into_iter().zip(&mut least) {
                state.clone_from(&body.state);
                (body.fill)(self.data);
                keep(least, looped.ticks(state, loops)?);
            }
        }
        Ok(least)
    }
}

/// Keeps the two least of all that come.
fn keep(least: &mut [u64; 2], ticks: u64) {
    if ticks < least[0] {
        *least = [ticks, least[0]];
    } else {
        least[1] = least[1].min(ticks);
    }
}

/// What the longer loop took more than the shorter one, of the two least ticks of each; and how far these lie
/// apart, as a share of it: without end where it is nothing or less.
fn difference([whole, half]: [[u64; 2]; 2], step: u64) -> (f64, f64) {
    let took = whole[0] as f64 - half[0] as f64;
    // Repeats of one length come out a step of the counter apart.
    let apart = (whole[1] - whole[0]).max(half[1] - half[0]).saturating_sub(step) as f64;
    (took, if took > 0.0 { apart / took } else { f64::INFINITY })
}

/// Why there are no cycles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimingError {
    /// An instruction raised a signal.
    Signal(RaisedSignal),
    /// Something else.
    Failure(Failure),
}

impl From<RaisedSignal> for TimingError {
    fn from(fault: RaisedSignal) -> Self {
        Self::Signal(fault)
    }
}

impl From<TimingError> for Failure {
    fn from(stopped: TimingError) -> Self {
        match stopped {
            TimingError::Signal(fault) if fault.is_illegal() => {
                Self::unsupported(format!("this CPU or its kernel does not run it: {fault}"))
            }
            TimingError::Signal(fault) => Self::unsupported(format!("it faults here: {fault}")),
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

    fn tried(moved: f64, least: [[u64; 2]; 2]) -> Try {
        let (took, apart) = difference(least, 0);
        Try { cycles: vec![took], moved, apart }
    }

    #[test]
    fn the_two_least_are_kept() {
        let mut least = [u64::MAX; 2];
        for ticks in [9, 5, 7, 5, 8] {
            keep(&mut least, ticks);
        }
        assert_eq!(least, [5, 5]);
    }

    #[test]
    fn a_least_repeat_that_no_other_bears_out_is_doubtful() {
        let calm = tried(0.001, [[2000, 2010], [1000, 1004]]);
        assert!(calm.void().is_none() && calm.doubt() <= 1.0);
        // Noise in the shorter loop alone, which would make the copies faster than they are.
        let fast = tried(0.001, [[2000, 2001], [1300, 1400]]);
        assert!(fast.void().unwrap().contains("5%") && fast.doubt() > calm.doubt());
        let moved = tried(0.02, [[2000, 2001], [1000, 1001]]);
        assert!(moved.void().unwrap().contains("core clock moved by over 0.5%"));
    }

    #[test]
    fn a_step_of_the_counter_is_no_disturbance() {
        let least = [[1040, 1066], [520, 546]];
        assert!(difference(least, 0).1 >= 0.05 && difference(least, 26).1 == 0.0);
    }

    #[test]
    fn copies_that_take_no_time_are_no_result() {
        for half in [1000, 1200] {
            let none = tried(0.0, [[1000, 1000], [half, half]]);
            assert!(none.cycles[0] <= 0.0 && none.doubt() > 1.0 && none.void().is_some());
        }
    }

    #[test]
    fn what_does_not_count_is_void_and_no_fault() {
        let Ok(tsc) = Tsc::get().inspect_err(|why| machine::untested::note("bounds: void", why))
        else {
            return;
        };
        let data = Data::new().unwrap();
        let timed = LoopTimer::new(tsc, &data, Duration::from_millis(1));
        // The shorter loop takes far longer: `add rsi, rax` so often.
        let code = |copies| Ok([0x48, 0x01, 0xC6].repeat(if copies == 100 { 10 } else { 1000 }));
        let body = Body::new(100, false, State::new(&data), |_| (), code).unwrap();
        let measured = timed.cycles_of(&body).map_err(Failure::from);
        let measured = measured.map(|cycles| Measurement::default().value("cycles", cycles));
        assert!(timed.is_void(), "{measured:?}");
        let is_void = match timed.judged(measured.clone()) {
            Ok(judged) => judged.void.is_some(),
            Err(failure) => failure.kind == lab::sample::FailureKind::Void,
        };
        assert!(is_void, "{measured:?}");
        let other = Failure::unsupported("it faults here: SIGILL");
        assert_eq!(timed.judged(Err(other.clone())), Err(other));
    }
}
