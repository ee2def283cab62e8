//! The environment of a measurement: every property of the machine and program that can affect a result.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cache::Caches;
use crate::capability::Capability;
use crate::cpu::{self, Cpu};
use crate::proc;
use crate::topology::Topology;
use crate::tsc::Tsc;

/// Parameters of the kernel's command line that change the cost of a boundary.
const MITIGATION_WORDS: &[&str] = &[
    "mitigations",
    "nopti",
    "pti",
    "nospectre_v1",
    "nospectre_v2",
    "spectre_v2",
    "spectre_v2_user",
    "spectre_bhi",
    "spec_store_bypass_disable",
    "nospec_store_bypass_disable",
    "l1tf",
    "mds",
    "tsx",
    "tsx_async_abort",
    "mmio_stale_data",
    "reg_file_data_sampling",
    "retbleed",
    "spec_rstack_overflow",
    "gather_data_sampling",
    "srbds",
    "indirect_target_selection",
    "tsa",
    "vmscape",
    "kvm.nx_huge_pages",
    "kvm-intel.vmentry_l1d_flush",
];

/// The machine and the program of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The host name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// The ID of the current boot.
    pub boot_id: String,
    /// The CPU, including microcode and hypervisor.
    pub cpu: Cpu,
    /// Whether the CPU is emulated, whatever it reports.
    pub emulated: bool,
    /// The caches of the first CPU.
    pub caches: Caches,
    /// CPUs, cores, packages, nodes.
    pub topology: Topology,
    /// The kernel's status of each CPU vulnerability.
    pub vulnerabilities: BTreeMap<String, String>,
    /// Parameters of the kernel's command line that set mitigations; the others are not recorded.
    pub mitigation_words: Vec<String>,
    /// The CPU frequency governor; `None` if the kernel controls no frequency.
    pub governor: Option<String>,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The C library and its version.
    pub libc: Option<String>,
    /// glibc's thresholds for choosing a copy method, by tunable.
    pub libc_tunables: BTreeMap<String, String>,
    /// Names of the capabilities that are present.
    pub capabilities: Vec<String>,
    /// PCI vendor and device of each network interface, as `8086:1572`, sorted.
    pub nics: Vec<String>,
    /// Memory size in bytes.
    pub memory: u64,
    /// Version of this program.
    pub program_version: String,
    /// BLAKE3 hash of this program's file in hexadecimal; `None` if it cannot be read.
    pub program_hash: Option<String>,
    /// Frequency of the time-stamp counter in hertz; `None` if the counter is unusable.
    pub tsc_hertz: Option<f64>,
}

impl Environment {
    /// Captures the environment, in some tens of milliseconds. Fields that the system does not report stay empty.
    pub fn capture() -> Self {
        let uname = rustix::system::uname();
        let text = |name: &CStr| name.to_string_lossy().into_owned();
        let cpus = Path::new("/sys/devices/system/cpu");
        Self {
            hostname: hostname(),
            kernel_release: text(uname.release()),
            kernel_version: text(uname.version()),
            boot_id: boot_id(),
            cpu: Cpu::detect(),
            emulated: cpu::emulated(),
            caches: Caches::detect(),
            topology: Topology::detect(),
            vulnerabilities: read_folder(&cpus.join("vulnerabilities")),
            mitigation_words: mitigation_words(&line("/proc/cmdline").unwrap_or_default()),
            governor: line(cpus.join("cpu0/cpufreq/scaling_governor")),
            transparent_huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|setting| chosen(&setting)),
            libc: libc_version(),
            libc_tunables: libc_tunables(),
            capabilities: Capability::all()
                .into_iter()
                .filter(|capability| capability.state.is_present())
                .map(|capability| capability.name)
                .collect(),
            nics: nics(Path::new("/sys/bus/pci/devices")),
            memory: proc::total_memory(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            program_hash: program_hash(),
            tsc_hertz: Tsc::get().ok().map(|tsc| tsc.hertz),
        }
    }

    /// Returns whether `other` is the same machine and program in another boot. Properties that the kernel's
    /// command line selects at boot may differ: the mitigations, and the feature flags and reports of vulnerabilities
    /// that follow from them. Settings that can change without a boot are equal.
    pub fn is_another_boot(&self, other: &Self) -> bool {
        let of_all_boots = |one: &Self| {
            let mut one = one.stable();
            one.boot_id.clear();
            one.mitigation_words.clear();
            one.vulnerabilities.clear();
            one.cpu.features.clear();
            one
        };
        self.boot_id != other.boot_id && of_all_boots(self) == of_all_boots(other)
    }

    /// Returns the names of the properties that differ from those of another environment, e.g. `libc tunables`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let properties = |one: &Self| match serde_json::to_value(one.stable()) {
            Ok(serde_json::Value::Object(properties)) => properties,
            Ok(_) | Err(_) => serde_json::Map::new(),
        };
        let others = properties(other);
        let differing =
            properties(self).into_iter().filter(|(name, it)| others.get(name) != Some(it));
        differing.map(|(name, _)| name.replace("boot_id", "boot").replace('_', " ")).collect()
    }

    /// Returns whether `other` is the same machine in the same boot, perhaps with another program or C library, or with
    /// other tunables.
    pub fn is_same_machine(&self, other: &Self) -> bool {
        let machine = |one: &Self| {
            let (libc_tunables, program_version) = (BTreeMap::new(), String::new());
            Self { libc: None, libc_tunables, program_version, program_hash: None, ..one.clone() }
                .id()
        };
        machine(self) == machine(other)
    }

    /// Returns whether `other` has the same processor: model, caches, and CPUs online.
    pub fn has_same_processor(&self, other: &Self) -> bool {
        let model = |one: &Self| {
            let Cpu { vendor, brand, family, model, stepping, hypervisor, .. } = one.cpu.clone();
            (vendor, brand, family, model, stepping, hypervisor)
        };
        model(self) == model(other)
            && self.emulated == other.emulated
            && self.caches == other.caches
            && self.topology == other.topology
    }

    /// Returns 12 hexadecimal digits that are equal for comparable results: same machine, same boot, same
    /// program, same settings.
    pub fn id(&self) -> String {
        let stable = self.stable();
        // Plain data with text keys always serialises; the fallback also differs if the data does.
        let bytes =
            serde_json::to_vec(&stable).unwrap_or_else(|_| format!("{stable:?}").into_bytes());
        blake3::hash(&bytes).to_hex()[..12].to_owned()
    }

    /// Returns the environment without values that vary between two captures of it: the calibrated counter, the
    /// memory that a hypervisor lends, and capabilities such as a stable core clock.
    fn stable(&self) -> Self {
        let mut stable = self.clone();
        stable.tsc_hertz = None;
        stable.memory = 0;
        stable.capabilities.clear();
        for node in &mut stable.topology.nodes {
            node.memory = 0;
        }
        stable
    }
}

/// Returns the host name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the ID of the current boot; empty if the kernel does not state it.
pub fn boot_id() -> String {
    line("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Reads a one-line file of the kernel.
fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Returns the PCI vendor and device of the network interfaces (class 0x02) in a folder of PCI devices.
fn nics(devices: &Path) -> Vec<String> {
    let folders = fs::read_dir(devices).into_iter().flatten().flatten();
    let id = |folder: fs::DirEntry| {
        let number =
            |file: &str| line(folder.path().join(file))?.strip_prefix("0x").map(str::to_owned);
        let is_network = number("class")?.starts_with("02");
        is_network.then(|| Some(format!("{}:{}", number("vendor")?, number("device")?)))?
    };
    let mut found: Vec<String> = folders.filter_map(id).collect();
    found.sort();
    found
}

/// Reads the files of a folder: contents by name.
fn read_folder(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let entry =
        |file: fs::DirEntry| Some((file.file_name().into_string().ok()?, line(file.path())?));
    files.filter_map(entry).collect()
}

fn mitigation_words(command_line: &str) -> Vec<String> {
    let matters = |word: &&str| {
        let key = word.split_once('=').map_or(*word, |(key, _)| key);
        MITIGATION_WORDS.contains(&key)
    };
    command_line.split_whitespace().filter(matters).map(str::to_owned).collect()
}

/// Returns the selected value, which the kernel prints in brackets: `always [madvise] never`.
fn chosen(setting: &str) -> Option<String> {
    let (_, rest) = setting.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Returns the BLAKE3 hash of this program's file in hexadecimal.
pub fn program_hash() -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open("/proc/self/exe").ok()?).ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

/// Path of the dynamic linker in every x86-64 program for glibc. It lists the tunables for this CPU since glibc 2.33.
pub const DYNAMIC_LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Returns e.g. `glibc 2.36`; `None` with another C library.
pub fn libc_version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a static string that ends in a zero byte.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns the x86 tunables by name; empty if the loader lists none.
fn libc_tunables() -> BTreeMap<String, String> {
    let listed = Command::new(DYNAMIC_LINKER).arg("--list-tunables").output();
    listed
        .map(|output| parse_tunables(&String::from_utf8_lossy(&output.stdout)))
        .unwrap_or_default()
}

/// Parses lines such as `glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffff)`.
fn parse_tunables(listed: &str) -> BTreeMap<String, String> {
    let tunable = |line: &str| {
        let (name, value) = line.strip_prefix("glibc.cpu.")?.split_once(": ")?;
        let value = value.split(" (").next()?.trim();
        (name.starts_with("x86_") && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    listed.lines().filter_map(tunable).collect()
}

/// Lists the files of the loaded shared libraries, including the dynamic linker, under the names by
/// which the linker found them. Empty in a static program.
pub fn libraries() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: `add_library` has the type that the call requires; the pointer passed to it is `found`,
    // which outlives the call and is not accessed concurrently.
    unsafe { libc::dl_iterate_phdr(Some(add_library), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn add_library(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid object with a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr((*object).dlpi_name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    // The program itself has no name, and objects mapped by the kernel have no path.
    if path.is_absolute() {
        // SAFETY: the pointer is the one that `libraries` passed.
        unsafe { (*found.cast::<Vec<PathBuf>>()).push(path) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_round_trips() {
        let environment = Environment::capture();
        let text = serde_json::to_string(&environment).unwrap();
        let back: Environment = serde_json::from_str(&text).unwrap();
        assert_eq!(back, environment);
        assert_eq!(back.id(), environment.id());
    }

    #[test]
    fn the_id_is_stable_and_depends_on_boot_and_program() {
        let environment = Environment::capture();
        let id = environment.id();
        assert_eq!(id.len(), 12);
        assert_eq!(Environment::capture().id(), id);
        let other = |change: fn(&mut Environment)| {
            let mut environment = environment.clone();
            change(&mut environment);
            environment.id()
        };
        assert_ne!(other(|environment| environment.boot_id.push('x')), id);
        assert_ne!(other(|environment| environment.program_hash = None), id);
        assert_ne!(other(|environment| environment.emulated = !environment.emulated), id);
        assert_ne!(other(|environment| environment.governor = Some("none".into())), id);
        assert_eq!(other(|environment| environment.memory += 1), id);
        assert_eq!(other(|environment| environment.capabilities.clear()), id);
        assert_eq!(other(|environment| environment.tsc_hertz = Some(1.0)), id);
    }

    #[test]
    fn another_boot_is_the_same_machine_and_program() {
        let environment = Environment::capture();
        let mut other = environment.clone();
        assert!(!environment.is_another_boot(&other));
        other.boot_id.push('x');
        other.mitigation_words.push("pti=off".into());
        assert!(environment.is_another_boot(&other));
        for change in [
            (|one: &mut Environment| one.program_hash = None) as fn(&mut Environment),
            |one| one.governor = Some("none".into()),
            |one| one.transparent_huge_pages = Some("none".into()),
            |one| drop(one.libc_tunables.insert("x86_none".into(), "1".into())),
        ] {
            let mut changed = other.clone();
            change(&mut changed);
            assert!(!environment.is_another_boot(&changed), "{changed:?}");
        }
    }

    #[test]
    fn differing_properties_are_named() {
        let environment = Environment::capture();
        let mut other = environment.clone();
        (other.memory, other.tsc_hertz) = (1, None);
        assert_eq!(environment.differences(&other), [""; 0]);
        other.boot_id.push('x');
        other.libc_tunables.insert("x86_none".into(), "1".into());
        assert_eq!(environment.differences(&other), ["boot", "libc tunables"]);
    }

    #[test]
    fn the_same_machine_may_run_another_program() {
        let environment = Environment::capture();
        let mut other = environment.clone();
        other.program_hash = None;
        other.libc_tunables.insert("x86_rep_movsb_threshold".into(), "0x1".into());
        assert!(environment.is_same_machine(&other));
        other.governor = Some("none".into());
        assert!(!environment.is_same_machine(&other));
        let rebooted = Environment { boot_id: String::new(), ..environment.clone() };
        assert!(!environment.is_same_machine(&rebooted));
    }

    #[test]
    fn this_machine_is_described() {
        let environment = Environment::capture();
        assert!(!environment.hostname.is_empty() && !environment.kernel_release.is_empty());
        assert_eq!(environment.boot_id.len(), 36);
        assert!(environment.memory > 1 << 20);
        assert_eq!(environment.program_hash.unwrap().len(), 64);
    }

    #[test]
    fn only_mitigation_parameters_are_recorded() {
        let words =
            mitigation_words("root=/dev/vda secret=1 mitigations=auto,nosmt nopti quiet tsx=off");
        assert_eq!(words, ["mitigations=auto,nosmt", "nopti", "tsx=off"]);
    }

    #[test]
    fn network_interfaces_have_their_pci_class() {
        let root = tempfile::tempdir().unwrap();
        for (name, class) in [("0000:00:01.0", "0x020000"), ("0000:00:02.0", "0x010802")] {
            let device = root.path().join(name);
            fs::create_dir(&device).unwrap();
            for (file, text) in [("class", class), ("vendor", "0x8086"), ("device", "0x1572")] {
                fs::write(device.join(file), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(nics(root.path()), ["8086:1572"]);
        assert!(nics(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn kernel_texts_are_parsed() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn only_x86_tunables_with_a_value_are_kept() {
        let text = "glibc.rtld.nns: 0x4 (min: 0x1, max: 0x10)\nglibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xff)\nglibc.cpu.x86_ibt:\nglibc.cpu.hwcaps: \n";
        let tunables = parse_tunables(text);
        assert_eq!(tunables.len(), 1);
        assert_eq!(tunables["x86_rep_movsb_threshold"], "0x840");
    }

    #[test]
    fn the_c_library_and_the_linker_are_loaded() {
        let loaded = libraries();
        let named = |part: &str| loaded.iter().any(|path| path.to_string_lossy().contains(part));
        assert!(named("libc.so") && named("ld-linux"), "{loaded:?}");
        assert!(loaded.iter().all(|path| path.is_file()), "{loaded:?}");
    }
}
