//! The role `dut`: the device under test, an application over an interface of its host. It only counts.

use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use super::interface::LinkWatch;
use super::{PACKETS, Side};
use crate::application::CoreNumber;
use crate::core_use::CoreStats;
use crate::generator::Report;
use crate::iterations::StallThreshold;
use crate::link::Link;
use crate::serve::LinkServer;
use crate::suite::application::{ApplicationCore, CoreApplication, CorePort};
use crate::suite::testbed::TrialReport;

/// Maximum mean time per packet. A loop that lost its CPU in the warm-up has learnt that packets take long, and finds no stalls.
const MAX_PACKET: Duration = Duration::from_micros(100);

/// What is counted up to a message of the generator.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    packets: u64,
    stray: u64,
    dropped: u64,
    carrier_changes: u32,
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            stray: self.stray - before.stray,
            dropped: self.dropped.saturating_sub(before.dropped),
            carrier_changes: self.carrier_changes.wrapping_sub(before.carrier_changes),
        }
    }
}

/// Serves until the generator stops, and returns the counts between its last two messages: before and after the trial.
///
/// # Errors
/// Returns the failure to record in place of a sample.
pub(super) fn measure(
    context: &mut Context,
    side: &Side,
    link: Box<dyn Link>,
    mut watch: LinkWatch,
) -> Result<Measurement, Failure> {
    let Side { config, cpu, tsc, .. } = *side;
    let spec = config.application_spec()?;
    let application = CoreApplication { spec, number: CoreNumber::ONLY, alone_on: None };
    let port = CorePort::Link(Box::new(LinkServer::new(link, watch.status())));
    let threshold = StallThreshold::new(tsc.rate());
    let core = ApplicationCore::start(cpu, config, application, port, threshold)?;
    context.ready()?;
    let (mut before, mut trial) = (Counts::default(), None);
    while context.message().is_some() {
        // Before the counts: the loop answers in an iteration without packets. A link that failed has ended it.
        let stats = core.stats().map_err(|why| watch.check().err().unwrap_or(why))?;
        let (packets, stray) = (core.processed(), watch.stray());
        let carrier_changes = watch.carrier_changes();
        let now = Counts { packets, stray, dropped: watch.dropped(), carrier_changes };
        trial = Some((stats, now.since(before)));
        before = now;
        context.send([(PACKETS.to_owned(), packets as f64)].into())?;
    }
    watch.check()?;
    let (stats, counts) =
        trial.ok_or_else(|| Failure::failed("the generator ended before its trial"))?;
    watch.check_carrier(counts.carrier_changes > 0)?;
    let measurement = watch.describe(of_trial(side, &stats, counts), "dut_");
    let is_starved = stats.iterations.busy > tsc.ticks(MAX_PACKET) * stats.iterations.packets;
    let report = Report { ended: tsc.ticks(context.budget), ..Report::default() };
    let trial = TrialReport { report, application: vec![stats], ..TrialReport::default() };
    let starved = || is_starved.then(|| "host stall: its loop lost the CPU in the warm-up".into());
    Ok(Measurement { void: side.load.void(&trial, tsc).or_else(starved), ..measurement })
}

fn of_trial(side: &Side, stats: &CoreStats, counts: Counts) -> Measurement {
    let Side { tsc, .. } = side;
    let iterations = &stats.iterations;
    let measurement = Measurement::default()
        .value("dut_packets", counts.packets as f64)
        .value("dut_stray", counts.stray as f64)
        .value("dut_dropped_by_kernel", counts.dropped as f64)
        .value("dut_stalled", tsc.nanoseconds(iterations.stalled as f64))
        .value("dut_longest_stall", tsc.nanoseconds(iterations.longest_stall as f64));
    match stats.core_hertz {
        Some(hertz) if iterations.packets > 0 => {
            let cycles = stats.work() / tsc.hertz * hertz;
            measurement.value("dut_cycles_per_packet", cycles / iterations.packets as f64)
        }
        _ => measurement,
    }
}
