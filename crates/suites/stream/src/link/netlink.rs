//! Messages of rtnetlink(7): requests, and parsing of the kernel's answers.

use std::io;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct ifinfomsg`.
pub(super) const INFO: usize = 16;
/// Length of the header of an attribute.
const ATTRIBUTE: usize = 4;
/// Size of the buffer for an answer, in bytes: what the kernel uses for its own.
const ANSWER: usize = 32 << 10;

const ERROR: u16 = libc::NLMSG_ERROR as u16;

/// A request about one interface.
pub(super) struct Request(Vec<u8>);

impl Request {
    /// Creates a request of a type, with `struct ifinfomsg` for an interface, or 0.
    pub(super) fn new(kind: u16, flags: i32, index: u32, set: u32, change: u32) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(info(index, set, change));
        Self(bytes)
    }

    /// Appends an attribute.
    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        put(&mut self.0, kind, value);
        self
    }

    /// Sends it in this thread's network namespace. Returns the body of the answer, which is empty if it only confirms.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn send(mut self) -> io::Result<Vec<u8>> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let flags = SocketFlags::CLOEXEC;
        // The protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        send(&socket, &self.0, SendFlags::empty())?;
        let mut answer = vec![0; ANSWER];
        let (_, received) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(received);
        body(&answer).map(<[u8]>::to_vec)
    }
}

/// Returns `struct ifinfomsg`.
pub(super) fn info(index: u32, set: u32, change: u32) -> [u8; INFO] {
    let mut info = [0; INFO];
    for (place, word) in info[4..].chunks_exact_mut(4).zip([index, set, change]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    info
}

/// Appends an attribute, padded to four bytes.
pub(super) fn put(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (value.len().saturating_add(ATTRIBUTE)) as u16;
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Returns the body of the first message of an answer, without its header; empty for a confirmation.
///
/// # Errors
/// Returns the error in the message.
fn body(answer: &[u8]) -> io::Result<&[u8]> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "a broken answer of netlink");
    let length = word(answer, 0).ok_or_else(broken)? as usize;
    let kind = half(answer, 4).ok_or_else(broken)?;
    let body = answer.get(HEADER..length).ok_or_else(broken)?;
    if kind != ERROR {
        return Ok(body);
    }
    match word(body, 0).ok_or_else(broken)?.cast_signed() {
        0 => Ok(&[]),
        errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
    }
}

/// Returns the value of the first attribute of a kind.
pub(super) fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(half(attributes, 0)?);
        let value = attributes.get(ATTRIBUTE..length)?;
        if half(attributes, 2)? == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_found_behind_others() {
        let mut all = Vec::new();
        put(&mut all, 3, b"veth0\0");
        put(&mut all, 4, &1500_u32.to_ne_bytes());
        assert_eq!(all.len(), 12 + 8);
        assert_eq!(find(&all, 3), Some(&b"veth0\0"[..]));
        assert_eq!(find(&all, 4).and_then(|value| word(value, 0)), Some(1500));
        assert_eq!(find(&all, 5), None);
        assert_eq!(find(&all[..11], 4), None);
    }

    #[test]
    fn the_error_of_an_answer_is_returned() {
        let answer = |errno: i32| {
            let mut bytes = Request::new(ERROR, 0, 0, 0, 0).0;
            bytes.extend([0; 4]);
            bytes[HEADER..HEADER + 4].copy_from_slice(&(-errno).to_ne_bytes());
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            body(&bytes).map(<[u8]>::len).map_err(|why| why.raw_os_error())
        };
        assert_eq!(answer(0), Ok(0));
        assert_eq!(answer(libc::ENODEV), Err(Some(libc::ENODEV)));
    }

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..64_u16) {
            let _ = body(&bytes);
            let _ = find(&bytes, kind);
        }
    }
}
