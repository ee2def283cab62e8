//! Memory that is open, and how its contents are made and verified.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use lab::sample::Failure;
use machine::mapping::Mapping;

use super::Kind;
use super::other::Other;
use crate::pattern::Pattern;
use crate::throughput::Call;

/// What verifying some copies found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Copies that arrived whole.
    pub delivered: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies of which not even the first byte is there: never made, or wrong from the start.
    pub missing: u64,
    /// Copies of which only a part arrived.
    pub torn: u64,
    /// Where the last of those first differs, from the region's start.
    pub torn_at: u64,
}

impl Tally {
    /// Verifies one span that should hold the bytes of `position` and on; allocates nothing.
    pub(super) fn add(&mut self, pattern: Pattern, position: usize, bytes: &[u8]) {
        match pattern.first_fault(position, bytes) {
            None => {
                self.delivered = self.delivered.saturating_add(1);
                self.bytes = self.bytes.saturating_add(bytes.len() as u64);
            }
            Some(0) => self.missing = self.missing.saturating_add(1),
            Some(at) => {
                self.torn = self.torn.saturating_add(1);
                self.torn_at = position.saturating_add(at) as u64;
            }
        }
    }

    /// Adds what verifying others found.
    pub(super) fn join(&mut self, other: Self) {
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.missing = self.missing.saturating_add(other.missing);
        self.torn = self.torn.saturating_add(other.torn);
        self.torn_at = self.torn_at.max(other.torn_at);
    }
}

/// Memory of one kind, open for copies.
#[derive(Debug)]
pub struct Region {
    pub(super) kind: Kind,
    pub(super) mapping: Mapping,
    /// The file behind it, where copies are system calls.
    pub(super) file: Option<File>,
    /// The other process, where the memory is shared with one.
    pub(super) other: Option<Other>,
    /// How the kernel provides the pages, where that is not plain from the kind.
    pub(super) pages: Option<&'static str>,
}

impl Region {
    /// The first byte; at the start of a page.
    pub fn start(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: see [`Mapping::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// The kind of memory.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the program may write it.
    pub fn is_writable(&self) -> bool {
        self.mapping.is_writable()
    }

    /// The file whose `pread` and `pwrite` are the copies.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// What was observed of its pages: `pool` or `transparent` huge pages, or a file system.
    pub fn pages(&self) -> Option<&'static str> {
        self.pages
    }

    /// Makes every page present.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn prefault(&self) -> Result<(), Failure> {
        self.mapping.prefault().map_err(|refusal| Failure::failed(refusal.to_string()))
    }

    /// Takes the pages away, so that the next touch of each faults.
    pub fn forget(&self) {
        self.mapping.madvise_dontneed();
    }

    /// Fills the first bytes with a pattern; in shared memory the other process does.
    ///
    /// # Errors
    /// Where it may not be written, is too short, or the other process is gone.
    pub fn fill(&mut self, pattern: Pattern, start: usize, length: usize) -> Result<(), Failure> {
        self.within(start, length)?;
        if !self.mapping.is_writable() {
            return Err(Failure::failed(format!("{} is open for reading only", self.kind)));
        }
        if let Some(other) = &mut self.other {
            return other.fill(pattern, start, length);
        }
        // SAFETY: the span lies in this writable mapping, and nobody copies while it is filled.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start().add(start), length) };
        pattern.fill(0, bytes);
        Ok(())
    }

    /// Verifies that copies arrived: each should hold the pattern at its place after `start`. In
    /// shared memory the other process looks.
    ///
    /// # Errors
    /// Where a call lies outside, or the other process is gone.
    pub fn verify(
        &mut self,
        pattern: Pattern,
        start: usize,
        calls: &[Call],
    ) -> Result<Tally, Failure> {
        for call in calls {
            self.within(start.saturating_add(call.at as usize), call.length as usize)?;
        }
        if let Some(other) = &mut self.other {
            return other.verify(pattern, start, calls);
        }
        let mut tally = Tally::default();
        for call in calls {
            let (at, length) = (call.at as usize, call.length as usize);
            // SAFETY: the span lies in this mapping, and nobody copies while it is verified.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.start().add(start).add(at), length) };
            tally.add(pattern, at, bytes);
        }
        Ok(tally)
    }

    fn within(&self, start: usize, length: usize) -> Result<(), Failure> {
        match start.checked_add(length) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(Failure::failed(format!(
                "{length} B at {start} are not within the {} B of {}",
                self.len(),
                self.kind
            ))),
        }
    }
}
