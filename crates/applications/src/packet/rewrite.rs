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
    let (destination, source) = (read::<6>(frame, 0), read::<6>(frame, 6));
    write(frame, 0, source);
    write(frame, 6, destination);
    let (source, destination) =
        (read::<4>(frame, headers.ip + 12), read::<4>(frame, headers.ip + 16));
    write(frame, headers.ip + 12, destination);
    write(frame, headers.ip + 16, source);
    if headers.protocol == UDP || headers.protocol == TCP {
        let ports = u32::from_ne_bytes(read(frame, headers.transport));
        write(frame, headers.transport, ports.rotate_left(16).to_ne_bytes());
    }
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
