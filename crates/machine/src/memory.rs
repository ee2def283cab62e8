//! Available memory.

/// Returns the memory in bytes that is available without swapping; `u64::MAX` if the kernel does not
/// report it.
pub fn available() -> u64 {
    of(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn of(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_kernel_is_parsed() {
        assert_eq!(of("MemTotal:  8 kB\nMemAvailable:    3 kB\nBuffers: 1 kB\n"), 3 << 10);
        assert_eq!(of("MemTotal:  8 kB\n"), u64::MAX);
        assert!((1 << 20..1 << 50).contains(&available()));
    }
}
