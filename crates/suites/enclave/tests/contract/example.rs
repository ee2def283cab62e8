//! The example of an allocator by the C header, built and linked as its own first lines say.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use enclave::images::{Image, LinkError, link};

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles C code to a static library.
fn library(source: &Path, folder: &Path) -> PathBuf {
    let (object, library) = (folder.join("allocator.o"), folder.join("liballocator.a"));
    let compiled = Command::new("cc")
        .args([
            "-O2",
            "-ffreestanding",
            "-fPIE",
            "-fno-stack-protector",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
        ])
        .args([Path::new(INCLUDE), Path::new("-c"), source, Path::new("-o"), &object])
        .status();
    assert!(compiled.expect("cc runs").success(), "{} compiles", source.display());
    let packed = Command::new("ar").arg("rcs").args([&library, &object]).status();
    assert!(packed.expect("ar runs").success(), "{} becomes a library", source.display());
    library
}

/// The example's image.
pub(crate) fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let library = library(&Path::new(INCLUDE).join("example.c"), folder.path());
        let bytes = link(&library, folder.path()).expect("it links");
        Image { allocator: "example", bytes: Vec::leak(bytes) }
    })
}

/// What linking the example says when its text is changed before.
fn refused(change: impl FnOnce(String) -> String) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let example =
        std::fs::read_to_string(Path::new(INCLUDE).join("example.c")).expect("the example");
    let source = folder.path().join("changed.c");
    std::fs::write(&source, change(example)).expect("written");
    let library = library(&source, folder.path());
    let error = link(&library, folder.path()).expect_err("it does not link");
    assert!(matches!(error, LinkError::Incomplete { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_partial_set_is_refused_by_name() {
    for name in
        ["thread_init", "cleanup", "malloc", "aligned_alloc", "posix_memalign", "usable_size"]
    {
        // All uses go elsewhere with it, so that the example still compiles.
        let (wanted, other) =
            (format!("tollgate_allocator_{name}("), format!("somewhere_else_{name}("));
        let said = refused(|text| {
            let declared = text.replace(&wanted, &other);
            let header = "#include \"tollgate_allocator.h\"\n";
            declared.replace(header, &format!("{header}{}", declaration(name, &other)))
        });
        assert!(said.contains(&format!("it lacks `tollgate_allocator_{name}'")), "{said}");
    }
}

/// The header's declaration of a function, under another name.
fn declaration(name: &str, other: &str) -> String {
    let header = std::fs::read_to_string(Path::new(INCLUDE).join("tollgate_allocator.h"))
        .expect("the header");
    let wanted = format!("tollgate_allocator_{name}(");
    let line = header.lines().find(|line| line.contains(&wanted)).expect("it is declared");
    format!("{}\n", line.replace(&wanted, other))
}

#[test]
fn an_allocator_that_needs_a_system_is_refused() {
    let said = refused(|text| {
        let init = "void tollgate_allocator_cleanup(void) {}";
        text.replace(init, "int getpid(void);\nvoid tollgate_allocator_cleanup(void) { getpid(); }")
    });
    assert!(said.contains("it lacks `getpid'"), "{said}");
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let error =
        link(Path::new("/nowhere/liballocator.a"), Path::new("/nowhere")).expect_err("not there");
    assert!(error.to_string().starts_with("/nowhere/liballocator.a: "), "{error}");
}
