//! The least clock that cpufreq allows a CPU, for as long as it is asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lab::sample::Failure;

use machine::restorer::{Restore, Restorer};

/// Where each CPU has a folder `cpuN/cpufreq`.
const CPUS: &str = "/sys/devices/system/cpu";
/// The option by which a person allows it.
const ALLOWED: &str = "allow-cpufreq";

/// The limit of one CPU's clock.
pub(super) struct SlowClock {
    limit: PathBuf,
    least: String,
    before: String,
    /// Puts the limit back when this process is gone.
    _restorer: Restorer,
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
        if !options.contains_key(ALLOWED) {
            return Err(Failure::unavailable(
                "a lower clock is a system setting, and changing it was not asked for",
                "tollgate run crossing/clock --allow cpufreq",
            ));
        }
        Self::at(&folder(Path::new(CPUS), cpu))
    }

    fn at(folder: &Path) -> Result<Self, Failure> {
        let (least, before) = read(folder)?;
        let limit = folder.join("scaling_max_freq");
        let restore = Restore::file(&limit, &before).map_err(|why| refused(&limit, &why))?;
        let restorer = Restorer::start(restore).map_err(|why| refused(&limit, &why))?;
        Ok(Self { limit, least, before, _restorer: restorer })
    }

    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        fs::write(&self.limit, &self.least).map_err(|why| refused(&self.limit, &why))
    }

    pub(super) fn end(&mut self) -> Result<(), Failure> {
        fs::write(&self.limit, &self.before).map_err(|why| refused(&self.limit, &why))
    }
}

impl Drop for SlowClock {
    fn drop(&mut self) {
        // Where this fails, the restorer tries once more.
        let _ = self.end();
    }
}

fn folder(cpus: &Path, cpu: usize) -> PathBuf {
    cpus.join(format!("cpu{cpu}/cpufreq"))
}

/// The least clock and the limit as it is, both as the kernel writes them.
fn read(folder: &Path) -> Result<(String, String), Failure> {
    let line = |name: &str| {
        let text = fs::read_to_string(folder.join(name));
        text.map(|text| text.trim().to_owned()).map_err(|_| {
            Failure::unavailable(
                "the kernel has no say in the core clock here (no cpufreq)",
                "measure on bare metal with a cpufreq driver",
            )
        })
    };
    Ok((line("cpuinfo_min_freq")?, line("scaling_max_freq")?))
}

fn refused(limit: &Path, why: &std::io::Error) -> Failure {
    Failure::unavailable(format!("{}: {why}", limit.display()), "run as root")
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
        let mut slow = SlowClock::at(folder.path()).unwrap();
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
        let refused = SlowClock::of(0, &BTreeMap::new()).err().unwrap();
        assert!(refused.remedy.unwrap().contains("--allow cpufreq"));
    }
}
