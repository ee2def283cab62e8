//! Cells of CSV files for spreadsheets.

use std::borrow::Cow;

/// Returns a text as a cell. A text that a spreadsheet would take for a formula gets a leading `'`,
/// which marks it as text; numbers are unchanged.
pub fn cell(text: &str) -> Cow<'_, str> {
    let is_number = text.parse::<f64>().is_ok();
    if !is_number && text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']) {
        return Cow::Owned(format!("'{text}"));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for formula in
            ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "'=1"]
        {
            assert_eq!(cell(formula), format!("'{formula}"));
        }
        for plain in ["", "64 KiB", "-1", "+1.5", "-2e9", "a=b", "vm"] {
            assert_eq!(cell(plain), plain);
        }
    }
}
