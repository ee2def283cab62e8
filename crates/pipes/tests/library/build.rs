//! Programs in C, C++, Python and Rust, and the library that they use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Warnings that the header must not cause.
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Returns a file of this crate.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns the folder in which cargo has put the libraries, next to this program.
pub(crate) fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Runs a command that must succeed without a warning.
pub(crate) fn succeeds(command: &mut Command) {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
}

/// Returns a compiler's command with the header's folder.
pub(crate) fn compiler(name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(WARNINGS).arg("-O2").arg("-I").arg(source("include"));
    command
}

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Link {
    Static,
    Dynamic,
}

/// Compiles a program in C into a folder.
pub(crate) fn c_program(folder: &Path, name: &str, link: Link) -> PathBuf {
    let program =
        folder.join(format!("{}-{link:?}", Path::new(name).file_stem().unwrap().to_str().unwrap()));
    let mut command = compiler("cc");
    command
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-pthread", "-o"])
        .arg(&program)
        .arg(source(name));
    match link {
        Link::Static => command.arg(libraries().join("libtollgate_pipes.a")),
        Link::Dynamic => {
            let rpath = format!("-Wl,-rpath,{}", libraries().display());
            command.arg("-L").arg(libraries()).args(["-ltollgate_pipes", &rpath])
        }
    };
    succeeds(command.args(["-ldl", "-lm"]));
    program
}

/// Compiles the example in C into a folder by the command of docs/library.md.
pub(crate) fn documented_c_program(folder: &Path) -> PathBuf {
    let page = std::fs::read_to_string(source("../../docs/library.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("cc ")).unwrap();
    let paths = [
        ("crates/pipes/include", source("include")),
        ("target/release", libraries()),
        ("echo.c", source("examples/echo.c")),
        ("-o echo", Path::new("-o echo").into()),
    ];
    let line = paths.iter().fold(line.to_owned(), |line, (name, path)| {
        assert!(line.contains(name), "no {name} in: {line}");
        line.replace(name, path.to_str().unwrap())
    });
    succeeds(Command::new("sh").args(["-c", &line]).current_dir(folder));
    folder.join("echo")
}

/// Returns the command of a program in Python with the module of this crate; `None`, with a record, without Python.
pub(crate) fn python(name: &str) -> Option<Command> {
    let mut command = Command::new("python3");
    if command.arg("--version").output().is_err() {
        machine::untested::note("programs in Python with a NIC", &"requires python3");
        return None;
    }
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", source("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TOLLGATE_PIPES", libraries().join("libtollgate_pipes.so")).arg(source(name));
    Some(command)
}

/// Returns the example in Rust, which cargo has compiled.
pub(crate) fn rust_example(name: &str) -> PathBuf {
    let program = libraries().parent().unwrap().join("examples").join(name);
    assert!(
        program.exists(),
        "{}: run all tests of the package, or with --examples",
        program.display()
    );
    program
}
