//! Backend with a separate instance of the kernel's tracer, which does not affect other instances.
//!
//! All settings are in the instance's folder and are removed with it. Dropping the [`Instance`] removes it. If the
//! process ends without that, a [restorer](machine::restorer) removes it, and if the restorer is killed too, the next
//! [`Instance::create`] does. Until then it records nothing, because the kernel stops it and shrinks its buffer when
//! the files are closed. Its event stays enabled, which costs every process some ticks at that tracepoint.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::restorer::{Restore, Restorer};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::events::{Layout, Pages, TraceEvent};
use super::tracefs::Folder;
use super::{Event, Tracer};

/// Prefix of the names of the instances.
const PREFIX: &str = "tollgate-";
/// Size of the buffer, for the records of one batch, in KiB.
const BUFFER_KIB: usize = 1024;
/// Maximum size of a sub-buffer, in bytes.
const MAX_PAGE: usize = 1 << 20;

/// Maximum number of attempts to remove an instance that is in use, and the pause between them.
const MAX_ATTEMPTS: u32 = 200;
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// An instance of the kernel's tracer.
#[derive(Debug)]
pub struct Instance {
    // Declared first, and so closed first: an open folder cannot be removed.
    folder: Folder,
    /// The open `free_buffer`: keeps the instance from being removed; closing it frees the buffer.
    in_use: Option<OwnedFd>,
    instances: Folder,
    name: String,
    header: Pages,
    _restorer: Restorer,
}

impl Instance {
    /// Creates an instance, after removing those of processes that have exited.
    ///
    /// # Errors
    /// Returns `unavailable` if the kernel does not permit it.
    pub fn create() -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = Folder::root()?;
        let header = Pages::parse(&root.read("events/header_page")?)?;
        let instances = root.folder("instances")?;
        remove_is_stale(&instances)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let start =
            start_time(process).ok_or_else(|| Failure::failed("/proc/self/stat: no start time"))?;
        let name = format!("{PREFIX}{process}-{start}-{number}");
        // Started before the instance exists, so that it is always removed.
        let refused = |why| {
            Failure::unavailable(
                format!("start a process that removes the instance: {why}"),
                "use Linux 5.9 or later",
            )
        };
        let parent = instances.as_fd().try_clone_to_owned().map_err(refused)?;
        let restore = Restore::folder(parent, Path::new(&name)).map_err(refused)?;
        let restorer = Restorer::start(restore).map_err(refused)?;
        let created = rustix::fs::mkdirat(&instances, name.as_str(), Mode::RWXU);
        created
            .map_err(|why| Failure::failed(format!("tracefs: create instances/{name}: {why}")))?;
        let folder = instances.folder(&name)?;
        let in_use = Some(folder.open("free_buffer", OFlags::RDONLY)?);
        Ok(Self { folder, in_use, instances, name, header, _restorer: restorer })
    }

    /// Returns the name of its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records the events of a thread on a CPU, until the recording is dropped.
    ///
    /// There is no event filter, because with one the kernel assembles a record before it takes the timestamp.
    ///
    /// # Errors
    /// Returns `failed` if the kernel refuses a setting or its records have another format.
    pub fn record(&self, event: Event, thread: u32, cpu: usize) -> Result<Recording<'_>, Failure> {
        let path = format!("events/{}", event.path());
        let layout = Layout::parse(&self.folder.read(&format!("{path}/format"))?, event, thread)?;
        self.folder.write("tracing_on", "0")?;
        self.folder.write("options/disable_on_free", "1")?;
        self.folder.write("buffer_size_kb", "1")?;
        self.folder.write(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), &BUFFER_KIB.to_string())?;
        self.folder.write("tracing_cpumask", &mask(cpu))?;
        // Raw ticks: the kernel's fenced reading of the counter, unconverted.
        self.folder.write("trace_clock", "x86-tsc")?;
        self.folder.write("set_event_pid", &thread.to_string())?;
        let on = self.folder.open("tracing_on", OFlags::WRONLY)?;
        let records = self
            .folder
            .open(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"), OFlags::RDONLY | OFlags::NONBLOCK)?;
        let switch = format!("{path}/enable");
        self.folder.write(&switch, "1")?;
        let page = vec![0; self.page_size()];
        Ok(Recording { instance: self, switch, layout, on, records, page })
    }

    /// Returns the size of a sub-buffer, in bytes.
    fn page_size(&self) -> usize {
        // Kernels before 6.8 have sub-buffers of one page and no such file.
        let kibibytes = self.folder.read("buffer_subbuf_size_kb").ok();
        let kibibytes = kibibytes.and_then(|text| text.trim().parse::<usize>().ok());
        kibibytes.map_or(PAGE, |kibibytes| (kibibytes << 10).clamp(PAGE, MAX_PAGE))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.in_use = None;
        // A child just forked by another thread keeps the files open until its exec. If all attempts fail, the
        // next `create` removes the instance.
        for _ in 0..MAX_ATTEMPTS {
            match remove(&self.instances, &self.name) {
                Err(Errno::BUSY) => std::thread::sleep(RETRY_INTERVAL),
                _ => break,
            }
        }
    }
}

/// A recording of one event, stopped when dropped.
#[derive(Debug)]
pub struct Recording<'a> {
    instance: &'a Instance,
    switch: String,
    layout: Layout,
    /// The open `tracing_on`. On only during crossings, because reading the records makes system calls too.
    on: OwnedFd,
    records: OwnedFd,
    page: Vec<u8>,
}

impl Recording<'_> {
    fn set_tracing(&self, on: &[u8]) -> Result<(), Failure> {
        let written = rustix::io::write(&self.on, on);
        written.map(drop).map_err(|why| Failure::failed(format!("tracefs: tracing_on: {why}")))
    }
}

impl Tracer for Recording<'_> {
    fn start(&mut self) -> Result<(), Failure> {
        self.set_tracing(b"1")
    }

    fn stop(&mut self, events: &mut Vec<TraceEvent>) -> Result<f64, Failure> {
        self.set_tracing(b"0")?;
        loop {
            let length = match rustix::io::read(&self.records, &mut self.page) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(0.0),
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(why) => return Err(Failure::failed(format!("tracefs: read records: {why}"))),
            };
            for record in self.instance.header.records(&self.page[..length])? {
                events.extend(self.layout.decode(record?));
            }
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // If this fails, removing the instance disables the event.
        let _ = self.instance.folder.write(&self.switch, "0");
    }
}

/// Returns the names of all existing instances of this program, of any process.
///
/// # Errors
/// Returns `unavailable` if tracefs is not accessible.
pub fn instances() -> Result<Vec<String>, Failure> {
    let names = Folder::root()?.folder("instances")?.names()?;
    Ok(names.into_iter().filter(|name| name.starts_with(PREFIX)).collect())
}

fn remove_is_stale(instances: &Folder) -> Result<usize, Failure> {
    let names = instances.names()?;
    // An instance in use cannot be removed.
    let removed = names.iter().filter(|name| is_stale(name) && remove(instances, name).is_ok());
    Ok(removed.count())
}

fn remove(instances: &Folder, name: &str) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(instances, name, AtFlags::REMOVEDIR)
}

/// Returns whether an instance is of this program and its process has exited.
fn is_stale(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| {
        let mut numbers = rest.split('-');
        Some((numbers.next()?.parse::<u32>().ok()?, numbers.next()?.parse::<u64>().ok()?))
    });
    numbers.is_some_and(|(process, start)| start_time(process) != Some(start))
}

/// Returns the start time of a process, clock ticks. It distinguishes processes that reuse an ID.
fn start_time(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    machine::proc::stat_field(&stat, 22)
}

/// Formats a mask of one CPU for the kernel: 32-bit words in hexadecimal, the highest first.
fn mask(cpu: usize) -> String {
    let mut words = vec![format!("{:x}", 1u32 << (cpu % 32))];
    words.extend(std::iter::repeat_n("00000000".to_owned(), cpu / 32));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_selects_one_cpu() {
        assert_eq!([mask(0), mask(5), mask(31)], ["1", "20", "80000000"]);
        assert_eq!([mask(32), mask(70)], ["1,00000000", "40,00000000,00000000"]);
    }

    #[test]
    fn only_instances_of_ended_processes_are_is_stale() {
        let process = std::process::id();
        let start = start_time(process).unwrap();
        assert!(!is_stale(&format!("tollgate-{process}-{start}-0")));
        assert!(
            is_stale(&format!("tollgate-{process}-{}-0", start + 1)),
            "another process with this ID"
        );
        assert!(is_stale("tollgate-4194305-7-0"), "above the maximum process ID");
        assert!(!is_stale("tollgate-unrelated") && !is_stale("someone-4194305-7-0"));
    }
}
