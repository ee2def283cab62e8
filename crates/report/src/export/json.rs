//! Samples as JSON: `{"runs": [{"record": ..., "samples": [...]}]}`, a sample as in the journal.

use std::io::Write;

use lab::journal::Run;

use super::{ExportError, Wanted};

pub(super) fn write(
    runs: &[Run],
    wanted: Wanted<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    out.write_all(b"{\"runs\": [")?;
    for (number, run) in runs.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\"record\": ")?;
        serde_json::to_writer(&mut *out, &run.record).map_err(io_error)?;
        out.write_all(b",\n\"samples\": [")?;
        let samples = run.samples.iter().filter(|sample| wanted(sample));
        for (number, sample) in samples.enumerate() {
            out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, sample).map_err(io_error)?;
        }
        out.write_all(b"\n]}")?;
    }
    out.write_all(b"\n]}\n")?;
    out.flush()?;
    Ok(())
}

fn io_error(error: serde_json::Error) -> ExportError {
    ExportError::Write(error.into())
}
