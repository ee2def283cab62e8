//! Artefacts that build Debian's Linux 6.12 with a minimal configuration and a patch: of a suite, of the user, or none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lab::artefact::{MAX_MAKING, Recipe};
use lab::program;
use lab::sample::{Failure, FailureKind};
use machine::child::{self, run_within};

const SOURCE: &str = "/usr/src/linux-source-6.12.tar.xz";
/// Half of the source's files, which the configuration does not use. Kconfig files are used, also those of unused options.
const UNUSED: [&str; 9] = [
    "Documentation/*.[!K]*",
    "arch/[!x]*/*.[chS]",
    "arch/[!x]*/*.dts*",
    "drivers/gpu/*.[ch]",
    "drivers/media/*.[ch]",
    "drivers/net/*/*.[ch]",
    "sound/*.[ch]",
    "tools/perf/*",
    "tools/testing/*",
];
/// The configuration that every built kernel has.
const CONFIG: &str = include_str!("../kernel/config");
/// Description of the build and its time.
pub(crate) const BUILDING: &str = "building Linux, which takes up to ten minutes on two CPUs";
/// Maximum time of a step: twelve times that of [`BUILDING`], for machines that are slow or busy.
const STEP_TIMEOUT: Duration = Duration::from_secs(2 * 3600);
/// Maximum number of steps: extract, patch, configure, compile.
const STEPS: u32 = 4;
const _: () = assert!(STEP_TIMEOUT.as_secs() * STEPS as u64 <= MAX_MAKING.as_secs());
/// Bytes kept from the end of the log.
const LOG_END: usize = 4096;

/// Required files and programs, and the Debian package of each.
const REQUIRED: [(&str, &str); 10] = [
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

/// Options with which a declared guest sees this machine's files; kernels of suites do not need them.
const HOST_FILES_OPTIONS: &str = "\
# The files of QEMU's machine by 9p, and changes of them in memory.
CONFIG_INET=y
CONFIG_NET_9P=y
CONFIG_NET_9P_VIRTIO=y
CONFIG_NETWORK_FILESYSTEMS=y
CONFIG_9P_FS=y
CONFIG_TMPFS_XATTR=y
CONFIG_OVERLAY_FS=y
";

/// A patch of a suite, which a guest's declaration can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Name.
    pub name: &'static str,
    /// The patch.
    pub text: &'static str,
    /// Lines of configuration that the patch requires.
    pub options: &'static str,
}

/// Returns the recipe of the kernel of a declared guest, which sees this machine's files.
pub(crate) fn recipe_with_host_files(patch: &str, options: &str) -> Recipe {
    recipe("declared-linux-6.12", patch, &format!("{options}\n{HOST_FILES_OPTIONS}"))
}

/// Returns the recipe of a bootable kernel image: the folder of the artefact has `bzImage`, the patch, the configuration,
/// and the end of `build.log`. `options` are lines of configuration.
pub fn recipe(name: &str, patch: &str, options: &str) -> Recipe {
    let inputs = Inputs { patch: patch.into(), config: without_comments(options) };
    Recipe { name: name.into(), inputs: inputs.into_recipe(), make }
}

/// Inputs of a kernel.
struct Inputs {
    /// The patch; blank for none.
    patch: String,
    /// All lines of the configuration.
    config: String,
}

impl Inputs {
    fn into_recipe(self) -> Vec<Vec<u8>> {
        vec![self.patch.into(), self.config.into(), source_identity().into()]
    }

    fn of_recipe(recipe: &Recipe) -> Result<Self, Failure> {
        let [patch, config, _source] = recipe.inputs.as_slice() else {
            let (name, inputs) = (&recipe.name, recipe.inputs.len());
            return Err(Failure::failed(format!(
                "recipe '{name}' of a kernel has {inputs} inputs"
            )));
        };
        let text = |input: &Vec<u8>| String::from_utf8_lossy(input).into_owned();
        Ok(Self { patch: text(patch), config: text(config) })
    }
}

/// Returns the configuration with further lines. It has no comments, since an edited comment must not change the artefact.
fn without_comments(options: &str) -> String {
    let lines = CONFIG.lines().chain(options.lines());
    let kept = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    kept.map(|line| format!("{line}\n")).collect()
}

/// Identifies the source by size and modification time, since hashing 150 MB would take a second.
fn source_identity() -> String {
    fs::metadata(SOURCE)
        .map_or("absent".into(), |source| format!("{} B, {}", source.len(), source.mtime()))
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    require(&missing(exists))?;
    let Inputs { patch, config } = Inputs::of_recipe(recipe)?;
    // Next to the folder, because an unfinished folder is removed.
    let log = folder.with_file_name(format!("{}-{}.log", recipe.name, recipe.hash()));
    let tree = folder.join("tree");
    fs::create_dir(&tree)?;
    let steps = Steps { log: &log, tree: &tree };
    let output = File::create(&log)?;
    let unused: Vec<_> =
        UNUSED.iter().map(|files| format!("--exclude=linux-source-6.12/{files}")).collect();
    let unused = unused.iter().map(String::as_str);
    let extract: Vec<_> =
        ["--extract", "--strip-components=1", "--file", SOURCE].into_iter().chain(unused).collect();
    steps.run(&output, "tar", &extract)?;
    let has_patch = !patch.trim().is_empty();
    let patch = write_input(folder, "patch", &patch)?;
    if has_patch {
        steps.run(&output, "patch", &["--strip=1", "--forward", "--batch", "--input", &patch])?;
    }
    let all = format!("KCONFIG_ALLCONFIG={}", write_input(folder, "config", &config)?);
    steps.run(&output, "make", &["ARCH=x86_64", &all, "allnoconfig"])?;
    check_config(&config, &fs::read_to_string(tree.join(".config"))?)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    steps.run(&output, "make", &["ARCH=x86_64", &format!("--jobs={jobs}"), "bzImage"])?;

    fs::rename(tree.join("arch/x86/boot/bzImage"), folder.join("bzImage"))?;
    fs::write(folder.join("build.log"), end_of(&log)?)?;
    fs::remove_dir_all(&tree)?;
    fs::remove_file(&log).map_err(Failure::from)
}

/// Runner of commands in the kernel's tree, with one log for all.
struct Steps<'a> {
    log: &'a Path,
    tree: &'a Path,
}

impl Steps<'_> {
    fn run(&self, output: &File, program: &str, arguments: &[&str]) -> Result<(), Failure> {
        self.run_within(STEP_TIMEOUT, output, program, arguments)
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
        // This make must not inherit the flags of a make that started this program.
        command.env_remove("MAKEFLAGS");
        let describe = |what: String| {
            let (words, log) = (arguments.join(" "), self.log.display());
            let last = last_line(self.log);
            format!("build Linux: {program} {words}: {what}: {last}; see {log}")
        };
        match run_within(&mut command, &[], limit) {
            Ok(Output { status, .. }) if status.success() => Ok(()),
            Ok(Output { status, .. }) => Err(Failure::failed(describe(child::describe(status)))),
            Err(why) if why.kind() == ErrorKind::TimedOut => {
                Err(Failure::new(FailureKind::Timeout, describe(why.to_string())))
            }
            Err(why) if why.kind() == ErrorKind::Interrupted => {
                Err(Failure::failed(describe(why.to_string())))
            }
            Err(why) => Err(Failure::failed(describe(format!("does not start: {why}")))),
        }
    }
}

/// Writes a file for the steps, and returns its path.
fn write_input(folder: &Path, name: &str, text: &str) -> Result<String, Failure> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

/// Returns the options of a configuration with their values. Of several lines of an option, the last counts.
fn options(config: &str) -> BTreeMap<&str, &str> {
    let lines = config.lines().filter(|line| line.starts_with("CONFIG_"));
    lines.filter_map(|line| line.split_once('=')).collect()
}

/// Returns the maximum number of CPUs of the Linux with these lines of configuration.
pub(crate) fn max_cpus(lines: &str) -> u32 {
    let config = format!("{CONFIG}\n{lines}");
    options(&config).get("CONFIG_NR_CPUS").and_then(|cpus| cpus.parse().ok()).unwrap_or(1)
}

/// Checks that make kept every option: it silently drops one whose dependency is missing. The value `n` means that the
/// option is not set.
fn check_config(requested: &str, config: &str) -> Result<(), Failure> {
    let kept = options(config);
    let is_kept = |name: &str, value: &str| kept.get(name).copied().unwrap_or("n") == value;
    let requested = options(requested).into_iter();
    let lost = requested.filter(|(name, value)| !is_kept(name, value));
    match lost.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>() {
        lost if lost.is_empty() => Ok(()),
        lost => Err(Failure::failed(format!(
            "make changed options of the kernel's configuration: {}; add the options that they depend on",
            lost.join(" ")
        ))),
    }
}

/// Returns the packages of the requirements that do not exist.
fn missing(exists: impl Fn(&str) -> bool) -> Vec<&'static str> {
    REQUIRED.iter().filter(|(name, _)| !exists(name)).map(|(_, package)| *package).collect()
}

fn require(missing: &[&str]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    let cause = "packages to build Linux are missing";
    let remedy = format!("apt-get install {packages}");
    Err(Failure::unavailable(format!("{cause}: {packages}"), remedy).with_cause(cause))
}

/// Returns whether a file exists: an absolute path, or a program in `PATH`.
fn exists(name: &str) -> bool {
    let path = Path::new(name);
    if path.is_absolute() { path.is_file() } else { program::find(name).is_some() }
}

fn end_of(log: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(log)?.read_to_end(&mut bytes)?;
    let start = bytes.len().saturating_sub(LOG_END);
    Ok(bytes.split_off(start))
}

/// Returns the last line of a log, which usually states the cause of a failure.
fn last_line(log: &Path) -> String {
    let end = end_of(log).unwrap_or_default();
    let end = String::from_utf8_lossy(&end);
    let last = end.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("no output").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_packages_are_reported_with_the_command_that_installs_them() {
        assert_eq!(require(&missing(|_| true)), Ok(()));
        let failure = require(&missing(|name| !["flex", SOURCE].contains(&name))).unwrap_err();
        assert_eq!(failure.remedy.unwrap(), "apt-get install linux-source-6.12 flex");
        assert!(exists("sh") && exists("/proc/self/exe") && !exists("no-such-program"));
    }

    #[test]
    fn a_dropped_option_is_a_failure() {
        let whole: String = CONFIG.lines().map(|line| format!("{line}\n")).collect();
        assert_eq!(check_config(CONFIG, &whole), Ok(()));
        let less = whole.replace("CONFIG_SMP=y\n", "");
        let failure = check_config(CONFIG, &less).unwrap_err();
        assert!(failure.why.contains(" CONFIG_SMP=y; add the options"), "{failure}");
    }

    #[test]
    fn the_last_line_of_an_option_counts_and_n_means_not_set() {
        let config = "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_NAME=\"a=b\"\n";
        for kept in ["CONFIG_A=n", "CONFIG_C=n", "CONFIG_A=y\nCONFIG_A=n", "CONFIG_NAME=\"a=b\""] {
            assert_eq!(check_config(kept, config), Ok(()), "{kept}");
        }
        for lost in ["CONFIG_B=n", "CONFIG_A=y", "CONFIG_B=n\nCONFIG_B=m", "CONFIG_NAME=\"a\""] {
            let why = check_config(lost, config).unwrap_err().why;
            assert!(why.contains(lost.lines().last().unwrap()), "{why}");
        }
    }

    #[test]
    fn the_number_of_cpus_is_that_of_the_configuration() {
        assert_eq!(max_cpus(""), 8);
        assert_eq!(max_cpus("CONFIG_NR_CPUS=16\nCONFIG_X=y"), 16);
    }

    #[test]
    fn a_failed_step_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let steps = Steps { log: &log, tree: folder.path() };
        let output = File::create(&log).unwrap();
        steps.run(&output, "sh", &["-c", "echo started"]).unwrap();
        let failure = steps.run(&output, "sh", &["-c", "echo broken; exit 3"]).unwrap_err();
        let cause = format!("exited with status 3: broken; see {}", log.display());
        assert!(failure.why.ends_with(&cause), "{failure}");
        assert_eq!(end_of(&log).unwrap(), b"started\nbroken\n");
    }

    #[test]
    fn a_hung_step_is_killed_and_names_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let steps = Steps { log: &log, tree: folder.path() };
        let output = File::create(&log).unwrap();
        let limit = Duration::from_millis(300);
        let words = ["-c", "echo started; sleep 1000 & sleep 1000"];
        let failure = steps.run_within(limit, &output, "sh", &words).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let log_is_named = failure.why.ends_with(&format!("; see {}", log.display()));
        assert!(failure.why.contains("did not exit in 300 ms and was killed") && log_is_named);
        assert_eq!(end_of(&log).unwrap(), b"started\n");
    }

    #[test]
    fn the_artefact_depends_on_the_patch_the_configuration_and_the_source() {
        let hash = |patch, options| recipe("patched", patch, options).hash();
        let hashes = [hash("one", ""), hash("two", ""), hash("one", "CONFIG_X=y\n")];
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[0] == hash("one", ""));
        assert_eq!(hash("one", "# A comment.\n\nCONFIG_X=y"), hash("one", "CONFIG_X=y\n"));
        let inputs = Inputs::of_recipe(&recipe("patched", "one", "CONFIG_X=y")).unwrap();
        assert_eq!(inputs.patch, "one");
        assert!(inputs.config.ends_with("\nCONFIG_X=y\n") && !inputs.config.contains('#'));
    }
}
