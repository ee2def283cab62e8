//! Disturbances of a sample, as differences of counters: context switches, migrations, steal time, page
//! faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::usage::Usage;
use crate::{cpu, pin, proc};

/// Counters of this process and machine at one moment. Two of them make a [`NoiseDelta`].
#[derive(Debug, Clone)]
pub struct Noise {
    usage: Usage,
    migrations: Option<u64>,
    /// Steal time by CPU since boot, in clock ticks; `None` if the kernel does not report it.
    steal: Option<BTreeMap<usize, u64>>,
    threads: BTreeMap<u32, Thread>,
    held: Vec<u32>,
    waited_ns: Option<u64>,
}

/// A thread of this process or of its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    /// The CPU on which it last ran.
    cpu: usize,
    /// How long it has run, in ns; `None` if the kernel does not report it.
    ran_ns: Option<u64>,
}

/// Disturbances between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseDelta {
    /// Involuntary context switches of this process.
    pub involuntary_switches: u64,
    /// Voluntary context switches of this process.
    pub voluntary_switches: u64,
    /// Migrations between CPUs of the threads alive at both ends; `None` if the kernel does not report them
    /// (no `/proc/self/task/*/sched`).
    pub migrations: Option<u64>,
    /// Steal time in ns on the measuring CPU that lost most. A CPU is measuring if a thread of this process
    /// was pinned to it between the snapshots, or if a thread alive at the end, of this process or its
    /// children, ran on it. The kernel counts in steps of [`steal_step`]. `None` if a virtual machine does
    /// not report it (no per-CPU counts in `/proc/stat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// Time in ns that the measuring thread was runnable while others had its CPU; `None` if the kernel does
    /// not report it (no `/proc/thread-self/schedstat`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// Page faults served from memory (minor faults).
    pub minor_faults: u64,
    /// Page faults that waited for a disk (major faults).
    pub major_faults: u64,
}

impl Noise {
    /// Takes a snapshot, in some tens of microseconds.
    pub fn snapshot() -> Self {
        Self {
            usage: Usage::of_process(),
            migrations: migrations(),
            steal: steal(),
            threads: threads(),
            held: pin::held(),
            waited_ns: waited_ns(),
        }
    }

    /// Returns the disturbances since an earlier snapshot.
    pub fn since(&self, before: &Self) -> NoiseDelta {
        let usage = self.usage.since(before.usage);
        let both = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        NoiseDelta {
            involuntary_switches: usage.involuntary_switches,
            voluntary_switches: usage.voluntary_switches,
            migrations: both(self.migrations, before.migrations),
            steal_ns: self.stolen_since(before),
            waited_ns: both(self.waited_ns, before.waited_ns),
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
        }
    }

    /// Returns the steal time in ns of the measuring CPU that lost most.
    fn stolen_since(&self, before: &Self) -> Option<u64> {
        let (after, earlier) = (self.steal.as_ref()?, before.steal.as_ref()?);
        let cpus = self.measured_since(before).into_iter();
        let stolen =
            cpus.filter_map(|cpu| Some(after.get(&cpu)?.saturating_sub(*earlier.get(&cpu)?)));
        let step = u64::try_from(steal_step().as_nanos()).unwrap_or(u64::MAX);
        Some(stolen.max().unwrap_or(0).saturating_mul(step))
    }

    /// Returns the CPUs on which this process and its children ran since an earlier snapshot.
    fn measured_since(&self, before: &Self) -> BTreeSet<usize> {
        let ran = |number: &u32, thread: &Thread| {
            let earlier = before.threads.get(number).and_then(|thread| thread.ran_ns);
            // If the kernel does not report run times, every thread counts.
            thread.ran_ns.is_none_or(|ran| ran > earlier.unwrap_or(0))
        };
        let living = self.threads.iter().filter(|(number, thread)| ran(number, thread));
        let held = self.held.iter().zip(&before.held).enumerate();
        let held = held.filter(|(_, (after, before))| after != before).map(|(cpu, _)| cpu);
        living.map(|(_, thread)| thread.cpu).chain(held).collect()
    }
}

/// Returns the step in which the kernel counts steal time: 10 ms on most systems. A difference of one step
/// only shows that some time was stolen.
pub fn steal_step() -> Duration {
    Duration::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Returns the migrations of all live threads of this process.
fn migrations() -> Option<u64> {
    let of_thread = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("sched")).ok()?;
        parse_migrations(&text)
    };
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let counts: Vec<u64> = tasks.flatten().filter_map(of_thread).collect();
    if counts.is_empty() { None } else { Some(counts.iter().sum()) }
}

/// Parses the line `se.nr_migrations    :     3` of `/proc/PID/sched`.
fn parse_migrations(sched: &str) -> Option<u64> {
    let line = sched.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Returns the time in ns that this thread was runnable without a CPU.
fn waited_ns() -> Option<u64> {
    parse_schedstat(&fs::read_to_string("/proc/thread-self/schedstat").ok()?, 1)
}

/// Measures how long its thread was runnable without a CPU, around short pieces of work: one reading costs
/// about a microsecond. Any thread may read it.
#[derive(Debug)]
pub struct WaitClock(fs::File);

impl WaitClock {
    /// Opens the clock of this thread; `None` if the kernel does not count (no
    /// `/proc/thread-self/schedstat`).
    pub fn of_this_thread() -> Option<Self> {
        Self::open(Path::new("/proc/thread-self"))
    }

    /// Opens the clock of a thread by its folder, `/proc/PID/task/TID`; `None` as for this thread.
    pub fn open(thread: &Path) -> Option<Self> {
        let clock = Self(fs::File::open(thread.join("schedstat")).ok()?);
        clock.now().map(|_| clock)
    }

    /// Returns the time waited since the thread started; `None` if it has exited.
    pub fn now(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        parse_schedstat(text, 1).map(Duration::from_nanos)
    }
}

/// Parses one of the three numbers of `schedstat`: ns run, ns waited, time slices.
fn parse_schedstat(schedstat: &str, at: usize) -> Option<u64> {
    schedstat.split_whitespace().nth(at)?.parse().ok()
}

/// Returns the steal time of each CPU since boot in clock ticks; `None` if the kernel does not report it. On
/// bare metal there is none, and the file can be long.
fn steal() -> Option<BTreeMap<usize, u64>> {
    if cpu::hypervisor().is_none() {
        return Some(BTreeMap::new());
    }
    parse_steal(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the eighth column of the lines `cpu0`, `cpu1` ... of `/proc/stat`, in clock ticks; `None` without
/// such lines.
fn parse_steal(stat: &str) -> Option<BTreeMap<usize, u64>> {
    let of_cpu = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        Some((cpu, words.nth(7)?.parse().ok()?))
    };
    let counts: BTreeMap<_, _> = stat.lines().filter_map(of_cpu).collect();
    if counts.is_empty() { None } else { Some(counts) }
}

/// Returns the live threads of this process and its children by thread ID.
fn threads() -> BTreeMap<u32, Thread> {
    let tasks = Path::new("/proc/self/task");
    let mut found = BTreeMap::new();
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()) {
            add_threads(Path::new(&format!("/proc/{child}/task")), &mut found);
        }
    }
    add_threads(tasks, &mut found);
    found
}

fn add_threads(tasks: &Path, found: &mut BTreeMap<u32, Thread>) {
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let text = |name| fs::read_to_string(task.path().join(name)).ok();
        let number = task.file_name().to_str().and_then(|name| name.parse().ok());
        // A thread that has just exited is skipped.
        if let (Some(number), Some(cpu)) = (number, text("stat").as_deref().and_then(last_cpu)) {
            let ran_ns = text("schedstat").as_deref().and_then(|text| parse_schedstat(text, 0));
            found.insert(number, Thread { cpu, ran_ns });
        }
    }
}

/// Parses the CPU on which a thread last ran.
fn last_cpu(stat: &str) -> Option<usize> {
    proc::stat_field(stat, 39)
}

/// Returns the TLB shootdowns of all CPUs since boot; `None` if the kernel does not count them.
///
/// This reads a long file on a host with many CPUs: do not call it in short bodies.
pub fn tlb_shootdowns() -> Option<u64> {
    sum_of_cpus(&fs::read_to_string("/proc/interrupts").ok()?, "TLB")
}

/// Sums the counts of all CPUs in the line that starts with `label:`.
fn sum_of_cpus(interrupts: &str, label: &str) -> Option<u64> {
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
    use crate::mapping::{Mapping, PAGE};
    use std::time::{Duration, Instant};

    #[test]
    fn steal_is_the_eighth_count_of_each_cpu() {
        let stat = "cpu  1 2 3 4 5 6 7 99 9 10\ncpu0 1 2 3 4 5 6 7 88 9 10\ncpu12 0 0 0 0 0 0 0 11\n\
                    intr 1 2 3 4 5 6 7 88\ncpu3 1\n";
        assert_eq!(parse_steal(stat), Some(BTreeMap::from([(0, 88), (12, 11)])));
        assert_eq!(parse_steal("cpu"), None);
        assert_eq!(parse_steal(""), None);
    }

    #[test]
    fn schedstat_is_three_numbers() {
        assert_eq!(parse_schedstat("951750 77 3\n", 0), Some(951_750));
        assert_eq!(parse_schedstat("951750 77 3\n", 1), Some(77));
        assert_eq!(parse_schedstat("951750", 1), None);
        assert_eq!(parse_schedstat("a b c", 1), None);
    }

    #[test]
    fn a_thread_that_shares_its_cpu_waits() {
        let Some(clock) = WaitClock::of_this_thread() else {
            return crate::untested::note("a thread's wait for its CPU", &"no schedstat");
        };
        let cpu = crate::topology::allowed_cpus()[0];
        let (sender, done) = std::sync::mpsc::channel::<()>();
        let body = move || while done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {};
        let other = pin::spawn_pinned(cpu, body).unwrap();
        let spinning = pin::spawn_pinned(cpu, move || {
            let clock = WaitClock::of_this_thread().unwrap();
            let (before, start) = (clock.now().unwrap(), Instant::now());
            // A thread that shares a CPU waits eventually, regardless of time slices.
            while clock.now().unwrap() == before && start.elapsed() < Duration::from_secs(60) {}
            clock.now().unwrap() > before
        });
        assert!(spinning.unwrap().join().unwrap());
        drop(sender);
        other.join().unwrap();
        assert!(clock.now().is_some());
    }

    /// A snapshot of one thread on a CPU, with the steal time of all CPUs.
    fn moment(cpu: usize, ran_ns: Option<u64>, steal: [u64; 3]) -> Noise {
        let thread = Thread { cpu, ran_ns };
        Noise {
            steal: Some(steal.into_iter().enumerate().collect()),
            threads: BTreeMap::from([(1, thread)]),
            held: vec![0; 3],
            ..Noise::snapshot()
        }
    }

    #[test]
    fn steal_counts_only_on_measuring_cpus() {
        let step = u64::try_from(steal_step().as_nanos()).unwrap();
        let before = moment(1, Some(5), [10, 20, 30]);
        // CPUs 0 and 2 lose time to others; this process uses CPU 1.
        assert_eq!(moment(1, Some(9), [90, 22, 80]).since(&before).steal_ns, Some(2 * step));
        // A thread that slept all the time measured nothing.
        assert_eq!(moment(0, Some(5), [90, 22, 80]).since(&before).steal_ns, Some(0));
        // If the kernel does not report its run time, it counts.
        assert_eq!(moment(0, None, [90, 22, 80]).since(&before).steal_ns, Some(80 * step));
        // A thread that was pinned to CPU 2 and has exited counts; the result is the maximum, not the sum.
        let mut after = moment(1, Some(9), [90, 22, 37]);
        after.held[2] += 1;
        assert_eq!(after.since(&before).steal_ns, Some(7 * step));
    }

    #[test]
    fn uncounted_steal_is_unknown() {
        let known = moment(1, Some(5), [10, 20, 30]);
        let unknown = Noise { steal: None, ..known.clone() };
        assert_eq!(unknown.since(&known).steal_ns, None);
        assert_eq!(known.since(&unknown).steal_ns, None);
    }

    #[test]
    fn a_cpu_measured_although_its_thread_has_ended() {
        let cpu = *crate::topology::allowed_cpus().last().unwrap();
        let before = Noise::snapshot();
        pin::spawn_pinned(cpu, || ()).unwrap().join().unwrap();
        assert!(Noise::snapshot().measured_since(&before).contains(&cpu));
    }

    #[test]
    fn threads_of_this_process_and_its_children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let threads = threads();
        child.kill().unwrap();
        child.wait().unwrap();
        let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(threads.contains_key(&thread), "{thread}: {threads:?}");
        // Some kernels do not list children.
        if Path::new("/proc/thread-self/children").exists() {
            assert!(threads.contains_key(&child.id()), "{}: {threads:?}", child.id());
        }
    }

    #[test]
    fn migrations_are_found_by_name() {
        let text =
            "cat (1, #threads: 1)\n---\nse.exec_start  : 1.5\nse.nr_migrations       :      17\n";
        assert_eq!(parse_migrations(text), Some(17));
        assert_eq!(parse_migrations("cat\n"), None);
    }

    #[test]
    fn forced_faults_are_counted() {
        let mapping = Mapping::anonymous(1000 * PAGE).unwrap();
        let before = Noise::snapshot();
        for page in 0..1000 {
            // SAFETY: inside the mapping, which only this test uses.
            unsafe { mapping.as_mut_ptr().add(page * PAGE).write_volatile(1) };
        }
        let delta = Noise::snapshot().since(&before);
        assert!(delta.minor_faults >= 1000, "{delta:?}");
    }

    #[test]
    fn a_sleep_counts_as_a_voluntary_switch() {
        let before = Noise::snapshot();
        std::thread::sleep(Duration::from_millis(2));
        let delta = Noise::snapshot().since(&before);
        assert!(delta.voluntary_switches >= 1, "{delta:?}");
    }

    #[test]
    fn a_snapshot_is_cheap() {
        // CPU time of this thread, because other threads may have the CPU.
        let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cost = || {
            let begin = now();
            Noise::snapshot();
            Duration::try_from(now() - begin).unwrap()
        };
        let least = (0..200).map(|_| cost()).min().unwrap();
        // Each thread of the test process costs some files.
        let threads = u32::try_from(threads().len()).unwrap();
        println!("snapshot {least:?} of {threads} threads");
        assert!(least < Duration::from_millis(1) * (threads + 1), "{least:?}");
    }

    #[test]
    fn a_delta_survives_json() {
        let delta = NoiseDelta { migrations: Some(3), minor_faults: 5, ..NoiseDelta::default() };
        let text = serde_json::to_string(&delta).unwrap();
        assert_eq!(serde_json::from_str::<NoiseDelta>(&text).unwrap(), delta);
    }

    #[test]
    fn counts_are_summed_up_to_the_description() {
        let text = "           CPU0       CPU1\n 24:  1  0  IO-APIC   5-edge\nTLB:       2877       2614   TLB shootdowns 9\n";
        assert_eq!(sum_of_cpus(text, "TLB"), Some(5491));
        assert_eq!(sum_of_cpus(text, "24"), Some(1));
        assert_eq!(sum_of_cpus(text, "RES"), None);
    }
}
