use std::process::Command;

use proptest::prelude::*;

use super::{all, outside};

/// Reads a number of `length` bytes from a file.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the program headers: type, flags, offset, address, length in the file.
fn segments(image: &[u8]) -> Vec<[u64; 5]> {
    let (start, size, count) = (number(image, 32, 8), number(image, 54, 2), number(image, 56, 2));
    (0..count)
        .map(|at| (start + at * size) as usize)
        .map(|at| {
            [(at, 4), (at + 4, 4), (at + 8, 8), (at + 16, 8), (at + 32, 8)]
                .map(|(at, length)| number(image, at, length))
        })
        .collect()
}

/// Returns the file offset of an address of the image.
fn offset(image: &[u8], address: u64) -> usize {
    let within = |[kind, _, _, start, length]: &[u64; 5]| {
        *kind == 1 && (*start..start + length).contains(&address)
    };
    let segment = segments(image).into_iter().find(within).expect("an address in the file");
    (address - segment[3] + segment[2]) as usize
}

/// Returns the entries of the dynamic section.
fn dynamic(image: &[u8]) -> Vec<(u64, u64)> {
    let [_, _, offset, _, length] =
        segments(image).into_iter().find(|s| s[0] == 2).expect("PT_DYNAMIC");
    (offset..offset + length)
        .step_by(16)
        .map(|at| (number(image, at as usize, 8), number(image, at as usize + 8, 8)))
        .take_while(|(tag, _)| *tag != 0)
        .collect()
}

#[test]
fn every_allocator_has_an_image() {
    let names: Vec<_> = all().iter().map(|image| image.allocator).collect();
    for name in [
        "buddy",
        "dlmalloc",
        "dlmalloc-wait",
        "jemalloc",
        "mimalloc",
        "rlsf",
        "rpmalloc",
        "snmalloc",
        "talc",
    ] {
        assert!(names.contains(&name), "{name} among {names:?}");
    }
}

#[test]
fn images_are_self_contained() {
    for image in all() {
        let (name, bytes) = (image.allocator, image.bytes);
        assert_eq!(bytes[..6], *b"\x7fELF\x02\x01", "{name}");
        assert_eq!(
            (number(bytes, 16, 2), number(bytes, 18, 2)),
            (3, 62),
            "{name}: ET_DYN for x86-64"
        );
        assert!(
            segments(bytes).iter().all(|segment| segment[0] != 3),
            "{name} asks for an interpreter"
        );
        let entries = dynamic(bytes);
        assert!(entries.iter().all(|(tag, _)| *tag != 1), "{name} needs a library");
        let entry =
            |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map_or(0, |(_, value)| *value);
        let (rela, length) = (offset(bytes, entry(7)), entry(8) as usize);
        assert!(length > 0, "{name} has relocations");
        for at in (rela..rela + length).step_by(24) {
            assert_eq!(
                number(bytes, at + 8, 8),
                8,
                "{name}: a relocation that is not R_X86_64_RELATIVE"
            );
        }
    }
}

/// The length of a path would move the data after it.
#[test]
fn no_image_depends_on_the_folder_of_its_sources() {
    let here = env!("CARGO_MANIFEST_DIR").as_bytes();
    for image in all() {
        let has = |path: &[u8]| image.bytes.windows(path.len()).any(|bytes| bytes == path);
        assert!(!has(here) && !has(b"/registry/src/"), "{}", image.allocator);
    }
}

#[test]
fn the_only_system_call_is_the_forbidden_one() {
    for image in all() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), image.bytes).expect("written");
        let read =
            Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(file.path()).output();
        // Binutils come with the linker that built the image.
        let listing = String::from_utf8(read.expect("objdump runs").stdout).expect("text");
        let mut section = "";
        let mut found = Vec::new();
        for line in listing.lines() {
            section = line.strip_prefix("Disassembly of section ").unwrap_or(section);
            let mut words = line.split_ascii_whitespace().skip(1);
            if words.any(|word| ["syscall", "sysenter", "int"].contains(&word)) {
                found.push(section);
            }
        }
        assert_eq!(found, ["forbidden:"], "{}", image.allocator);
    }
}

/// Returns the instructions of the sample's loop, from the generator's last step to the two calls of the allocator,
/// without the targets of jumps and calls and the addresses of variables, which differ.
fn the_loop(image: &[u8]) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), image).expect("written");
    let read = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(file.path()).output();
    let listing = String::from_utf8(read.expect("objdump runs").stdout).expect("text");
    // The loop is the first user of the generator.
    let of_the_loop = listing.lines().skip_while(|line| !line.contains("$0x94d049bb133111eb"));
    let instruction = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = line.split_ascii_whitespace().skip(1).collect();
        let goes = words[0].starts_with('j') || words[0] == "call" || line.contains("(%rip)");
        if goes { words[0].to_owned() } else { words.join(" ") }
    };
    of_the_loop.take(95).map(instruction).collect()
}

#[test]
fn the_loop_is_the_same_outside() {
    let inside = the_loop(super::find("dlmalloc").expect("dlmalloc is built in").bytes);
    assert!(
        inside.iter().any(|line| line.starts_with("cmp $0xf")),
        "the queue's length: {inside:?}"
    );
    assert!(inside.iter().filter(|line| *line == "call").count() >= 3, "{inside:?}");
    for library in outside() {
        assert_eq!(the_loop(library.bytes), inside, "{}", library.allocator);
    }
}

#[test]
fn a_missing_linker_is_reported_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libmine.a");
    std::fs::write(&library, "!<arch>\n").expect("written");
    let linked = super::link_by("no-such-cc", &library, b"!<arch>\n", folder.path());
    let message = linked.expect_err("there is none").why;
    assert!(
        message.starts_with("cc, linking ") && message.contains("install a C compiler"),
        "{message}"
    );
    assert!(!message.contains('\n'));
}

#[test]
fn an_invalid_library_is_reported_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libmine.a");
    // Neither a FIFO, which has no end, nor a folder is read.
    let fifo = folder.path().join("fifo.a");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    for no_file in [fifo.as_path(), folder.path()] {
        let message = super::link(no_file, folder.path()).expect_err("no file").why;
        assert!(
            message.contains("give the path of a static library") && !message.contains('\n'),
            "{message}"
        );
    }
    for (content, why) in
        [("!<arch>\n", "it lacks `tollgate_allocator_"), ("no library", "libmine.a")]
    {
        std::fs::write(&library, content).expect("written");
        let message = super::link(&library, folder.path()).expect_err("no allocator").why;
        assert!(message.contains(why) && !message.contains('\n'), "{message}");
        assert!(
            message.ends_with("define all of tollgate_allocator.h, and use nothing else"),
            "{message}"
        );
    }
}

/// Returns an archive of one member with the given header fields.
fn archive(member: &str, size: &str, content: &[u8]) -> Vec<u8> {
    let header = format!("!<arch>\n{member:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
    [header.as_bytes(), content].concat()
}

proptest! {
    // The linker runs for each case.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(32)))]

    #[test]
    fn every_link_error_is_one_line(
        member in "[!-~]{1,16}", size in "[0-9]{1,10}", content in proptest::collection::vec(any::<u8>(), 0..200),
        whole: bool,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("libmine.a");
        let bytes = if whole { archive(&member, &size, &content) } else { content };
        std::fs::write(&library, bytes).expect("written");
        let message = super::link(&library, folder.path()).expect_err("no allocator").why;
        prop_assert!(message.contains("libmine.a") && !message.contains('\n'), "{}", message);
    }
}

proptest! {
    #[test]
    fn any_text_is_an_allocator_or_refused_in_one_line(text in ".*|[./a-z ]{0,12}(\\.a)?") {
        match crate::params::allocator(&text) {
            Ok(level) => prop_assert_eq!(level, text),
            Err(why) => prop_assert!(why.contains("expected one of"), "{}", why),
        }
    }
}
