//! How the guest enters its kernel and leaves it.

use lab::point::Point;
use lab::sample::Failure;

use crate::factors::KINDS;

/// How the kernel is entered and left; the number is the place in [`KINDS`], which the guest's code
/// knows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// All, in the order of [`KINDS`].
    pub const ALL: [Self; 8] = [
        Self::PageFault,
        Self::SoftwareInterrupt,
        Self::Breakpoint,
        Self::InvalidOpcode,
        Self::SyscallSysret,
        Self::SyscallIretq,
        Self::SameRing,
        Self::None,
    ];

    /// The level of the factor.
    pub fn name(self) -> &'static str {
        KINDS[self as usize]
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The point's kind.
    ///
    /// # Errors
    /// Where the point's level is none.
    pub fn of(point: &Point) -> Result<Self, Failure> {
        let name = point.text("kind");
        Self::named(name).ok_or_else(|| Failure::failed(format!("'{name}' is no kind of crossing")))
    }

    /// Whether the kind has a handler, which must be in ring 0.
    pub fn needs_ring_0(self) -> bool {
        self != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_the_levels_of_the_factor() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(Kind::named(KINDS[index]), Some(kind));
        }
        assert_eq!(Kind::ALL.len(), KINDS.len());
        assert_eq!(Kind::named("teleport"), None);
        assert_eq!(Kind::PageFault.name(), "page-fault");
        assert_eq!(Kind::None.name(), "none");
    }
}
