//! The machine code of the built-in list as an artefact: assembled once per host.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lab::artefact::Recipe;
use lab::sample::Failure;

use super::list::{BUILT_IN, BUILT_IN_TEXT};
use super::prepared::prepare_with;
use crate::assembler::{AS, Code};

/// Name of the artefact.
pub(super) const NAME: &str = "bounds-forms";
/// File with one line per instruction: its code and its text.
const FILE: &str = "code.txt";

/// Returns the recipe of the code. It depends on the list, this program, and whether `as` is installed.
pub(super) fn recipe() -> Recipe {
    static INPUTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let list = blake3::hash(BUILT_IN_TEXT.as_bytes());
        let program = machine::environment::program_hash().unwrap_or_default();
        vec![list.as_bytes().to_vec(), program.into(), vec![u8::from(AS.find().is_ok())]]
    });
    Recipe { name: NAME.into(), inputs: INPUTS.clone(), make }
}

/// Writes the code of all lines. A line that does not assemble is omitted; the probe assembles it again for its error.
fn make(_: &Recipe, folder: &Path) -> Result<(), Failure> {
    let list = BUILT_IN.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
    let mut code = Code::new();
    prepare_with(&list.file, &list.forms, &mut code);
    let mut text = String::new();
    for (line, code) in &code {
        let Ok(code) = code else { continue };
        text.extend(code.iter().map(|byte| format!("{byte:02X}")));
        text += &format!(" {line}\n");
    }
    Ok(fs::write(folder.join(FILE), text)?)
}

/// Reads the code.
///
/// # Errors
/// Returns `failed` with the folder to delete if the file is damaged.
pub(super) fn read(folder: &Path) -> Result<Code, Failure> {
    let path = folder.join(FILE);
    let fault = |why: &dyn std::fmt::Display| {
        let (path, folder) = (path.display(), folder.display());
        Failure::failed(format!("{path}: {why}; delete {folder} to build it again"))
    };
    let text = fs::read_to_string(&path).map_err(|e| fault(&e))?;
    let code: Option<Code> = text.lines().map(entry).collect();
    code.ok_or_else(|| fault(&"invalid line"))
}

/// Parses a line like `4801D8 add rax, rbx`.
fn entry(text: &str) -> Option<(String, Result<Vec<u8>, Failure>)> {
    let (digits, line) = text.split_once(' ')?;
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let code: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    Some((line.to_owned(), Ok(code?)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_line_of_the_artefact_is_assembled_again() {
        if let Err(failure) = AS.find() {
            return machine::untested::note("bounds: the list as an artefact", &failure);
        }
        let folder = tempfile::tempdir().unwrap();
        make(&recipe(), folder.path()).unwrap();
        let start = Instant::now();
        let mut code = read(folder.path()).unwrap();
        let list = BUILT_IN.as_ref().unwrap();
        let known = code.len();
        let prepared = prepare_with(&list.file, &list.forms, &mut code);
        println!("{known} lines; read and prepared in {:?}", start.elapsed());
        assert!(prepared.iter().flatten().count() > 100);
        assert_eq!(code.len(), known, "a line was assembled again");
        assert_eq!(recipe().hash(), recipe().hash());
    }

    #[test]
    fn a_damaged_artefact_names_the_folder_to_delete() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "48G1 add rax, rbx\n").unwrap();
        let why = read(folder.path()).unwrap_err().why;
        assert!(why.contains("delete") && !why.contains('\n'), "{why}");
    }
}
