//! Measured times against independent measurements on the same machine. No expected latency is hard-coded.

use std::arch::asm;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use lab::statistics::median;
use machine::tsc::{self, Tsc};

use super::super::list::{BUILT_IN, List};
use super::super::prepared::prepare;
use super::*;

/// Number of pairs of short, alternating measurements. The median of their ratios is correct if fewer than half of the
/// pairs are disturbed.
const PAIRS: usize = 41;
/// Maximum relative difference of two correct measurements. A wrong chain is off by a cycle or more.
const TOLERANCE: f64 = 0.05;
/// Budget of one body.
const BUDGET: Duration = Duration::from_millis(1);
/// Maximum number of attempts at a comparison, and the pause between two.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

fn one_form<'a>(
    list: &'a List,
    prepared: &'a Prepared,
    data: &'a Data,
    timer: LoopTimer<'a>,
) -> Measured<'a> {
    Measured { form: &list.forms[0], prepared, data, timer, counting: None }
}

/// Repeats a comparison until it holds: a busy machine falsifies or voids some attempts, a wrong chain all of them.
pub(crate) fn at_a_quiet_moment(comparison: impl Fn()) {
    for _ in 1..ATTEMPTS {
        if catch_unwind(AssertUnwindSafe(&comparison)).is_ok() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    comparison();
}

/// Pins this thread and returns the time-stamp counter; notes the test as untested if it is not invariant.
fn clock(test: &str) -> Option<&'static Tsc> {
    machine::pin::pin_to(machine::pin::current_cpu()).unwrap();
    Tsc::get().inspect_err(|why| machine::untested::note(test, why)).ok()
}

/// Returns a list of one form of the built-in list, with the element type of its class.
fn built_in(text: &str) -> List {
    let list = BUILT_IN.as_ref().unwrap();
    let level = text.replace(',', "");
    let form = list.forms.iter().find(|form| form.level == level).unwrap();
    List { file: list.file.clone(), forms: vec![form.clone()] }
}

/// Returns the medians of a metric of a form, of the latency of `add R64, R64`, and of their ratio.
fn compared_with_add(tsc: &Tsc, text: &str, metric: &str) -> (f64, f64, f64) {
    let data = Data::new().unwrap();
    let lists = [text, "add R64, R64"].map(built_in);
    let prepared = lists.each_ref().map(|list| prepare(list).remove(0).unwrap());
    let one = |at: usize, metric: &str| {
        let timer = LoopTimer::new(tsc, &data, BUDGET, 0);
        one_form(&lists[at], &prepared[at], &data, timer).measure(false).unwrap().values[metric]
    };
    let pairs: Vec<_> = (0..PAIRS).map(|_| (one(0, metric), one(1, "latency"))).collect();
    let of =
        |what: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(what).collect::<Vec<_>>()).unwrap();
    (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.0 / pair.1))
}

fn agree(what: &str, one: f64, other: f64) {
    println!("{what}: {one:.4} and {other:.4}");
    assert!((one / other - 1.0).abs() < TOLERANCE, "{what}: {one:.4} and {other:.4}");
}

/// Returns the ticks of a chain in a loop that the compiler assembles.
macro_rules! chain {
    ($($instruction:literal),+; $($operands:tt)*) => {{
        let mut left = LOOPS;
        let start = tsc::start();
        // SAFETY: only the operands and the flags change; the load reads a valid word.
        unsafe {
            asm!(
                ".p2align 6", "2:", ".rept 64", $($instruction),+, ".endr", "dec {left}", "jnz 2b",
                left = inout(reg) left, $($operands)*, options(nostack, readonly),
            );
        }
        std::hint::black_box(&mut left);
        tsc::stop().saturating_sub(start) as f64
    }};
}
const LOOPS: u64 = 256;

fn additions() -> f64 {
    chain!("add {a}, {b}"; a = inout(reg) 0_u64 => _, b = in(reg) 1_u64)
}

fn multiplications() -> f64 {
    chain!("imul {a}, {b}"; a = inout(reg) 3_u64 => _, b = in(reg) 5_u64)
}

fn loads() -> f64 {
    let mut word = 0_u64;
    let address = &raw mut word;
    word = address as u64;
    std::hint::black_box(&mut word);
    chain!("mov {a}, qword ptr [{a}]"; a = inout(reg) address => _)
}

fn packed_additions() -> f64 {
    chain!("paddd {a}, {b}"; a = inout(xmm_reg) 1.0_f64 => _, b = in(xmm_reg) 1.0_f64)
}

fn float_additions() -> f64 {
    chain!("addsd {a}, {b}"; a = inout(xmm_reg) 1.0_f64 => _, b = in(xmm_reg) 1.0_f64)
}

#[test]
fn latencies_match_loops_of_the_compiler() {
    let Some(tsc) = clock("bounds: latencies against the compiler's loops") else { return };
    at_a_quiet_moment(|| {
        type Chain = fn() -> f64;
        for (text, chain) in [
            ("add R64, R64", additions as Chain),
            ("imul R64, R64", multiplications),
            ("mov R64, M64", loads),
            ("paddd XMM, XMM", packed_additions),
            ("addsd XMM, XMM", float_additions),
        ] {
            chain();
            let pairs: Vec<_> = (0..PAIRS).map(|_| (chain(), additions())).collect();
            let ratios: Vec<f64> = pairs.iter().map(|(chain, adds)| chain / adds).collect();
            let minimum =
                |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
            // The minimum excludes a busy SMT sibling, which slows loads more than adds. The median excludes occasional
            // vector operations of Zen 5 that take a cycle less.
            let by_loop =
                [median(&ratios).unwrap(), minimum(|pair| pair.0) / minimum(|pair| pair.1)];
            let by_table = compared_with_add(tsc, text, "latency").2;
            println!("{text}: {by_table:.4} and {by_loop:.4?}");
            let near = |one: &f64| (by_table / one - 1.0).abs() < TOLERANCE;
            assert!(by_loop.iter().any(near), "{text}: {by_table:.4} and {by_loop:.4?}");
        }
    });
}

#[test]
fn multiplications_match_the_latencies_of_the_core_clock() {
    let Some(tsc) = clock("bounds: a latency against the core clock") else { return };
    let latencies = machine::core_clock::latencies().unwrap();
    let (Some(integer), Some(float)) = (latencies.integer, latencies.float) else {
        return machine::untested::note(
            "bounds: a latency against the core clock",
            &"latencies unknown",
        );
    };
    at_a_quiet_moment(|| {
        for (text, cycles) in [("imul R32, R32", integer), ("mulsd XMM, XMM", float)] {
            agree(text, compared_with_add(tsc, text, "latency").2, cycles as f64);
        }
    });
}

/// `imul rsi, rax`, and `add rsi, rax`, which depends on it and on itself.
const MULTIPLY: [u8; 4] = [0x48, 0x0F, 0xAF, 0xF0];
const ADD: [u8; 3] = [0x48, 0x01, 0xC6];

/// Returns the median cycles per copy of bodies with their numbers of copies, measured alternately.
fn alternating(tsc: &Tsc, bodies: &[(Vec<u8>, usize)]) -> Vec<f64> {
    let data = Data::new().unwrap();
    let timer = LoopTimer::new(tsc, &data, BUDGET, 0);
    let body = |(code, copies): &(Vec<u8>, usize)| {
        let state = State::new(&data);
        Body::new(timer.placement, *copies, false, state, |_| (), |copies| Ok(code.repeat(copies)))
            .unwrap()
    };
    let bodies: Vec<Body> = bodies.iter().map(body).collect();
    let bodies: Vec<&Body> = bodies.iter().collect();
    let rounds: Vec<_> = (0..PAIRS).map(|_| timer.cycles(&bodies).unwrap()).collect();
    let of = |at: usize| median(&rounds.iter().map(|round| round[at]).collect::<Vec<_>>()).unwrap();
    (0..bodies.len()).map(of).collect()
}

#[test]
fn each_added_addition_takes_one_cycle() {
    let Some(tsc) = clock("bounds: planted delays") else { return };
    at_a_quiet_moment(|| {
        let planted = [0, 1, 2, 4, 8];
        let bodies = planted.map(|more| ([&MULTIPLY[..], &ADD.repeat(more)].concat(), 40));
        let cycles = alternating(tsc, &bodies);
        for (more, cycles_of) in planted.iter().zip(&cycles) {
            agree(&format!("imul and {more} add"), *cycles_of, cycles[0] + *more as f64);
        }
        for several in 1..4 {
            // Relative to each other, because a busy SMT sibling slows adds but not the chains of the core clock.
            let cycles = alternating(tsc, &[(ADD.repeat(several), 40), (ADD.to_vec(), 40)]);
            agree(&format!("{several} add"), cycles[0], several as f64 * cycles[1]);
        }
    });
}

#[test]
fn the_time_per_copy_does_not_depend_on_their_number() {
    let Some(tsc) = clock("bounds: as many copies again") else { return };
    at_a_quiet_moment(|| {
        for code in [MULTIPLY.to_vec(), ADD.to_vec(), [&MULTIPLY[..], &ADD].concat()] {
            let cycles = alternating(tsc, &[(code.clone(), 120), (code.clone(), 60), (code, 24)]);
            agree("120 and 60 copies", cycles[0], cycles[1]);
            agree("120 and 24 copies", cycles[0], cycles[2]);
        }
    });
}

#[test]
fn independent_copies_take_less_time_than_a_chain() {
    let Some(tsc) = clock("bounds: independent copies") else { return };
    at_a_quiet_moment(|| {
        // Every CPU since the P6 adds twice per cycle and pipelines multiplications.
        for text in ["add R64, R64", "imul R64, R64"] {
            let (throughput, _, _) = compared_with_add(tsc, text, "throughput");
            let (latency, _, _) = compared_with_add(tsc, text, "latency");
            println!("{text}: {throughput:.3} independent, {latency:.3} in a chain");
            assert!(throughput < 0.8 * latency, "{text}: {throughput:.3} of {latency:.3}");
        }
    });
}

#[test]
fn a_fault_is_unsupported_and_the_next_form_is_measured() {
    let Some(tsc) = clock("bounds: a form that faults") else { return };
    let text = "[[class]]\nname = \"mine\"\nforms = [{ form = \"ud2\", bytes = \"0F 0B\" }]";
    let list = List::read("mine.toml", text).unwrap();
    let prepared = prepare(&list).remove(0).unwrap();
    let data = Data::new().unwrap();
    let timer = LoopTimer::new(tsc, &data, BUDGET, 0);
    let form = one_form(&list, &prepared, &data, timer);
    let failure = form.measure(false).unwrap_err();
    assert_eq!(failure.kind, lab::sample::FailureKind::Unsupported);
    assert!(failure.why.contains("SIGILL"), "{failure}");
    assert!(compared_with_add(tsc, "add R64, R64", "throughput").0 > 0.0);
}

#[test]
fn the_distance_from_a_whole_number_is_relative_to_the_tolerance() {
    assert!((off_integer(3.05) - 1.0).abs() < 1e-9);
    assert!((off_integer(19.9) - 1.0).abs() < 1e-9);
    assert!(off_integer(4.002) < 0.05 && off_integer(0.5) > 5.0);
}
