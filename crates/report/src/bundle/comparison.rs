//! Comparison of an archive as it is written with a file, so that neither is held in memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

/// Maximum number of bytes that may differ at a time. The writer of an archive returns to the header of an entry when its
/// size is known, so the bytes of one header differ until then.
const MAX_DIFFERING: usize = 4096;

/// A writer that compares what is written with a file, at the same position.
pub(super) struct Comparison<'f> {
    file: &'f File,
    /// Size of the file.
    size: u64,
    position: u64,
    /// End of what was written.
    end: u64,
    /// Positions of bytes that differ.
    differing: BTreeSet<u64>,
    /// Whether there were more than [`MAX_DIFFERING`]: then they are no longer compared.
    differs: bool,
}

impl<'f> Comparison<'f> {
    pub(super) fn new((file, size): (&'f File, u64)) -> Self {
        let (position, end, differing, differs) = (0, 0, BTreeSet::new(), false);
        Self { file, size, position, end, differing, differs }
    }

    /// Returns whether everything that was written is the file.
    pub(super) fn is_same(&self) -> bool {
        !self.differs && self.differing.is_empty() && self.end == self.size
    }

    fn compare(&mut self, written: &[u8]) -> io::Result<()> {
        // Bytes after the end of the file differ.
        let left = self.size.saturating_sub(self.position);
        let shared = written.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.differs |= shared < written.len();
        let mut of_file = vec![0; shared];
        self.file.read_exact_at(&mut of_file, self.position)?;
        let previous = self.position..self.position + shared as u64;
        let known: Vec<u64> = self.differing.range(previous).copied().collect();
        for at in known {
            self.differing.remove(&at);
        }
        let pairs = (self.position..).zip(written.iter().zip(&of_file));
        self.differing.extend(pairs.filter(|(_, (one, other))| one != other).map(|(at, _)| at));
        self.differs |= self.differing.len() > MAX_DIFFERING;
        Ok(())
    }
}

impl Write for Comparison<'_> {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        if !self.differs {
            self.compare(written)?;
        }
        self.position += written.len() as u64;
        self.end = self.end.max(self.position);
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Comparison<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
            SeekFrom::End(distance) => self.end.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(content: &[u8], write: impl Fn(&mut Comparison<'_>)) -> bool {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let mut comparison = Comparison::new((&file, content.len() as u64));
        write(&mut comparison);
        comparison.is_same()
    }

    #[test]
    fn a_header_that_is_written_later_is_compared_then() {
        let later = |header: &'static [u8]| {
            move |to: &mut Comparison<'_>| {
                to.write_all(b"????").unwrap();
                to.write_all(b"content").unwrap();
                assert!(!to.is_same());
                to.seek(SeekFrom::Start(0)).unwrap();
                to.write_all(header).unwrap();
                to.seek(SeekFrom::End(0)).unwrap();
                to.write_all(b"end").unwrap();
            }
        };
        assert!(compare(b"headcontentend", later(b"head")));
        assert!(!compare(b"headcontentend", later(b"heal")));
        assert!(!compare(b"headcontentend!", later(b"head")));
        assert!(!compare(b"headcontenten", later(b"head")));
        assert!(!compare(b"headCONTENTend", later(b"head")));
    }

    #[test]
    fn a_file_that_differs_everywhere_is_not_compared_to_its_end() {
        let content = vec![1; 10 * MAX_DIFFERING];
        assert!(!compare(&content, |to| {
            for _ in 0..10 {
                to.write_all(&[0; MAX_DIFFERING]).unwrap();
                assert!(to.differing.len() <= 2 * MAX_DIFFERING);
            }
            to.seek(SeekFrom::Start(0)).unwrap();
            to.write_all(&vec![1; 10 * MAX_DIFFERING]).unwrap();
        }));
    }
}
