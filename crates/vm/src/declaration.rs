//! Guests declared in TOML, in which whole experiments run: the embedded ones, and a user's files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use lab::data::{DataError, MAX_FILE, is_plain_name, read_toml};
use lab::guest::{GuestHost, Guests};
use lab::quantity;
use machine::memfd::Memfd;
use serde::{Deserialize, Serialize};

use crate::guest::{Accelerator, Backing, BackingFile, Kernel, LinuxGuest};

/// The embedded declarations, by name.
const EMBEDDED: &[(&str, &str)] = &[
    ("cxl", include_str!("../guests/cxl.toml")),
    ("escape", include_str!("../guests/escape.toml")),
    ("ivshmem", include_str!("../guests/ivshmem.toml")),
    ("mpx", include_str!("../guests/mpx.toml")),
    ("nested", include_str!("../guests/nested.toml")),
    ("numa", include_str!("../guests/numa.toml")),
    ("nvdimm", include_str!("../guests/nvdimm.toml")),
    ("plain", include_str!("../guests/plain.toml")),
    ("reserved", include_str!("../guests/reserved.toml")),
];

/// A declared guest: one virtual machine, or several with common memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// What it has that the host may lack.
    pub about: String,
    /// Machine type of QEMU, with options.
    #[serde(default = "q35")]
    pub machine: String,
    /// CPU model of QEMU; by default the most capable.
    pub cpu: Option<String>,
    /// Number of CPUs.
    #[serde(default = "two")]
    pub cpus: u32,
    /// Memory: the value of QEMU's `-m`.
    #[serde(default = "one_gibibyte")]
    pub memory: String,
    /// Kernel parameters.
    #[serde(default)]
    pub parameters: String,
    /// Kernel modules to load.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Size of each backing file. `{name}` in an argument is its path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Arguments of QEMU.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Shell script that prepares devices.
    #[serde(default)]
    pub prepare: String,
    /// Features to enable in it, as by `--allow`.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Options to set in it, as by `--set`.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Its hosts, if it has several. The roles of an experiment run on one each.
    #[serde(default)]
    pub host: Vec<Host>,
}

/// One of several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Host name, after the name of the declaration.
    pub name: String,
    /// Its arguments of QEMU, after the common ones.
    #[serde(default)]
    pub arguments: Vec<String>,
}

fn q35() -> String {
    "q35".into()
}

fn two() -> u32 {
    2
}

fn one_gibibyte() -> String {
    "1G".into()
}

/// A declaration with its name and text.
#[derive(Debug, Clone)]
pub struct NamedDeclaration {
    /// Its name: that of the file.
    pub name: String,
    /// The text of the file.
    pub text: String,
    /// Its content.
    pub declaration: Declaration,
}

/// Parses the embedded declarations.
///
/// # Errors
/// Returns the first error of a file.
pub fn embedded() -> Result<Vec<NamedDeclaration>, DataError> {
    EMBEDDED.iter().map(|(name, text)| parse(name, &format!("{name}.toml"), text)).collect()
}

/// Finds a declaration: an embedded one by its name, or a file whose name ends in `.toml`.
///
/// # Errors
/// Returns one line if the file cannot be read or parsed, or the name is unknown.
pub fn find(name: &str) -> Result<NamedDeclaration, String> {
    if let Some(stem) = name.strip_suffix(".toml") {
        let bytes = machine::file::read_input(Path::new(name), MAX_FILE);
        let bytes = bytes.map_err(|why| format!("{name}: {why}; name a readable file"))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("{name}: not UTF-8; write the declaration in UTF-8"))?;
        let stem = stem.rsplit('/').next().unwrap_or(stem);
        return parse(stem, name, &text).map_err(|error| error.to_string());
    }
    let Some((name, text)) = EMBEDDED.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        return Err(format!("unknown guest '{name}'; use one of {known}, or a file FILE.toml"));
    };
    parse(name, &format!("{name}.toml"), text).map_err(|error| error.to_string())
}

fn parse(name: &str, file: &str, text: &str) -> Result<NamedDeclaration, DataError> {
    let wrong = |what: String| DataError::of_file(file, what);
    // The host name inside, and part of the name of the run's folder.
    if !is_plain_name(name) || name.len() > 40 {
        let what =
            "the name of the file is the guest's host name: use at most 40 letters, digits, '-'";
        return Err(wrong(what.into()));
    }
    let declaration: Declaration = read_toml(file, text)?;
    if !(1..=64).contains(&declaration.cpus) {
        return Err(wrong(format!("cpus: {} is not from 1 to 64", declaration.cpus)));
    }
    for (name, size) in &declaration.files {
        let is_valid = quantity::bytes(size).is_ok_and(|bytes| bytes > 0 && bytes < 1 << 48);
        if !is_plain_name(name) || !is_valid {
            return Err(wrong(format!("files: {name} = '{size}': use a name and e.g. '64 MiB'")));
        }
    }
    for host in &declaration.host {
        if !is_plain_name(&host.name) || host.name.len() > 20 {
            return Err(wrong(format!("host: '{}': use letters, digits and '-'", host.name)));
        }
    }
    Ok(NamedDeclaration { name: name.into(), text: text.into(), declaration })
}

impl NamedDeclaration {
    /// Creates its backing files and returns its hosts with a worker inside each. The files are in memory, or in `folder`
    /// under their names; there, one that exists keeps its content.
    ///
    /// # Errors
    /// Returns one line if a backing file cannot be made.
    pub fn guests(
        &self,
        accelerator: Accelerator,
        folder: Option<&Path>,
    ) -> Result<Guests, String> {
        let files = self.backing_files(folder)?;
        let Declaration { host, .. } = &self.declaration;
        let hosts = match host.as_slice() {
            [] => vec![(self.name.clone(), &[] as &[String])],
            hosts => hosts
                .iter()
                .map(|host| (format!("{}-{}", self.name, host.name), host.arguments.as_slice()))
                .collect(),
        };
        let hosts = hosts.into_iter().map(|(name, arguments)| {
            let guest = self.linux(name.clone(), accelerator, arguments, &files).into_guest();
            GuestHost { name, guest }
        });
        Ok(Guests {
            name: self.name.clone(),
            declaration: self.text.clone(),
            accelerator: accelerator.name().into(),
            hosts: hosts.collect(),
        })
    }

    /// Returns the guest whose first host executes a command of this program instead of a worker.
    ///
    /// # Errors
    /// Returns one line if a backing file cannot be made.
    pub fn with_command(
        &self,
        accelerator: Accelerator,
        folder: Option<&Path>,
        command: &[String],
    ) -> Result<LinuxGuest, String> {
        let files = self.backing_files(folder)?;
        let arguments =
            self.declaration.host.first().map_or(&[] as &[String], |host| &host.arguments);
        let mut guest = self.linux(self.name.clone(), accelerator, arguments, &files);
        guest.command = command.to_vec();
        Ok(guest)
    }

    fn linux(
        &self,
        host: String,
        accelerator: Accelerator,
        arguments: &[String],
        files: &[BackingFile],
    ) -> LinuxGuest {
        let Declaration { machine, cpu, cpus, memory, parameters, modules, prepare, .. } =
            self.declaration.clone();
        LinuxGuest {
            host: host.clone(),
            machine,
            cpu: cpu.filter(|_| accelerator == Accelerator::Tcg),
            cpus,
            memory,
            parameters,
            modules,
            arguments: self.declaration.arguments.iter().chain(arguments).cloned().collect(),
            files: files.to_vec(),
            host_files: true,
            prepare,
            ..LinuxGuest::new(host, Kernel::Debian, accelerator)
        }
    }

    fn backing_files(&self, folder: Option<&Path>) -> Result<Vec<BackingFile>, String> {
        let mut files = Vec::new();
        for (name, size) in &self.declaration.files {
            let bytes = quantity::bytes(size).unwrap_or_default();
            let content = match folder {
                None => usize::try_from(bytes)
                    .map_err(std::io::Error::other)
                    .and_then(|bytes| Memfd::create(name, bytes))
                    .map(Backing::Memory),
                Some(folder) => {
                    let path = folder.join(name);
                    let file = File::options().create(true).truncate(false).write(true).open(&path);
                    file.and_then(|file| file.set_len(bytes)).map(|()| Backing::File(path))
                }
            };
            let content = content.map_err(|why| {
                format!(
                    "backing file '{name}' of {size}: {why}; choose another --guest-files folder"
                )
            })?;
            files.push(BackingFile { name: name.clone(), content: Arc::new(content) });
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_declaration_is_valid_and_found_by_its_name() {
        for one in embedded().unwrap() {
            assert!(!one.declaration.about.is_empty());
            assert_eq!(find(&one.name).unwrap().text, one.text);
            let guests = one.guests(Accelerator::Tcg, None).unwrap();
            assert_eq!(guests.hosts.len(), one.declaration.host.len().max(1));
        }
    }

    #[test]
    fn a_wrong_declaration_is_refused_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        for (text, cause) in [
            ("about = 'one'\ncpus = 0", "cpus: 0"),
            ("about = 'one'\nmodule = []", "unknown field `module`"),
            ("about = 'one'\nfiles = { a = 'much' }", "files: a = 'much'"),
            ("about = 'one'\n[[host]]\nname = '../x'", "host: '../x'"),
            ("cpus = 2", "missing field `about`"),
        ] {
            let path = folder.path().join("mine.toml");
            std::fs::write(&path, text).unwrap();
            let why = find(&path.display().to_string()).unwrap_err();
            assert!(why.contains("mine.toml") && why.contains(cause), "{why}");
        }
        assert!(find("no-such").unwrap_err().contains("ivshmem"));
        assert!(find("/no/such.toml").unwrap_err().contains("/no/such.toml"));
    }

    #[test]
    fn backing_files_are_made_in_a_folder_and_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let ivshmem = find("ivshmem").unwrap();
        let name = ivshmem.declaration.files.keys().next().unwrap();
        std::fs::write(folder.path().join(name), "before").unwrap();
        ivshmem.guests(Accelerator::Tcg, Some(folder.path())).unwrap();
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes.starts_with(b"before") && bytes.len() > 6);
        assert!(ivshmem.guests(Accelerator::Tcg, Some(Path::new("/no/such"))).is_err());
    }
}
