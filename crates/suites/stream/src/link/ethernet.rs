//! Ethernet addresses of hosts.

use std::fmt;
use std::str::FromStr;

/// Length of an address, in bytes.
pub(crate) const LENGTH: usize = 6;

/// The Ethernet address of a host: not of a group of hosts, and not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetAddress([u8; LENGTH]);

impl EthernetAddress {
    /// Returns an address; `None` if it is that of a group, e.g. the broadcast address, or zero.
    pub fn new(bytes: [u8; LENGTH]) -> Option<Self> {
        let is_group = bytes[0] & 1 != 0;
        (!is_group && bytes != [0; LENGTH]).then_some(Self(bytes))
    }

    /// Returns the bytes in the order in which they are sent.
    pub fn bytes(self) -> [u8; LENGTH] {
        self.0
    }

    /// Returns the address of the other end of a wire that has no address yet: one that is locally administered and differs.
    #[must_use]
    pub(crate) fn other_end(self) -> Self {
        let mut bytes = self.0;
        // The bit of locally administered addresses. Addresses of TAP interfaces have it, so another bit changes too.
        bytes[0] |= 2;
        bytes[LENGTH - 1] ^= 1;
        Self(bytes)
    }
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let each = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&each.join(":"))
    }
}

impl FromStr for EthernetAddress {
    type Err = String;

    /// Parses six bytes in hexadecimal notation, separated by colons.
    fn from_str(text: &str) -> Result<Self, String> {
        let byte = |part: &str| {
            let is_hex = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or("not an Ethernet address such as 02:00:00:00:00:01")?;
        Self::new(bytes).ok_or_else(|| "not the Ethernet address of one host".into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_addresses_of_one_host_are_accepted() {
        for (text, expected) in [
            ("02:00:5e:10:00:ff", Some([2, 0, 0x5e, 0x10, 0, 0xff])),
            ("02:00:5E:10:00:FF", Some([2, 0, 0x5e, 0x10, 0, 0xff])),
            ("ff:ff:ff:ff:ff:ff", None),
            ("01:00:5e:00:00:01", None),
            ("00:00:00:00:00:00", None),
            ("02:00:5e:10:00", None),
            ("02:00:5e:10:00:ff:00", None),
            ("2:0:5e:10:0:ff", None),
            ("02:00:5e:10:00:+f", None),
            ("02-00-5e-10-00-ff", None),
            ("", None),
        ] {
            let parsed = text.parse::<EthernetAddress>().ok();
            assert_eq!(parsed.map(EthernetAddress::bytes), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_address_is_read_as_it_is_printed(bytes in any::<[u8; LENGTH]>()) {
            let Some(address) = EthernetAddress::new(bytes) else { return Ok(()) };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            let other = address.other_end();
            prop_assert!(other != address && EthernetAddress::new(other.bytes()) == Some(other));
        }

        #[test]
        fn no_text_panics(text in "[0-9a-g:é]{0,20}|.{0,20}") {
            let _ = text.parse::<EthernetAddress>();
        }
    }
}
