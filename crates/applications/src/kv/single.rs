//! Packets with one request and nothing else: no tag, no options, and no bytes after the request. All offsets are constants, so a
//! packet is validated in one pass, and answered without another one.

use super::format::{self, HEADER, KEY, REQUEST};
use crate::packet::checksum::{fold, sum_words};
use crate::packet::{ETHERNET, FRAGMENT, Headers, IPV4, UDP, UDP_HEADER, read, rewrite};

const TRANSPORT: usize = ETHERNET + IPV4;
const PAYLOAD: usize = TRANSPORT + UDP_HEADER;
const FIRST: usize = PAYLOAD + HEADER;
/// Length of the packet.
pub(super) const LENGTH: usize = PAYLOAD + format::length(1);

/// The packet.
pub(super) type Single = [u8; LENGTH];

/// Its headers.
pub(super) const HEADERS: Headers = Headers {
    ip: ETHERNET,
    transport: TRANSPORT,
    end: LENGTH,
    protocol: UDP,
    payload: PAYLOAD,
    payload_end: LENGTH,
};

const IP_LENGTH: [u8; 2] = ((LENGTH - ETHERNET) as u16).to_be_bytes();
const UDP_LENGTH: [u8; 2] = ((LENGTH - TRANSPORT) as u16).to_be_bytes();
/// Protocol and length in the pseudo-header of the checksum.
const PSEUDO: u64 = u32::from_ne_bytes([0, UDP, UDP_LENGTH[0], UDP_LENGTH[1]]) as u64;

/// Returns whether the first bytes of a packet are all of it, with one request and right checksums. A packet without checksum is
/// left to the path for all packets.
#[inline(always)]
pub(super) fn is_valid(packet: &Single) -> bool {
    let word = |at| u64::from_ne_bytes(read(packet, at));
    let is_request = packet[12..15] == [8, 0, 0x45]
        && packet[16..18] == IP_LENGTH
        && u16::from_be_bytes([packet[20], packet[21]]) & FRAGMENT == 0
        && packet[23] == UDP
        && packet[38..40] == UDP_LENGTH
        && packet[PAYLOAD + format::MARK..FIRST - 2] == *b"KV\0\x01";
    let ip = sum_words([word(14), word(22), u64::from(u32::from_ne_bytes(read(packet, 30)))]);
    // The addresses and the whole segment.
    let [addresses, a, b, c, d, e, f, g] = [26, 34, 42, 50, 58, 66, 74, 82].map(word);
    let udp = sum_words([PSEUDO, addresses, a, b, c, d, e, f, g]);
    is_request && fold(ip) == 0xffff && fold(udp) == 0xffff
}

/// Returns the key of the request.
#[inline(always)]
pub(super) fn key(packet: &Single) -> u64 {
    u64::from_be_bytes(read(packet, FIRST + KEY))
}

/// Answers a valid packet. `answer` writes the answer to the request and returns what that adds to the sum.
#[inline(always)]
pub(super) fn answer(packet: &mut Single, answer: impl FnOnce(&mut [u8; REQUEST]) -> u64) {
    let change = packet.last_chunk_mut().map_or(0, answer);
    rewrite::swap_addresses(packet, &HEADERS);
    rewrite::update_udp_checksum(packet, &HEADERS, change);
}
