//! Compilers as they are found on this machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use lab::program::{self, Program};
use lab::sample::{Failure, FailureKind};

use super::manifest::{Compiler, Mechanism};

/// How long a compiler may take to say what it is.
const ANSWER: Duration = Duration::from_secs(60);

/// A compiler that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) program: PathBuf,
    /// The first line of what it says of its version.
    pub(super) version: String,
    /// The first number of its version.
    pub(super) major: u32,
}

/// The program of a compiler on the search path.
///
/// # Errors
/// Says how to install it.
pub(super) fn program(compiler: &'static Compiler) -> Result<PathBuf, Failure> {
    let named = |name: &'static String| {
        Program { name, capability: "", about: "", package: &compiler.package }.find().ok()
    };
    let found = compiler.programs.iter().find_map(named);
    found.ok_or_else(|| absent(&compiler.name, &compiler.package))
}

/// That a compiler is not here, and what brings it.
fn absent(name: &str, package: &str) -> Failure {
    let remedy = match package.contains(' ') {
        true => format!("install {package}"),
        false => format!("apt-get install {package}"),
    };
    Failure::unavailable(format!("the compiler {name} is not installed"), remedy)
}

/// A compiler with its version, which is asked for once in a process.
///
/// # Errors
/// It is not installed, or does not say its version.
pub(super) fn find(compiler: &'static Compiler) -> Result<Found, Failure> {
    type Known = Mutex<HashMap<String, Result<Found, Failure>>>;
    static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);
    let known = KNOWN.lock().ok().and_then(|known| known.get(&compiler.name).cloned());
    known.unwrap_or_else(|| {
        let found = program(compiler).and_then(|program| look(compiler, program, ANSWER));
        if let Ok(mut known) = KNOWN.lock() {
            known.insert(compiler.name.clone(), found.clone());
        }
        found
    })
}

fn look(compiler: &Compiler, program: PathBuf, limit: Duration) -> Result<Found, Failure> {
    let said = said(Command::new(&program).args(&compiler.first).arg("--version"), limit)?;
    // A proxy without the toolchain that it is asked for is here, and the compiler is not.
    let version = said.ok_or_else(|| absent(&compiler.name, &compiler.package))?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    let major = major(&version).ok_or_else(|| {
        Failure::failed(format!("{} says of its version: '{version}'", program.display()))
    })?;
    Ok(Found { program, version, major })
}

/// What a command prints, where it succeeds.
///
/// # Errors
/// It does not end.
fn said(command: &mut Command, limit: Duration) -> Result<Option<String>, Failure> {
    let output = match program::build(command, &[], limit) {
        Err(failure) if failure.kind == FailureKind::Timeout => return Err(failure),
        ended => ended.ok().filter(|output| output.status.success()),
    };
    Ok(output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The first number of `gcc (Debian 12.2.0-14) 12.2.0` and `rustc 1.95.0 (5980 2026)`.
fn major(version: &str) -> Option<u32> {
    let words = version.split(|c: char| c.is_whitespace() || c == '(');
    let mut numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let number = numbers.find(|word| word.contains('.'))?;
    number.split('.').next()?.parse().ok()
}

/// Whether a compiler that is here has what a mechanism needs of it.
///
/// # Errors
/// The reason why not, and the package that brings it.
pub(super) fn suffices(mechanism: &Mechanism, found: &Found) -> Result<(), Failure> {
    let needs = &mechanism.needs;
    let package = needs.package.replace("{major}", &found.major.to_string());
    let name = found.program.display();
    if let Some(least) = needs.major.filter(|least| found.major < *least) {
        let package = needs.package.replace("{major}", &least.to_string());
        return Err(Failure::unavailable(
            format!("{name} is of version {}, and {} needs {least}", found.major, mechanism.name),
            format!("apt-get install clang-{least} {package} or newer"),
        ));
    }
    let Some(file) = &needs.file else { return Ok(()) };
    let at = said(Command::new(&found.program).arg(format!("-print-file-name={file}")), ANSWER)?;
    let is_there = at.is_some_and(|at| Path::new(at.trim()).is_absolute());
    let lacks = || {
        let remedy = format!("apt-get install {package}");
        Failure::unavailable(format!("{name} does not find {file}"), remedy)
    };
    if is_there { Ok(()) } else { Err(lacks()) }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{manifest, mechanism};
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("gcc (Debian 12.2.0-14+deb12u1) 12.2.0"), Some(12));
        assert_eq!(major("Debian clang version 19.1.7 (3~deb12u1)"), Some(19));
        assert_eq!(major("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"), Some(1));
        assert_eq!(major("icc (ICC) 19.1.3.304 20200925"), Some(19));
        assert_eq!(major("no version 7"), None);
    }

    #[test]
    fn what_is_missing_has_a_remedy() {
        for compiler in &manifest().unwrap().compilers {
            match find(compiler) {
                Ok(found) => assert!(found.major > 0 && found.program.is_absolute(), "{found:?}"),
                Err(failure) => {
                    let remedy = failure.remedy.unwrap_or_default();
                    assert!(remedy.contains("install"), "{}: {remedy}", compiler.name);
                }
            }
        }
    }

    #[test]
    fn a_compiler_that_hangs_is_a_timeout_in_one_line() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let fake = folder.path().join("gcc");
        std::fs::write(&fake, "#!/bin/sh\necho waiting for a licence >&2\nsleep 1000\n").unwrap();
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o700)).unwrap();
        let gcc = mechanism("gcc").unwrap().compiler().unwrap();
        let failure = look(gcc, fake.clone(), Duration::from_millis(500)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let start = format!("{} did not end in 500 ms and was killed", fake.display());
        assert!(failure.why.starts_with(&start) && !failure.why.contains('\n'), "{failure}");
    }

    #[test]
    fn a_file_that_the_compiler_does_not_find_is_a_lack() {
        let manifest = manifest().unwrap();
        let asan = manifest.mechanisms.iter().find(|one| one.name == "gcc-asan").unwrap();
        // `true` is no compiler and prints nothing.
        let found = Found { program: "/bin/true".into(), version: String::new(), major: 7 };
        let failure = suffices(asan, &found).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install libgcc-7-dev"));
        let hardened = manifest.mechanisms.iter().find(|one| one.name == "libc++").unwrap();
        let failure = suffices(hardened, &found).unwrap_err();
        assert!(failure.why.ends_with("is of version 7, and libc++ needs 18"), "{failure}");
    }
}
