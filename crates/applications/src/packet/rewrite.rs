//! Changes of addresses.

use super::{Headers, TCP, UDP, checksum, read, write};

/// Replaces the destination address, and nothing else: the checksums become wrong.
#[inline(always)]
pub fn set_destination_only(frame: &mut [u8], headers: &Headers, address: [u8; 4]) {
    write(frame, headers.ip + 16, address);
}

/// Replaces the destination address and updates the checksums of IPv4 and of UDP or TCP. A wrong checksum remains wrong, so
/// the receiver detects damage that happened before.
#[inline(always)]
pub fn set_destination(frame: &mut [u8], headers: &Headers, address: [u8; 4]) {
    let at = headers.ip + 16;
    let (old, new) = (u32::from_ne_bytes(read(frame, at)), u32::from_ne_bytes(address));
    write(frame, at, address);
    let change = checksum::change(old, new);
    let field = headers.ip + 10;
    let checksum = u16::from_ne_bytes(read(frame, field));
    write(frame, field, checksum::update(checksum, change).to_ne_bytes());
    let Some(field) = checksum::field(headers) else { return };
    let checksum = u16::from_ne_bytes(read(frame, field));
    let updated = match headers.protocol {
        UDP => checksum::update_udp(checksum, change),
        _ => checksum::update(checksum, change),
    };
    write(frame, field, updated.to_ne_bytes());
}

/// Swaps source and destination of Ethernet, IPv4, and UDP or TCP. No checksum changes, because sums do not depend on the
/// order of words.
#[inline(always)]
pub fn swap_addresses(frame: &mut [u8], headers: &Headers) {
    // In whole words: 12 B of Ethernet, and 8 B of IPv4.
    let first = u64::from_le_bytes(read(frame, 0));
    let last = u32::from_le_bytes(read(frame, 8));
    write(frame, 0, (first >> 48 | u64::from(last) << 16 | first << 48).to_le_bytes());
    write(frame, 8, ((first >> 16) as u32).to_le_bytes());
    let addresses = u64::from_ne_bytes(read(frame, headers.ip + 12));
    write(frame, headers.ip + 12, addresses.rotate_left(32).to_ne_bytes());
    if headers.protocol == UDP || headers.protocol == TCP {
        let ports = u32::from_ne_bytes(read(frame, headers.transport));
        write(frame, headers.transport, ports.rotate_left(16).to_ne_bytes());
    }
}

/// Updates the checksum of UDP after changes of its payload that add `change` to its [sum](checksum::sum). An absent checksum
/// remains absent.
#[inline(always)]
pub fn update_udp_checksum(frame: &mut [u8], headers: &Headers, change: u64) {
    let field = headers.transport + 6;
    let checksum = u16::from_ne_bytes(read(frame, field));
    let updated = checksum::update_udp(checksum, checksum::fold(change));
    write(frame, field, updated.to_ne_bytes());
}

/// Computes the checksum of UDP or TCP again after its payload changed. An absent checksum remains absent.
#[inline(always)]
pub fn renew_checksum(frame: &mut [u8], headers: &Headers) {
    let Some(field) = checksum::field(headers) else { return };
    if headers.protocol == UDP && read::<2>(frame, field) == [0, 0] {
        return;
    }
    if let Some(checksum) = checksum::of_transport(frame, headers) {
        write(frame, field, checksum.to_ne_bytes());
    }
}
