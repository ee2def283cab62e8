//! Registers and memory that the copies of a form may use.

use super::operand::{Operand, RegisterClass, Template};

/// Number of cache lines that independent copies access.
const LINES: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Registers that a form may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegisterSet {
    /// All registers.
    Whole,
    /// Registers of the first of two interleaved forms.
    First,
    /// Registers of the second form. Neither set contains the registers that instructions use implicitly.
    Second,
}

impl RegisterSet {
    /// Returns whether the set contains a register.
    pub(super) fn has(self, class: RegisterClass, number: u8) -> bool {
        let second = match class {
            RegisterClass::General => number >= 8,
            RegisterClass::Vector => number >= 9,
            RegisterClass::Mmx
            | RegisterClass::Mask
            | RegisterClass::Bounds
            | RegisterClass::X87 => false,
        };
        match self {
            Self::Whole => true,
            Self::First => {
                !(second || class == RegisterClass::General && [RAX, RDX].contains(&number))
            }
            Self::Second => second,
        }
    }

    /// Returns the offset in the data of a copy's memory: on a separate cache line and in another bank.
    pub(super) fn offset(self, copy: usize, template: &Template) -> usize {
        let start = if self == Self::Second { LINES * LINE * 2 } else { 0 };
        let bytes = template.memory().map_or(0, |at| match template.operands()[at] {
            Operand::Memory(bits) => usize::from(bits / 8),
            Operand::Register(..) => 0,
        });
        let line = copy % LINES;
        start + line * LINE + line * bytes % LINE
    }
}

const RAX: u8 = 0;
const RDX: u8 = 2;

/// Returns the registers of a class that code may use. xmm0 and rax are last, because some instructions use them
/// implicitly.
pub(super) fn pool(class: Option<RegisterClass>) -> impl DoubleEndedIterator<Item = u8> {
    const GENERAL: &[u8] = &[6, 7, 8, 9, 10, 11, 12, 5, 3, 2, 1, 0];
    const VECTOR: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0];
    const MMX: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7];
    const MASK: &[u8] = &[1, 2, 3, 4, 5, 6, 7];
    const BOUNDS: &[u8] = &[0, 1, 2, 3];
    // Forms use the top of the stack; one register is reserved for a push.
    const X87: &[u8] = &[1, 2, 3, 4, 5, 6];
    let all = match class {
        Some(RegisterClass::General) => GENERAL,
        Some(RegisterClass::Vector) => VECTOR,
        Some(RegisterClass::Mmx) => MMX,
        Some(RegisterClass::Mask) => MASK,
        Some(RegisterClass::Bounds) => BOUNDS,
        Some(RegisterClass::X87) => X87,
        None => &[],
    };
    all.iter().copied()
}
