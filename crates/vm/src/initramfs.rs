//! The initramfs of a guest: this program as `init`, its shared libraries, its configuration, kernel modules, and the first
//! device nodes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cpio::newc::Builder;
use lab::sample::Failure;
use machine::environment::DYNAMIC_LINKER;
use machine::memfd::Memfd;

use crate::debian_linux::Alternatives;
use crate::init::{INIT_CONFIG, InitConfig, MODULES};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_666;

/// Builds the archive with this program as `init`.
pub(crate) fn of_this_program(
    config: &InitConfig,
    modules: &[Alternatives],
) -> Result<Memfd, Failure> {
    let modules = modules.concat();
    in_memory(|archive| write(archive, config, &modules))
}

/// Builds the archive with a static program as `init`.
pub(crate) fn of_static_program(program: &Path) -> Result<Memfd, Failure> {
    in_memory(|mut archive| {
        write_devices(&mut archive)?;
        write_file(&mut archive, "init", program)?;
        cpio::newc::trailer(archive)?.flush()
    })
}

/// Builds an archive in memory, so that no file is left behind.
fn in_memory(write: impl FnOnce(BufWriter<File>) -> io::Result<()>) -> Result<Memfd, Failure> {
    let written = || -> io::Result<Memfd> {
        let memory = Memfd::create("initramfs", 0)?;
        write(BufWriter::new(File::from(memory.as_fd().try_clone_to_owned()?)))?;
        Ok(memory)
    };
    written().map_err(|e| Failure::failed(format!("build the initramfs: {e}")))
}

/// Returns the file name of a module in the archive.
pub(crate) fn module_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the path of the dynamic linker in the archive.
fn linker() -> &'static str {
    DYNAMIC_LINKER.trim_start_matches('/')
}

fn write(mut archive: impl Write, config: &InitConfig, modules: &[PathBuf]) -> io::Result<()> {
    write_devices(&mut archive)?;
    for folder in ["lib", "lib64", MODULES, "proc", "sys", "tmp"] {
        entry(folder, FOLDER).write(&mut archive, 0).finish()?;
    }
    let text = serde_json::to_vec(config)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let mut writer = entry(INIT_CONFIG, FILE).write(&mut archive, length);
    writer.write_all(&text)?;
    writer.finish()?;
    let mut file = |name: &str, path: &Path| write_file(&mut archive, name, path);
    file("init", Path::new("/proc/self/exe"))?;
    for library in machine::environment::libraries() {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if linker().ends_with(&name) {
            file(linker(), &library)?;
        } else {
            file(&format!("lib/{name}"), &library)?;
        }
    }
    for module in modules {
        file(&format!("{MODULES}/{}", module_name(module)), module)?;
    }
    cpio::newc::trailer(archive)?.flush()
}

fn entry(name: &str, mode: u32) -> Builder {
    Builder::new(name).mode(mode)
}

/// Writes the devices that init uses before it mounts any file system.
fn write_devices(mut archive: impl Write) -> io::Result<()> {
    entry("dev", FOLDER).write(&mut archive, 0).finish()?;
    for (name, major, minor) in [("dev/console", 5, 1), ("dev/null", 1, 3)] {
        let node = entry(name, CHARACTER_DEVICE).rdev_major(major).rdev_minor(minor);
        node.write(&mut archive, 0).finish()?;
    }
    Ok(())
}

fn write_file(mut archive: impl Write, name: &str, path: &Path) -> io::Result<()> {
    let mut source = File::open(path)?;
    let length = u32::try_from(source.metadata()?.len())
        .map_err(|_| io::Error::other(format!("{}: larger than 4 GiB", path.display())))?;
    let mut writer = entry(name, EXECUTABLE).write(&mut archive, length);
    io::copy(&mut source, &mut writer)?;
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn the_archive_contains_this_program_its_libraries_and_its_configuration() {
        let config = InitConfig { hostname: "here".into(), ..InitConfig::default() };
        let archive = of_this_program(&config, &[]).unwrap();
        let mut file = File::from(archive.as_fd().try_clone_to_owned().unwrap());
        io::Seek::rewind(&mut file).unwrap();
        let mut names = BTreeSet::new();
        let mut init = 0;
        loop {
            let reader = cpio::NewcReader::new(file).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.insert(reader.entry().name().to_owned());
            if reader.entry().name() == "init" {
                init = u64::from(reader.entry().file_size());
            }
            file = reader.finish().unwrap();
        }
        assert_eq!(init, fs::metadata("/proc/self/exe").unwrap().len());
        assert!(names.contains(linker()) && names.contains("dev/console"), "{names:?}");
        assert!(names.contains(INIT_CONFIG), "{names:?}");
        assert!(names.iter().any(|name| name.starts_with("lib/libc.so")), "{names:?}");
    }
}
