//! Instructions that a program executes in user mode, counted by callgrind.
//!
//! Callgrind executes each instruction of the program in an emulated user mode, so the count needs no performance
//! counter and contains nothing else, e.g. no interrupt. MPX instructions count although they do nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::program::{self, Program};
use lab::sample::Failure;
use machine::child;

/// The program with callgrind.
pub(crate) const VALGRIND: Program = Program {
    name: "valgrind",
    capability: "user-instructions",
    about: "counts the user-mode instructions of programs, by callgrind",
    package: "valgrind",
};

/// Functions of a program whose instructions are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted<'a> {
    /// The function, with all functions that it calls.
    pub(crate) function: &'a str,
    /// A function that it calls and that is not counted.
    pub(crate) without: Option<&'a str>,
}

/// Result of a counted run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    /// Standard output of the program.
    pub(crate) output: String,
}

/// Runs a program and counts the instructions of a function. The program must have a symbol for it.
///
/// # Errors
/// Returns `unavailable` if valgrind is not installed, `timeout` if the program does not end within the limit, and
/// `failed` if it fails or does not execute the function.
pub(crate) fn count(
    executable: &Path,
    arguments: &[&str],
    counted: Counted,
    limit: Duration,
) -> Result<Counts, Failure> {
    let mut command = Command::new(VALGRIND.find()?);
    // The user's files and variables must not add options.
    command.args(["--command-line-only=yes", "--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    // Collection is off at the start, and is toggled on entry to and exit from these functions.
    for function in std::iter::once(counted.function).chain(counted.without) {
        command.arg(format!("--toggle-collect={function}"));
    }
    command.arg(executable).args(arguments);
    let name = executable.display();
    let output = program::run(&mut command, &[], limit)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let status = child::describe(output.status);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(Failure::failed(format!("{name} under callgrind {status}: {last}")));
    }
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    match collected(&errors) {
        Some(0) => Err(Failure::failed(format!(
            "{name} under callgrind: no instruction counted in the function '{}'",
            counted.function
        ))),
        Some(instructions) => Ok(Counts { instructions, output }),
        None => Err(Failure::failed(format!("{name}: callgrind reported no count"))),
    }
}

/// Returns the count in callgrind's report, e.g. `==7== Collected : 2002`.
fn collected(report: &str) -> Option<u64> {
    let lines = report.lines().filter(|line| line.starts_with("=="));
    let mut counts = lines.filter_map(|line| line.split_once("Collected :"));
    counts.next_back()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LIMIT: Duration = Duration::from_secs(120);

    /// Runs the test program, which has a loop of 2002 instructions in `counted`, seven of MPX in `mpx`, and a function
    /// `outer` that executes 5 instructions and calls `counted`.
    fn counts(counted: Counted, argument: &str) -> Option<Result<Counts, Failure>> {
        const SOURCE: &str = r#"
            #include <stdio.h>
            #include <stdlib.h>
            void counted(void), mpx(void *), outer(void);
            __asm__(".text\n"
                ".type counted, @function\n counted: mov $1000, %ecx\n 1: dec %ecx\n jnz 1b\n ret\n"
                ".size counted, .-counted\n"
                ".type mpx, @function\n mpx: bndmk 7(%rdi), %bnd0\n bndcl (%rdi), %bnd0\n bndcu (%rdi), %bnd0\n"
                "bndstx %bnd0, (%rdi,%rdi)\n bndldx (%rdi,%rdi), %bnd1\n bndmov %bnd1, %bnd2\n bnd ret\n"
                ".size mpx, .-mpx\n"
                ".type outer, @function\n outer: push %rax\n call counted\n pop %rax\n nop\n ret\n"
                ".size outer, .-outer\n");
            int main(int count, char **arguments) {
                char data[64] __attribute__((aligned(64)));
                outer();
                mpx(data);
                puts(arguments[1]);
                return atoi(arguments[1]);
            }"#;
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program.c");
        fs::write(&source, SOURCE).unwrap();
        let program = folder.path().join("program");
        let mut gcc = Command::new("gcc");
        gcc.arg("-O1").arg(&source).arg("-o").arg(&program);
        let compiled = gcc.output().ok().filter(|output| output.status.success());
        let usable = VALGRIND.find().and_then(|_| {
            compiled.ok_or_else(|| Failure::unavailable("no gcc", "apt-get install gcc"))
        });
        match usable {
            Ok(_) => Some(count(&program, &[argument], counted, LIMIT)),
            Err(why) => {
                machine::untested::note("instructions counted by callgrind", &why);
                None
            }
        }
    }

    fn whole(function: &str) -> Counted<'_> {
        Counted { function, without: None }
    }

    #[test]
    fn a_loop_of_known_length_is_counted_exactly() {
        let Some(result) = counts(whole("counted"), "0") else { return };
        assert_eq!(result, Ok(Counts { instructions: 2002, output: "0\n".into() }));
        let exact = |counted| counts(counted, "0").unwrap().unwrap().instructions;
        assert_eq!(exact(whole("outer")), 5 + 2002);
        assert_eq!(exact(Counted { function: "outer", without: Some("counted") }), 5);
        assert_eq!(exact(whole("mpx")), 7);
    }

    #[test]
    fn a_failed_program_or_an_absent_function_has_no_count() {
        let Some(failed) = counts(whole("counted"), "3") else { return };
        let why = failed.unwrap_err().why;
        assert!(why.contains("under callgrind exited with status 3"), "{why}");
        let why = counts(whole("absent"), "0").unwrap().unwrap_err().why;
        assert!(why.ends_with("no instruction counted in the function 'absent'"), "{why}");
    }

    #[test]
    fn only_a_line_of_callgrind_is_a_count() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 2002\n"), Some(2002));
        assert_eq!(collected("Collected : 1\n"), None);
        assert_eq!(collected("==7== Collected : many\n"), None);
        assert_eq!(collected(""), None);
    }
}
