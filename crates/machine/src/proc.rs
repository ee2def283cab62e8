//! Single fields of the kernel's text files in `/proc`.
//!
//! The crate `procfs` would not replace much: it has no `sched` and `interrupts`, numbers the CPUs of `stat` by line
//! although some may be offline, and parses whole files where the noise of a sample needs one field of each.

use std::fs;
use std::str::FromStr;

/// Returns the memory in bytes that is available without swapping; `u64::MAX` if the kernel does not report it.
pub fn available_memory() -> u64 {
    memory("MemAvailable:").unwrap_or(u64::MAX)
}

/// Returns the size of the memory in bytes; 0 if the kernel does not report it.
pub(crate) fn total_memory() -> u64 {
    memory("MemTotal:").unwrap_or(0)
}

fn memory(label: &str) -> Option<u64> {
    let kibibytes = number(&fs::read_to_string("/proc/meminfo").ok()?, label)?;
    Some(kibibytes.saturating_mul(1024))
}

/// Returns the number after a label at the start of a line, as in `/proc/meminfo` and `/proc/PID/status`.
pub fn number(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns a field of `/proc/PID/stat`, numbered as in proc(5), from 3. Field 2, the name, is in parentheses and may
/// contain blanks and parentheses.
pub fn stat_field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_its_label() {
        let meminfo = "MemTotal:  8 kB\nMemAvailable:    3 kB\nBuffers: x kB\n";
        assert_eq!(number(meminfo, "MemAvailable:"), Some(3));
        assert_eq!(number(meminfo, "Buffers:"), None);
        assert_eq!(number(meminfo, "Cached:"), None);
        assert_eq!(number("65530\n", ""), Some(65530));
        assert!((1 << 20..1 << 50).contains(&available_memory()));
        assert!(total_memory() >= available_memory());
    }

    #[test]
    fn fields_of_stat_follow_the_name() {
        let rest: Vec<String> = (4..=52).map(|word| word.to_string()).collect();
        let stat = format!("17 (a) b (c) S {}", rest.join(" "));
        assert_eq!(stat_field(&stat, 3), Some('S'));
        assert_eq!(stat_field(&stat, 39), Some(39));
        assert_eq!(stat_field::<u32>(&stat, 53), None);
        assert_eq!(stat_field::<u32>(&stat, 2), None);
        assert_eq!(stat_field::<u32>("17", 4), None);
    }
}
