//! The NIC's side: who connects is served by a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use machine::Refusal;
use machine::memfd::Memfd;

use super::super::form::Form;
use super::super::region::Program;
use super::super::thread::Access;
use super::message::{Reply, Request, VERSION};
use super::serving::Serving;

/// Programs at a time.
const PROGRAMS: usize = 64;

/// What one program may have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that it may lend the NIC.
    pub memory: u64,
    /// Spans of memory, those of a ring counted twice. The kernel gives a process some 65,000.
    pub mappings: usize,
}

/// Why programs cannot find a NIC.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is one.
    #[error("another NIC is at {}: end it, or name another socket with --nic", .0.display())]
    Taken(PathBuf),
    /// The system refuses.
    #[error("{}: no NIC can be found there ({}); name another socket with --nic", .0.display(), .1)]
    System(PathBuf, io::Error),
}

/// Where programs find a NIC; they lose it when this goes.
pub struct Server {
    shared: Arc<Shared>,
    listener: UnixListener,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// Gives a program a NIC of the form that it needs, or says why not.
type Open = dyn Fn(Form) -> Result<Access, String> + Send + Sync;

struct Shared {
    open: Box<Open>,
    limits: Limits,
    programs: Mutex<Programs>,
}

#[derive(Default)]
struct Programs {
    next: u32,
    ready: usize,
    closed: bool,
    connected: BTreeMap<u32, (UnixStream, Option<JoinHandle<()>>)>,
}

impl Server {
    /// Waits for programs at a path. `open` is asked for a NIC whenever one says what form it needs.
    ///
    /// # Errors
    /// Where another NIC is there, or the system refuses.
    pub fn open(
        path: &Path,
        limits: Limits,
        open: impl Fn(Form) -> Result<Access, String> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let failed = |why| ServerError::System(path.to_path_buf(), why);
        if UnixStream::connect(path).is_ok() {
            return Err(ServerError::Taken(path.to_path_buf()));
        }
        // What nobody answers at was left by one that died.
        match std::fs::remove_file(path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(failed(why)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let programs = Mutex::default();
        let shared = Arc::new(Shared { open: Box::new(open), limits, programs });
        let (accepting, all) = (listener.try_clone().map_err(failed)?, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("nic-server".into())
            .spawn(move || accept(&accepting, &all))
            .map_err(failed)?;
        Ok(Self { shared, listener, path: path.to_path_buf(), thread: Some(thread) })
    }

    /// How many programs have said that packets may come, and have not gone.
    pub fn ready(&self) -> usize {
        self.shared.programs().ready
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the descriptor is the listener's; who waits at it is told that nobody comes any more.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut programs = self.shared.programs();
        programs.closed = true;
        let connected = std::mem::take(&mut programs.connected);
        drop(programs);
        for (socket, thread) in connected.into_values() {
            let _ = socket.shutdown(Shutdown::Both);
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        let Ok(socket) = socket else { return };
        // One too many, or no thread for it: it finds the socket closed.
        let _ = begin(socket, shared);
    }
}

fn begin(socket: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    let kept = socket.try_clone()?;
    let mut programs = shared.programs();
    if programs.connected.len() == PROGRAMS {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    // 0 is the NIC's own process.
    programs.next += 1;
    let (number, all) = (programs.next, Arc::clone(shared));
    let serve = move || {
        let mut one = One { shared: &all, number, serving: None, ready: false };
        one.serve(&socket);
        drop(one);
        // While it is being closed, others join this thread.
        let mut programs = all.programs();
        if !programs.closed {
            programs.connected.remove(&number);
        }
    };
    let thread = std::thread::Builder::new().name("nic-program".into()).spawn(serve)?;
    programs.connected.insert(number, (kept, Some(thread)));
    Ok(())
}

/// One program.
struct One<'a> {
    shared: &'a Shared,
    number: u32,
    serving: Option<Serving>,
    ready: bool,
}

impl One<'_> {
    /// Does what it asks until it goes, or says what makes no sense.
    fn serve(&mut self, socket: &UnixStream) {
        while let Ok(Some((request, fd))) = Request::receive(socket) {
            let sent = match self.answer(request, fd) {
                Ok((reply, fd)) => reply.send(socket, fd),
                Err(why) => Reply::Refused(why).send(socket, None::<OwnedFd>),
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn answer(
        &mut self,
        request: Request,
        fd: Option<OwnedFd>,
    ) -> Result<(Reply, Option<Memfd>), String> {
        match (&mut self.serving, request) {
            (None, Request::Hello(version, form)) => self.hello(version, form),
            (None, _) => Err("say hello first: start the program from the same tollgate".into()),
            (Some(serving), request) => {
                let answer = serving.answer(request, fd).map_err(|why: Refusal| why.to_string())?;
                if request == Request::Ready && !self.ready {
                    self.ready = true;
                    self.shared.programs().ready += 1;
                }
                Ok(answer)
            }
        }
    }

    fn hello(
        &mut self,
        version: u64,
        form: Option<Form>,
    ) -> Result<(Reply, Option<Memfd>), String> {
        if version != VERSION {
            return Err(format!(
                "the NIC speaks version {VERSION} and the program version {version}: start both \
                 from the same tollgate"
            ));
        }
        let form = form.ok_or("no NIC has that form: ask for rings of a power of two of bytes")?;
        let Access { nic, cpu } = (self.shared.open)(form)?;
        self.serving = Some(Serving::new(nic, Program(self.number), self.shared.limits));
        Ok((Reply::Welcome(cpu as u64), None))
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.shared.programs().ready -= usize::from(self.ready);
    }
}
