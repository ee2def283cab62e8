//! Programs that are controlled by lines of text, like a user at a terminal.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::limited::Group;

/// Maximum length of unread output; older output is dropped.
const MAX_OUTPUT: usize = 1 << 20;

/// A running program with its input and its output. Dropping it kills the program's process group.
///
/// Its output is a terminal, so that it writes each line at once; its input is a pipe, so that nothing is echoed.
pub struct Console {
    group: Group,
    input: ChildStdin,
    terminal: File,
    output: Vec<u8>,
}

impl Console {
    /// Starts a program. It leads a separate process group, and dies with the thread that starts it.
    ///
    /// # Errors
    /// Returns the system's error if there is no free terminal or the program does not start.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let end = open(name.as_c_str(), flags, Mode::empty())?;
        command.stdin(Stdio::piped());
        command.stdout(end.try_clone()?).stderr(end);
        let started = Group::start(command);
        // The command keeps its streams, and the terminal would never report that the program has ended.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut group = started?;
        let input = group.leader().stdin.take().ok_or(ErrorKind::BrokenPipe)?;
        Ok(Self { group, input, terminal: File::from(terminal), output: Vec::new() })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Returns the error of `write(2)`, e.g. `BrokenPipe` if the program has ended.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(line.as_bytes())?;
        self.input.write_all(b"\n")
    }

    /// Reads until the output ends with `end`, e.g. a prompt, and returns the output since the last call.
    ///
    /// # Errors
    /// Returns `TimedOut` after `limit`, and `UnexpectedEof` if the program has closed its output, each with the last line
    /// of the output.
    pub fn read_until(&mut self, end: &str, limit: Duration) -> io::Result<String> {
        let until = Instant::now() + limit;
        while !self.output.ends_with(end.as_bytes()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failure(ErrorKind::TimedOut, "did not answer in time"));
            }
            let wait = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            let mut polled = [PollFd::new(&self.terminal, PollFlags::IN)];
            match poll(&mut polled, Some(&wait)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(why) => return Err(why.into()),
            }
            let mut chunk = [0; 4096];
            match self.terminal.read(&mut chunk) {
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                // A terminal without a program reports an input/output error.
                Ok(0) | Err(_) => {
                    return Err(self.failure(ErrorKind::UnexpectedEof, "ended"));
                }
                Ok(read) => self.keep(&chunk[..read]),
            }
        }
        let text = String::from_utf8_lossy(&self.output).replace('\r', "");
        self.output.clear();
        Ok(text)
    }

    /// Returns the process ID.
    pub fn id(&mut self) -> u32 {
        self.group.leader().id()
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.output.len() + bytes.len() > MAX_OUTPUT {
            self.output.drain(..MAX_OUTPUT / 2);
        }
        self.output.extend_from_slice(bytes);
    }

    /// Creates an error that ends with the last line of the output.
    fn failure(&self, kind: ErrorKind, what: &str) -> io::Error {
        let start = self.output.len().saturating_sub(1024);
        let text = String::from_utf8_lossy(&self.output[start..]).into_owned();
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last: String = last.unwrap_or("(no output)").chars().take(200).collect();
        io::Error::new(kind, format!("{what}; its last line: {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gone_within;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Console {
        Console::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_are_answered_up_to_a_prompt() {
        let mut console =
            shell("printf 'hello\n> '; while read line; do printf '<%s>\n> ' \"$line\"; done");
        assert_eq!(console.read_until("> ", LIMIT).unwrap(), "hello\n> ");
        for line in ["one", "two"] {
            console.send(line).unwrap();
            assert_eq!(console.read_until("\n> ", LIMIT).unwrap(), format!("<{line}>\n> "));
        }
    }

    #[test]
    fn a_silent_or_ended_program_is_an_error_with_its_last_line() {
        let mut silent = shell("echo starting; exec sleep 60");
        let why = silent.read_until("> ", Duration::from_millis(300)).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::TimedOut);
        let mut ended = shell("echo no such device >&2; exit 3");
        let why = ended.read_until("> ", LIMIT).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::UnexpectedEof);
        assert!(why.to_string().contains("no such device"), "{why}");
        assert!(Console::start(&mut Command::new("/nonexistent")).is_err());
    }

    #[test]
    fn dropping_kills_the_whole_group() {
        let mut console = shell("sleep 60 & printf '%s> ' $!; exec sleep 60");
        let text = console.read_until("> ", LIMIT).unwrap();
        let (leader, child) = (console.id(), text.trim_end_matches("> ").parse().unwrap());
        drop(console);
        assert!(gone_within(leader, Duration::ZERO) && gone_within(child, LIMIT));
    }
}
