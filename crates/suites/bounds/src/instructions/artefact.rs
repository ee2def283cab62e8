//! The code of the suite's list as an artefact: assembled once a host and not in each process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lab::artefact::Recipe;
use lab::sample::Failure;

use super::list::{OWN, OWN_TEXT};
use super::prepared::prepare_with;
use crate::assembler::{AS, Code};

/// The name by which probes ask for it.
pub(super) const NAME: &str = "bounds-forms";
const FILE: &str = "code.json";

/// How to assemble the list. Another list, another program, and an assembler that was not there before make
/// another.
pub(super) fn recipe() -> Recipe {
    static INPUTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let list = blake3::hash(OWN_TEXT.as_bytes());
        let program = machine::environment::program_hash().unwrap_or_default();
        vec![list.as_bytes().to_vec(), program.into(), vec![u8::from(AS.find().is_ok())]]
    });
    Recipe { name: NAME.into(), inputs: INPUTS.clone(), make }
}

/// Lines and their code. What has none is not kept: who needs it assembles it and is told why not.
fn make(_: &Recipe, folder: &Path) -> Result<(), Failure> {
    let list = OWN.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
    let mut code = Code::new();
    prepare_with(&list.file, &list.forms, &mut code);
    let kept: BTreeMap<&str, &[u8]> = code
        .iter()
        .filter_map(|(line, code)| Some((line.as_str(), code.as_deref().ok()?)))
        .collect();
    let text = serde_json::to_vec(&kept).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(fs::write(folder.join(FILE), text)?)
}

/// What was made.
///
/// # Errors
/// Where it cannot be read.
pub(super) fn read(folder: &Path) -> Result<Code, Failure> {
    let path = folder.join(FILE);
    let fault = |why: &dyn std::fmt::Display| {
        let (path, folder) = (path.display(), folder.display());
        Failure::failed(format!("{path}: {why}; delete {folder}, it is made again"))
    };
    let text = fs::read(&path).map_err(|e| fault(&e))?;
    let kept: BTreeMap<String, Vec<u8>> = serde_json::from_slice(&text).map_err(|e| fault(&e))?;
    Ok(kept.into_iter().map(|(line, code)| (line, Ok(code))).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_read_needs_no_assembler() {
        if let Err(failure) = AS.find() {
            return machine::untested::note("bounds: the list as an artefact", &failure);
        }
        let folder = tempfile::tempdir().unwrap();
        make(&recipe(), folder.path()).unwrap();
        let begun = Instant::now();
        let mut code = read(folder.path()).unwrap();
        let list = OWN.as_ref().unwrap();
        let known = code.len();
        let prepared = prepare_with(&list.file, &list.forms, &mut code);
        println!("{known} lines; read and prepared in {:?}", begun.elapsed());
        assert!(prepared.iter().flatten().count() > 100);
        assert_eq!(code.len(), known, "something was assembled again");
        assert_eq!(recipe().hash(), recipe().hash());
    }

    #[test]
    fn what_cannot_be_read_says_what_to_delete() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        let why = read(folder.path()).unwrap_err().why;
        assert!(why.contains("delete") && !why.contains('\n'), "{why}");
    }
}
