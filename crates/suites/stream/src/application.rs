//! The applications: their names, their options, and how they are built on each core.

// Options may be any numbers, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use applications::Application;
use applications::application::{Count, Finding};
use applications::kv::partition::{KeyHash, Size};
use applications::kv::{self, KeyValue, key_of, value_of};
use applications::log::filter::{Filter, FilterError};
use applications::log::hyperscan::{Hyperscan, HyperscanError};
use applications::log::{self, LogMonitor, Rules};
use applications::maglev::table::TableError;
use applications::maglev::{CompleteMaglev, EnsoMaglev};
use applications::memory::MemoryError;
use applications::telemetry::{ONE_IN, Telemetry};
use lab::factor::LevelType;
use lab::quantity::format_bytes;
use lab::sample::Failure;

use crate::generator::TOUCHED;

/// Number of Maglev's backends by default, as in Ensō's evaluation.
pub const BACKENDS: u32 = 1000;

/// Number of keys of the store in experiments, all of which are stored first. The store has 256 MiB, more than the L2 cache of
/// any core; one that exceeds every L3 cache would take longer to fill than a sample lasts.
pub const KEYS: usize = 4 << 20;

/// Seed of telemetry by default.
pub const SEED: u64 = 1;

/// The names of the applications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType, clap::ValueEnum)]
pub enum ApplicationKind {
    /// Adds 1 to a byte of each packet.
    #[default]
    Echo,
    /// The load balancer as in Ensō's evaluation: checksums are not updated.
    MaglevEnso,
    /// The load balancer with complete keys and right checksums.
    Maglev,
    /// The key-value store.
    KeyValue,
    /// The monitor of logs, which sends nothing.
    LogMonitor,
    /// The telemetry, which sends all packets unchanged.
    Telemetry,
}

/// The echo whose change the generator expects.
pub type Echo = applications::echo::Echo<TOUCHED>;

/// An application with its options, for all cores.
#[derive(Debug, Clone)]
pub enum ApplicationSpec {
    /// The echo.
    Echo {
        /// NOP instructions per packet.
        nops: u32,
    },
    /// Maglev as in Ensō's evaluation.
    MaglevEnso {
        /// Addresses of the backends.
        backends: Arc<[Ipv4Addr]>,
    },
    /// The complete Maglev.
    Maglev {
        /// As above.
        backends: Arc<[Ipv4Addr]>,
    },
    /// The key-value store, with one partition per core.
    KeyValue {
        /// Number of keys of all partitions together.
        keys: usize,
        /// Whether the keys of the ranks 0 to `keys - 1` are stored before the first request.
        filled: bool,
    },
    /// The log monitor.
    LogMonitor {
        /// Its compiled rules.
        rules: Arc<Rules>,
    },
    /// Telemetry.
    Telemetry {
        /// Each row of the sketch is updated by one in this number of packets.
        one_in: u32,
        /// Seed of the sampling; each core adds its number.
        seed: u64,
    },
}

/// Which of several cores an application runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreNumber {
    /// Its number, from 0.
    pub core: u16,
    /// Number of cores.
    pub cores: u16,
}

impl CoreNumber {
    /// The only core.
    pub const ONLY: Self = Self { core: 0, cores: 1 };

    /// Returns the numbers of `cores` cores.
    pub fn all(cores: usize) -> impl Iterator<Item = Self> {
        let cores = u16::try_from(cores).unwrap_or(u16::MAX);
        (0..cores).map(move |core| Self { core, cores })
    }
}

/// Why an application cannot run on this machine, or with its options.
#[derive(Debug, thiserror::Error)]
pub enum ApplicationError {
    /// Maglev's backends are unsuitable.
    #[error(transparent)]
    Backends(#[from] TableError),
    /// The kernel provides no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The store would take more than half of the free memory.
    #[error("{keys} keys need {} of memory, and {} are free; use fewer keys", format_bytes(*needed), format_bytes(*free))]
    Keys {
        /// Number of keys.
        keys: usize,
        /// Memory of all partitions, in bytes.
        needed: u64,
        /// Free memory, in bytes.
        free: u64,
    },
    /// A rule file cannot be used.
    #[error(transparent)]
    Rules(#[from] FilterError),
    /// Hyperscan is missing, or refuses the rules.
    #[error(transparent)]
    Hyperscan(#[from] HyperscanError),
}

impl From<ApplicationError> for Failure {
    fn from(why: ApplicationError) -> Self {
        let text = why.to_string();
        // All end with the remedy.
        match text.rsplit_once("; ") {
            Some((why, remedy)) => Self::unavailable(why, remedy),
            None => Self::failed(text),
        }
    }
}

/// An operation with an application that is known as a type.
pub trait WithApplication: Sized {
    /// Its result.
    type Output;

    /// Runs it.
    fn run<A: Application>(self, application: A) -> Self::Output;

    /// Runs it with the echo, which alone is combined with everything that is a type.
    fn run_echo(self, echo: Echo) -> Self::Output {
        self.run(echo)
    }

    /// Runs it with the key-value store, whose partition can also be called without packets.
    fn run_key_value(self, store: KeyValue) -> Self::Output {
        self.run(store)
    }

    /// Runs it with the log monitor, whose rules Hyperscan can also scan for without packets.
    fn run_log_monitor(self, monitor: LogMonitor) -> Self::Output {
        self.run(monitor)
    }
}

impl ApplicationKind {
    /// Returns what the application does with packets, in the past tense.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Echo => "echoed",
            Self::MaglevEnso
            | Self::Maglev
            | Self::KeyValue
            | Self::LogMonitor
            | Self::Telemetry => "processed",
        }
    }

    /// Checks whether this machine has what the application needs besides memory.
    ///
    /// # Errors
    /// Returns what is missing and the remedy.
    pub fn available(self) -> Result<(), ApplicationError> {
        match self {
            Self::LogMonitor => Ok(Hyperscan::load().map(|_| ())?),
            Self::Echo | Self::MaglevEnso | Self::Maglev | Self::KeyValue | Self::Telemetry => {
                Ok(())
            }
        }
    }
}

impl ApplicationSpec {
    /// Returns a log monitor with the rules of files, or with our rules if there are none.
    ///
    /// # Errors
    /// Returns why a file cannot be used, or that Hyperscan is missing.
    pub fn log_monitor(files: &[PathBuf]) -> Result<Self, ApplicationError> {
        let filters = match files {
            [] => log::filters()?,
            files => files.iter().map(|file| Filter::read(file)).collect::<Result<_, _>>()?,
        };
        let library = Hyperscan::load()?;
        Ok(Self::LogMonitor { rules: Rules::new(&library, &filters)? })
    }

    /// Returns a key-value store of which a machine with this much free memory, in bytes, can store all keys.
    ///
    /// # Errors
    /// Returns an error if it would take more than half of the memory.
    pub fn key_value(
        keys: usize,
        cores: usize,
        filled: bool,
        free: u64,
    ) -> Result<Self, ApplicationError> {
        let spec = Self::KeyValue { keys, filled };
        let needed = spec.memory(cores);
        match needed > free / 2 {
            true => Err(ApplicationError::Keys { keys, needed, free }),
            false => Ok(spec),
        }
    }

    /// Returns telemetry as in Ensō's evaluation.
    pub fn telemetry() -> Self {
        Self::Telemetry { one_in: ONE_IN, seed: SEED }
    }

    /// Returns the name.
    pub fn kind(&self) -> ApplicationKind {
        match self {
            Self::Echo { .. } => ApplicationKind::Echo,
            Self::MaglevEnso { .. } => ApplicationKind::MaglevEnso,
            Self::Maglev { .. } => ApplicationKind::Maglev,
            Self::KeyValue { .. } => ApplicationKind::KeyValue,
            Self::LogMonitor { .. } => ApplicationKind::LogMonitor,
            Self::Telemetry { .. } => ApplicationKind::Telemetry,
        }
    }

    /// Describes the application on `cores` cores, e.g. `maglev, 1000 backends`.
    pub fn describe(&self, cores: usize) -> String {
        let s = |count: u64| if count == 1 { "" } else { "s" };
        let options = match self {
            Self::Echo { nops } => format!("{nops} NOPs per packet"),
            Self::MaglevEnso { backends } | Self::Maglev { backends } => {
                format!("{} backend{}", backends.len(), s(backends.len() as u64))
            }
            Self::KeyValue { keys, .. } => {
                format!("{keys} keys in {}", format_bytes(self.memory(cores)))
            }
            Self::LogMonitor { rules } => {
                format!("{} rule file{}", rules.files(), s(rules.files() as u64))
            }
            Self::Telemetry { one_in, .. } => format!("1 in {one_in} packets per row"),
        };
        format!("{}, {options}", self.kind())
    }

    /// Returns the memory of what it stores on `cores` cores together, in bytes; 0 if it is small.
    pub fn memory(&self, cores: usize) -> u64 {
        match self {
            Self::KeyValue { keys, .. } => {
                (partition_size(*keys, cores).bytes() as u64).saturating_mul(cores as u64)
            }
            Self::Echo { .. }
            | Self::MaglevEnso { .. }
            | Self::Maglev { .. }
            | Self::LogMonitor { .. }
            | Self::Telemetry { .. } => 0,
        }
    }

    /// Returns a time that no packet's work exceeds unless its core lost the CPU.
    pub fn max_work(&self) -> Duration {
        match self {
            Self::Echo { nops } => PER_NOP.saturating_mul(*nops),
            // Tens of requests or a payload of any text per packet, and memory that is in no cache.
            Self::KeyValue { .. } | Self::LogMonitor { .. } => LONG_WORK,
            Self::MaglevEnso { .. } | Self::Maglev { .. } | Self::Telemetry { .. } => SHORT_WORK,
        }
    }

    /// Builds the application of a core and runs an operation with it. Called by the thread that uses it, so that its
    /// memory is near.
    ///
    /// # Errors
    /// Returns why it cannot be built.
    pub fn with<O: WithApplication>(
        &self,
        number: CoreNumber,
        operation: O,
    ) -> Result<O::Output, ApplicationError> {
        Ok(match self {
            Self::Echo { nops } => operation.run_echo(Echo { nops: *nops }),
            Self::MaglevEnso { backends } => operation.run(EnsoMaglev::new(backends)?),
            Self::Maglev { backends } => operation.run(CompleteMaglev::new(backends)?),
            Self::KeyValue { keys, filled } => {
                operation.run_key_value(partition(*keys, *filled, number)?)
            }
            Self::LogMonitor { rules } => operation.run_log_monitor(LogMonitor::new(rules)?),
            Self::Telemetry { one_in, seed } => {
                operation.run(Telemetry::new(*one_in, seed.wrapping_add(number.core.into())))
            }
        })
    }
}

/// Upper bound of a NOP's duration: several times what the slowest CPU needs.
const PER_NOP: Duration = Duration::from_nanos(2);
/// Upper bounds of the work on a packet.
const SHORT_WORK: Duration = Duration::from_micros(2);
const LONG_WORK: Duration = Duration::from_micros(50);

/// Returns the addresses of a number of Maglev's backends: from 10.1.0.0 up.
pub fn backend_addresses(backends: u32) -> Arc<[Ipv4Addr]> {
    const FIRST: u32 = 0x0a01_0000;
    (0..backends).map(|number| FIRST.wrapping_add(number).into()).collect()
}

/// Keys for which a partition has space, as a multiple of its keys: hardly any bucket overflows, and the log keeps all keys of a
/// partition that has more than its share, and values that are set again.
const SPARE: usize = 2;

/// Returns the size of each partition.
fn partition_size(keys: usize, cores: usize) -> Size {
    Size::of_keys(keys.div_ceil(cores.max(1)).saturating_mul(SPARE))
}

/// Returns the number of keys of `cores` partitions that together have this much memory, in bytes.
pub(crate) fn keys_within(memory: u64, cores: usize) -> usize {
    let each = memory.checked_div(cores as u64).unwrap_or(memory);
    let keys = kv::keys_within(usize::try_from(each).unwrap_or(usize::MAX)) / SPARE;
    keys.max(1).saturating_mul(cores).min(kv::MAX_KEYS)
}

/// Creates the key-value store of a core.
fn partition(keys: usize, filled: bool, number: CoreNumber) -> Result<KeyValue, MemoryError> {
    let CoreNumber { core, cores } = number;
    let mut store = KeyValue::new(partition_size(keys, cores.into()), core, cores)?;
    if filled {
        let partition = store.partition();
        // The most popular keys last, because a bucket that is full evicts its oldest entry.
        for key in (0..keys as u64).rev().map(key_of) {
            let hash = KeyHash::new(key);
            if hash.partition(cores) == core {
                partition.set(hash, key, value_of(key));
            }
        }
    }
    Ok(store)
}

/// Returns the sums of the counts of several cores, by name.
pub fn sum<'a>(cores: impl IntoIterator<Item = &'a [Count]>) -> Vec<Count> {
    let mut sums: Vec<Count> = Vec::new();
    for count in cores.into_iter().flatten() {
        match sums.iter_mut().find(|sum| sum.name == count.name) {
            Some(sum) => sum.value = sum.value.saturating_add(count.value),
            None => sums.push(*count),
        }
    }
    sums
}

/// Returns the findings of several cores, with the sum of those about the same subject.
pub(crate) fn sum_findings(cores: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
    let mut sums: Vec<Finding> = Vec::new();
    for finding in cores {
        match sums.iter_mut().find(|sum| sum.subject == finding.subject) {
            Some(sum) => sum.value = sum.value.saturating_add(finding.value),
            None => sums.push(finding),
        }
    }
    sums
}

/// Returns how much each count exceeds that of the same name `before`.
pub(crate) fn since(now: &[Count], before: &[Count]) -> Vec<Count> {
    let earlier = |name| before.iter().find(|count| count.name == name).map_or(0, |it| it.value);
    let since =
        |count: &Count| Count { value: count.value.saturating_sub(earlier(count.name)), ..*count };
    now.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of an application that got a packet too short for its headers.
    struct Short;

    impl WithApplication for Short {
        type Output = Vec<Count>;

        fn run<A: Application>(self, mut application: A) -> Vec<Count> {
            let mut packet = [0; 20];
            application.process(std::iter::once(&mut packet[..]), |_, _| ());
            application.counts()
        }
    }

    fn specs() -> Vec<ApplicationSpec> {
        let mut all = vec![
            ApplicationSpec::Echo { nops: 3 },
            ApplicationSpec::MaglevEnso { backends: backend_addresses(BACKENDS) },
            ApplicationSpec::Maglev { backends: backend_addresses(BACKENDS) },
            ApplicationSpec::KeyValue { keys: 1000, filled: true },
            ApplicationSpec::Telemetry { one_in: 1, seed: SEED },
        ];
        match ApplicationSpec::log_monitor(&[]) {
            Ok(monitor) => all.push(monitor),
            Err(why) => machine::untested::note("stream: the log monitor", &why),
        }
        all
    }

    #[test]
    fn each_kind_is_built_and_counts() {
        for spec in specs() {
            let counts = spec.with(CoreNumber::ONLY, Short).unwrap();
            let is_echo = spec.kind() == ApplicationKind::Echo;
            assert_eq!(counts.is_empty(), is_echo, "{spec:?}");
            let packets = counts.iter().find(|count| count.name == "packets");
            assert!(is_echo || packets.unwrap().value == 1, "{spec:?}: {counts:?}");
            let described = spec.describe(1);
            assert!(described.starts_with(spec.kind().name()), "{described}");
        }
        let names: Vec<_> = ApplicationKind::ALL.iter().map(|kind| kind.name()).collect();
        let expected = ["echo", "maglev-enso", "maglev", "key-value", "log-monitor", "telemetry"];
        assert_eq!(names, expected);
        for kind in ApplicationKind::ALL {
            let value = clap::ValueEnum::to_possible_value(&kind).unwrap();
            assert_eq!(value.get_name(), kind.name());
        }
    }

    #[test]
    fn impossible_options_are_one_line_with_a_remedy() {
        let gib = 1 << 30;
        let too_many = ApplicationSpec::key_value(192 << 20, 1, false, 8 * gib).unwrap_err();
        assert!(too_many.to_string().starts_with("201326592 keys need 16 GiB"), "{too_many}");
        assert!(ApplicationSpec::key_value(192 << 20, 1, false, 32 * gib).is_ok());
        let none = ApplicationSpec::Maglev { backends: backend_addresses(0) };
        let missing = ApplicationSpec::log_monitor(&["none.conf".into()]).unwrap_err();
        for why in [too_many, none.with(CoreNumber::ONLY, Short).unwrap_err(), missing] {
            let failure = Failure::from(why);
            assert!(failure.remedy.is_some() && !failure.why.contains('\n'), "{failure}");
        }
    }

    #[test]
    fn stores_of_a_memory_do_not_exceed_it() {
        for (memory, cores) in [(1 << 20, 1), (1 << 30, 2), (3 << 28, 4), (1, 1)] {
            let keys = keys_within(memory, cores);
            let needed = ApplicationSpec::KeyValue { keys, filled: false }.memory(cores);
            assert!(needed <= memory || keys == cores, "{keys} keys: {needed} of {memory} B");
            assert!(needed > memory / 4 || memory < 1000, "{keys} keys: {needed} of {memory} B");
        }
    }

    #[test]
    fn partitions_have_each_key_once() {
        let mut stores: Vec<_> =
            CoreNumber::all(3).map(|number| partition(2000, true, number).unwrap()).collect();
        let mut found = 0;
        for key in (0..2000).map(key_of) {
            let hash = KeyHash::new(key);
            let with: Vec<_> =
                stores.iter_mut().filter_map(|it| it.partition().get(hash, key)).collect();
            assert!(with.len() <= 1);
            assert!(with.iter().all(|value| *value == value_of(key)));
            found += with.len();
        }
        // Few buckets overflow.
        assert!(found > 1900, "{found}");
    }

    #[test]
    fn counts_are_added_and_subtracted_by_name() {
        let count = |name, value| Count { name, value };
        let cores = [vec![count("a", 1), count("b", 2)], vec![count("b", 5)]];
        let sums = sum(cores.iter().map(Vec::as_slice));
        assert_eq!(sums, [count("a", 1), count("b", 7)]);
        assert_eq!(since(&sums, &cores[0]), [count("a", 0), count("b", 5)]);
        let finding = |name: &str, value| Finding {
            subject: applications::application::Subject::RuleFile(name.into()),
            value,
        };
        let found = sum_findings([finding("a", 1), finding("b", 2), finding("a", u64::MAX)]);
        assert_eq!(found, [finding("a", u64::MAX), finding("b", 2)]);
    }
}
