//! The check sequences as data: each mechanism's lines around an access.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use lab::point::Point;
use lab::sample::Failure;
use serde::Deserialize;

use crate::assembler;
use crate::looped::trap_behind;

/// The sequences as they are declared.
static DECLARED: LazyLock<Result<File, DataError>> =
    LazyLock::new(|| read_toml("checks.toml", include_str!("../../checks.toml")));

/// What a failed check jumps to.
const FAIL: &str = "FAIL";
/// What stands for the address in an access.
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

/// The lines of a point's sequence: the checks, then the access.
///
/// # Errors
/// Where there is no such sequence.
pub(super) fn lines(point: &Point) -> Result<Vec<String>, Failure> {
    let file = DECLARED.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
    let absent = || Failure::failed(format!("checks.toml has no sequence for {point}"));
    let mechanism = file.mechanism.get(point.text("checked_by")).ok_or_else(absent)?;
    let checks = match point.text("address") {
        "lea" => mechanism.lea.as_ref().ok_or_else(absent)?,
        _ => &mechanism.register,
    };
    let before = match point.text("bounds") {
        "none" => &checks.none,
        "one" => &checks.one,
        _ => &checks.both,
    };
    let access = if point.text("access") == "store" { &file.store } else { &file.load };
    let mut lines = before.clone().ok_or_else(absent)?;
    lines.push(access.replace(ADDRESS, &checks.address));
    Ok(lines)
}

/// Copies of a sequence as machine code.
///
/// # Errors
/// A line that does not assemble.
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
                let distance = length + trap_behind(false) - (code.len() + 4);
                code.extend((distance as u32).to_le_bytes());
            }
        }
    }
    Ok(code)
}

enum Part {
    Code(Vec<u8>),
    /// To the trap, on a condition.
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
