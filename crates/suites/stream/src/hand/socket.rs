//! Where programs find a NIC where nothing is said.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use super::Error;

/// The socket in the runtime folder of this person, which is made where it is not there.
///
/// # Errors
/// Where the folder cannot be made, or others could put a socket there.
pub(super) fn usual() -> Result<PathBuf, Error> {
    let user = rustix::process::geteuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("tollgate"),
        None => std::env::temp_dir().join(format!("tollgate-{user}")),
    };
    let refused = |why: &dyn std::fmt::Display| {
        format!(
            "{}: no NIC can be found there ({why}); name another socket with --nic",
            folder.display()
        )
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(refused(&why).into()),
        _ => {}
    }
    let metadata = folder.metadata().map_err(|why| refused(&why))?;
    if metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return Err(refused(&"others may write to it").into());
    }
    Ok(folder.join("nic.sock"))
}
