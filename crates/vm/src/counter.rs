//! Instructions that a program and its kernel execute, counted in an emulated guest by a plugin of QEMU.
//!
//! The guest has one CPU, and runs no other program. The count needs no performance counter and contains nothing
//! of the host. The kernel's includes the guest's timer interrupts, whose number depends on the instructions executed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::artefact::Recipe;
use lab::program;
use lab::sample::Failure;
use machine::child;

use crate::compiler::{GCC, compile, toolchain};
use crate::guest::PARAMETERS;
use crate::{QEMU, initramfs, qemu};

/// Name of the artefact of the plugin.
pub const PLUGIN: &str = "qemu-instruction-counter";
/// The files in its folder.
const PLUGIN_SOURCE: &str = "count_instructions.c";
const PLUGIN_FILE: &str = "count_instructions.so";
const PLUGIN_TEXT: &str = include_str!("../plugin/count_instructions.c");
/// Messages of a QEMU without plugins, and of one with another version of their interface.
const PLUGIN_REFUSED: [&str; 3] =
    ["Could not load plugin", "plugin requires API", "-plugin: invalid option"];
/// The displacements of the NOPs that a counted program executes before and after.
pub const MARKERS: [u32; 2] = [0x746f_6c01, 0x746f_6c02];
/// Start of the plugin's line.
const COUNTS: &str = "instructions: ";

/// Returns the recipe of the plugin.
pub fn plugin() -> Recipe {
    let make = |_: &Recipe, folder: &Path| {
        let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden"];
        compile(folder, &flags, &[(PLUGIN_SOURCE, PLUGIN_TEXT)], PLUGIN_FILE)
    };
    Recipe { name: PLUGIN.into(), inputs: vec![PLUGIN_TEXT.into(), toolchain().into()], make }
}

/// Checks that the emulator and the compiler are installed.
///
/// # Errors
/// Returns `unavailable` with the package to install.
pub fn available() -> Result<(), Failure> {
    QEMU.find()?;
    GCC.find().map(drop)
}

/// A guest whose instructions are counted.
#[derive(Debug, Clone)]
pub struct CountedGuest<'a> {
    /// The folder of the artefact [`PLUGIN`].
    pub plugin: &'a Path,
    /// CPU model of QEMU.
    pub cpu: &'a str,
    /// Memory: the value of QEMU's `-m`.
    pub memory: &'a str,
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The static program that is its init. It executes the plugin's markers and restarts the machine at its end.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: &'a [&'a str],
    /// Time limit.
    pub limit: Duration,
}

/// The instructions between the two markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionCounts {
    /// Executed in user mode.
    pub user: u64,
    /// Executed by the kernel.
    pub kernel: u64,
    /// The console: the output of the program, and perhaps of the kernel.
    pub output: String,
}

impl CountedGuest<'_> {
    /// Runs the guest to its end.
    ///
    /// # Errors
    /// Returns `unavailable` if QEMU cannot load the plugin, `timeout` if the guest does not end within the limit, and
    /// `failed` with the last line of the console if it fails.
    pub fn run(&self) -> Result<InstructionCounts, Failure> {
        let initramfs = initramfs::of_static_program(&self.program)?;
        let fd = initramfs.inherit()?;
        let mut command = qemu()?;
        command
            .args(["-accel", "tcg", "-machine", "q35", "-smp", "1"])
            // The guest's clock advances by instructions, so the host's speed does not change the number of timer interrupts.
            .args(["-icount", "shift=0,sleep=off"])
            .args(["-cpu", self.cpu, "-m", self.memory])
            .arg("-plugin")
            .arg(self.plugin.join(PLUGIN_FILE))
            .arg("-kernel")
            .arg(&self.kernel)
            .args(["-initrd", &format!("/proc/self/fd/{fd}"), "-append", &self.command_line()])
            .args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        // The user cannot run it directly: its initramfs is an inherited file in memory.
        let output = child::output_within(&mut command, &[], self.limit)
            .map_err(|why| program::run_failure(&command, &why, "stop other programs"))?;
        let console = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        match counts(&errors) {
            Some((user, kernel)) if output.status.success() => {
                Ok(InstructionCounts { user, kernel, output: console })
            }
            _ if PLUGIN_REFUSED.iter().any(|text| errors.contains(text)) => {
                let why = format!("QEMU cannot load a plugin: {}", last_line(&errors));
                let remedy = "use QEMU 6 to 8 with plugins, e.g. Debian 12's";
                Err(Failure::unavailable(why, remedy).with_cause("QEMU cannot load a plugin"))
            }
            _ => {
                let status = child::describe(output.status);
                let text = [&console, errors.as_ref()].concat();
                let last = last_line(&text);
                let fix = "run again, and free memory if it recurs";
                Err(Failure::failed(format!("QEMU {status} without counts: {last}; {fix}")))
            }
        }
    }

    fn command_line(&self) -> String {
        format!("{PARAMETERS} rdinit=/init -- {}", self.arguments.join(" "))
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").trim()
}

/// Returns the counts of the plugin's only line: user mode, kernel.
fn counts(errors: &str) -> Option<(u64, u64)> {
    let mut lines = errors.lines().filter_map(|line| line.strip_prefix(COUNTS));
    let (user, kernel) = lines.next()?.split_once(' ')?;
    let counts = (
        user.strip_prefix("user=")?.parse().ok()?,
        kernel.trim().strip_prefix("kernel=")?.parse().ok()?,
    );
    lines.next().is_none().then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian_linux;
    use lab::artefact;

    /// Executes 2000 instructions in user mode, or a repeated string instruction of 4096 bytes, or system calls.
    const PROGRAM: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/reboot.h>
        #include <sys/syscall.h>
        #define BEGIN "nopl 0x746f6c01(%%rax,%%rax)\n"
        #define END "nopl 0x746f6c02(%%rax,%%rax)\n"
        static char page[4096];
        int main(int count, char **argument) {
            memset(page, 1, sizeof page);
            if (strcmp(argument[1], "loop") == 0)
                __asm__ volatile(BEGIN "mov $999, %%ecx\n nop\n 1: dec %%ecx\n jnz 1b\n" END ::: "rcx");
            if (strcmp(argument[1], "string") == 0)
                __asm__ volatile("lea %0, %%rdi\n mov $4096, %%ecx\n xor %%eax, %%eax\n"
                    BEGIN "nop\n rep stosb\n nop\n" END :: "m"(page[0]) : "rdi", "rcx", "rax", "memory");
            if (strcmp(argument[1], "calls") == 0)
                __asm__ volatile("mov %0, %%r12d\n" BEGIN
                    "1: mov $39, %%eax\n syscall\n dec %%r12d\n jnz 1b\n" END
                    :: "r"(atoi(argument[2])) : "rax", "rcx", "r11", "r12", "memory");
            puts(page[4095] ? "kept" : "cleared");
            fflush(stdout);
            reboot(RB_AUTOBOOT);
        }"#;

    /// Counts the program in Debian's kernel; `None` if this machine lacks a part.
    fn counted(program: &Path, arguments: &[&str]) -> Option<InstructionCounts> {
        let count = || {
            available()?;
            let (plugin, program) = (&artefact::prepare(&plugin())?, program.to_owned());
            let kernel = debian_linux::files(&artefact::prepare(&debian_linux::recipe())?, &[])?.0;
            let limit = Duration::from_secs(300);
            CountedGuest { plugin, cpu: "max", memory: "512", kernel, program, arguments, limit }
                .run()
        };
        match count() {
            Ok(counts) => Some(counts),
            Err(why) if !why.kind.is_fault() => {
                machine::untested::note("instructions counted by QEMU", &why);
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    /// Returns the compiled program; `None` without a compiler.
    fn compiled() -> Option<tempfile::TempDir> {
        if GCC.find().is_err() {
            machine::untested::note("instructions counted by QEMU", &"no gcc");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let sources = [("program.c", PROGRAM)];
        compile(folder.path(), &["-O1", "-static"], &sources, "program").unwrap();
        Some(folder)
    }

    #[test]
    fn a_repeated_string_instruction_is_counted_once() {
        let Some(folder) = compiled() else { return };
        let Some(text) = counted(&folder.path().join("program"), &["string"]) else { return };
        assert_eq!((text.user, text.output.lines().next()), (3, Some("cleared")));
    }

    #[test]
    #[ignore = "boots Debian's kernel three times"]
    fn long_loops_and_system_calls_are_counted() {
        let Some(folder) = compiled() else { return };
        let program = folder.path().join("program");
        let Some(text) = counted(&program, &["loop"]) else { return };
        assert_eq!((text.user, text.output.lines().next()), (2000, Some("kept")));
        let [few, many] =
            ["1000", "3000"].map(|calls| counted(&program, &["calls", calls]).unwrap());
        assert_eq!([few.user, many.user], [4 * 1000, 4 * 3000]);
        let per_call = (many.kernel - few.kernel) as f64 / 2000.0;
        assert!((50.0..1000.0).contains(&per_call), "{per_call} instructions per getpid");
        assert!((few.kernel as f64) < 2000.0 * per_call, "{few:?}: {per_call} per call");
    }

    #[test]
    fn the_plugin_and_the_program_have_the_markers() {
        for (marker, name) in MARKERS.iter().zip(["BEGIN", "END"]) {
            let [a, b, c, d] = marker.to_le_bytes();
            let bytes = format!(
                "{name}[] = {{0x0f, 0x1f, 0x84, 0x00, {a:#04x}, {b:#04x}, {c:#04x}, {d:#04x}}}"
            );
            assert!(PLUGIN_TEXT.contains(&bytes), "{bytes}");
            assert!(PROGRAM.contains(&format!("{name} \"nopl {marker:#x}(")), "{marker:#x}");
        }
    }

    #[test]
    fn only_one_line_of_the_plugin_is_a_count() {
        assert_eq!(counts("qemu: warning\ninstructions: user=5 kernel=7\n"), Some((5, 7)));
        for text in ["", "instructions: user=5", "instructions: user=-1 kernel=2\n"] {
            assert_eq!(counts(text), None, "{text}");
        }
        let twice = "instructions: user=5 kernel=7\n".repeat(2);
        assert_eq!(counts(&twice), None);
        assert_eq!(last_line("a\n b \n\n"), "b");
    }
}
