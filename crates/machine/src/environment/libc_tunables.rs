//! The C library's version, and the thresholds by which it copies.

use std::collections::BTreeMap;
use std::process::Command;

/// The x86-64 dynamic loader, which lists the tunables as this processor sets them (glibc 2.33 and later).
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// `glibc 2.36`; none with another C library.
pub(super) fn version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a static string that ends in a zero.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// The x86 tunables by name; empty where the loader lists none.
pub(super) fn read() -> BTreeMap<String, String> {
    let listed = Command::new(LOADER).arg("--list-tunables").output();
    listed.map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Lines such as `glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffff)`.
fn parse(listed: &str) -> BTreeMap<String, String> {
    let tunable = |line: &str| {
        let (name, value) = line.strip_prefix("glibc.cpu.")?.split_once(": ")?;
        let value = value.split(" (").next()?.trim();
        (name.starts_with("x86_") && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    listed.lines().filter_map(tunable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_set_x86_tunables() {
        let text = "glibc.rtld.nns: 0x4 (min: 0x1, max: 0x10)\nglibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xff)\nglibc.cpu.x86_ibt:\nglibc.cpu.hwcaps: \n";
        let tunables = parse(text);
        assert_eq!(tunables.len(), 1);
        assert_eq!(tunables["x86_rep_movsb_threshold"], "0x840");
    }
}
