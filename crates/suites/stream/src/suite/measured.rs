//! What a trial says, as metrics.

use lab::measure::Measurement;
use machine::tsc::Tsc;

use super::ceiling::Ceiling;
use super::setting::Setting;
use super::stand::Tried;
use crate::wire::sample::SMALLEST;

/// What every sample that tries one thing says.
pub(super) fn of(tried: &Tried, setting: &Setting, tsc: &Tsc) -> Measurement {
    let Tried { report, application, .. } = tried;
    let rate = report.rate() * tsc.hertz;
    let mut measurement = Measurement::default()
        .value("rate", rate)
        .value("wire_rate", rate * setting.wire_bits())
        .value("lost", tried.lost() as f64)
        .value("dropped", report.dropped as f64)
        .value("gap_nic", tsc.nanoseconds(report.gap as f64))
        .value("gap_application", tsc.nanoseconds(application.gap as f64))
        .value("stood_nic", tsc.nanoseconds(report.stood as f64))
        .value("stood_application", tsc.nanoseconds(application.stood as f64));
    if application.worked > 0 {
        let seconds = application.busy as f64 / tsc.hertz;
        let cycles = seconds * application.core_hertz / application.worked as f64;
        measurement = measurement.value("cycles_per_packet", cycles);
    }
    measurement
}

/// What every sample says of its setting and of the two cores.
pub(super) fn with_setting(
    mut measurement: Measurement,
    setting: &Setting,
    ceiling: Ceiling,
) -> Measurement {
    // A ceiling of lines is none for packets of several.
    let lines = setting.packet_bytes == SMALLEST;
    if ceiling.back > 0.0 {
        let rate = measurement.values.get("rate").copied().filter(|_| lines);
        measurement = match rate {
            Some(rate) => measurement.value("of_ceiling", rate / ceiling.back),
            None => measurement,
        };
        measurement = measurement.value("ceiling", ceiling.back);
    }
    if ceiling.one_way > 0.0 {
        measurement = measurement.value("ceiling_one_way", ceiling.one_way);
    }
    measurement
        .value("depth", f64::from(setting.depth))
        .covariate("modelled", setting.modelled().as_str())
}
