//! Standard output, for people and for programs.

use std::io::{ErrorKind, IsTerminal, Write};

use report::table::Page;

use crate::fault::Fault;

/// Prints a text with its last newline. A reader that went away (`tollgate show | head`) is no
/// fault.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
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

/// The page that tables are set on: the terminal's, or a plain one.
pub(crate) fn page() -> Page {
    let plain = Page::default();
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let width = comfy_table::Table::new().width().map_or(plain.width, usize::from);
    Page { width: width.max(40), colour }
}
