//! A body of known length: a chain of dependent adds, extended by the planted effect.

use std::arch::asm;
use std::time::{Duration, Instant};

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Metric, RESOLUTION};
use lab::sample::Failure;
use lab::statistics;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Adds of the body without an effect: about 50 us, so that the end of the loop (some tens of cycles)
/// changes no planted ratio by more than 0.01%.
const ADDS: f64 = 200_000.0;

/// Environment variable with an effect that extends the body in addition to that of the point, as a setting of one side of
/// a comparison does.
const SETTING: &str = "TOLLGATE_PLANTED_EFFECT";

/// A planted effect, as a fraction of the body: 0 to 1.
pub(crate) struct Effect(pub(crate) f64);

impl LevelType for Effect {
    const LEVELS: Levels = Levels::Checked(canonical_effect);

    fn from_level(level: &str) -> Option<Self> {
        let percent: f64 = level.trim().strip_suffix('%')?.trim().parse().ok()?;
        (0.0..=100.0).contains(&percent).then_some(Self(percent / 100.0))
    }
}

/// Returns the canonical spelling of an effect: `0.5%`.
fn canonical_effect(text: &str) -> Result<String, String> {
    Effect::from_level(text)
        .map(|Effect(effect)| format!("{}%", (effect * 1e4).round() / 100.0))
        .ok_or_else(|| format!("'{text}' is not an effect from 0% to 100%, e.g. '2%'"))
}

/// Disturbance that the instrument must tolerate while it measures.
#[derive(Clone, Copy, LevelType)]
pub(crate) enum Disturbance {
    /// No disturbance.
    Calm,
    /// The body's length drifts from round to round, and samples contain stalls.
    DriftAndStalls,
}

/// Params of `delay`.
#[derive(Params)]
pub(crate) struct DelayParams {
    /// by how much the body is extended
    #[factor(default = "0%")]
    effect: Effect,
    /// injected disturbance
    #[factor(default = "calm")]
    disturbance: Disturbance,
}

/// The method `delay`: times a body of known length.
pub(crate) struct Delay;

impl Method for Delay {
    type Params = DelayParams;

    fn name(&self) -> &'static str {
        "delay"
    }

    fn how(&self) -> &'static str {
        "A sample times passes of a loop that the effect extends, by the time-stamp counter; its value is the \
         median pass. The probe checks nothing: claims compare the ratio of two points with the planted \
         effect."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[
            Metric::time("time", "one pass of the body"),
            Metric::time(RESOLUTION, "one step of the timer"),
        ];
        METRICS
    }

    fn probe(&self) -> Result<Box<dyn Probe<DelayParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(context: &mut Context, params: &DelayParams) -> Result<Measurement, Failure> {
    let mut disturbed = Disturbed::new(params.disturbance, context);
    let length = ADDS * (1.0 + params.effect.0) * (1.0 + setting()?);
    let adds = (length * disturbed.drift / 8.0).round() as u64;
    let tsc = context.tsc()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < context.budget || times.len() < 5 {
        let pass = machine::tsc::start();
        chain(adds);
        disturbed.stall();
        times.push(tsc.net(pass, machine::tsc::stop()));
    }
    let ticks = statistics::median(&times).ok_or_else(|| Failure::failed("no pass was timed"))?;
    let step = tsc.nanoseconds(tsc.step as f64);
    Ok(Measurement::default().value("time", tsc.nanoseconds(ticks)).value(RESOLUTION, step))
}

/// Returns the effect of the environment variable, as a fraction; 0 if it is not set.
fn setting() -> Result<f64, Failure> {
    let Some(text) = std::env::var_os(SETTING) else { return Ok(0.0) };
    let text = text.to_string_lossy();
    let effect = Effect::from_level(&text).map(|Effect(effect)| effect);
    effect.ok_or_else(|| Failure::failed(format!("{SETTING}={text}: use an effect such as '2%'")))
}

/// Executes eight dependent adds `rounds` times, which the compiler cannot shorten.
#[inline(never)]
fn chain(rounds: u64) {
    // SAFETY: the block changes only the declared registers and the flags.
    unsafe {
        asm!(
            "2:",
            "add {x}, {x}", "add {x}, {x}", "add {x}, {x}", "add {x}, {x}",
            "add {x}, {x}", "add {x}, {x}", "add {x}, {x}", "add {x}, {x}",
            "dec {n}",
            "jnz 2b",
            x = inout(reg) 1u64 => _,
            n = inout(reg) rounds.max(1) => _,
            options(nomem, nostack)
        );
    }
}

/// Drift and stalls of one sample.
struct Disturbed {
    drift: f64,
    stalls: Option<Pcg64Mcg>,
}

impl Disturbed {
    fn new(disturbance: Disturbance, context: &Context) -> Self {
        match disturbance {
            Disturbance::Calm => Self { drift: 1.0, stalls: None },
            Disturbance::DriftAndStalls => {
                // All points of a round drift equally, by a slow oscillation of 10% over the rounds.
                let swing = (f64::from(context.round) / 5.0).sin();
                let stalls = Pcg64Mcg::seed_from_u64(context.seed);
                Self { drift: 1.0 + 0.1 * swing, stalls: Some(stalls) }
            }
        }
    }

    fn stall(&mut self) {
        if let Some(rng) = &mut self.stalls
            && rng.random_bool(0.05)
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_canonical_form_of_an_effect_is_stable(percent in 0.0f64..100.0) {
            let spelled = canonical_effect(&format!("{percent}%")).unwrap();
            prop_assert_eq!(canonical_effect(&spelled).unwrap(), spelled);
        }
    }

    #[test]
    fn invalid_effects_are_refused() {
        for text in ["", "2", "-1%", "200%", "x%"] {
            assert!(canonical_effect(text).is_err(), "{text}");
        }
    }
}
