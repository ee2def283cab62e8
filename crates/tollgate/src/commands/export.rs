//! `tollgate export`

use std::io::{ErrorKind, IsTerminal, stdout};

use lab::terminal::Plain;
use machine::file::Output;
use report::export::{ExportError, Format, to_file, write};

use crate::arguments::{Export, Form};
use crate::fault::Fault;
use crate::select;

impl From<Form> for Format {
    fn from(form: Form) -> Self {
        match form {
            Form::Csv => Self::Csv,
            Form::Json => Self::Json,
            Form::Parquet => Self::Parquet,
        }
    }
}

/// Writes every sample of the newest run.
pub(crate) fn run(given: &Export) -> Result<u8, Fault> {
    let run = super::show::open(&given.place.results)?;
    super::show::meant(&run, &given.names)?;
    let wanted = |sample: &lab::sample::Sample| select::is_meant(&given.names, &sample.experiment);
    let form = given.form.into();
    let written = match &given.output {
        Some(path) => to_file(&[run], &wanted, form, path, Output::create),
        // A terminal would act on control characters, which files keep.
        None if stdout().is_terminal() => write(&[run], &wanted, form, &mut Plain::new(stdout())),
        None => write(&[run], &wanted, form, &mut stdout()),
    };
    match written {
        Err(ExportError::Write(e)) if e.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Fault::failed(error)),
        Ok(()) => Ok(0),
    }
}
