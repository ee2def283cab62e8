//! Interrupts that the kernel counts in `/proc/interrupts`.

use std::fs;

/// TLB shootdowns since boot, all CPUs together; `None` where the kernel does not count them.
///
/// On a host of many CPUs this reads a long file: keep it out of short bodies.
pub fn tlb_shootdowns() -> Option<u64> {
    sum(&fs::read_to_string("/proc/interrupts").ok()?, "TLB")
}

/// The sum over CPUs of the line that begins with `label:`.
fn sum(interrupts: &str, label: &str) -> Option<u64> {
    let counts = |line: &'_ str| -> Option<u64> {
        let (name, counts) = line.split_once(':')?;
        if name.trim() != label {
            return None;
        }
        Some(counts.split_whitespace().map_while(|count| count.parse::<u64>().ok()).sum())
    };
    interrupts.lines().find_map(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_up_to_the_words() {
        let text = "           CPU0       CPU1\n 24:  1  0  IO-APIC   5-edge\nTLB:       2877       2614   TLB shootdowns 9\n";
        assert_eq!(sum(text, "TLB"), Some(5491));
        assert_eq!(sum(text, "24"), Some(1));
        assert_eq!(sum(text, "RES"), None);
    }
}
