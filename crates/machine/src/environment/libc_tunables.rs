//! The C library's version and copy thresholds.

use std::collections::BTreeMap;
use std::process::Command;

/// The x86-64 dynamic loader, which lists the tunables for this CPU (glibc 2.33 and later).
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Returns e.g. `glibc 2.36`; `None` with another C library.
pub(super) fn version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a static string that ends in a zero byte.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns the x86 tunables by name; empty if the loader lists none.
pub(super) fn read() -> BTreeMap<String, String> {
    let listed = Command::new(LOADER).arg("--list-tunables").output();
    listed.map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Parses lines such as `glibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xffff)`.
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
    fn only_x86_tunables_with_a_value_are_kept() {
        let text = "glibc.rtld.nns: 0x4 (min: 0x1, max: 0x10)\nglibc.cpu.x86_rep_movsb_threshold: 0x840 (min: 0x200, max: 0xff)\nglibc.cpu.x86_ibt:\nglibc.cpu.hwcaps: \n";
        let tunables = parse(text);
        assert_eq!(tunables.len(), 1);
        assert_eq!(tunables["x86_rep_movsb_threshold"], "0x840");
    }
}
