//! Execution of a form on an emulated CPU, which has no time: every copy runs once, and what forms of MPX store, load and
//! check is compared.

use lab::measure::Measurement;
use lab::sample::Failure;

use super::SiblingLoad;
use super::list::InstructionForm;
use super::plan::memory;
use super::prepared::Prepared;
use super::register_set::RegisterSet;
use super::sibling::{self, Sibling};
use crate::bounds_registers::BoundsRegisters;
use crate::timing::{Data, State, TimingError, TimingLoop};

/// Metric of the copies.
pub(super) const COPIES: &str = "copies_executed";

/// NOPs after an instruction of MPX: QEMU 7.2 skips the bytes of an address that follow the first one twice, at most 5.
const SKIPPED: [u8; 8] = [0x90; 8];
/// Number of bounds registers.
const REGISTERS: u8 = 4;
/// Offset in the data at which the bounds registers are stored after a copy.
const STORED: usize = 4096;
/// Value of general registers that are the index of an address.
const INDEX: u64 = 64;
/// Bounds in memory or in a table: lower, and upper in one's complement.
const LOADED: [u64; 2] = [7, 9];

/// Executes each independent copy of a form once, perhaps while the core's other thread executes them too.
///
/// # Errors
/// Returns the signal of the form, `unavailable` if there is no sibling, and a failed check if a form of MPX has another
/// effect than its definition.
pub(super) fn execute(
    form: &InstructionForm,
    prepared: &Prepared,
    data: &Data,
    registers: Option<&BoundsRegisters>,
    load: SiblingLoad,
) -> Result<Measurement, Failure> {
    if load == SiblingLoad::Busy {
        sibling::check(form)?;
    }
    let moves_stack = prepared.plan.effects().moves_stack;
    let mut state = prepared.plan.state(form, data, RegisterSet::Whole);
    let breakers = prepared.plan.breakers(&state);
    let padding: &[u8] = if registers.is_some() { &SKIPPED } else { &[] };
    let copies = |breakers: &[u8]| -> Vec<u8> {
        let copy = |code: &Vec<u8>| [breakers, code.as_slice(), padding].concat();
        prepared.independent.iter().flat_map(copy).collect()
    };
    let timing_loop = TimingLoop::new(&copies(&breakers), moves_stack)?;
    let mut run = || {
        data.fill(memory(form));
        timing_loop.run(&mut state, 1).map_err(TimingError::from)
    };
    // Alone first, so that a fault is that of the form.
    run()?;
    if load == SiblingLoad::Busy {
        // Without breakers, which may set registers to addresses of this thread's memory.
        let timing_loop = TimingLoop::new(&copies(&[]), moves_stack)?;
        let _sibling = Sibling::of_form(form, prepared, timing_loop)?;
        run()?;
    }
    if let (Some(registers), Some(copy)) = (registers, prepared.independent.first()) {
        BoundsTest { form, copy, data, registers }.verify()?;
    }
    Ok(Measurement::default().value(COPIES, prepared.independent.len() as f64))
}

/// Test of the effect of one copy of a form of MPX. Before it, the bounds of each register are the address of the data.
struct BoundsTest<'a> {
    form: &'a InstructionForm,
    copy: &'a [u8],
    data: &'a Data,
    registers: &'a BoundsRegisters,
}

impl BoundsTest<'_> {
    fn verify(&self) -> Result<(), Failure> {
        let text = self.form.text.as_str();
        let start = self.data.address();
        let bounds = [start, !start];
        // An address is a register, or the data's with a register as its index.
        let at = |offset: i64| match text.contains("BASE") {
            true => offset as u64,
            false => start.wrapping_add_signed(offset),
        };
        match text {
            _ if text.starts_with("bndmov M128") => {
                self.run(INDEX)?;
                let is_stored = |at: usize| [self.data.get(at), self.data.get(at + 8)] == bounds;
                self.expect((0..STORED).step_by(8).any(is_stored), "did not store the bounds")
            }
            _ if text.starts_with("bndmov BND, M128") => {
                self.data.fill(LOADED[0]);
                self.run(INDEX)?;
                self.expect_register([LOADED[0]; 2], "did not load the bounds from memory")
            }
            _ if text.starts_with("bndstx") => {
                self.registers.set_row(self.data, [0; 3]);
                self.run(INDEX)?;
                let row = self.registers.row(self.data);
                self.expect(row == [start, !start, INDEX], "did not store the bounds in the table")
            }
            _ if text.starts_with("bndldx") => {
                self.registers.set_row(self.data, [LOADED[0], LOADED[1], INDEX]);
                self.run(INDEX)?;
                self.expect_register(LOADED, "did not load the bounds from the table")?;
                // The pointer was changed by code without MPX: any access is allowed.
                self.run(INDEX + 8)?;
                self.expect_register([0; 2], "loaded the bounds of another pointer")
            }
            _ if text.starts_with("bndcl") => self.checks(at(0), at(-8)),
            _ if text.starts_with("bndcu") => self.checks(at(0), at(8)),
            _ => self.run(INDEX),
        }
    }

    /// Checks that an address within the bounds passes and one outside raises #BR.
    fn checks(&self, inside: u64, outside: u64) -> Result<(), Failure> {
        self.run(inside)?;
        self.expect(self.run(outside).is_err(), "let an address outside of the bounds pass")
    }

    /// Sets the bounds registers, executes the copy with a value of all general registers that it may use, and stores the
    /// bounds registers.
    fn run(&self, general: u64) -> Result<(), Failure> {
        let mut code = Vec::new();
        for number in 0..REGISTERS {
            // bndmk bndN, [r14]
            code.extend([0xF3, 0x41, 0x0F, 0x1B, 0x06 | number << 3]);
        }
        code.extend([self.copy, &SKIPPED].concat());
        for number in 0..REGISTERS {
            // bndmov [r14 + offset], bndN
            code.extend([0x66, 0x41, 0x0F, 0x1B, 0x86 | number << 3]);
            code.extend((stored_at(number) as u32).to_le_bytes());
            code.extend(SKIPPED);
        }
        let mut state = State::new(self.data);
        // Not the stack pointer, nor those of the loop.
        for number in (0..=12).filter(|number| *number != 4) {
            state.set_general(number, general);
        }
        let run = TimingLoop::new(&code, false)?.run(&mut state, 1);
        Ok(run.map_err(TimingError::from)?)
    }

    fn expect_register(&self, bounds: [u64; 2], what: &str) -> Result<(), Failure> {
        let get = |offset| self.data.get(offset);
        let register = |number| [get(stored_at(number)), get(stored_at(number) + 8)];
        self.expect((0..REGISTERS).any(|number| register(number) == bounds), what)
    }

    fn expect(&self, is_right: bool, what: &str) -> Result<(), Failure> {
        let wrong = || Failure::check(format!("'{}' {what}", self.form.text));
        if is_right { Ok(()) } else { Err(wrong()) }
    }
}

/// Returns the offset at which a bounds register is stored.
fn stored_at(number: u8) -> usize {
    STORED + 16 * usize::from(number)
}
