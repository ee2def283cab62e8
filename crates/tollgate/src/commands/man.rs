//! `tollgate man`: manual pages, made of the help of each command.

use std::fs;
use std::path::Path;

use machine::file;

use crate::error::CliError;
use crate::output::print_plain;

/// Writes the pages of all commands into a folder, which is created if it is missing.
pub(crate) fn man(folder: &Path) -> Result<u8, CliError> {
    let error = |why: std::io::Error| {
        CliError::failed(format!("{}: {why}; {}", folder.display(), file::remedy(&why)))
    };
    fs::create_dir_all(folder).map_err(error)?;
    clap_mangen::generate_to(crate::arguments::command(), folder).map_err(error)?;
    print_plain(&format!("{}: tollgate.1 and a page of each command\n", folder.display()))?;
    Ok(0)
}
