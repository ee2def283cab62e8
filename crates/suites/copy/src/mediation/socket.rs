//! Messages between mediator and host, with at most one descriptor each.
//!
//! A host is a forked process that must not allocate, so all data here is on the stack.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_void, cmsghdr, iovec, msghdr};

/// A message: its kind, and arguments that depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Message {
    pub(super) kind: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) value: u64,
}

/// Buffer of one descriptor's control message, with the required alignment.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Creates a connected pair of sockets that preserve message boundaries; receiving from the first
/// times out after `patience`.
///
/// # Errors
/// Returns the error of socketpair(2) or setsockopt(2).
pub(super) fn pair(patience: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut both = [0; 2];
    // SAFETY: the kernel writes two integers.
    let code = unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            both.as_mut_ptr(),
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created both descriptors, and nothing else owns them.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(both[0]), OwnedFd::from_raw_fd(both[1])) };
    let time = libc::timeval {
        tv_sec: patience.as_secs() as i64,
        tv_usec: patience.subsec_micros().into(),
    };
    // SAFETY: the timeval outlives the call, and its size is passed.
    let code = unsafe {
        libc::setsockopt(
            ours.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const time).cast::<c_void>(),
            size_of_val(&time) as u32,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((ours, theirs))
}

/// Sends a message, with a descriptor if there is one.
///
/// # Errors
/// Returns the error of sendmsg(2).
pub(super) fn send(socket: RawFd, message: &Message, descriptor: Option<RawFd>) -> io::Result<()> {
    let mut part =
        iovec { iov_base: (&raw const *message).cast_mut().cast(), iov_len: size_of::<Message>() };
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is valid; all that it points to outlives the call, and the control
    // message of one descriptor fits into its buffer.
    let sent = unsafe {
        let mut header: msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let first: *mut cmsghdr = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(descriptor);
        }
        libc::sendmsg(socket, &header, libc::MSG_NOSIGNAL)
    };
    if sent == size_of::<Message>() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for a message and the descriptor that came with it; the caller must close the descriptor.
///
/// # Errors
/// Returns the error of recvmsg(2): `WouldBlock` after a timeout, `UnexpectedEof` if the other side
/// has closed its socket.
pub(super) fn receive(socket: RawFd) -> io::Result<(Message, Option<RawFd>)> {
    let mut message = Message::default();
    let mut part = iovec { iov_base: (&raw mut message).cast(), iov_len: size_of::<Message>() };
    let mut control = Control([0; 64]);
    // SAFETY: an all-zero msghdr is valid; all that it points to outlives the call, and the kernel writes
    // within the lengths passed to it.
    unsafe {
        let mut header: msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len();
        let received = libc::recvmsg(socket, &mut header, libc::MSG_CMSG_CLOEXEC);
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        if received != size_of::<Message>() as isize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let first = libc::CMSG_FIRSTHDR(&header);
        let is_rights = !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS;
        let descriptor = is_rights.then(|| libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned());
        Ok((message, descriptor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_a_descriptor_arrive() {
        let (ours, theirs) = pair(Duration::from_millis(20)).unwrap();
        let message = Message { kind: 1, offset: 2, length: 3, value: 4 };
        send(ours.as_raw_fd(), &message, None).unwrap();
        send(ours.as_raw_fd(), &message, Some(theirs.as_raw_fd())).unwrap();
        assert_eq!(receive(theirs.as_raw_fd()).unwrap(), (message, None));
        let (_, descriptor) = receive(theirs.as_raw_fd()).unwrap();
        // SAFETY: the descriptor was just received, and nothing else owns it.
        let passed = unsafe { OwnedFd::from_raw_fd(descriptor.unwrap()) };
        send(passed.as_raw_fd(), &message, None).unwrap();
        assert_eq!(receive(ours.as_raw_fd()).unwrap().0, message);
        assert_eq!(receive(ours.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((theirs, passed));
        assert!(receive(ours.as_raw_fd()).is_err());
    }
}
