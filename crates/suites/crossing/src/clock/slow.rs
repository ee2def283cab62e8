//! The least clock that cpufreq allows a CPU, for as long as it is asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lab::option::is_allowed;
use lab::sample::Failure;

use machine::setting::{self, Setting};

/// Where each CPU has a folder `cpuN/cpufreq`.
const CPUS: &str = "/sys/devices/system/cpu";
/// The option by which a person allows it.
const ALLOWED: &str = "allow-cpufreq";
/// The file of a CPU's limit.
const LIMIT: &str = "scaling_max_freq";

/// The limit of one CPU's clock, put back when this is dropped.
pub(super) struct SlowClock {
    limit: Setting,
    least: String,
}

impl SlowClock {
    /// Whether the clock of a CPU can be limited.
    pub(super) fn available(cpu: usize) -> Result<(), Failure> {
        read(&folder(Path::new(CPUS), cpu)).map(drop)
    }

    /// The limit of a CPU's clock, as it is.
    ///
    /// # Errors
    /// Where it was not allowed by name, or cannot be limited.
    pub(super) fn of(cpu: usize, options: &BTreeMap<String, String>) -> Result<Self, Failure> {
        if !is_allowed(options, ALLOWED) {
            return Err(Failure::unavailable(
                "a lower clock is a system setting, and changing it was not asked for",
                "tollgate run crossing/clock --allow cpufreq",
            ));
        }
        Self::at(&folder(Path::new(CPUS), cpu), Path::new(setting::RECORDS))
    }

    fn at(folder: &Path, records: &Path) -> Result<Self, Failure> {
        let least = read(folder)?;
        let limit =
            Setting::record_in(records, &folder.join(LIMIT)).map_err(|why| refused(&why))?;
        Ok(Self { limit, least })
    }

    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        self.limit.set(&self.least).map_err(|why| refused(&why))
    }

    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.limit.reset().map_err(|why| refused(&why))
    }
}

fn folder(cpus: &Path, cpu: usize) -> PathBuf {
    cpus.join(format!("cpu{cpu}/cpufreq"))
}

/// The least clock, as the kernel writes it, where there is a limit too.
fn read(folder: &Path) -> Result<String, Failure> {
    let line = |name: &str| {
        let text = fs::read_to_string(folder.join(name));
        text.map(|text| text.trim().to_owned()).map_err(|_| {
            Failure::unavailable(
                "the kernel has no say in the core clock here (no cpufreq)",
                "measure on bare metal with a cpufreq driver",
            )
        })
    };
    line(LIMIT)?;
    line("cpuinfo_min_freq")
}

fn refused(why: &std::io::Error) -> Failure {
    let remedy = match why.kind() {
        std::io::ErrorKind::ResourceBusy => "wait until the other run ends",
        _ => "run as root",
    };
    Failure::unavailable(format!("limit the core clock: {why}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_lowered_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cpuinfo_min_freq"), "800000\n").unwrap();
        let limit = folder.path().join("scaling_max_freq");
        fs::write(&limit, "4000000\n").unwrap();
        let now = || fs::read_to_string(&limit).unwrap().trim().to_owned();
        let mut slow = SlowClock::at(folder.path(), &folder.path().join("records")).unwrap();
        slow.begin().unwrap();
        assert_eq!(now(), "800000");
        slow.end().unwrap();
        assert_eq!(now(), "4000000");
        slow.begin().unwrap();
        drop(slow);
        assert_eq!(now(), "4000000");
    }

    #[test]
    fn nothing_is_changed_unasked() {
        for options in [BTreeMap::new(), BTreeMap::from([(ALLOWED.to_owned(), "no".to_owned())])] {
            let refused = SlowClock::of(0, &options).err().unwrap();
            assert!(refused.remedy.unwrap().contains("--allow cpufreq"));
        }
    }
}
