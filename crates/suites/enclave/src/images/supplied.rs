//! A person's own allocator: a level that is the path of a static library. Its image is an artefact, linked once
//! for what the library holds.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use lab::artefact::Recipe;
use lab::sample::Failure;
use lab::suite::UsageError;

use super::Image;
use super::link::{self, INSIDE, link_by, read};

/// Whether a level is a path and no name.
pub fn is_path(allocator: &str) -> bool {
    allocator.strip_suffix(".a").is_some_and(|before| !before.is_empty() && !before.ends_with('/'))
}

/// Checks that a library of the command line is a static library, before anything is made of it.
///
/// # Errors
/// Names the path as it was given.
pub fn check(library: &str) -> Result<(), UsageError> {
    const MAGIC: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];
    let why = match read(Path::new(library)) {
        Ok(content) if MAGIC.iter().any(|magic| content.starts_with(magic)) => return Ok(()),
        Ok(_) => "is no static library".to_owned(),
        Err(why) => why.to_string(),
    };
    let line = format!("--allocators: {library}: {why}; give a static library that ar made");
    Err(UsageError::new(line))
}

/// How the image of a library is made.
pub fn recipe(library: &str) -> Recipe {
    // A library that cannot be read is an error of making.
    let holds = read(Path::new(library)).unwrap_or_default();
    Recipe {
        name: artefact(library),
        inputs: vec![library.into(), holds, INSIDE.into()],
        make: |recipe, folder| {
            let library = String::from_utf8_lossy(&recipe.inputs[0]);
            let library = Path::new(&*library);
            // What is linked must be what the hash was made of: the file may have changed since.
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
    link::unreadable(
        library,
        &why.unwrap_or_else(|| io::Error::other("it was empty when it was read")),
    )
}

/// The artefact's name, which is one of a file: a path is none.
pub fn artefact(library: &str) -> String {
    let path = Recipe { name: library.into(), inputs: Vec::new(), make: |_, _| Ok(()) };
    format!("enclave-image-{}", path.hash())
}

/// The image in an artefact's folder. It stays in memory for as long as the process, read once.
///
/// # Errors
/// It cannot be read.
pub fn image(library: &str, folder: &Path) -> Result<&'static Image, Failure> {
    static READ: LazyLock<Mutex<BTreeMap<String, &'static Image>>> = LazyLock::new(Mutex::default);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let file = folder.join(link::IMAGE).display().to_string();
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
    fn a_path_is_no_name() {
        for path in ["./libmine.a", "libmine.a", "/opt/my allocators/libmine.a", "../x.a"] {
            assert!(is_path(path), "{path}");
        }
        for other in ["dlmalloc", ".a", "./.a", "libmine.so", ""] {
            assert!(!is_path(other), "{other}");
        }
    }

    #[test]
    fn an_artefact_is_of_what_the_library_holds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        let path = file.to_str().unwrap();
        let hash = |holds: &str| {
            std::fs::write(&file, holds).unwrap();
            recipe(path).hash()
        };
        let (one, other, again) = (hash("one"), hash("other"), hash("one"));
        assert!(one == again && one != other);
        assert!(artefact(path) != artefact("libmine.a") && !artefact(path).contains('/'));
    }

    #[test]
    fn what_is_no_static_library_is_told_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        let path = file.to_str().unwrap();
        let why = |path: &str| check(path).unwrap_err().to_string();
        assert!(why(path).contains(&format!("{path}: No such file")), "{}", why(path));
        assert!(check(folder.path().to_str().unwrap()).is_err());
        std::fs::write(&file, "some text\n").unwrap();
        assert!(why(path).contains(&format!("{path}: is no static library")), "{}", why(path));
        std::fs::write(&file, "!<arch>\n").unwrap();
        check(path).unwrap();
    }

    #[test]
    fn what_is_linked_is_what_was_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libmine.a");
        std::fs::write(&file, "!<arch>\n").unwrap();
        let empty_archive = recipe(file.to_str().unwrap());
        std::fs::write(&file, "no library").unwrap();
        let told = (empty_archive.make)(&empty_archive, folder.path()).unwrap_err().to_string();
        assert!(told.contains("it lacks `tollgate_allocator_"), "{told}");
        assert_eq!(std::fs::read(&file).unwrap(), b"no library");
    }
}
