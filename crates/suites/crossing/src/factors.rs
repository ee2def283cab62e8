//! What the crossing experiments vary.

use lab::factor::{Factor, Levels};
use lab::point::Point;
use lab::sample::Failure;

/// The most crossings of a sample: with a microsecond each they take minutes.
pub const MAX_CROSSINGS: u32 = 100_000_000;

/// The crossings that a point asks for.
///
/// # Errors
/// Where they are none or more than [`MAX_CROSSINGS`], and what to set.
pub(crate) fn crossings(point: &Point) -> Result<u64, Failure> {
    let asked = point.get("crossings").and_then(|level| level.count()).unwrap_or(0);
    if (1..=u64::from(MAX_CROSSINGS)).contains(&asked) {
        return Ok(asked);
    }
    Err(Failure::unavailable(
        format!("{asked} crossings a sample"),
        format!("set crossings to a number from 1 to {MAX_CROSSINGS}"),
    ))
}

/// By which route the two ways are stamped.
pub const ROUTES: &[&str] =
    &["guest", "bare-metal", "patched", "patched-vm", "guest-emulated", "patched-emulated"];
/// How the kernel is entered and left, one way each.
pub const KINDS: &[&str] = &[
    "page-fault",
    "software-interrupt",
    "breakpoint",
    "invalid-opcode",
    "syscall-sysret",
    "syscall-iretq",
    "same-ring",
    "none",
];

/// The factors of the one-way experiments.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "route",
        about: "guest (ours, under KVM), bare-metal (the same guest, imported), patched (this \
                kernel), patched-vm (a patched kernel under KVM); emulated: for counts alone",
        levels: Levels::Names(ROUTES),
        default: None,
    },
    Factor {
        name: "kind",
        about: "how the kernel is entered and left; same-ring crosses no ring, none is stamps alone",
        levels: Levels::Names(KINDS),
        default: None,
    },
    Factor {
        name: "isolation",
        about: "whether CR3 is switched, as page-table isolation does; the guest's times include it, a \
                patched Linux's do not",
        levels: Levels::Names(&["off", "on"]),
        default: None,
    },
    Factor {
        name: "crossings",
        about: "crossings a sample",
        levels: Levels::Count(1, MAX_CROSSINGS as u64),
        default: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_bounded_and_the_bounds_are_told() {
        let of = |crossings: &str| crossings_of(crossings);
        assert_eq!(of("1"), Ok(1));
        assert_eq!(of("100000000"), Ok(100_000_000));
        for outside in ["0", "100000001", "18446744073709551615"] {
            let failure = of(outside).unwrap_err();
            assert_eq!(failure.why, format!("{outside} crossings a sample"));
            assert!(failure.remedy.unwrap().contains("from 1 to 100000000"));
        }
        assert!(crossings(&Point::default()).is_err());
    }

    fn crossings_of(level: &str) -> Result<u64, Failure> {
        crossings(&Point::from([("crossings", level)]))
    }
}
