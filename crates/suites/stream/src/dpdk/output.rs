//! Output of DPDK while it starts: its usage to standard output, and its messages to standard error.
//!
//! DPDK reports the cause of an error only there, and some of its options, e.g. the one for help, end the process.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use signal_hook::consts::SIGABRT;

/// Maximum number of messages in an error.
const MESSAGES: usize = 8;

/// Descriptors of standard error and of the captured messages while they are captured; else -1.
static TERMINAL: AtomicI32 = AtomicI32::new(-1);
static MESSAGES_FILE: AtomicI32 = AtomicI32::new(-1);
/// The folder of EAL's files, removed if DPDK ends the process.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// The output of the process, captured until [`end`](Self::end).
pub(super) struct Captured {
    /// Standard output and standard error.
    before: [OwnedFd; 2],
    messages: File,
}

impl Captured {
    /// Starts to capture. If DPDK ends the process, the folder of its files is removed.
    ///
    /// # Errors
    /// Returns why there are no descriptors.
    pub(super) fn start(folder: Option<&Path>) -> io::Result<Self> {
        if let Some(folder) = folder {
            FOLDER.get_or_init(|| folder.to_owned());
        }
        let messages = memfd_create("dpdk-messages", MemfdFlags::CLOEXEC)?;
        let before = [fcntl_dupfd_cloexec(io::stdout(), 0)?, fcntl_dupfd_cloexec(io::stderr(), 0)?];
        // SAFETY: the function has the type that `atexit` calls.
        if unsafe { libc::atexit(on_exit) } != 0 {
            return Err(io::Error::other("no memory"));
        }
        // SAFETY: the function only makes system calls.
        unsafe { signal_hook::low_level::register(SIGABRT, on_abort)? };
        // The usage, of a hundred lines, is of no use to find the error.
        let nowhere = File::options().write(true).open("/dev/null")?;
        // From here on, the output is restored if this fails.
        MESSAGES_FILE.store(messages.as_raw_fd(), Ordering::Relaxed);
        TERMINAL.store(before[1].as_raw_fd(), Ordering::Relaxed);
        let captured = Self { before, messages: messages.into() };
        let replaced = replace(libc::STDOUT_FILENO, &nowhere)
            .and_then(|()| replace(libc::STDERR_FILENO, &captured.messages));
        match replaced {
            Ok(()) => Ok(captured),
            Err(why) => captured.end().and(Err(why)),
        }
    }

    /// Restores the output. Returns the messages.
    ///
    /// # Errors
    /// Returns why the messages cannot be read.
    pub(super) fn end(self) -> io::Result<Vec<String>> {
        let Self { before: [stdout, stderr], mut messages } = self;
        // SAFETY: the function accesses only the C library's streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        replace(libc::STDOUT_FILENO, &stdout)?;
        replace(libc::STDERR_FILENO, &stderr)?;
        TERMINAL.store(-1, Ordering::Relaxed);
        read(&mut messages)
    }
}

/// Makes a descriptor refer to another file.
fn replace(descriptor: c_int, by: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open, and the standard ones are of no owner.
    match unsafe { libc::dup2(by.as_raw_fd(), descriptor) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Reads the messages.
fn read(file: &mut File) -> io::Result<Vec<String>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(messages(&String::from_utf8_lossy(&bytes)))
}

/// Returns the messages in a text, each once: a fatal one is both logged and printed.
fn messages(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim().replace("FATAL: ", "");
        // It warns of what it does not offer.
        if !line.is_empty() && !line.starts_with("TELEMETRY: ") && !all.contains(&line) {
            all.push(line);
        }
    }
    all
}

/// Returns the last messages, as part of a line.
pub(super) fn cause(messages: &[String]) -> String {
    let first = messages.len().saturating_sub(MESSAGES);
    let last: Vec<_> = messages[first..].iter().map(|one| one.trim_end_matches('.')).collect();
    if last.is_empty() { "it states no reason".into() } else { last.join(", ") }
}

/// Prints the cause if DPDK ends the process while its output is captured.
extern "C" fn on_exit() {
    let terminal: c_int = TERMINAL.swap(-1, Ordering::Relaxed);
    if terminal < 0 {
        return;
    }
    // SAFETY: both descriptors are open as long as `TERMINAL` is set: the call that captures does not return.
    let (terminal, messages) = unsafe {
        let borrow = |fd| BorrowedFd::borrow_raw(fd);
        (borrow(terminal), borrow(MESSAGES_FILE.load(Ordering::Relaxed)))
    };
    let messages = messages.try_clone_to_owned().map(File::from).and_then(|mut it| read(&mut it));
    let why = cause(&messages.unwrap_or_default());
    let line = format!("error: --dpdk: EAL ended this program: {why}; correct its options\n");
    // Nothing else can be done if one of these fails.
    let _ = FOLDER.get().map(std::fs::remove_dir_all);
    let _ = rustix::io::write(terminal, line.as_bytes());
    // SAFETY: the function does not return.
    unsafe { libc::_exit(1) }
}

/// Prints the messages if DPDK aborts the process (`rte_panic`) while its output is captured.
fn on_abort() {
    let terminal: c_int = TERMINAL.swap(-1, Ordering::Relaxed);
    if terminal < 0 {
        return;
    }
    // SAFETY: as in `on_exit`.
    let (terminal, messages) = unsafe {
        let borrow = |fd| BorrowedFd::borrow_raw(fd);
        (borrow(terminal), borrow(MESSAGES_FILE.load(Ordering::Relaxed)))
    };
    let (mut bytes, mut at) = ([0; 512], 0);
    while let Ok(length @ 1..) = rustix::io::pread(messages, &mut bytes, at) {
        let _ = rustix::io::write(terminal, &bytes[..length]);
        at = at.saturating_add(length as u64);
    }
}
