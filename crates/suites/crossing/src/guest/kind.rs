//! How the guest enters its kernel and leaves it.

use lab::factor::LevelType;

/// How the kernel is entered and left; the number is the place in the declaration, which the guest's code
/// knows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, LevelType)]
#[repr(u8)]
pub enum Kind {
    /// A write from ring 3 to a page that is not there; left by `iretq`.
    PageFault,
    /// `int 0x80` and `iretq`.
    SoftwareInterrupt,
    /// `int3` and `iretq`.
    Breakpoint,
    /// `ud2` and `iretq`.
    InvalidOpcode,
    /// `syscall` and `sysretq`.
    SyscallSysret,
    /// `syscall` and `iretq`.
    SyscallIretq,
    /// `int 0x80` from ring 0 to ring 0, and `iretq` there.
    SameRing,
    /// The stamps with nothing between them.
    None,
}

impl Kind {
    /// Whether the kind has a handler, which must be in ring 0.
    pub fn needs_ring_0(self) -> bool {
        self != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_as_declared_and_named_as_levels() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(Kind::from_level(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_level("teleport"), None);
        assert_eq!(Kind::PageFault.name(), "page-fault");
        assert_eq!(Kind::None.name(), "none");
    }
}
