//! Tests that loops are at their addresses and that identical code takes equal time.

use super::*;
use crate::functions;
use machine::tsc;
use std::collections::BTreeSet;

/// `call r12`
const CALL: [u8; 3] = [0x41, 0xff, 0xd4];

fn line_offset(address: usize) -> usize {
    address % LINE
}

#[test]
fn every_function_is_called_from_the_same_offset_within_a_line() {
    let mut loops = PlacedLoops::default();
    let mut starts = BTreeSet::new();
    let names = functions::all().iter().map(|function| function.name).chain(["mine.so:copy"]);
    for (seed, name) in (0..).zip(names) {
        let loops = loops.function(name, EMPTY, seed).unwrap().loops;
        let parts = [loops.fixed() as usize, loops.walked() as usize, loops.chained() as usize];
        assert_eq!(parts.map(line_offset), [0; 3], "{name}");
        assert!(starts.insert(parts[0]), "{name} shares its loops");
        // SAFETY: the templates were copied to this address, which is readable.
        let code = unsafe { std::slice::from_raw_parts(parts[0] as *const u8, templates().len()) };
        assert_eq!(code, templates(), "{name}");
    }
}

#[test]
fn each_loop_calls_at_the_end_of_a_line_and_jumps_back_from_the_next() {
    let code = templates();
    let calls: Vec<usize> =
        code.windows(3).enumerate().filter(|(_, bytes)| *bytes == CALL).map(|(at, _)| at).collect();
    assert_eq!(calls.iter().map(|call| line_offset(*call)).collect::<Vec<_>>(), [60; 3]);
    for call in calls {
        let next = call + 4;
        // A short jump-if-not-equal to the call's line.
        let jumps_back = |at: &usize| {
            let distance = isize::from(code[*at + 1].cast_signed());
            let target = (*at + 2).checked_add_signed(distance);
            code[*at] == 0x75 && target.is_some_and(|target| target / LINE == call / LINE)
        };
        let jump = (next..next + LINE).find(jumps_back).expect("a jump back");
        // The CPU fuses it with the preceding comparison, which has up to 5 bytes.
        assert_eq!((jump - 3).max(next) / 32, (jump + 2) / 32, "the jump at {jump}");
    }
}

#[test]
fn the_seed_draws_the_cache_line() {
    let starts: BTreeSet<usize> = (0..64).map(|seed| Loops::new(seed).unwrap().start).collect();
    assert!(starts.len() > 16 && starts.iter().all(|start| *start < PAGE && start % LINE == 0));
    assert_eq!(Loops::new(5).unwrap().start, Loops::new(5).unwrap().start);
}

#[test]
fn our_functions_begin_cache_lines() {
    for function in functions::all().iter().filter(|function| function.is_ours) {
        match functions::find(function.name) {
            Ok(found) => assert_eq!(line_offset(found.pointer() as usize), 0, "{}", function.name),
            Err(why) => {
                machine::untested::note(&format!("the alignment of {}", function.name), &why)
            }
        }
    }
    assert_eq!(line_offset(EMPTY as usize), 0);
}

/// Returns the ticks of `count` copies.
fn ticks(function: &PlacedFunction<'_>, to: &mut [u8], from: &[u8], count: usize) -> u64 {
    let start = tsc::start();
    // SAFETY: both buffers have this length and do not overlap.
    unsafe { function.fixed(to.as_mut_ptr(), from.as_ptr(), from.len(), count) }
    tsc::stop() - start
}

/// Up to 512 bytes `tollgate` runs the code of `avx512`, so their times must agree.
///
/// The two are timed alternately, in a fixed number of rounds, each with loops at other addresses.
/// Interruptions and a busy SMT sibling disturb some pairs, most of them strongly; the median of the
/// pairs' ratios is unaffected while fewer than half are disturbed. On a busy machine more are: then
/// the minimum times are compared, which interruptions only increase. A difference in the code
/// shows in both.
#[test]
fn the_same_code_takes_the_same_time() {
    const LENGTHS: [usize; 10] = [1, 16, 64, 65, 128, 200, 256, 300, 384, 512];
    const ROUNDS: u64 = 200;
    const PAIRS: usize = 3;
    let (Ok(tollgate), Ok(avx512)) = (functions::find("tollgate"), functions::find("avx512"))
    else {
        return machine::untested::note(
            "equal times of tollgate and avx512 up to 512 B",
            &"this CPU lacks AVX-512",
        );
    };
    let from = Aligned([7; 512]);
    let mut to = Aligned([0; 512]);
    let mut ratios = LENGTHS.map(|_| Vec::new());
    let mut minima = LENGTHS.map(|_| [f64::INFINITY; 2]);
    for round in 0..ROUNDS {
        let mut loops = PlacedLoops::default();
        for ((length, ratios), minimum) in LENGTHS.into_iter().zip(&mut ratios).zip(&mut minima) {
            let (to, from) = (&mut to.0[..length], &from.0[..length]);
            let mut time = |found: &functions::LoadedFunction, seed| {
                let function = loops.function(found.name(), found.pointer(), seed);
                ticks(&function.unwrap(), to, from, 2000) as f64
            };
            for pair in 0..PAIRS {
                // Alternate which one goes first.
                let (one, other);
                if (round as usize + pair).is_multiple_of(2) {
                    one = time(&tollgate, round * 2);
                    other = time(&avx512, round * 2 + 1);
                } else {
                    other = time(&avx512, round * 2 + 1);
                    one = time(&tollgate, round * 2);
                }
                ratios.push(one / other);
                *minimum = [minimum[0].min(one), minimum[1].min(other)];
            }
        }
    }
    let medians = ratios.map(|ratios| lab::statistics::median(&ratios).unwrap());
    let minima = minima.map(|[one, other]| one / other);
    println!("{LENGTHS:?} B: medians {medians:.4?}, minima {minima:.4?}");
    for (length, ratios) in LENGTHS.into_iter().zip(medians.into_iter().zip(minima)) {
        let is_near = |ratio: f64| (ratio - 1.0).abs() < 0.01;
        let (median, minimum) = ratios;
        assert!(
            is_near(median) || is_near(minimum),
            "{length} B: ratios of {median} and {minimum}"
        );
    }
}

#[repr(align(4096))]
struct Aligned([u8; 512]);
