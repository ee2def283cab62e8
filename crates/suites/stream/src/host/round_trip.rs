//! What the NIC's timestamps say.

use std::time::Duration;

use crate::nic::layout::CYCLE;

/// How long ago a packet left this NIC that now came back, where
/// [timestamps](crate::nic::configuration::Configuration::Timestamp) lie at this offset; what did not leave
/// this NIC says nothing, or anything. None where the packet is too short. It begins anew after 21 seconds.
pub fn round_trip(packet: &[u8], offset: u8) -> Option<Duration> {
    let field = packet.get(usize::from(offset)..)?.first_chunk()?;
    Some(CYCLE * u32::from_be_bytes(*field))
}
