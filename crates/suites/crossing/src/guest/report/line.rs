//! Lines of the report: prefix, checksum and fields.

use super::ReportError;

/// Prefix of each line.
pub(super) const PREFIX: &str = "tollgate-guest ";
/// Fix for a damaged line.
pub(super) const REMEDY: &str = "copy the whole output again, or run the guest again";

/// A line with a valid checksum, without its prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Line number, from 1.
    pub number: usize,
    /// First word.
    pub word: &'a str,
    /// Text after the first word.
    pub rest: &'a str,
}

/// Computes the checksum of a line: 32-bit FNV-1a.
pub(super) fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns the lines of the report, each checked.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, ReportError>> {
    text.split('\n').enumerate().filter_map(|(index, line)| {
        let line = line.trim_end_matches('\r');
        line.contains(PREFIX.trim_end()).then(|| Line::read(index + 1, line))
    })
}

impl<'a> Line<'a> {
    fn read(number: usize, line: &'a str) -> Result<Self, ReportError> {
        let wrong = |what: &str| error(number, what);
        if !line.starts_with(PREFIX) {
            return Err(wrong("the line does not start with the guest's prefix"));
        }
        let (body, sum) = line
            .rsplit_once(" #")
            .ok_or_else(|| wrong("the line is cut off before its checksum"))?;
        let lower = sum.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if sum.len() != 8 || !lower {
            return Err(wrong("the line is cut off in its checksum"));
        }
        if u32::from_str_radix(sum, 16) != Ok(checksum(body)) {
            return Err(wrong("the line is damaged: wrong checksum"));
        }
        // Without text, e.g. without a hypervisor, the word is followed by a space only.
        let body = body.get(PREFIX.len()..).ok_or_else(|| wrong("the line is empty"))?;
        let (word, rest) = body.split_once(' ').unwrap_or((body, ""));
        Ok(Self { number, word, rest })
    }

    /// Creates an error for this line.
    pub(super) fn wrong(&self, what: impl Into<String>) -> ReportError {
        error(self.number, what)
    }

    /// Returns the `name=value` fields of the line.
    pub(super) fn fields(&self) -> Fields<'a> {
        Fields { line: *self, left: self.rest.split(' ') }
    }
}

fn error(line: usize, what: impl Into<String>) -> ReportError {
    ReportError { line, what: what.into(), remedy: REMEDY }
}

/// The remaining fields of a line, in their fixed order.
pub(super) struct Fields<'a> {
    line: Line<'a>,
    left: std::str::Split<'a, char>,
}

impl<'a> Fields<'a> {
    /// Returns the value of the next field, which must have this name.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, ReportError> {
        let field = self.left.next().unwrap_or("");
        let (found, value) = field.split_once('=').unwrap_or((field, ""));
        if found == name {
            Ok(value)
        } else {
            Err(self.line.wrong(format!("field '{field}'; expected '{name}='")))
        }
    }

    /// Parses the next field as a number.
    pub(super) fn number<N: std::str::FromStr>(&mut self, name: &str) -> Result<N, ReportError> {
        let value = self.text(name)?;
        number(value)
            .ok_or_else(|| self.line.wrong(format!("{name}={value}; expected a number in range")))
    }

    /// Parses the next field as one of two words; true for the first.
    pub(super) fn either(&mut self, name: &str, yes: &str, no: &str) -> Result<bool, ReportError> {
        match self.text(name)? {
            value if value == yes => Ok(true),
            value if value == no => Ok(false),
            value => Err(self.line.wrong(format!("{name}={value}; expected {yes} or {no}"))),
        }
    }

    /// Checks that no field is left.
    pub(super) fn end(mut self) -> Result<(), ReportError> {
        match self.left.next() {
            None => Ok(()),
            Some(field) => Err(self.line.wrong(format!("unexpected field '{field}'"))),
        }
    }
}

/// Parses a decimal number without sign or leading zeros.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}
