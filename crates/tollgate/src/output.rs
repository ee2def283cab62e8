//! Output to standard output, and messages on standard error.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use lab::schema::{self, JsonOutput};
use lab::terminal::{self, one_line};

use crate::error::CliError;

/// Prints tables or help, in which control characters are already replaced, with a final line feed.
/// It is not an error if the reader closed the pipe (`tollgate show | head`).
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(output_error(&e)),
        Ok(()) => Ok(()),
    }
}

/// Returns the error of standard output.
pub(crate) fn output_error(why: &io::Error) -> CliError {
    CliError::failed(format!("standard output: {why}; free space or redirect it elsewhere"))
}

/// Prints lines without style, with control characters replaced.
pub(crate) fn print_plain(text: &str) -> Result<(), CliError> {
    print(&terminal::lines(text))
}

/// Prints an output as JSON, with the version of its schema.
pub(crate) fn print_json<T: JsonOutput>(output: &T) -> Result<(), CliError> {
    print(&terminal::json(&schema::to_value(output).map_err(CliError::failed)?))
}

/// Prints what was written to a file that the user names, on standard output unless the file may be standard output.
pub(crate) fn print_written(path: &Path, what: &str) -> Result<(), CliError> {
    let line = format!("{}: {what}", path.display());
    if path.is_file() {
        return print_plain(&line);
    }
    print_message(&line);
    Ok(())
}

/// Prints a line on standard error; errors are ignored.
pub(crate) fn print_message(line: &str) {
    let _ = writeln!(anstream::stderr(), "{}", one_line(line));
}

/// Returns the message about a system setting that was restored.
pub(crate) fn restored(setting: &Path) -> String {
    format!("{}: restored; a killed run had changed it", setting.display())
}

/// Prints an error on standard error.
pub(crate) fn print_error(error: &CliError) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let line = error.to_string();
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {}", one_line(&line));
}
