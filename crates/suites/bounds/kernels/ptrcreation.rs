//! Same as ptrcreation.c, with a slice of pointers.

mod harness;
use harness::{at, known_elsewhere, main as start, ticks, Timed};

const STEP: usize = 6;

fn kernel(size: usize, passes: usize) -> Timed {
    let mut timed = Timed::default();
    let count = size / 8;
    // Whole words of zeros are null pointers, from pages that are not touched.
    let mut a: Vec<usize> = vec![0; count];
    known_elsewhere(&a);
    let blocks: [Vec<u8>; 5] = std::array::from_fn(|k| vec![0; 100 + 10 * k]);
    let p: [usize; 5] = std::array::from_fn(|k| blocks[k].as_ptr() as usize);
    for _ in 0..passes {
        let begin = ticks();
        let mut i = 0;
        while i + STEP <= count {
            *at(&mut a, i) = p[0];
            *at(&mut a, i + 2) = p[1];
            *at(&mut a, i + 3) = p[2];
            *at(&mut a, i + 4) = p[3];
            *at(&mut a, i + 5) = p[4];
            i += STEP;
        }
        timed.passes.push(ticks() - begin);
    }
    for six in a.chunks_exact(STEP) {
        for (k, pointer) in p.iter().enumerate() {
            timed.checksum +=
                if six[k + usize::from(k > 0)] == *pointer { k as u64 + 1 } else { 0 };
            timed.operations += 1;
        }
    }
    timed
}

fn main() {
    start();
}
