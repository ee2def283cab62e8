//! Values of registers and memory in lists of forms.

use serde::Deserialize;

use crate::timing::Data;

/// Type of the elements of vectors and memory; their initial value is 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ElementType {
    #[default]
    Integers,
    F32,
    F64,
}

impl ElementType {
    /// Returns 8 bytes filled with a number of this type.
    pub(crate) fn bits(self, number: f64) -> u64 {
        match self {
            Self::Integers => number as i64 as u64,
            Self::F32 => u64::from((number as f32).to_bits()) * 0x1_0000_0001,
            Self::F64 => number.to_bits(),
        }
    }
}

/// Value of a register or of memory: an integer, a number of the class's element type (with a decimal point), or an
/// address in the data.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Whole(i64),
    Number(f64),
    MemoryAddress(DataOffset),
}

/// Offset in the data, written as `memory` or `memory+4096`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DataOffset(usize);

impl TryFrom<String> for DataOffset {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let tail = text.strip_prefix("memory");
        let offset = tail.and_then(|tail| match tail.strip_prefix('+') {
            Some(number) => number.parse().ok(),
            None => tail.is_empty().then_some(0),
        });
        let inside = offset.filter(|offset| *offset < Data::LENGTH);
        inside
            .map(Self)
            .ok_or_else(|| format!("invalid address '{text}'; expected e.g. \"memory+64\""))
    }
}

impl Value {
    /// Returns the 8-byte value, for data at the address `base`.
    pub(crate) fn bits(self, elements: ElementType, base: u64) -> u64 {
        match self {
            Self::Whole(value) => value as u64,
            Self::Number(number) => elements.bits(number),
            Self::MemoryAddress(DataOffset(offset)) => base + offset as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_element_type_of_their_class() {
        assert_eq!(Value::Number(1.0).bits(ElementType::F64, 0), 0x3FF0_0000_0000_0000);
        assert_eq!(Value::Number(1.0).bits(ElementType::F32, 0), 0x3F80_0000_3F80_0000);
        assert_eq!(Value::Whole(-1).bits(ElementType::F64, 0), u64::MAX);
    }
}
