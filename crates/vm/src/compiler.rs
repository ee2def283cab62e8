//! The system's C compiler.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::program::{self, Program};
use lab::sample::Failure;

/// The compiler, and the C library of static programs.
pub(crate) const GCC: Program = Program {
    name: "gcc",
    capability: "gcc",
    about: "compiles programs",
    package: "gcc libc6-dev",
};
/// Time limit of the compiler.
const COMPILE_LIMIT: Duration = Duration::from_secs(300);

/// Identifies the compiler, and the C library of static programs.
pub fn toolchain() -> String {
    let mut gcc = Command::new(GCC.name);
    let version = GCC.output(gcc.arg("--version"), COMPILE_LIMIT).unwrap_or_default();
    let libc = machine::environment::libc_version().unwrap_or_default();
    format!("{}; {libc}", version.lines().next().unwrap_or_default())
}

/// Writes source files, each with its name, to a folder and compiles the first one with the system's GCC.
///
/// # Errors
/// Returns `unavailable` without GCC, and `failed` with its first error.
pub fn compile(
    folder: &Path,
    flags: &[&str],
    sources: &[(&str, &str)],
    output: &str,
) -> Result<(), Failure> {
    for (name, text) in sources {
        std::fs::write(folder.join(name), text)?;
    }
    let source = sources.first().map_or("", |(name, _)| name);
    let mut gcc = Command::new(GCC.find()?);
    gcc.args(flags).args([source, "-o", output]).current_dir(folder);
    let result = program::run(&mut gcc, &[], COMPILE_LIMIT)?;
    if result.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&result.stderr);
    let first = errors.lines().find(|line| line.contains("error")).or(errors.lines().next());
    Err(Failure::failed(format!("gcc {source}: {}", first.unwrap_or("no diagnostic"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_the_compiler_is_reported() {
        if let Err(why) = GCC.find() {
            return machine::untested::note("the compiler", &why);
        }
        let folder = tempfile::tempdir().unwrap();
        let sources = [
            ("main.c", "#include \"other.h\"\nint main(void) { return OTHER; }"),
            ("other.h", "#define OTHER 0"),
        ];
        compile(folder.path(), &["-O1"], &sources, "program").unwrap();
        assert!(Command::new(folder.path().join("program")).status().unwrap().success());
        let wrong = [("main.c", "int main(void) { return missing; }")];
        let failure = compile(folder.path(), &[], &wrong, "program").unwrap_err();
        let is_first =
            failure.why.starts_with("gcc main.c: main.c:1:") && failure.why.contains("missing");
        assert!(is_first, "{failure}");
    }
}
