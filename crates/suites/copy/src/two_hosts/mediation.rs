//! `copy/two-host-mediation`: tests a filter outside of two hosts, which enforces rules on their common memory.
//!
//! The hosts try every access in turn: one stores a random word in a range, and both load it. An allowed store must
//! arrive at a host that may load, and nothing else may. A host that may write and not read sees what it stored itself,
//! never what the other one stored. The hosts use the lab's messages, because rules may leave them no common range.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use machine::mapping::PAGE;
use vm::rules::{Access, Permission, Range, Rules};

use super::is_writer;
use super::memory::{CommonMemory, SharedMemory, store_fence};
use super::side::{MESSAGE_BITS, received};
use crate::mediation::AccessCounts;
use crate::mediation::guard::{self, Guard};
use crate::metrics::CHECKED;
use crate::pattern::Pattern;

/// Number of words of a range that are tried.
const WORDS: usize = 8;
/// Maximum time until an allowed store arrives.
const ARRIVAL: Duration = Duration::from_secs(20);
/// Time after which a store that has not arrived is regarded as stopped.
const SETTLE: Duration = Duration::from_millis(20);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Maximum bytes of a range that are copied as a whole.
const MAX_COPY: usize = 1 << 20;

/// Values of messages.
const WORD: &str = "word";
const DONE: &str = "done";

/// Params of `two-host-mediation`.
#[derive(Debug, Params)]
pub(crate) struct TwoHostMediationParams {
    /// memory of both hosts: device, pci-bar, dax, file
    #[factor(default = "device")]
    memory: CommonMemory,
}

const METRICS: &[Metric] = &[
    Metric::count("allowed", "allowed accesses that succeeded"),
    Metric::count("stopped", "forbidden accesses that were stopped"),
    Metric::count("leaked", "forbidden accesses that succeeded; must be 0"),
    Metric::count("forwarded", "stores in write-only ranges that arrived"),
    Metric::new(
        CHECKED,
        "B",
        Better::Neither,
        "bytes of allowed copies whose arrival was verified",
    ),
];

/// The method `two-host-mediation`.
pub(crate) struct TwoHostMediation;

impl Method for TwoHostMediation {
    type Params = TwoHostMediationParams;

    fn name(&self) -> &'static str {
        "two-host-mediation"
    }

    fn how(&self) -> &'static str {
        "Nothing is timed: the hosts try 8 words of each range in turn, with random values, and copy ranges. \
         An allowed store must arrive at each host that may load it, and a forbidden one must change nothing."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &TwoHostMediationParams) -> Result<(), Failure> {
        params.memory.available()
    }

    fn expected(&self, _: &TwoHostMediationParams, _: Duration) -> Duration {
        Duration::from_secs(3)
    }

    fn probe(&self) -> Result<Box<dyn Probe<TwoHostMediationParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

fn measure(context: &mut Context, params: &TwoHostMediationParams) -> Result<Measurement, Failure> {
    let rules = Rules::of_run(context.options).map_err(|why| Failure::failed(why.to_string()))?;
    let me = if is_writer(context)? { 0 } else { 1 };
    let created = match me {
        0 => Some(params.memory.create(rules.length(), context.options)?),
        _ => None,
    };
    let _guard = Guard::install()?;
    context.ready()?;
    let memory = match created {
        Some(memory) => memory,
        None => params.memory.open(rules.length(), context.options)?,
    };
    let mut host =
        Host { context, memory, me, counts: AccessCounts::default(), forwarded: 0, checked: 0 };
    for range in &rules.ranges {
        for word in 0..WORDS {
            for actor in 0..2 {
                host.try_word(range, word, actor)?;
            }
        }
        for actor in 0..2 {
            host.try_copy(range, actor)?;
        }
    }
    host.finish()
}

/// One host of the pool.
struct Host<'s, 'c> {
    context: &'s mut Context<'c>,
    memory: SharedMemory,
    /// Its index in the rules.
    me: usize,
    counts: AccessCounts,
    forwarded: u64,
    checked: u64,
}

/// Returns the offset in the pool of a word that is tried: from the first page of a range to the last.
fn offset(range: &Range, word: usize) -> usize {
    let page = (range.length / PAGE - 1) * word / (WORDS - 1);
    range.offset + page * PAGE + word * 8
}

impl Host<'_, '_> {
    fn send(&mut self, name: &str, value: u64) -> Result<(), Failure> {
        self.context.send(BTreeMap::from([(name.to_owned(), value as f64)]))
    }

    fn receive(&mut self, name: &str) -> Result<u64, Failure> {
        let values = received(self.context)?;
        let value = values.get(name).map(|value| *value as u64);
        value
            .ok_or_else(|| Failure::failed(format!("the other host sent {values:?}, not '{name}'")))
    }

    fn word(&self, offset: usize) -> *mut u64 {
        self.memory.start().wrapping_add(offset).cast()
    }

    /// Has the host `actor` store a new word, and loads it on both hosts.
    fn try_word(&mut self, range: &Range, word: usize, actor: usize) -> Result<(), Failure> {
        let at = self.word(offset(range, word));
        let store_allowed = range.permissions[actor].allows(Access::Store);
        let mine = range.permissions[self.me];
        if self.me != actor {
            let before = guard::load(at);
            self.send(DONE, 1)?;
            let value = spread(self.receive(WORD)?);
            let is_expected = store_allowed && mine.allows(Access::Load);
            // One that did not arrive is enough for an error.
            let patience = if is_expected && self.counts.refused == 0 { ARRIVAL } else { SETTLE };
            let after = loaded(at, value, patience);
            let has_arrived = after == Some(value);
            // A forbidden store must not change the word at all.
            let has_changed = !store_allowed && mine.allows(Access::Load) && after != before;
            self.counts.add(is_expected, has_arrived || has_changed);
            if has_arrived && range.permissions[actor] == Permission::WriteOnly {
                self.forwarded += 1;
            }
            return self.send(DONE, 1);
        }
        self.receive(DONE)?;
        let before = guard::load(at);
        let message = new_word(before.unwrap_or_default());
        let value = spread(message);
        // SAFETY: the word is in the pool, which exists for these stores.
        let is_stored = unsafe { guard::store(at, value) };
        store_fence();
        let after = guard::load(at);
        match mine {
            Permission::ReadWrite => self.counts.add(true, is_stored && after == Some(value)),
            Permission::Read | Permission::None => {
                self.counts.add(false, after == Some(value) || after != before);
            }
            // It loads its own store, which proves nothing.
            Permission::WriteOnly => {}
        }
        self.send(WORD, message)?;
        self.receive(DONE).map(drop)
    }

    /// Has the host `actor` write a whole range, which the other one verifies, if both may.
    fn try_copy(&mut self, range: &Range, actor: usize) -> Result<(), Failure> {
        let is_allowed = range.permissions[actor].allows(Access::Store)
            && range.permissions[1 - actor].allows(Access::Load);
        if !is_allowed {
            return Ok(());
        }
        let length = range.length.min(MAX_COPY);
        let start = self.memory.start().wrapping_add(range.offset);
        if self.me == actor {
            let mut bytes = vec![0; length];
            Pattern { offset: rand::random() }.fill(0, &mut bytes);
            for (at, byte) in bytes.iter_mut().enumerate() {
                let at = start.wrapping_add(at);
                // SAFETY: the byte is in the mapping, this host may write it, and the other one only reads.
                unsafe {
                    // Every byte changes: a filter that forwards stores may see nothing else.
                    if at.read_volatile() == *byte {
                        *byte = !*byte;
                    }
                    at.write_volatile(*byte);
                }
            }
            store_fence();
            self.send(WORD, digest(&bytes))?;
            return self.receive(DONE).map(drop);
        }
        let expected = self.receive(WORD)?;
        // SAFETY: the byte is in the mapping, and this host may read it.
        let byte = |at| unsafe { start.wrapping_add(at).read_volatile() };
        let end = Instant::now() + ARRIVAL;
        while digest(&(0..length).map(byte).collect::<Vec<_>>()) != expected {
            if Instant::now() >= end {
                let name = &range.name;
                let why = format!("range '{name}': the {length} B of host {actor} did not arrive");
                return Err(Failure::check(why));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.checked += length as u64;
        self.send(DONE, 1)
    }

    /// Joins the counts of both hosts at the writer.
    fn finish(self) -> Result<Measurement, Failure> {
        let AccessCounts { allowed, stopped, leaked, refused } = self.counts;
        let mine = [
            ("allowed", allowed),
            ("stopped", stopped),
            ("leaked", leaked),
            ("refused", refused),
            ("forwarded", self.forwarded),
            (CHECKED, self.checked),
        ];
        if self.me != 0 {
            let mine = mine.map(|(name, count)| (name.to_owned(), count as f64));
            self.context.send(BTreeMap::from(mine))?;
            return Ok(self.memory.describe(Measurement::default()));
        }
        let theirs = received(self.context)?;
        let total = |name: &str| {
            let mine = mine.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
            mine + theirs.get(name).copied().unwrap_or_default() as u64
        };
        let counts = AccessCounts {
            allowed: total("allowed"),
            stopped: total("stopped"),
            leaked: total("leaked"),
            refused: total("refused"),
        };
        counts.check()?;
        let names = ["allowed", "stopped", "leaked", "forwarded", CHECKED];
        let add = |measurement: Measurement, name| measurement.value(name, total(name) as f64);
        Ok(self.memory.describe(names.into_iter().fold(Measurement::default(), add)))
    }
}

/// Returns the start of the BLAKE3 hash of bytes, as much as a message carries.
fn digest(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let start = hash.as_bytes().iter().take(MESSAGE_BITS as usize / 8);
    start.fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}

/// Returns the word that a message encodes, with random bits in all bytes.
fn spread(message: u64) -> u64 {
    message.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns a random message whose word differs from another word in every byte: a filter that forwards stores may see
/// nothing else.
fn new_word(before: u64) -> u64 {
    loop {
        let message = rand::random::<u64>() >> (u64::BITS - MESSAGE_BITS);
        let mut bytes = spread(message).to_ne_bytes().into_iter().zip(before.to_ne_bytes());
        if bytes.all(|(new, old)| new != old) {
            return message;
        }
    }
}

/// Loads a word once it has a value, or after some time.
fn loaded(at: *const u64, value: u64, patience: Duration) -> Option<u64> {
    let end = Instant::now() + patience;
    loop {
        let word = guard::load(at);
        if word == Some(value) || Instant::now() >= end {
            return word;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
