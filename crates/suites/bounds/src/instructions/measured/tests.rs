//! The instrument against the machine itself: what it reads must be what other ways of measuring read, on any
//! processor. No latency is written down here.

use std::arch::asm;
use std::time::Duration;

use lab::statistics::median;
use machine::tsc::{self, Tsc};

use super::super::list::{BUILT_IN, List};
use super::super::prepared::prepare;
use super::*;

/// Pairs of short measurements, taken in turn. The median of their ratios is right as long as fewer than half
/// of the pairs are disturbed.
const PAIRS: usize = 41;
/// What two right measurements may differ by, relative. A chain that is read wrongly is off by a cycle or more.
const AGREE: f64 = 0.05;
/// How long one body is measured.
const SHORT: Duration = Duration::from_millis(1);

fn one_form<'a>(
    list: &'a List,
    prepared: &'a Prepared,
    data: &'a Data,
    timer: LoopTimer<'a>,
) -> Measured<'a> {
    Measured { form: &list.forms[0], prepared, data, timer, counting: None }
}

/// The time stamp counter, on a CPU that this thread keeps; nothing, and a note, if it keeps no time.
fn clock(test: &str) -> Option<&'static Tsc> {
    machine::pin::pin_to(machine::pin::current_cpu()).unwrap();
    Tsc::get().inspect_err(|why| machine::untested::note(test, why)).ok()
}

/// A form of the suite's own list, with what its class holds: one multiply of denormals takes longer than
/// another.
fn own(text: &str) -> List {
    let list = BUILT_IN.as_ref().unwrap();
    let level = text.replace(',', "");
    let form = list.forms.iter().find(|form| form.level == level).unwrap();
    List { file: list.file.clone(), forms: vec![form.clone()] }
}

/// Medians of a metric of one form and of `add R64, R64`, and of the ratio between the two.
fn beside_an_addition(tsc: &Tsc, text: &str, metric: &str) -> (f64, f64, f64) {
    let data = Data::new().unwrap();
    let lists = [text, "add R64, R64"].map(own);
    let prepared = lists.each_ref().map(|list| prepare(list).remove(0).unwrap());
    let one = |at: usize, metric: &str| {
        let timer = LoopTimer::new(tsc, &data, SHORT);
        one_form(&lists[at], &prepared[at], &data, timer).measure(false).unwrap().values[metric]
    };
    let pairs: Vec<_> = (0..PAIRS).map(|_| (one(0, metric), one(1, "latency"))).collect();
    let of =
        |what: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(what).collect::<Vec<_>>()).unwrap();
    (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.0 / pair.1))
}

fn agree(what: &str, one: f64, other: f64) {
    println!("{what}: {one:.4} and {other:.4}");
    assert!((one / other - 1.0).abs() < AGREE, "{what}: {one:.4} and {other:.4}");
}

/// A chain as a loop that the compiler assembles, timer by the time stamp counter alone.
macro_rules! chain {
    ($($instruction:literal),+; $($operands:tt)*) => {{
        let mut left = LOOPS;
        let begin = tsc::start();
        // SAFETY: only the named registers and the flags change; the load reads the word that is given.
        unsafe {
            asm!(
                ".p2align 6", "2:", ".rept 64", $($instruction),+, ".endr", "dec {left}", "jnz 2b",
                left = inout(reg) left, $($operands)*, options(nostack, readonly),
            );
        }
        std::hint::black_box(&mut left);
        tsc::stop().saturating_sub(begin) as f64
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
fn latencies_are_what_loops_of_the_compiler_take() {
    let Some(tsc) = clock("bounds: latencies against the compiler's loops") else { return };
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
        let least = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
        // A busy SMT sibling slows loads more than adds, which the least of each leaves out; and now and then the
        // vector units of a Zen 5 take a cycle less, which the median does.
        let by_loop = [median(&ratios).unwrap(), least(|pair| pair.0) / least(|pair| pair.1)];
        let by_table = beside_an_addition(tsc, text, "latency").2;
        println!("{text}: {by_table:.4} and {by_loop:.4?}");
        let near = |one: &f64| (by_table / one - 1.0).abs() < AGREE;
        assert!(by_loop.iter().any(near), "{text}: {by_table:.4} and {by_loop:.4?}");
    }
}

#[test]
fn multiplications_take_what_the_core_clock_says() {
    let Some(tsc) = clock("bounds: a latency against the core clock") else { return };
    let latencies = machine::core_clock::latencies().unwrap();
    let (Some(integer), Some(float)) = (latencies.integer, latencies.float) else {
        return machine::untested::note("bounds: a latency against the core clock", &"not learnt");
    };
    for (text, cycles) in [("imul R32, R32", integer), ("mulsd XMM, XMM", float)] {
        agree(text, beside_an_addition(tsc, text, "latency").2, cycles as f64);
    }
}

/// `imul rsi, rax` and additions to rsi that wait for it and for one another.
const MULTIPLY: [u8; 4] = [0x48, 0x0F, 0xAF, 0xF0];
const ADD: [u8; 3] = [0x48, 0x01, 0xC6];

/// Median cycles a copy of some bodies of so many copies each, measured in turn.
fn in_turn(tsc: &Tsc, bodies: &[(Vec<u8>, usize)]) -> Vec<f64> {
    let data = Data::new().unwrap();
    let timer = LoopTimer::new(tsc, &data, SHORT);
    let body = |(code, copies): &(Vec<u8>, usize)| {
        let state = State::new(&data);
        Body::new(*copies, false, state, |_| (), |copies| Ok(code.repeat(copies))).unwrap()
    };
    let bodies: Vec<Body> = bodies.iter().map(body).collect();
    let bodies: Vec<&Body> = bodies.iter().collect();
    let rounds: Vec<_> = (0..PAIRS).map(|_| timer.cycles(&bodies).unwrap()).collect();
    let of = |at: usize| median(&rounds.iter().map(|round| round[at]).collect::<Vec<_>>()).unwrap();
    (0..bodies.len()).map(of).collect()
}

#[test]
fn planted_additions_take_a_cycle_each() {
    let Some(tsc) = clock("bounds: planted delays") else { return };
    let planted = [0, 1, 2, 4, 8];
    let bodies = planted.map(|more| ([&MULTIPLY[..], &ADD.repeat(more)].concat(), 40));
    let cycles = in_turn(tsc, &bodies);
    for (more, cycles_of) in planted.iter().zip(&cycles) {
        agree(&format!("imul and {more} add"), *cycles_of, cycles[0] + *more as f64);
    }
    for several in 1..4 {
        // Against one another: a busy SMT sibling slows adds, and not the chains of the core clock.
        let cycles = in_turn(tsc, &[(ADD.repeat(several), 40), (ADD.to_vec(), 40)]);
        agree(&format!("{several} add"), cycles[0], several as f64 * cycles[1]);
    }
}

#[test]
fn a_copy_takes_as_long_among_half_as_many() {
    let Some(tsc) = clock("bounds: as many copies again") else { return };
    for code in [MULTIPLY.to_vec(), ADD.to_vec(), [&MULTIPLY[..], &ADD].concat()] {
        let cycles = in_turn(tsc, &[(code.clone(), 120), (code.clone(), 60), (code, 24)]);
        agree("120 and 60 copies", cycles[0], cycles[1]);
        agree("120 and 24 copies", cycles[0], cycles[2]);
    }
}

#[test]
fn copies_that_do_not_wait_take_less_than_those_that_do() {
    let Some(tsc) = clock("bounds: independent copies") else { return };
    // Every processor since the P6 adds twice in a cycle, and begins a multiplication before the last has ended.
    for text in ["add R64, R64", "imul R64, R64"] {
        let (throughput, _, _) = beside_an_addition(tsc, text, "throughput");
        let (latency, _, _) = beside_an_addition(tsc, text, "latency");
        println!("{text}: {throughput:.3} side by side, {latency:.3} in a chain");
        assert!(throughput < 0.8 * latency, "{text}: {throughput:.3} of {latency:.3}");
    }
}

#[test]
fn a_fault_is_unsupported_and_the_next_form_is_measured() {
    let Some(tsc) = clock("bounds: a form that faults") else { return };
    let text = "[[class]]\nname = \"mine\"\nforms = [{ form = \"ud2\", bytes = \"0F 0B\" }]";
    let list = List::read("mine.toml", text).unwrap();
    let prepared = prepare(&list).remove(0).unwrap();
    let data = Data::new().unwrap();
    let timer = LoopTimer::new(tsc, &data, SHORT);
    let form = one_form(&list, &prepared, &data, timer);
    let failure = form.measure(false).unwrap_err();
    assert_eq!(failure.kind, lab::sample::FailureKind::Unsupported);
    assert!(failure.why.contains("SIGILL"), "{failure}");
    assert!(beside_an_addition(tsc, "add R64, R64", "throughput").0 > 0.0);
}

#[test]
fn what_is_off_an_integer_is_told_by_what_is_allowed() {
    assert!((off_integer(3.05) - 1.0).abs() < 1e-9);
    assert!((off_integer(19.9) - 1.0).abs() < 1e-9);
    assert!(off_integer(4.002) < 0.05 && off_integer(0.5) > 5.0);
}
