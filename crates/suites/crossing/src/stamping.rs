//! `crossing/stamping`: whether every crossing is stamped, and nothing else. Counts alone, so that it
//! runs under emulation too, where any machine can hold it against the truth.

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::Metric;
use lab::point::Point;
use lab::sample::Failure;

use crate::patched::Checked;
use crate::{factors, guest, patched, vm};

/// The metrics of this experiment that the others do not have.
pub const METRICS: &[Metric] = &[
    Metric::count("stamps_ordered", "crossings whose four stamps follow each other in time"),
    Metric::count("quiet_touches", "touches of an armed instruction where nothing faults"),
    Metric::count("spurious_stamps", "stamps seen there"),
    Metric::count("signals_sent", "faults of an armed instruction that end in a signal"),
    Metric::count("signals_survived", "how many of them came back"),
];

/// Whether a point can be checked here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    match point.text("route") {
        "guest-emulated" => vm::available("guest-emulated"),
        "patched-emulated" | "patched-vm" if point.text("kind") == "page-fault" => {
            vm::available(point.text("route"))
        }
        "patched" if point.text("kind") == "page-fault" => patched::available(point),
        "guest" => guest::available(point),
        route => Err(Failure::unavailable(
            format!("the route {route} stamps no {}", point.text("kind")),
            "see docs/crossing.md for what each route stamps",
        )),
    }
}

/// How long a sample takes with all that it prepares: an emulated Linux starts in some seconds.
pub fn expected(point: &Point, _: Duration) -> Duration {
    match point.text("route") {
        "patched-emulated" | "patched-vm" => Duration::from_secs(15),
        "guest-emulated" => Duration::from_secs(3),
        _ => Duration::from_secs(1),
    }
}

/// What checks the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Stamping)
}

struct Stamping;

impl Probe for Stamping {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        if !context.inside {
            available(point)?;
        }
        let crossings = factors::crossings(point)?;
        match point.text("route") {
            "guest" => guest::measure(context, point).map(counts_alone),
            "guest-emulated" => guest::emulated(point),
            _ => patched::check(crossings).and_then(told),
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
