//! What a program and the process of a NIC say to each other: words of 8 bytes, and for people a text.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::super::interface_config::InterfaceConfig;
use super::super::memory::MemoryLayout;
use super::fds::{self, Timeout};

/// What they say and what they share is laid out as of this version.
pub(crate) const VERSION: u64 = 2;
/// How a program begins.
const MAGIC: u64 = u64::from_le_bytes(*b"tollgate");
/// Words of each message: what it is, what it says, and the bytes of the text that follows.
const WORDS: usize = 8;
/// Bytes of a text at most.
const LONGEST: u64 = 1024;

/// What a program asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Comes first: the version, and the form of NIC that it can use; none where it is not known here.
    Hello(u64, Option<InterfaceConfig>),
    /// One more core.
    Attach,
    /// It goes.
    Detach(u32),
    /// The NIC may touch the memory whose descriptor comes with this.
    Lend(MemoryLayout),
    /// It may not any more.
    TakeBack(u64),
    /// All that was written to registers is to be taken.
    DrainDoorbells,
    TakePipe,
    GivePipe(u32),
    /// Packets may come.
    Ready,
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To a hello: the CPU of the NIC.
    Welcome(u64),
    /// A pair of notification buffers, and whether its doorbells say when they were written; the memory of
    /// their queue comes with this.
    Attached(u32, bool),
    /// Where the memory lies for the NIC.
    Lent(u64),
    Pipe(u32),
    Done,
    /// Why not.
    Refused(String),
}

impl Request {
    fn words(self) -> [u64; WORDS] {
        match self {
            Self::Hello(version, config) => {
                let [a, b, c, d] = config.map_or([0; 4], InterfaceConfig::words);
                [MAGIC, version, a, b, c, d, 0, 0]
            }
            Self::Attach => said(1, 0, 0),
            Self::Detach(pair) => said(2, pair.into(), 0),
            Self::Lend(MemoryLayout::Rings { count, each }) => said(3, count as u64, each as u64),
            Self::Lend(MemoryLayout::Plain(bytes)) => said(4, bytes as u64, 0),
            Self::TakeBack(bus) => said(5, bus, 0),
            Self::DrainDoorbells => said(6, 0, 0),
            Self::TakePipe => said(7, 0, 0),
            Self::GivePipe(pipe) => said(8, pipe.into(), 0),
            Self::Ready => said(9, 0, 0),
        }
    }

    fn of(words: [u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c, d, e, ..] = words;
        Some(match kind {
            MAGIC => Self::Hello(a, InterfaceConfig::of([b, c, d, e])),
            1 => Self::Attach,
            2 => Self::Detach(a.try_into().ok()?),
            3 => Self::Lend(MemoryLayout::Rings { count: a as usize, each: b as usize }),
            4 => Self::Lend(MemoryLayout::Plain(a as usize)),
            5 => Self::TakeBack(a),
            6 => Self::DrainDoorbells,
            7 => Self::TakePipe,
            8 => Self::GivePipe(a.try_into().ok()?),
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

    /// The next; none where the program has gone.
    ///
    /// # Errors
    /// `InvalidData` if it means nothing or a descriptor came with it that it has no use for, and those of
    /// [`fds::receive`].
    pub(crate) fn receive(
        from: &UnixStream,
        timeout: Timeout,
    ) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let Some((words, fd)) = receive(from, timeout)? else { return Ok(None) };
        let request = Self::of(words).ok_or(io::ErrorKind::InvalidData)?;
        match request {
            Self::Lend(_) => {}
            _ if fd.is_none() => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(Some((request, fd)))
    }
}

impl Reply {
    fn words(&self) -> [u64; WORDS] {
        match self {
            Self::Refused(text) => [0, 0, 0, 0, 0, 0, 0, LONGEST.min(text.len() as u64)],
            Self::Welcome(cpu) => said(1, *cpu, 0),
            Self::Attached(pair, stamped) => said(2, u64::from(*pair), u64::from(*stamped)),
            Self::Lent(bus) => said(3, *bus, 0),
            Self::Pipe(pipe) => said(4, u64::from(*pipe), 0),
            Self::Done => said(5, 0, 0),
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
            all.extend(text.bytes().take(LONGEST as usize));
        }
        fds::send(to, &all, fd.as_ref().map(AsFd::as_fd), within)
    }

    /// The next; none where the NIC has gone.
    ///
    /// # Errors
    /// As for [`Request::receive`].
    pub(crate) fn receive(
        from: &UnixStream,
        timeout: Timeout,
    ) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let Some((words, fd)) = receive(from, timeout)? else { return Ok(None) };
        let [kind, a, b, .., length] = words;
        let reply = match kind {
            0 => {
                let mut text = vec![0; LONGEST.min(length) as usize];
                let (come, _) = fds::receive(from, &mut text, Timeout::within(timeout.rest))?;
                text.truncate(come);
                // A person reads it: it stays one line, and moves no cursor.
                let text = String::from_utf8_lossy(&text);
                Self::Refused(lab::terminal::one_line(&text).into_owned())
            }
            1 => Self::Welcome(a),
            2 => Self::Attached(number(a)?, b != 0),
            3 => Self::Lent(a),
            4 => Self::Pipe(number(a)?),
            5 => Self::Done,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some((reply, fd)))
    }
}

/// A number of a pipe or a pair, which has 32 bits.
fn number(word: u64) -> io::Result<u32> {
    word.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
}

fn said(kind: u64, a: u64, b: u64) -> [u64; WORDS] {
    [kind, a, b, 0, 0, 0, 0, 0]
}

fn bytes(words: [u64; WORDS]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of one message; none where nothing comes any more.
fn receive(
    from: &UnixStream,
    timeout: Timeout,
) -> io::Result<Option<([u64; WORDS], Option<OwnedFd>)>> {
    let mut bytes = [[0; 8]; WORDS];
    match fds::receive(from, bytes.as_flattened_mut(), timeout)? {
        (0, _) => Ok(None),
        (come, fd) if come == WORDS * 8 => Ok(Some((bytes.map(u64::from_le_bytes), fd))),
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
    fn what_is_said_is_heard() {
        let timeout = Timeout::at_any_time(SOON);
        let (here, there) = UnixStream::pair().unwrap();
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
            Request::Lend(MemoryLayout::Rings { count: 5, each: 4096 }),
            Request::Lend(MemoryLayout::Plain(77)),
            Request::TakeBack(1 << 40),
            Request::DrainDoorbells,
            Request::TakePipe,
            Request::GivePipe(8191),
            Request::Ready,
        ] {
            request.send(&here, None, SOON).unwrap();
            assert_eq!(Request::receive(&there, timeout).unwrap().unwrap().0, request);
        }
        for reply in [
            Reply::Welcome(3),
            Reply::Attached(9, true),
            Reply::Lent(1 << 46),
            Reply::Pipe(4),
            Reply::Done,
            Reply::Refused("no: ask for less".into()),
            Reply::Refused(String::new()),
        ] {
            reply.send(&there, None::<OwnedFd>, SOON).unwrap();
            assert_eq!(Reply::receive(&here, timeout).unwrap().unwrap().0, reply);
        }
        drop(here);
        assert!(Request::receive(&there, timeout).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_words_are_a_fault(words: [u64; WORDS]) {
            let _ = Request::of(words);
            for kind in 0..20 {
                let mut words = words;
                words[0] = kind;
                let _ = Request::of(words);
            }
        }
    }
}
