//! Same as arrayread.c, with a slice.

mod harness;
use harness::{at, known_elsewhere, main as start, ticks, Timed};

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let mut a = vec![0_u8; size];
    known_elsewhere(&a);
    if passes > 1 {
        for i in 0..size {
            a[i] = i as u8;
        }
    }
    for _ in 0..passes {
        let mut sum = 0_u64;
        let begin = ticks();
        let mut i = size as isize - 1;
        while i >= 0 {
            sum += u64::from(*at(&mut a, i as usize));
            i -= 2;
        }
        // The sum is computed before the clock is read.
        // SAFETY: the assembly is empty.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) sum) };
        timed.passes.push(ticks() - begin);
        timed.checksum = sum;
    }
    timed.operations = (size as u64).div_ceil(2);
    timed
}

fn main() {
    start();
}
