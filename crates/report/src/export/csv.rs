//! Samples as CSV.

use std::borrow::Cow;
use std::io::Write;

use lab::journal::Run;

use super::cell::Cell;
use super::{ExportError, Wanted, column, rows};

pub(super) fn write(
    runs: &[Run],
    wanted: Wanted<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let columns = column::of(rows(runs, wanted));
    let mut writer = csv::Writer::from_writer(out);
    let names = columns.iter().map(|column| spelled(&Cell::Text(Cow::Borrowed(&column.name))));
    writer.write_record(names).map_err(io_error)?;
    for row in rows(runs, wanted) {
        for column in &columns {
            let text = column.cell(&row).map(|cell| spelled(&cell)).unwrap_or_default();
            writer.write_field(text).map_err(io_error)?;
        }
        writer.write_record(None::<&[u8]>).map_err(io_error)?;
    }
    writer.flush()?;
    Ok(())
}

/// What a spreadsheet would take for a formula gets a `'` before it, by which spreadsheets know a text;
/// numbers stay numbers.
fn spelled(cell: &Cell<'_>) -> String {
    let text = cell.to_string();
    let is_text = matches!(cell, Cell::Text(_)) && text.parse::<f64>().is_err();
    if is_text && text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'']) {
        return format!("'{text}");
    }
    text
}

fn io_error(error: csv::Error) -> ExportError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ExportError::Write(error),
        other => ExportError::Encode(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        let text = |text: &'static str| spelled(&Cell::Text(text.into()));
        for formula in
            ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-", "'=1"]
        {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        for plain in ["", "64 KiB", "-1", "+1.5", "-2e9", "a=b", "vm"] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(spelled(&Cell::Real(-1.5)), "-1.5");
        assert_eq!(spelled(&Cell::Real(f64::NEG_INFINITY)), "-inf");
    }
}
