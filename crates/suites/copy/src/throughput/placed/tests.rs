//! Loops lie where they should, and what runs the same code takes the same time.

use super::*;
use crate::functions;
use machine::tsc;
use std::collections::BTreeSet;

/// `call r12`
const CALL: [u8; 3] = [0x41, 0xff, 0xd4];

fn place(address: usize) -> usize {
    address % LINE
}

#[test]
fn every_function_is_called_from_the_same_place_within_a_line() {
    let mut places = Places::default();
    let mut starts = BTreeSet::new();
    let names = functions::all().iter().map(|function| function.name).chain(["mine.so:copy"]);
    for (seed, name) in (0..).zip(names) {
        let loops = places.function(name, NOTHING, seed).unwrap().loops;
        let parts = [loops.fixed() as usize, loops.walked() as usize, loops.chained() as usize];
        assert_eq!(parts.map(place), [0; 3], "{name}");
        assert!(starts.insert(parts[0]), "{name} shares its loops");
        // SAFETY: the templates' copy, which is readable.
        let code = unsafe { std::slice::from_raw_parts(parts[0] as *const u8, templates().len()) };
        assert_eq!(code, templates(), "{name}");
    }
}

#[test]
fn each_loop_calls_at_the_end_of_a_line_and_jumps_back_from_the_next() {
    let code = templates();
    let calls: Vec<usize> =
        code.windows(3).enumerate().filter(|(_, bytes)| *bytes == CALL).map(|(at, _)| at).collect();
    assert_eq!(calls.iter().map(|call| place(*call)).collect::<Vec<_>>(), [60; 3]);
    for call in calls {
        let next = call + 4;
        // A short jump if not equal, to the call's line.
        let jumps_back = |at: &usize| {
            let distance = isize::from(code[*at + 1].cast_signed());
            let target = (*at + 2).checked_add_signed(distance);
            code[*at] == 0x75 && target.is_some_and(|target| target / LINE == call / LINE)
        };
        let jump = (next..next + LINE).find(jumps_back).expect("a jump back");
        // The processor decodes it with the comparison before it, which has up to 5 bytes.
        assert_eq!((jump - 3).max(next) / 32, (jump + 2) / 32, "the jump at {jump}");
    }
}

#[test]
fn a_seed_draws_the_line() {
    let starts: BTreeSet<usize> = (0..64).map(|seed| Loops::new(seed).unwrap().start).collect();
    assert!(starts.len() > 16 && starts.iter().all(|start| *start < PAGE && start % LINE == 0));
    assert_eq!(Loops::new(5).unwrap().start, Loops::new(5).unwrap().start);
}

#[test]
fn our_functions_begin_lines() {
    for function in functions::all().iter().filter(|function| function.own) {
        match functions::find(function.name) {
            Ok(found) => assert_eq!(place(found.pointer() as usize), 0, "{}", function.name),
            Err(why) => machine::untested::note(&format!("where {} begins", function.name), &why),
        }
    }
    assert_eq!(place(NOTHING as usize), 0);
}

/// Ticks of `count` copies of `length` bytes.
fn ticks(function: &Function<'_>, to: &mut [u8], from: &[u8], count: usize) -> u64 {
    let begun = tsc::start();
    // SAFETY: both buffers hold the length and are different.
    unsafe { function.fixed(to.as_mut_ptr(), from.as_ptr(), from.len(), count) }
    tsc::stop() - begun
}

/// Up to 512 bytes `tollgate` runs the code of `avx512`, so their times must agree.
///
/// Both are timed in turn, in a fixed number of rounds, each with loops at another place. Interruptions and a busy
/// sibling disturb some pairs, most of them by much; the median of the pairs' ratios does not move as long as fewer
/// than half are disturbed. On a busy machine more are; then the least times are compared, which interruptions only add to. A
/// difference in the code remains in both.
#[test]
fn the_same_code_takes_the_same_time() {
    const LENGTHS: [usize; 10] = [1, 16, 64, 65, 128, 200, 256, 300, 384, 512];
    const ROUNDS: u64 = 200;
    const PAIRS: usize = 3;
    let (Ok(tollgate), Ok(avx512)) = (functions::find("tollgate"), functions::find("avx512"))
    else {
        return machine::untested::note(
            "tollgate and avx512 agree up to 512 B",
            &"this CPU lacks AVX-512",
        );
    };
    let from = Aligned([7; 512]);
    let mut to = Aligned([0; 512]);
    let mut ratios = LENGTHS.map(|_| Vec::new());
    let mut least = LENGTHS.map(|_| [f64::INFINITY; 2]);
    for round in 0..ROUNDS {
        let mut places = Places::default();
        for ((length, ratios), least) in LENGTHS.into_iter().zip(&mut ratios).zip(&mut least) {
            let (to, from) = (&mut to.0[..length], &from.0[..length]);
            let mut time = |found: &functions::Loaded, seed| {
                let function = places.function(found.name(), found.pointer(), seed);
                ticks(&function.unwrap(), to, from, 2000) as f64
            };
            for pair in 0..PAIRS {
                // Neither is always the first.
                let (one, other);
                if (round as usize + pair).is_multiple_of(2) {
                    one = time(&tollgate, round * 2);
                    other = time(&avx512, round * 2 + 1);
                } else {
                    other = time(&avx512, round * 2 + 1);
                    one = time(&tollgate, round * 2);
                }
                ratios.push(one / other);
                *least = [least[0].min(one), least[1].min(other)];
            }
        }
    }
    let medians = ratios.map(|ratios| lab::statistics::median(&ratios).unwrap());
    let least = least.map(|[one, other]| one / other);
    println!("{LENGTHS:?} B: medians {medians:.4?}, least {least:.4?}");
    for (length, ratios) in LENGTHS.into_iter().zip(medians.into_iter().zip(least)) {
        let is_near = |ratio: f64| (ratio - 1.0).abs() < 0.01;
        let (median, least) = ratios;
        assert!(is_near(median) || is_near(least), "{length} B: ratios of {median} and {least}");
    }
}

#[repr(align(4096))]
struct Aligned([u8; 512]);
