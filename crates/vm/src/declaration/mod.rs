//! Guests declared in TOML, in which whole experiments run: the embedded ones, and a user's files.

use std::collections::BTreeMap;
use std::path::Path;

use lab::data::{DataError, MAX_FILE, is_plain_name, read_toml};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pool::Pool;

mod check;
mod hosts;

pub use hosts::{GuestError, StartOptions};

/// The embedded declarations, by name.
const EMBEDDED: &[(&str, &str)] = &[
    ("cxl", include_str!("../../guests/cxl.toml")),
    ("escape", include_str!("../../guests/escape.toml")),
    ("ivshmem", include_str!("../../guests/ivshmem.toml")),
    ("mpx", include_str!("../../guests/mpx.toml")),
    ("nested", include_str!("../../guests/nested.toml")),
    ("numa", include_str!("../../guests/numa.toml")),
    ("nvdimm", include_str!("../../guests/nvdimm.toml")),
    ("plain", include_str!("../../guests/plain.toml")),
    ("pool", include_str!("../../guests/pool.toml")),
    ("reserved", include_str!("../../guests/reserved.toml")),
    ("shared-bar", include_str!("../../guests/shared-bar.toml")),
    ("slow-clock", include_str!("../../guests/slow-clock.toml")),
    ("smp", include_str!("../../guests/smp.toml")),
    ("stamped", include_str!("../../guests/stamped.toml")),
];

/// A declared guest: one virtual machine, or several with common memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Features that the host may lack.
    pub about: String,
    /// Machine type of QEMU, with options.
    #[serde(default = "q35")]
    pub machine: String,
    /// CPU model under TCG; by default the most capable. Under KVM the CPU is the host's.
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
    /// Kernel modules to load; of names with `|` between them, the first that the machine supports.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Its kernel, if it is not Debian's binary.
    pub kernel: Option<BuiltKernel>,
    /// Whether times are measured although the guest is emulated. They are not real: for tests of the clock only.
    #[serde(default)]
    pub planted_clock: bool,
    /// Size of each backing file. `{name}` in an argument is its path, and `{name.size}` its length in bytes.
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
    /// A pool of memory behind an address filter, for two hosts. The rules are those of the run.
    pub pool: Option<Pool>,
    /// Its hosts, if it has several. The roles of an experiment run on one each.
    #[serde(default)]
    pub host: Vec<Host>,
}

/// A kernel without modules, built from Debian's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuiltKernel {
    /// Name of a suite's patch, or a file whose name ends in `.patch`.
    pub patch: Option<String>,
    /// Lines of its configuration, e.g. `CONFIG_X86_MSR=y`, in addition to those that every guest needs.
    #[serde(default)]
    pub options: Vec<String>,
}

/// One of several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        let text = machine::file::read_input_text(Path::new(name), MAX_FILE);
        let text = text.map_err(|why| format!("{name}: {why}; name a readable text file"))?;
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
        let what = "the name of the file is the guest's host name: use at most 40 letters, digits, '-', '_' and '.'";
        return Err(wrong(what.into()));
    }
    let declaration: Declaration = read_toml(file, text)?;
    check::all(&declaration).map_err(wrong)?;
    Ok(NamedDeclaration { name: name.into(), text: text.into(), declaration })
}
