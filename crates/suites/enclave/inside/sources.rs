//! Lookup of the sources of packages that are compiled with custom flags.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The metadata of the locked packages.
pub struct Sources(String);

impl Sources {
    /// Runs `cargo metadata`.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        let metadata = Command::new(env::var("CARGO")?)
            .args(["metadata", "--locked", "--format-version", "1"])
            .output()?;
        if !metadata.status.success() {
            return Err(String::from_utf8_lossy(&metadata.stderr).into());
        }
        Ok(Self(String::from_utf8(metadata.stdout)?))
    }

    /// Returns the folder in which cargo stores the sources of a package.
    pub fn of(&self, package: &str) -> Result<PathBuf, Box<dyn Error>> {
        self.0
            .split('"')
            .map(Path::new)
            .filter(|path| path.is_absolute() && path.ends_with("Cargo.toml"))
            .filter_map(Path::parent)
            .find(|folder| {
                folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(package))
            })
            .map(Path::to_path_buf)
            .ok_or_else(|| format!("cargo metadata names no sources of {package}").into())
    }
}
