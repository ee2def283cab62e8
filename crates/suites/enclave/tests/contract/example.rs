//! The example of an allocator with the C header, built and linked as its comment states.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use enclave::error::EcallError;
use enclave::images::{Image, link};
use enclave_interface::Enter;

use super::load;

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles C code to an object, with additional include folders.
fn object(source: &Path, more: &[&Path], folder: &Path) -> PathBuf {
    let object = folder.join(source.with_extension("o").file_name().expect("a file's name"));
    let compiled = Command::new("cc")
        .args([
            "-O2",
            "-ffreestanding",
            "-fPIE",
            "-fno-stack-protector",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(more.iter().chain([&Path::new(INCLUDE)]).flat_map(|folder| [Path::new("-I"), folder]))
        .args([Path::new("-c"), source, Path::new("-o"), &object])
        .status();
    assert!(compiled.expect("cc runs").success(), "{} compiles", source.display());
    object
}

/// Compiles C files to a static library, one object each.
fn library(sources: &[&Path], more: &[&Path], folder: &Path) -> PathBuf {
    let library = folder.join("liballocator.a");
    let objects = sources.iter().map(|source| object(source, more, folder));
    let packed = Command::new("ar").arg("rcs").arg(&library).args(objects).status();
    assert!(packed.expect("ar runs").success(), "{sources:?} become a library");
    library
}

/// Returns the example's image after a change to its source, with more code in a separate object, which may include
/// the headers of the built-in allocators.
pub(crate) fn changed(change: impl FnOnce(String) -> String, more: &str) -> Image {
    let folder = tempfile::tempdir().expect("a folder");
    let example =
        std::fs::read_to_string(Path::new(INCLUDE).join("example.c")).expect("the example");
    let sources = [folder.path().join("changed.c"), folder.path().join("more.c")];
    std::fs::write(&sources[0], change(example)).expect("written");
    std::fs::write(&sources[1], format!("#include \"tollgate_allocator.h\"\n{more}\n"))
        .expect("written");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("inside/image/system");
    let library = library(&[&sources[0], &sources[1]], &[&headers], folder.path());
    let bytes = link(&library, folder.path()).expect("it links");
    Image { allocator: "changed", bytes: Vec::leak(bytes), wasm: None }
}

/// Removes the optional function from the example.
fn without_mallinfo(text: String) -> String {
    text.split_once("/* Optional.").expect("it is the last").0.to_owned()
}

#[test]
fn an_optional_function_may_be_absent_or_in_a_separate_object() {
    if !super::simulates("an allocator without mallinfo") {
        return;
    }
    let absent = load(&changed(without_mallinfo, ""), 64);
    assert_eq!([0, 1, 2].map(|which| absent.mallinfo(which)), [Ok(u64::MAX); 3]);
    let more = "int tollgate_allocator_mallinfo(struct tollgate_mallinfo *info) {
        info->current = 5, info->peak = 6, info->max_heap_size = 7;
        return 0;
    }";
    let apart = load(&changed(without_mallinfo, more), 64);
    assert_eq!(
        [0, 1, 2, 3].map(|which| apart.mallinfo(which)),
        [Ok(5), Ok(6), Ok(7), Ok(u64::MAX)]
    );
}

#[test]
fn an_allocator_cleans_up_once_when_its_enclave_is_dropped_but_not_after_a_fault() {
    static CLEANED: AtomicU32 = AtomicU32::new(0);
    if !super::simulates("how often an allocator cleans up") {
        return;
    }
    // The allocator has no system, but it can access this process's memory.
    let body = format!("{{ ++*(volatile unsigned *){:p}; }}", CLEANED.as_ptr());
    let cleanup = "void tollgate_allocator_cleanup(void) ";
    let image =
        changed(|text| text.replace(&format!("{cleanup}{{}}"), &format!("{cleanup}{body}")), "");
    let enclave = load(&image, 64);
    assert_eq!((enclave.enclave_thread(1000, 1000, 1, 0), CLEANED.load(SeqCst)), (Ok(0), 0));
    drop(enclave);
    assert_eq!(CLEANED.load(SeqCst), 1);
    let enclave = load(&image, 64);
    assert!(matches!(enclave.misbehave(3), Err(EcallError::Fault { .. })));
    assert_eq!(enclave.malloc(1), Err(EcallError::Aborting));
    drop(enclave);
    assert_eq!(CLEANED.load(SeqCst), 1, "a lock may be held");
}

/// Returns the example's image.
pub(crate) fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let library = library(&[&Path::new(INCLUDE).join("example.c")], &[], folder.path());
        let bytes = link(&library, folder.path()).expect("it links");
        Image { allocator: "example", bytes: Vec::leak(bytes), wasm: None }
    })
}

/// Returns the error of linking the example after a change to its source.
fn refused(change: impl FnOnce(String) -> String) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let example =
        std::fs::read_to_string(Path::new(INCLUDE).join("example.c")).expect("the example");
    let source = folder.path().join("changed.c");
    std::fs::write(&source, change(example)).expect("written");
    let library = library(&[&source], &[], folder.path());
    let error = link(&library, folder.path()).expect_err("it does not link");
    assert!(error.why.contains("does not link to an image"), "{error}");
    error.why
}

#[test]
fn an_incomplete_library_is_refused_with_the_missing_function() {
    for name in
        ["thread_init", "cleanup", "malloc", "aligned_alloc", "posix_memalign", "usable_size"]
    {
        // All uses are renamed too, so that the example still compiles.
        let (wanted, other) =
            (format!("tollgate_allocator_{name}("), format!("somewhere_else_{name}("));
        let message = refused(|text| {
            let declared = text.replace(&wanted, &other);
            let header = "#include \"tollgate_allocator.h\"\n";
            declared.replace(header, &format!("{header}{}", declaration(name, &other)))
        });
        assert!(message.contains(&format!("it lacks `tollgate_allocator_{name}'")), "{message}");
    }
}

/// Returns the header's declaration of a function, under another name.
fn declaration(name: &str, other: &str) -> String {
    let header = std::fs::read_to_string(Path::new(INCLUDE).join("tollgate_allocator.h"))
        .expect("the header");
    let wanted = format!("tollgate_allocator_{name}(");
    let line = header.lines().find(|line| line.contains(&wanted)).expect("it is declared");
    format!("{}\n", line.replace(&wanted, other))
}

#[test]
fn an_allocator_that_needs_a_system_is_refused() {
    let message = refused(|text| {
        let init = "void tollgate_allocator_cleanup(void) {}";
        text.replace(init, "int getpid(void);\nvoid tollgate_allocator_cleanup(void) { getpid(); }")
    });
    assert!(message.contains("it lacks `getpid'"), "{message}");
}

#[test]
fn a_missing_library_is_named() {
    let error =
        link(Path::new("/nowhere/liballocator.a"), Path::new("/nowhere")).expect_err("not there");
    assert!(error.why.starts_with("/nowhere/liballocator.a: "), "{error}");
}
