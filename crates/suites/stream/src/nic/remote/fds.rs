//! Messages with file descriptors over a Unix socket, with timeouts.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::{Duration, Instant};

/// Buffer for one descriptor and its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Timeout of a message. A process that stops in the middle of one, or does not read, must not block a thread
/// forever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeout {
    /// Deadline for the first byte; `None` for no deadline.
    pub(crate) first: Option<Instant>,
    /// Time limit for the remaining bytes after the first, and for the other end to read a message.
    pub(crate) rest: Duration,
}

impl Timeout {
    /// Creates the timeout of a message that may start at any time.
    pub(crate) fn at_any_time(rest: Duration) -> Self {
        Self { first: None, rest }
    }

    /// Creates the timeout of a message that is due within `time` from now.
    pub(crate) fn within(time: Duration) -> Self {
        Self { first: Instant::now().checked_add(time), rest: time }
    }
}

/// Returns the time left until a deadline, or `None` if there is no deadline.
///
/// # Errors
/// Returns `TimedOut` after the deadline.
fn left(until: Option<Instant>) -> io::Result<Option<Duration>> {
    let Some(until) = until else { return Ok(None) };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// Sends all bytes, and a descriptor with the first of them.
///
/// # Errors
/// Returns `TimedOut` if the other end reads too little, or the error of `sendmsg(2)`.
pub(crate) fn send(
    socket: &UnixStream,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
    within: Duration,
) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let (mut rest, mut fd) = (bytes, fd.map(|fd| fd.as_raw_fd()));
    let until = Instant::now().checked_add(within);
    while !rest.is_empty() {
        socket.set_write_timeout(left(until)?)?;
        let mut part =
            libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let mut message = empty(&mut part);
        if let Some(fd) = fd {
            attach(&mut message, &mut control, fd);
        }
        // SAFETY: the message points to bytes and control data that live through the call.
        let done =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match usize::try_from(done) {
            Ok(done) => (rest, fd) = (rest.get(done..).unwrap_or_default(), None),
            Err(_) => retry(io::Error::last_os_error())?,
        }
    }
    Ok(())
}

/// Receives until `bytes` is full or the other end has closed. Returns the number of bytes and the descriptor that
/// came with them. The descriptor is missing if this process has no free one.
///
/// # Errors
/// Returns `TimedOut` if they take too long, `InvalidData` if there was more than one descriptor (all are closed
/// again), or the error of `recvmsg(2)`.
pub(crate) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    timeout: Timeout,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let (mut received, mut fds) = (0_usize, Vec::new());
    let mut until = timeout.first;
    while received < bytes.len() {
        socket.set_read_timeout(left(until)?)?;
        let mut control = Control([0; 64]);
        let rest = &mut bytes[received..];
        let mut part = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let mut message = empty(&mut part);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        // SAFETY: the message points to writable bytes and control data that live through the call.
        let done =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(done) {
            Ok(0) => break,
            Ok(done) => {
                if received == 0 {
                    let rest = Instant::now().checked_add(timeout.rest);
                    until = [until, rest].into_iter().flatten().min();
                }
                received = received.saturating_add(done);
                fds.extend(descriptors(&message));
                if fds.len() > 1 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            Err(_) => retry(io::Error::last_os_error())?,
        }
    }
    Ok((received, fds.pop()))
}

/// Returns `Ok` if a call that failed with `error` is to be repeated: the deadline is checked before the next call.
fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(error),
    }
}

fn empty(part: &mut libc::iovec) -> libc::msghdr {
    libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: part,
        msg_iovlen: 1,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

fn attach(message: &mut libc::msghdr, control: &mut Control, fd: RawFd) {
    // SAFETY: the functions only compute sizes.
    let (space, length) = unsafe {
        (libc::CMSG_SPACE(size_of::<RawFd>() as u32), libc::CMSG_LEN(size_of::<RawFd>() as u32))
    };
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = space as usize;
    // SAFETY: the buffer has space for one header and one descriptor, and is aligned to 8.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = length as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
    }
}

/// Size of a descriptor, in bytes.
const FD: usize = size_of::<RawFd>();

/// Returns the descriptors in a received message.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut received = Vec::new();
    // SAFETY: the kernel has filled the control buffer and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the header is in the control buffer; a header of descriptors is followed by as many as its length
        // states, each new and owned by this function.
        unsafe {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..bytes / FD {
                    let fd = first.add(index).read_unaligned();
                    received.push(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    received
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    const SOON: Duration = Duration::from_secs(60);
    const TIMEOUT: Timeout = Timeout { first: None, rest: SOON };

    #[test]
    fn a_descriptor_is_received_with_its_bytes() {
        let (sender, receiver) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"seen by both").unwrap();
        file.rewind().unwrap();
        send(&sender, b"without", None, SOON).unwrap();
        send(&sender, b"with", Some(file.as_fd()), SOON).unwrap();
        let mut bytes = [0; 7];
        let (come, fd) = receive(&receiver, &mut bytes, TIMEOUT).unwrap();
        assert!(come == 7 && &bytes == b"without" && fd.is_none());
        let (come, fd) = receive(&receiver, &mut bytes[..4], TIMEOUT).unwrap();
        assert!(come == 4 && &bytes[..4] == b"with");
        let mut text = String::new();
        File::from(fd.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "seen by both");
        drop(sender);
        assert_eq!(receive(&receiver, &mut bytes, TIMEOUT).unwrap().0, 0);
        assert!(send(&receiver, b"nobody", None, SOON).is_err());
    }

    #[test]
    fn more_than_one_descriptor_per_message_is_refused() {
        let (sender, receiver) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        // The kernel does not merge data with different descriptors.
        for part in [&b"on"[..], b"e"] {
            send(&sender, part, Some(file.as_fd()), SOON).unwrap();
        }
        let why = receive(&receiver, &mut [0; 3], TIMEOUT).map(|_| ()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn incomplete_messages_and_slow_readers_time_out() {
        let short = Duration::from_millis(20);
        let (sender, receiver) = UnixStream::pair().unwrap();
        let timed_out = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        };
        timed_out(receive(&receiver, &mut [0; 3], Timeout::within(short)).map(|_| ()));
        send(&sender, b"ha", None, SOON).unwrap();
        timed_out(receive(&receiver, &mut [0; 3], Timeout::at_any_time(short)).map(|_| ()));
        // A byte from time to time does not extend the deadline.
        let dripping = std::thread::spawn(move || {
            while sender.peer_addr().is_ok() && send(&sender, b"x", None, SOON).is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
            sender
        });
        timed_out(receive(&receiver, &mut [0; 1 << 16], Timeout::at_any_time(short)).map(|_| ()));
        drop(receiver);
        dripping.join().unwrap();
        let (sender, _receiver) = UnixStream::pair().unwrap();
        timed_out(send(&sender, &vec![0; 16 << 20], None, short));
    }
}
