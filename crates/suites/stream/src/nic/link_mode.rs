//! How the packets of a link pass an interface of Linux.

use std::fmt;

/// How packets pass an interface, as far as the kernel decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// An AF_XDP socket.
    AfXdp {
        /// Whether packets are not copied.
        zero_copy: bool,
        /// Whether the driver runs the XDP program, rather than the network stack.
        native: bool,
    },
    /// A packet socket.
    AfPacket,
    /// A TAP interface.
    Tap,
}

impl fmt::Display for LinkMode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfXdp { zero_copy, native } => {
                let copy = if *zero_copy { "zero-copy" } else { "copy mode" };
                let xdp = if *native { "native" } else { "generic" };
                write!(to, "AF_XDP, {copy}, {xdp} XDP")
            }
            Self::AfPacket => to.write_str("AF_PACKET, TPACKET_V2 rings"),
            Self::Tap => to.write_str("TAP, one system call per packet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_described() {
        let xdp = |zero_copy, native| LinkMode::AfXdp { zero_copy, native }.to_string();
        assert_eq!(xdp(false, true), "AF_XDP, copy mode, native XDP");
        assert_eq!(xdp(true, false), "AF_XDP, zero-copy, generic XDP");
    }
}
