//! Bytes over a Unix socket, and with them a file descriptor.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

/// Room for the descriptor, and for what the kernel puts around it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends all bytes, and with the first of them a descriptor where there is one.
pub(super) fn send(
    socket: &UnixStream,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let (mut sent, mut fd) = (0, fd.map(|fd| fd.as_raw_fd()));
    while sent < bytes.len() {
        let left = &bytes[sent..];
        let mut part =
            libc::iovec { iov_base: left.as_ptr().cast_mut().cast(), iov_len: left.len() };
        let mut message = empty(&mut part);
        if let Some(fd) = fd {
            attach(&mut message, &mut control, fd);
        }
        // SAFETY: the message points to bytes and control that live through the call.
        let done =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match usize::try_from(done) {
            Ok(done) => (sent, fd) = (sent + done, None),
            Err(_) => again(io::Error::last_os_error())?,
        }
    }
    Ok(())
}

/// Receives until the bytes are full or the other end has closed: how many came, and the first descriptor
/// that came with them. Further ones are closed.
pub(super) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let (mut come, mut fd) = (0, None);
    while come < bytes.len() {
        let mut control = Control([0; 64]);
        let left = &mut bytes[come..];
        let mut part = libc::iovec { iov_base: left.as_mut_ptr().cast(), iov_len: left.len() };
        let mut message = empty(&mut part);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        // SAFETY: the message points to bytes and control that live through the call, and may be written.
        let done =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(done) {
            Ok(0) => break,
            Ok(done) => {
                come += done;
                let received = descriptors(&message);
                fd = fd.or(received.into_iter().next());
            }
            Err(_) => again(io::Error::last_os_error())?,
        }
    }
    Ok((come, fd))
}

/// An interrupted call is made again.
fn again(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
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
    // SAFETY: it only computes.
    let (room, length) = unsafe {
        (libc::CMSG_SPACE(size_of::<RawFd>() as u32), libc::CMSG_LEN(size_of::<RawFd>() as u32))
    };
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = room as usize;
    // SAFETY: there is room for one header and a descriptor, aligned to 8.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = length as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
    }
}

/// The descriptors that the kernel put into a message.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut received = Vec::new();
    // SAFETY: the kernel has filled the control bytes in, and said how many they are.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the header lies in the control bytes; those of descriptors are followed by as many as its
        // length says, each new and owned by nobody else.
        unsafe {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for place in 0..bytes / size_of::<RawFd>() {
                    let fd = first.add(place).read_unaligned();
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

    #[test]
    fn a_descriptor_comes_with_its_bytes() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"seen by both").unwrap();
        file.rewind().unwrap();
        send(&here, b"without", None).unwrap();
        send(&here, b"with", Some(file.as_fd())).unwrap();
        let mut bytes = [0; 7];
        let (come, fd) = receive(&there, &mut bytes).unwrap();
        assert!(come == 7 && &bytes == b"without" && fd.is_none());
        let (come, fd) = receive(&there, &mut bytes[..4]).unwrap();
        assert!(come == 4 && &bytes[..4] == b"with");
        let mut text = String::new();
        File::from(fd.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "seen by both");
        drop(here);
        assert_eq!(receive(&there, &mut bytes).unwrap().0, 0);
        assert!(send(&there, b"nobody", None).is_err());
    }
}
