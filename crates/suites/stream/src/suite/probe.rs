//! What measures the points of an order.

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::proximity;
use lab::sample::Failure;

use super::setting::Setting;
use super::{Kind, ceiling, closed, load, measured, search};

/// Measures points one way.
pub(super) struct StreamProbe(pub Kind);

impl Probe for StreamProbe {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let setting = Setting::of(point)?;
        let cpus = setting.cpus(context.cpus)?;
        let (tsc, budget) = (context.tsc()?, context.budget);
        proximity::among(cpus.nic, &cpus.applications, || {
            // Before and after, as the CPUs may have come nearer.
            let before = ceiling::measure(&cpus, tsc)?;
            let measured = match self.0 {
                Kind::Closed => closed::measure(&setting, &cpus, budget, tsc),
                Kind::Load => load::measure(&setting, &cpus, budget, tsc, false),
                Kind::RoundTrips => load::measure(&setting, &cpus, budget, tsc, true),
                Kind::Search => search::measure(&setting, &cpus, budget, tsc),
            }?;
            let ceiling = ceiling::measure(&cpus, tsc)?.or(before);
            Ok(measured::with_setting(measured, &setting, ceiling))
        })
    }
}
