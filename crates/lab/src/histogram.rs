//! The encoding of histograms in the journal: HdrHistogram V2 in base64.
//!
//! Journals and answers of workers are not trusted, and the decoder of the library is not robust: it allocates as many
//! bytes as the header states, and its additions and negations may overflow. So its input is checked first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};

/// The first word of the V2 format, uncompressed, with 8-byte words.
const COOKIE: u32 = 0x1c84_9313;
/// The length of the header, in bytes.
const HEADER: usize = 40;
/// The maximum number of significant digits. With more, an empty histogram takes megabytes.
const MAX_DIGITS: u32 = 3;
/// The maximum upper bound of a histogram.
const MAX_HIGH: u64 = i64::MAX as u64;
/// The maximum number of counts with `MAX_DIGITS` digits: 55 buckets of 1024.
const MAX_LENGTH: u64 = 55 << 10;
/// The maximum length of a count, in bytes.
const MAX_NUMBER: usize = 9;
/// The maximum length of an encoded histogram, in bytes.
const MAX_BYTES: usize = HEADER + MAX_LENGTH as usize * MAX_NUMBER;

/// The maximum sum of all counts of a histogram: a larger sum is not exact in an `f64`.
pub const MAX_COUNT: u64 = 1 << 53;

/// Encodes a histogram for the journal.
pub(crate) fn encode(histogram: &Histogram<u64>) -> Result<String, String> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).map_err(|e| format!("{e:?}"))?;
    Ok(STANDARD_NO_PAD.encode(bytes))
}

/// Decodes a histogram from the journal, in less than two megabytes of memory.
///
/// # Errors
/// Returns one line if the text is not an encoded histogram.
pub fn decode_histogram(text: &str) -> Result<Histogram<u64>, String> {
    // Base64 encodes three bytes as four characters.
    if text.len() > MAX_BYTES.div_ceil(3) * 4 {
        return Err(format!("not an HdrHistogram: it has over {MAX_BYTES} bytes"));
    }
    let bytes = STANDARD_NO_PAD.decode(text).map_err(|e| format!("not base64: {e}"))?;
    check(&bytes).map_err(|why| format!("not an HdrHistogram: {why}"))?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|e| format!("not an HdrHistogram: {e:?}"))
}

fn check(bytes: &[u8]) -> Result<(), String> {
    let Some((header, counts)) = bytes.split_at_checked(HEADER) else {
        return Err(format!("it has {} bytes, fewer than its header of {HEADER}", bytes.len()));
    };
    let (cookie, stated, digits) = (word(header, 0), word(header, 4), word(header, 12));
    let (low, high) = (long(header, 16), long(header, 24));
    if cookie != COOKIE {
        return Err(format!("it starts with {cookie:#010x} instead of {COOKIE:#010x}"));
    }
    if stated as usize != counts.len() {
        return Err(format!(
            "its header states {stated} bytes of counts, and {} follow",
            counts.len()
        ));
    }
    if digits > MAX_DIGITS {
        return Err(format!("it has {digits} significant digits, more than {MAX_DIGITS}"));
    }
    if low != 1 || high > MAX_HIGH {
        return Err(format!("its values are from {low} to {high} instead of from 1 to {MAX_HIGH}"));
    }
    check_counts(counts)
}

/// Checks the counts: a non-negative number is the count of the next value, a negative number skips values.
fn check_counts(mut bytes: &[u8]) -> Result<(), String> {
    let (mut values, mut counted) = (0u64, 0u64);
    while !bytes.is_empty() {
        let (number, rest) = number(bytes).ok_or("it ends within a number")?;
        bytes = rest;
        let skipped = if number < 0 { number.unsigned_abs() } else { 1 };
        values = values.saturating_add(skipped);
        counted = counted.saturating_add(u64::try_from(number).unwrap_or(0));
        if values > MAX_LENGTH {
            return Err(format!("it counts more than {MAX_LENGTH} values"));
        }
        if counted > MAX_COUNT {
            return Err(format!("its counts add up to more than {MAX_COUNT}"));
        }
    }
    Ok(())
}

/// Decodes a ZigZag LEB128 number of at most 9 bytes, the ninth of which has 8 data bits; `None` if it is incomplete.
fn number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut encoded = 0u64;
    for (at, byte) in bytes.iter().take(MAX_NUMBER).enumerate() {
        let last = at + 1 == MAX_NUMBER;
        let bits = if last { *byte } else { byte & 0x7f };
        encoded |= u64::from(bits) << (7 * at);
        if last || byte & 0x80 == 0 {
            let sign = -((encoded & 1) as i64);
            return Some(((encoded >> 1) as i64 ^ sign, &bytes[at + 1..]));
        }
    }
    None
}

fn word(header: &[u8], at: usize) -> u32 {
    header[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn long(header: &[u8], at: usize) -> u64 {
    u64::from(word(header, at)) << 32 | u64::from(word(header, at + 4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a header with these fields and the counts.
    fn encoded(stated: u32, digits: u32, (low, high): (u64, u64), counts: &[u8]) -> String {
        let words = [COOKIE, stated, 0, digits].map(u32::to_be_bytes).concat();
        let longs = [low, high, 1f64.to_bits()].map(u64::to_be_bytes).concat();
        STANDARD_NO_PAD.encode([&words, &longs, counts].concat())
    }

    fn of_counts(counts: &[u8]) -> Result<Histogram<u64>, String> {
        decode_histogram(&encoded(counts.len() as u32, 3, (1, 1 << 30), counts))
    }

    #[track_caller]
    fn refused(decoded: Result<Histogram<u64>, String>, why: &str) {
        let line = decoded.unwrap_err();
        assert!(line.starts_with("not an HdrHistogram: ") && line.contains(why), "{line}");
    }

    #[test]
    fn a_header_that_contradicts_the_counts_is_refused() {
        let empty = |stated| decode_histogram(&encoded(stated, 3, (1, 1 << 30), &[]));
        assert!(empty(0).unwrap().is_empty());
        refused(empty(u32::MAX), "states 4294967295 bytes of counts, and 0 follow");
        refused(decode_histogram(&encoded(0, 3, (1, 1 << 30), &[2])), "states 0 bytes");
        refused(decode_histogram(&encoded(0, 5, (1, u64::MAX), &[])), "5 significant digits");
        refused(decode_histogram(&encoded(0, 3, (1, u64::MAX), &[])), "to 18446744073709551615");
        refused(
            decode_histogram(&encoded(0, 3, (1 << 62, MAX_HIGH), &[])),
            "from 4611686018427387904",
        );
        refused(decode_histogram("HISTFA"), "fewer than its header of 40");
        refused(decode_histogram(&"A".repeat(MAX_BYTES * 2)), "over");
        let deflated =
            STANDARD_NO_PAD.encode([&[0x1c, 0x84, 0x93, 0x14], [0u8; 60].as_slice()].concat());
        refused(decode_histogram(&deflated), "starts with 0x1c849314");
    }

    #[test]
    fn counts_that_overflow_are_refused() {
        refused(of_counts(&[0xff; 9]), "more than 56320 values");
        let max = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(number(&max), Some((i64::MAX, [].as_slice())));
        refused(of_counts(&max.repeat(3)), "add up to more than 9007199254740992");
        refused(of_counts(&[0x80, 0x80]), "ends within a number");
        // The maximum number of values, more than this histogram has.
        refused(of_counts(&[0xfd, 0xef, 0x06, 0x02]), "EncodedArrayTooLong");
        assert_eq!(of_counts(&[0x02, 0x04]).unwrap().len(), 3);
    }

    proptest! {
        #[test]
        fn an_encoded_histogram_is_decoded_unchanged(values in prop::collection::vec(0..=MAX_HIGH / 2, 0..200)) {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            values.iter().for_each(|value| histogram.record(*value).unwrap());
            let decoded = decode_histogram(&encode(&histogram).unwrap());
            prop_assert_eq!(decoded, Ok(histogram));
        }

        /// If the check passes, the decoder does not panic and reads the same counts.
        #[test]
        fn any_counts_are_decoded_or_refused(
            counts in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff), 0..6u8], 0..60),
        ) {
            if let Ok(histogram) = of_counts(&counts) {
                prop_assert!(histogram.len() <= MAX_COUNT);
                prop_assert_eq!(decode_histogram(&encode(&histogram).unwrap()), Ok(histogram));
            }
        }
    }
}
