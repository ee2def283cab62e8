//! Builds Debian's Linux 6.12 with the patch that stamps page faults.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lab::artefact::Recipe;
use lab::sample::{Failure, FailureKind};
use machine::child::run_within;

/// The artefact's name: a folder with `bzImage`, the patch and configuration that it was built with, and
/// the end of the `build.log`.
pub const NAME: &str = "patched-linux-6.12";

const SOURCE: &str = "/usr/src/linux-source-6.12.tar.xz";
const PATCH: &str = include_str!("../../kernel/crossing-stamps.patch");
const CONFIG: &str = include_str!("../../kernel/config");
/// How long a step may take: compiling takes minutes, and an hour on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// Bytes of the log that are kept.
const LOG_END: usize = 4096;

/// What must be there, and Debian's package that brings it.
const NEEDED: [(&str, &str); 10] = [
    (SOURCE, "linux-source-6.12"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("/usr/include/gelf.h", "libelf-dev"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("patch", "patch"),
];

/// How to make a bootable kernel image with crossing stamps, in some minutes.
pub fn recipe() -> Recipe {
    Recipe {
        name: NAME.into(),
        inputs: vec![PATCH.into(), CONFIG.into(), source_identity().into()],
        make,
    }
}

/// Size and time of the source, which come with its package: hashing 150 MB would take a second.
fn source_identity() -> String {
    fs::metadata(SOURCE)
        .map_or("absent".into(), |source| format!("{} B, {}", source.len(), source.mtime()))
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    ready(&missing(is_there))?;
    // Beside the artefacts, since a folder that was not finished is removed.
    let log = folder.with_file_name(format!("{NAME}-{}.log", recipe.hash()));
    let tree = folder.join("tree");
    fs::create_dir(&tree)?;
    let steps = Steps { log: &log, tree: &tree };
    let output = File::create(&log)?;
    steps.run(&output, "tar", &["--extract", "--strip-components=1", "--file", SOURCE])?;
    let patch = put(folder, "patch", PATCH)?;
    steps.run(&output, "patch", &["--strip=1", "--forward", "--batch", "--input", &patch])?;
    let config = format!("KCONFIG_ALLCONFIG={}", put(folder, "config", CONFIG)?);
    steps.run(&output, "make", &["ARCH=x86_64", &config, "allnoconfig"])?;
    taken(&fs::read_to_string(tree.join(".config"))?)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    steps.run(&output, "make", &["ARCH=x86_64", &format!("--jobs={jobs}"), "bzImage"])?;

    fs::rename(tree.join("arch/x86/boot/bzImage"), folder.join("bzImage"))?;
    fs::write(folder.join("build.log"), end_of(&log)?)?;
    fs::remove_dir_all(&tree)?;
    fs::remove_file(&log).map_err(Failure::from)
}

/// Commands in the kernel's tree, which all write into one log.
struct Steps<'a> {
    log: &'a Path,
    tree: &'a Path,
}

impl Steps<'_> {
    fn run(&self, output: &File, program: &str, arguments: &[&str]) -> Result<(), Failure> {
        self.run_within(LIMIT, output, program, arguments)
    }

    fn run_within(
        &self,
        limit: Duration,
        output: &File,
        program: &str,
        arguments: &[&str],
    ) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.tree).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        // Those of a make that started this program are not for this one.
        command.env_remove("MAKEFLAGS");
        let told = |what: String| {
            let (words, log) = (arguments.join(" "), self.log.display());
            format!("building the patched Linux: {program} {words} {what}; see {log}")
        };
        match run_within(&mut command, &[], limit) {
            Ok(Output { status, .. }) if status.success() => Ok(()),
            Ok(Output { status, .. }) => Err(Failure::failed(told(format!("ended with {status}")))),
            Err(why) if why.kind() == ErrorKind::TimedOut => {
                Err(Failure::new(FailureKind::Timeout, told(why.to_string())))
            }
            Err(why) => Err(Failure::failed(told(format!("does not start: {why}")))),
        }
    }
}

/// Writes a file for the steps, and says where.
fn put(folder: &Path, name: &str, text: &str) -> Result<String, Failure> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

/// Whether every option was taken: one whose dependency is missing falls out silently.
fn taken(config: &str) -> Result<(), Failure> {
    let there = |option: &&str| config.lines().any(|line| line == *option);
    let asked = CONFIG.lines().filter(|line| line.starts_with("CONFIG_"));
    match asked.filter(|option| !there(option)).collect::<Vec<_>>() {
        lost if lost.is_empty() => Ok(()),
        lost => Err(Failure::failed(format!("the kernel's configuration lost {}", lost.join(" ")))),
    }
}

/// The packages that are missing.
fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    NEEDED.iter().filter(|(name, _)| !is_there(name)).map(|(_, package)| *package).collect()
}

fn ready(missing: &[&str]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    Err(Failure::unavailable(
        format!("building the patched Linux needs {packages}"),
        format!("apt-get install {packages}"),
    ))
}

/// A file by its path, or a program in the search path.
fn is_there(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joined with an absolute path, a folder gives that path.
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/")]);
    folders.any(|folder| folder.join(name).is_file())
}

fn end_of(log: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(log)?.read_to_end(&mut bytes)?;
    let start = bytes.len().saturating_sub(LOG_END);
    Ok(bytes.split_off(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_line_that_installs_it() {
        assert_eq!(ready(&missing(|_| true)), Ok(()));
        let failure = ready(&missing(|name| !["flex", SOURCE].contains(&name))).unwrap_err();
        assert_eq!(failure.remedy.unwrap(), "apt-get install linux-source-6.12 flex");
        assert!(is_there("sh") && is_there("/proc/self/exe") && !is_there("no-such-program"));
    }

    #[test]
    fn an_option_that_fell_out_is_a_failure() {
        let whole: String = CONFIG.lines().map(|line| format!("{line}\n")).collect();
        assert_eq!(taken(&whole), Ok(()));
        let less = whole.replace("CONFIG_CROSSING_STAMPS=y\n", "");
        assert!(taken(&less).unwrap_err().why.contains("CONFIG_CROSSING_STAMPS=y"));
    }

    #[test]
    fn a_step_that_fails_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let steps = Steps { log: &log, tree: folder.path() };
        let output = File::create(&log).unwrap();
        steps.run(&output, "sh", &["-c", "echo begun"]).unwrap();
        let failure = steps.run(&output, "sh", &["-c", "echo broken; exit 3"]).unwrap_err();
        assert!(failure.why.contains(&log.display().to_string()), "{failure}");
        assert_eq!(end_of(&log).unwrap(), b"begun\nbroken\n");
    }

    #[test]
    fn a_step_that_hangs_is_ended_and_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let steps = Steps { log: &log, tree: folder.path() };
        let output = File::create(&log).unwrap();
        let limit = Duration::from_millis(300);
        let words = ["-c", "echo begun; sleep 1000 & sleep 1000"];
        let failure = steps.run_within(limit, &output, "sh", &words).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let log_is_named = failure.why.ends_with(&format!("; see {}", log.display()));
        assert!(failure.why.contains("did not end in 300 ms and was killed") && log_is_named);
        assert_eq!(end_of(&log).unwrap(), b"begun\n");
    }

    #[test]
    fn the_artefact_hangs_on_the_patch_the_options_and_the_source() {
        let recipe = recipe();
        assert_eq!(recipe.name, NAME);
        assert_eq!(recipe.inputs.len(), 3);
        assert!(recipe.inputs[0].starts_with(b"x86/entry:"));
    }
}
