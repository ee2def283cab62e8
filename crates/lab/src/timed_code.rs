//! Code that a run timed and that is not part of the program, as its probes executed it: lines of `code.jsonl`.
//!
//! A method whose loops are made at run time, or whose loops call functions of a library, or that starts a compiled program,
//! calls [`machine::timed_code::record`]. In the first round the probe sends the code of each point, and the lab writes that
//! of each point and environment once. Code that is compiled into the program is not recorded: the hash of the program in
//! `run.json` identifies it.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use machine::mapping::PAGE;
use machine::timed_code::{Collected, MAX_BYTES, MAX_LOOPS, TimedLoop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::point::Point;

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 200;

/// The generated loops of a point, and functions outside of the program, as they were executed in the first round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimedCode {
    /// The experiment's ID.
    pub experiment: String,
    /// One level per factor.
    pub point: Point,
    /// The role of the process; absent if the experiment has no roles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The ID of the environment, as in `run.json`.
    pub environment: String,
    /// The number of the session, from 1.
    pub session: u32,
    /// The loops and functions, each once.
    pub loops: Vec<EncodedLoop>,
    /// The number of loops that are missing because they were too many or too large.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A generated loop, compressed: most of it are copies. Or a function outside of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EncodedLoop {
    /// Name of the repeated code, e.g. `independent, 48 copies`.
    pub name: String,
    /// Offset of its first byte from the start of a page, in the recorded sample.
    pub page_offset: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its bytes: DEFLATE in base64.
    pub code: String,
}

impl EncodedLoop {
    /// Encodes a loop; `None` if it is empty or its name is longer than a record may contain.
    fn new(timed: &TimedLoop) -> Option<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        // Writing to memory does not fail.
        let code = encoder.write_all(&timed.code).and_then(|()| encoder.finish()).ok()?;
        let encoded = Self {
            name: timed.name.clone(),
            page_offset: timed.page_offset,
            bytes: timed.code.len(),
            code: STANDARD_NO_PAD.encode(code),
        };
        encoded.check().is_ok().then_some(encoded)
    }

    /// Returns its bytes.
    ///
    /// # Errors
    /// Returns one line if they are not what the record states, or too many.
    pub fn decode(&self) -> Result<Vec<u8>, String> {
        if self.bytes > MAX_BYTES {
            return Err(format!("a loop of {} bytes, more than {MAX_BYTES}", self.bytes));
        }
        // Code that is encoded in more characters is longer than the limit of a point.
        if self.code.len() > 2 * MAX_BYTES {
            return Err("a loop is too long".into());
        }
        let compressed =
            STANDARD_NO_PAD.decode(&self.code).map_err(|why| format!("code: {why}"))?;
        let mut code = Vec::new();
        let mut decoder = DeflateDecoder::new(compressed.as_slice()).take(self.bytes as u64 + 1);
        decoder.read_to_end(&mut code).map_err(|why| format!("code: {why}"))?;
        match code.len() == self.bytes {
            true => Ok(code),
            false => Err(format!("a loop does not have the {} bytes that it states", self.bytes)),
        }
    }

    /// Checks everything but its bytes.
    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(format!("the name of a loop has {} bytes", self.name.len()));
        }
        if self.page_offset >= PAGE || self.bytes == 0 {
            return Err(format!("a loop of {} B at {} of a page", self.bytes, self.page_offset));
        }
        Ok(())
    }
}

/// Encodes the loops that a process collected; returns the number of those that are missing.
pub(crate) fn encode(collected: &Collected) -> (Vec<EncodedLoop>, usize) {
    let loops: Vec<_> = collected.loops.iter().filter_map(EncodedLoop::new).collect();
    let omitted = collected.loops.len() - loops.len() + collected.omitted;
    (loops, omitted)
}

/// Checks loops that another process sent, or that a file contains.
///
/// # Errors
/// Returns one line if they are too many or too large, or one does not contain what it states.
pub(crate) fn check_loops(loops: &[EncodedLoop]) -> Result<(), String> {
    let total = loops.iter().fold(0usize, |total, one| total.saturating_add(one.bytes));
    if loops.len() > MAX_LOOPS || total > MAX_BYTES {
        return Err(format!("{} loops of {total} B in total", loops.len()));
    }
    loops.iter().try_for_each(|one| one.check().and_then(|()| one.decode().map(|_| ())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timed(code: Vec<u8>) -> TimedLoop {
        TimedLoop { name: "copies".into(), page_offset: 64, code }
    }

    #[test]
    fn loops_with_false_statements_are_refused() {
        let right = EncodedLoop::new(&timed(vec![0x90; 1000])).unwrap();
        assert_eq!(check_loops(std::slice::from_ref(&right)), Ok(()));
        type Change = fn(&mut EncodedLoop);
        let wrong: [(Change, &str); 7] = [
            (|one| one.bytes = 999, "does not have the 999 bytes"),
            (|one| one.bytes = 1001, "does not have the 1001 bytes"),
            (|one| one.bytes = 0, "a loop of 0 B"),
            (|one| one.bytes = usize::MAX, "in total"),
            (|one| one.page_offset = PAGE, "at 4096 of a page"),
            (|one| one.name = "n".repeat(201), "201 bytes"),
            (|one| one.code = "?".into(), "code: "),
        ];
        for (change, expected) in wrong {
            let mut one = right.clone();
            change(&mut one);
            let why = check_loops(&[one]).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        assert!(check_loops(&vec![right; MAX_LOOPS + 1]).is_err());
    }

    #[test]
    fn loops_that_cannot_be_recorded_are_counted() {
        let long = TimedLoop { name: "n".repeat(201), ..timed(vec![0xC3]) };
        let collected = Collected { loops: vec![timed(vec![0xC3]), long], omitted: 2 };
        let (loops, omitted) = encode(&collected);
        assert_eq!((loops.len(), omitted), (1, 3));
    }

    proptest! {
        #[test]
        fn any_loop_is_read_back(code in prop::collection::vec(any::<u8>(), 1..4000)) {
            let encoded = EncodedLoop::new(&timed(code.clone())).unwrap();
            prop_assert_eq!(check_loops(std::slice::from_ref(&encoded)), Ok(()));
            prop_assert_eq!(encoded.decode(), Ok(code));
        }

        #[test]
        fn any_text_is_decoded_or_refused(code in "[A-Za-z0-9+/]{0,200}", bytes in 0usize..5000) {
            let one = EncodedLoop { name: "one".into(), page_offset: 0, bytes, code };
            if let Ok(code) = one.decode() {
                prop_assert_eq!(code.len(), bytes);
            }
        }
    }
}
