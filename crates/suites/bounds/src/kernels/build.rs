//! The programs as artefacts: one for each kernel and mechanism, and one with all bugs for each mechanism.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::artefact::Recipe;
use lab::program::build;
use lab::sample::Failure;

use super::manifest::{Compiler, Language, Mechanism, mechanism};
use super::{compiler, sources};

/// How long a program of some hundred lines may take to compile.
const LIMIT: Duration = Duration::from_secs(300);
/// The program with all planted bugs.
pub(super) const BUGS: &str = "bugs";
/// The same program, compiled to be refused.
const REFUSED: &str = "refused";
/// The compiled program in its folder.
pub(super) const PROGRAM: &str = "program";
/// The file that holds what the compiler said where it refused the program.
pub(super) const REFUSAL: &str = "refusal.txt";

/// How the artefact of a program under a mechanism is called.
pub(super) fn name(program: &str, mechanism: &str) -> String {
    format!("bounds-{program}-{mechanism}")
}

/// How the artefact of what a mechanism's compiler refuses is called.
pub(super) fn refused_name(mechanism: &str) -> String {
    name(REFUSED, mechanism)
}

/// How to make a program under a mechanism. A change of sources, flags or compiler makes another.
pub(super) fn recipe(program: &str, mechanism: &Mechanism) -> Recipe {
    compiled(name(program, &mechanism.name), program, mechanism, &mechanism.flags)
}

/// How to have a program refused, where the mechanism does that.
pub(super) fn refused_recipe(mechanism: &Mechanism) -> Option<Recipe> {
    let flags = &mechanism.refuses.as_ref()?.flags;
    Some(compiled(refused_name(&mechanism.name), REFUSED, mechanism, flags))
}

fn compiled(name: String, program: &str, mechanism: &Mechanism, flags: &[String]) -> Recipe {
    let compiler = mechanism.compiler();
    let version = compiler.clone().and_then(compiler::find).map(|found| found.version);
    let version = version.unwrap_or_else(|absent| absent.why);
    let of_all = compiler.as_ref().map(|one| one.flags.join(" ")).unwrap_or_default();
    let language = compiler.map_or(Language::C, |one| one.language);
    let mut inputs: Vec<Vec<u8>> = vec![
        program.into(),
        mechanism.name.clone().into(),
        of_all.into(),
        flags.join(" ").into(),
        version.into(),
    ];
    for (file, text) in sources::of(language, file_of(program)) {
        inputs.extend([file.into(), text.into()]);
    }
    Recipe { name, inputs, make }
}

/// The source's name without its ending.
fn file_of(program: &str) -> &str {
    if program == REFUSED { BUGS } else { program }
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    let text =
        |at: usize| recipe.inputs.get(at).map_or("".into(), |it| String::from_utf8_lossy(it));
    let (program, mechanism) = (text(0), mechanism(&text(1))?);
    let compiler = mechanism.compiler()?;
    let found = compiler::find(compiler)?;
    compiler::suffices(mechanism, &found)?;
    let files = sources::of(compiler.language, file_of(&program));
    for (file, text) in &files {
        fs::write(folder.join(file), text)?;
    }
    let (main, _) = files.first().ok_or_else(|| {
        Failure::failed(format!("there is no program '{program}' for {}", mechanism.name))
    })?;
    let mut command = Command::new(&found.program);
    command.args(words(compiler, mechanism, &program, main)).current_dir(folder);
    let output = build(&mut command, &[], LIMIT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if program == REFUSED {
        return keep_refusal(mechanism, output.status.success(), &said, folder);
    }
    let why = || {
        let first = said.lines().find(|line| line.contains("error")).or(said.lines().next());
        let compiler = found.program.display();
        let first = first.unwrap_or("it says nothing");
        Failure::failed(format!(
            "{compiler} does not compile {main} for {}: {first}",
            mechanism.name
        ))
    };
    if output.status.success() { Ok(()) } else { Err(why()) }
}

/// The words of the compiler's command.
fn words(compiler: &Compiler, mechanism: &Mechanism, program: &str, main: &str) -> Vec<String> {
    let refused = mechanism.refuses.as_ref().filter(|_| program == REFUSED);
    let own = refused.map_or(&mechanism.flags, |refusal| &refusal.flags);
    // Libraries stand behind what needs them.
    let (libraries, flags): (Vec<_>, Vec<_>) = own.iter().partition(|flag| flag.starts_with("-l"));
    let mut words = compiler.first.clone();
    words.extend(compiler.flags.iter().chain(flags).cloned());
    words.extend([main, "-o", PROGRAM].map(String::from));
    words.extend(libraries.into_iter().cloned());
    words
}

/// Keeps what the compiler said; that it compiled is a failure.
fn keep_refusal(
    mechanism: &Mechanism,
    compiled: bool,
    said: &str,
    folder: &Path,
) -> Result<(), Failure> {
    let says = mechanism.refuses.as_ref().map_or("", |refusal| &refusal.says);
    let line = said.lines().find(|line| line.contains(says));
    match (compiled, line) {
        (false, Some(line)) => fs::write(folder.join(REFUSAL), line).map_err(Failure::from),
        (false, None) => {
            let first = said.lines().next().unwrap_or("nothing");
            Err(Failure::failed(format!("{} says {first}, not {says}", mechanism.compiler)))
        }
        (true, _) => Err(Failure::check(format!(
            "{} compiles the program that it should refuse",
            mechanism.compiler
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::NAMES;
    use super::super::manifest::manifest;
    use super::*;

    #[test]
    fn every_program_has_a_source_in_every_language() {
        for one in &manifest().unwrap().mechanisms {
            let language = one.compiler().unwrap().language;
            for program in NAMES.iter().chain([&BUGS]) {
                let files = sources::of(language, program);
                assert!(files[0].0.starts_with(program), "{program} for {}", one.name);
            }
        }
    }

    #[test]
    fn flags_and_mechanism_make_another_artefact() {
        let hash = |name: &str| recipe("struct", mechanism(name).unwrap()).hash();
        assert_ne!(hash("gcc-tables"), hash("gcc-registers"));
        assert_ne!(hash("gcc"), hash("clang"));
        assert_eq!(hash("gcc"), hash("gcc"));
    }

    #[test]
    fn libraries_stand_last() {
        let mpx = mechanism("gcc-mpx").unwrap();
        let words = words(mpx.compiler().unwrap(), mpx, "struct", "struct.c");
        assert!(words.ends_with(&["-lmpx".into(), "-lmpxwrappers".into()]), "{words:?}");
        assert!(words.contains(&"-fcheck-pointer-bounds".into()));
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let one = Recipe {
            inputs: vec![b"warp".into(), b"gcc".into()],
            ..recipe("struct", mechanism("gcc").unwrap())
        };
        let failure = make(&one, folder.path()).unwrap_err();
        match compiler::find(mechanism("gcc").unwrap().compiler().unwrap()) {
            Ok(_) => assert_eq!(failure.why, "there is no program 'warp' for gcc"),
            Err(absent) => assert_eq!(failure, absent),
        }
    }
}
