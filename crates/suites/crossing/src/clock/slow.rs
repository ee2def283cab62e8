//! Limiting a CPU to the minimum clock of cpufreq.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lab::option::is_allowed;
use lab::sample::Failure;

use machine::setting::{self, Setting};

/// Folder with `cpuN/cpufreq` for each CPU.
const CPUS: &str = "/sys/devices/system/cpu";
/// Option that enables it.
const OPTION: &str = "allow-cpufreq";
/// File of a CPU's limit.
const LIMIT: &str = "scaling_max_freq";

/// The limit of one CPU's clock, restored when this is dropped.
pub(super) struct SlowClock {
    limit: Setting,
    min: String,
}

impl SlowClock {
    /// Checks that the clock of a CPU can be limited.
    pub(super) fn available(cpu: usize) -> Result<(), Failure> {
        read_min(&folder(Path::new(CPUS), cpu)).map(drop)
    }

    /// Records the limit of a CPU's clock without changing it.
    ///
    /// # Errors
    /// Returns `unavailable` if the option is not given or the clock cannot be limited.
    pub(super) fn of(cpu: usize, options: &BTreeMap<String, String>) -> Result<Self, Failure> {
        if !is_allowed(options, OPTION) {
            return Err(Failure::unavailable(
                "lowering the core clock changes a system setting, which was not allowed",
                "tollgate run crossing --allow cpufreq",
            ));
        }
        Self::at(&folder(Path::new(CPUS), cpu), Path::new(setting::RECORDS))
    }

    fn at(folder: &Path, records: &Path) -> Result<Self, Failure> {
        let min = read_min(folder)?;
        let limit =
            Setting::record_in(records, &folder.join(LIMIT)).map_err(|why| to_failure(&why))?;
        Ok(Self { limit, min })
    }

    pub(super) fn start(&mut self) -> Result<(), Failure> {
        self.limit.set(&self.min).map_err(|why| to_failure(&why))
    }

    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.limit.reset().map_err(|why| to_failure(&why))
    }
}

fn folder(cpus: &Path, cpu: usize) -> PathBuf {
    cpus.join(format!("cpu{cpu}/cpufreq"))
}

/// Reads the minimum clock in the kernel's format, and checks that the limit exists.
fn read_min(folder: &Path) -> Result<String, Failure> {
    let line = |name: &str| {
        let text = fs::read_to_string(folder.join(name));
        text.map(|text| text.trim().to_owned()).map_err(|_| {
            Failure::unavailable(
                "the kernel does not control the core clock here (no cpufreq)",
                "use bare metal with a cpufreq driver",
            )
        })
    };
    line(LIMIT)?;
    line("cpuinfo_min_freq")
}

fn to_failure(why: &std::io::Error) -> Failure {
    let is_busy = why.kind() == std::io::ErrorKind::ResourceBusy;
    let remedy = if is_busy { "wait until the other run ends" } else { "run as root" };
    Failure::unavailable(format!("limit the core clock: {why}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_lowered_and_restored() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cpuinfo_min_freq"), "800000\n").unwrap();
        let limit = folder.path().join("scaling_max_freq");
        fs::write(&limit, "4000000\n").unwrap();
        let current = || fs::read_to_string(&limit).unwrap().trim().to_owned();
        let mut slow = SlowClock::at(folder.path(), &folder.path().join("records")).unwrap();
        slow.start().unwrap();
        assert_eq!(current(), "800000");
        slow.stop().unwrap();
        assert_eq!(current(), "4000000");
        slow.start().unwrap();
        drop(slow);
        assert_eq!(current(), "4000000");
    }

    #[test]
    fn without_the_option_nothing_changes() {
        for options in [BTreeMap::new(), BTreeMap::from([(OPTION.to_owned(), "no".to_owned())])] {
            let refused = SlowClock::of(0, &options).err().unwrap();
            assert!(refused.remedy.unwrap().contains("--allow cpufreq"));
        }
    }
}
