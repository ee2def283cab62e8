//! The program's side.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machine::SysError;
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::super::Port;
use super::super::doorbell_mapping::DoorbellMapping;
use super::super::doorbells::DoorbellSender;
use super::super::interface_config::InterfaceConfig;
use super::super::layout::{BUFFERS, PIPES};
use super::super::memory::MemoryLayout;
use super::fds::Timeout;
use super::message::{Reply, Request, VERSION};

/// How long the NIC may take to answer a hello, to end a message, and to read one: far longer than a busy
/// machine does.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a program has no NIC.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// NoServer is there.
    #[error(
        "no NIC at {} ({}): start one with tollgate stream generate PCAP RATE, or name its socket with \
         --nic", .0.display(), .1
    )]
    NoServer(PathBuf, io::Error),
    /// It does not want the program.
    #[error("the NIC at {}: {}", .0.display(), .1)]
    Refused(PathBuf, String),
}

/// A program's connection to a NIC in another process. When it goes, the NIC takes everything back.
pub struct Connection {
    socket: UnixStream,
    path: PathBuf,
    config: InterfaceConfig,
    cpu: usize,
    answers: Mutex<Receiver<Answer>>,
    /// Pipes that are the program's, and that it does not use yet.
    spare: Mutex<Vec<u32>>,
    shared: Arc<Shared>,
}

type Answer = (Reply, Option<OwnedFd>);

/// What the thread that hears the NIC shares with the others.
#[derive(Default)]
struct Shared {
    gone: AtomicBool,
    /// The doorbells of each pair of notification buffers.
    queues: Mutex<BTreeMap<u32, DoorbellMapping>>,
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, BTreeMap<u32, DoorbellMapping>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The NIC has gone: nobody waits for it.
    fn close(&self) {
        self.gone.store(true, Ordering::Release);
        self.queues().values().for_each(|queue| queue.close());
    }
}

impl Connection {
    /// Connects to a NIC that has this form, or takes it.
    ///
    /// # Errors
    /// Where there is none, or it has another form or comes from another version.
    pub fn open(path: &Path, config: InterfaceConfig) -> Result<Arc<Self>, ConnectError> {
        let nobody = |why| ConnectError::NoServer(path.to_path_buf(), why);
        let refused = |why: &str| ConnectError::Refused(path.to_path_buf(), why.to_owned());
        let socket = UnixStream::connect(path).map_err(nobody)?;
        Request::Hello(VERSION, Some(config)).send(&socket, None, TIMEOUT).map_err(nobody)?;
        let cpu = match Reply::receive(&socket, Timeout::within(TIMEOUT)) {
            Ok(Some((Reply::Welcome(cpu), _))) => cpu as usize,
            Ok(Some((Reply::Refused(why), _))) => return Err(refused(&why)),
            Ok(None) => return Err(refused("it ended; start it again")),
            Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                return Err(refused("it does not answer; name a NIC's socket with --nic"));
            }
            Ok(_) | Err(_) => return Err(refused("its words make no sense; name a NIC's socket")),
        };
        let (answers, shared) = (channel(), Arc::new(Shared::default()));
        let (heard, all) = (socket.try_clone().map_err(nobody)?, Arc::clone(&shared));
        std::thread::Builder::new()
            .name("nic-hearing".into())
            .spawn(move || hear(&heard, &answers.0, &all))
            .map_err(nobody)?;
        let (path, answers) = (path.to_path_buf(), Mutex::new(answers.1));
        let spare = Mutex::default();
        Ok(Arc::new(Self { socket, path, config, cpu, answers, spare, shared }))
    }

    /// The way to the NIC.
    pub fn port(self: &Arc<Self>) -> Port {
        Port::remote(Arc::clone(self))
    }

    /// The CPU on which the NIC's thread runs.
    pub fn nic_cpu(&self) -> usize {
        self.cpu
    }

    /// Says that packets may come.
    ///
    /// # Errors
    /// Where the NIC has gone.
    pub fn ready(&self) -> Result<(), SysError> {
        self.ask(Request::Ready, None).map(|_| ())
    }

    /// Leaves: the NIC takes back at once all that the program has, where its parts would each wait for it.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.shared.close();
    }

    /// Whether the NIC has gone.
    pub fn is_closed(&self) -> bool {
        self.shared.gone.load(Ordering::Acquire)
    }

    pub(in super::super) fn config(&self) -> InterfaceConfig {
        self.config
    }

    pub(in super::super) fn attach(&self) -> Result<(u32, DoorbellSender), SysError> {
        match self.ask(Request::Attach, None)? {
            (Reply::Attached(pair, stamped), Some(fd)) if pair < BUFFERS => {
                let memfd =
                    Memfd::received(fd).map_err(|why| self.refusal("take doorbells", why))?;
                let held = DoorbellMapping::received(&memfd)?;
                self.shared.queues().insert(pair, held.clone());
                if self.is_closed() {
                    held.close();
                }
                Ok((pair, DoorbellSender::new(held, stamped)))
            }
            _ => Err(self.nonsense()),
        }
    }

    pub(in super::super) fn detach(&self, pair: u32) {
        // A NIC that has gone has let go.
        let _ = self.ask(Request::Detach(pair), None);
        self.shared.queues().remove(&pair);
    }

    /// Makes memory and lends it to the NIC: the memory, and where it lies there.
    pub(crate) fn register_memory(&self, layout: MemoryLayout) -> Result<(Mapping, u64), SysError> {
        let memfd = layout.memfd()?;
        let mapping = layout.map(&memfd)?;
        match self.ask(Request::Lend(layout), Some(memfd.as_fd()))? {
            // All of it has an address.
            (Reply::Lent(bus), _) if bus.checked_add(mapping.len() as u64).is_some() => {
                Ok((mapping, bus))
            }
            _ => Err(self.nonsense()),
        }
    }

    pub(in super::super) fn deregister(&self, bus: u64) {
        let _ = self.ask(Request::TakeBack(bus), None);
    }

    pub(in super::super) fn drain_doorbells(&self) {
        let _ = self.ask(Request::DrainDoorbells, None);
    }

    /// Takes so many pipes before they are used: all are asked for at once, where each would be waited for.
    /// Where the NIC has fewer, whoever takes one too many hears of it.
    pub(in super::super) fn reserve_pipes(&self, count: usize) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let asked =
            (0..count).take_while(|_| Request::TakePipe.send(&self.socket, None, TIMEOUT).is_ok());
        let asked = asked.count();
        let taken = answers.iter().take(asked).filter_map(|answer| match answer {
            (Reply::Pipe(pipe), _) if pipe < PIPES => Some(pipe),
            _ => None,
        });
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.extend(taken);
        spare.sort_unstable_by(|one, other| other.cmp(one));
    }

    pub(in super::super) fn alloc_pipe(&self) -> Result<u32, SysError> {
        let lowest = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(pipe) = lowest {
            return Ok(pipe);
        }
        match self.ask(Request::TakePipe, None)? {
            (Reply::Pipe(pipe), _) if pipe < PIPES => Ok(pipe),
            _ => Err(self.nonsense()),
        }
    }

    pub(in super::super) fn free_pipe(&self, pipe: u32) {
        let _ = self.ask(Request::GivePipe(pipe), None);
    }

    /// Asks, and waits for the answer.
    fn ask(&self, request: Request, fd: Option<BorrowedFd<'_>>) -> Result<Answer, SysError> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = "ask it";
        if self.is_closed() {
            return Err(self.refusal(attempt, io::ErrorKind::NotConnected.into()));
        }
        request.send(&self.socket, fd, TIMEOUT).map_err(|why| self.refusal(attempt, why))?;
        let gone = |_| self.refusal(attempt, io::ErrorKind::ConnectionReset.into());
        match answers.recv().map_err(gone)? {
            (Reply::Refused(why), _) => Err(SysError {
                attempt: format!("the NIC at {}", self.path.display()),
                source: io::Error::other(why),
                remedy: "or start the NIC and the program again".into(),
            }),
            answer => Ok(answer),
        }
    }

    fn refusal(&self, attempt: &str, source: io::Error) -> SysError {
        let attempt = format!("the NIC at {}: {attempt}", self.path.display());
        SysError { attempt, source, remedy: "start it again".into() }
    }

    #[cfg(test)]
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    fn nonsense(&self) -> SysError {
        self.refusal("understand it", io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Hears the NIC until it goes.
fn hear(socket: &UnixStream, answers: &Sender<Answer>, shared: &Shared) {
    while let Ok(Some(answer)) = Reply::receive(socket, Timeout::at_any_time(TIMEOUT)) {
        if answers.send(answer).is_err() {
            break;
        }
    }
    shared.close();
}
