//! `crossing/stamping`: counts whether every crossing is stamped, and nothing else is. It measures no time, so
//! it also runs under emulation, which any machine can do.

use std::time::Duration;

use lab::guest::Guest;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use crate::guest::CrossingKind;
use crate::one_way::{OneWayParams, Route};
use crate::patched::StampCounts;
use crate::ticks::{CROSSINGS_MADE, CROSSINGS_STAMPED};
use crate::{guest, patched};

const METRICS: &[Metric] = &[
    CROSSINGS_MADE,
    CROSSINGS_STAMPED,
    Metric::count("stamps_ordered", "crossings whose four stamps are in order of time"),
    Metric::count("quiet_touches", "touches by the armed instruction that raise no fault"),
    Metric::count("spurious_stamps", "stamps after such touches"),
    Metric::count("signals_sent", "faults of the armed instruction that end in a signal"),
    Metric::count("signals_survived", "signals after which registers were unchanged"),
];

/// The method `stamping`.
pub struct Stamping;

impl Method for Stamping {
    type Params = OneWayParams;

    fn name(&self) -> &'static str {
        "stamping"
    }

    fn how(&self) -> &'static str {
        "Crossings and their stamps are counted, and no time is reported, so an emulated CPU serves too. Each \
         crossing must be stamped once and in order; a patched kernel must not stamp touches without a fault, \
         nor faults that end in a signal."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &OneWayParams) -> Result<(), Failure> {
        let OneWayParams { route, kind, .. } = *params;
        params.check_stamp()?;
        let is_fault = kind == CrossingKind::PageFault;
        match route {
            Route::GuestEmulated => route.vm_available(),
            Route::PatchedEmulated | Route::PatchedVm if is_fault => route.vm_available(),
            Route::Patched if is_fault => patched::available(kind, params.is_isolated()),
            Route::Guest => guest::countable(params.guest_crossing()),
            Route::PatchedEmulated | Route::PatchedVm | Route::Patched | Route::BareMetal => {
                Err(Failure::unavailable(
                    format!("route {route} does not stamp {kind}"),
                    "see docs/crossing.md for the kinds that each route stamps",
                ))
            }
        }
    }

    /// Includes the start of an emulated Linux, some seconds.
    fn expected(&self, params: &OneWayParams, _: Duration) -> Duration {
        match params.route {
            Route::PatchedEmulated | Route::PatchedVm => Duration::from_secs(15),
            Route::GuestEmulated => Duration::from_secs(3),
            Route::Guest | Route::Patched | Route::BareMetal => Duration::from_secs(1),
        }
    }

    fn guest(&self, params: &OneWayParams) -> Option<Guest> {
        params.vm()
    }

    fn probe(&self) -> Result<Box<dyn Probe<OneWayParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(context: &mut Context, params: &OneWayParams) -> Result<Measurement, Failure> {
    if !context.inside {
        Stamping.available(params)?;
    }
    let (crossing, crossings) = (params.guest_crossing(), params.crossings);
    match params.route {
        Route::Guest => guest::count(crossing, crossings),
        Route::GuestEmulated => guest::emulated(crossing, crossings),
        Route::BareMetal | Route::Patched | Route::PatchedVm | Route::PatchedEmulated => {
            patched::check(crossings).and_then(to_measurement)
        }
    }
}

fn to_measurement(counts: StampCounts) -> Result<Measurement, Failure> {
    counts.verify()?;
    let StampCounts { faults, stamped, ordered, quiet_touches, spurious, signals, survived } =
        counts;
    let values = [
        (CROSSINGS_MADE.name, faults),
        (CROSSINGS_STAMPED.name, stamped),
        ("stamps_ordered", ordered),
        ("quiet_touches", quiet_touches),
        ("spurious_stamps", spurious),
        ("signals_sent", signals),
        ("signals_survived", survived),
    ];
    let add = |sum: Measurement, (name, value): (&str, u64)| sum.value(name, value as f64);
    Ok(values.into_iter().fold(Measurement::default(), add))
}
