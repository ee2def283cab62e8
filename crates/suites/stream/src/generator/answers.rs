//! Answers of the key-value store that differ from the expected ones: a value may be missing, because the store has evicted
//! it.

use applications::kv::format::{self, GET, HEADER, REQUEST, Request, Status};
use applications::packet::{Headers, checksum};

use super::packet_checker::Expected;
use crate::wire::mark::{self, is_balanced};
use crate::wire::packet::MAX_LENGTH;

/// Returns the number of missing values in an answer that differs from the expected one only in these, each with a value of
/// 0, and in its checksum, which is right. `None` if it differs in anything else.
///
/// # Safety
/// `packet` has `length` bytes, and the image as many as the expected packet.
#[cold]
#[inline(never)]
pub(super) unsafe fn missing<const AT: usize>(
    packet: *const u8,
    length: usize,
    expected: &Expected,
) -> Option<u64> {
    if length != usize::from(expected.length) || length > MAX_LENGTH {
        return None;
    }
    // SAFETY: both have `length` bytes.
    let (packet, image) = unsafe {
        (
            std::slice::from_raw_parts(packet, length),
            std::slice::from_raw_parts(expected.image, length),
        )
    };
    if !is_balanced::<AT>(packet) {
        return None;
    }
    // The answer that is expected if each value that it reports missing is missing; with its mark.
    let mut answer = [0; MAX_LENGTH];
    let answer = &mut answer[..length];
    answer.copy_from_slice(image);
    answer[AT..][..mark::length(AT)].copy_from_slice(&packet[AT..][..mark::length(AT)]);
    let headers = Headers::parse(image).ok()?;
    let requests = format::requests(headers.payload_of(image))?;
    let first = headers.payload + HEADER;
    let mut count = 0;
    for at in (first..).step_by(REQUEST).take(requests) {
        let (of_packet, of_answer) = (packet.get(at..)?, answer.get_mut(at..)?);
        let found = Request::of(of_packet.first_chunk()?);
        let request = of_answer.first_chunk_mut::<REQUEST>()?;
        let wanted = Request::of(request);
        if found.operation == GET
            && found.status == Status::Missing as u8
            && wanted.status == Status::Done as u8
        {
            wanted.with_answer(Status::Missing, 0).put(request);
            count += 1;
        }
    }
    // The checksum is that of these bytes.
    let field = headers.transport + 6;
    if image[field..field + 2] != [0, 0] {
        let right = checksum::of_transport(answer, &headers)?;
        answer[field..field + 2].copy_from_slice(&right.to_ne_bytes());
    }
    (count > 0 && answer == packet).then_some(count)
}
