//! `crossing/one-way`: user to kernel and kernel to user, each alone, by the routes that stamp both.

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;

use crate::{factors, guest, patched, vm};

/// Whether a point can be measured here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    match point.text("route") {
        "guest" => guest::available(point),
        "guest-emulated" | "patched-emulated" => Err(Failure::unavailable(
            "emulated time is never a cost",
            "crossing/stamping counts there what is stamped",
        )),
        "bare-metal" => Err(Failure::unavailable(
            "the guest runs on bare metal by itself, with no Linux beside it",
            "tollgate crossing guest --write FILE, boot it, then tollgate crossing import OUTPUT",
        )),
        "patched-vm" => vm::available("patched-vm"),
        _ => patched::available(point),
    }
}

/// How long a sample takes with all that it prepares.
pub fn expected(point: &Point, _: Duration) -> Duration {
    let crossings = factors::crossings(point).unwrap_or(0);
    // A few thousand cycles each at most, and a guest's start.
    Duration::from_millis(20) + Duration::from_nanos(crossings * 2_000)
}

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(OneWay)
}

struct OneWay;

impl Probe for OneWay {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        if !context.inside {
            available(point)?;
        }
        let measured = match point.text("route") {
            "guest" => guest::measure(context, point),
            _ => patched::measure(context, point),
        };
        measured.map(with_ratio)
    }
}

/// Adds how much more the way in costs than the way out.
pub(crate) fn with_ratio(measurement: Measurement) -> Measurement {
    let value = |name| measurement.values.get(name).copied().filter(|value| *value > 0.0);
    match value("u2k").zip(value("k2u")) {
        Some((there, back)) => measurement.value("in_over_out", there / back),
        None => measurement,
    }
}
