//! The pool of 2 MiB pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Refusal;

/// Bytes of one huge page.
pub const SIZE: usize = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Pages that are reserved and not in use.
///
/// # Errors
/// The kernel's; NotFound where it has no such pages.
pub fn free() -> io::Result<usize> {
    Pool::new(POOL).value("free_hugepages")
}

/// Pages that are reserved, in use or not.
///
/// # Errors
/// The kernel's; NotFound where it has no such pages.
pub fn total() -> io::Result<usize> {
    Pool::new(POOL).value("nr_hugepages")
}

/// Gives the pool its former size back when dropped. Pages still mapped go back when they are unmapped.
#[derive(Debug)]
pub struct Restore {
    pool: Pool,
    total: usize,
}

/// Grows the pool until `count` pages are free, until the answer is dropped. The whole machine has that
/// much less memory meanwhile, and two processes that do this at once undo each other: only on request.
///
/// # Errors
/// Where this is not root, or the memory is too fragmented; the pool is then as before.
pub fn reserve(count: usize) -> Result<Restore, Refusal> {
    Pool::new(POOL).reserve(count)
}

#[derive(Debug)]
struct Pool {
    root: PathBuf,
}

impl Pool {
    fn new(root: impl AsRef<Path>) -> Self {
        Self { root: root.as_ref().to_owned() }
    }

    fn value(&self, file: &str) -> io::Result<usize> {
        let text = fs::read_to_string(self.root.join(file))?;
        text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn resize(&self, total: usize) -> io::Result<()> {
        fs::write(self.root.join("nr_hugepages"), total.to_string())
    }

    fn reserve(self, count: usize) -> Result<Restore, Refusal> {
        let refused = |why: io::Error| {
            let remedy = "run as root on a kernel with hugetlbfs";
            Refusal::new(format!("reserve {count} huge pages of 2 MiB"), why, remedy)
        };
        let total = self.value("nr_hugepages").map_err(refused)?;
        let free = self.value("free_hugepages").map_err(refused)?;
        self.resize(total + count.saturating_sub(free)).map_err(refused)?;
        let restore = Restore { pool: self, total };
        let got = restore.pool.value("free_hugepages").map_err(refused)?;
        if got < count {
            return Err(Refusal::new(
                format!("reserve {count} huge pages of 2 MiB"),
                io::Error::new(io::ErrorKind::OutOfMemory, format!("the kernel found only {got}")),
                "free memory, write 1 to /proc/sys/vm/compact_memory, or reserve them at boot with hugepages=",
            ));
        }
        Ok(restore)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Whoever could grow the pool may shrink it; if not, nothing here can help.
        let _ = self.pool.resize(self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: &str, free: &str) -> (tempfile::TempDir, Pool) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("nr_hugepages"), total).unwrap();
        fs::write(root.path().join("free_hugepages"), free).unwrap();
        let pool = Pool::new(root.path());
        (root, pool)
    }

    #[test]
    fn enough_free_pages_need_no_growth() {
        let (root, pool) = pool("8\n", "4\n");
        let restore = pool.reserve(4).unwrap();
        assert_eq!(restore.total, 8);
        drop(restore);
        assert_eq!(fs::read_to_string(root.path().join("nr_hugepages")).unwrap(), "8");
    }

    #[test]
    fn too_few_are_refused_and_put_back() {
        let (root, pool) = pool("8\n", "4\n");
        let refusal = pool.reserve(6).unwrap_err().to_string();
        assert!(refusal.contains("found only 4"), "{refusal}");
        assert_eq!(fs::read_to_string(root.path().join("nr_hugepages")).unwrap(), "8");
    }
}
