//! Parser of the kernel's ring-buffer pages, with the field layouts from tracefs.
//!
//! A page starts with the time of its first record and the number of bytes of its records. A record starts with 32
//! bits: 5 bits of type or length, 27 bits of ticks since the previous record (`include/linux/ring_buffer.h`). The
//! input is untrusted.

use lab::sample::Failure;

use super::Event;

/// Record types in the first five bits. 1 to 28 are lengths in words, 0 means a separate length word.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the ticks in a record's first word.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute timestamp, whose upper bits are those of the page's time.
const STAMP_BITS: u32 = 59;
/// Mask of a page's byte count, below the flags for lost records.
const COMMITTED: u64 = (1 << DELTA_BITS) - 1;
const LOST: u64 = 1 << 31;

/// A tracepoint event of one crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time, ticks of the time-stamp counter.
    pub ticks: u64,
    /// Mark: the faulting address, or the argument of the system call.
    pub mark: u64,
}

/// An error in the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A page that is shorter than its header or its byte count.
    #[error("truncated page of the trace")]
    Page,
    /// A record that extends beyond its page.
    #[error("truncated record of the trace")]
    Record,
    /// A discarded record, after which times are unreliable.
    #[error("discarded record in the trace")]
    Discarded,
    /// Records lost because the buffer was full.
    #[error("lost records of the trace: the buffer was full")]
    Lost,
}

impl From<TraceError> for Failure {
    fn from(why: TraceError) -> Self {
        Self::check(why.to_string())
    }
}

/// Offset and size of a field, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Parses a field of a `format` file.
    fn find(format: &str, name: &str) -> Result<Self, Failure> {
        let fields = format.lines().filter_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';');
            let declared = parts.next()?.split('[').next()?.split_whitespace().last()?;
            let mut number = |key: &str| parts.next()?.trim().strip_prefix(key)?.parse().ok();
            let field = Self { offset: number("offset:")?, size: number("size:")? };
            (declared == name).then_some(field)
        });
        let unknown = || Failure::failed(format!("tracefs: no field '{name}' in the format"));
        fields.take(1).next().ok_or_else(unknown)
    }

    /// Reads the number, or the first of an array; `None` if it is beyond the bytes.
    fn number(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(self.offset..self.offset.checked_add(self.size.min(8))?)?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }
}

/// Layout of a page.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    timestamp: Field,
    commit: Field,
    data: usize,
}

impl Pages {
    /// Parses `events/header_page`.
    ///
    /// # Errors
    /// Returns `failed` if a field is missing.
    pub fn parse(format: &str) -> Result<Self, Failure> {
        let field = |name| Field::find(format, name);
        Ok(Self {
            timestamp: field("timestamp")?,
            commit: field("commit")?,
            data: field("data")?.offset,
        })
    }

    /// Returns the records of one page: times and bytes.
    ///
    /// # Errors
    /// Returns an error if the page is truncated or earlier records were lost.
    pub fn records(self, page: &[u8]) -> Result<Records<'_>, TraceError> {
        let number = |field: Field| field.number(page).ok_or(TraceError::Page);
        let (ticks, commit) = (number(self.timestamp)?, number(self.commit)?);
        if commit & LOST != 0 {
            return Err(TraceError::Lost);
        }
        let data = page.get(self.data..).ok_or(TraceError::Page)?;
        let left = data.get(..(commit & COMMITTED) as usize).ok_or(TraceError::Page)?;
        Ok(Records { start: ticks, ticks, left })
    }
}

/// Iterator over the records of one page.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    start: u64,
    ticks: u64,
    left: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u64, &'a [u8]), TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.left.is_empty() {
            match self.step() {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(why) => {
                    self.left = &[];
                    return Some(Err(why));
                }
            }
        }
        None
    }
}

impl<'a> Records<'a> {
    /// Consumes one record; `None` if it was a time or the end of the page.
    fn step(&mut self) -> Result<Option<(u64, &'a [u8])>, TraceError> {
        let first = self.word(0)?;
        let (kind, delta) = (first & 31, u64::from(first >> 5));
        match kind {
            PADDING if delta == 0 => {
                self.left = &[];
                Ok(None)
            }
            PADDING => {
                // Unused end of the page, or a discarded record.
                self.take(4)?;
                let length = self.word(0)? as usize;
                self.take(length)?;
                if self.left.is_empty() { Ok(None) } else { Err(TraceError::Discarded) }
            }
            TIME_EXTEND => {
                let upper = u64::from(self.word(4)?) << DELTA_BITS;
                self.ticks = self.ticks.wrapping_add(upper + delta);
                self.take(8).map(|_| None)
            }
            TIME_STAMP => {
                let low = u64::from(self.word(4)?) << DELTA_BITS | delta;
                self.ticks = absolute(low, self.start);
                self.take(8).map(|_| None)
            }
            0 => {
                // The length includes its word.
                let length = (self.word(4)? as usize).checked_sub(4).ok_or(TraceError::Record)?;
                self.ticks = self.ticks.wrapping_add(delta);
                self.take(8)?;
                Ok(Some((self.ticks, self.take(length)?)))
            }
            words => {
                self.ticks = self.ticks.wrapping_add(delta);
                self.take(4)?;
                Ok(Some((self.ticks, self.take(words as usize * 4)?)))
            }
        }
    }

    fn word(&self, at: usize) -> Result<u32, TraceError> {
        let bytes = self.left.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(TraceError::Record)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], TraceError> {
        let (taken, left) = self.left.split_at_checked(length).ok_or(TraceError::Record)?;
        self.left = left;
        Ok(taken)
    }
}

/// Completes an absolute time with the upper bits of the page's time, plus 1 if the lower bits wrapped around.
fn absolute(low: u64, start: u64) -> u64 {
    let ticks = start >> STAMP_BITS << STAMP_BITS | low;
    if ticks < start { ticks.wrapping_add(1 << STAMP_BITS) } else { ticks }
}

/// Layout of an event's records, and the values that identify the crossings of one thread.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    kind: Field,
    thread: Field,
    mark: Field,
    /// Field and expected number of the system call, if the event has one.
    call: Option<(Field, u64)>,
    /// Expected event ID and thread ID.
    expected: (u64, u64),
}

impl Layout {
    /// Parses an event's `format` file, for the crossings of one thread.
    ///
    /// # Errors
    /// Returns `failed` if a field is missing.
    pub fn parse(format: &str, event: Event, thread: u32) -> Result<Self, Failure> {
        let field = |name| Field::find(format, name);
        let id = format.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok());
        let id = id.ok_or_else(|| Failure::failed("tracefs: no ID in the format"))?;
        let (mark, call) = match event {
            Event::PageFault => (field("address")?, None),
            Event::Syscall => (field("args")?, Some((field("id")?, super::stamps::CALL))),
        };
        let (kind, pid) = (field("common_type")?, field("common_pid")?);
        Ok(Self { kind, thread: pid, mark, call, expected: (id, u64::from(thread)) })
    }

    /// Decodes a record; `None` if it is of another thread or event.
    pub fn decode(&self, (ticks, record): (u64, &[u8])) -> Option<TraceEvent> {
        let (id, thread) = self.expected;
        let has = |field: Field, number| field.number(record) == Some(number);
        let is_expected = has(self.kind, id)
            && has(self.thread, thread)
            && self.call.is_none_or(|(field, call)| has(field, call));
        if !is_expected {
            return None;
        }
        Some(TraceEvent { ticks, mark: self.mark.number(record)? })
    }
}

#[cfg(test)]
mod tests;
