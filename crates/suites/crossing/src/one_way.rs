//! `crossing/one-way`: user to kernel and kernel to user, each alone, by the routes that stamp both.

use std::time::Duration;

use lab::guest::Guest;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use crate::params::{OneWayParams, Route};
use crate::{guest, metrics, patched, vm};

/// Times both ways by the stamps of a route.
pub struct OneWay;

impl Method for OneWay {
    type Params = OneWayParams;

    fn name(&self) -> &'static str {
        "one-way"
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn available(&self, params: &OneWayParams) -> Result<(), Failure> {
        match params.route {
            Route::Guest => guest::available(params.kind),
            Route::GuestEmulated | Route::PatchedEmulated => Err(Failure::unavailable(
                "emulated time is never a cost",
                "crossing/stamping counts there what is stamped",
            )),
            Route::BareMetal => Err(Failure::unavailable(
                "the guest runs on bare metal by itself, with no Linux beside it",
                "tollgate crossing guest --write FILE, boot it, then tollgate crossing import OUTPUT",
            )),
            Route::PatchedVm => vm::available(Route::PatchedVm),
            Route::Patched => patched::available(params),
        }
    }

    fn expected(&self, params: &OneWayParams, _: Duration) -> Duration {
        // A few thousand cycles each at most, and a guest's start.
        Duration::from_millis(20) + Duration::from_nanos(params.crossings * 2_000)
    }

    fn guest(&self, params: &OneWayParams) -> Option<Guest> {
        vm::guest(params)
    }

    fn probe(&self) -> Result<Box<dyn Probe<OneWayParams>>, Failure> {
        Ok(Box::new(OneWayProbe))
    }
}

struct OneWayProbe;

impl Probe<OneWayParams> for OneWayProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &OneWayParams,
    ) -> Result<Measurement, Failure> {
        if !context.inside {
            OneWay.available(params)?;
        }
        let measured = match params.route {
            Route::Guest => guest::measure(context, params),
            _ => patched::measure(context, params),
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
