//! CDs from which GRUB boots.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Bench;

/// Writes a CD with a file in `/boot`, and with GRUB's menu, whose first entry executes these lines.
pub fn cd(bench: &Bench, file: (&str, &Path), lines: &str) -> PathBuf {
    let content = bench.path().join("cd");
    let folder = content.join("boot/grub");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(file.1, content.join("boot").join(file.0)).unwrap();
    let menu = format!("set timeout=0\nmenuentry one {{\n{lines}\n}}\n");
    std::fs::write(folder.join("grub.cfg"), menu).unwrap();
    let cd = bench.path().join("grub.iso");
    let made = Command::new("grub-mkrescue").arg("-o").arg(&cd).arg(content).output();
    let made = made.unwrap_or_else(|why| {
        panic!("grub-mkrescue: {why}; apt-get install grub-pc-bin xorriso mtools")
    });
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    cd
}
