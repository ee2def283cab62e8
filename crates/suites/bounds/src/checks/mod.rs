//! `bounds/checks`: instructions per cycle of the check sequences of Intel MPX Explained, for several mechanisms.

pub(crate) mod cli;
mod sequence;

use std::time::Duration;

use lab::factor::LevelType;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;

use crate::bounds_registers::{BoundsRegisters, no_mpx};
use crate::timing::{Body, Data, LoopTimer, State, TimingLoop, unroll};

/// Mechanism of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Mechanism {
    None,
    Mpx,
    Branch,
    Cmov,
    Mask,
    FatPointer,
}

impl Mechanism {
    /// Whether its sequences use the instructions and registers of MPX.
    fn is_mpx(self) -> bool {
        match self {
            Self::Mpx => true,
            Self::None | Self::Branch | Self::Cmov | Self::Mask | Self::FatPointer => false,
        }
    }
}

/// Access after the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum Access {
    Load,
    Store,
}

/// Number of bounds that a sequence checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum CheckedBounds {
    None,
    One,
    Both,
}

/// Operand form of the checked address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
enum AddressForm {
    Register,
    Lea,
}

/// Params of `checks`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct CheckParams {
    /// the mechanism that checks an address before the access
    #[factor(default = "none")]
    checked_by: Mechanism,
    /// the access at the address
    #[factor(default = "load")]
    access: Access,
    /// the number of bounds that are checked
    #[factor(default = "none")]
    bounds: CheckedBounds,
    /// the operand form of the address: a register, or base and index as in LEA
    #[factor(default = "register")]
    address: AddressForm,
}

/// Times check sequences.
pub(crate) struct Checks;

impl Method for Checks {
    type Params = CheckParams;

    fn name(&self) -> &'static str {
        "checks"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &CheckParams) -> Result<(), Failure> {
        if params.checked_by.is_mpx() && !machine::cpu::has_mpx() {
            return Err(no_mpx("; its instructions would run as NOP"));
        }
        Ok(())
    }

    fn expected(&self, params: &CheckParams, budget: Duration) -> Duration {
        match self.available(params) {
            Ok(()) => budget + Duration::from_millis(1),
            Err(_) => Duration::ZERO,
        }
    }

    fn probe(&self) -> Result<Box<dyn Probe<CheckParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

const METRICS: &[Metric] = &[
    Metric::new(
        "ipc",
        "1/cycle",
        Better::Higher,
        "instructions of the sequence per core cycle, counted in its source text",
    ),
    Metric::new("sequence", "cycles", Better::Lower, "core cycles per sequence: checks and access"),
];

/// Bytes between the bounds. The bounds in memory and a harmless address follow the region.
const REGION: u64 = 4096;
/// The value that a load replaces and a store writes.
const UNTOUCHED: u64 = 0x005E_C7E7;

fn measure(context: &mut Context, params: &CheckParams) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    Checks.available(params)?;
    let data = Data::new()?;
    let _registers = registers(params, &data)?;
    let lines = sequence::lines(params)?;
    let copies = unroll::copies(&sequence::code(&lines, 1)?)?;
    let code = |copies| sequence::code(&lines, copies);
    let state = state(&data, data.address() + 64);
    let timer = LoopTimer::new(tsc, &data, context.budget, context.seed);
    let body = Body::new(timer.placement, copies, false, state, set_bounds, code)?;
    let measured = timer.cycles_of(&body).map(|cycles| {
        let measurement = Measurement::default().value("sequence", cycles);
        measurement.value("ipc", lines.len() as f64 / cycles)
    });
    timer.judged(measured.map_err(Failure::from))
}

/// Enables the bounds registers and loads the same bounds as in the general registers, if the sequence uses MPX.
fn registers(params: &CheckParams, data: &Data) -> Result<Option<BoundsRegisters>, Failure> {
    if !params.checked_by.is_mpx() {
        return Ok(None);
    }
    let registers = BoundsRegisters::on(data)?;
    // bndmk bnd0, [rsi + 4087]
    let code = [0xF3, 0x0F, 0x1B, 0x86, 0xF7, 0x0F, 0, 0];
    let make = TimingLoop::new(&code, false)?;
    make.run(&mut state(data, data.address()), 1)
        .map_err(|signal| Failure::unsupported(format!("bndmk raises {signal}")))?;
    Ok(Some(registers))
}

/// Writes the bounds after the region, where the fat-pointer sequences read them.
fn set_bounds(data: &Data) {
    data.set(REGION as usize, data.address());
    data.set(REGION as usize + 8, last(data));
}

/// Returns the upper bound for the address of an 8-byte access.
fn last(data: &Data) -> u64 {
    data.address() + REGION - 9
}

/// Returns the registers as `checks.toml` documents them.
fn state(data: &Data, address: u64) -> State {
    let start = data.address();
    let mut state = State::new(data);
    let registers = [
        (0, address),
        (3, 0),
        (6, start),
        (7, last(data)),
        (9, UNTOUCHED),
        (10, start + REGION),
        (11, start + REGION + 64),
        (12, REGION - 8),
    ];
    for (number, value) in registers {
        state.set_general(number, value);
    }
    state
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    use super::*;

    fn points() -> Vec<CheckParams> {
        let all = soundness::experiments(&crate::SUITE, Profile::Full).unwrap();
        let experiment = all.into_iter().find(|one| one.name == "checks").unwrap();
        experiment.points.iter().map(|point| CheckParams::from_point(point).unwrap()).collect()
    }

    /// Returns what a load at an address reads, or `None` if the check stops the access.
    fn outcome(params: &CheckParams, data: &Data, address: u64) -> Option<u64> {
        let code = sequence::code(&sequence::lines(params).unwrap(), 3).unwrap();
        let mut state = state(data, address);
        TimingLoop::new(&code, false).unwrap().run(&mut state, 2).ok().map(|()| state.general(9))
    }

    #[test]
    fn every_mechanism_has_its_sequences() {
        let points = points();
        let count = |by| points.iter().filter(|params| params.checked_by == by).count();
        assert_eq!(count(Mechanism::None), 2);
        for mechanism in Mechanism::ALL.into_iter().filter(|it| *it != Mechanism::None) {
            assert_eq!(count(mechanism), 8, "{mechanism}");
        }
        assert!(points.iter().all(|params| sequence::lines(params).is_ok()));
    }

    /// Each sequence lets an access within the bounds pass. An access outside traps or is redirected.
    #[test]
    fn no_sequence_accesses_memory_outside_the_bounds() {
        const SECRET: u64 = 77;
        let data = Data::new().unwrap();
        let inside = data.address() + 128;
        for params in points() {
            // QEMU decodes the bytes of a LEA-style address of these as another instruction.
            let misread = machine::cpu::emulated()
                && (params.checked_by, params.address) == (Mechanism::Mpx, AddressForm::Lea);
            if Checks.available(&params).is_err() || params.checked_by == Mechanism::None || misread
            {
                continue;
            }
            let is_load = params.access == Access::Load;
            let _registers = registers(&params, &data).unwrap();
            data.fill(0);
            set_bounds(&data);
            data.set(128, 5);
            let got = outcome(&params, &data, inside).unwrap_or_else(|| panic!("{params:?} traps"));
            assert_eq!(got, if is_load { 5 } else { UNTOUCHED }, "{params:?}");
            if params.bounds == CheckedBounds::Both {
                data.set(REGION as usize + 128, SECRET);
                let got = outcome(&params, &data, data.address() + REGION + 128);
                let read = if is_load { got.unwrap_or_default() } else { 0 };
                assert_ne!(read, SECRET, "{params:?}");
                assert_eq!(data.get(REGION as usize + 128), SECRET, "{params:?} stored");
            }
            // The page before the data may belong to something else: only sequences that never access it are run.
            let below = data.address() - 8;
            match (params.checked_by, params.bounds) {
                (Mechanism::Branch | Mechanism::FatPointer | Mechanism::Mpx, _) => {
                    assert_eq!(outcome(&params, &data, below), None, "{params:?}");
                }
                // A single masked bound limits an address only to the alignment of the region.
                (Mechanism::Mask, CheckedBounds::One) => {}
                _ => assert!(outcome(&params, &data, below).is_some(), "{params:?}"),
            }
        }
    }

    #[test]
    fn instructions_are_counted_in_the_source_text() {
        let params = CheckParams {
            checked_by: Mechanism::Branch,
            access: Access::Load,
            bounds: CheckedBounds::Both,
            address: AddressForm::Lea,
        };
        assert_eq!(sequence::lines(&params).unwrap().len(), 6);
    }
}
