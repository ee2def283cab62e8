//! Same as arraywrite.c, with a slice.

mod harness;
use harness::{at, known_elsewhere, main as start, ticks, Timed};

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let mut a = vec![0_u8; size];
    known_elsewhere(&a);
    for _ in 0..passes {
        let begin = ticks();
        let mut i = size as isize - 1;
        while i >= 0 {
            *at(&mut a, i as usize) = i as u8;
            i -= 3;
        }
        timed.passes.push(ticks() - begin);
    }
    let mut i = size as isize - 1;
    while i >= 0 {
        timed.checksum += u64::from(a[i as usize]);
        timed.operations += 1;
        i -= 3;
    }
    timed
}

fn main() {
    start();
}
