//! What a kernel's program in Rust shares with all others; see kernel.h.

/// One timed pass: its ticks of the time-stamp counter, and how many accesses, calls or blocks it had.
#[derive(Default)]
pub struct Timed {
    pub begin: u64,
    pub end: u64,
    pub operations: u64,
    pub checksum: u64,
}

/// Every instruction before has ended, and no store or load is moved across.
#[inline(always)]
pub fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: these instructions exist on every x86-64 processor and touch eax and edx alone.
    unsafe {
        std::arch::asm!("mfence", "lfence", "rdtsc", "lfence", out("eax") low, out("edx") high)
    };
    u64::from(high) << 32 | u64::from(low)
}

/// The element itself: checked by the language, or trusted.
#[inline(always)]
pub fn at<T>(slice: &mut [T], index: usize) -> &mut T {
    #[cfg(unchecked)]
    // SAFETY: the kernels are written to stay inside; this is what is compared.
    return unsafe { slice.get_unchecked_mut(index) };
    #[cfg(not(unchecked))]
    &mut slice[index]
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
}

pub fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, size, pages] = &words[..] else {
        eprintln!("arguments: SIZE fresh|prefaulted");
        std::process::exit(2);
    };
    let first = if pages == "prefaulted" { 0 } else { 1 };
    let timed = crate::kernel(size.parse().expect("a number of bytes"), first);
    println!(
        "ticks={} operations={} checksum={} memory={}",
        timed.end - timed.begin,
        timed.operations,
        timed.checksum,
        peak_memory()
    );
}
