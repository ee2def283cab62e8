//! Pictures as files.

use std::path::{Path, PathBuf};

use super::{FigureError, Picture};
use crate::chart::{Form, draw, render};

/// Draws a picture into files named after it, `ID.svg`, `ID.pdf`, `ID.png`, and returns their paths. `save`
/// writes each: [`machine::file::write`] in a folder that a user named, [`machine::file::replace`] in a results
/// folder. `option` is the command's option that names the folder, for errors.
///
/// # Errors
/// When it cannot be drawn, or the folder cannot be written.
pub fn write(
    picture: &Picture,
    folder: &Path,
    option: &'static str,
    forms: &[Form],
    save: fn(&Path, &[u8]) -> std::io::Result<()>,
) -> Result<Vec<PathBuf>, FigureError> {
    let fault = |path: &Path| {
        let path = path.to_path_buf();
        move |why: std::io::Error| FigureError::File { path, why, option }
    };
    std::fs::create_dir_all(folder).map_err(fault(folder))?;
    let svg = draw(picture)?;
    let mut paths = Vec::new();
    for (ending, form) in Form::ALL.into_iter().filter(|(_, form)| forms.contains(form)) {
        let path = folder.join(format!("{}.{ending}", picture.id()));
        save(&path, &render(&svg, form)?).map_err(fault(&path))?;
        paths.push(path);
    }
    Ok(paths)
}
