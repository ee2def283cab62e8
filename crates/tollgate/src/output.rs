//! Standard output, for people and for programs.

use std::io::{ErrorKind, IsTerminal, Write};

use crate::fault::Fault;

/// The width of a table where there is no terminal to ask.
const WIDTH: usize = 100;

/// Prints a text with its last newline. A reader that went away (`tollgate show | head`) is no
/// fault.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| {
        if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
    });
    match written.and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Fault::failed(format!("standard output: {e}"))),
        Ok(()) => Ok(()),
    }
}

/// Prints JSON, for `--json`.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(value).map_err(Fault::failed)?;
    print(&text)
}

/// The width that a table may have.
pub(crate) fn width() -> usize {
    comfy_table::Table::new().width().map_or(WIDTH, usize::from)
}

/// Whether standard output shows colour.
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
