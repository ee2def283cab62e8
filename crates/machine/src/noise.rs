//! What disturbed a sample: switches, migrations, steal and faults of this process, by difference.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::{cpu, interrupts};

/// Counts of this process and machine at one moment. Two of them make a [`NoiseDelta`].
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    voluntary_switches: u64,
    involuntary_switches: u64,
    minor_faults: u64,
    major_faults: u64,
    migrations: Option<u64>,
    steal_ns: u64,
    waited_ns: Option<u64>,
    tlb_shootdowns: Option<u64>,
}

/// What happened between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoiseDelta {
    /// Times that this process lost a CPU without asking.
    pub involuntary_switches: u64,
    /// Times that it gave one up.
    pub voluntary_switches: u64,
    /// Times that its threads moved to another CPU, of the threads alive at both ends; none where the
    /// kernel does not say (no `/proc/self/task/*/sched`).
    pub migrations: Option<u64>,
    /// Time that the hypervisor gave to others while CPUs of this machine wanted to run, all CPUs
    /// together, ns. The kernel counts in steps of 10 ms.
    pub steal_ns: u64,
    /// Time that the measuring thread was ready and waited for its CPU, which others had, ns; none
    /// where the kernel does not say (no `/proc/thread-self/schedstat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// TLB shootdowns on all CPUs, whoever caused them; only between snapshots with interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb_shootdowns: Option<u64>,
}

impl Noise {
    /// The counts now. Costs some tens of microseconds.
    pub fn snapshot() -> Self {
        let usage = usage();
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        Self {
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            migrations: migrations(),
            steal_ns: steal_ns(),
            waited_ns: waited_ns(),
            tlb_shootdowns: None,
        }
    }

    /// The counts now, with those of `/proc/interrupts`, which costs more.
    pub fn snapshot_with_interrupts() -> Self {
        let tlb_shootdowns = interrupts::tlb_shootdowns();
        Self { tlb_shootdowns, ..Self::snapshot() }
    }

    /// What happened since an earlier snapshot.
    pub fn since(&self, before: &Self) -> NoiseDelta {
        let both = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        NoiseDelta {
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            migrations: both(self.migrations, before.migrations),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
            waited_ns: both(self.waited_ns, before.waited_ns),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            tlb_shootdowns: both(self.tlb_shootdowns, before.tlb_shootdowns),
        }
    }
}

fn usage() -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it; RUSAGE_SELF cannot fail.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    }
}

/// Migrations of all living threads of this process.
fn migrations() -> Option<u64> {
    let of_thread = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("sched")).ok()?;
        parse_migrations(&text)
    };
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let counts: Vec<u64> = tasks.flatten().filter_map(of_thread).collect();
    if counts.is_empty() { None } else { Some(counts.iter().sum()) }
}

/// The line `se.nr_migrations    :     3` of `/proc/PID/sched`.
fn parse_migrations(sched: &str) -> Option<u64> {
    let line = sched.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Time that this thread was ready and waited for a CPU, ns.
fn waited_ns() -> Option<u64> {
    parse_waited(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The second of the three numbers of `schedstat`: time run, time waited, slices.
fn parse_waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Steal on all CPUs since boot, ns. Bare metal has none, and there the file can be long.
fn steal_ns() -> u64 {
    if cpu::hypervisor().is_none() {
        return 0;
    }
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_steal(&text).unwrap_or(0) * 1_000_000_000 / rustix::param::clock_ticks_per_second()
}

/// The eighth count of the first line of `/proc/stat`, clock ticks.
fn parse_steal(stat: &str) -> Option<u64> {
    let mut words = stat.lines().next()?.split_whitespace();
    (words.next() == Some("cpu")).then(|| words.nth(7)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, PAGE};
    use std::time::{Duration, Instant};

    #[test]
    fn steal_is_the_eighth_count() {
        assert_eq!(parse_steal("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1\n"), Some(88));
        assert_eq!(parse_steal("intr 1 2 3 4 5 6 7 88"), None);
        assert_eq!(parse_steal("cpu 1"), None);
    }

    #[test]
    fn waiting_is_the_second_number() {
        assert_eq!(parse_waited("951750 77 3\n"), Some(77));
        assert_eq!(parse_waited("951750"), None);
        assert_eq!(parse_waited("a b c"), None);
    }

    #[test]
    fn migrations_are_found_by_name() {
        let text =
            "cat (1, #threads: 1)\n---\nse.exec_start  : 1.5\nse.nr_migrations       :      17\n";
        assert_eq!(parse_migrations(text), Some(17));
        assert_eq!(parse_migrations("cat\n"), None);
    }

    #[test]
    fn counts_the_faults_that_it_forces() {
        let mapping = Mapping::anonymous(1000 * PAGE).unwrap();
        let before = Noise::snapshot();
        for page in 0..1000 {
            // SAFETY: inside the mapping, which this test alone uses.
            unsafe { mapping.as_mut_ptr().add(page * PAGE).write_volatile(1) };
        }
        let delta = Noise::snapshot().since(&before);
        assert!(delta.minor_faults >= 1000, "{delta:?}");
    }

    #[test]
    fn counts_the_sleep_as_a_switch() {
        let before = Noise::snapshot_with_interrupts();
        std::thread::sleep(Duration::from_millis(2));
        let delta = Noise::snapshot_with_interrupts().since(&before);
        assert!(delta.voluntary_switches >= 1, "{delta:?}");
        assert_eq!(delta.tlb_shootdowns.is_some(), interrupts::tlb_shootdowns().is_some());
    }

    #[test]
    fn a_snapshot_is_cheap() {
        let cost = || {
            let begin = Instant::now();
            Noise::snapshot();
            begin.elapsed()
        };
        let least = (0..50).map(|_| cost()).min().unwrap();
        println!("snapshot {least:?}");
        assert!(least < Duration::from_millis(2), "{least:?}");
    }

    #[test]
    fn delta_survives_json() {
        let delta = NoiseDelta { migrations: Some(3), minor_faults: 5, ..NoiseDelta::default() };
        let text = serde_json::to_string(&delta).unwrap();
        assert_eq!(serde_json::from_str::<NoiseDelta>(&text).unwrap(), delta);
    }
}
