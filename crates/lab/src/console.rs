//! Lines of a guest's console or of a process's standard error, and the one that states why it ended.

use std::io::BufRead;

/// Start of the line in which a Linux guest reports why it stops.
const KERNEL_PANIC: &str = "Kernel panic";
/// Start of QEMU's line if KVM cannot execute a guest; QEMU then waits forever.
const KVM_ERROR: &str = "KVM internal error";
/// Prefix of the line in which init of a guest reports the exit status of the command. It follows each command, also one
/// that reported why it failed.
pub const EXIT_STATUS: &str = "tollgate: exit status ";
/// Maximum length of a cause, in characters.
const MAX_CAUSE: usize = 300;

/// The line that states why a process or a guest ended: the last informative one, or that of a kernel panic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CauseOfDeath {
    line: String,
    is_panic: bool,
}

impl CauseOfDeath {
    /// Considers the next line.
    pub fn consider(&mut self, line: &str) {
        // The lines after a kernel panic report how the guest exited, not why.
        if self.is_panic || !is_informative(line) {
            return;
        }
        self.is_panic = line.contains(KERNEL_PANIC);
        self.line.clear();
        self.line.extend(line.trim().chars().take(MAX_CAUSE));
    }

    /// Returns the line; empty if no line was informative.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns whether a kernel panicked.
    pub fn is_panic(&self) -> bool {
        self.is_panic
    }
}

/// Returns whether a line may state the cause of an exit, unlike a panic's note on backtraces or a guest's exit status.
fn is_informative(line: &str) -> bool {
    let line = line.trim();
    let is_note = ["note:", EXIT_STATUS.trim_end()].iter().any(|start| line.starts_with(start));
    !line.is_empty() && !is_note && !is_end_of_machine(line)
}

/// Returns whether a line is the last one of a kernel, which reports the restart of the machine.
pub fn is_end_of_machine(line: &str) -> bool {
    line.trim_start().starts_with("reboot:")
}

/// Returns whether QEMU reports in this line that KVM cannot execute a guest.
pub fn is_kvm_error(line: &str) -> bool {
    line.starts_with(KVM_ERROR)
}

/// Describes a guest that KVM cannot execute, given QEMU's line and the remedy.
pub fn kvm_failure(line: &str, remedy: &str) -> String {
    format!("{}: this host's KVM does not run the guest's Linux; {remedy}", line.trim())
}

/// Reads a line of any length and returns its start, at most 1200 bytes; `None` at the end of the stream.
pub fn start_of_line(from: &mut impl BufRead) -> Option<String> {
    const MAX_START: usize = 1200;
    let mut line = Vec::new();
    let mut is_empty = true;
    loop {
        let bytes = from.fill_buf().unwrap_or_default();
        if bytes.is_empty() {
            return (!is_empty).then(|| String::from_utf8_lossy(&line).into_owned());
        }
        is_empty = false;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        line.extend(&part[..part.len().min(MAX_START - line.len())]);
        let used = end.map_or(bytes.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(lines: &[&str]) -> CauseOfDeath {
        let mut cause = CauseOfDeath::default();
        lines.iter().for_each(|line| cause.consider(line));
        cause
    }

    #[test]
    fn the_cause_is_the_last_informative_line() {
        let last = cause(&["one", " two ", "", "note: run with RUST_BACKTRACE=1", "reboot: later"]);
        assert_eq!((last.line(), last.is_panic()), ("two", false));
        assert_eq!(cause(&["", "reboot: Restarting system"]), CauseOfDeath::default());
        let killed = cause(&["tollgate: the command was killed", "tollgate: exit status 137"]);
        assert_eq!(killed.line(), "tollgate: the command was killed");
        assert_eq!(cause(&[&"ä".repeat(400)]).line().chars().count(), MAX_CAUSE);
    }

    #[test]
    fn the_line_of_a_panic_remains_the_cause() {
        let panic = cause(&["Oops", "Kernel panic - not syncing: Oops", "---[ end ]---"]);
        assert_eq!((panic.line(), panic.is_panic()), ("Kernel panic - not syncing: Oops", true));
    }

    #[test]
    fn only_the_start_of_a_long_line_is_kept() {
        let text = format!("{}\nnext", "x".repeat(5000));
        let mut from = std::io::BufReader::with_capacity(7, text.as_bytes());
        assert_eq!(start_of_line(&mut from).map(|line| line.len()), Some(1200));
        assert_eq!(start_of_line(&mut from).as_deref(), Some("next"));
        assert_eq!(start_of_line(&mut from), None);
    }
}
