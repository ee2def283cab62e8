//! Samples of a modelled machine, which the method must see through: nothing is timed, so every effect is known exactly.

use std::os::unix::process::parent_id;

use lab::factor::LevelType;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Metric, RESOLUTION};
use lab::sample::Failure;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::delay::Effect;

/// Time without an effect, ns.
const TIME: f64 = 115.0;
/// Spread of independent samples, as a share.
const SPREAD: f64 = 0.02;
/// Correlation of the machine's state in successive rounds.
const CORRELATION: f64 = 0.8;
/// Spread of the machine's state over rounds, as a share.
const STATES: f64 = 0.1;
/// Slowdown in the second regime.
const SLOW: f64 = 1.4;
/// Probability that the regime changes between two rounds.
const CHANGE: f64 = 0.1;
/// Slowdown of a sample that follows one with an effect of [`HEAVY`] or more.
const CARRIED: f64 = 1.1;
/// Smallest effect that is carried over, and the smallest whose slow samples are void.
const HEAVY: f64 = 0.2;
/// Step of the modelled counter, ns.
const STEP: f64 = 26.0;
/// Times per sample read from this counter.
const READINGS: u32 = 100;

/// Behaviour of the modelled machine.
#[derive(Clone, Copy, LevelType)]
enum Behaviour {
    /// Samples are independent.
    Independent,
    /// Successive rounds are correlated: the machine is slow for some rounds, then fast.
    CorrelatedRounds,
    /// The machine has two regimes that last ten rounds on average, e.g. because of a busy sibling.
    Regimes,
    /// A sample after a heavy one takes longer, e.g. because it finds cold caches.
    CarryOver,
    /// Each session has another speed, as if hours were between them.
    Sessions,
    /// Times are multiples of the step of a coarse counter, without other noise.
    Quantised,
    /// Samples of a heavy point are void if they are slow: the rule depends on the result.
    LinkedVoids,
}

/// Params of `model`.
#[derive(Params)]
pub(crate) struct ModelParams {
    /// by how much the time is extended
    #[factor(default = "0%")]
    effect: Effect,
    /// what the modelled machine does to samples
    #[factor(default = "independent")]
    behaviour: Behaviour,
}

/// The method `model`: samples of a modelled machine.
pub(crate) struct Model;

impl Method for Model {
    type Params = ModelParams;

    fn name(&self) -> &'static str {
        "model"
    }

    fn how(&self) -> &'static str {
        "A modelled machine draws times with known effects. Nothing is measured."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[
            Metric::time("time", "modelled time"),
            Metric::time(
                RESOLUTION,
                "the step of the modelled counter divided by the root of the readings",
            ),
        ];
        METRICS
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["planted::model"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<ModelParams>>, Failure> {
        Ok(Box::new(Modelled::default()))
    }
}

/// The probe of one order: a round, in the order in which the lab draws its points.
#[derive(Default)]
struct Modelled {
    /// Whether the last sample had a heavy effect.
    after_heavy: bool,
}

impl Probe<ModelParams> for Modelled {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &ModelParams,
    ) -> Result<Measurement, Failure> {
        let mut random = Pcg64Mcg::seed_from_u64(context.seed);
        let Effect(effect) = params.effect;
        let is_heavy = effect >= HEAVY;
        let true_time = TIME * (1.0 + effect);
        let deviation = normal(&mut random);
        let time = true_time * (SPREAD * deviation).exp();
        let measurement = Measurement::default();
        let after_heavy = std::mem::replace(&mut self.after_heavy, is_heavy);
        Ok(match params.behaviour {
            Behaviour::Independent => measurement.value("time", time),
            Behaviour::CorrelatedRounds => {
                measurement.value("time", time * (STATES * state_of(context.round)).exp())
            }
            Behaviour::Regimes => {
                measurement.value("time", time * if is_slow(context.round) { SLOW } else { 1.0 })
            }
            Behaviour::CarryOver => {
                measurement.value("time", time * if after_heavy { CARRIED } else { 1.0 })
            }
            // The worker lives for one session.
            Behaviour::Sessions => measurement
                .value("time", time * (1.0 + of_number(u64::from(parent_id())).random::<f64>())),
            Behaviour::Quantised => {
                let reading = |_| ((true_time / STEP) + random.random::<f64>()).floor() * STEP;
                let sum: f64 = (0..READINGS).map(reading).sum();
                let readings = f64::from(READINGS);
                measurement.value("time", sum / readings).value(RESOLUTION, STEP / readings.sqrt())
            }
            Behaviour::LinkedVoids => Measurement {
                void: (is_heavy && deviation > 0.0).then(|| "planted: a slow sample".into()),
                ..measurement.value("time", time)
            },
        })
    }
}

/// Returns a generator for a number, the same in every process.
fn of_number(number: u64) -> Pcg64Mcg {
    let mut generator = Pcg64Mcg::seed_from_u64(number);
    // The first output depends little on a small seed.
    let _: u64 = generator.random();
    generator
}

/// Draws from the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut Pcg64Mcg) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Returns the machine's state in a round: a first-order autoregression with variance 1 over rounds.
fn state_of(round: u32) -> f64 {
    let step = f64::sqrt(1.0 - CORRELATION * CORRELATION);
    (0..=round).fold(0.0, |state, at| {
        let shock = normal(&mut of_number(u64::from(at)));
        if at == 0 { shock } else { CORRELATION * state + step * shock }
    })
}

/// Returns whether a round is in the slow regime.
fn is_slow(round: u32) -> bool {
    let changes = (0..=round).filter(|at| of_number(u64::from(*at)).random_bool(CHANGE));
    changes.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_rounds_are_correlated_and_regimes_last() {
        let states: Vec<f64> = (0..400).map(state_of).collect();
        let square: f64 = states.iter().map(|state| state * state).sum();
        let lagged: f64 = states.windows(2).map(|pair| pair[0] * pair[1]).sum();
        assert!((0.6..0.9).contains(&(lagged / square)), "{}", lagged / square);
        let regimes: Vec<bool> = (0..400).map(is_slow).collect();
        let changes = regimes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((20..60).contains(&changes), "{changes}");
        // Few rounds have both, too.
        let slow = regimes[..40].iter().filter(|slow| **slow).count();
        assert!((5..35).contains(&slow), "{slow}");
    }
}
