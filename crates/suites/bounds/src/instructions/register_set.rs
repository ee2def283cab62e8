//! The registers and the memory that the copies of a form may use.

use super::operand::{Operand, RegisterClass, Template};

/// Lines of memory that independent copies touch in turn.
const LINES: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Registers that a form may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegisterSet {
    /// All.
    Whole,
    /// Those of the one of two forms that run side by side.
    First,
    /// Those of the other. Registers that instructions name by themselves are in neither.
    Second,
}

impl RegisterSet {
    /// Whether it holds a register.
    pub(super) fn has(self, bank: RegisterClass, number: u8) -> bool {
        let second = match bank {
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
                !(second || bank == RegisterClass::General && [RAX, RDX].contains(&number))
            }
            Self::Second => second,
        }
    }

    /// Where in the data the copy of a number finds its memory: on a line of its own, and not in the same
    /// bank.
    pub(super) fn place(self, copy: usize, template: &Template) -> usize {
        let begin = if self == Self::Second { LINES * LINE * 2 } else { 0 };
        let bytes = template.memory().map_or(0, |at| match template.operands()[at] {
            Operand::Memory(bits) => usize::from(bits / 8),
            Operand::Register(..) => 0,
        });
        let line = copy % LINES;
        begin + line * LINE + line * bytes % LINE
    }
}

const RAX: u8 = 0;
const RDX: u8 = 2;

/// The registers of a bank that code may use. xmm0 and rax come last: old instructions name them.
pub(super) fn pool(bank: Option<RegisterClass>) -> impl DoubleEndedIterator<Item = u8> {
    const GENERAL: &[u8] = &[6, 7, 8, 9, 10, 11, 12, 5, 3, 2, 1, 0];
    const VECTOR: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0];
    const MMX: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7];
    const MASK: &[u8] = &[1, 2, 3, 4, 5, 6, 7];
    const BOUNDS: &[u8] = &[0, 1, 2, 3];
    // Forms name the top; one is left for what is pushed.
    const X87: &[u8] = &[1, 2, 3, 4, 5, 6];
    let all = match bank {
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
