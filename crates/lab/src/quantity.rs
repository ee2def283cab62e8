//! Quantities as text: `64 KiB`, `5 ms`, `2%`.

use std::time::Duration;

/// An error of parsing a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct QuantityError {
    /// The text.
    pub text: String,
    /// The expected quantity, with an example.
    pub expected: &'static str,
}

const BINARY: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Splits `64 KiB` into the number and the unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

/// Parses a number of bytes: `64 KiB`, `16 B` or `4096`.
///
/// # Errors
/// Returns an error if the text is not a whole number of bytes.
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let wrong =
        || QuantityError { text: text.into(), expected: "a number of bytes, e.g. '64 KiB'" };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, factor) = BINARY.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let value = number * *factor as f64;
    if value.fract() != 0.0 || value > (1u64 << 53) as f64 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// Returns the shortest exact text of a number of bytes: 65536 is `64 KiB`, 100 is `100 B`.
pub fn format_bytes(bytes: u64) -> String {
    BINARY
        .iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(|| "0 B".into(), |(unit, factor)| format!("{} {unit}", bytes / factor))
}

/// Parses a time: `5 ms`, `2 s`, `100 us`, `250 ns`, `3 min` (or `3m`) or `1 h`.
///
/// # Errors
/// Returns an error if the text is not a time.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    let wrong = || QuantityError { text: text.into(), expected: "a time, e.g. '5 ms'" };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// Parses a share: `2%` or `0.02`.
///
/// # Errors
/// Returns an error if the text is not a share between 0 and 1, both excluded.
pub fn share(text: &str) -> Result<f64, QuantityError> {
    let wrong = || QuantityError { text: text.into(), expected: "a share, e.g. '2%'" };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(wrong()),
    };
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(wrong()) }
}

/// Returns a time as text: `1 h 05 min`, `3 min 20 s`, `4.2 s`, `12 ms`.
pub fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let whole = time.as_secs();
    match seconds {
        s if s >= 3600.0 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        s if s >= 60.0 => format!("{} min {:02} s", whole / 60, whole % 60),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_parse_and_format() {
        assert_eq!(bytes("64 KiB"), Ok(65536));
        assert_eq!(bytes("16"), Ok(16));
        assert_eq!(bytes("0.5 KiB"), Ok(512));
        assert!(bytes("64 KB").is_err() && bytes("-1 B").is_err() && bytes("").is_err());
        assert_eq!(format_bytes(65536), "64 KiB");
        assert_eq!(format_bytes(1 << 20), "1 MiB");
        assert_eq!(format_bytes(100), "100 B");
        assert_eq!(format_bytes(0), "0 B");
    }

    #[test]
    fn times_and_shares_parse() {
        assert_eq!(duration("5 ms"), Ok(Duration::from_millis(5)));
        assert!(duration("5").is_err() && duration("fast").is_err());
        assert_eq!(share("2%"), Ok(0.02));
        assert!(share("0").is_err() && share("200%").is_err());
        assert_eq!(format_duration(Duration::from_secs(200)), "3 min 20 s");
    }

    proptest! {
        #[test]
        fn bytes_survive_the_round_trip(n in 0u64..1 << 50) {
            prop_assert_eq!(bytes(&format_bytes(n)), Ok(n));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (bytes(&text), duration(&text), share(&text));
        }
    }
}
