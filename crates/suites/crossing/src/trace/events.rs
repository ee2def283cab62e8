//! Records as the kernel's ring buffer holds them, read by the layouts that the kernel states.
//!
//! A page begins with the time of its first record and the number of bytes that follow. A record has a
//! head of 32 bits: five say what it is or how long, 27 how many ticks have passed since the one before
//! (`include/linux/ring_buffer.h`). Nothing read here is trusted.

use lab::sample::Failure;

use super::Event;

/// A record's kind in its first five bits; 1 to 28 are lengths in words, 0 a length of its own.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of the ticks in a record's head.
const DELTA_BITS: u32 = 27;
/// The bits of the page's time that an absolute time stamp leaves out.
const STAMP_BITS: u32 = 59;
/// How many bytes a page holds, without the two flags above that say that records were lost.
const COMMITTED: u64 = (1 << DELTA_BITS) - 1;
const LOST: u64 = 1 << 31;

/// What the tracepoint saw of one crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// When, in ticks of the time-stamp counter.
    pub ticks: u64,
    /// Which: the address that faulted, or the argument of the system call.
    pub mark: u64,
}

/// Why records cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The page is shorter than its own head or what it says it holds.
    #[error("a page of the trace is cut off")]
    Page,
    /// A record that reaches beyond its page.
    #[error("a record of the trace is cut off")]
    Record,
    /// A record that was taken back, so that times after it are in doubt.
    #[error("a record of the trace was taken back")]
    TakenBack,
    /// The buffer was too small.
    #[error("records of the trace were lost; measure fewer crossings at once")]
    Lost,
}

impl From<Malformed> for Failure {
    fn from(why: Malformed) -> Self {
        Self::check(why.to_string())
    }
}

/// Where a value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Finds a field in the text of a `format` file.
    fn find(format: &str, name: &str) -> Result<Self, Failure> {
        let fields = format.lines().filter_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';');
            let declared = parts.next()?.split('[').next()?.split_whitespace().last()?;
            let mut number = |key: &str| parts.next()?.trim().strip_prefix(key)?.parse().ok();
            let field = Self { offset: number("offset:")?, size: number("size:")? };
            (declared == name).then_some(field)
        });
        let unknown = || Failure::failed(format!("tracefs: the format has no field '{name}'"));
        fields.take(1).next().ok_or_else(unknown)
    }

    /// The number in it; of an array the first. None where it lies beyond the bytes.
    fn number(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(self.offset..self.offset.checked_add(self.size.min(8))?)?;
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }
}

/// Where a page keeps what.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    timestamp: Field,
    commit: Field,
    data: usize,
}

impl Pages {
    /// Reads `events/header_page`.
    ///
    /// # Errors
    /// Where a field is missing.
    pub fn read(format: &str) -> Result<Self, Failure> {
        let field = |name| Field::find(format, name);
        Ok(Self {
            timestamp: field("timestamp")?,
            commit: field("commit")?,
            data: field("data")?.offset,
        })
    }

    /// The records of one page: their times and bytes.
    ///
    /// # Errors
    /// Where the page is cut off, or records before it were lost.
    pub fn records(self, page: &[u8]) -> Result<Records<'_>, Malformed> {
        let number = |field: Field| field.number(page).ok_or(Malformed::Page);
        let (ticks, commit) = (number(self.timestamp)?, number(self.commit)?);
        if commit & LOST != 0 {
            return Err(Malformed::Lost);
        }
        let held = page.get(self.data..).ok_or(Malformed::Page)?;
        let left = held.get(..(commit & COMMITTED) as usize).ok_or(Malformed::Page)?;
        Ok(Records { began: ticks, ticks, left })
    }
}

/// The records of one page.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    began: u64,
    ticks: u64,
    left: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u64, &'a [u8]), Malformed>;

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
    /// Takes one record off; none where it was a time or the page's end.
    fn step(&mut self) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        let head = self.word(0)?;
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        match kind {
            PADDING if delta == 0 => {
                self.left = &[];
                Ok(None)
            }
            PADDING => {
                // The page's last bytes, where a record did not fit; else one that was taken back.
                self.take(4)?;
                let length = self.word(0)? as usize;
                self.take(length)?;
                if self.left.is_empty() { Ok(None) } else { Err(Malformed::TakenBack) }
            }
            TIME_EXTEND => {
                let upper = u64::from(self.word(4)?) << DELTA_BITS;
                self.ticks = self.ticks.wrapping_add(upper + delta);
                self.take(8).map(|_| None)
            }
            TIME_STAMP => {
                let low = u64::from(self.word(4)?) << DELTA_BITS | delta;
                self.ticks = absolute(low, self.began);
                self.take(8).map(|_| None)
            }
            0 => {
                // The length counts its own word.
                let length = (self.word(4)? as usize).checked_sub(4).ok_or(Malformed::Record)?;
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

    fn word(&self, at: usize) -> Result<u32, Malformed> {
        let bytes = self.left.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(Malformed::Record)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.left.split_at_checked(length).ok_or(Malformed::Record)?;
        self.left = left;
        Ok(taken)
    }
}

/// A whole time of which the upper bits are those of the page's, or one more where they ran over.
fn absolute(low: u64, began: u64) -> u64 {
    let ticks = began >> STAMP_BITS << STAMP_BITS | low;
    if ticks < began { ticks.wrapping_add(1 << STAMP_BITS) } else { ticks }
}

/// Where the records of one event keep what tells our crossings from others.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    kind: Field,
    thread: Field,
    mark: Field,
    /// The system call, where the event has one, and ours.
    call: Option<(Field, u64)>,
    ours: (u64, u64),
}

impl Layout {
    /// Reads an event's `format` file, for what one thread does.
    ///
    /// # Errors
    /// Where it lacks a field.
    pub fn read(format: &str, event: Event, thread: u32) -> Result<Self, Failure> {
        let field = |name| Field::find(format, name);
        let id = format.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok());
        let id = id.ok_or_else(|| Failure::failed("tracefs: the format has no ID"))?;
        let (mark, call) = match event {
            Event::PageFault => (field("address")?, None),
            Event::Syscall => (field("args")?, Some((field("id")?, super::stamps::CALL))),
        };
        let (kind, pid) = (field("common_type")?, field("common_pid")?);
        Ok(Self { kind, thread: pid, mark, call, ours: (id, u64::from(thread)) })
    }

    /// What a record says; none where it is another's or of another event.
    pub fn decode(&self, (ticks, record): (u64, &[u8])) -> Option<Traced> {
        let (id, thread) = self.ours;
        let holds = |field: Field, number| field.number(record) == Some(number);
        let ours = holds(self.kind, id)
            && holds(self.thread, thread)
            && self.call.is_none_or(|(field, call)| holds(field, call));
        if !ours {
            return None;
        }
        Some(Traced { ticks, mark: self.mark.number(record)? })
    }
}

#[cfg(test)]
mod tests;
