//! `bounds/checks`: the seed's check sequences as instructions a cycle, by several mechanisms.

pub(crate) mod hand;
mod sequence;

use std::time::Duration;

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;

use crate::bounds_registers::BoundsRegisters;
use crate::looped::{Body, Data, Looped, State, Timed, unroll};
use crate::way::Way;

pub(crate) static WAY: Way = Way {
    name: "checks",
    factors: &[
        Factor {
            name: "checked_by",
            about: "what checks an address before it is accessed",
            levels: Levels::Names(&["none", "mpx", "branch", "cmov", "mask", "fat-pointer"]),
            default: None,
        },
        Factor {
            name: "access",
            about: "what is done at the address",
            levels: Levels::Names(&["load", "store"]),
            default: None,
        },
        Factor {
            name: "bounds",
            about: "how many bounds are checked",
            levels: Levels::Names(&["none", "one", "both"]),
            default: None,
        },
        Factor {
            name: "address",
            about: "whether the address is in a register or made as by LEA",
            levels: Levels::Names(&["register", "lea"]),
            default: None,
        },
    ],
    metrics: &[
        Metric::new(
            "ipc",
            "1/cycle",
            Better::Higher,
            "instructions of the sequence a core cycle, counted by its text",
        ),
        Metric::new(
            "sequence",
            "cycles",
            Better::Lower,
            "core cycles of a sequence: checks and access",
        ),
    ],
    available,
    expected: |point, budget| match available(point) {
        Ok(()) => budget + Duration::from_millis(1),
        Err(_) => Duration::ZERO,
    },
    artefacts: |_| Vec::new(),
    probe: || Box::new(Checks),
};

/// Bytes between the bounds, and where bounds and the harmless place lie behind them.
const REGION: u64 = 4096;

fn available(point: &Point) -> Result<(), Failure> {
    if point.text("checked_by") == "mpx" && !machine::cpu::has_mpx() {
        return Err(Failure::unsupported(
            "this CPU has no MPX (CPUID and XCR0); its instructions would run as NOP",
        ));
    }
    Ok(())
}

struct Checks;

impl Probe for Checks {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        available(point)?;
        let data = Data::new()?;
        let _registers = registers(point, &data)?;
        let lines = sequence::lines(point)?;
        let copies = unroll::copies(&sequence::code(&lines, 1)?)?;
        let code = |copies| sequence::code(&lines, copies);
        let state = state(&data, data.address() + 64);
        let body = Body::new(copies, false, state, set_bounds, code)?;
        let timed = Timed::new(tsc, &data, context.budget);
        let measured = timed.cycles_of(&body).map(|cycles| {
            let measurement = Measurement::default().value("sequence", cycles);
            measurement.value("ipc", lines.len() as f64 / cycles)
        });
        timed.judged(measured.map_err(Failure::from))
    }
}

/// Bounds registers that hold the same bounds as the general ones, where the sequence uses them.
fn registers(point: &Point, data: &Data) -> Result<Option<BoundsRegisters>, Failure> {
    if point.text("checked_by") != "mpx" {
        return Ok(None);
    }
    let registers = BoundsRegisters::on(data)?;
    // bndmk bnd0, [rsi + 4087]
    let code = [0xF3, 0x0F, 0x1B, 0x86, 0xF7, 0x0F, 0, 0];
    let make = Looped::new(&code, false)?;
    make.run(&mut state(data, data.address()), 1)
        .map_err(|fault| Failure::unsupported(format!("bndmk faults here: {fault}")))?;
    Ok(Some(registers))
}

/// The bounds as fat pointers have them, behind the region.
fn set_bounds(data: &Data) {
    data.set(REGION as usize, data.address());
    data.set(REGION as usize + 8, last(data));
}

/// The last address of the region at which 8 bytes may be accessed.
fn last(data: &Data) -> u64 {
    data.address() + REGION - 9
}

/// The registers as `checks.toml` says.
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

/// What a load replaces, and what a store stores.
const UNTOUCHED: u64 = 0x005E_C7E7;

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    use super::*;

    fn points() -> Vec<Point> {
        let all = soundness::experiments(&crate::SUITE, Profile::Full).unwrap();
        all.into_iter().find(|one| one.name == "checks").unwrap().points
    }

    /// What an access at an address came to: whether it was stopped, and what was loaded.
    fn outcome(point: &Point, data: &Data, address: u64) -> Option<u64> {
        let code = sequence::code(&sequence::lines(point).unwrap(), 3).unwrap();
        let mut state = state(data, address);
        Looped::new(&code, false).unwrap().run(&mut state, 2).ok().map(|()| state.general(9))
    }

    #[test]
    fn there_are_ten_sequences_by_each_mechanism() {
        let points = points();
        let by = |name: &str| points.iter().filter(|it| it.text("checked_by") == name).count();
        assert_eq!((by("none"), by("mpx"), by("branch"), by("fat-pointer")), (2, 8, 8, 8));
        assert!(points.iter().all(|point| sequence::lines(point).is_ok()));
    }

    /// Each sequence lets an access inside pass. Outside it traps or accesses something else.
    #[test]
    fn what_lies_outside_is_not_accessed() {
        const SECRET: u64 = 77;
        let data = Data::new().unwrap();
        let inside = data.address() + 128;
        for point in points() {
            // QEMU takes the bytes of a LEA-style address of these for another instruction.
            let misread = machine::cpu::emulated()
                && (point.text("checked_by"), point.text("address")) == ("mpx", "lea");
            if available(&point).is_err() || point.text("checked_by") == "none" || misread {
                continue;
            }
            let is_load = point.text("access") == "load";
            let _registers = registers(&point, &data).unwrap();
            data.fill(0);
            set_bounds(&data);
            data.set(128, 5);
            let got = outcome(&point, &data, inside).unwrap_or_else(|| panic!("{point} traps"));
            assert_eq!(got, if is_load { 5 } else { UNTOUCHED }, "{point}");
            if point.text("bounds") == "both" {
                data.set(REGION as usize + 128, SECRET);
                let got = outcome(&point, &data, data.address() + REGION + 128);
                let read = if is_load { got.unwrap_or_default() } else { 0 };
                assert_ne!(read, SECRET, "{point}");
                assert_eq!(data.get(REGION as usize + 128), SECRET, "{point} stored");
            }
            // A page before the data may be another's: only what never gets there is tried below.
            if ["branch", "fat-pointer", "mpx"].contains(&point.text("checked_by")) {
                assert_eq!(outcome(&point, &data, data.address() - 8), None, "{point}");
            } else if (point.text("checked_by"), point.text("bounds")) != ("mask", "one") {
                // One bound by a mask lets an address go up as far as the region is aligned.
                assert!(outcome(&point, &data, data.address() - 8).is_some(), "{point}");
            }
        }
    }

    #[test]
    fn instructions_are_counted_by_the_text() {
        let point = Point::from([
            ("checked_by", "branch"),
            ("access", "load"),
            ("bounds", "both"),
            ("address", "lea"),
        ]);
        assert_eq!(sequence::lines(&point).unwrap().len(), 6);
    }
}
