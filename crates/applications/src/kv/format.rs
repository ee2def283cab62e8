//! Requests to the store, and its answers: the payload of a UDP packet. Numbers are in network byte order.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0 to 17 | mark: any bytes of the client, returned unchanged |
//! | 18, 19 | `KV` |
//! | 20, 21 | number of requests, at least 1 |
//! | 22, 23 | 0 |
//! | 24 + 24 n | request n |
//!
//! | byte of a request | content |
//! | --- | --- |
//! | 0 | [`GET`] or [`SET`] |
//! | 1 to 6 | 0 |
//! | 7 | 0 in a request; in an answer its [status](Status) |
//! | 8 to 15 | value: in a SET that to be set, in the answer to a GET that which was found; otherwise 0 |
//! | 16 to 23 | key |
//!
//! An answer has the length and the order of its request. Bytes after the last request are returned unchanged.

/// Length of the mark, in bytes.
pub const MARK: usize = 18;
/// Length of the header, in bytes.
pub const HEADER: usize = 24;
/// Length of a request, in bytes.
pub const REQUEST: usize = 24;
/// Operation that returns the value of a key.
pub const GET: u8 = 1;
/// Operation that sets the value of a key.
pub const SET: u8 = 2;

/// Offset of the status in a request.
pub const STATUS: usize = 7;
/// Offset of the value in a request.
pub(super) const VALUE: usize = 8;
/// Offset of the key in a request.
pub(super) const KEY: usize = 16;

const NAME: [u8; 2] = *b"KV";

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// A GET found a value, or a SET has set it.
    Done = 1,
    /// A GET found none: the key was not set or has been evicted.
    Missing = 2,
    /// The key belongs to another partition.
    Elsewhere = 3,
    /// Neither GET nor SET.
    Unknown = 4,
}

impl Status {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Done, Self::Missing, Self::Elsewhere, Self::Unknown]
            .into_iter()
            .find(|status| *status as u8 == byte)
    }
}

/// An operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Returns the value of a key.
    Get {
        /// The key.
        key: u64,
    },
    /// Sets the value of a key.
    Set {
        /// The key.
        key: u64,
        /// The value.
        value: u64,
    },
}

impl Operation {
    /// Returns the key.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        match self {
            Self::Get { key } | Self::Set { key, .. } => *key,
        }
    }
}

/// Returns the length of a payload with `requests` requests, in bytes.
pub const fn length(requests: usize) -> usize {
    HEADER + requests * REQUEST
}

/// A request or an answer, as in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// [`GET`] or [`SET`].
    pub operation: u8,
    /// 0 in a request, the [status](Status) in an answer.
    pub status: u8,
    /// The value.
    pub value: u64,
    /// The key.
    pub key: u64,
}

impl Request {
    /// Reads a request or an answer.
    pub fn of(bytes: &[u8; REQUEST]) -> Self {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self { operation: bytes[0], status: bytes[STATUS], value: word(VALUE), key: word(KEY) }
    }

    /// Returns the operation that a request asks for; `None` if it is unknown.
    pub fn to_operation(self) -> Option<Operation> {
        let Self { operation, key, value, .. } = self;
        match operation {
            GET => Some(Operation::Get { key }),
            SET => Some(Operation::Set { key, value }),
            _ => None,
        }
    }

    /// Returns the answer to a request.
    #[must_use]
    pub fn with_answer(self, status: Status, value: u64) -> Self {
        Self { status: status as u8, value, ..self }
    }

    /// Writes the request or answer.
    pub fn put(self, bytes: &mut [u8; REQUEST]) {
        *bytes = [0; REQUEST];
        (bytes[0], bytes[STATUS]) = (self.operation, self.status);
        bytes[VALUE..KEY].copy_from_slice(&self.value.to_be_bytes());
        bytes[KEY..].copy_from_slice(&self.key.to_be_bytes());
    }
}

impl From<Operation> for Request {
    fn from(operation: Operation) -> Self {
        let (operation, key, value) = match operation {
            Operation::Get { key } => (GET, key, 0),
            Operation::Set { key, value } => (SET, key, value),
        };
        Self { operation, status: 0, value, key }
    }
}

/// Writes requests to a payload. Returns its length; `None` if there are none, or more than fit the payload or 16 bits.
pub fn write(payload: &mut [u8], mark: [u8; MARK], operations: &[Operation]) -> Option<usize> {
    let count = u16::try_from(operations.len()).ok().filter(|count| *count > 0)?;
    let payload = payload.get_mut(..length(operations.len()))?;
    payload.fill(0);
    payload[..MARK].copy_from_slice(&mark);
    payload[MARK..MARK + 2].copy_from_slice(&NAME);
    payload[MARK + 2..MARK + 4].copy_from_slice(&count.to_be_bytes());
    let requests = payload[HEADER..].as_chunks_mut().0;
    for (request, operation) in requests.iter_mut().zip(operations) {
        Request::from(*operation).put(request);
    }
    Some(length(operations.len()))
}

/// Returns the number of requests in a payload; `None` if it contains no requests, or fewer than it states.
#[inline(always)]
pub fn requests(payload: &[u8]) -> Option<usize> {
    let header = payload.first_chunk::<HEADER>()?;
    let count = usize::from(u16::from_be_bytes([header[MARK + 2], header[MARK + 3]]));
    let is_whole = count > 0 && length(count) <= payload.len();
    (header[MARK..MARK + 2] == NAME && is_whole).then_some(count)
}

/// Number of answers by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// GETs that found the value.
    pub found: u64,
    /// GETs of keys that were not set or have been evicted.
    pub missing: u64,
    /// SETs.
    pub set: u64,
}

/// Why an answer is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongAnswer {
    /// Not an answer of the store, or its end is missing.
    #[error("the payload is no answer; check which program answers")]
    Format,
    /// A status that an answer to this request cannot have.
    #[error("request {0} has status {1}; check how keys are assigned to partitions")]
    Status(usize, u8),
    /// Another value than the key has.
    #[error("request {0} returned a wrong value; the store or the packet is damaged")]
    Value(usize),
}

/// Checks the answers in a payload without knowledge of the requests: the value of a key is [that of its
/// number](super::value_of).
///
/// # Errors
/// Returns the first wrong answer.
pub fn check(payload: &[u8]) -> Result<Answers, WrongAnswer> {
    let count = requests(payload).ok_or(WrongAnswer::Format)?;
    let mut answers = Answers::default();
    for (number, answer) in payload[HEADER..].as_chunks().0[..count].iter().enumerate() {
        let Request { operation, status, value, key } = Request::of(answer);
        let is_right = value == super::value_of(key);
        match (operation, Status::from_byte(status)) {
            (GET, Some(Status::Done)) if is_right => answers.found += 1,
            (SET, Some(Status::Done)) if is_right => answers.set += 1,
            (GET | SET, Some(Status::Done)) => return Err(WrongAnswer::Value(number)),
            (GET, Some(Status::Missing)) => answers.missing += 1,
            _ => return Err(WrongAnswer::Status(number, status)),
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::kv::value_of;

    const CLIENT: [u8; MARK] = *b"the mark of client";

    #[test]
    fn requests_have_the_documented_bytes() {
        let mut payload = [0xee; 100];
        let operations = [Operation::Get { key: 0x0102_0304 }, Operation::Set { key: 5, value: 6 }];
        assert_eq!(write(&mut payload, CLIENT, &operations), Some(72));
        assert_eq!(payload[..24], *b"the mark of clientKV\0\x02\0\0");
        assert_eq!(payload[24..48], *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\x03\x04");
        assert_eq!(payload[48..72], *b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x05");
        assert_eq!((payload[72], requests(&payload)), (0xee, Some(2)));
        assert_eq!(requests(&payload[..71]), None);
        assert_eq!(write(&mut payload[..71], CLIENT, &operations), None);
        assert_eq!(write(&mut payload, CLIENT, &[]), None);
    }

    #[test]
    fn wrong_answers_are_found() {
        let mut payload = [0; 72];
        let operations = [Operation::Set { key: 3, value: value_of(3) }, Operation::Get { key: 9 }];
        write(&mut payload, CLIENT, &operations).unwrap();
        assert_eq!(check(&payload), Err(WrongAnswer::Status(0, 0)), "requests are no answers");
        let [set, get] = [HEADER, HEADER + REQUEST];
        payload[set + STATUS] = Status::Done as u8;
        payload[get + STATUS] = Status::Missing as u8;
        assert_eq!(check(&payload), Ok(Answers { found: 0, missing: 1, set: 1 }));
        payload[get + STATUS] = Status::Done as u8;
        assert_eq!(check(&payload), Err(WrongAnswer::Value(1)));
        payload[get + VALUE..get + KEY].copy_from_slice(&value_of(9).to_be_bytes());
        assert_eq!(check(&payload), Ok(Answers { found: 1, missing: 0, set: 1 }));
        payload[set + VALUE] ^= 1;
        assert_eq!(check(&payload), Err(WrongAnswer::Value(0)));
        payload[set + STATUS] = Status::Missing as u8;
        assert_eq!(check(&payload), Err(WrongAnswer::Status(0, 2)), "a SET is never missing");
        assert_eq!(check(&payload[..48]), Err(WrongAnswer::Format));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(payload in vec(any::<u8>(), 0..200), named in any::<bool>()) {
            let mut payload = payload;
            if named && let Some(header) = payload.get_mut(MARK..MARK + 4) {
                header.copy_from_slice(b"KV\0\x03");
            }
            if let Some(count) = requests(&payload) {
                prop_assert!(length(count) <= payload.len());
            }
            let _ = check(&payload);
        }
    }
}
