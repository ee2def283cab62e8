//! Guests declared in TOML, in which whole experiments run: the embedded ones, and a user's files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use lab::data::{DataError, MAX_FILE, is_plain_name, read_toml};
use lab::guest::{GuestClock, GuestHost, Guests};
use lab::quantity;
use serde::{Deserialize, Serialize};

use crate::backing_file::{BackingFile, Folder, FolderLock};
use crate::guest::{Accelerator, Kernel, LinuxGuest};
use crate::patched_linux::{self, Patch};
use crate::pool::{self, HostPool, Pool};
use crate::rules::{HOSTS, Rules};

/// Maximum length of the kernel's parameters in bytes.
const MAX_PARAMETERS: usize = 1500;
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
    ("pool", include_str!("../guests/pool.toml")),
    ("reserved", include_str!("../guests/reserved.toml")),
    ("shared-bar", include_str!("../guests/shared-bar.toml")),
    ("slow-clock", include_str!("../guests/slow-clock.toml")),
    ("stamped", include_str!("../guests/stamped.toml")),
];

/// A declared guest: one virtual machine, or several with common memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A pool of memory behind an address filter, for two hosts. The rules are those of the run.
    pub pool: Option<Pool>,
    /// Its hosts, if it has several. The roles of an experiment run on one each.
    #[serde(default)]
    pub host: Vec<Host>,
}

/// A kernel without modules, built from Debian's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltKernel {
    /// Name of a suite's patch, or a file whose name ends in `.patch`.
    pub patch: Option<String>,
    /// Lines of its configuration, e.g. `CONFIG_X86_MSR=y`, in addition to those that every guest needs.
    #[serde(default)]
    pub options: Vec<String>,
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

/// Options of a start.
#[derive(Debug, Clone, Copy)]
pub struct StartOptions<'a> {
    /// Accelerator of the guests.
    pub accelerator: Accelerator,
    /// Folder of their backing files; `None` for files in memory.
    pub folder: Option<&'a Path>,
    /// Options of the run, with the rules of a pool.
    pub options: &'a BTreeMap<String, String>,
    /// The patches of the suites, which a declaration can name.
    pub patches: &'a [Patch],
}

/// Why the guests of a declaration cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A wrong name or file of the user.
    #[error("{0}")]
    Usage(String),
    /// The system refused a backing file.
    #[error("{0}")]
    Failed(String),
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
        let what =
            "the name of the file is the guest's host name: use at most 40 letters, digits, '-'";
        return Err(wrong(what.into()));
    }
    let declaration: Declaration = read_toml(file, text)?;
    if !(1..=64).contains(&declaration.cpus) {
        return Err(wrong(format!("cpus: {} is not from 1 to 64", declaration.cpus)));
    }
    check_executor(&declaration).map_err(wrong)?;
    check_parameters(&declaration.parameters).map_err(wrong)?;
    for (name, size) in &declaration.files {
        let is_valid = quantity::bytes(size).is_ok_and(|bytes| bytes > 0 && bytes < 1 << 48);
        if !is_plain_name(name) || !is_valid {
            return Err(wrong(format!("files: {name} = '{size}': use a name and e.g. '64 MiB'")));
        }
    }
    if declaration.pool.is_some() && declaration.host.len() != HOSTS {
        return Err(wrong(format!(
            "pool: its rules are for {HOSTS} hosts; declare as many [[host]]"
        )));
    }
    if let Some(pool) = &declaration.pool {
        pool.start().map_err(wrong)?;
    }
    check_names(&declaration).map_err(wrong)?;
    for host in &declaration.host {
        if !is_plain_name(&host.name) || host.name.len() > 20 {
            return Err(wrong(format!(
                "host: '{}': use at most 20 letters, digits and '-'",
                host.name
            )));
        }
    }
    Ok(NamedDeclaration { name: name.into(), text: text.into(), declaration })
}

/// Checks that no option of QEMU changes what executes the guest or its CPU: the journal records them by `--accelerator` and
/// `cpu`.
fn check_executor(declaration: &Declaration) -> Result<(), String> {
    let sets_accelerator = |machine: &str| machine.split(',').any(|it| it.starts_with("accel="));
    let fix = "remove it and use --accelerator";
    if sets_accelerator(&declaration.machine) {
        return Err(format!("machine: 'accel=' would change what executes the guest; {fix}"));
    }
    let of_hosts = declaration.host.iter().map(|host| &host.arguments);
    for arguments in [&declaration.arguments].into_iter().chain(of_hosts) {
        for (at, argument) in arguments.iter().enumerate() {
            // QEMU takes one dash or two.
            let Some(option) = argument.strip_prefix('-') else { continue };
            let fix = match option.strip_prefix('-').unwrap_or(option) {
                "accel" | "enable-kvm" => fix,
                "machine" | "M" if arguments.get(at + 1).is_some_and(|it| sets_accelerator(it)) => {
                    fix
                }
                "cpu" => "remove it and set 'cpu'",
                "readconfig" => "write its options as arguments",
                _ => continue,
            };
            return Err(format!(
                "arguments: '{argument}' would change what executes the guest; {fix}"
            ));
        }
    }
    Ok(())
}

/// Checks the names that one part of a declaration gives and another uses.
fn check_names(declaration: &Declaration) -> Result<(), String> {
    let mut hosts = BTreeSet::new();
    if let Some(host) = declaration.host.iter().find(|host| !hosts.insert(&host.name)) {
        return Err(format!("host: two hosts are named '{}'; rename one", host.name));
    }
    let of_pool = declaration.files.keys().find(|name| pool::has_file(name));
    if let Some(name) = of_pool.filter(|_| declaration.pool.is_some()) {
        return Err(format!("files: '{name}' is a file of the pool; rename it"));
    }
    let of_hosts = declaration.host.iter().flat_map(|host| &host.arguments);
    for argument in declaration.arguments.iter().chain(of_hosts) {
        let is_unknown = |name: &&str| !declaration.files.contains_key(*name);
        if let Some(name) = placeholders(argument).find(is_unknown) {
            return Err(format!("arguments: no file '{name}' in files, but '{argument}'"));
        }
    }
    let Some(kernel) = &declaration.kernel else { return Ok(()) };
    if !declaration.modules.is_empty() {
        return Err("modules: a built kernel has none; set options of the kernel".into());
    }
    let is_option = |line: &String| {
        let named = line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('='));
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        named.is_some_and(|(name, value)| {
            !name.is_empty() && name.chars().all(is_name) && !value.contains(char::is_control)
        })
    };
    match kernel.options.iter().find(|line| !is_option(line)) {
        Some(line) => Err(format!("kernel: options: '{line}' is not of the form CONFIG_NAME=y")),
        None => Ok(()),
    }
}

impl Declaration {
    /// Returns the clock of its guests; only an emulator can plant one.
    fn clock(&self, accelerator: Accelerator) -> GuestClock {
        match self.planted_clock && accelerator == Accelerator::Tcg {
            true => GuestClock::Planted,
            false => accelerator.clock(),
        }
    }
}

/// Checks that Linux takes the parameters of its kernel as such.
fn check_parameters(parameters: &str) -> Result<(), String> {
    if parameters.contains(char::is_control) {
        return Err("parameters: a control character; write one line".into());
    }
    if parameters.split_whitespace().any(|word| word == "--") {
        return Err("parameters: '--' would start the arguments of init; remove it".into());
    }
    // Linux cuts a longer line, whose end names init. Some of its 2048 bytes are those of the console.
    if parameters.len() > MAX_PARAMETERS {
        return Err(format!("parameters: over {MAX_PARAMETERS} B; shorten them"));
    }
    Ok(())
}

/// Returns the names in braces that an argument contains. Other text in braces, e.g. JSON, is no placeholder.
fn placeholders(argument: &str) -> impl Iterator<Item = &str> {
    let parts = argument.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    parts.filter(|name| is_plain_name(name))
}

impl NamedDeclaration {
    /// Creates its backing files and returns its hosts with a worker inside each. The files are in memory, or in
    /// `how.folder` under their names; there, one that exists keeps its content.
    ///
    /// # Errors
    /// Returns one line if a backing file cannot be made, or the rules of its pool are wrong.
    pub fn guests(&self, how: &StartOptions) -> Result<Guests, GuestError> {
        let linux = self.linux_hosts(how, false)?;
        let mut declaration = self.text.clone();
        if self.declaration.kernel.is_some() {
            // A run goes on with this kernel only.
            let recipes = linux.iter().take(1).flat_map(LinuxGuest::recipes);
            let names = recipes.map(|recipe| format!("\n# kernel {}\n", recipe.hash()));
            declaration.extend(names);
        }
        let hosts = linux
            .into_iter()
            .map(|linux| GuestHost { name: linux.host.clone(), guest: linux.into_guest() });
        Ok(Guests {
            name: self.name.clone(),
            declaration,
            accelerator: how.accelerator.name().into(),
            clock: self.declaration.clock(how.accelerator),
            hosts: hosts.collect(),
        })
    }

    /// Returns the guest that executes a command of this program instead of a worker: the named host, or the first.
    ///
    /// # Errors
    /// Returns one line if a backing file cannot be made, the rules of its pool are wrong, there is no such host, or a host
    /// is named without a folder: the others could not share its memory.
    pub fn with_command(
        &self,
        how: &StartOptions,
        host: Option<&str>,
        command: &[String],
    ) -> Result<LinuxGuest, GuestError> {
        let known: Vec<_> = self.declaration.host.iter().map(|host| host.name.as_str()).collect();
        let index = host.map_or(Some(0), |name| known.iter().position(|known| *known == name));
        let index = index.ok_or_else(|| {
            GuestError::Usage(match known.as_slice() {
                [] => format!("guest '{}' has one host without a name; omit --host", self.name),
                known => format!(
                    "guest '{}' has no such host; use one of {}",
                    self.name,
                    known.join(", ")
                ),
            })
        })?;
        if let (Some(host), None) = (host, how.folder) {
            let why = "the hosts share memory only in a folder; add --guest-files DIR";
            return Err(GuestError::Usage(format!("--host {host}: {why}")));
        }
        let mut guest = self.linux_hosts(how, host.is_some())?.swap_remove(index);
        guest.command = command.to_vec();
        guest.is_watched = true;
        Ok(guest)
    }

    /// Returns its hosts; without any declared, the one that has the declaration's name.
    /// Other hosts of it may use its folder at the same time if `is_shared`.
    fn linux_hosts(
        &self,
        how: &StartOptions,
        is_shared: bool,
    ) -> Result<Vec<LinuxGuest>, GuestError> {
        self.check_host_names(&machine::environment::hostname())?;
        let kernel = self.kernel(how.patches).map_err(GuestError::Usage)?;
        let lock = how.folder.map(|folder| FolderLock::take(folder, is_shared)).transpose();
        let lock = lock.map_err(GuestError::Failed)?.map(Arc::new);
        let folder = how.folder.zip(lock.as_ref()).map(|(path, lock)| Folder { path, lock });
        let files = self.backing_files(folder).map_err(GuestError::Failed)?;
        let mut pools: Vec<HostPool> = match &self.declaration.pool {
            None => Vec::new(),
            Some(pool) => {
                let rules = Rules::of_run(how.options)
                    .map_err(|error| GuestError::Usage(error.to_string()))?;
                pool.hosts(&rules, folder).map_err(GuestError::Failed)?.into()
            }
        };
        let named = |host: &Host| (format!("{}-{}", self.name, host.name), host.arguments.clone());
        let hosts = match self.declaration.host.as_slice() {
            [] => vec![(self.name.clone(), Vec::new())],
            hosts => hosts.iter().map(named).collect(),
        };
        pools.resize(hosts.len(), HostPool::default());
        let linux = |((name, arguments), pool): ((String, Vec<String>), HostPool)| {
            let arguments = [arguments, pool.arguments].concat();
            let files = [files.clone(), pool.files].concat();
            let linux = self.linux(name, how.accelerator, arguments, files);
            LinuxGuest { forwarder: pool.forwarder, kernel: kernel.clone(), ..linux }
        };
        Ok(hosts.into_iter().zip(pools).map(linux).collect())
    }

    /// Checks that no host has the host name of this machine, whose results would have the same names.
    fn check_host_names(&self, machine: &str) -> Result<(), GuestError> {
        let hosts = self.declaration.host.iter().map(|host| format!("{}-{}", self.name, host.name));
        match hosts.chain([self.name.clone()]).find(|name| name == machine) {
            None => Ok(()),
            Some(name) => Err(GuestError::Usage(format!(
                "guest '{}': '{name}' is the host name of this machine, whose results it would join; copy its \
                 declaration to a file of another name",
                self.name
            ))),
        }
    }

    fn linux(
        &self,
        host: String,
        accelerator: Accelerator,
        arguments: Vec<String>,
        files: Vec<BackingFile>,
    ) -> LinuxGuest {
        let declaration = self.declaration.clone();
        let Declaration { machine, cpu, cpus, memory, parameters, modules, prepare, .. } =
            declaration;
        LinuxGuest {
            host: host.clone(),
            machine,
            cpu: cpu.filter(|_| accelerator == Accelerator::Tcg),
            cpus,
            memory,
            parameters,
            modules,
            clock: self.declaration.clock(accelerator),
            arguments: [self.declaration.arguments.clone(), arguments].concat(),
            files,
            host_files: true,
            prepare,
            ..LinuxGuest::new(host, Kernel::Debian, accelerator)
        }
    }

    /// Returns its kernel.
    fn kernel(&self, patches: &[Patch]) -> Result<Kernel, String> {
        let Some(BuiltKernel { patch, options }) = &self.declaration.kernel else {
            return Ok(Kernel::Debian);
        };
        let options = options.join("\n");
        let (text, options) = match patch.as_deref() {
            None => (String::new(), options),
            Some(file) if file.ends_with(".patch") => {
                let text = machine::file::read_input_text(Path::new(file), MAX_FILE);
                (text.map_err(|why| format!("{file}: {why}; name a readable patch"))?, options)
            }
            Some(name) => match patches.iter().find(|patch| patch.name == name) {
                Some(patch) => (patch.text.into(), [patch.options, &options].join("\n")),
                None => {
                    let known: Vec<_> = patches.iter().map(|patch| patch.name).collect();
                    return Err(format!(
                        "guest '{}': unknown patch '{name}'; use one of {}, or a file FILE.patch",
                        self.name,
                        known.join(", ")
                    ));
                }
            },
        };
        Ok(Kernel::Built(patched_linux::recipe_with_host_files(&text, &options)))
    }

    fn backing_files(&self, folder: Option<Folder>) -> Result<Vec<BackingFile>, String> {
        let files = self.declaration.files.iter();
        let created = files.map(|(name, size)| {
            BackingFile::create(name, quantity::bytes(size).unwrap_or_default(), folder)
        });
        created.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how<'a>(
        folder: Option<&'a Path>,
        options: &'a BTreeMap<String, String>,
    ) -> StartOptions<'a> {
        let patches = &[Patch { name: "crossing-stamps", text: "+a", options: "CONFIG_A=y" }];
        StartOptions { accelerator: Accelerator::Tcg, folder, options, patches }
    }

    fn recipe(guest: &NamedDeclaration) -> Result<lab::artefact::Recipe, String> {
        let guest = guest.with_command(&how(None, &BTreeMap::new()), None, &[]);
        Ok(guest.map_err(|why| why.to_string())?.recipes().remove(0))
    }

    #[test]
    fn a_kernel_is_built_with_a_patch_of_a_suite_or_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let declared = |kernel: &str| {
            let text = format!("about = 'one'\nkernel = {kernel}");
            parse("mine", "mine.toml", &text).map_err(|error| error.to_string())
        };
        let inputs = |kernel: &str| -> Vec<String> {
            let inputs = recipe(&declared(kernel).unwrap()).unwrap().inputs;
            inputs.into_iter().map(|input| String::from_utf8(input).unwrap()).collect()
        };
        let suite = inputs("{ patch = 'crossing-stamps', options = ['CONFIG_B=y'] }");
        assert_eq!(suite[0], "+a");
        for option in ["CONFIG_A=y", "CONFIG_B=y", "CONFIG_9P_FS=y", "CONFIG_OVERLAY_FS=y"] {
            assert!(suite[1].lines().any(|line| line == option), "{option}");
        }
        let patch = folder.path().join("mine.patch");
        std::fs::write(&patch, "+b").unwrap();
        let user = inputs(&format!("{{ patch = '{}' }}", patch.display()));
        assert_eq!((user[0].as_str(), user[1].contains("CONFIG_A=y")), ("+b", false));
        assert_eq!(inputs("{}")[0], "");
        let unknown = recipe(&declared("{ patch = 'x' }").unwrap()).unwrap_err();
        assert!(unknown.contains("unknown patch 'x'; use one of crossing-stamps"), "{unknown}");
        let absent = recipe(&declared("{ patch = '/no/such.patch' }").unwrap()).unwrap_err();
        assert!(absent.starts_with("/no/such.patch: "), "{absent}");
        for (kernel, cause) in [
            ("{ options = ['X=y'] }", "'X=y' is not of the form"),
            ("{ options = [\"CONFIG_X=y\\nrm\"] }", "is not of the form"),
            ("{ patches = 'x' }", "unknown field `patches`"),
            ("{}\nmodules = ['kvm']", "a built kernel has none"),
        ] {
            let why = declared(kernel).unwrap_err();
            assert!(why.contains(cause), "{why}");
        }
    }

    #[test]
    fn a_pool_has_the_rules_of_the_run() {
        let pool = find("pool").unwrap();
        let rules = "[[range]]\nname = 'a'\nlength = '4 KiB'\nread = [1]\nwrite = [0]\n";
        let set = |text: &str| BTreeMap::from([(crate::rules::OPTION.to_owned(), text.to_owned())]);
        let options = set(rules);
        let folder = tempfile::tempdir().unwrap();
        let how_in = how(Some(folder.path()), &options);
        let of_host = |host| pool.with_command(&how_in, Some(host), &[]).unwrap();
        assert!(of_host("writer").forwarder.is_some());
        assert_eq!(of_host("reader").files[0].name, "range-0");
        assert!(of_host("reader").forwarder.is_none());
        let options = set("range = 1");
        let why = pool.guests(&how(None, &options)).map(drop).unwrap_err();
        assert!(matches!(&why, GuestError::Usage(why) if why.starts_with("--set rules:")), "{why}");
        let none = BTreeMap::new();
        for (guest, host, expected) in [
            ("pool", "third", "use one of writer, reader"),
            ("plain", "third", "omit --host"),
            ("escape", "writer", "add --guest-files DIR"),
        ] {
            let guest = find(guest).unwrap();
            let why = guest.with_command(&how(None, &none), Some(host), &[]).unwrap_err();
            assert!(matches!(&why, GuestError::Usage(why) if why.contains(expected)), "{why}");
        }
    }

    #[test]
    fn every_embedded_declaration_is_valid_and_found_by_its_name() {
        for one in embedded().unwrap() {
            assert!(!one.declaration.about.is_empty());
            assert_eq!(find(&one.name).unwrap().text, one.text);
            let guests = one.guests(&how(None, &BTreeMap::new())).unwrap();
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
            ("about = 'one'\npool = { address = '0x1000' }", "pool: its rules are for 2 hosts"),
            (
                "about = 'one'\npool = { address = 'x' }\nhost = [{ name = 'a' }, { name = 'b' }]",
                "pool: 'x' is not an address",
            ),
            (
                "about = 'one'\nhost = [{ name = 'a' }, { name = 'a' }]",
                "host: two hosts are named 'a'",
            ),
            (
                "about = 'one'\nfiles = { range-0 = '1 MiB' }\npool = { address = '0x1000' }\n\
                 host = [{ name = 'a' }, { name = 'b' }]",
                "files: 'range-0' is a file of the pool",
            ),
            ("about = 'one'\nparameters = \"a\\nb\"", "parameters: a control character"),
            ("about = 'one'\nparameters = 'a -- b'", "parameters: '--' would start"),
            (
                "about = 'one'\nfiles = { bar = '1 MiB' }\narguments = ['mem-path={baar}']",
                "arguments: no file 'baar' in files, but 'mem-path={baar}'",
            ),
            (
                "about = 'one'\n[[host]]\nname = 'a'\narguments = ['x={y}']",
                "arguments: no file 'y'",
            ),
            ("cpus = 2", "missing field `about`"),
            (
                "about = 'one'\narguments = ['-accel', 'tcg', '-cpu', 'max']",
                "arguments: '-accel' would change what executes the guest; remove it and use --accelerator",
            ),
            ("about = 'one'\narguments = ['--accel', 'tcg']", "'--accel'"),
            ("about = 'one'\narguments = ['-enable-kvm']", "'-enable-kvm'"),
            ("about = 'one'\narguments = ['-cpu', 'max']", "'-cpu' would change"),
            ("about = 'one'\narguments = ['-M', 'q35,accel=tcg']", "'-M'"),
            ("about = 'one'\narguments = ['-machine', 'accel=kvm:tcg']", "'-machine'"),
            ("about = 'one'\narguments = ['-readconfig', 'file']", "'-readconfig'"),
            ("about = 'one'\n[[host]]\nname = 'a'\narguments = ['-accel', 'tcg']", "'-accel'"),
            ("about = 'one'\nmachine = 'q35,accel=tcg'", "machine: 'accel='"),
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
    fn a_guest_with_the_host_name_of_this_machine_is_refused() {
        let escape = find("escape").unwrap();
        for name in ["escape", "escape-writer"] {
            let why = escape.check_host_names(name).unwrap_err().to_string();
            assert!(why.contains(&format!("'{name}' is the host name of this machine")), "{why}");
        }
        escape.check_host_names("another").unwrap();
        let name = machine::environment::hostname();
        let here = NamedDeclaration { name, ..find("plain").unwrap() };
        let none = BTreeMap::new();
        let how = how(None, &none);
        assert!(matches!(here.guests(&how), Err(GuestError::Usage(_))));
        assert!(matches!(here.with_command(&how, None, &[]), Err(GuestError::Usage(_))));
    }

    #[test]
    fn backing_files_are_made_in_a_folder_and_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let ivshmem = find("ivshmem").unwrap();
        let name = ivshmem.declaration.files.keys().next().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, "before").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(64 << 20).unwrap();
        let none = BTreeMap::new();
        ivshmem.guests(&how(Some(folder.path()), &none)).unwrap();
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes.starts_with(b"before") && bytes.len() == 64 << 20);
        assert!(ivshmem.guests(&how(Some(Path::new("/no/such")), &none)).is_err());
    }
}
