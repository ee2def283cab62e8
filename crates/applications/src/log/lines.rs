//! Which line of a stream a match belongs to, so that a line counts once however many patterns match it, and at how many
//! positions.

/// State of a stream between packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineState {
    position: u64,
    /// Whether the line that is not complete has been counted.
    counted: bool,
}

impl LineState {
    /// Returns the number of bytes of the stream so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Starts the next bytes of the stream.
    #[inline(always)]
    pub fn start<'a>(&self, bytes: &'a [u8]) -> Lines<'a> {
        // The end of the open line is only needed if it was counted.
        let counted_until = if self.counted { Some(end_of_line(bytes, 0)) } else { None };
        Lines { bytes, start: self.position, counted_until }
    }
}

/// Lines in some bytes of a stream.
#[derive(Debug)]
pub struct Lines<'a> {
    bytes: &'a [u8],
    /// Position of the bytes in the stream.
    start: u64,
    /// Index of the newline of the last line that was counted; the number of bytes if that is beyond them.
    counted_until: Option<usize>,
}

/// Returns the index of the first newline from an index, or the number of bytes.
fn end_of_line(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |index| from + index)
}

impl Lines<'_> {
    /// Returns whether a match that ends at `end` of the stream is in a line that has not been counted, and counts it. Matches
    /// must come in the order of their ends.
    pub fn is_new_line(&mut self, end: u64) -> bool {
        let end = end.saturating_sub(self.start).min(self.bytes.len() as u64) as usize;
        if self.counted_until.is_some_and(|until| end <= until) {
            return false;
        }
        self.counted_until = Some(end_of_line(self.bytes, end));
        true
    }

    /// Ends the bytes.
    #[inline(always)]
    pub fn end(&self) -> LineState {
        let position = self.start + self.bytes.len() as u64;
        LineState { position, counted: self.counted_until == Some(self.bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_match_at_the_end_of_a_line_is_in_that_line() {
        let mut lines = LineState::default().start(b"ab\ncd\n");
        assert!(lines.is_new_line(2));
        assert!(!lines.is_new_line(2));
        assert!(lines.is_new_line(5));
        assert_eq!(lines.end(), LineState { position: 6, counted: false });
        // A match that waited for the newline ends before these bytes.
        let open = LineState::default().start(b"ab").end();
        let mut next = open.start(b"\ncd");
        assert!(next.is_new_line(2) && !next.is_new_line(2) && next.is_new_line(4));
        assert!(next.end().counted);
    }

    proptest! {
        #[test]
        fn each_line_with_a_match_counts_once(
            text in "[a\n]{1,60}",
            matches in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            // A match ends after one of the letters.
            let mut ends: Vec<_> = matches.iter().map(|index| index.index(text.len())).collect();
            ends.retain(|index| text.as_bytes()[*index] == b'a');
            ends.sort_unstable();
            ends.dedup();
            let expected: std::collections::BTreeSet<_> =
                ends.iter().map(|end| text[..*end].matches('\n').count()).collect();
            let mut cuts: Vec<_> = cuts.iter().map(|index| index.index(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut state, mut count) = (LineState::default(), 0);
            for pair in cuts.windows(2) {
                let mut lines = state.start(&text.as_bytes()[pair[0]..pair[1]]);
                for end in ends.iter().filter(|end| (pair[0]..pair[1]).contains(*end)) {
                    // Reported twice, as by two patterns.
                    count += usize::from(lines.is_new_line(*end as u64 + 1));
                    count += usize::from(lines.is_new_line(*end as u64 + 1));
                }
                state = lines.end();
            }
            prop_assert_eq!(count, expected.len());
            prop_assert_eq!(state.position(), text.len() as u64);
        }
    }
}
