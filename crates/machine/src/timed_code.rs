//! Code outside of the program that this process timed, collected so that a run can record what was executed: loops that it
//! generated, functions of libraries, and programs that it started.
//!
//! Collecting is off until [`collect`]: a process that only measures pays for one lock per measurement.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mapping::PAGE;

/// Maximum number of loops that are collected at a time.
pub const MAX_LOOPS: usize = 256;
/// Maximum size of all loops that are collected at a time, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// A loop or function that was timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedLoop {
    /// Name of the repeated code, e.g. `chain, 48 copies`.
    pub name: String,
    /// Offset of its first byte from the start of a page.
    pub page_offset: usize,
    /// Its bytes.
    pub code: Vec<u8>,
}

/// Loops that were timed since the last call of [`take`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Each loop once.
    pub loops: Vec<TimedLoop>,
    /// Number of loops that are missing because they are too many or too large.
    pub omitted: usize,
}

impl Collected {
    fn add(&mut self, name: &str, page_offset: usize, code: &[u8]) {
        let is_known = |one: &TimedLoop| one.name == name && one.code == code;
        if self.loops.iter().any(is_known) {
            return;
        }
        let total = self.loops.iter().map(|one| one.code.len()).sum::<usize>();
        if self.loops.len() >= MAX_LOOPS || total.saturating_add(code.len()) > MAX_BYTES {
            self.omitted += 1;
            return;
        }
        self.loops.push(TimedLoop { name: name.into(), page_offset, code: code.into() });
    }
}

/// The collected loops; `None` while nothing collects.
static COLLECTED: Mutex<Option<Collected>> = Mutex::new(None);

fn collected() -> MutexGuard<'static, Option<Collected>> {
    COLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the loops that are timed from now on.
pub fn collect() {
    collected().get_or_insert_default();
}

/// Records a loop that this process timed, if loops are collected. Call it outside of the timed part.
pub fn record(name: impl FnOnce() -> String, code: &[u8]) {
    record_at(name, code.as_ptr().addr() % PAGE, code);
}

/// Records code that was executed at this offset of a page, e.g. by another process. As [`record`].
pub fn record_at(name: impl FnOnce() -> String, page_offset: usize, code: &[u8]) {
    if let Some(collected) = collected().as_mut() {
        collected.add(&name(), page_offset, code);
    }
}

/// Returns whether code is collected: otherwise reading it from a file is needless.
pub fn is_collecting() -> bool {
    collected().is_some()
}

/// Returns the loops since the last call and stops collecting.
pub fn take() -> Collected {
    collected().take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_collected_once_and_up_to_a_limit() {
        let mut collected = Collected::default();
        let code = vec![0x90; MAX_BYTES / 4];
        for name in ["a", "b", "a", "c", "d", "e"] {
            collected.add(name, 0x40, &code);
        }
        let names: Vec<_> = collected.loops.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names, collected.omitted), (vec!["a", "b", "c", "d"], 1));
        assert!(collected.loops.iter().all(|one| one.page_offset == 0x40 && one.code == code));
        let mut many = Collected::default();
        (0..=MAX_LOOPS).for_each(|number| many.add(&number.to_string(), 0, &[0xC3]));
        assert_eq!((many.loops.len(), many.omitted), (MAX_LOOPS, 1));
    }

    #[test]
    fn nothing_is_collected_unless_requested() {
        record(|| unreachable!("the name of a loop that is not collected"), &[0x90]);
        assert_eq!(take(), Collected::default());
        assert!(!is_collecting());
        collect();
        assert!(is_collecting());
        record(|| "one".into(), &[0xC3]);
        record_at(|| "another".into(), 0x7C0, &[0xC3]);
        let two = take();
        assert_eq!((two.loops.len(), two.omitted), (2, 0));
        assert_eq!(two.loops[1].page_offset, 0x7C0);
        assert_eq!(take(), Collected::default());
    }
}
