//! How much memory there is to be had.

/// Memory that could be had without swapping, bytes; no limit where the kernel does not say.
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
    fn the_kernels_line_is_read() {
        assert_eq!(of("MemTotal:  8 kB\nMemAvailable:    3 kB\nBuffers: 1 kB\n"), 3 << 10);
        assert_eq!(of("MemTotal:  8 kB\n"), u64::MAX);
        assert!((1 << 20..1 << 50).contains(&available()));
    }
}
