//! Programs as artefacts: one per kernel and mechanism, and one with all planted bugs per mechanism.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::artefact::Recipe;
use lab::program;
use lab::sample::Failure;

use super::compiler::{self, Found};
use super::manifest::{Compiler, Language, Mechanism, mechanism};

/// Time limit for the compilation of a program of a few hundred lines.
const LIMIT: Duration = Duration::from_secs(300);
/// Program with all planted bugs.
pub(super) const BUGS: &str = "bugs";
/// The same program with the flags that make the compiler reject it.
const REJECTED: &str = "rejected";
/// Program that stores pointers whose bounds need separate tables.
pub(super) const TABLES: &str = "tables";
/// Name of the compiled program in its folder.
pub(super) const PROGRAM: &str = "program";
/// Name of the file with the diagnostic of a rejected program.
pub(super) const DIAGNOSTIC: &str = "diagnostic.txt";

/// Name and text of a source file.
type Source = (&'static str, &'static str);

/// Files that every program of a language includes.
const SHARED: &[(Language, &[Source])] = &[
    (
        Language::C,
        &[
            ("kernel.h", include_str!("../../kernels/kernel.h")),
            ("bounds.h", include_str!("../../kernels/bounds.h")),
        ],
    ),
    (Language::Cpp, &[("kernel.h", include_str!("../../kernels/kernel.h"))]),
    (Language::Rust, &[("harness.rs", include_str!("../../kernels/harness.rs"))]),
];

/// Lists the programs in their three languages.
macro_rules! programs {
    ($($folder:literal $name:literal)*) => {
        &[$(
            (Language::C, $name, (concat!($name, ".c"),
                include_str!(concat!("../../", $folder, "/", $name, ".c")))),
            (Language::Cpp, $name, (concat!($name, ".cpp"),
                include_str!(concat!("../../", $folder, "/", $name, ".cpp")))),
            (Language::Rust, $name, (concat!($name, ".rs"),
                include_str!(concat!("../../", $folder, "/", $name, ".rs")))),
        )*]
    };
}

const PROGRAMS: &[(Language, &str, Source)] = programs! {
    "kernels" "arraywrite"
    "kernels" "arrayread"
    "kernels" "struct"
    "kernels" "ptrcreation"
    "kernels" "mallocs"
    "kernels" "funccalls"
    "bugs" "bugs"
};

/// Programs that exist only in C, because they are compiled only with and without MPX.
const C_PROGRAMS: &[(&str, Source)] =
    &[(TABLES, ("tables.c", include_str!("../../kernels/tables.c")))];

/// Returns the flags of a program in addition to those of compiler and mechanism.
fn own_flags(program: &str) -> &'static [&'static str] {
    // As published, so that the effect of the system dominates.
    if program == TABLES { &["-O0"] } else { &[] }
}

/// Returns the source files of a program in a language, first the one to compile; empty if there is no such program.
fn sources(language: Language, program: &str) -> Vec<Source> {
    let file = if program == REJECTED { BUGS } else { program };
    if let Some((_, source)) = C_PROGRAMS.iter().find(|(name, _)| *name == file) {
        return if language == Language::C { vec![*source] } else { Vec::new() };
    }
    let main = PROGRAMS.iter().find(|(of, name, _)| *of == language && *name == file);
    let Some((_, _, main)) = main else { return Vec::new() };
    let shared = SHARED.iter().filter(|(of, _)| *of == language);
    std::iter::once(*main).chain(shared.flat_map(|(_, all)| all.iter().copied())).collect()
}

/// Returns the name of the artefact of a program under a mechanism.
pub(super) fn name(program: &str, mechanism: &str) -> String {
    format!("bounds-{program}-{mechanism}")
}

/// Returns the name of the artefact with the diagnostic of a mechanism's compiler.
pub(super) fn rejected_name(mechanism: &str) -> String {
    name(REJECTED, mechanism)
}

/// Returns the recipe of a program under a mechanism. Its inputs are the sources, the flags and the compiler's version.
pub(super) fn recipe(program: &str, mechanism: &Mechanism) -> Recipe {
    recipe_with(name(program, &mechanism.name), program, mechanism, &mechanism.flags)
}

/// Returns the recipe of the diagnostic; `None` if the mechanism rejects no bug.
pub(super) fn rejected_recipe(mechanism: &Mechanism) -> Option<Recipe> {
    let flags = &mechanism.rejects.as_ref()?.flags;
    Some(recipe_with(rejected_name(&mechanism.name), REJECTED, mechanism, flags))
}

fn recipe_with(name: String, program: &str, mechanism: &Mechanism, flags: &[String]) -> Recipe {
    let compiler = mechanism.compiler();
    let found = compiler.clone().and_then(compiler::find);
    // The program loads a library from the compiler's folder, so one that was compiled elsewhere may lack it.
    let library = mechanism.run_path_of.as_deref();
    let libraries =
        found.clone().and_then(|found| library.map(|one| run_path(&found, one)).transpose());
    let version = found.map_or_else(|missing| missing.why, |found| found.version);
    let common_flags = compiler.as_ref().map(|one| one.flags.join(" ")).unwrap_or_default();
    let language = compiler.map_or(Language::C, |one| one.language);
    let mut inputs: Vec<Vec<u8>> = vec![
        program.into(),
        mechanism.name.clone().into(),
        common_flags.into(),
        flags.join(" ").into(),
        own_flags(program).join(" ").into(),
        version.into(),
        libraries.ok().flatten().unwrap_or_default().into(),
    ];
    for (file, text) in sources(language, program) {
        inputs.extend([file.into(), text.into()]);
    }
    Recipe { name, inputs, make }
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    let text =
        |index: usize| recipe.inputs.get(index).map_or("".into(), |it| String::from_utf8_lossy(it));
    let (program, mechanism) = (text(0), mechanism(&text(1))?);
    let compiler = mechanism.compiler()?;
    let found = compiler::find(compiler)?;
    compiler::check_needs(mechanism, &found)?;
    let files = sources(compiler.language, &program);
    for (file, text) in &files {
        fs::write(folder.join(file), text)?;
    }
    let (main, _) = files
        .first()
        .ok_or_else(|| Failure::failed(format!("no program '{program}' for {}", mechanism.name)))?;
    let mut command = Command::new(&found.program);
    command.args(arguments(compiler, mechanism, &program, main)).current_dir(folder);
    if let Some(library) = &mechanism.run_path_of {
        command.arg(run_path(&found, library)?);
    }
    let output = program::run(&mut command, &[], LIMIT)?;
    let diagnostics = String::from_utf8_lossy(&output.stderr);
    if program == REJECTED {
        return keep_diagnostic(mechanism, output.status.success(), &diagnostics, folder);
    }
    if output.status.success() {
        return Ok(());
    }
    let error = diagnostics.lines().find(|line| line.contains("error"));
    Err(Failure::failed(format!(
        "{} does not compile {main} for {}: {}",
        found.program.display(),
        mechanism.name,
        error.or(diagnostics.lines().next()).unwrap_or("no diagnostic")
    )))
}

/// Returns the arguments of the compiler's command.
fn arguments(compiler: &Compiler, mechanism: &Mechanism, program: &str, main: &str) -> Vec<String> {
    let rejected = mechanism.rejects.as_ref().filter(|_| program == REJECTED);
    let flags = rejected.map_or(&mechanism.flags, |rejected| &rejected.flags);
    // Libraries follow the files that need them.
    let (libraries, flags): (Vec<_>, Vec<_>) =
        flags.iter().partition(|flag| flag.starts_with("-l"));
    let mut arguments = compiler.first.clone();
    arguments.extend(compiler.flags.iter().chain(flags).cloned());
    arguments.extend(own_flags(program).iter().copied().map(String::from));
    arguments.extend([main, "-o", PROGRAM].map(String::from));
    arguments.extend(libraries.into_iter().cloned());
    arguments
}

/// Returns the flag that adds the folder of a library to the run path.
///
/// # Errors
/// Returns `unavailable` if the compiler does not have the library.
fn run_path(found: &Found, library: &str) -> Result<String, Failure> {
    let path = compiler::find_file(found, library)?;
    let absent = || {
        let why = format!("{} does not find {library}", found.program.display());
        Failure::unavailable(why, "install the libraries of the compiler")
    };
    let folder = path.as_deref().and_then(Path::parent).ok_or_else(absent)?;
    Ok(format!("-Wl,-rpath,{}", folder.display()))
}

/// Writes the expected diagnostic of a rejected program to its file.
///
/// # Errors
/// Returns `failed` if the diagnostic is another, and a failed check if the program compiled.
fn keep_diagnostic(
    mechanism: &Mechanism,
    compiled: bool,
    diagnostics: &str,
    folder: &Path,
) -> Result<(), Failure> {
    let expected = mechanism.rejects.as_ref().map_or("", |rejected| &rejected.diagnostic);
    let line = diagnostics.lines().find(|line| line.contains(expected));
    match (compiled, line) {
        (false, Some(line)) => fs::write(folder.join(DIAGNOSTIC), line).map_err(Failure::from),
        (false, None) => {
            let first = diagnostics.lines().next().unwrap_or("no diagnostic");
            Err(Failure::failed(format!(
                "{}: unexpected diagnostic '{first}'; expected '{expected}'",
                mechanism.compiler
            )))
        }
        (true, _) => Err(Failure::check(format!(
            "{} compiles a program that it should reject",
            mechanism.compiler
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::manifest;
    use super::super::programs::Kernel;
    use super::*;

    #[test]
    fn every_program_has_a_source_in_every_language() {
        for one in &manifest().unwrap().mechanisms {
            let language = one.compiler().unwrap().language;
            for program in Kernel::ALL.map(Kernel::name).into_iter().chain([BUGS]) {
                let files = sources(language, program);
                assert!(files[0].0.starts_with(program), "{program} for {}", one.name);
            }
        }
    }

    #[test]
    fn flags_and_mechanism_identify_an_artefact() {
        let hash = |name: &str| recipe("struct", mechanism(name).unwrap()).hash();
        assert_ne!(hash("gcc-tables"), hash("gcc-registers"));
        assert_ne!(hash("gcc"), hash("clang"));
        assert_eq!(hash("gcc"), hash("gcc"));
    }

    #[test]
    fn libraries_are_the_last_arguments() {
        let mpx = mechanism("gcc-mpx").unwrap();
        let arguments = arguments(mpx.compiler().unwrap(), mpx, "struct", "struct.c");
        assert!(arguments.ends_with(&["-lmpx".into(), "-lmpxwrappers".into()]), "{arguments:?}");
        assert!(arguments.contains(&"-fcheck-pointer-bounds".into()));
    }

    #[test]
    fn the_run_path_is_the_folder_of_the_library() {
        // `echo` prints a relative path, as a compiler does for a library that it does not find.
        let found =
            |program: &str| Found { program: program.into(), version: String::new(), major: 7 };
        let failure = run_path(&found("/bin/echo"), "libmpx.so").unwrap_err();
        assert_eq!(failure.why, "/bin/echo does not find libmpx.so");
        let gcc = mechanism("gcc").unwrap().compiler().unwrap();
        if let Ok(gcc) = compiler::find(gcc) {
            let path = run_path(&gcc, "libgcc.a").unwrap();
            let folder = Path::new(path.strip_prefix("-Wl,-rpath,").unwrap());
            assert!(folder.join("libgcc.a").is_file(), "{path}");
        }
    }

    #[test]
    fn flags_of_a_program_override_those_of_its_compiler() {
        let mpx = mechanism("gcc-mpx").unwrap();
        let arguments = arguments(mpx.compiler().unwrap(), mpx, TABLES, "tables.c");
        let place = |flag: &str| arguments.iter().position(|it| it == flag).unwrap();
        assert!(place("-O2") < place("-O0") && place("-O0") < place("tables.c"), "{arguments:?}");
    }

    #[test]
    fn an_unknown_program_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let one = Recipe {
            inputs: vec![b"warp".into(), b"gcc".into()],
            ..recipe("struct", mechanism("gcc").unwrap())
        };
        let failure = make(&one, folder.path()).unwrap_err();
        match compiler::find(mechanism("gcc").unwrap().compiler().unwrap()) {
            Ok(_) => assert_eq!(failure.why, "no program 'warp' for gcc"),
            Err(missing) => assert_eq!(failure, missing),
        }
    }
}
