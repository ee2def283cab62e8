//! A host as the mediator sees it: a process and a socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use lab::sample::Failure;
use machine::child::{Forked, fork_child};
use machine::mapping::Mapping;

use super::host::{CANNOT_BEGIN, Host, order};
use super::rules::HOSTS;
use super::socket::{Message, pair, receive, send};
use crate::functions::CopyFn;

/// How long a host may take to answer, a copy included.
const PATIENCE: Duration = Duration::from_secs(10);

/// What hosts copy, and whether they are confined.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// By host.
    pub cpus: [usize; HOSTS],
    /// How they copy.
    pub copy: CopyFn,
    /// What they copy from.
    pub source: &'a Mapping,
    /// Hold their system calls to what gives no way round the rules.
    pub confined: bool,
}

/// A running host.
#[derive(Debug)]
pub(super) struct Peer {
    socket: OwnedFd,
    process: Forked,
}

impl Peer {
    /// Forks a host that maps the pool at `window`.
    ///
    /// # Errors
    /// Where a process or a socket cannot be had.
    pub(super) fn start(cpu: usize, window: *mut u8, terms: &Terms) -> Result<Self, Failure> {
        let (socket, theirs) = pair(PATIENCE)?;
        let host = Host {
            socket: theirs.as_raw_fd(),
            cpu,
            window,
            source: terms.source.as_ptr(),
            copy: terms.copy,
            confined: terms.confined,
        };
        // SAFETY: a host allocates nothing and makes system calls only.
        let process = unsafe { fork_child(move || host.live()) }?;
        Ok(Self { socket, process })
    }

    /// Tells the host something, and waits for its answer.
    ///
    /// # Errors
    /// Where it is gone or does not answer in time.
    pub(super) fn ask(
        &mut self,
        message: &Message,
        descriptor: Option<RawFd>,
    ) -> Result<Message, Failure> {
        let socket = self.socket.as_raw_fd();
        let answer = send(socket, message, descriptor).and_then(|()| receive(socket));
        answer.map(|(answer, _)| answer).map_err(|why| self.gone(&why))
    }

    fn gone(&mut self, why: &io::Error) -> Failure {
        let status = self.process.wait(Duration::from_millis(100)).ok().flatten();
        match status.and_then(|status| status.code()) {
            Some(CANNOT_BEGIN) => Failure::unavailable(
                "a host could not be confined to its CPU and its system calls",
                "use a kernel from 5.9 with CONFIG_SECCOMP_FILTER, and CPUs that may be used",
            ),
            _ => Failure::failed(format!("a host does not answer: {why}, {status:?}")),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // One that does not hear this is killed when its process is dropped.
        let end = Message { kind: order::END, ..Message::default() };
        let _ = send(self.socket.as_raw_fd(), &end, None);
        let _ = self.process.wait(Duration::from_millis(100));
    }
}
