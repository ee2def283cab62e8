//! The artefact of Debian's Linux 6.12 as a binary, with its modules. Nothing is installed.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use lab::artefact::{self, Recipe};
use lab::program::Program;
use lab::sample::Failure;

/// Name of the artefact: a folder with `boot` and `lib/modules`.
const NAME: &str = "debian-linux-6.12";
/// Debian's metapackage, which depends on the package of its newest build.
const METAPACKAGE: &str = "linux-image-6.12-amd64";
/// Start of the names of packages with an image; the version of the kernel follows.
const IMAGE: &str = "linux-image-";
/// Maximum time of a step; the package has 100 MB.
const STEP_TIMEOUT: Duration = Duration::from_secs(1800);
/// Modules of hardware that no guest has, which are most of the package.
const UNUSED: [&str; 6] = [
    "drivers/gpu",
    "drivers/media",
    "drivers/net/ethernet",
    "drivers/net/wireless",
    "drivers/infiniband",
    "sound",
];

const APT_CACHE: Program = package_tool("apt-cache", "apt");
const APT_GET: Program = package_tool("apt-get", "apt");
const DPKG_DEB: Program = package_tool("dpkg-deb", "dpkg");
const DEPMOD: Program = package_tool("depmod", "kmod");

const fn package_tool(name: &'static str, package: &'static str) -> Program {
    Program { name, capability: name, about: "unpacks Debian's Linux for guests", package }
}

/// Returns the recipe that downloads and unpacks the kernel with the system's `apt-get`: the newest that the package lists
/// offer, or the newest in the cache if there are no lists.
pub fn recipe() -> Recipe {
    // Reading the lists takes half a second.
    static PACKAGE: OnceLock<Option<String>> = OnceLock::new();
    let package = PACKAGE.get_or_init(|| {
        listed_package().or_else(|| {
            let cached = artefact::cached_folders(NAME);
            newest_of(cached.iter().filter_map(|one| package_in(one)))
        })
    });
    recipe_of(package.as_deref())
}

/// Returns the recipe of a package; if it is unknown, one that fails with the reason.
fn recipe_of(package: Option<&str>) -> Recipe {
    let unused = UNUSED.join(" ");
    let inputs = [METAPACKAGE, &unused].into_iter().chain(package);
    Recipe { name: NAME.into(), inputs: inputs.map(Into::into).collect(), make }
}

/// Returns the package of the newest build that the package lists offer.
fn listed_package() -> Option<String> {
    let mut show = Command::new(APT_CACHE.name);
    show.args(["show", "--no-all-versions", METAPACKAGE]);
    image_package(&APT_CACHE.output(&mut show, STEP_TIMEOUT).ok()?)
}

/// Returns the package of which an artefact was made, by the folder of its modules.
fn package_in(folder: &Path) -> Option<String> {
    let modules = entry_of(&folder.join("lib/modules"), "", "").ok()?;
    Some(format!("{IMAGE}{}", modules.file_name()?.to_str()?))
}

/// Returns the package of the highest version.
fn newest_of(packages: impl Iterator<Item = String>) -> Option<String> {
    let numbers = |package: &String| {
        let parts = package.split(|one: char| !one.is_ascii_digit());
        parts.filter_map(|part| part.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    packages.max_by_key(numbers)
}

fn make(recipe: &Recipe, folder: &Path) -> Result<(), Failure> {
    let package = newest_package()?;
    if !recipe.inputs.iter().any(|input| *input == package.as_bytes()) {
        let why = format!("the package lists now have {package}, another Linux than at the start");
        return Err(Failure::failed(format!("{why}; run again")));
    }
    let mut download = Command::new(APT_GET.name);
    // As root, apt would download as another user, who cannot write to the folder.
    download.args(["-o", "APT::Sandbox::User=root", "download", &package]).current_dir(folder);
    APT_GET.output(&mut download, STEP_TIMEOUT)?;
    let archive = entry_of(folder, "linux-image", ".deb")?;
    let mut unpack = Command::new(DPKG_DEB.name);
    DPKG_DEB.output(unpack.arg("--extract").args([&archive, folder]), STEP_TIMEOUT)?;
    fs::remove_file(archive)?;
    remove_folder(&folder.join("usr"))?;
    let modules = entry_of(&folder.join("lib/modules"), "", "")?;
    for part in UNUSED {
        remove_folder(&modules.join("kernel").join(part))?;
    }
    let version = modules.file_name().unwrap_or_default();
    let mut index = Command::new(DEPMOD.find_in_system()?);
    DEPMOD.output(index.arg("--basedir").arg(folder).arg(version), STEP_TIMEOUT).map(drop)
}

/// Removes a folder that the package need not have.
fn remove_folder(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            let fix = "give this user access to the cache";
            Err(Failure::failed(format!("remove {}: {why}; {fix}", folder.display())))
        }
        _ => Ok(()),
    }
}

/// Reads a list of modules.
fn read_list(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|why| {
        let fix = "remove this artefact from the cache and run again";
        Failure::failed(format!("Debian's Linux: {}: {why}; {fix}", path.display()))
    })
}

/// Returns the package of the newest build that the package lists offer.
fn newest_package() -> Result<String, Failure> {
    // `show` fails if the lists have no such package, but also for other reasons; `madison` only prints nothing.
    let mut known = Command::new(APT_CACHE.name);
    let known = APT_CACHE.output(known.args(["madison", METAPACKAGE]), STEP_TIMEOUT)?;
    let shown = match known.trim().is_empty() {
        true => String::new(),
        false => {
            let mut show = Command::new(APT_CACHE.name);
            show.args(["show", "--no-all-versions", METAPACKAGE]);
            APT_CACHE.output(&mut show, STEP_TIMEOUT)?
        }
    };
    image_package(&shown).ok_or_else(|| {
        let cause = "the package lists have no Linux 6.12 for guests";
        let why = format!("{cause}: {METAPACKAGE}");
        Failure::unavailable(why, "use Debian 12 or 13 and run apt-get update").with_cause(cause)
    })
}

/// Returns the package of the image on which the metapackage depends, from its description.
fn image_package(description: &str) -> Option<String> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let mut names = depends.split([',', '|']).filter_map(|one| one.split_whitespace().next());
    names.find(|name| name.starts_with(IMAGE)).map(str::to_owned)
}

/// Returns the path of the first entry of a folder whose name starts and ends with these texts.
fn entry_of(folder: &Path, start: &str, end: &str) -> Result<PathBuf, Failure> {
    let fix = "use Debian 12 or 13, remove this artefact from the cache and run again";
    let failed = |what: String| Failure::failed(format!("Debian's Linux: {what}; {fix}"));
    let entries = fs::read_dir(folder)
        .map_err(|why| failed(format!("read {}: {why}", folder.display())))?
        .flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let found = names.find(|name| name.starts_with(start) && name.ends_with(end));
    let missing = || failed(format!("no file {}", folder.join(format!("{start}*{end}")).display()));
    found.map(|name| folder.join(name)).ok_or_else(missing)
}

/// Files of modules of which one is loaded: the first that the machine supports.
pub(crate) type Alternatives = Vec<PathBuf>;

/// Returns the kernel image of the artefact in `folder`, and the files of modules after those that they depend on. A name
/// can be several alternatives with `|` between them.
///
/// # Errors
/// Returns `failed` if the kernel has no such module.
pub(crate) fn files(
    folder: &Path,
    modules: &[&str],
) -> Result<(PathBuf, Vec<Alternatives>), Failure> {
    let image = entry_of(&folder.join("boot"), "vmlinuz", "")?;
    let tree = entry_of(&folder.join("lib/modules"), "", "")?;
    let listed = read_list(&tree.join("modules.dep"))?;
    let index = Index::read(&listed);
    let built_in = read_list(&tree.join("modules.builtin"))?;
    let mut files: Vec<Vec<&str>> = Vec::new();
    for names in modules {
        let mut alternatives = Vec::new();
        for name in names.split('|') {
            match index.paths.get(&normalised(name)) {
                Some(path) => alternatives.push(*path),
                None if built_in.lines().any(|path| module_of(path) == normalised(name)) => {}
                None => {
                    let why = format!("Debian's Linux has no module '{name}'");
                    return Err(Failure::failed(format!("{why}; see its name with modinfo")));
                }
            }
        }
        index.add(&alternatives, &mut files);
    }
    let in_tree = |paths: Vec<&str>| paths.into_iter().map(|path| tree.join(path)).collect();
    Ok((image, files.into_iter().map(in_tree).collect()))
}

/// The modules of `modules.dep`.
struct Index<'a> {
    /// The path of each module by its name.
    paths: BTreeMap<String, &'a str>,
    /// The paths on which a path depends; the last is to be loaded first.
    depends: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Index<'a> {
    fn read(text: &'a str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let depends: BTreeMap<_, _> =
            lines.map(|(path, list)| (path, list.split_whitespace().collect())).collect();
        let paths = depends.keys().map(|path| (module_of(path), *path)).collect();
        Self { paths, depends }
    }

    /// Adds alternative modules after those that they depend on, each once.
    fn add(&self, alternatives: &[&'a str], files: &mut Vec<Vec<&'a str>>) {
        let required = alternatives.iter().flat_map(|path| {
            let depends: &[&str] = self.depends.get(path).map_or(&[], Vec::as_slice);
            depends.iter().rev().map(|path| vec![*path])
        });
        for paths in required.chain([alternatives.to_vec()]) {
            if !paths.is_empty() && !files.contains(&paths) {
                files.push(paths);
            }
        }
    }
}

/// Returns the name of the module in a file.
fn module_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    normalised(name.split(".ko").next().unwrap_or(name))
}

/// Returns the name of a module as the kernel spells it.
fn normalised(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_what_the_metapackage_depends_on() {
        let package = "Package: linux-image-6.12-amd64\n\
            Depends: initramfs-tools, linux-image-6.12.1-1-amd64 (= 6.12.1-1) | other\nSize: 5\n";
        assert_eq!(image_package(package).as_deref(), Some("linux-image-6.12.1-1-amd64"));
        assert_eq!(image_package("Package: x\nDepends: libc6\n"), None);
        assert_eq!(image_package(""), None);
    }

    #[test]
    fn a_package_may_lack_unused_folders_but_not_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let unused = folder.path().join("usr");
        fs::create_dir_all(unused.join("share")).unwrap();
        remove_folder(&unused).unwrap();
        remove_folder(&unused).unwrap();
        assert!(!unused.exists());
        fs::create_dir_all(folder.path().join("boot")).unwrap();
        let why = files(folder.path(), &[]).unwrap_err().why;
        assert!(why.contains("boot/vmlinuz*; use Debian 12 or 13"), "{why}");
        fs::write(folder.path().join("boot/vmlinuz-6.12"), "").unwrap();
        let why = files(folder.path(), &[]).unwrap_err().why;
        assert!(why.contains("lib/modules: ") && why.ends_with("run again"), "{why}");
    }

    #[test]
    fn another_build_of_the_kernel_is_another_artefact() {
        let [old, new] = ["linux-image-6.12.9+deb13-amd64", "linux-image-6.12.73+deb13-amd64"];
        assert_ne!(recipe_of(Some(old)).hash(), recipe_of(Some(new)).hash());
        assert_ne!(recipe_of(None).hash(), recipe_of(Some(new)).hash());
        // Without package lists the newest kernel of the cache is used.
        let packages = || [new, old].map(str::to_owned).into_iter();
        assert_eq!(newest_of(packages()).as_deref(), Some(new));
        assert_eq!(newest_of(packages().rev()).as_deref(), Some(new));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(package_in(folder.path()), None);
        fs::create_dir_all(folder.path().join("lib/modules/6.12.73+deb13-amd64")).unwrap();
        assert_eq!(package_in(folder.path()).as_deref(), Some(new));
    }

    #[test]
    fn modules_follow_those_they_depend_on() {
        let text = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                    kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz\n\
                    kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\n\
                    kernel/fs/netfs/netfs.ko.xz:\n\
                    kernel/arch/x86/kvm/kvm-amd.ko.xz: kernel/crypto/ccp.ko.xz kernel/arch/x86/kvm/kvm.ko.xz\n\
                    kernel/arch/x86/kvm/kvm-intel.ko.xz: kernel/arch/x86/kvm/kvm.ko.xz\n\
                    kernel/arch/x86/kvm/kvm.ko.xz:\n\
                    kernel/crypto/ccp.ko.xz:\n";
        let index = Index::read(text);
        let mut files = Vec::new();
        for name in ["9p", "9pnet_virtio"] {
            index.add(&[index.paths[name]], &mut files);
        }
        index.add(&[index.paths["kvm_amd"], index.paths["kvm_intel"]], &mut files);
        let names: Vec<_> = files
            .iter()
            .map(|paths| paths.iter().map(|path| module_of(path)).collect::<Vec<_>>().join("|"))
            .collect();
        let expected = ["netfs", "9pnet", "9p", "9pnet_virtio", "kvm", "ccp", "kvm_amd|kvm_intel"];
        assert_eq!(names, expected);
        assert_eq!(module_of("kernel/arch/x86/kvm/kvm-amd.ko.xz"), "kvm_amd");
    }
}
