//! `crossing/stamping`: whether every crossing is stamped, and nothing else. Counts alone, so that it
//! runs under emulation too, where any machine can hold it against the truth.

use std::time::Duration;

use lab::guest::Guest;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::Metric;
use lab::sample::Failure;

use crate::guest::Kind;
use crate::params::{OneWayParams, Route};
use crate::patched::Checked;
use crate::{guest, metrics, patched, vm};

const METRICS: &[Metric] = &[
    metrics::CROSSINGS_MADE,
    metrics::CROSSINGS_STAMPED,
    Metric::count("stamps_ordered", "crossings whose four stamps follow each other in time"),
    Metric::count("quiet_touches", "touches of an armed instruction where nothing faults"),
    Metric::count("spurious_stamps", "stamps seen there"),
    Metric::count("signals_sent", "faults of an armed instruction that end in a signal"),
    Metric::count("signals_survived", "how many of them came back"),
];

/// Counts crossings and stamps.
pub struct Stamping;

impl Method for Stamping {
    type Params = OneWayParams;

    fn name(&self) -> &'static str {
        "stamping"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &OneWayParams) -> Result<(), Failure> {
        let OneWayParams { route, kind, .. } = *params;
        match route {
            Route::GuestEmulated => vm::available(route),
            Route::PatchedEmulated | Route::PatchedVm if kind == Kind::PageFault => {
                vm::available(route)
            }
            Route::Patched if kind == Kind::PageFault => patched::available(params),
            Route::Guest => guest::available(kind),
            Route::PatchedEmulated | Route::PatchedVm | Route::Patched | Route::BareMetal => {
                Err(Failure::unavailable(
                    format!("the route {route} stamps no {kind}"),
                    "see docs/crossing.md for what each route stamps",
                ))
            }
        }
    }

    /// An emulated Linux starts in some seconds.
    fn expected(&self, params: &OneWayParams, _: Duration) -> Duration {
        match params.route {
            Route::PatchedEmulated | Route::PatchedVm => Duration::from_secs(15),
            Route::GuestEmulated => Duration::from_secs(3),
            Route::Guest | Route::Patched | Route::BareMetal => Duration::from_secs(1),
        }
    }

    fn guest(&self, params: &OneWayParams) -> Option<Guest> {
        vm::guest(params)
    }

    fn probe(&self) -> Result<Box<dyn Probe<OneWayParams>>, Failure> {
        Ok(Box::new(StampingProbe))
    }
}

struct StampingProbe;

impl Probe<OneWayParams> for StampingProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &OneWayParams,
    ) -> Result<Measurement, Failure> {
        if !context.inside {
            Stamping.available(params)?;
        }
        match params.route {
            Route::Guest => guest::measure(context, params).map(counts_alone),
            Route::GuestEmulated => guest::emulated(params),
            _ => patched::check(params.crossings).and_then(told),
        }
    }
}

fn counts_alone(mut measurement: Measurement) -> Measurement {
    measurement.histograms.clear();
    measurement.values.retain(|name, _| name.starts_with("crossings_"));
    measurement
}

fn told(checked: Checked) -> Result<Measurement, Failure> {
    checked.verdict()?;
    let Checked { faults, stamped, ordered, unfaulting_touches, spurious, signals, survived } =
        checked;
    let values = [
        ("crossings_made", faults),
        ("crossings_stamped", stamped),
        ("stamps_ordered", ordered),
        ("quiet_touches", unfaulting_touches),
        ("spurious_stamps", spurious),
        ("signals_sent", signals),
        ("signals_survived", survived),
    ];
    let add = |told: Measurement, (name, value): (&str, u64)| told.value(name, value as f64);
    Ok(values.into_iter().fold(Measurement::default(), add))
}
