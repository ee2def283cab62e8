//! Values of registers and memory as lists give them.

use serde::Deserialize;

use crate::timing::Data;

/// What vectors and memory hold: 1 of this kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Holds {
    #[default]
    Integers,
    F32,
    F64,
}

impl Holds {
    /// 8 bytes of a number of this kind, as often as it fits.
    pub(crate) fn bits(self, number: f64) -> u64 {
        match self {
            Self::Integers => number as i64 as u64,
            Self::F32 => u64::from((number as f32).to_bits()) * 0x1_0000_0001,
            Self::F64 => number.to_bits(),
        }
    }
}

/// A value as it is written: with a point of the class's kind, without one as it is; or a place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Whole(i64),
    Number(f64),
    MemoryAddress(InMemory),
}

/// So many bytes into the memory, written as `memory` or `memory+4096`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct InMemory(usize);

impl TryFrom<String> for InMemory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let behind = text.strip_prefix("memory");
        let offset = behind.and_then(|behind| match behind.strip_prefix('+') {
            Some(number) => number.parse().ok(),
            None => behind.is_empty().then_some(0),
        });
        let inside = offset.filter(|offset| *offset < Data::LENGTH);
        inside.map(Self).ok_or_else(|| format!("'{text}' is no place, as \"memory+64\""))
    }
}

impl Value {
    /// The 8 bytes that are set, where the memory begins at `base`.
    pub(crate) fn bits(self, holds: Holds, base: u64) -> u64 {
        match self {
            Self::Whole(value) => value as u64,
            Self::Number(number) => holds.bits(number),
            Self::MemoryAddress(InMemory(offset)) => base + offset as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_the_classs_kind() {
        assert_eq!(Value::Number(1.0).bits(Holds::F64, 0), 0x3FF0_0000_0000_0000);
        assert_eq!(Value::Number(1.0).bits(Holds::F32, 0), 0x3F80_0000_3F80_0000);
        assert_eq!(Value::Whole(-1).bits(Holds::F64, 0), u64::MAX);
    }
}
