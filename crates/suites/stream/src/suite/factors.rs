//! The factors of the suite.

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::quantity;

use crate::nic::layout::{BUFFERS, FLIT, NOTIFICATIONS, PIPES};
use crate::wire::sample::{LARGEST, SMALLEST};

/// Bytes of the smallest and of the largest ring.
const RINGS: std::ops::RangeInclusive<usize> = 4096..=64 << 20;

/// Instructions that do nothing for each packet at most: a packet then takes some 0.1 ms.
pub(crate) const MOST_CYCLES: u32 = 1_000_000;
/// The longest time that a doorbell or transfer is modelled to take.
pub(crate) const MOST_MODELLED: Duration = Duration::from_millis(1);

/// The factors, in the order in which people read them.
pub const FACTORS: &[Factor] = &[
    Factor {
        name: "interface",
        about: "how packets reach the application: pipes (notified reactively), pipes-per-packet (of every \
                packet), pipes-prefetch, or descriptors (a descriptor and a buffer a packet)",
        levels: Levels::Names(&["pipes", "pipes-per-packet", "pipes-prefetch", "descriptors"]),
        default: None,
    },
    Factor {
        name: "packet_bytes",
        about: "bytes of each packet on the wire, check sequence counted: 64 to 1518",
        levels: Levels::Checked(packet_bytes),
        default: None,
    },
    Factor {
        name: "pipes",
        about: "pipes (or queues) of all cores together, each with a flow of its own",
        levels: Levels::Checked(pipes),
        default: None,
    },
    Factor {
        name: "cores",
        about: "cores of the application",
        levels: Levels::Checked(cores),
        default: None,
    },
    Factor {
        name: "check",
        about: "what of each packet that comes back is compared with what was sent, besides count and \
                order: none, one-word or all",
        levels: Levels::Names(&["none", "one-word", "all"]),
        default: None,
    },
    Factor {
        name: "ring",
        about: "bytes of each pipe's ring: a power of two",
        levels: Levels::Checked(ring),
        default: None,
    },
    Factor {
        name: "depth",
        about: "packets that each pipe (or queue) holds: a power of two; 'ring': as many of 64 B as fit \
                its ring",
        levels: Levels::Checked(depth),
        default: None,
    },
    Factor {
        name: "load",
        about: "the rate at which packets are sent, Gbps on the wire with preamble and gap",
        levels: Levels::Checked(gigabits),
        default: None,
    },
    Factor {
        name: "cycles",
        about: "instructions that do nothing, for each packet",
        levels: Levels::Checked(cycles),
        default: None,
    },
    Factor {
        name: "notifications",
        about: "notifications that each buffer of a core holds: a power of two",
        levels: Levels::Checked(notifications),
        default: None,
    },
    Factor {
        name: "window",
        about: "packets under way at most, where they are sent as they come back; half of what the rings \
                hold where that is less",
        levels: Levels::Checked(window),
        default: None,
    },
    Factor {
        name: "modelled_doorbell",
        about: "how long a write to the NIC's registers is modelled to take; none: as long as it takes",
        levels: Levels::Checked(modelled),
        default: None,
    },
    Factor {
        name: "modelled_transfer",
        about: "how long a transfer by the NIC is modelled to take; none: as long as it takes",
        levels: Levels::Checked(modelled),
        default: None,
    },
    Factor {
        name: "maximum",
        about: "the largest rate that a search tries, Gbps",
        levels: Levels::Checked(gigabits),
        default: None,
    },
];

/// A whole number in a range.
fn whole(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let (least, most) = (range.start(), range.end());
    let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is not from {least} to {most}"))
}

/// A power of two in a range.
fn power(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<String, String> {
    let number = whole(text, range)?;
    let is = number.parse::<u64>().is_ok_and(u64::is_power_of_two);
    if is { Ok(number) } else { Err(format!("{text} is no power of two")) }
}

fn packet_bytes(text: &str) -> Result<String, String> {
    whole(text, u64::from(SMALLEST)..=u64::from(LARGEST))
}

fn pipes(text: &str) -> Result<String, String> {
    whole(text, 1..=u64::from(PIPES))
}

fn cores(text: &str) -> Result<String, String> {
    whole(text, 1..=u64::from(BUFFERS))
}

fn cycles(text: &str) -> Result<String, String> {
    whole(text, 0..=u64::from(MOST_CYCLES))
}

fn window(text: &str) -> Result<String, String> {
    whole(text, 1..=1 << 30)
}

fn notifications(text: &str) -> Result<String, String> {
    power(text, 2..=u64::from(NOTIFICATIONS))
}

fn depth(text: &str) -> Result<String, String> {
    let flits = |bytes: &usize| (bytes / FLIT) as u64;
    if text == "ring" {
        return Ok(text.into());
    }
    power(text, flits(RINGS.start())..=flits(RINGS.end()))
}

fn ring(text: &str) -> Result<String, String> {
    let bytes = quantity::bytes(text).map_err(|why| why.to_string())?;
    let fits = usize::try_from(bytes).is_ok_and(|bytes| RINGS.contains(&bytes));
    let spelled = quantity::format_bytes(bytes);
    match bytes.is_power_of_two() && fits {
        true => Ok(spelled),
        false => Err(format!("{spelled} is no power of two from 4 KiB to 64 MiB")),
    }
}

fn gigabits(text: &str) -> Result<String, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.001 && *number <= 10_000.0);
    number.map(|n| n.to_string()).ok_or_else(|| format!("'{text}' is no rate in Gbps, as 100"))
}

fn modelled(text: &str) -> Result<String, String> {
    if text == "none" {
        return Ok(text.into());
    }
    let time = quantity::duration(text).map_err(|why| why.to_string())?;
    match time.is_zero() || time > MOST_MODELLED {
        true => Err(format!("{text} is not from 1 ns to 1 ms; say none where nothing is modelled")),
        false => Ok(format!("{} ns", time.as_nanos())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_one_spelling_or_say_what_is_wrong() {
        let level = |name: &str, text: &str| {
            let factor = lab::factor::find(FACTORS, name).unwrap();
            factor.level(text).map(|level| level.as_str().to_owned())
        };
        assert_eq!(level("ring", "2048 KiB").unwrap(), "2 MiB");
        assert_eq!(level("depth", "ring").unwrap(), "ring");
        assert_eq!(level("depth", "1024").unwrap(), "1024");
        assert_eq!(level("load", "0.5").unwrap(), "0.5");
        assert_eq!(level("load", "100.0").unwrap(), "100");
        assert_eq!(level("modelled_doorbell", "0.4 us").unwrap(), "400 ns");
        assert_eq!(level("modelled_doorbell", "none").unwrap(), "none");
        for (name, text) in [
            ("ring", "3 MiB"),
            ("ring", "1 KiB"),
            ("depth", "1000"),
            ("load", "0"),
            ("packet_bytes", "63"),
            ("pipes", "8193"),
            ("cycles", "1000001"),
            ("cycles", "-1"),
            ("cores", "18446744073709551616"),
            ("window", "1073741825"),
            ("modelled_transfer", "0 ns"),
            ("interface", "rings"),
        ] {
            let why = level(name, text).unwrap_err();
            assert!(why.contains(name) && !why.contains('\n'), "{why}");
        }
    }
}
