//! `tollgate man`: manual pages, made of the help of each command.

use std::fs;
use std::path::Path;

use machine::file;

use crate::error::CliError;
use crate::output::print_plain;

/// Writes the pages of all commands into a folder, which is created if it is missing.
pub(crate) fn man(folder: &Path) -> Result<u8, CliError> {
    fs::create_dir_all(folder).map_err(|why| failed(folder, &why))?;
    let mut command = crate::arguments::command().disable_help_subcommand(true);
    command.build();
    write(&command, folder)?;
    print_plain(&format!("{}: tollgate.1 and a page of each command\n", folder.display()))?;
    Ok(0)
}

/// Writes the page of a command and those of its commands. A page that exists is replaced, so that a link with its name does
/// not lead to another file.
fn write(command: &clap::Command, folder: &Path) -> Result<(), CliError> {
    let page = clap_mangen::Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)
        .and_then(|()| file::replace(&path, &text))
        .map_err(|why| failed(&path, &why))?;
    let shown = |one: &&clap::Command| !one.is_hide_set();
    command.get_subcommands().filter(shown).try_for_each(|one| write(one, folder))
}

fn failed(path: &Path, why: &std::io::Error) -> CliError {
    CliError::failed(format!("{}: {why}; {}", path.display(), file::remedy(why)))
}
