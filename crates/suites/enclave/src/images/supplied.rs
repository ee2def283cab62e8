//! User-supplied allocators: levels that are the path of a static library. Its image is an artefact, linked once for
//! each content of the library.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use lab::artefact::Recipe;
use lab::sample::Failure;
use lab::suite::UsageError;

use super::{IMAGE, INSIDE, Image, link_by, read, unreadable};

/// Returns whether a level is a path and not a name.
pub fn is_path(allocator: &str) -> bool {
    allocator.strip_suffix(".a").is_some_and(|before| !before.is_empty() && !before.ends_with('/'))
}

/// Checks that a path of the command line is a static library, before anything is linked.
///
/// # Errors
/// Returns a usage error with the path as given.
pub fn check(library: &str) -> Result<(), UsageError> {
    const MAGIC: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];
    let why = match read(Path::new(library)) {
        Ok(content) if MAGIC.iter().any(|magic| content.starts_with(magic)) => return Ok(()),
        Ok(_) => "not a static library".to_owned(),
        Err(why) => why.to_string(),
    };
    let line = format!("--allocators: {library}: {why}; give a static library made by ar");
    Err(UsageError::new(line))
}

/// Returns the recipe of a library's image.
pub fn recipe(library: &str) -> Recipe {
    // A library that cannot be read is an error of the recipe.
    let content = read(Path::new(library)).unwrap_or_default();
    Recipe {
        name: artefact(library),
        inputs: vec![library.into(), content, INSIDE.into()],
        make: |recipe, folder| {
            let library = String::from_utf8_lossy(&recipe.inputs[0]);
            let library = Path::new(&*library);
            // Links exactly the content that was hashed, because the file may have changed since.
            let linked = match recipe.inputs[1].as_slice() {
                [] => Err(empty(library)),
                content => link_by("cc", library, content, folder),
            };
            linked.map(drop)
        },
    }
}

/// The failure of a library of which nothing was read.
fn empty(library: &Path) -> Failure {
    let why = read(library).err();
    unreadable(library, &why.unwrap_or_else(|| io::Error::other("it was empty when it was read")))
}

/// Returns the artefact's name, which must not contain the path's slashes.
pub fn artefact(library: &str) -> String {
    let path = Recipe { name: library.into(), inputs: Vec::new(), make: |_, _| Ok(()) };
    format!("enclave-image-{}", path.hash())
}

/// Returns the image in an artefact's folder. It is read once and stays in memory as long as the process.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn image(library: &str, folder: &Path) -> Result<&'static Image, Failure> {
    static READ: LazyLock<Mutex<BTreeMap<String, &'static Image>>> = LazyLock::new(Mutex::default);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let file = folder.join(IMAGE).display().to_string();
    if let Some(image) = read.get(&file) {
        return Ok(image);
    }
    let bytes = std::fs::read(&file).map_err(|why| Failure::failed(format!("{file}: {why}")))?;
    let allocator = String::leak(library.to_owned());
    let image = &*Box::leak(Box::new(Image { allocator, bytes: Vec::leak(bytes), wasm: None }));
    read.insert(file, image);
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_a_name() {
        for path in ["./libmine.a", "libmine.a", "/opt/my allocators/libmine.a", "../x.a"] {
            assert!(is_path(path), "{path}");
        }
        for other in ["dlmalloc", ".a", "./.a", "libmine.so", ""] {
            assert!(!is_path(other), "{other}");
        }
    }

    #[test]
    fn an_artefact_depends_on_the_librarys_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        let path = file.to_str().unwrap();
        let hash = |content: &str| {
            std::fs::write(&file, content).unwrap();
            recipe(path).hash()
        };
        let (one, other, again) = (hash("one"), hash("other"), hash("one"));
        assert!(one == again && one != other);
        assert!(artefact(path) != artefact("libmine.a") && !artefact(path).contains('/'));
    }

    #[test]
    fn an_invalid_library_is_reported_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        let path = file.to_str().unwrap();
        let why = |path: &str| check(path).unwrap_err().to_string();
        assert!(why(path).contains(&format!("{path}: No such file")), "{}", why(path));
        assert!(check(folder.path().to_str().unwrap()).is_err());
        std::fs::write(&file, "some text\n").unwrap();
        assert!(why(path).contains(&format!("{path}: not a static library")), "{}", why(path));
        std::fs::write(&file, "!<arch>\n").unwrap();
        check(path).unwrap();
    }

    #[test]
    fn the_linked_content_is_the_hashed_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        std::fs::write(&file, "!<arch>\n").unwrap();
        let empty_archive = recipe(file.to_str().unwrap());
        std::fs::write(&file, "no library").unwrap();
        let message = (empty_archive.make)(&empty_archive, folder.path()).unwrap_err().to_string();
        assert!(message.contains("it lacks `tollgate_allocator_"), "{message}");
        assert_eq!(std::fs::read(&file).unwrap(), b"no library");
    }
}
