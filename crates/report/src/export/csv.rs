//! Samples as CSV.

use std::borrow::Cow;
use std::io::Write;

use lab::journal::Run;
use lab::spreadsheet;

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

/// A number as it is; a text so that no spreadsheet takes it for a formula.
fn spelled(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Text(text) => spreadsheet::cell(text).into_owned(),
        number => number.to_string(),
    }
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
    fn texts_are_no_formulas_and_numbers_stay() {
        let text = |text: &'static str| spelled(&Cell::Text(text.into()));
        assert_eq!(text("=1+1"), "'=1+1");
        assert_eq!(text("-1"), "-1");
        assert_eq!(spelled(&Cell::Real(-1.5)), "-1.5");
        assert_eq!(spelled(&Cell::Real(f64::NEG_INFINITY)), "-inf");
    }
}
