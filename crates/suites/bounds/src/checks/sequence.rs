//! The check sequences of `checks.toml`, assembled.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use lab::sample::Failure;
use serde::Deserialize;

use super::{Access, AddressForm, CheckParams, CheckedBounds};
use crate::assembler;
use crate::timing::trap_offset;

/// The declared sequences.
static DECLARED: LazyLock<Result<File, DataError>> =
    LazyLock::new(|| read_toml("checks.toml", include_str!("../../checks.toml")));

/// Jump target of a failed check.
const FAIL: &str = "FAIL";
/// Placeholder for the address in an access.
const ADDRESS: &str = "ADDRESS";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    load: String,
    store: String,
    mechanism: BTreeMap<String, Mechanism>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mechanism {
    #[serde(rename = "about")]
    _about: String,
    register: Checks,
    lea: Option<Checks>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checks {
    #[serde(default)]
    none: Option<Vec<String>>,
    #[serde(default)]
    one: Option<Vec<String>>,
    #[serde(default)]
    both: Option<Vec<String>>,
    address: String,
}

/// Returns the lines of a sequence: the checks, then the access.
///
/// # Errors
/// Returns `failed` if `checks.toml` declares no such sequence.
pub(super) fn lines(params: &CheckParams) -> Result<Vec<String>, Failure> {
    let file = DECLARED.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
    let CheckParams { checked_by, access, bounds, address } = *params;
    let missing = || {
        Failure::failed(format!(
            "checks.toml: no sequence for checked_by={checked_by} bounds={bounds} address={address}"
        ))
    };
    let mechanism = file.mechanism.get(checked_by.name()).ok_or_else(missing)?;
    let declared = match address {
        AddressForm::Lea => mechanism.lea.as_ref().ok_or_else(missing)?,
        AddressForm::Register => &mechanism.register,
    };
    let checks = match bounds {
        CheckedBounds::None => &declared.none,
        CheckedBounds::One => &declared.one,
        CheckedBounds::Both => &declared.both,
    };
    let access = match access {
        Access::Load => &file.load,
        Access::Store => &file.store,
    };
    let mut lines = checks.clone().ok_or_else(missing)?;
    lines.push(access.replace(ADDRESS, &declared.address));
    Ok(lines)
}

/// Returns the machine code of `copies` copies of a sequence.
///
/// # Errors
/// Returns `failed` if a line does not assemble.
pub(super) fn code(lines: &[String], copies: usize) -> Result<Vec<u8>, Failure> {
    let plain = lines.iter().filter(|line| !line.ends_with(FAIL)).cloned();
    let assembled = assembler::assemble(plain);
    let parts: Vec<Part> = lines
        .iter()
        .map(|line| match assembled.get(line) {
            Some(code) => code.clone().map(Part::Code),
            None => assembler::condition(line).map(Part::Branch),
        })
        .collect::<Result<_, _>>()?;
    let length = parts.iter().map(Part::length).sum::<usize>() * copies;
    let mut code = Vec::with_capacity(length);
    for part in std::iter::repeat_n(&parts, copies).flatten() {
        match part {
            Part::Code(bytes) => code.extend(bytes),
            Part::Branch(condition) => {
                code.extend([0x0F, 0x80 | condition]);
                let distance = length + trap_offset(false) - (code.len() + 4);
                code.extend((distance as u32).to_le_bytes());
            }
        }
    }
    Ok(code)
}

enum Part {
    Code(Vec<u8>),
    /// A conditional branch to the trap: the condition code.
    Branch(u8),
}

impl Part {
    fn length(&self) -> usize {
        match self {
            Self::Code(bytes) => bytes.len(),
            Self::Branch(_) => 6,
        }
    }
}
