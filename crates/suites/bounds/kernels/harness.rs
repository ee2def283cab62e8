//! Common code of all kernels in Rust; see kernel.h.

/// Result of a kernel: ticks of the time-stamp counter of each pass; accesses, calls or blocks per pass; the sum
/// of the values that the last pass wrote or read.
#[derive(Default)]
pub struct Timed {
    pub passes: Vec<u64>,
    pub operations: u64,
    pub checksum: u64,
}

/// Waits for all previous instructions; no store or load is moved across.
#[inline(always)]
pub fn ticks() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: these instructions exist on every x86-64 CPU and write only eax and edx.
    unsafe {
        std::arch::asm!("mfence", "lfence", "rdtsc", "lfence", out("eax") low, out("edx") high)
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Returns an element, with or without an index check.
#[inline(always)]
pub fn at<T>(slice: &mut [T], index: usize) -> &mut T {
    #[cfg(unchecked)]
    // SAFETY: the kernels use only valid indices.
    return unsafe { slice.get_unchecked_mut(index) };
    #[cfg(not(unchecked))]
    &mut slice[index]
}

/// Makes the memory visible to unknown code, so that no pass is removed. Its length stays known.
pub fn known_elsewhere<T>(slice: &[T]) {
    std::hint::black_box(slice.as_ptr());
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
    let passes = if pages == "prefaulted" { 12 } else { 1 };
    let mut timed = crate::kernel(size.parse().expect("a number of bytes"), passes);
    timed.passes[passes.min(2) - 1..].sort_unstable();
    println!(
        "ticks={} operations={} checksum={} memory={}",
        timed.passes[passes / 2],
        timed.operations,
        timed.checksum,
        peak_memory()
    );
}
