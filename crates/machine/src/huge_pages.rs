//! The pool of 2 MiB pages.

use std::fs;
use std::io;
use std::path::Path;

/// Bytes of one huge page.
pub const SIZE: usize = 2 << 20;
/// How to reserve 2 MiB pages.
pub const RESERVE: &str = "as root: sysctl vm.nr_hugepages=N";
/// How to reserve 1 GiB pages; memory is often too fragmented for them after boot.
pub(crate) const RESERVE_GIGANTIC: &str = "boot with hugepagesz=1G hugepages=N";

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Returns the number of reserved pages that are not in use.
///
/// # Errors
/// Returns the error of reading sysfs; NotFound if the kernel does not support these pages.
pub fn free() -> io::Result<usize> {
    value(Path::new(POOL), "free_hugepages")
}

fn value(pool: &Path, file: &str) -> io::Result<usize> {
    let text = fs::read_to_string(pool.join(file))?;
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_read() {
        let pool = tempfile::tempdir().unwrap();
        let free = || value(pool.path(), "free_hugepages");
        assert_eq!(free().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(pool.path().join("free_hugepages"), "4\n").unwrap();
        assert_eq!(free().unwrap(), 4);
        fs::write(pool.path().join("free_hugepages"), "many\n").unwrap();
        assert_eq!(free().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
