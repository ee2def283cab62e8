//! A client's connection to a NIC in another process.

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

use super::super::doorbell_mapping::DoorbellMapping;
use super::super::doorbells::DoorbellSender;
use super::super::interface_config::InterfaceConfig;
use super::super::layout::{BUFFERS, PIPES};
use super::super::memory::MemoryLayout;
use super::fds::Timeout;
use super::message::{Reply, Request, VERSION};

/// Time limit for the NIC to answer a hello, to complete a message, and to read one: far longer than a busy machine
/// needs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a program cannot connect to a NIC.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no NIC at the path.
    #[error(
        "no NIC at {} ({}); start one with tollgate stream generate PCAP RATE, or name its socket with \
         --nic", .0.display(), .1
    )]
    NoServer(PathBuf, io::Error),
    /// The NIC refuses the program.
    #[error("the NIC at {}: {}", .0.display(), .1)]
    Refused(PathBuf, String),
}

/// A client's connection to a NIC in another process. When it ends the NIC frees all that the client has.
pub struct Connection {
    socket: UnixStream,
    path: PathBuf,
    config: InterfaceConfig,
    cpu: usize,
    answers: Mutex<Receiver<Answer>>,
    /// Reserved pipes that are not in use yet.
    spare: Mutex<Vec<u32>>,
    shared: Arc<Shared>,
}

type Answer = (Reply, Option<OwnedFd>);

/// State that the receiving thread shares with the others.
#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    /// Doorbells of each pair of notification buffers.
    queues: Mutex<BTreeMap<u32, DoorbellMapping>>,
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, BTreeMap<u32, DoorbellMapping>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the NIC as stopped, so that no thread waits for it.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.queues().values().for_each(|queue| queue.close());
    }
}

impl Connection {
    /// Connects to a NIC that has, or can take, a configuration.
    ///
    /// # Errors
    /// Returns why there is no such NIC.
    pub fn open(path: &Path, config: InterfaceConfig) -> Result<Arc<Self>, ConnectError> {
        let no_server = |why| ConnectError::NoServer(path.to_path_buf(), why);
        let refused = |why: &str| ConnectError::Refused(path.to_path_buf(), why.to_owned());
        let socket = UnixStream::connect(path).map_err(no_server)?;
        Request::Hello(VERSION, Some(config)).send(&socket, None, TIMEOUT).map_err(no_server)?;
        let cpu = match Reply::receive(&socket, Timeout::within(TIMEOUT)) {
            Ok(Some((Reply::Welcome(cpu), _))) => cpu as usize,
            Ok(Some((Reply::Refused(why), _))) => return Err(refused(&why)),
            Ok(None) => return Err(refused("it stopped; start it again")),
            Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                return Err(refused("it does not answer; use the socket of a NIC"));
            }
            Ok(_) | Err(_) => {
                return Err(refused("invalid answer; use the socket of a NIC"));
            }
        };
        let (answers, shared) = (channel(), Arc::new(Shared::default()));
        let (receiving, all) = (socket.try_clone().map_err(no_server)?, Arc::clone(&shared));
        std::thread::Builder::new()
            .name("nic-client".into())
            .spawn(move || receive_all(&receiving, &answers.0, &all))
            .map_err(no_server)?;
        let (path, answers) = (path.to_path_buf(), Mutex::new(answers.1));
        let spare = Mutex::default();
        Ok(Arc::new(Self { socket, path, config, cpu, answers, spare, shared }))
    }

    /// Returns the CPU of the NIC's thread.
    pub fn nic_cpu(&self) -> usize {
        self.cpu
    }

    /// Reports that the program is ready to receive packets.
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped.
    pub fn ready(&self) -> Result<(), SysError> {
        self.ask(Request::Ready, None).map(|_| ())
    }

    /// Disconnects. The NIC frees all resources of the client at once; each on its own would wait for the NIC.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.shared.close();
    }

    /// Returns whether the NIC has stopped.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    pub(in super::super) fn config(&self) -> InterfaceConfig {
        self.config
    }

    pub(in super::super) fn attach(&self) -> Result<(u32, DoorbellSender), SysError> {
        match self.ask(Request::Attach, None)? {
            (Reply::Attached(pair, delays), Some(fd)) if pair < BUFFERS => {
                let memfd =
                    Memfd::received(fd).map_err(|why| self.error("receive doorbells", why))?;
                let mapping = DoorbellMapping::received(&memfd)?;
                self.shared.queues().insert(pair, mapping.clone());
                if self.is_closed() {
                    mapping.close();
                }
                Ok((pair, DoorbellSender::new(mapping, delays)))
            }
            _ => Err(self.invalid_answer()),
        }
    }

    pub(in super::super) fn detach(&self, pair: u32) {
        // A NIC that has stopped has already freed it.
        let _ = self.ask(Request::Detach(pair), None);
        self.shared.queues().remove(&pair);
    }

    /// Allocates memory and registers it with the NIC. Returns the memory and its bus address.
    pub(crate) fn register_memory(&self, layout: MemoryLayout) -> Result<(Mapping, u64), SysError> {
        let memfd = layout.memfd()?;
        let mapping = layout.map(&memfd)?;
        match self.ask(Request::RegisterMemory(layout), Some(memfd.as_fd()))? {
            // The whole range must be valid addresses.
            (Reply::Registered(bus), _) if bus.checked_add(mapping.len() as u64).is_some() => {
                Ok((mapping, bus))
            }
            _ => Err(self.invalid_answer()),
        }
    }

    pub(in super::super) fn deregister(&self, bus: u64) {
        let _ = self.ask(Request::Deregister(bus), None);
    }

    pub(in super::super) fn drain_doorbells(&self) {
        let _ = self.ask(Request::DrainDoorbells, None);
    }

    /// Reserves pipes before they are used, with all requests in flight at once. If the NIC has too few, the later
    /// allocation of the missing ones fails.
    pub(in super::super) fn reserve_pipes(&self, count: usize) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let sent =
            (0..count).take_while(|_| Request::AllocPipe.send(&self.socket, None, TIMEOUT).is_ok());
        let sent = sent.count();
        let pipes = answers.iter().take(sent).filter_map(|answer| match answer {
            (Reply::Pipe(pipe), _) if pipe < PIPES => Some(pipe),
            _ => None,
        });
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.extend(pipes);
        spare.sort_unstable_by(|one, other| other.cmp(one));
    }

    pub(in super::super) fn alloc_pipe(&self) -> Result<u32, SysError> {
        let lowest = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(pipe) = lowest {
            return Ok(pipe);
        }
        match self.ask(Request::AllocPipe, None)? {
            (Reply::Pipe(pipe), _) if pipe < PIPES => Ok(pipe),
            _ => Err(self.invalid_answer()),
        }
    }

    pub(in super::super) fn free_pipe(&self, pipe: u32) {
        let _ = self.ask(Request::FreePipe(pipe), None);
    }

    /// Sends a request and waits for the answer.
    fn ask(&self, request: Request, fd: Option<BorrowedFd<'_>>) -> Result<Answer, SysError> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = "send a request";
        if self.is_closed() {
            return Err(self.error(attempt, io::ErrorKind::NotConnected.into()));
        }
        request.send(&self.socket, fd, TIMEOUT).map_err(|why| self.error(attempt, why))?;
        let closed = |_| self.error(attempt, io::ErrorKind::ConnectionReset.into());
        match answers.recv().map_err(closed)? {
            (Reply::Refused(why), _) => Err(SysError {
                attempt: format!("the NIC at {}", self.path.display()),
                source: io::Error::other(why),
                remedy: "or start the NIC and the program again".into(),
            }),
            answer => Ok(answer),
        }
    }

    fn error(&self, attempt: &str, source: io::Error) -> SysError {
        let attempt = format!("the NIC at {}: {attempt}", self.path.display());
        SysError { attempt, source, remedy: "start it again".into() }
    }

    #[cfg(test)]
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    fn invalid_answer(&self) -> SysError {
        self.error("understand its answer", io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Receives answers until the NIC ends.
fn receive_all(socket: &UnixStream, answers: &Sender<Answer>, shared: &Shared) {
    while let Ok(Some(answer)) = Reply::receive(socket, Timeout::at_any_time(TIMEOUT)) {
        if answers.send(answer).is_err() {
            break;
        }
    }
    shared.close();
}
