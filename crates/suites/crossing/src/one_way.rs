//! `crossing/one-way`: the time from user to kernel and from kernel to user, by the routes that stamp both.

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::guest::Guest;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use vm::QEMU;
use vm::guest::{Accelerator, Kernel, LinuxGuest};

use crate::guest::{CrossingKind, GuestCrossing, Stamp};
use crate::ticks::{CROSSINGS_MADE, CROSSINGS_STAMPED, RESOLUTION_METRIC, STEP_METRIC};
use crate::{guest, patched};

/// Maximum crossings per sample: at a microsecond each they take minutes.
pub const MAX_CROSSINGS: u32 = 100_000_000;

const METRICS: &[Metric] = &[
    Metric::time(
        "u2k",
        "user to kernel: trimmed mean, less that of the empty pair unless stamped like xperf",
    )
    .called("user to kernel"),
    Metric::time("u2k_min", "user to kernel: minimum")
        .called("user to kernel")
        .statistic("minimum"),
    Metric::time("u2k_p99", "user to kernel: 99th percentile")
        .called("user to kernel")
        .statistic("p99"),
    Metric::time("u2k_p999", "user to kernel: 99.9th percentile")
        .called("user to kernel")
        .statistic("p99.9"),
    Metric::time(
        "k2u",
        "kernel to user: trimmed mean, less that of the empty pair unless stamped like xperf",
    )
    .called("kernel to user"),
    Metric::time("k2u_min", "kernel to user: minimum")
        .called("kernel to user")
        .statistic("minimum"),
    Metric::time("k2u_p99", "kernel to user: 99th percentile")
        .called("kernel to user")
        .statistic("p99"),
    Metric::time("k2u_p999", "kernel to user: 99.9th percentile")
        .called("kernel to user")
        .statistic("p99.9"),
    Metric::time("kernel", "between the two stamps in the kernel: trimmed mean"),
    Metric::time("round_trip", "round trip without stamps in the kernel: trimmed mean"),
    Metric::time(
        "stamping",
        "stamps with no crossing between them: trimmed mean of both ways, less that of the empty pair unless \
         stamped like xperf",
    ),
    Metric::time("stamping_in", "the same, of user to kernel"),
    Metric::time("stamping_out", "the same, of kernel to user"),
    Metric::new(
        "in_over_out",
        "1",
        Better::Neither,
        "ratio of user to kernel to kernel to user: trimmed means",
    )
    .signed()
    .from_time(),
    STEP_METRIC,
    RESOLUTION_METRIC,
    CROSSINGS_MADE,
    CROSSINGS_STAMPED,
];

/// How the two ways are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Route {
    /// The micro-guest under KVM.
    Guest,
    /// The micro-guest on bare metal, imported.
    BareMetal,
    /// The running kernel, if it is patched.
    Patched,
    /// A patched kernel under KVM.
    PatchedVm,
    /// The micro-guest under emulation, for counts only.
    GuestEmulated,
    /// A patched kernel under emulation, for counts only.
    PatchedEmulated,
}

impl Route {
    /// Checks that the virtual machine of this route can start here.
    ///
    /// # Errors
    /// Returns `unavailable` without QEMU, or if the route needs KVM and its guests do not run in ring 0.
    pub(crate) fn vm_available(self) -> Result<(), Failure> {
        QEMU.find()?;
        match self {
            Self::PatchedVm => guest::ring_0(),
            Self::Guest
            | Self::BareMetal
            | Self::Patched
            | Self::GuestEmulated
            | Self::PatchedEmulated => Ok(()),
        }
    }
}

/// Whether page-table isolation switches CR3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Isolation {
    /// One page table for user and kernel.
    Off,
    /// Each crossing switches CR3.
    On,
}

/// Params of `one-way` and `stamping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Params)]
pub struct OneWayParams {
    /// guest (the built-in micro-guest under KVM), bare-metal (the same guest, imported), patched (the running kernel), patched-vm (a patched kernel under KVM); guest-emulated and patched-emulated count only
    #[factor(default = "guest")]
    pub route: Route,
    /// how the kernel is entered and left; same-ring stays in ring 0, none takes the stamps only
    #[factor(default = "page-fault")]
    pub kind: CrossingKind,
    /// whether CR3 is switched, as page-table isolation does; the guest's times include the switch, a patched Linux's do not
    #[factor(default = "off")]
    pub isolation: Isolation,
    /// how the guest reads the counter: lfence (before and after rdtsc), unfenced, mfence (before the crossing's rdtsc and after the next), xperf (the same, with the stores and tests that xperf has between its stamps); for page-fault and none
    #[factor(default = "lfence")]
    pub stamp: Stamp,
    /// crossings per sample
    #[factor(default = "100000", levels = Levels::Count(1, MAX_CROSSINGS as u64))]
    pub crossings: u64,
}

impl OneWayParams {
    /// Returns whether CR3 is switched.
    pub fn is_isolated(&self) -> bool {
        self.isolation == Isolation::On
    }

    /// Returns the crossing of the guest.
    pub(crate) fn guest_crossing(&self) -> GuestCrossing {
        GuestCrossing { kind: self.kind, stamp: self.stamp, isolated: self.is_isolated() }
    }

    /// Checks that the route has this stamp.
    pub(crate) fn check_stamp(&self) -> Result<(), Failure> {
        match self.route {
            Route::Guest | Route::BareMetal | Route::GuestEmulated => {
                self.guest_crossing().variant().map(drop)
            }
            Route::Patched | Route::PatchedVm | Route::PatchedEmulated => match self.stamp {
                Stamp::Lfence => Ok(()),
                Stamp::Unfenced | Stamp::Mfence | Stamp::Xperf => Err(Failure::unavailable(
                    format!("a patched kernel has no stamp {}", self.stamp),
                    "use route = guest",
                )),
            },
        }
    }

    /// Returns the code of others that stamps.
    pub(crate) fn foreign_code(&self) -> Vec<&'static str> {
        match self.route {
            Route::Guest | Route::GuestEmulated => Vec::new(),
            Route::BareMetal => vec!["the micro-guest on bare metal, which ran without tollgate"],
            Route::Patched => {
                vec!["the entry and exit of the running kernel, which was patched to stamp them"]
            }
            Route::PatchedVm | Route::PatchedEmulated => {
                vec!["the entry and exit of the patched Linux that the host compiled"]
            }
        }
    }

    /// Returns the virtual machine in which the point is measured; `None` if it needs none, or one that
    /// cannot start here.
    pub(crate) fn vm(&self) -> Option<Guest> {
        let accelerator = match self.route {
            Route::PatchedVm => Accelerator::Kvm,
            Route::PatchedEmulated => Accelerator::Tcg,
            Route::Guest | Route::BareMetal | Route::Patched | Route::GuestEmulated => return None,
        };
        self.route.vm_available().ok()?;
        let parameters = format!("pti={}", self.isolation);
        let name = format!("{}, {parameters}", self.route);
        let kernel = Kernel::Built(patched::linux());
        Some(LinuxGuest { parameters, ..LinuxGuest::new(name, kernel, accelerator) }.into_guest())
    }
}

/// The method `one-way`.
pub struct OneWay;

impl Method for OneWay {
    type Params = OneWayParams;

    fn name(&self) -> &'static str {
        "one-way"
    }

    fn how(&self) -> &'static str {
        "Each crossing is stamped by the time-stamp counter on both sides, as the factor stamp states; the \
         value of a way is the trimmed mean, less that of an empty pair except with xperf's stamps. Every \
         crossing must have its own stamps, in order, and a guest under KVM must run in a real ring 0."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &OneWayParams) -> Result<(), Failure> {
        params.check_stamp()?;
        match params.route {
            Route::Guest => guest::available(params.guest_crossing()),
            Route::GuestEmulated | Route::PatchedEmulated => Err(Failure::unavailable(
                "emulated times are meaningless",
                "use crossing/stamping, which counts the stamped crossings under emulation",
            )),
            Route::BareMetal => Err(Failure::unavailable(
                "on bare metal the guest runs without Linux",
                "tollgate crossing guest --write FILE, boot it, then tollgate crossing import OUTPUT",
            )),
            Route::PatchedVm => guest::clock().and_then(|()| params.route.vm_available()),
            Route::Patched => patched::available(params.kind, params.is_isolated()),
        }
    }

    fn expected(&self, params: &OneWayParams, _: Duration) -> Duration {
        // The start of a guest, and at most a few thousand cycles per crossing.
        Duration::from_millis(20) + Duration::from_nanos(params.crossings * 2_000)
    }

    fn guest(&self, params: &OneWayParams) -> Option<Guest> {
        // Without a clock no virtual machine needs to boot for the refusal.
        guest::clock().ok().and_then(|()| params.vm())
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["crossing::patched::touch"]
    }

    fn foreign_code(&self, params: &OneWayParams) -> Vec<&'static str> {
        params.foreign_code()
    }

    fn probe(&self) -> Result<Box<dyn Probe<OneWayParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Takes one sample.
pub(crate) fn measure(
    context: &mut Context,
    params: &OneWayParams,
) -> Result<Measurement, Failure> {
    if !context.inside {
        OneWay.available(params)?;
    }
    let OneWayParams { kind, crossings, .. } = *params;
    let isolated = params.is_isolated();
    let measured = match params.route {
        Route::Guest => guest::measure(context, params.guest_crossing(), crossings),
        Route::BareMetal
        | Route::Patched
        | Route::PatchedVm
        | Route::GuestEmulated
        | Route::PatchedEmulated => patched::measure(context, kind, isolated, crossings),
    };
    measured.map(with_ratio)
}

/// Adds `in_over_out`, the ratio of entry to exit, if both are above zero.
pub(crate) fn with_ratio(measurement: Measurement) -> Measurement {
    let value = |name| measurement.values.get(name).copied().filter(|value| *value > 0.0);
    match value("u2k").zip(value("k2u")) {
        Some((way_in, way_out)) => measurement.value("in_over_out", way_in / way_out),
        None => measurement,
    }
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn crossings_out_of_range_are_refused_with_the_range() {
        let of = |crossings: &str| {
            let params = OneWayParams::with_defaults(&Point::from([("crossings", crossings)]));
            params.map(|params| params.crossings)
        };
        assert_eq!(of("1"), Ok(1));
        assert_eq!(of("100000000"), Ok(100_000_000));
        for outside in ["0", "100000001", "18446744073709551615"] {
            let failure = of(outside).unwrap_err();
            assert!(failure.why.contains("from 1 to 100000000"), "{failure}");
        }
    }
}
