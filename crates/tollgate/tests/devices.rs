//! Copies into and out of devices, checked in the files that back the devices' memory.
//!
//! The program runs in a guest emulated by QEMU with the suite's kernel, two PCI BARs (`ivshmem-plain`),
//! reserved memory, and memory declared as persistent (a DAX device). The BARs and the guest's memory are
//! files of the host. Times are not checked because the CPU is emulated.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cpio::newc::Builder;
use lab::sample::{Failure, FailureKind, Sample};

/// Start of the guest's script.
const START: &str = include_str!("devices/start.sh");
/// Size of the guest's memory in bytes; physical addresses are offsets in its file.
const MEMORY: u64 = 1 << 30;
/// Address of memory reserved by `memmap=16M$`.
const RESERVED: u64 = 0x0800_0000;
/// Address of memory that the kernel uses.
const RAM: u64 = 0x0400_0000;
/// Size of a BAR in bytes.
const BAR: u64 = 1 << 20;
/// Bytes per copy: an odd number of pages and part of a page.
const LENGTH: usize = 20_001;
/// Offsets of the patterns that are read and written.
const READ: u8 = 7;
const WRITTEN: u8 = 33;
/// Timeout of a guest, ten times the time on an idle machine.
const LIMIT: Duration = Duration::from_secs(400);

/// Returns ESCAPE's pattern: each byte is its index plus `offset`.
fn pattern(offset: u8) -> Vec<u8> {
    (0..LENGTH).map(|index| (index as u8).wrapping_add(offset)).collect()
}

/// Files of a guest in a temporary folder.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        File::create(machine.path("memory")).unwrap().set_len(MEMORY).unwrap();
        for bar in ["bar-a", "bar-b"] {
            fs::write(machine.path(bar), vec![0xee; BAR as usize]).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, at: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// Returns the bytes of a copy, and the byte after it.
    fn bytes(&self, name: &str, at: u64) -> (Vec<u8>, u8) {
        let mut bytes = vec![0; LENGTH + 1];
        File::open(self.path(name)).unwrap().read_exact_at(&mut bytes, at).unwrap();
        let next = bytes.pop().unwrap();
        (bytes, next)
    }

    /// Boots the guest with lines of a script and returns its serial output.
    fn boot(&self, words: &str, script: &str, programs: &[(&str, &Path)]) -> String {
        self.archive(&format!("{START}\n{script}"), programs).unwrap();
        let kernel = lab::artefact::prepare(&crossing::vm::kernel::recipe()).unwrap();
        let file = |name: &str| self.path(name).display().to_string();
        let backend = |id: &str, name: &str, size: u64| {
            let path = file(name);
            format!("memory-backend-file,id={id},mem-path={path},size={size},share=on")
        };
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-accel", "tcg", "-cpu", "max", "-smp", "2"])
            .args(["-m", &format!("{}M", MEMORY >> 20), "-machine", "pc,memory-backend=memory"])
            .args(["-object", &backend("memory", "memory", MEMORY)])
            .args(["-object", &backend("a", "bar-a", BAR), "-object", &backend("b", "bar-b", BAR)])
            .args(["-device", "ivshmem-plain,memdev=a,addr=10"])
            .args(["-device", "ivshmem-plain,memdev=b,addr=11"])
            .args(["-kernel", &kernel.join("bzImage").display().to_string()])
            .args(["-initrd", &file("initramfs"), "-serial", &format!("file:{}", file("console"))])
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 {words}")])
            .stdin(Stdio::null());
        machine::child::die_with_parent(&mut command);
        let mut emulator = command.spawn().unwrap();
        let start = Instant::now();
        let console = || {
            let bytes = fs::read(self.path("console")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\r', "")
        };
        while emulator.try_wait().unwrap().is_none() {
            if start.elapsed() > LIMIT {
                emulator.kill().unwrap();
                emulator.wait().unwrap();
                panic!("the guest does not end: {}", console());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let console = console();
        println!("{console}");
        assert!(console.lines().any(|line| line == "the end"), "{console}");
        console
    }

    /// Writes the initramfs: the script, a shell, programs and their libraries.
    fn archive(&self, script: &str, programs: &[(&str, &Path)]) -> io::Result<()> {
        let mut archive = BufWriter::new(File::create(self.path("initramfs"))?);
        let entry = |name: &str, mode: u32| Builder::new(name).mode(mode);
        let folders = ["bin", "dev", "lib", "lib64", "proc", "sys", "tmp"];
        for folder in folders {
            entry(folder, 0o040_755).write(&mut archive, 0).finish()?;
        }
        for (name, major, minor) in [("dev/console", 5, 1), ("dev/null", 1, 3)] {
            let node = entry(name, 0o020_666).rdev_major(major).rdev_minor(minor);
            node.write(&mut archive, 0).finish()?;
        }
        let mut file = |name: &str, bytes: &[u8]| -> io::Result<()> {
            let mut place = entry(name, 0o100_755).write(&mut archive, bytes.len() as u32);
            place.write_all(bytes)?;
            place.finish().map(drop)
        };
        file("init", script.as_bytes())?;
        file("experiments.toml", include_bytes!("devices/experiments.toml"))?;
        let mut libraries = BTreeMap::new();
        let tools = [("sh", Path::new("/bin/sh")), ("mount", Path::new("/bin/mount"))];
        for (name, path) in tools.iter().chain(programs) {
            file(&format!("bin/{name}"), &self.stripped(path))?;
            libraries.extend(linked(path));
        }
        for (name, path) in libraries {
            let folder = if name.starts_with("ld-linux") { "lib64" } else { "lib" };
            file(&format!("{folder}/{name}"), &fs::read(path)?)?;
        }
        cpio::newc::trailer(archive)?.flush()
    }

    /// Returns a program without debugging information.
    fn stripped(&self, program: &Path) -> Vec<u8> {
        let stripped = self.path("stripped");
        let status = Command::new("strip").arg("-o").arg(&stripped).arg(program).status().unwrap();
        assert!(status.success(), "strip {}", program.display());
        fs::read(stripped).unwrap()
    }
}

/// Returns the libraries of a program by name, including the dynamic linker.
fn linked(program: &Path) -> BTreeMap<String, PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    paths.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// Returns the number printed after a word.
fn number(console: &str, word: &str) -> u64 {
    let line = console.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(" 0x"));
    u64::from_str_radix(line.unwrap_or_else(|| panic!("no {word}")), 16).unwrap()
}

/// Returns the samples of a run by memory and direction.
fn samples(console: &str, run: &str) -> BTreeMap<(String, String), Sample> {
    let start = format!("journal {run} ");
    let lines = console.lines().filter_map(|line| line.strip_prefix(&start));
    let samples = lines.map(|line| serde_json::from_str::<Sample>(line).unwrap());
    let samples = samples.filter(|sample| sample.experiment.starts_with("copy/"));
    let level = |sample: &Sample, factor: &str| sample.point.text(factor).to_owned();
    samples.map(|one| ((level(&one, "memory"), level(&one, "direction")), one)).collect()
}

#[track_caller]
fn all_arrived(samples: &BTreeMap<(String, String), Sample>, count: usize) {
    assert_eq!(samples.len(), count, "{samples:?}");
    for (name, sample) in samples {
        assert_eq!(sample.error, None, "{name:?}");
        assert_eq!(sample.values.get("checked"), Some(&(LENGTH as f64)), "{name:?}");
        assert_eq!(sample.values.len(), 1, "an emulated CPU has no time: {sample:?}");
    }
}

#[track_caller]
fn refused(samples: &BTreeMap<(String, String), Sample>, memory: &str, direction: &str) -> Failure {
    let sample = &samples[&(memory.to_owned(), direction.to_owned())];
    let failure = sample.error.clone().unwrap_or_else(|| panic!("{memory} {direction}: passed"));
    assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
    failure
}

#[test]
fn copies_in_the_patched_kernel_move_the_right_bytes_to_and_from_devices() {
    let machine = Machine::new();
    machine.put("bar-a", 0, &pattern(READ));
    machine.put("bar-b", 0, &pattern(READ));
    machine.put("memory", RESERVED, &pattern(READ));
    let words = "memmap=16M$0x8000000 memmap=320M!0x10000000";
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    let script = include_str!("devices/devices.sh");
    let console = machine.boot(words, script, &[("tollgate", program)]);

    all_arrived(&samples(&console, "reads"), 3);
    all_arrived(&samples(&console, "writes"), 4);
    all_arrived(&samples(&console, "dax"), 1);
    // The devices' memory has exactly the bytes that the program reports.
    let dax = number(&console, "dax");
    assert!(dax > 0x1000_0000, "{dax:#x}");
    for (device, name, at, beside) in [
        ("pci-bar", "bar-a", 0, 0xee),
        ("device", "bar-b", 0, 0xee),
        ("host-physical", "memory", RESERVED, 0),
        ("dax", "memory", dax, 0),
    ] {
        let (bytes, next) = machine.bytes(name, at);
        let wrong = bytes.iter().zip(pattern(WRITTEN)).position(|(is, should)| *is != should);
        assert_eq!((wrong, next), (None, beside), "{device}");
    }

    let wrong = samples(&console, "wrong");
    let why = |memory, direction| refused(&wrong, memory, direction).to_string();
    assert!(why("dax", "write").contains("not a DAX device"), "{}", why("dax", "write"));
    assert!(why("pci-bar", "write").contains("not a resource file of sysfs"));
    assert!(why("host-physical", "write").contains("is used by the kernel, System RAM"));
    // The kernel refuses to map its memory uncached unless booted with nopat.
    let ram = refused(&wrong, "host-physical", "read");
    assert!(ram.why.contains("Invalid argument"), "{ram}");
    assert!(ram.remedy.unwrap().contains("nopat"));
    let taken = refused(&samples(&console, "kmem"), "device", "write");
    assert!(taken.why.contains("System RAM (kmem)"), "{taken}");
    // No byte was written.
    assert_eq!(number(&console, "ram"), RAM);
    assert_ne!(machine.bytes("memory", RAM).0, pattern(99));
    assert_ne!(machine.bytes("memory", number(&console, "kmem")).0, pattern(99));
}

#[test]
fn memory_of_the_patched_kernel_is_readable_with_nopat() {
    let machine = Machine::new();
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    // The kernel's code, which does not change.
    let script = "run ram kmem --where direction=read --where memory=host-physical \
                  --set physical-address=0x1000000\nend";
    let console = machine.boot("nopat", script, &[("tollgate", program)]);
    all_arrived(&samples(&console, "ram"), 1);
}

#[test]
#[ignore = "runs in the guest of `an_enclave_runs_on_emulated_svm_in_the_patched_kernel`"]
fn an_enclave_of_kind_kvm_starts() {
    use enclave::kinds::{EnclaveKind, load_untimed};
    let conf = enclave::conf::Conf { heap_pages: 1024, tcs: 2, ..Default::default() };
    for image in enclave::images::all() {
        let enclave = load_untimed(EnclaveKind::Kvm, image, &conf).unwrap();
        assert!(!enclave.heap().is_empty());
    }
    println!("all enclaves started and ended");
}

#[test]
fn an_enclave_runs_on_emulated_svm_in_the_patched_kernel() {
    let machine = Machine::new();
    let tests = std::env::current_exe().unwrap();
    let script = "tests --exact an_enclave_of_kind_kvm_starts --ignored --nocapture\nend";
    let console = machine.boot("", script, &[("tests", &tests)]);
    assert!(console.contains("all enclaves started and ended"), "{console}");
}
