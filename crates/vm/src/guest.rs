//! A Linux guest: its kernel, its devices, and the command of QEMU that starts it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use lab::artefact::{self, Artefacts, Recipe};
use lab::guest::{BootCommand, EMULATOR, Guest, HOST_USER, IN_GUEST};
use lab::sample::Failure;
use machine::cpu::CpuClock;
use machine::cpu::EMULATED_VARIABLE;
use serde::{Deserialize, Serialize};

use crate::backing_file::{BackingFile, SIZE_SUFFIX, inherited};
use crate::debian_linux::{self, Alternatives};
use crate::forwarder::Forwarder;
use crate::init::{HOST_FILES_TAG, INIT, InitConfig, PORT};
use crate::{QEMU, initramfs, patched_linux, qemu};

/// Environment variables of this machine that the command inside receives with this machine's files: they name the folders
/// of programs and artefacts.
const INHERITED_VARIABLES: [&str; 3] = ["PATH", "HOME", "XDG_CACHE_HOME"];
/// Kernel parameters of every guest. Linux panics if its check of the timer sees no interrupt, because the emulator lost
/// its CPU.
pub(crate) const PARAMETERS: &str = "console=ttyS0 quiet printk.time=0 panic=-1 no_timer_check";
/// Remedy if KVM cannot execute a guest whose accelerator the user does not choose.
const DEFAULT_KVM_REMEDY: &str = "measure on another host";

/// Accelerator that executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The CPU, through KVM
    Kvm,
    /// QEMU's emulator
    #[default]
    Tcg,
}

impl Accelerator {
    /// Returns the name of the accelerator for QEMU.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => EMULATOR,
        }
    }

    /// Returns the clock of a guest without a planted one. A guest of KVM has no real clock if this machine is emulated.
    pub(crate) fn clock(self) -> CpuClock {
        match self == Self::Tcg || machine::cpu::emulated() {
            true => CpuClock::Untimed,
            false => CpuClock::Real,
        }
    }

    /// Checks that this machine can start a guest with the accelerator, before a kernel is made for the guest.
    ///
    /// # Errors
    /// Returns `unavailable` if QEMU is not installed, or `/dev/kvm` cannot be opened for KVM.
    pub fn check_host(self) -> Result<(), Failure> {
        QEMU.find()?;
        if self == Self::Kvm {
            machine::kvm::open()?;
        }
        Ok(())
    }

    /// Returns the most capable CPU model that QEMU offers with the accelerator.
    fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }
}

/// A kernel.
#[derive(Debug, Clone)]
pub enum Kernel {
    /// Debian's, with its modules.
    Debian,
    /// A kernel without modules, which this recipe builds as `bzImage`.
    Built(Recipe),
}

impl Kernel {
    fn recipe(&self) -> Recipe {
        match self {
            Self::Debian => debian_linux::recipe(),
            Self::Built(recipe) => recipe.clone(),
        }
    }

    /// Describes the preparation of the kernel and its time.
    fn preparation(&self) -> &'static str {
        match self {
            Self::Debian => "downloading 100 MB of Debian's Linux",
            Self::Built(_) => patched_linux::BUILDING,
        }
    }
}

/// A virtual machine with Linux.
#[derive(Debug, Clone)]
pub struct LinuxGuest {
    /// Unique name, by which points share the guest.
    pub name: String,
    /// Host name inside.
    pub hostname: String,
    /// Accelerator of its instructions.
    pub accelerator: Accelerator,
    /// QEMU's machine type with options.
    pub machine: String,
    /// CPU model; `None` for the most capable.
    pub cpu: Option<String>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of CPUs that are hardware threads of one core.
    pub threads: u32,
    /// Memory: the value of QEMU's `-m`.
    pub memory: String,
    /// Kernel.
    pub kernel: Kernel,
    /// Kernel parameters in addition to those of the console.
    pub parameters: String,
    /// Modules to load, after those they depend on; of names with `|` between them, the first that the machine supports.
    pub modules: Vec<String>,
    /// The clock of its CPUs.
    pub clock: CpuClock,
    /// Further arguments of QEMU, in which `{name}` is the path of a backing file, and `{name.size}` its length in bytes.
    pub arguments: Vec<String>,
    /// The backing files.
    pub files: Vec<BackingFile>,
    /// Whether the guest sees the files of this machine; changes that it makes to them are discarded.
    pub host_files: bool,
    /// Absolute path of a folder of this machine that is empty inside: that of the backing files, to which only the devices give
    /// access.
    pub hidden: Option<String>,
    /// Shell script that prepares devices; requires `host_files`.
    pub prepare: String,
    /// Arguments of this program inside, e.g. those of a worker.
    pub command: Vec<String>,
    /// Environment variables of the command.
    pub variables: BTreeMap<String, String>,
    /// Whether the guest reports on its console the start of its command, and that its CPUs work.
    pub is_watched: bool,
    /// Forwarder of stores to write-only ranges, as long as the guest exists.
    pub forwarder: Option<Arc<Forwarder>>,
    /// Remedy if KVM cannot execute the guest.
    pub kvm_remedy: &'static str,
}

impl LinuxGuest {
    /// Creates a guest with two CPUs, a worker inside, no devices and none of this machine's files.
    pub fn new(name: String, kernel: Kernel, accelerator: Accelerator) -> Self {
        Self {
            hostname: "guest".into(),
            name,
            accelerator,
            machine: "pc".into(),
            cpu: None,
            cpus: 2,
            threads: 1,
            // It contains this program twice, and a debug build is large.
            memory: "1024".into(),
            kernel,
            parameters: String::new(),
            modules: Vec::new(),
            clock: accelerator.clock(),
            arguments: Vec::new(),
            files: Vec::new(),
            host_files: false,
            hidden: None,
            prepare: String::new(),
            command: lab::worker::WORKER.map(str::to_owned).to_vec(),
            variables: BTreeMap::new(),
            is_watched: false,
            forwarder: None,
            kvm_remedy: DEFAULT_KVM_REMEDY,
        }
    }

    /// Returns the recipes that [`boot_command`](Self::boot_command) needs.
    pub fn recipes(&self) -> Vec<Recipe> {
        vec![self.kernel.recipe()]
    }

    /// Describes the preparation of the kernel and its time; `None` if the kernel is in the cache.
    pub fn preparation(&self) -> Option<&'static str> {
        (!artefact::is_cached(&self.kernel.recipe())).then(|| self.kernel.preparation())
    }

    /// Converts it to a guest of the lab.
    pub fn into_guest(self) -> Guest {
        let (name, artefacts, clock) = (self.name.clone(), self.recipes(), self.clock);
        let cpus = self.cpus;
        let forwarder = self.forwarder.clone();
        let check = move || forwarder.as_ref().map_or(Ok(()), |forwarder| forwarder.check());
        let start = move |artefacts: &Artefacts| self.boot_command(artefacts);
        Guest { name, artefacts, clock, cpus, start: Arc::new(start), check: Arc::new(check) }
    }

    /// Builds the initramfs and returns the command that boots the guest.
    ///
    /// # Errors
    /// Returns the failure of making the kernel, `unavailable` if QEMU is not installed, and `failed` if the kernel has no
    /// such module, the initramfs cannot be built, another process changed a backing file, or stores are not forwarded.
    pub fn boot_command(&self, artefacts: &Artefacts) -> Result<BootCommand, Failure> {
        if let Some(forwarder) = &self.forwarder {
            forwarder.check()?;
        }
        let made = artefact::find(artefacts, &self.kernel.recipe().name)?;
        let (image, modules) = match &self.kernel {
            Kernel::Debian => debian_linux::files(made, &self.all_modules())?,
            Kernel::Built(_) => (made.join("bzImage"), Vec::new()),
        };
        let initramfs = initramfs::of_this_program(&self.init_config(&modules), &modules)?;
        let initramfs = initramfs.as_fd().try_clone_to_owned()?;
        let archive = inherited(&initramfs)?;
        let mut held = vec![initramfs];
        let mut command = qemu()?;
        command
            // Names it in the list of processes.
            .args(["-name", &self.hostname])
            .args(["-accel", self.accelerator.name()])
            .args(["-cpu", self.cpu.as_deref().unwrap_or(self.accelerator.cpu())])
            .args(["-machine", &self.machine, "-m", &self.memory])
            .args(["-smp", &format!("{},threads={}", self.cpus, self.threads)])
            .arg("-kernel")
            .arg(image)
            .args(["-initrd", &archive, "-append", &self.command_line()])
            .args(self.io_arguments());
        let mut values = BTreeMap::new();
        for file in &self.files {
            let path = file.path_for_child(&mut held)?;
            values.insert(format!("{{{}}}", file.name), path);
            values.insert(format!("{{{}{SIZE_SUFFIX}}}", file.name), file.bytes.to_string());
        }
        command.args(self.arguments.iter().map(|argument| substituted(argument, &values)));
        Ok(BootCommand::of_guest(command, held, self.kvm_remedy))
    }

    fn init_config(&self, modules: &[Alternatives]) -> InitConfig {
        let names = |files: &Alternatives| {
            files.iter().map(|path| initramfs::module_name(path)).collect::<Vec<_>>()
        };
        InitConfig {
            hostname: self.hostname.clone(),
            modules: modules.iter().map(names).collect(),
            host_files: self.host_files,
            hidden: self.hidden.clone(),
            prepare: self.prepare.clone(),
            command: self.command.clone(),
            variables: self.all_variables(),
            is_watched: self.is_watched,
        }
    }

    /// Returns the arguments of the console, the port and this machine's files.
    fn io_arguments(&self) -> Vec<String> {
        let port = self.on_bus("virtio-serial-pci");
        let mut arguments = vec![
            // The last console output explains why a guest died.
            "-chardev".into(),
            "file,id=console,path=/proc/self/fd/2".into(),
            "-serial".into(),
            "chardev:console".into(),
            "-chardev".into(),
            "stdio,id=port,signal=off".into(),
            "-device".into(),
            port,
            "-device".into(),
            format!("virtserialport,chardev=port,name={PORT}"),
        ];
        if self.host_files {
            let tag = self.on_bus(&format!("virtio-9p-pci,fsdev=files,mount_tag={HOST_FILES_TAG}"));
            let files = "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap";
            arguments.extend(["-fsdev".into(), files.into(), "-device".into(), tag]);
        }
        arguments
    }

    /// Returns the modules to load, with those that this machine's files require.
    fn all_modules(&self) -> Vec<&str> {
        let of_files: &[&str] =
            if self.host_files { &["9p", "9pnet_virtio", "overlay"] } else { &[] };
        of_files.iter().copied().chain(self.modules.iter().map(String::as_str)).collect()
    }

    fn all_variables(&self) -> BTreeMap<String, String> {
        let inherited: &[&str] = if self.host_files { &INHERITED_VARIABLES } else { &[] };
        let set = inherited
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let emulated = self.clock.declaration().map(|value| variable(EMULATED_VARIABLE, value));
        let user = variable(HOST_USER, &machine::user::id().to_string());
        set.chain([variable(IN_GUEST, "yes")])
            .chain(self.host_files.then_some(user))
            .chain(emulated)
            .chain(self.variables.clone())
            .collect()
    }

    fn command_line(&self) -> String {
        // The kernel passes NAME=VALUE parameters that it does not recognise to init's environment.
        format!("{PARAMETERS} {} LD_LIBRARY_PATH=/lib -- {INIT}", self.parameters)
    }

    /// Places a device on the root bus: a machine with CXL has several, and QEMU would choose another.
    fn on_bus(&self, device: &str) -> String {
        match self.machine.starts_with("q35") {
            true => format!("{device},bus=pcie.0"),
            false => device.to_owned(),
        }
    }
}

/// Replaces the placeholders of an argument by their values.
fn substituted(argument: &str, values: &BTreeMap<String, String>) -> String {
    let replace = |text: String, (name, value): (&String, &String)| text.replace(name, value);
    values.iter().fold(argument.to_owned(), replace)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, Instant};

    use machine::mapping::PAGE;
    use machine::memfd::Memfd;

    use super::*;
    use crate::forwarder::WriteOnly;

    fn guest(parameters: &str) -> LinuxGuest {
        let new = LinuxGuest::new("one".into(), Kernel::Debian, Accelerator::Tcg);
        LinuxGuest { parameters: parameters.into(), ..new }
    }

    #[test]
    fn the_kernels_parameters_precede_the_arguments_of_init() {
        let line = guest("pti=off quiet").command_line();
        let (kernel, init) = line.split_once(" -- ").unwrap();
        assert_eq!(init, INIT);
        let words: Vec<_> = kernel.split_whitespace().collect();
        assert!(words.starts_with(&["console=ttyS0"]) && words.contains(&"panic=-1"), "{line}");
        assert!(words.ends_with(&["pti=off", "quiet", "LD_LIBRARY_PATH=/lib"]), "{line}");
    }

    #[test]
    fn placeholders_become_paths_and_other_braces_remain() {
        let paths: BTreeMap<String, String> =
            [("{bar}", "/proc/self/fd/7"), ("{kmem}", "/proc/self/fd/8")]
                .map(|(name, path)| (name.to_owned(), path.to_owned()))
                .into();
        let argument = "memory-backend-file,id=bar,mem-path={bar},share=on";
        let expected = "memory-backend-file,id=bar,mem-path=/proc/self/fd/7,share=on";
        assert_eq!(substituted(argument, &paths), expected);
        assert_eq!(substituted("{kmem},{bar}", &paths), "/proc/self/fd/8,/proc/self/fd/7");
        assert_eq!(substituted("{\"driver\": 1}", &paths), "{\"driver\": 1}");
    }

    #[test]
    fn a_guest_whose_stores_are_no_longer_forwarded_is_not_sound() {
        let [copy, range] = ["copy", "range"].map(|name| Memfd::create(name, PAGE).unwrap());
        let [from, to, truncated] = [&copy, &range, &copy]
            .map(|memory| File::from(memory.as_fd().try_clone_to_owned().unwrap()));
        let write_only = WriteOnly::new("range-0", from, to, PAGE).unwrap();
        let forwarder = Some(Arc::new(Forwarder::start(vec![write_only])));
        let one = LinuxGuest { forwarder, ..guest("") }.into_guest();
        assert_eq!((one.check)(), Ok(()));
        truncated.set_len(10).unwrap();
        let start = Instant::now();
        while (one.check)().is_ok() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let why = (one.check)().unwrap_err().why;
        assert!(why.starts_with("range-0: ") && why.ends_with("so run again"), "{why}");
        assert_eq!((guest("").into_guest().check)(), Ok(()));
    }

    #[test]
    fn only_a_guest_that_sees_the_hosts_files_has_their_modules_and_variables() {
        let alone = guest("");
        let with_files = LinuxGuest { host_files: true, modules: vec!["kvm".into()], ..guest("") };
        assert_eq!(alone.all_modules(), Vec::<&str>::new());
        assert_eq!(with_files.all_modules(), ["9p", "9pnet_virtio", "overlay", "kvm"]);
        let variables = |guest: &LinuxGuest| guest.all_variables().into_keys().collect::<Vec<_>>();
        assert!(!variables(&alone).iter().any(|name| name == "PATH" || name == HOST_USER));
        assert!(variables(&with_files).iter().any(|name| name == HOST_USER));
        for one in [&alone, &with_files] {
            assert_eq!(one.all_variables()[EMULATED_VARIABLE], "yes");
            assert_eq!(one.all_variables()[IN_GUEST], "yes");
        }
        assert_eq!(alone.io_arguments().iter().filter(|one| *one == "-fsdev").count(), 0);
        assert_eq!(with_files.io_arguments().iter().filter(|one| *one == "-fsdev").count(), 1);
    }
}
