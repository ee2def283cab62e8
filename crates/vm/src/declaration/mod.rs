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
    ("nested-clock", include_str!("../../guests/nested-clock.toml")),
    ("numa", include_str!("../../guests/numa.toml")),
    ("nvdimm", include_str!("../../guests/nvdimm.toml")),
    ("plain", include_str!("../../guests/plain.toml")),
    ("pool", include_str!("../../guests/pool.toml")),
    ("reserved", include_str!("../../guests/reserved.toml")),
    ("shared-bar", include_str!("../../guests/shared-bar.toml")),
    ("siblings", include_str!("../../guests/siblings.toml")),
    ("slow-clock", include_str!("../../guests/slow-clock.toml")),
    ("smp", include_str!("../../guests/smp.toml")),
    ("stamped", include_str!("../../guests/stamped.toml")),
    ("stamped-clock", include_str!("../../guests/stamped-clock.toml")),
];

/// A declared guest: one virtual machine, or several with common memory, its hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Features of the guest, in one line.
    pub about: String,
    /// Machine type of QEMU, with options.
    #[serde(default = "q35")]
    pub machine: String,
    /// CPU model under TCG; by default the most capable. Under KVM the CPU is that of this machine.
    pub cpu: Option<String>,
    /// Number of CPUs, 1 to 64.
    #[serde(default = "two")]
    pub cpus: u32,
    /// Number of CPUs that are hardware threads of one core, 1 or 2.
    #[serde(default = "one")]
    pub threads: u32,
    /// Memory: the value of QEMU's `-m`.
    #[serde(default = "one_gibibyte")]
    pub memory: String,
    /// Kernel parameters, in addition to those of the console.
    #[serde(default)]
    pub parameters: String,
    /// Kernel modules to load; of names with `|` between them, the first that the machine supports.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Kernel to build; by default the guest boots Debian's binary.
    pub kernel: Option<BuiltKernel>,
    /// Whether times are measured although the guest is emulated. They are not real: for tests of the clock only.
    #[serde(default)]
    pub planted_clock: bool,
    /// Size of each backing file, e.g. `64 MiB`. In `arguments`, `{name}` is its path, and `{name.size}` its length in bytes.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Arguments of QEMU, e.g. devices.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Shell script (`sh -e`) that prepares devices before the command starts. `devdax REGION NAMESPACE` makes a DAX device.
    #[serde(default)]
    pub prepare: String,
    /// Features to enable in the guest, as by `--allow`.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Options to set in the guest, as by `--set`.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// A pool of memory behind an address filter, for two hosts. The rules are those of the run.
    pub pool: Option<Pool>,
    /// The hosts, if there are several. The roles of an experiment run on one each.
    #[serde(default)]
    pub host: Vec<Host>,
}

/// A kernel without modules, built from Debian's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuiltKernel {
    /// Name of a suite's patch, or a file whose name ends in `.patch`, relative to the folder of the declaration.
    pub patch: Option<String>,
    /// Lines of the configuration, e.g. `CONFIG_X86_MSR=y`, in addition to those that every guest needs.
    #[serde(default)]
    pub options: Vec<String>,
}

/// One of several hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name of the host; its host name is that of the declaration, `-` and this.
    pub name: String,
    /// Arguments of QEMU for this host, after the common ones.
    #[serde(default)]
    pub arguments: Vec<String>,
}

fn q35() -> String {
    "q35".into()
}

fn one() -> u32 {
    1
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
    /// Name: that of the file, without its folder and `.toml`.
    pub name: String,
    /// Word by which the command line names it: the name, or the path of a user's file.
    pub argument: String,
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
    EMBEDDED.iter().map(|(name, text)| parse(name, name, text)).collect()
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
    parse(name, name, text).map_err(|error| error.to_string())
}

fn parse(name: &str, argument: &str, text: &str) -> Result<NamedDeclaration, DataError> {
    let file = &match argument.ends_with(".toml") {
        true => argument.to_owned(),
        false => format!("{argument}.toml"),
    };
    let wrong = |what: String| DataError::of_file(file, what);
    // The host name inside, and part of the name of the run's folder.
    if !is_plain_name(name) || name.len() > 40 {
        let what = "the name of the file is the guest's host name: use at most 40 letters, digits, '-', '_' and '.'";
        return Err(wrong(what.into()));
    }
    let declaration: Declaration = read_toml(file, text)?;
    check::all(&declaration).map_err(wrong)?;
    let (name, argument, text) = (name.into(), argument.into(), text.into());
    Ok(NamedDeclaration { name, argument, text, declaration })
}
