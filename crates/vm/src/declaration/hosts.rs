//! The hosts of a declared guest, ready to start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lab::data::MAX_FILE;
use lab::guest::{GuestHost, Guests};
use lab::quantity;
use machine::cpu::CpuClock;

use super::{BuiltKernel, Declaration, Host, NamedDeclaration};
use crate::backing_file::{BackingFile, Folder, FolderLock};
use crate::guest::{Accelerator, Kernel, LinuxGuest};
use crate::patched_linux::{self, Patch};
use crate::pool::HostPool;
use crate::rules::Rules;

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

/// Error of starting the guests of a declaration.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A wrong name or file of the user.
    #[error("{0}")]
    Usage(String),
    /// The system refused a backing file.
    #[error("{0}")]
    Failed(String),
}

impl Declaration {
    /// Returns the clock of the guests; only an emulator can plant one.
    fn clock(&self, accelerator: Accelerator) -> CpuClock {
        match self.planted_clock && accelerator == Accelerator::Tcg {
            true => CpuClock::Planted,
            false => accelerator.clock(),
        }
    }
}

impl NamedDeclaration {
    /// Creates the backing files and returns the hosts of the guest, with a worker inside each. The files are in memory, or in
    /// `how.folder` under their names; there, one that exists keeps its content.
    ///
    /// # Errors
    /// Returns one line if another guest uses the folder, a backing file cannot be made, the rules of the pool or the patch
    /// are wrong, the kernel runs fewer CPUs, or a host has the host name of this machine.
    pub fn guests(&self, how: &StartOptions) -> Result<Guests, GuestError> {
        let linux = self.linux_hosts(how, None, false)?;
        let mut declaration = self.text.clone();
        if self.declaration.kernel.is_some() {
            // A run continues with this kernel only.
            let recipes = linux.iter().take(1).flat_map(LinuxGuest::recipes);
            let names = recipes.map(|recipe| format!("\n# kernel {}\n", recipe.hash()));
            declaration.extend(names);
        }
        let hosts = linux
            .into_iter()
            .map(|linux| GuestHost { name: linux.hostname.clone(), guest: linux.into_guest() });
        Ok(Guests {
            name: self.name.clone(),
            declaration,
            accelerator: how.accelerator.name().into(),
            clock: self.declaration.clock(how.accelerator),
            hosts: hosts.collect(),
            roles_remedy: roles_remedy(),
            console: self.console_command(how.accelerator),
        })
    }

    /// Returns the command line that shows the console of a guest.
    fn console_command(&self, accelerator: Accelerator) -> String {
        let accelerator = match accelerator == Accelerator::default() {
            true => String::new(),
            false => format!(" --accelerator {}", accelerator.name()),
        };
        format!("tollgate guest {}{accelerator} -- list", self.argument)
    }

    /// Returns the guest that executes a command of this program instead of a worker: the named host, or the first.
    ///
    /// # Errors
    /// Returns the errors of [`guests`](Self::guests), and one line if there is no such host, or a host is named without a
    /// folder: the others could not share its memory.
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
                    "guest '{}' has no host '{}'; use one of {}",
                    self.name,
                    host.unwrap_or_default(),
                    known.join(", ")
                ),
            })
        })?;
        if let (Some(host), None) = (host, how.folder) {
            let why = "the hosts share memory only in a folder; add --guest-files DIR";
            return Err(GuestError::Usage(format!("--host {host}: {why}")));
        }
        let mut guests = self.linux_hosts(how, Some(index), host.is_some())?;
        // There is one, because the index is one of a host.
        let mut guest = guests.swap_remove(0);
        guest.command = command.to_vec();
        guest.is_watched = true;
        Ok(guest)
    }

    /// Returns the hosts, or only that of an index; without any declared, the one that has the declaration's name. Other hosts
    /// of the guest may use its folder at the same time if `is_shared`.
    fn linux_hosts(
        &self,
        how: &StartOptions,
        only: Option<usize>,
        is_shared: bool,
    ) -> Result<Vec<LinuxGuest>, GuestError> {
        self.check_host_names(&machine::environment::hostname())?;
        let kernel = self.kernel(how.patches).map_err(GuestError::Usage)?;
        let lock = how.folder.map(|folder| FolderLock::take(folder, is_shared)).transpose();
        let lock = lock.map_err(GuestError::Failed)?.map(Arc::new);
        let folder = how.folder.zip(lock.as_ref()).map(|(path, lock)| Folder { path, lock });
        let files = self.backing_files(folder).map_err(GuestError::Failed)?;
        let hidden = how.folder.map(absolute).transpose()?;
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
        pools.resize_with(hosts.len(), HostPool::default);
        let linux = |((name, arguments), mut pool): ((String, Vec<String>), HostPool)| {
            // Hosts that this process does not start have forwarders in other processes.
            let forwarder = pool.start_forwarder();
            let arguments = [arguments, pool.arguments].concat();
            let files = [files.clone(), pool.files].concat();
            let linux = self.linux(name, how.accelerator, arguments, files);
            LinuxGuest { forwarder, hidden: hidden.clone(), kernel: kernel.clone(), ..linux }
        };
        let all = hosts.into_iter().zip(pools).enumerate();
        let kept = all.filter(|(index, _)| only.is_none_or(|only| only == *index));
        Ok(kept.map(|(_, host)| linux(host)).collect())
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
        hostname: String,
        accelerator: Accelerator,
        arguments: Vec<String>,
        files: Vec<BackingFile>,
    ) -> LinuxGuest {
        let declaration = self.declaration.clone();
        let Declaration {
            machine, cpu, cpus, threads, memory, parameters, modules, prepare, ..
        } = declaration;
        LinuxGuest {
            hostname: hostname.clone(),
            machine,
            cpu: cpu.filter(|_| accelerator == Accelerator::Tcg),
            cpus,
            threads,
            memory,
            parameters,
            modules,
            clock: self.declaration.clock(accelerator),
            kvm_remedy: "use --accelerator tcg",
            arguments: [self.declaration.arguments.clone(), arguments].concat(),
            files,
            host_files: true,
            prepare,
            ..LinuxGuest::new(hostname, Kernel::Debian, accelerator)
        }
    }

    /// Returns the kernel of the hosts.
    ///
    /// # Errors
    /// Returns one line if there is no such patch, or the kernel runs fewer CPUs than declared.
    fn kernel(&self, patches: &[Patch]) -> Result<Kernel, String> {
        let Some(BuiltKernel { patch, options }) = &self.declaration.kernel else {
            return Ok(Kernel::Debian);
        };
        let options = options.join("\n");
        let (text, options) = match patch.as_deref() {
            None => (String::new(), options),
            Some(file) if file.ends_with(".patch") => {
                // Relative to the declaration, whose other users start in other folders.
                let folder = Path::new(&self.argument).parent().unwrap_or(Path::new(""));
                let path = folder.join(file);
                let text = machine::file::read_input_text(&path, MAX_FILE);
                let unread = |why| format!("{}: {why}; name a readable patch", path.display());
                (text.map_err(unread)?, options)
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
        let (cpus, max) = (self.declaration.cpus, patched_linux::max_cpus(&options));
        if cpus > max {
            return Err(format!(
                "guest '{}': cpus: its Linux runs {max} CPUs, not {cpus}; add 'CONFIG_NR_CPUS={cpus}' to the options of its \
                 kernel",
                self.name
            ));
        }
        Ok(Kernel::Built(patched_linux::recipe_with_host_files(&text, &options)))
    }

    fn backing_files(&self, folder: Option<Folder>) -> Result<Vec<BackingFile>, String> {
        let files = self.declaration.files.iter();
        let created = files.map(|(name, size)| {
            let bytes = quantity::bytes(size).map_err(|why| format!("files: {name}: {why}"))?;
            BackingFile::create(name, bytes, folder)
        });
        created.collect()
    }
}

/// Returns the absolute path of a folder of backing files, without symbolic links.
fn absolute(folder: &Path) -> Result<String, GuestError> {
    let failed = |why: &dyn std::fmt::Display| {
        GuestError::Failed(format!("--guest-files {}: {why}", folder.display()))
    };
    let path = folder.canonicalize().map_err(|why| failed(&why))?;
    path.into_os_string().into_string().map_err(|_| failed(&"not UTF-8; choose another folder"))
}

/// Returns the remedy for an experiment that has more roles than a guest has hosts.
fn roles_remedy() -> String {
    let guests = super::embedded().unwrap_or_default().into_iter();
    let several = guests.filter(|guest| guest.declaration.host.len() > 1).map(|guest| guest.name);
    format!("use --guest with one of {}", several.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{embedded, find, parse};
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
        // A relative path is that in the declaration's folder, not in the working directory.
        let path = folder.path().join("own.toml").display().to_string();
        let relative = "about = 'one'\nkernel = { patch = 'mine.patch' }";
        let declared_there = parse("own", &path, relative).unwrap();
        assert_eq!(recipe(&declared_there).unwrap().inputs[0], b"+b");
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
    fn a_built_kernel_runs_the_declared_cpus() {
        let declared = |cpus: u32, options: &str| {
            let text =
                format!("about = 'one'\ncpus = {cpus}\nkernel = {{ options = [{options}] }}");
            recipe(&parse("mine", "mine.toml", &text).unwrap()).map(drop)
        };
        declared(8, "").unwrap();
        let why = declared(16, "").unwrap_err();
        assert!(why.contains("8 CPUs, not 16; add 'CONFIG_NR_CPUS=16'"), "{why}");
        declared(16, "'CONFIG_NR_CPUS=16'").unwrap();
    }

    #[test]
    fn the_console_is_shown_by_the_word_that_names_the_guest() {
        let command = |argument: &str, accelerator| {
            let guest = NamedDeclaration { argument: argument.into(), ..find("plain").unwrap() };
            guest.console_command(accelerator)
        };
        assert_eq!(command("plain", Accelerator::Tcg), "tollgate guest plain -- list");
        let by_kvm = "tollgate guest ./mine.toml --accelerator kvm -- list";
        assert_eq!(command("./mine.toml", Accelerator::Kvm), by_kvm);
    }

    #[test]
    fn guests_with_several_hosts_are_named() {
        assert_eq!(roles_remedy(), "use --guest with one of escape, pool, shared-bar");
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
            ("pool", "third", "guest 'pool' has no host 'third'; use one of writer, reader"),
            ("plain", "third", "omit --host"),
            ("escape", "writer", "add --guest-files DIR"),
        ] {
            let guest = find(guest).unwrap();
            let why = guest.with_command(&how(None, &none), Some(host), &[]).unwrap_err();
            assert!(matches!(&why, GuestError::Usage(why) if why.contains(expected)), "{why}");
        }
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

    #[test]
    fn every_embedded_declaration_is_valid_and_found_by_its_name() {
        for one in embedded().unwrap() {
            assert!(!one.declaration.about.is_empty());
            assert_eq!(find(&one.name).unwrap().text, one.text);
            let guests = one.guests(&how(None, &BTreeMap::new())).unwrap();
            assert_eq!(guests.hosts.len(), one.declaration.host.len().max(1));
        }
    }
}
