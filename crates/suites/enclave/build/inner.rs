//! Builds of other packages inside the build of this one.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prefixes of the outer build's environment variables, which would affect the inner build.
const OUTER: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// A package to build.
pub(crate) struct Inner<'a> {
    /// The package's folder.
    pub(crate) package: &'a str,
    /// The selected targets, as options of cargo.
    pub(crate) parts: &'a [&'a str],
    /// The target platform.
    pub(crate) target: &'a str,
    /// The compiler flags.
    pub(crate) flags: &'a [&'a str],
}

impl Inner<'_> {
    /// Builds the package; returns the folder of the outputs.
    pub(crate) fn build(&self, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        self.build_with(folder, |_| {})
    }

    /// As [`Self::build`], with further settings of the command.
    pub(crate) fn build_with(
        &self,
        folder: &Path,
        settings: impl FnOnce(&mut Command),
    ) -> Result<PathBuf, Box<dyn Error>> {
        let mut cargo = Command::new(env::var("CARGO")?);
        for (name, _) in env::vars_os() {
            if OUTER.iter().any(|outer| name.to_string_lossy().starts_with(outer)) {
                cargo.env_remove(name);
            }
        }
        cargo
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags.join("\u{1f}"))
            .args(["build", "--release", "--locked", "--quiet", "--target", self.target])
            .args(self.parts)
            .args(["--manifest-path", &format!("{}/Cargo.toml", self.package), "--target-dir"])
            .arg(folder);
        settings(&mut cargo);
        run(&mut cargo)?;
        Ok(folder.join(self.target).join("release"))
    }
}

/// Runs a command until it ends.
pub(crate) fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let ran = command.output()?;
    if !ran.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(())
}
