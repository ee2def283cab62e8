//! `tollgate completions`

use crate::fault::Fault;
use crate::output::print;

/// Prints the completions of a shell. They are made whole first: clap panics where a reader goes away.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<u8, Fault> {
    let mut command = crate::arguments::command(crate::COMMANDS);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "tollgate", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
