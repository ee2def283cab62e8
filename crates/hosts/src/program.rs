//! The program on a host: a copy of this one in the user's cache folder there, named by the hash of its content.

use std::path::Path;
use std::time::Duration;

use lab::format::hexadecimal;
use sha2::{Digest, Sha256};

use crate::error::HostError;
use crate::script::{MARK, quoted, set_folder, values};
use crate::ssh::Connection;

/// The time limit of scripts that copy nothing.
const MAX_SCRIPT: Duration = Duration::from_secs(60);
/// The time limit of the copy: 50 MB at 50 kB/s.
const MAX_COPY: Duration = Duration::from_secs(1000);
/// The function of a shell that tells whether a file or folder is no link, belongs to the user, and is not writable by others.
const IS_PRIVATE: &str = "is_private() { [ ! -L \"$1\" ] && [ -O \"$1\" ] && \
     [ -z \"$(find \"$1\" -prune \\( -perm -020 -o -perm -002 \\))\" ]; }";
/// The function of a shell that checks a folder and all above it, also those of links, as the artefact cache does: another user
/// must not be able to replace one. Folders that do not exist yet are created by the user.
const CHECK_PATH: &str = "check_path() { at=; rest=$1/; links=0; is_safe / || return 1; \
     while [ -n \"$rest\" ]; do name=${rest%%/*}; rest=${rest#*/}; \
     case $name in '' | .) continue;; ..) at=${at%/*}; continue;; esac; \
     [ -e \"$at/$name\" ] || [ -L \"$at/$name\" ] || return 0; is_safe \"$at/$name\" || return 1; \
     if [ -L \"$at/$name\" ]; then links=$((links + 1)); \
     [ $links -le 40 ] || { echo \"$1: too many links\" >&2; return 1; }; target=$(readlink \"$at/$name\"); \
     case $target in /*) at=;; esac; rest=$target/$rest; else at=$at/$name; fi; done; }; \
     is_safe() { [ -n \"$(find \"$1\" -prune \\( -user \"$(id -u)\" -o -user 0 \\) \
     \\( ! -type d -o -perm -1000 -o ! -perm -020 ! -perm -002 \\))\" ] || \
     { echo \"another user may replace what is in $1; correct its owner or mode, e.g. with 'chmod go-w'\" >&2; return 1; }; }";
/// How old what an interrupted copy left is before it is removed, in minutes: longer than a copy may take.
const OLD_COPY: u32 = 30;
/// The systems on which the program runs, as `uname -sm` states them.
const SYSTEM: &str = "Linux x86_64";

/// This program, as it is copied to hosts.
pub struct Program {
    content: Vec<u8>,
    /// The SHA-256 digest in hexadecimal, which every Linux can verify.
    digest: String,
}

/// The program on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The path there.
    pub path: String,
    /// Name and version that it reports, e.g. `tollgate 0.1.0`.
    pub version: String,
    /// The system and architecture of the host, e.g. `Linux x86_64`.
    pub system: String,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Program {
    /// Reads the program of this process.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn current() -> std::io::Result<Self> {
        Self::read(Path::new("/proc/self/exe"))
    }

    /// Reads a program of this machine.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        Ok(Self::of(std::fs::read(path)?))
    }

    fn of(content: Vec<u8>) -> Self {
        let digest = hexadecimal(&Sha256::digest(&content));
        Self { content, digest }
    }

    /// Makes sure that the program is on a host and runs there. If `tollgate.toml` names one there, only checks that.
    ///
    /// # Errors
    /// Returns one line if the host has another architecture, no space, or a C library that is too old.
    pub fn install(&self, connection: &Connection) -> Result<Installed, HostError> {
        let host = connection.host();
        if let Some(path) = &host.program {
            let system = system_of(connection)?;
            let version = version_of(connection, path)?;
            return Ok(Installed { path: path.clone(), version, system, is_new: false });
        }
        self.install_here(connection)
    }

    /// Makes sure that the program is in the cache folder of a host and runs there.
    ///
    /// # Errors
    /// See [`install`](Self::install).
    pub(crate) fn install_here(&self, connection: &Connection) -> Result<Installed, HostError> {
        let output = connection.output(&self.check_script(), &[], MAX_SCRIPT)?;
        check_silent(connection, &output)?;
        let found = values(&output);
        let value = |name| found.get(name).copied().unwrap_or_default();
        let system = supported(connection, value("system"))?;
        let is_new = value("state") != "present";
        if is_new {
            let copied = connection.output(&self.copy_script(), &self.content, MAX_COPY);
            copied.map_err(|error| match error.is_temporary {
                true => error,
                false => HostError { why: not_copied(&error.why), ..error },
            })?;
        }
        let path = value("path").to_owned();
        let version = version_of(connection, &path)?;
        Ok(Installed { path, version, system, is_new })
    }

    /// Removes all programs that were installed on a host; returns how many there were and are no longer. A folder that is a
    /// link stays, with what it contains: tollgate installs nothing through one.
    ///
    /// # Errors
    /// Returns one line if the host cannot be reached or refuses.
    pub fn remove_all(connection: &Connection) -> Result<usize, HostError> {
        let output = connection.output(&Self::remove_script(), &[], MAX_SCRIPT)?;
        Ok(values(&output).get("removed").and_then(|count| count.parse().ok()).unwrap_or_default())
    }

    /// Returns the script that removes all programs, each counted when it is gone.
    fn remove_script() -> String {
        format!(
            "set -eu; {}; count=0; \
             if [ -d \"$folder\" ] && [ ! -L \"$folder\" ]; then for one in \"$folder\"/*; do \
             [ -e \"$one\" ] || continue; found=0; \
             if [ ! -L \"$one\" ] && [ -e \"$one/tollgate\" ]; then found=1; fi; \
             rm -rf -- \"$one\"; count=$((count + found)); done; rmdir -- \"$folder\"; \
             elif [ -e \"$folder\" ] || [ -L \"$folder\" ]; then \
             echo \"$folder is not a folder of tollgate, but a link or a file; remove it\" >&2; exit 1; fi; \
             echo {MARK}removed=$count",
            set_folder()
        )
    }

    /// Returns the script that reports the system, and the program's path and state. A damaged program is absent, and so is
    /// one that another user could replace.
    fn check_script(&self) -> String {
        let Self { digest, .. } = self;
        format!(
            "set -eu; {}; {IS_PRIVATE}; {CHECK_PATH}; check_path \"${{folder%/*}}\"; \
             path=$folder/{digest}/tollgate; state=absent; \
             if is_private \"$folder\" && is_private \"$folder/{digest}\" && is_private \"$path\" && \
             [ -x \"$path\" ] && echo \"{digest}  $path\" | sha256sum -c --status; then state=present; fi; \
             echo {MARK}system=$(uname -sm); echo {MARK}state=$state; echo \"{MARK}path=$path\"",
            set_folder()
        )
    }

    /// Returns the script that copies its standard input. The program appears at its path only when it is complete, in
    /// folders that only the user can change: a link, or what others own, is refused; what others may write to is closed to
    /// them, and copied again.
    fn copy_script(&self) -> String {
        let Self { digest, .. } = self;
        format!(
            "set -eu; umask 077; {}; {IS_PRIVATE}; {CHECK_PATH}; check_path \"${{folder%/*}}\"; mkdir -p \"$folder\"; \
             for one in \"$folder\" \"$folder/{digest}\"; do \
             [ -e \"$one\" ] || [ -L \"$one\" ] || mkdir \"$one\"; \
             if [ -L \"$one\" ] || [ ! -d \"$one\" ] || [ ! -O \"$one\" ]; then \
             echo \"$one is a link, or not your folder; remove it\" >&2; exit 1; fi; \
             is_private \"$one\" || chmod 700 \"$one\"; done; check_path \"$folder\"; \
             [ ! -d \"$folder/{digest}/tollgate\" ] || rm -rf -- \"$folder/{digest}/tollgate\"; copy=; \
             find \"$folder\" -type f -name \"copy.*\" -mmin +{OLD_COPY} -exec rm -f -- {{}} + || :; \
             trap \"rm -f \\\"\\$copy\\\"\" EXIT; trap \"exit 1\" HUP INT TERM PIPE; \
             copy=$(mktemp \"$folder/{digest}/copy.XXXXXX\"); cat > \"$copy\"; \
             echo \"{digest}  $copy\" | sha256sum -c --status || {{ echo \"the copy is damaged\" >&2; exit 1; }}; \
             chmod 700 \"$copy\"; mv -f \"$copy\" \"$folder/{digest}/tollgate\"",
            set_folder()
        )
    }
}

/// Returns the system of a host.
fn system_of(connection: &Connection) -> Result<String, HostError> {
    let output = connection.output(&format!("echo {MARK}system=$(uname -sm)"), &[], MAX_SCRIPT)?;
    check_silent(connection, &output)?;
    supported(connection, values(&output).get("system").copied().unwrap_or_default())
}

/// Checks that a script printed only lines with the mark. What start-up files print would precede the messages of a worker.
fn check_silent(connection: &Connection, output: &str) -> Result<(), HostError> {
    match printed_by_shell(output) {
        None => Ok(()),
        Some(line) => Err(HostError::new(
            connection.host(),
            format!(
                "its login shell prints '{line}' for each command; let its start-up files (~/.bashrc, ~/.zshenv, \
                 ~/.profile, ...) print only if the shell is interactive"
            ),
        )),
    }
}

/// Returns the first line that a shell printed, and not the script.
fn printed_by_shell(output: &str) -> Option<String> {
    let line = output.lines().find(|line| !line.starts_with(MARK))?;
    let shown: String = line.trim().chars().take(60).collect();
    Some(lab::terminal::one_line(&shown).into_owned())
}

/// Checks that the program runs on a system.
fn supported(connection: &Connection, system: &str) -> Result<String, HostError> {
    if system == SYSTEM {
        return Ok(system.to_owned());
    }
    let system = if system.is_empty() { "unknown" } else { system };
    let why = format!("its system is {system}; tollgate measures on {SYSTEM} only");
    Err(HostError::new(connection.host(), why))
}

/// Returns the version that a program on the host states.
fn version_of(connection: &Connection, path: &str) -> Result<String, HostError> {
    let script = format!("{} --version", quoted(path));
    let output = connection.output(&script, &[], MAX_SCRIPT).map_err(|error| {
        // The connection, and not the program.
        if error.is_temporary {
            return error;
        }
        let why = match error.why.contains("GLIBC_") {
            true => format!(
                "the program does not run there: {}; build tollgate on a system with an older C library",
                error.why
            ),
            false => format!("the program does not run there: {}", error.why),
        };
        HostError { why, ..error }
    })?;
    let version = output.lines().find(|line| line.starts_with("tollgate "));
    version.map(|line| line.trim().to_owned()).ok_or_else(|| {
        HostError::new(
            connection.host(),
            format!("{path} there is not a tollgate; correct 'program'"),
        )
    })
}

/// Returns why the program was not copied, with a remedy if that is known.
fn not_copied(why: &str) -> String {
    let remedy = if why.contains("No space left") || why.contains("quota") {
        "; free space there, or set XDG_CACHE_HOME in its 'environment'"
    } else if why.contains("Permission denied") || why.contains("Read-only") {
        "; set XDG_CACHE_HOME in its 'environment' to a folder that the user can write"
    } else {
        ""
    };
    format!("the program cannot be installed: {why}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    /// Runs a script as a host's shell does, with a cache folder.
    fn run(cache: &Path, script: &str, input: &[u8]) -> Output {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("XDG_CACHE_HOME", cache);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn state(cache: &Path, program: &Program) -> String {
        let output = run(cache, &program.check_script(), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = String::from_utf8(output.stdout).unwrap();
        values(&output)["state"].to_owned()
    }

    #[test]
    fn a_program_is_present_only_if_its_content_is() {
        let cache = tempfile::tempdir().unwrap();
        // Its name has what a shell could split.
        let cache = cache.path().join("my cache");
        let program = Program::of(b"#!/bin/sh\necho tollgate 1\n".to_vec());
        assert_eq!(state(&cache, &program), "absent");
        let output = run(&cache, &program.copy_script(), &program.content);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(state(&cache, &program), "present");
        let folder = cache.join("tollgate/programs").join(&program.digest);
        let names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["tollgate"]);
        let path = folder.join("tollgate");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&path, "damaged").unwrap();
        assert_eq!(state(&cache, &program), "absent");
    }

    #[test]
    fn a_damaged_or_failed_copy_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let program = Program::of(b"content".to_vec());
        let output = run(cache.path(), &program.copy_script(), b"conte");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "the copy is damaged\n");
        let folder = cache.path().join("tollgate/programs").join(&program.digest);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
        let file = cache.path().join("file");
        fs::write(&file, "").unwrap();
        let output = run(&file, &program.copy_script(), b"content");
        assert!(!output.status.success());
    }

    #[test]
    fn an_interrupted_copy_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let program = Program::of(b"content".to_vec());
        let folder = cache.path().join("tollgate/programs").join(&program.digest);
        let left = || fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name());
        // The connection is lost: its standard input ends, and nothing reads its messages.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &program.copy_script()]).env("XDG_CACHE_HOME", cache.path());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        child.stdin.take().unwrap().write_all(b"con").unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(left().count(), 0);
        // An earlier version, or one that was killed, left copies; another lab may be making one.
        let hours = std::time::Duration::from_secs(2 * 3600);
        for (name, age) in [("copy.123", hours), ("copy.new", std::time::Duration::ZERO)] {
            let file = fs::File::create(folder.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        assert!(run(cache.path(), &program.copy_script(), b"content").status.success());
        let mut names: Vec<_> = left().collect();
        names.sort();
        assert_eq!(names, ["copy.new", "tollgate"]);
    }

    #[test]
    fn a_folder_above_that_others_can_replace_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let cache = home.join("my cache");
        fs::create_dir_all(&cache).unwrap();
        let program = Program::of(b"#!/bin/sh\necho tollgate 1\n".to_vec());
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        let copy = || run(&cache, &program.copy_script(), &program.content);
        assert!(copy().status.success());
        let tollgate = cache.join("tollgate");
        for folder in [&home, &cache, &tollgate] {
            for open in [0o777, 0o770, 0o702] {
                set(folder, open);
                for output in [copy(), run(&cache, &program.check_script(), &[])] {
                    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                    let expected = format!("replace what is in {}; correct", folder.display());
                    assert!(!output.status.success() && errors.contains(&expected), "{errors}");
                }
            }
            set(folder, 0o1777);
            assert_eq!(state(&cache, &program), "present", "a sticky folder");
            set(folder, 0o755);
        }
        // By a link: the folders that it names count.
        let link = root.path().join("link");
        symlink("home/my cache", &link).unwrap();
        assert_eq!(state(&link, &program), "present");
        set(&home, 0o777);
        let output = run(&link, &program.check_script(), &[]);
        assert!(!output.status.success(), "{output:?}");
    }

    #[test]
    fn a_program_that_others_can_replace_is_copied_again_or_refused() {
        let cache = tempfile::tempdir().unwrap();
        let program = Program::of(b"#!/bin/sh\necho tollgate 1\n".to_vec());
        let copy = || run(cache.path(), &program.copy_script(), &program.content);
        assert!(copy().status.success());
        let programs = cache.path().join("tollgate/programs");
        let folder = programs.join(&program.digest);
        let path = folder.join("tollgate");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for writable in [&programs, &folder, &path] {
            for bits in [0o720, 0o702] {
                fs::set_permissions(writable, fs::Permissions::from_mode(bits)).unwrap();
                assert_eq!(state(cache.path(), &program), "absent", "{}", writable.display());
                assert!(copy().status.success());
                assert_eq!(
                    (state(cache.path(), &program).as_str(), mode(writable)),
                    ("present", 0o700)
                );
            }
        }
        // The file may be a link, which the copy replaces; a folder may not.
        let elsewhere = cache.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(state(cache.path(), &program), "absent");
        assert!(copy().status.success());
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        for linked in [&folder, &programs] {
            let moved = cache.path().join("moved");
            fs::rename(linked, &moved).unwrap();
            symlink(&moved, linked).unwrap();
            assert_eq!(state(cache.path(), &program), "absent", "{}", linked.display());
            let output = copy();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success());
            assert!(errors.ends_with("is a link, or not your folder; remove it\n"), "{errors}");
            fs::remove_file(linked).unwrap();
            fs::rename(&moved, linked).unwrap();
        }
        assert_eq!(state(cache.path(), &program), "present");
    }

    #[test]
    fn only_what_is_gone_was_removed() {
        let cache = tempfile::tempdir().unwrap();
        let programs = cache.path().join("tollgate/programs");
        let remove = || run(cache.path(), &Program::remove_script(), &[]);
        let removed = || {
            let output = remove();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            values(&String::from_utf8(output.stdout).unwrap())["removed"].to_owned()
        };
        assert_eq!(removed(), "0");
        for content in ["a", "b"] {
            let program = Program::of(content.into());
            assert!(run(cache.path(), &program.copy_script(), content.as_bytes()).status.success());
        }
        fs::create_dir(programs.join("empty")).unwrap();
        assert_eq!((removed().as_str(), programs.exists()), ("2", false));
        let other = cache.path().join("other");
        fs::create_dir_all(other.join("hash")).unwrap();
        fs::write(other.join("hash/tollgate"), "mine").unwrap();
        symlink(&other, &programs).unwrap();
        let output = remove();
        assert!(!output.status.success() && other.join("hash/tollgate").exists());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("but a link or a file; remove it"), "{errors}");
        // A link in the folder is removed, and not what it names.
        fs::remove_file(&programs).unwrap();
        fs::create_dir(&programs).unwrap();
        symlink(other.join("hash"), programs.join("hash")).unwrap();
        assert_eq!(removed(), "0");
        assert!(other.join("hash/tollgate").exists() && !programs.exists());
    }

    #[test]
    fn lines_of_a_shell_are_found() {
        assert_eq!(printed_by_shell("tollgate-host:system=x\ntollgate-host:path=/a\n"), None);
        let noisy = "Welcome\u{1b}[2J to cluster X\ntollgate-host:system=x\n";
        assert_eq!(printed_by_shell(noisy).as_deref(), Some("Welcome\u{fffd}[2J to cluster X"));
        assert!(printed_by_shell("\u{1b}[0mtollgate-host:system=x\n").is_some());
    }

    #[test]
    fn a_full_disk_has_a_remedy() {
        let why = not_copied("cat: write error: No space left on device");
        assert!(
            why.ends_with("; free space there, or set XDG_CACHE_HOME in its 'environment'"),
            "{why}"
        );
        assert_eq!(not_copied("x"), "the program cannot be installed: x");
    }
}
