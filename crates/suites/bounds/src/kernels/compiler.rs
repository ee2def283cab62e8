//! Compilers of this machine.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use lab::program::{self, Program};
use lab::sample::{Failure, FailureKind};

use super::manifest::{Compiler, Mechanism};

/// Time limit for a compiler to print its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// Installed compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) program: PathBuf,
    /// First line of its version output.
    pub(super) version: String,
    /// Major version.
    pub(super) major: u32,
}

/// Finds the program of a compiler on the search path.
///
/// # Errors
/// Returns `unavailable` with the package to install.
pub(super) fn program(compiler: &'static Compiler) -> Result<PathBuf, Failure> {
    let named = |name: &'static String| {
        Program { name, capability: "", about: "", package: &compiler.package }.find().ok()
    };
    let found = compiler.programs.iter().find_map(named);
    found.ok_or_else(|| not_installed(&compiler.name, &compiler.package))
}

fn not_installed(name: &str, package: &str) -> Failure {
    let remedy = match package.contains(' ') {
        true => format!("install {package}"),
        false => format!("apt-get install {package}"),
    };
    Failure::unavailable(format!("the compiler {name} is not installed"), remedy)
}

/// Finds a compiler and its version, once per process.
///
/// # Errors
/// Returns `unavailable` if it is not installed, and `failed` if it prints no version.
pub(super) fn find(compiler: &'static Compiler) -> Result<Found, Failure> {
    type Known = Mutex<HashMap<String, Result<Found, Failure>>>;
    static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);
    let known = KNOWN.lock().ok().and_then(|known| known.get(&compiler.name).cloned());
    known.unwrap_or_else(|| {
        let found =
            program(compiler).and_then(|program| read_version(compiler, program, VERSION_LIMIT));
        if let Ok(mut known) = KNOWN.lock() {
            known.insert(compiler.name.clone(), found.clone());
        }
        found
    })
}

fn read_version(compiler: &Compiler, program: PathBuf, limit: Duration) -> Result<Found, Failure> {
    let mut command = Command::new(&program);
    let version = output(command.args(&compiler.first).arg("--version"), limit)?;
    // A proxy may be installed without the requested toolchain.
    let version = version.ok_or_else(|| not_installed(&compiler.name, &compiler.package))?;
    let version = version.lines().next().unwrap_or_default().to_owned();
    let major = major(&version).ok_or_else(|| {
        Failure::failed(format!("{}: no version in '{version}'", program.display()))
    })?;
    Ok(Found { program, version, major })
}

/// Returns the output of a command; `None` if it fails.
///
/// # Errors
/// Returns `timeout` if it does not end within the limit.
fn output(command: &mut Command, limit: Duration) -> Result<Option<String>, Failure> {
    let output = match program::run(command, &[], limit) {
        Err(failure) if failure.kind == FailureKind::Timeout => return Err(failure),
        result => result.ok().filter(|output| output.status.success()),
    };
    Ok(output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Returns the major version in e.g. `gcc (Debian 12.2.0-14) 12.2.0` or `rustc 1.95.0 (5980 2026)`.
fn major(version: &str) -> Option<u32> {
    let words = version.split(|c: char| c.is_whitespace() || c == '(');
    let mut numbers = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let number = numbers.find(|word| word.contains('.'))?;
    number.split('.').next()?.parse().ok()
}

/// Checks that an installed compiler has the version and files that a mechanism needs.
///
/// # Errors
/// Returns `unavailable` with the package to install.
pub(super) fn check_needs(mechanism: &Mechanism, found: &Found) -> Result<(), Failure> {
    let needs = &mechanism.needs;
    let package = needs.package.replace("{major}", &found.major.to_string());
    let name = found.program.display();
    if let Some(min) = needs.major.filter(|min| found.major < *min) {
        let package = needs.package.replace("{major}", &min.to_string());
        return Err(Failure::unavailable(
            format!("{name} has version {}; {} needs {min}", found.major, mechanism.name),
            format!("apt-get install clang-{min} {package} or newer"),
        ));
    }
    let Some(file) = &needs.file else { return Ok(()) };
    if find_file(found, file)?.is_some() {
        return Ok(());
    }
    let remedy = format!("apt-get install {package}");
    Err(Failure::unavailable(format!("{name} does not find {file}"), remedy))
}

/// Returns the path of a library of a compiler; `None` if the compiler does not find it.
///
/// # Errors
/// Returns `timeout` if the compiler does not exit.
pub(super) fn find_file(found: &Found, file: &str) -> Result<Option<PathBuf>, Failure> {
    let mut command = Command::new(&found.program);
    let path = output(command.arg(format!("-print-file-name={file}")), VERSION_LIMIT)?;
    Ok(path.map(|path| PathBuf::from(path.trim())).filter(|path| path.is_absolute()))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{manifest, mechanism};
    use super::*;

    #[test]
    fn major_versions_are_parsed() {
        assert_eq!(major("gcc (Debian 12.2.0-14+deb12u1) 12.2.0"), Some(12));
        assert_eq!(major("Debian clang version 19.1.7 (3~deb12u1)"), Some(19));
        assert_eq!(major("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"), Some(1));
        assert_eq!(major("icc (ICC) 19.1.3.304 20200925"), Some(19));
        assert_eq!(major("no version 7"), None);
    }

    #[test]
    fn a_missing_compiler_has_a_remedy() {
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
        let failure = read_version(gcc, fake.clone(), Duration::from_millis(500)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let start = format!("{} did not exit in 500 ms and was killed", fake.display());
        assert!(failure.why.starts_with(&start) && !failure.why.contains('\n'), "{failure}");
    }

    #[test]
    fn a_file_that_the_compiler_does_not_find_is_unavailable() {
        let manifest = manifest().unwrap();
        let asan = manifest.mechanisms.iter().find(|one| one.name == "gcc-asan").unwrap();
        // `true` prints no path.
        let found = Found { program: "/bin/true".into(), version: String::new(), major: 7 };
        let failure = check_needs(asan, &found).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install libgcc-7-dev"));
        let hardened = manifest.mechanisms.iter().find(|one| one.name == "libc++").unwrap();
        let failure = check_needs(hardened, &found).unwrap_err();
        assert!(failure.why.ends_with("has version 7; libc++ needs 18"), "{failure}");
    }
}
