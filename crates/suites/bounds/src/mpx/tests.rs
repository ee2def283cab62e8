//! The seven kinds of MPX instructions, on a CPU that supports them or under QEMU.

use std::time::{Duration, Instant};

use lab::sample::FailureKind;
use proptest::prelude::*;

use super::layout::{OBJECT_BYTES, POINTER_ROOM, SHIFTED_DIRECTORY, TRUE_DIRECTORY};
use super::operation::Operation::{
    self, CheckLower, CheckLowerOf, CheckUpper, CheckUpperOf, CheckUpperStored, Load, Make, Store,
};
use super::operation::{Answer, execute, faults};
use super::proof::verify;
use super::{Machine, Race};

/// Returns the machine that runs MPX; notes the test as untested if there is none.
fn machine_for(test: &str) -> Option<Machine> {
    let all = [Machine::Native, Machine::Emulated];
    let found = all.into_iter().find(|machine| machine.available().is_ok());
    if let (None, Err(why)) = (found, Machine::Emulated.available()) {
        machine::untested::note(test, &why);
    }
    found
}

fn answers(test: &str, operations: &[Operation]) -> Option<Vec<Answer>> {
    machine_for(test).map(|machine| execute(machine, operations).unwrap())
}

/// Returns whether each operation raised #BR for a violation.
fn violations(test: &str, operations: &[Operation]) -> Option<Vec<bool>> {
    Some(answers(test, operations)?.iter().map(Answer::violated).collect())
}

const ALL: (u64, u64) = (0, u64::MAX);

#[test]
fn init_bounds_never_fault() {
    let checks = [0, 1, 1 << 47, u64::MAX].map(|at| {
        [
            CheckLower(at),
            CheckUpper(at),
            CheckUpperStored(0),
            CheckLowerOf(at, 1),
            CheckUpperOf(at, 0),
        ]
    });
    let Some(answers) = answers("INIT bounds of MPX", checks.as_flattened()) else { return };
    assert!(answers.iter().all(|one| one.status == 0 && one.bounds == ALL), "{answers:x?}");
}

#[test]
fn every_kind_of_instruction_works() {
    let Some(machine) = machine_for("the instructions of MPX") else { return };
    assert_eq!(verify(machine), Ok(()));
}

#[test]
fn tables_are_made_on_demand() {
    let store = |mib: u64| Store { at: mib << 20, pointer: 1 };
    let last = (1 << 27) - 1;
    let list = [store(5), store(5), store(6), Load { at: (6 << 20) + 8, pointer: 1 }, store(last)];
    let Some(answers) = answers("tables on demand", &list) else { return };
    let directory = [TRUE_DIRECTORY, SHIFTED_DIRECTORY];
    let entry = |mib: u64| directory.map(|directory| Some(directory + 8 * mib));
    for (answer, mib) in [(0, 5), (2, 6), (4, last)] {
        assert!(entry(mib).contains(&answers[answer].missed_entry()), "{answers:x?}");
    }
    assert_eq!((answers[1].status, answers[3].status), (0, 0));
    let tables: Vec<_> = answers.iter().map(|one| one.tables).collect();
    assert_eq!(tables, [1, 1, 2, 2, 3]);
}

/// Prints the faults that are fixed.
#[test]
fn the_workarounds_for_the_emulators_faults_work() {
    if let Err(why) = Machine::Emulated.available() {
        return machine::untested::note("faults of the emulator of MPX", &why);
    }
    let seen = faults(Machine::Emulated).unwrap();
    println!("{seen:?}");
    for fixed in seen.fixed() {
        println!("{fixed}: the workaround can be removed when no older QEMU is in use");
    }
    assert_eq!(verify(Machine::Emulated), Ok(()));
    let capability = super::capability();
    assert!(capability.state.is_present(), "{capability:?}");
}

#[test]
fn a_cpu_without_mpx_does_not_run_the_program() {
    let result = execute(Machine::Native, &[Make(0x1000, 7)]);
    match machine::cpu::has_mpx() {
        true => assert_eq!(result.unwrap()[0].bounds, (0x1000, 0x1007)),
        false => assert_eq!(result.unwrap_err().kind, FailureKind::Unavailable),
    }
}

#[test]
fn too_many_operations_or_pointers_are_errors() {
    assert!(execute(Machine::Emulated, &[]).is_err());
    let race =
        Race { pointers: POINTER_ROOM + 1, passes: 1, beyond: false, reader: 0, writer: None };
    assert!(race.run(Machine::Emulated).unwrap_err().why.contains("pointers"));
}

#[test]
fn without_a_concurrent_writer_mpx_reports_exactly_the_violations() {
    let Some(machine) = machine_for("accesses checked by MPX") else { return };
    let reader = machine::topology::allowed_cpus()[0];
    for pointers in [1, 100, POINTER_ROOM] {
        let race = Race { pointers, passes: 3, beyond: false, reader, writer: None };
        assert_eq!(race.run(machine).unwrap().reported, 0);
        let beyond = Race { beyond: true, pointers: pointers.min(1000), ..race };
        assert_eq!(beyond.run(machine).unwrap().reported, 3 * beyond.pointers);
    }
    assert_eq!(OBJECT_BYTES, 64);
}

#[test]
fn mpx_misjudges_accesses_during_a_race() {
    let Some(machine) = machine_for("races of MPX") else { return };
    let [reader, writer, ..] = machine::topology::allowed_cpus()[..] else {
        return machine::untested::note("races of MPX", &"there is one CPU");
    };
    let race = Race { pointers: 1000, passes: 20, beyond: true, reader, writer: Some(writer) };
    // On a busy machine the threads may not run at the same time for a while.
    let wait_for = |race: &Race, is_wrong: fn(u64) -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_wrong(race.run(machine).unwrap().reported) {
            assert!(Instant::now() < end, "nothing was misjudged by {race:?}");
        }
    };
    wait_for(&race, |reported| reported < 20_000);
    wait_for(&Race { beyond: false, passes: 500, ..race }, |reported| reported > 0);
}

fn near(lower: u64, length: u64) -> impl Strategy<Value = u64> {
    let upper = lower + length;
    prop_oneof![
        (0..5u64).prop_map(move |by| (lower + by).wrapping_sub(2)),
        (0..5u64).prop_map(move |by| (upper + by).wrapping_sub(2)),
        any::<u64>(),
    ]
}

fn checked() -> impl Strategy<Value = (u64, u64, u64)> {
    (0..1u64 << 47, 0..1u64 << 32).prop_flat_map(|(lower, length)| {
        near(lower, length).prop_map(move |at| (lower, length, at))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(32)))]
    #[test]
    fn checks_agree_with_arithmetic(cases in prop::collection::vec(checked(), 1..400)) {
        let list: Vec<_> = cases
            .iter()
            .flat_map(|&(lower, length, at)| {
                let index = at % 256;
                [
                    Make(lower, length),
                    CheckLower(at),
                    CheckUpper(at),
                    CheckLowerOf(at - index, index),
                    CheckUpperOf(at - index, index),
                ]
            })
            .collect();
        let Some(seen) = violations("checks of MPX against arithmetic", &list) else { return Ok(()) };
        for (&(lower, length, at), seen) in cases.iter().zip(seen.chunks(5)) {
            let (below, above) = (at < lower, at > lower + length);
            prop_assert_eq!(seen, [false, below, above, below, above], "{:x} {:x} {:x}", lower, length, at);
        }
    }
}
