//! Samples as CSV.

use std::io::Write;

use lab::journal::Run;

use super::{ExportError, Wanted, column, rows};

pub(super) fn write(
    runs: &[Run],
    wanted: Wanted<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let columns = column::of(rows(runs, wanted));
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|column| &column.name)).map_err(io_error)?;
    for row in rows(runs, wanted) {
        for column in &columns {
            let text = column.cell(&row).map(|cell| cell.to_string()).unwrap_or_default();
            writer.write_field(text).map_err(io_error)?;
        }
        writer.write_record(None::<&[u8]>).map_err(io_error)?;
    }
    writer.flush()?;
    Ok(())
}

fn io_error(error: csv::Error) -> ExportError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => ExportError::Write(error),
        other => ExportError::Encode(format!("{other:?}")),
    }
}
