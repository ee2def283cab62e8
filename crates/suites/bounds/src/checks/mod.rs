//! `bounds/checks`: instructions per cycle of the check sequences of Intel MPX Explained, for several mechanisms. Before a
//! sequence is timed, its accesses are verified; without a usable clock, as on an emulated CPU, that is the whole sample.

pub(crate) mod cli;
mod sequence;
mod verify;

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

    fn how(&self) -> &'static str {
        "Loops over copies of the sequence and over half of them alternate between two calibrations of the \
         core clock; the difference is the time of the other half in core cycles. First an access within the \
         bounds must pass, and one beyond a checked bound must trap or be redirected."
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

    fn expected(&self, _: &CheckParams, budget: Duration) -> Duration {
        budget + Duration::from_millis(1)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["bounds::timing"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<CheckParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

const METRICS: &[Metric] = &[
    Metric::count(
        "accesses_judged",
        "accesses within and outside the bounds that the sequence let pass, stopped or redirected as it must",
    ),
    Metric::new(
        "ipc",
        "1/cycle",
        Better::Higher,
        "instructions of the sequence per core cycle, counted in its source text",
    )
    .called("instructions"),
    Metric::new("sequence", "cycles", Better::Lower, "core cycles per sequence: checks and access"),
];

/// Bytes between the bounds. The bounds in memory and a harmless address follow the region.
const REGION: u64 = 4096;
/// The value that a load replaces and a store writes.
const UNTOUCHED: u64 = 0x005E_C7E7;

fn measure(context: &mut Context, params: &CheckParams) -> Result<Measurement, Failure> {
    Checks.available(params)?;
    let data = Data::new()?;
    let _registers = registers(params, &data)?;
    let lines = sequence::lines(params)?;
    let judged = verify::judged(params, &data)?;
    let counted = Measurement::default().value("accesses_judged", judged as f64);
    let Ok(tsc) = context.tsc() else { return Ok(counted) };
    let copies = unroll::copies(&sequence::code(&lines, 1)?)?;
    let code = |copies| sequence::code(&lines, copies);
    let state = state(&data, data.address() + 64);
    let timer = LoopTimer::new(tsc, &data, context.budget, context.seed);
    let body = Body::new(timer.placement, copies, false, state, set_bounds, code)?;
    let body = body.named("check and access");
    let measured = timer
        .cycles_of(&body)
        .map(|cycles| counted.value("sequence", cycles).value("ipc", lines.len() as f64 / cycles));
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
        .map_err(|signal| no_mpx(&format!(": bndmk raises {signal}")))?;
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
    use lab::sample::FailureKind;
    use lab::soundness;

    use super::*;

    fn points() -> Vec<CheckParams> {
        let all = soundness::experiments(&crate::SUITE, Profile::Full).unwrap();
        let experiment = all.into_iter().find(|one| one.name == "checks").unwrap();
        experiment.points.iter().map(|point| CheckParams::from_point(point).unwrap()).collect()
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

    #[test]
    fn no_sequence_accesses_memory_outside_the_bounds() {
        let data = Data::new().unwrap();
        for params in points() {
            if Checks.available(&params).is_err() {
                continue;
            }
            let _registers = registers(&params, &data).unwrap();
            let judged = match verify::judged(&params, &data) {
                Ok(judged) => judged,
                Err(failure) => {
                    assert_eq!(failure.kind, FailureKind::Unavailable, "{params:?}: {failure}");
                    continue;
                }
            };
            let outside = match (params.checked_by, params.bounds) {
                (Mechanism::None, _) | (Mechanism::Mask, CheckedBounds::One) => 0,
                (_, CheckedBounds::None | CheckedBounds::One) => 1,
                (_, CheckedBounds::Both) => 2,
            };
            assert_eq!(judged, 1 + outside, "{params:?}");
        }
    }

    /// A sequence that checks nothing does not pass for one that does.
    #[test]
    fn an_access_outside_the_bounds_fails_the_verification() {
        let data = Data::new().unwrap();
        let unchecked = ["mov r9, qword ptr [rax]", "mov qword ptr [rax], r9"];
        for (access, line) in Access::ALL.into_iter().zip(unchecked) {
            for checked_by in [Mechanism::Branch, Mechanism::Cmov, Mechanism::Mask] {
                let params = CheckParams {
                    checked_by,
                    access,
                    bounds: CheckedBounds::Both,
                    address: AddressForm::Register,
                };
                let failure = verify::judged_by(&params, &[line.to_owned()], &data).unwrap_err();
                assert_eq!(failure.kind, FailureKind::Check, "{params:?}: {failure}");
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
