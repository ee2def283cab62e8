//! The memory that ESCAPE's GRUB step reserves: the guest's kernel booted by GRUB.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{Bench, grub};

/// The parameter of the guest `reserved`, which QEMU passes without GRUB.
const RESERVED: &str = "memmap=64M$0x28000000";

/// Returns the image of Debian's kernel, which the guests boot.
fn kernel() -> PathBuf {
    let folder = lab::artefact::prepare(&vm::debian_linux::recipe()).unwrap();
    let files = std::fs::read_dir(folder.join("boot")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    paths.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("vmlinuz")).unwrap()
}

/// Boots the kernel through GRUB, with a parameter as `grub.cfg` has it, and returns what the kernel prints until it finds no
/// root file system.
fn printed(parameter: &str) -> String {
    let bench = Bench::new();
    let line = format!("linux /boot/linux console=ttyS0 panic=-1 {parameter}");
    let cd = grub::cd(&bench, ("linux", &kernel()), &line);
    let output = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-m", "1G", "-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", "stdio", "-cdrom"])
        .arg(cd)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Linux version 6.12"), "{output:?}");
    text
}

/// Returns whether the kernel left exactly these 64 MiB unused.
fn is_reserved(printed: &str) -> bool {
    printed.contains("user: [mem 0x0000000028000000-0x000000002bffffff] reserved")
}

#[test]
#[ignore = "boots two guests"]
fn long_grub_passes_the_reserved_memory_only_with_an_escaped_dollar_sign() {
    let manual = include_str!("../../../docs/virtual.md");
    assert!(manual.contains(r"`memmap=64M$ADDRESS` (in `grub.cfg` `\$`"));
    let declared = vm::declaration::find("reserved").unwrap().declaration;
    assert_eq!(declared.parameters, RESERVED);
    let escaped = printed(&RESERVED.replace('$', r"\$"));
    assert!(escaped.contains(RESERVED) && is_reserved(&escaped), "{escaped}");
    let unescaped = printed(RESERVED);
    assert!(!is_reserved(&unescaped), "{unescaped}");
}
