//! Standard output, for people and for programs.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use lab::terminal;

use crate::fault::Fault;

/// Prints a page of the report or of the help, in which control characters are already replaced, with its last
/// newline. A reader that went away (`tollgate show | head`) is no fault.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(unwritten(&e)),
        Ok(()) => Ok(()),
    }
}

/// Says that standard output was not written.
pub(crate) fn unwritten(why: &io::Error) -> Fault {
    Fault::failed(format!("standard output: {why}; free space or redirect it elsewhere"))
}

/// Prints lines that may hold text from outside and no style.
pub(crate) fn print_plain(text: &str) -> Result<(), Fault> {
    print(&terminal::lines(text))
}

/// Prints JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Fault> {
    print(&terminal::json(value))
}

/// `1 sample`, `2 samples`.
pub(crate) fn count_of(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Tells a person what happens, in one line on the error stream.
pub(crate) fn tell(line: &str) {
    // That nobody listens is no fault.
    let _ = writeln!(anstream::stderr(), "{}", terminal::one_line(line));
}

/// Says that a system setting was restored which a killed run had left changed.
pub(crate) fn restored(setting: &Path) -> String {
    format!("{}: restored; a run that was killed had changed it", setting.display())
}

/// Tells what is wrong, in one line.
pub(crate) fn error(fault: &Fault) {
    let red = anstyle::AnsiColor::Red.on_default().bold();
    let line = fault.to_string();
    let _ = writeln!(anstream::stderr(), "{red}error{red:#}: {}", terminal::one_line(&line));
}
