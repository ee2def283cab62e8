//! A buffer of the kernel's tracer of our own, with nothing of the others' touched.
//!
//! All settings lie in the instance's folder and go with it. It goes when it is dropped; where that
//! never comes, a [restorer](machine::restorer) removes it as soon as this process is gone; and where that
//! was killed too, the next one that starts does. Until then it
//! records nothing, for the kernel stops it and shrinks its buffer when our files are closed; its event
//! stays enabled, which costs every process some ticks at that tracepoint.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::sample::Failure;
use machine::mapping::PAGE;
use machine::restorer::{Restore, Restorer};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::events::{Layout, Pages, Traced};
use super::tracefs::Folder;
use super::{Event, Tracer};

/// How the names of all our instances begin.
const OURS: &str = "tollgate-";
/// Room for the records of one batch, KiB.
const ROOM: usize = 1024;
/// No sub-buffer is larger.
const LARGEST_PAGE: usize = 1 << 20;

/// How often, and after which pause, removing an instance is tried while it is in use.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// An instance of the kernel's tracer.
#[derive(Debug)]
pub struct Instance {
    // In this order: what is open keeps the folder from being removed.
    folder: Folder,
    /// While it is open the instance cannot be removed; when it closes, the buffer is freed.
    in_use: Option<OwnedFd>,
    instances: Folder,
    name: String,
    header: Pages,
    _restorer: Restorer,
}

impl Instance {
    /// Makes one, after it has removed what others left behind.
    ///
    /// # Errors
    /// Unavailable where the kernel does not let us.
    pub fn create() -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = Folder::root()?;
        let header = Pages::read(&root.read("events/header_page")?)?;
        let instances = root.folder("instances")?;
        remove_stale(&instances)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let begun = begun(process).ok_or_else(|| Failure::failed("/proc/self/stat is unread"))?;
        let name = format!("{OURS}{process}-{begun}-{number}");
        // First, so that there is no moment at which nobody would remove the instance.
        let refused = |why| {
            Failure::unavailable(
                format!("a process that removes the instance: {why}"),
                "use a kernel from 5.9",
            )
        };
        let parent = instances.as_fd().try_clone_to_owned().map_err(refused)?;
        let restore = Restore::folder(parent, Path::new(&name)).map_err(refused)?;
        let restorer = Restorer::start(restore).map_err(refused)?;
        let made = rustix::fs::mkdirat(&instances, name.as_str(), Mode::RWXU);
        made.map_err(|why| Failure::failed(format!("tracefs: make instances/{name}: {why}")))?;
        let folder = instances.folder(&name)?;
        let in_use = Some(folder.open("free_buffer", OFlags::RDONLY)?);
        Ok(Self { folder, in_use, instances, name, header, _restorer: restorer })
    }

    /// The name of its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records what a thread does on a CPU, until the recording is dropped.
    ///
    /// No filter beside the thread: with one the kernel assembles a record first, and stamps it only
    /// when it has passed.
    ///
    /// # Errors
    /// Where the kernel refuses a setting, or its records are not as expected.
    pub fn record(&self, event: Event, thread: u32, cpu: usize) -> Result<Recording<'_>, Failure> {
        let path = format!("events/{}", event.path());
        let layout = Layout::read(&self.folder.read(&format!("{path}/format"))?, event, thread)?;
        self.folder.write("tracing_on", "0")?;
        self.folder.write("options/disable_on_free", "1")?;
        self.folder.write("buffer_size_kb", "1")?;
        self.folder.write(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), &ROOM.to_string())?;
        self.folder.write("tracing_cpumask", &mask(cpu))?;
        // Raw ticks: the kernel reads the counter fenced, and changes nothing about it.
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

    /// Bytes of a sub-buffer.
    fn page_size(&self) -> usize {
        // Kernels before 6.8 have sub-buffers of one page, and no such file.
        let kibibytes = self.folder.read("buffer_subbuf_size_kb").ok();
        let kibibytes = kibibytes.and_then(|text| text.trim().parse::<usize>().ok());
        kibibytes.map_or(PAGE, |kibibytes| (kibibytes << 10).clamp(PAGE, LARGEST_PAGE))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.in_use = None;
        // A child that another thread has just forked holds our files until it has closed them. What
        // fails to the end is left to the next one that starts.
        for _ in 0..TRIES {
            match remove(&self.instances, &self.name) {
                Err(Errno::BUSY) => std::thread::sleep(PAUSE),
                _ => break,
            }
        }
    }
}

/// An event that is being recorded; no longer when dropped.
#[derive(Debug)]
pub struct Recording<'a> {
    instance: &'a Instance,
    switch: String,
    layout: Layout,
    /// On during crossings alone: to read the records is a system call, too.
    on: OwnedFd,
    records: OwnedFd,
    page: Vec<u8>,
}

impl Recording<'_> {
    fn turn(&self, on: &[u8]) -> Result<(), Failure> {
        let turned = rustix::io::write(&self.on, on);
        turned.map(drop).map_err(|why| Failure::failed(format!("tracefs: tracing_on: {why}")))
    }
}

impl Tracer for Recording<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        self.turn(b"1")
    }

    fn end(&mut self, traced: &mut Vec<Traced>) -> Result<f64, Failure> {
        self.turn(b"0")?;
        loop {
            let length = match rustix::io::read(&self.records, &mut self.page) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(0.0),
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(why) => return Err(Failure::failed(format!("tracefs: read records: {why}"))),
            };
            for record in self.instance.header.records(&self.page[..length])? {
                traced.extend(self.layout.decode(record?));
            }
        }
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // The instance takes it along when it goes, should this fail.
        let _ = self.instance.folder.write(&self.switch, "0");
    }
}

/// The instances of ours that there are, those of living processes too.
///
/// # Errors
/// Where tracefs cannot be reached.
pub fn instances() -> Result<Vec<String>, Failure> {
    let names = Folder::root()?.folder("instances")?.names()?;
    Ok(names.into_iter().filter(|name| name.starts_with(OURS)).collect())
}

fn remove_stale(instances: &Folder) -> Result<usize, Failure> {
    let names = instances.names()?;
    // In use it cannot be removed, whoever uses it.
    let removed = names.iter().filter(|name| stale(name) && remove(instances, name).is_ok());
    Ok(removed.count())
}

fn remove(instances: &Folder, name: &str) -> rustix::io::Result<()> {
    rustix::fs::unlinkat(instances, name, AtFlags::REMOVEDIR)
}

/// Whether an instance is ours, and the process that made it is gone.
fn stale(name: &str) -> bool {
    let numbers = name.strip_prefix(OURS).and_then(|rest| {
        let mut numbers = rest.split('-');
        Some((numbers.next()?.parse::<u32>().ok()?, numbers.next()?.parse::<u64>().ok()?))
    });
    numbers.is_some_and(|(process, then)| begun(process) != Some(then))
}

/// When a process began, so that another one of the same number is not taken for it; clock ticks.
fn begun(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold blanks and brackets. Behind it comes field 3, and the time is field 22.
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(19)?.parse().ok()
}

/// A CPU mask of one CPU as the kernel reads it: words of 32 bits in hexadecimal, the highest first.
fn mask(cpu: usize) -> String {
    let mut words = vec![format!("{:x}", 1u32 << (cpu % 32))];
    words.extend(std::iter::repeat_n("00000000".to_owned(), cpu / 32));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_one_cpu() {
        assert_eq!([mask(0), mask(5), mask(31)], ["1", "20", "80000000"]);
        assert_eq!([mask(32), mask(70)], ["1,00000000", "40,00000000,00000000"]);
    }

    #[test]
    fn only_instances_of_ours_whose_process_is_gone_are_stale() {
        let process = std::process::id();
        let now = begun(process).unwrap();
        assert!(!stale(&format!("tollgate-{process}-{now}-0")));
        assert!(stale(&format!("tollgate-{process}-{}-0", now + 1)), "another with this number");
        assert!(stale("tollgate-4194305-7-0"), "no process has so high a number");
        assert!(!stale("tollgate-of-somebody-else") && !stale("someone-4194305-7-0"));
    }
}
