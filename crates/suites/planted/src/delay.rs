//! A body of known length: a chain of dependent adds, longer by the planted effect.

use std::arch::asm;
use std::time::{Duration, Instant};

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use lab::statistics;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Adds in the body without an effect: about 50 us, so that what the loop's end costs beside them
/// (some tens of cycles) changes no planted ratio by more than 0.01%.
const ADDS: f64 = 200_000.0;

/// A planted effect, as a share of the body: from 0 to 1.
pub(crate) struct Effect(f64);

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

/// What the instrument must tolerate while it measures.
#[derive(Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum Disturbance {
    /// Nothing is injected.
    Calm,
    /// The machine drifts from round to round and stalls now and then.
    DriftAndStalls,
}

/// Levels of `delay`.
#[derive(Params)]
pub(crate) struct DelayParams {
    /// How much longer the body is
    #[factor(default = "0%")]
    effect: Effect,
    /// What is injected besides
    #[factor(default = "calm")]
    disturbance: Disturbance,
}

/// Times a body of known length.
pub(crate) struct Delay;

impl Method for Delay {
    type Params = DelayParams;

    fn name(&self) -> &'static str {
        "delay"
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::time("time", "One pass of the body")];
        METRICS
    }

    fn probe(&self) -> Result<Box<dyn Probe<DelayParams>>, Failure> {
        Ok(Box::new(DelayProbe))
    }
}

struct DelayProbe;

impl Probe<DelayParams> for DelayProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &DelayParams,
    ) -> Result<Measurement, Failure> {
        let mut disturbed = Disturbed::new(params.disturbance, context);
        let adds = (ADDS * (1.0 + params.effect.0) * disturbed.drift / 8.0).round() as u64;
        let tsc = context.tsc()?;
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < context.budget || times.len() < 5 {
            let start = machine::tsc::start();
            chain(adds);
            disturbed.stall();
            times.push(tsc.net(start, machine::tsc::stop()));
        }
        let ticks =
            statistics::median(&times).ok_or_else(|| Failure::failed("no pass was timed"))?;
        Ok(Measurement::default().value("time", tsc.nanoseconds(ticks)))
    }
}

/// Eight dependent adds, `rounds` times; nothing for the compiler to shorten.
#[inline(never)]
fn chain(rounds: u64) {
    // SAFETY: only the named registers and the flags change.
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

/// The drift and the stalls of one sample.
struct Disturbed {
    drift: f64,
    stalls: Option<Pcg64Mcg>,
}

impl Disturbed {
    fn new(disturbance: Disturbance, context: &Context) -> Self {
        if disturbance == Disturbance::Calm {
            return Self { drift: 1.0, stalls: None };
        }
        // All points of a round drift alike; a slow swing of 10% over the rounds.
        let swing = (f64::from(context.round) / 5.0).sin();
        Self { drift: 1.0 + 0.1 * swing, stalls: Some(Pcg64Mcg::seed_from_u64(context.seed)) }
    }

    fn stall(&mut self) {
        if let Some(chance) = &mut self.stalls
            && chance.random_bool(0.05)
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
        fn a_canonical_effect_is_its_own_canonical_form(percent in 0.0f64..100.0) {
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
