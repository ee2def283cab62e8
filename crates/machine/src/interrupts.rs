//! Interrupt counts in `/proc/interrupts`.

use std::fs;

/// Returns the TLB shootdowns of all CPUs since boot; `None` if the kernel does not count them.
///
/// This reads a long file on a host with many CPUs: do not call it in short bodies.
pub fn tlb_shootdowns() -> Option<u64> {
    sum(&fs::read_to_string("/proc/interrupts").ok()?, "TLB")
}

/// Sums the counts of all CPUs in the line that starts with `label:`.
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
    fn counts_are_summed_up_to_the_description() {
        let text = "           CPU0       CPU1\n 24:  1  0  IO-APIC   5-edge\nTLB:       2877       2614   TLB shootdowns 9\n";
        assert_eq!(sum(text, "TLB"), Some(5491));
        assert_eq!(sum(text, "24"), Some(1));
        assert_eq!(sum(text, "RES"), None);
    }
}
