//! The user of this process.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the effective user ID.
pub fn id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective user's home folder from the user database, regardless of `HOME`; `None` if it
/// is missing or not absolute.
pub fn home() -> Option<PathBuf> {
    // Enough for any entry that glibc's tools write; a longer one counts as missing.
    let mut strings = vec![0; 64 << 10];
    // SAFETY: all fields are integers and pointers, for which zero is valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the entry, the buffer of the length given, and the result outlive the call.
    let status = unsafe {
        libc::getpwuid_r(id(), &raw mut entry, strings.as_mut_ptr(), strings.len(), &raw mut found)
    };
    if status != 0 || found.is_null() || entry.pw_dir.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the pointer is to a terminated string in the buffer, which is alive.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    let home = PathBuf::from(OsStr::from_bytes(home.to_bytes()));
    home.is_absolute().then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_that_of_the_user_database() {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let of_user = |line: &str| {
            let fields: Vec<_> = line.split(':').collect();
            (fields.get(2)?.parse() == Ok(id())).then(|| PathBuf::from(fields[5]))
        };
        match users.lines().find_map(of_user) {
            Some(listed) if listed.is_absolute() => assert_eq!(home(), Some(listed)),
            // The user may come from another source, e.g. LDAP.
            _ => assert!(home().is_none_or(|home| home.is_absolute())),
        }
    }
}
