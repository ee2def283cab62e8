//! Artefacts: what takes long to make is made once a host, outside all samples, in a cache
//! addressed by the hash of its inputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sample::Failure;

/// How to make an artefact.
#[derive(Clone)]
pub struct Recipe {
    /// The name by which a probe asks for it.
    pub name: String,
    /// All that the result depends on: sources, compiler version, options.
    pub inputs: Vec<Vec<u8>>,
    /// Makes it in an empty folder.
    pub make: fn(&Recipe, &Path) -> Result<(), Failure>,
}

impl Recipe {
    /// The hash of its name and inputs, which addresses it in the cache.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for input in
            std::iter::once(self.name.as_bytes()).chain(self.inputs.iter().map(Vec::as_slice))
        {
            hasher.update(&(input.len() as u64).to_le_bytes()).update(input);
        }
        hasher.finalize().to_hex()[..16].to_string()
    }
}

/// Where prepared artefacts lie by name, or why they could not be made.
pub type Artefacts = BTreeMap<String, Result<PathBuf, Failure>>;

/// Where a prepared artefact lies.
///
/// # Errors
/// Why it could not be made.
pub fn find<'a>(made: &'a Artefacts, name: &str) -> Result<&'a Path, Failure> {
    match made.get(name) {
        Some(Ok(path)) => Ok(path),
        Some(Err(failure)) => Err(failure.clone()),
        None => Err(Failure::failed(format!("no recipe was given for the artefact '{name}'"))),
    }
}

/// Where artefacts are kept: `tollgate` in the person's cache folder.
pub fn cache() -> PathBuf {
    let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    own.or_else(home).unwrap_or_else(std::env::temp_dir).join("tollgate")
}

/// The folder of an artefact, made now if it is not in the cache.
///
/// # Errors
/// When it cannot be made; nothing half-made stays in the cache.
pub fn prepare(recipe: &Recipe) -> Result<PathBuf, Failure> {
    prepare_in(&cache(), recipe)
}

fn prepare_in(cache: &Path, recipe: &Recipe) -> Result<PathBuf, Failure> {
    let place = cache.join(format!("{}-{}", recipe.name, recipe.hash()));
    if place.is_dir() {
        return Ok(place);
    }
    let fault = |what: &str, e: std::io::Error| {
        Failure::failed(format!("artefact '{}': {what} {}: {e}", recipe.name, cache.display()))
    };
    let making = cache.join(format!(".making-{}-{}", recipe.name, std::process::id()));
    let _ = fs::remove_dir_all(&making);
    fs::create_dir_all(&making).map_err(|e| fault("cannot make a folder in", e))?;
    let made = (recipe.make)(recipe, &making);
    if let Err(failure) = made {
        let _ = fs::remove_dir_all(&making);
        return Err(failure);
    }
    match fs::rename(&making, &place) {
        Ok(()) => Ok(place),
        // Another worker made the same at the same time; both are equal.
        Err(_) if place.is_dir() => {
            fs::remove_dir_all(&making).map(|()| place).map_err(|e| fault("cannot clean up in", e))
        }
        Err(e) => Err(fault("cannot keep it in", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static MADE: AtomicUsize = AtomicUsize::new(0);

    fn recipe(input: &str) -> Recipe {
        Recipe {
            name: "table".into(),
            inputs: vec![input.into()],
            make: |recipe, folder| {
                MADE.fetch_add(1, Ordering::SeqCst);
                if recipe.inputs[0] == b"bad" {
                    return Err(Failure::failed("no compiler"));
                }
                fs::write(folder.join("table"), &recipe.inputs[0]).map_err(Failure::from)
            },
        }
    }

    #[test]
    fn an_artefact_is_made_once_for_its_inputs() {
        let cache = tempfile::tempdir().unwrap();
        let one = prepare_in(cache.path(), &recipe("one")).unwrap();
        let again = prepare_in(cache.path(), &recipe("one")).unwrap();
        let two = prepare_in(cache.path(), &recipe("two")).unwrap();
        assert_eq!(one, again);
        assert_ne!(one, two);
        assert_eq!(fs::read(two.join("table")).unwrap(), b"two");
        assert_eq!(MADE.load(Ordering::SeqCst), 2);
        assert!(prepare_in(cache.path(), &recipe("bad")).is_err());
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2, "nothing half-made stays");
    }
}
