//! Bundles: one file with a run and everything that follows from it, for evaluators of artefacts.
//!
//! A bundle is a zip archive that is an RO-Crate. The same entries give the same bytes, because names are sorted and times
//! and permissions are fixed. [`MANIFEST`] lists the SHA-256 digest of every other entry.

mod archive;
mod check;
mod claim;
mod code;
mod comparison;
mod listing;
mod metadata;
mod program;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::format;
use lab::schema::JsonOutput;
use machine::environment::Environment;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use check::{Checked, check, open_run};
pub use claim::BundleClaims;
pub use code::{CodeSources, MethodCode, NO_FUNCTION, add_code, measuring_hashes};
pub use metadata::{Author, Crate};
pub use program::Program;

/// Name of the RO-Crate's metadata.
pub const METADATA: &str = "ro-crate-metadata.json";
/// Name of the list of digests, in the format of `sha256sum`.
pub const MANIFEST: &str = "manifest-sha256.txt";
/// Name of the verdicts with their claims.
pub const CLAIMS: &str = "claims.json";
/// Name of the values and intervals of every point.
pub const VALUES: &str = "values.json";
/// Name of the page of results.
pub const PAGE: &str = "report.html";
/// Name of the environments.
pub const ENVIRONMENTS: &str = "environments.json";
/// Name of the program that verifies the others.
pub const VERIFIER: &str = "verify.py";

/// Environments of a bundle: machines, kernels, settings and programs of its samples.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BundleEnvironments<'a> {
    /// Environments by their IDs, which samples name.
    pub environments: &'a BTreeMap<String, Environment>,
}

impl JsonOutput for BundleEnvironments<'_> {
    const NAME: &'static str = "bundle-environments";
    const WRITTEN_BY: &'static str = "environments.json of a bundle";
    const VERSION: u64 = 1;
}

/// Why a bundle cannot be read or written, in one line.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A system call failed.
    #[error("{}: {error}; {remedy}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file is not a bundle, is damaged, or may harm its reader.
    #[error("{}: {what}; name a file of 'tollgate bundle', or get it again from its source", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// The journal in the bundle cannot be read.
    #[error("{}: {why}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The error of the journal.
        why: String,
    },
    /// An entry cannot be made.
    #[error("bundle: {0}; report this as a defect")]
    Entry(String),
}

/// A file in a bundle.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Content.
    pub bytes: Vec<u8>,
    /// Description in one sentence.
    pub about: String,
}

/// Files of a bundle by name.
#[derive(Debug, Clone, Default)]
pub struct Entries(pub BTreeMap<String, Entry>);

impl Entries {
    /// Adds a file.
    pub fn add(&mut self, name: impl Into<String>, about: impl Into<String>, bytes: Vec<u8>) {
        self.0.insert(name.into(), Entry { bytes, about: about.into() });
    }

    /// Adds a file of JSON.
    ///
    /// # Errors
    /// Returns an error if the value is no JSON, e.g. because a key is not a text.
    pub fn add_json(
        &mut self,
        name: &str,
        about: &str,
        value: &impl serde::Serialize,
    ) -> Result<(), BundleError> {
        let bytes = serde_json::to_vec_pretty(value)
            .map_err(|why| BundleError::Entry(format!("{name}: {why}")))?;
        self.add(name, about, bytes);
        Ok(())
    }

    /// Returns the bytes of the archive: adds the metadata and the list of digests.
    ///
    /// # Errors
    /// Returns an error if the archive is larger than the format permits.
    pub fn archive(mut self, of: &Crate<'_>) -> Result<Vec<u8>, BundleError> {
        let metadata = of.metadata(&self);
        self.add_json(METADATA, "Description of this RO-Crate", &metadata)?;
        let lines = self.0.iter().map(|(name, one)| format!("{}  {name}\n", digest(&one.bytes)));
        let manifest = lines.collect::<String>().into_bytes();
        self.add(MANIFEST, "SHA-256 digests of the other files", manifest);
        let entries = self.0.iter().map(|(name, entry)| (name.as_str(), entry.bytes.as_slice()));
        archive::write(entries).map_err(|why| BundleError::Entry(why.to_string()))
    }
}

/// Returns the SHA-256 digest in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(Sha256::new_with_prefix(bytes))
}

/// Returns the digest of what was hashed, in hexadecimal.
fn hexadecimal(hasher: Sha256) -> String {
    format::hexadecimal(&hasher.finalize())
}

/// Returns whether a path names a file, which is then a bundle, and not a folder of runs.
pub fn is_bundle(path: &Path) -> bool {
    path.is_file()
}
