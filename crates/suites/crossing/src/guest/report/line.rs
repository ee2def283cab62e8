//! One line of the guest's: its prefix, its checksum, its fields.

use super::ReportError;

/// How each line begins.
pub(super) const PREFIX: &str = "tollgate-guest ";
/// What to do about a damaged line.
pub(super) const AGAIN: &str = "copy the whole output again, or run the guest again";

/// A line of the guest's, its checksum tried, from behind the prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Its number, from 1.
    pub number: usize,
    /// Its first word.
    pub word: &'a str,
    /// What follows the word.
    pub rest: &'a str,
}

/// The checksum of a line: FNV-1a, 32 bits.
pub(super) fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The guest's lines, or what is wrong with one.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, ReportError>> {
    text.split('\n').enumerate().filter_map(|(index, line)| {
        let line = line.trim_end_matches('\r');
        line.contains(PREFIX.trim_end()).then(|| Line::read(index + 1, line))
    })
}

impl<'a> Line<'a> {
    fn read(number: usize, line: &'a str) -> Result<Self, ReportError> {
        let wrong = |what: &str| ReportError { line: number, what: what.into(), remedy: AGAIN };
        if !line.starts_with(PREFIX) {
            return Err(wrong("other text stands in the guest's line"));
        }
        let (body, sum) = line
            .rsplit_once(" #")
            .ok_or_else(|| wrong("the line is cut off before its checksum"))?;
        let lower = sum.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if sum.len() != 8 || !lower {
            return Err(wrong("the line is cut off in its checksum"));
        }
        if u32::from_str_radix(sum, 16) != Ok(checksum(body)) {
            return Err(wrong("the line is damaged: its checksum does not fit"));
        }
        // An empty text, such as of no hypervisor, leaves the word alone with its space.
        let body = body.get(PREFIX.len()..).ok_or_else(|| wrong("the line is empty"))?;
        let (word, rest) = body.split_once(' ').unwrap_or((body, ""));
        Ok(Self { number, word, rest })
    }

    /// An error in this line.
    pub(super) fn wrong(&self, what: impl Into<String>) -> ReportError {
        ReportError { line: self.number, what: what.into(), remedy: AGAIN }
    }

    /// The line's `name=value` fields.
    pub(super) fn fields(&self) -> Fields<'a> {
        Fields { line: *self, left: self.rest.split(' ') }
    }
}

/// Fields in their one order.
pub(super) struct Fields<'a> {
    line: Line<'a>,
    left: std::str::Split<'a, char>,
}

impl<'a> Fields<'a> {
    /// The next field, which has this name.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, ReportError> {
        let field = self.left.next().unwrap_or("");
        let (found, value) = field.split_once('=').unwrap_or((field, ""));
        if found == name {
            Ok(value)
        } else {
            Err(self.line.wrong(format!("'{name}=' should stand where '{field}' does")))
        }
    }

    /// The next field, a number.
    pub(super) fn number<N: std::str::FromStr>(&mut self, name: &str) -> Result<N, ReportError> {
        let value = self.text(name)?;
        number(value).ok_or_else(|| self.line.wrong(format!("{name}={value} is no such number")))
    }

    /// The next field, one of two words; true for the first.
    pub(super) fn either(&mut self, name: &str, yes: &str, no: &str) -> Result<bool, ReportError> {
        match self.text(name)? {
            value if value == yes => Ok(true),
            value if value == no => Ok(false),
            value => Err(self.line.wrong(format!("{name}={value} is neither {yes} nor {no}"))),
        }
    }

    /// Nothing is left.
    pub(super) fn end(mut self) -> Result<(), ReportError> {
        match self.left.next() {
            None => Ok(()),
            Some(field) => Err(self.line.wrong(format!("'{field}' is one field too many"))),
        }
    }
}

/// A number in decimal, with no sign and no other spelling.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}
