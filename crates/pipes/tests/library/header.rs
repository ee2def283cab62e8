//! The header: valid in each language, and the same as the library.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use tollgate_pipes::error::Code;

use crate::build::{compiler, libraries, source, succeeds};

#[test]
fn the_header_is_valid_c_and_cpp() {
    let folder = tempfile::tempdir().unwrap();
    for (name, language, standards) in
        [("cc", "c", &["c99", "c11", "c17"][..]), ("c++", "c++", &["c++11", "c++20"])]
    {
        for standard in standards {
            let file = folder.path().join("empty");
            std::fs::write(&file, "#include <tollgate_pipes.h>\n#include <tollgate_pipes.h>\nint main(void) { return tg_error() == 0; }\n").unwrap();
            let standard = format!("-std={standard}");
            let mut command = compiler(name);
            // A file may include the header without using its iterator.
            succeeds(command.args(["-x", language, &standard, "-fsyntax-only"]).arg(file));
        }
    }
}

#[test]
fn the_library_exports_the_functions_of_the_header() {
    let header = std::fs::read_to_string(source("include/tollgate_pipes.h")).unwrap();
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with(' '))
        .filter_map(|line| line[..line.find('(')?].rsplit([' ', '*']).next().map(String::from))
        .collect();
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries().join("libtollgate_pipes.so"))
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> =
        output.lines().filter_map(|line| line.split(' ').nth(2)).map(String::from).collect();
    assert_eq!(declared, exported);
    assert!(declared.contains("tg_pipe_recv"));
    // Python calls each of them; its pipes are objects with attributes, so they need no context.
    let module = std::fs::read_to_string(source("python/tollgate_pipes.py")).unwrap();
    for function in declared.iter().filter(|function| !function.ends_with("_context")) {
        assert!(module.contains(&format!("(\"{function}\", ")), "{function}");
    }
}

#[test]
fn codes_and_layouts_are_those_of_the_header() {
    let codes = [
        ("TG_OK", Code::Ok),
        ("TG_INVALID", Code::Invalid),
        ("TG_NO_HANDLE", Code::NoHandle),
        ("TG_NO_NIC", Code::NoNic),
        ("TG_REFUSED", Code::Refused),
        ("TG_CLOSED", Code::Closed),
        ("TG_FULL", Code::Full),
        ("TG_RANGE", Code::Range),
        ("TG_SYSTEM", Code::System),
        ("TG_INTERNAL", Code::Internal),
    ];
    let mut text = "#include <tollgate_pipes.h>\n".to_owned();
    let mut assert = |what: String| writeln!(text, "_Static_assert({what}, \"differs\");").unwrap();
    for (name, code) in codes {
        assert(format!("{name} == {}", code as i32));
    }
    assert(format!("TG_FLIT == {}", stream::nic::layout::FLIT));
    assert(format!(
        "TG_UDP == {} && TG_TCP == {}",
        stream::wire::frame::UDP,
        stream::wire::frame::TCP
    ));
    assert(format!("sizeof(tg_flow) == {}", size_of::<tollgate_pipes::pipe::TgFlow>()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("codes.c");
    std::fs::write(&file, text).unwrap();
    succeeds(compiler("cc").args(["-std=c11", "-fsyntax-only"]).arg(file));
}
