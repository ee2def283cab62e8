//! Programs with a time limit: their output is captured, and at the limit their process group is killed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::watcher::Watcher;
use super::{die_with_parent, drop_relative_home};

/// Captured bytes per stream: the last ones.
pub const KEPT_BYTES: usize = 64 << 20;
/// Bytes per read.
const CHUNK: usize = 64 * 1024;

/// How often a flag of [`interrupt_by`] is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The flag of [`interrupt_by`].
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes a flag, e.g. that of Ctrl-C, end the commands that this process runs from now on. Only the first flag counts.
pub fn interrupt_by(flag: Arc<AtomicBool>) {
    let _ = INTERRUPTED.set(flag);
}

/// Returns whether the flag of [`interrupt_by`] is set.
pub fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Returns the error of a command or a wait that an interruption ends.
pub fn interruption() -> io::Error {
    io::Error::new(ErrorKind::Interrupted, "interrupted")
}

/// Runs a command to its end with `input` and returns the end of what it wrote to both streams.
///
/// The command leads a separate process group and gets no relative `HOME`. Processes that it leaves behind
/// are not waited for.
///
/// # Errors
/// Returns the system's error if the command does not start, and [`ErrorKind::TimedOut`] with the last line
/// of its output if it had not exited after `limit`, or [`interruption`]; the whole group is then killed, as
/// when this process dies.
pub fn output_within(command: &mut Command, input: &[u8], limit: Duration) -> io::Result<Output> {
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    run_within(command, input, limit)
}

/// Like [`output_within`], with the streams that the command sets: output to files is not captured.
///
/// # Errors
/// See [`output_within`].
pub fn run_within(command: &mut Command, input: &[u8], limit: Duration) -> io::Result<Output> {
    run_unless(is_interrupted, command, input, limit)
}

/// Like [`output_within`], also after an interruption: for commands that must not end halfway.
///
/// # Errors
/// See [`output_within`]; it is never an interruption.
pub fn complete_within(command: &mut Command, input: &[u8], limit: Duration) -> io::Result<Output> {
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    run_unless(|| false, command, input, limit)
}

fn run_unless(
    is_interrupted: impl Fn() -> bool,
    command: &mut Command,
    input: &[u8],
    limit: Duration,
) -> io::Result<Output> {
    let mut group = Group::start(command)?;
    let mut streams = Streams::of(&mut group.leader)?;
    let exited = pidfd_open(Pid::from_child(&group.leader), PidfdFlags::empty())?;
    let end = Instant::now() + limit;
    let mut left = input;
    while !streams.pass(&exited, &mut left, end.min(Instant::now() + POLL_INTERVAL))? {
        if is_interrupted() {
            return Err(interruption());
        }
        if Instant::now() >= end {
            let last = streams
                .last_line()
                .map_or_else(String::new, |line| format!("; its last line: {line}"));
            let why = format!("did not exit in {} and was killed{last}", describe(limit));
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
    }
    let status = group.end()?;
    Ok(Output { status, stdout: streams.output.bytes, stderr: streams.errors.bytes })
}

/// Formats a limit.
fn describe(limit: Duration) -> String {
    match limit.as_secs() {
        0 => format!("{} ms", limit.as_millis()),
        seconds if seconds >= 600 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// The leader of a process group. The whole group is killed when dropped.
pub(super) struct Group {
    leader: Child,
    status: Option<ExitStatus>,
    /// Kills the group if this process dies.
    watcher: Watcher,
}

impl Group {
    /// Starts a command as the leader of a separate process group. Its leader ends with the thread that starts it, and all
    /// of it with this process. It gets no relative `HOME`.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        command.process_group(0);
        die_with_parent(command);
        drop_relative_home(command);
        let watcher = Watcher::start()?;
        let mut group = Self { leader: command.spawn()?, status: None, watcher };
        group.watcher.watch(group.leader.id())?;
        Ok(group)
    }

    /// Returns the leader.
    pub(super) fn leader(&mut self) -> &mut Child {
        &mut self.leader
    }

    /// Kills the remaining group and returns the leader's status. The process ID stays valid until the leader
    /// is reaped.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // A group without members has exited.
        let _ = kill_process_group(Pid::from_child(&self.leader), Signal::KILL);
        let status = self.leader.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Errors cannot be reported here.
        let _ = self.end();
    }
}

/// The ends of a child's streams, all non-blocking.
struct Streams {
    input: Option<OwnedFd>,
    output: Stream,
    errors: Stream,
}

#[derive(Default)]
struct Stream {
    end: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Streams {
    fn of(child: &mut Child) -> io::Result<Self> {
        let stream = |end: Option<OwnedFd>| -> io::Result<Stream> {
            end.as_ref().map(set_nonblocking).transpose()?;
            Ok(Stream { end, bytes: Vec::new() })
        };
        let input = child.stdin.take().map(OwnedFd::from);
        input.as_ref().map(set_nonblocking).transpose()?;
        Ok(Self {
            input,
            output: stream(child.stdout.take().map(OwnedFd::from))?,
            errors: stream(child.stderr.take().map(OwnedFd::from))?,
        })
    }

    /// Waits until a stream is ready, the child has exited or `end` has passed, and transfers data. Returns
    /// whether the child has exited.
    fn pass(&mut self, exited: &OwnedFd, left: &mut &[u8], end: Instant) -> io::Result<bool> {
        let exited = is_ready(
            [
                Some((exited.as_fd(), libc::POLLIN)),
                self.output.end.as_ref().map(|end| (end.as_fd(), libc::POLLIN)),
                self.errors.end.as_ref().map(|end| (end.as_fd(), libc::POLLIN)),
                self.input.as_ref().map(|end| (end.as_fd(), libc::POLLOUT)),
            ],
            end,
        )?;
        self.output.take()?;
        self.errors.take()?;
        self.give(left)?;
        Ok(exited)
    }

    fn give(&mut self, left: &mut &[u8]) -> io::Result<()> {
        let Some(end) = &self.input else { return Ok(()) };
        let mut file = std::fs::File::from(end.try_clone()?);
        while !left.is_empty() {
            match file.write(left) {
                Ok(written) => *left = &left[written..],
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                // The child reads no more: it reports why, or needs no more input.
                Err(why) if why.kind() == ErrorKind::BrokenPipe => break,
                Err(why) => return Err(why),
            }
        }
        self.input = None;
        Ok(())
    }

    /// Returns the last line of its output, of standard error if there is one.
    fn last_line(&self) -> Option<String> {
        let last = |stream: &Stream| {
            let start = stream.bytes.len().saturating_sub(1024);
            let text = String::from_utf8_lossy(&stream.bytes[start..]).into_owned();
            let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
            Some(line.chars().take(200).collect())
        };
        last(&self.errors).or_else(|| last(&self.output))
    }
}

impl Stream {
    /// Reads what is available.
    fn take(&mut self) -> io::Result<()> {
        let Some(end) = &self.end else { return Ok(()) };
        let mut file = std::fs::File::from(end.try_clone()?);
        let mut chunk = [0; CHUNK];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => self.keep(&chunk[..read]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        self.end = None;
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > KEPT_BYTES {
            self.bytes.drain(..KEPT_BYTES / 2);
        }
        self.bytes.extend_from_slice(bytes);
    }
}

/// Makes reads and writes of this end non-blocking.
fn set_nonblocking(end: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?)
}

/// Waits until `end` or until one of the descriptors is ready. Returns whether the first one is.
fn is_ready<const N: usize>(
    waited: [Option<(BorrowedFd, libc::c_short)>; N],
    end: Instant,
) -> io::Result<bool> {
    let poll = |one: Option<(BorrowedFd, libc::c_short)>| match one {
        Some((fd, events)) => libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 },
        // The kernel ignores negative descriptors.
        None => libc::pollfd { fd: -1, events: 0, revents: 0 },
    };
    let mut all = waited.map(poll);
    let left = end.saturating_duration_since(Instant::now()).as_millis() + 1;
    let left = i32::try_from(left).unwrap_or(i32::MAX);
    // SAFETY: the array lives through the call and has the given length.
    match unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, left) } {
        -1 => match io::Error::last_os_error() {
            why if why.kind() == ErrorKind::Interrupted => Ok(false),
            why => Err(why),
        },
        _ => Ok(all[0].revents != 0),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::child::tests::gone_within;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_are_those_of_the_program() {
        let output =
            output_within(&mut shell("cat; echo bad >&2; exit 3"), b"good", PATIENCE).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"good"[..], &b"bad\n"[..]));
        let mut absent = Command::new("/nonexistent/program");
        assert_eq!(
            output_within(&mut absent, b"", PATIENCE).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn more_than_a_pipe_buffer_passes_both_ways() {
        let input = vec![b'x'; 3 << 20];
        let output = output_within(&mut shell("cat"), &input, PATIENCE).unwrap();
        assert!(output.stdout == input);
        // A program that does not read its input is not waited for.
        let output = output_within(&mut shell("echo done"), &input, PATIENCE).unwrap();
        assert_eq!(output.stdout, b"done\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let start = Instant::now();
        let mut command = shell("sleep 1000 & echo $!; sleep 1000");
        let why = output_within(&mut command, b"", Duration::from_millis(500)).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::TimedOut);
        let text = why.to_string();
        let (message, line) = text.split_once("; its last line: ").unwrap();
        assert_eq!(message, "did not exit in 500 ms and was killed");
        assert!(start.elapsed() < PATIENCE);
        assert!(gone_within(line.parse().unwrap(), PATIENCE), "its child still runs");
    }

    #[test]
    fn processes_left_behind_are_not_waited_for() {
        let start = Instant::now();
        let output = output_within(&mut shell("sleep 1000 & echo $!"), b"", PATIENCE).unwrap();
        assert!(start.elapsed() < PATIENCE);
        let left: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert!(gone_within(left, PATIENCE), "it still runs");
    }

    /// Set in the copy of this test program that acts as a parent: what it does.
    const PLAYS: &str = "MACHINE_TEST_PLAYS_PARENT_OF_A_GROUP";

    /// The parent's part of the next tests, not a test by itself.
    #[test]
    fn acts_as_parent_of_a_group() {
        let Ok(part) = std::env::var(PLAYS) else { return };
        if part == "interrupted" {
            let flag = Arc::new(AtomicBool::new(false));
            interrupt_by(flag.clone());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                flag.store(true, Ordering::Relaxed);
            });
        }
        let mut command = shell("sleep 1000 & echo \"\nchild $!\" >&2; wait");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        println!("\nended {}", run_within(&mut command, b"", PATIENCE).unwrap_err());
        let output = complete_within(&mut shell("cat"), b"whole", PATIENCE).unwrap();
        println!("then {}", String::from_utf8_lossy(&output.stdout));
    }

    /// Starts such a parent, and returns it with the ID of its grandchild and its standard output.
    fn parent(part: &str) -> (Child, u32, impl Read) {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["child::limited::tests::acts_as_parent_of_a_group", "--exact", "--nocapture"])
            .env(PLAYS, part)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(parent.stderr.take().unwrap()).lines();
        let mut children = lines.map_while(Result::ok);
        let child = children.find_map(|line| line.strip_prefix("child ")?.parse().ok()).unwrap();
        let output = parent.stdout.take().unwrap();
        (parent, child, output)
    }

    #[test]
    fn the_whole_group_ends_when_its_parent_is_killed() {
        let (mut parent, child, _output) = parent("killed");
        assert!(!gone_within(child, Duration::from_millis(20)), "the child runs");
        parent.kill().unwrap();
        assert!(gone_within(child, PATIENCE), "the child outlived the program");
        parent.wait().unwrap();
    }

    #[test]
    fn an_interruption_ends_the_whole_group_at_once() {
        let start = Instant::now();
        let (mut parent, child, mut output) = parent("interrupted");
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(text.contains("ended interrupted\nthen whole\n"), "{text}");
        assert!(start.elapsed() < PATIENCE && gone_within(child, PATIENCE));
        assert!(parent.wait().unwrap().success());
    }

    #[test]
    fn the_end_of_long_output_is_kept() {
        let mut stream = Stream { bytes: vec![b'a'; KEPT_BYTES - 1], end: None };
        stream.keep(b"end");
        assert!(stream.bytes.len() <= KEPT_BYTES && stream.bytes.ends_with(b"aend"));
    }

    #[test]
    fn limits_are_formatted() {
        let of = |seconds| describe(Duration::from_secs(seconds));
        assert_eq!([of(60), of(600), of(7200), of(601)], ["60 s", "10 min", "120 min", "601 s"]);
    }
}
