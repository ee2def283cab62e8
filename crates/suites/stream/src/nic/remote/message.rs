//! The protocol between clients and a NIC's process: messages of 8 words of 8 bytes, and error texts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::super::doorbells::DoorbellDelays;
use super::super::interface_config::InterfaceConfig;
use super::super::memory::MemoryLayout;
use super::fds::{self, Timeout};

/// Version of the protocol and of the layout of shared memory.
pub(crate) const VERSION: u64 = 3;
/// First word of a hello.
const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
/// Words per message: its kind, its values, and the length of the text that follows.
const WORDS: usize = 8;
/// Maximum length of a text, in bytes.
const MAX_TEXT: u64 = 1024;

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Must be first: the version, and the configuration that the client needs; `None` if it is invalid.
    Hello(u64, Option<InterfaceConfig>),
    /// Allocates a pair of notification buffers.
    Attach,
    /// Frees a pair.
    Detach(u32),
    /// Registers the memory whose descriptor comes with this.
    RegisterMemory(MemoryLayout),
    /// Ends the registration of memory at a bus address.
    Deregister(u64),
    /// Waits until all register writes are processed.
    DrainDoorbells,
    /// Allocates a pipe.
    AllocPipe,
    /// Frees a pipe.
    FreePipe(u32),
    /// The client is ready to receive packets.
    Ready,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Answer to a hello: the CPU of the NIC.
    Welcome(u64),
    /// A pair of notification buffers, and what is modelled of its doorbells. The memfd of its doorbell queue comes with
    /// this.
    Attached(u32, DoorbellDelays),
    /// Bus address of registered memory.
    Registered(u64),
    /// An allocated pipe.
    Pipe(u32),
    /// The request was executed.
    Done,
    /// The request was refused, with cause and fix.
    Refused(String),
}

impl Request {
    fn words(self) -> [u64; WORDS] {
        match self {
            Self::Hello(version, config) => {
                let [a, b, c, d] = config.map_or([0; 4], InterfaceConfig::words);
                [MAGIC, version, a, b, c, d, 0, 0]
            }
            Self::Attach => message(1, 0, 0),
            Self::Detach(pair) => message(2, pair.into(), 0),
            Self::RegisterMemory(MemoryLayout::Rings { count, each }) => {
                message(3, count as u64, each as u64)
            }
            Self::RegisterMemory(MemoryLayout::Plain(bytes)) => message(4, bytes as u64, 0),
            Self::Deregister(bus) => message(5, bus, 0),
            Self::DrainDoorbells => message(6, 0, 0),
            Self::AllocPipe => message(7, 0, 0),
            Self::FreePipe(pipe) => message(8, pipe.into(), 0),
            Self::Ready => message(9, 0, 0),
        }
    }

    fn decode(words: [u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c, d, e, ..] = words;
        Some(match kind {
            MAGIC => Self::Hello(a, InterfaceConfig::of([b, c, d, e])),
            1 => Self::Attach,
            2 => Self::Detach(a.try_into().ok()?),
            3 => Self::RegisterMemory(MemoryLayout::Rings { count: a as usize, each: b as usize }),
            4 => Self::RegisterMemory(MemoryLayout::Plain(a as usize)),
            5 => Self::Deregister(a),
            6 => Self::DrainDoorbells,
            7 => Self::AllocPipe,
            8 => Self::FreePipe(a.try_into().ok()?),
            9 => Self::Ready,
            _ => return None,
        })
    }

    pub(crate) fn send(
        self,
        to: &UnixStream,
        fd: Option<BorrowedFd<'_>>,
        within: Duration,
    ) -> io::Result<()> {
        fds::send(to, &bytes(self.words()), fd, within)
    }

    /// Receives the next request. Returns `None` if the client has disconnected.
    ///
    /// # Errors
    /// Returns `InvalidData` if it is not a request or has an unexpected descriptor, or the error of
    /// [`fds::receive`].
    pub(crate) fn receive(
        from: &UnixStream,
        timeout: Timeout,
    ) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let Some((words, fd)) = receive(from, timeout)? else { return Ok(None) };
        let request = Self::decode(words).ok_or(io::ErrorKind::InvalidData)?;
        match request {
            Self::RegisterMemory(_) => {}
            _ if fd.is_none() => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(Some((request, fd)))
    }
}

impl Reply {
    fn words(&self) -> [u64; WORDS] {
        match self {
            Self::Refused(text) => [0, 0, 0, 0, 0, 0, 0, MAX_TEXT.min(text.len() as u64)],
            Self::Welcome(cpu) => message(1, *cpu, 0),
            Self::Attached(pair, DoorbellDelays { stamped, stall }) => {
                [2, u64::from(*pair), u64::from(*stamped), *stall, 0, 0, 0, 0]
            }
            Self::Registered(bus) => message(3, *bus, 0),
            Self::Pipe(pipe) => message(4, u64::from(*pipe), 0),
            Self::Done => message(5, 0, 0),
        }
    }

    pub(crate) fn send(
        &self,
        to: &UnixStream,
        fd: Option<impl AsFd>,
        within: Duration,
    ) -> io::Result<()> {
        let mut all = bytes(self.words());
        if let Self::Refused(text) = self {
            all.extend(text.bytes().take(MAX_TEXT as usize));
        }
        fds::send(to, &all, fd.as_ref().map(AsFd::as_fd), within)
    }

    /// Receives the next answer. Returns `None` if the NIC has stopped.
    ///
    /// # Errors
    /// See [`Request::receive`].
    pub(crate) fn receive(
        from: &UnixStream,
        timeout: Timeout,
    ) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let Some((words, fd)) = receive(from, timeout)? else { return Ok(None) };
        let [kind, a, b, c, .., length] = words;
        let reply = match kind {
            0 => {
                let mut text = vec![0; MAX_TEXT.min(length) as usize];
                let (received, _) = fds::receive(from, &mut text, Timeout::within(timeout.rest))?;
                text.truncate(received);
                // The text is printed: it is limited to one line without control characters.
                let text = String::from_utf8_lossy(&text);
                Self::Refused(lab::terminal::one_line(&text).into_owned())
            }
            1 => Self::Welcome(a),
            2 => Self::Attached(id(a)?, DoorbellDelays { stamped: b != 0, stall: c }),
            3 => Self::Registered(a),
            4 => Self::Pipe(id(a)?),
            5 => Self::Done,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some((reply, fd)))
    }
}

/// Converts an ID, which has 32 bits.
fn id(word: u64) -> io::Result<u32> {
    word.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn message(kind: u64, a: u64, b: u64) -> [u64; WORDS] {
    [kind, a, b, 0, 0, 0, 0, 0]
}

fn bytes(words: [u64; WORDS]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Receives the words of one message. Returns `None` if the other end has closed.
fn receive(
    from: &UnixStream,
    timeout: Timeout,
) -> io::Result<Option<([u64; WORDS], Option<OwnedFd>)>> {
    let mut bytes = [[0; 8]; WORDS];
    match fds::receive(from, bytes.as_flattened_mut(), timeout)? {
        (0, _) => Ok(None),
        (received, fd) if received == WORDS * 8 => Ok(Some((bytes.map(u64::from_le_bytes), fd))),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::pipes::Notify;
    use super::*;
    use proptest::prelude::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn sent_messages_are_received() {
        let timeout = Timeout::at_any_time(SOON);
        let (client, server) = UnixStream::pair().unwrap();
        let config = InterfaceConfig::Pipes {
            notify: Notify::EveryPacket,
            ring: 1 << 21,
            notifications: 64,
        };
        for request in [
            Request::Hello(7, Some(config)),
            Request::Hello(7, None),
            Request::Attach,
            Request::Detach(3),
            Request::RegisterMemory(MemoryLayout::Rings { count: 5, each: 4096 }),
            Request::RegisterMemory(MemoryLayout::Plain(77)),
            Request::Deregister(1 << 40),
            Request::DrainDoorbells,
            Request::AllocPipe,
            Request::FreePipe(8191),
            Request::Ready,
        ] {
            request.send(&client, None, SOON).unwrap();
            assert_eq!(Request::receive(&server, timeout).unwrap().unwrap().0, request);
        }
        for reply in [
            Reply::Welcome(3),
            Reply::Attached(9, DoorbellDelays { stamped: true, stall: 77 }),
            Reply::Registered(1 << 46),
            Reply::Pipe(4),
            Reply::Done,
            Reply::Refused("no: ask for less".into()),
            Reply::Refused(String::new()),
        ] {
            reply.send(&server, None::<OwnedFd>, SOON).unwrap();
            assert_eq!(Reply::receive(&client, timeout).unwrap().unwrap().0, reply);
        }
        drop(client);
        assert!(Request::receive(&server, timeout).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn decoding_never_panics(words: [u64; WORDS]) {
            let _ = Request::decode(words);
            for kind in 0..20 {
                let mut words = words;
                words[0] = kind;
                let _ = Request::decode(words);
            }
        }
    }
}
