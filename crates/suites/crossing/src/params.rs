//! The factors of the one-way methods, parsed.

use lab::factor::{LevelType, Levels};
use lab::method::Params;

use crate::guest::Kind;

/// The most crossings of a sample: with a microsecond each they take minutes.
pub const MAX_CROSSINGS: u32 = 100_000_000;

/// By which route the two ways are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Route {
    /// Our guest, under KVM.
    Guest,
    /// The same guest on bare metal, imported.
    BareMetal,
    /// This kernel, if it is patched.
    Patched,
    /// A patched kernel under KVM.
    PatchedVm,
    /// Our guest under emulation: for counts alone.
    GuestEmulated,
    /// A patched kernel under emulation: for counts alone.
    PatchedEmulated,
}

/// Whether CR3 is switched, as page-table isolation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Isolation {
    /// It is not.
    Off,
    /// It is.
    On,
}

/// Levels of `one-way` and `stamping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Params)]
pub struct OneWayParams {
    /// guest (ours, under KVM), bare-metal (the same guest, imported), patched (this kernel), patched-vm (a patched kernel under KVM); emulated: for counts alone
    #[factor(default = "guest")]
    pub route: Route,
    /// how the kernel is entered and left; same-ring crosses no ring, none is stamps alone
    #[factor(default = "page-fault")]
    pub kind: Kind,
    /// whether CR3 is switched, as page-table isolation does; the guest's times include it, a patched Linux's do not
    #[factor(default = "off")]
    pub isolation: Isolation,
    /// crossings a sample
    #[factor(default = "100000", levels = Levels::Count(1, MAX_CROSSINGS as u64))]
    pub crossings: u64,
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn crossings_are_bounded_and_the_bounds_are_told() {
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
