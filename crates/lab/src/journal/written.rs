//! Lines that each session wrote to `samples.jsonl`: their number and their hash. A journal whose lines differ from them
//! was edited, and its values and verdicts may depend on the edit.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunRecord;
use crate::sample::Sample;

/// Lines that a session wrote, as recorded at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// Number of lines.
    pub lines: u64,
    /// BLAKE3 digest of the lines in their order, in hexadecimal.
    pub digest: String,
}

/// Hash that stands for an item of a journal, which saves memory in long runs.
pub(super) type Key = u128;

/// Returns the key of a text.
pub(super) fn key_of(text: &str) -> Key {
    let hash = blake3::hash(text.as_bytes());
    u128::from_le_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
}

/// Lines of a journal, counted and hashed by session as they are read or appended.
#[derive(Debug, Default)]
pub(super) struct Lines {
    sessions: BTreeMap<u32, (u64, blake3::Hasher)>,
    samples: HashSet<Key>,
}

impl Lines {
    /// Returns the key of a sample, which must be the first of its attempt: repeated, it would count as further
    /// evidence.
    ///
    /// # Errors
    /// Returns one line if it is not.
    pub(super) fn key_of_new(&self, sample: &Sample) -> Result<Key, String> {
        let Sample { experiment, point, twin, round, session, attempt, environment, .. } = sample;
        // The error of a point that is void in every round is in the round of its last attempt.
        let is_error = sample.error.is_some();
        let text = format!(
            "{experiment}\n{point}\n{twin}\n{round}\n{session}\n{attempt}\n{environment}\n{is_error}"
        );
        let key = key_of(&text);
        match self.samples.contains(&key) {
            false => Ok(key),
            true => Err(format!(
                "it repeats round {round}, session {session}, attempt {attempt} of its point"
            )),
        }
    }

    /// Adds the line of the sample with a key.
    pub(super) fn add(&mut self, key: Key, session: u32, line: &[u8]) {
        self.samples.insert(key);
        let (count, hasher) = self.sessions.entry(session).or_default();
        *count += 1;
        hasher.update(line);
    }

    /// Returns the number of lines of all sessions.
    pub(super) fn count(&self) -> u64 {
        self.sessions.values().map(|(count, _)| count).sum()
    }

    /// Returns the lines of a session.
    pub(super) fn of(&self, session: u32) -> Written {
        let (lines, hasher) = self.sessions.get(&session).cloned().unwrap_or_default();
        Written { lines, digest: hasher.finalize().to_hex().to_string() }
    }

    /// Returns one line per session that wrote other lines. The lines of the last session are unknown while it writes, and
    /// after it was killed until the next one starts.
    pub(super) fn inconsistencies(&self, record: &RunRecord) -> Vec<String> {
        let last = record.last_session();
        let inconsistent = |(session, recorded): (u32, &Option<Written>)| {
            let (found, remedy) =
                (self.of(session), "restore the files, or measure again with --fresh");
            match recorded {
                None if session == last => None,
                None => {
                    Some(format!("run.json does not state what session {session} wrote; {remedy}"))
                }
                Some(wrote) if *wrote == found => None,
                Some(wrote) if wrote.lines != found.lines => Some(format!(
                    "session {session} wrote {} lines of samples.jsonl, and the file has {} of it; {remedy}",
                    wrote.lines, found.lines
                )),
                Some(_) => Some(format!(
                    "the lines of session {session} in samples.jsonl are not those that it wrote; {remedy}"
                )),
            }
        };
        (1..).zip(record.sessions.iter().map(|one| &one.written)).filter_map(inconsistent).collect()
    }
}
