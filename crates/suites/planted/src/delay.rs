//! A body of known length: a chain of dependent adds, longer by the planted effect.

use std::arch::asm;
use std::time::{Duration, Instant};

use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics;
use lab::suite::Probe;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Adds in the body without an effect: about 50 us, so that what the loop's end costs beside them
/// (some tens of cycles) changes no planted ratio by more than 0.01%.
const ADDS: f64 = 200_000.0;

/// The one spelling of an effect: `0.5%`.
pub(crate) fn effect_level(text: &str) -> Result<String, String> {
    effect(text)
        .map(|effect| format!("{}%", (effect * 1e4).round() / 100.0))
        .ok_or_else(|| format!("'{text}' is not an effect from 0% to 100%, as '2%'"))
}

fn effect(text: &str) -> Option<f64> {
    let percent: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

pub(crate) struct Delay;

impl Probe for Delay {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let effect = effect(point.text("effect"))
            .ok_or_else(|| Failure::failed("the point has no effect"))?;
        let mut disturbance = Disturbance::of(point.text("disturbance"), context);
        let adds = (ADDS * (1.0 + effect) * disturbance.drift / 8.0).round() as u64;
        let tsc = context.tsc()?;
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < context.budget || times.len() < 5 {
            let start = machine::tsc::start();
            chain(adds);
            disturbance.stall();
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

/// What a shared machine does: it drifts from round to round, and stalls now and then.
struct Disturbance {
    drift: f64,
    stalls: Option<Pcg64Mcg>,
}

impl Disturbance {
    fn of(level: &str, context: &Context) -> Self {
        if level == "calm" {
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
        fn a_spelled_effect_is_its_own_spelling(percent in 0.0f64..100.0) {
            let spelled = effect_level(&format!("{percent}%")).unwrap();
            prop_assert_eq!(effect_level(&spelled).unwrap(), spelled);
        }
    }

    #[test]
    fn what_is_no_effect_is_refused() {
        for text in ["", "2", "-1%", "200%", "x%"] {
            assert!(effect_level(text).is_err(), "{text}");
        }
    }
}
