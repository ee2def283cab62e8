//! The NIC's side: who connects is served by a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::SysError;
use machine::memfd::Memfd;

use super::super::interface_config::InterfaceConfig;
use super::super::region::ClientId;
use super::super::thread::Access;
use super::fds::Timeout;
use super::limits::{Limits, Quota};
use super::message::{Reply, Request, VERSION};
use super::serving::Serving;
use super::socket_path::{ServerError, SocketPath};

/// Programs at a time.
pub(crate) const MAX_CLIENTS: usize = 64;
/// Connections at a time whose programs have not said hello; for one more, the oldest of them goes.
pub(crate) const MAX_STRANGERS: usize = 64;
/// Threads at a time: those of programs, of strangers, and of connections that are about to end.
const MAX_THREADS: usize = MAX_CLIENTS + 2 * MAX_STRANGERS;
/// How long to wait after a connection that could not be accepted: it waits too, for a descriptor as a rule.
const RETRY: Duration = Duration::from_millis(20);
/// How long to wait at the end for programs' threads. One that closes what it was sent may be record there.
const END: Duration = Duration::from_secs(5);

/// Where programs find a NIC; they lose it when this goes.
pub struct Server {
    shared: Arc<Shared>,
    listener: UnixListener,
    // The name goes last, once nobody is served any more.
    _path: SocketPath,
    thread: Option<JoinHandle<()>>,
}

/// Gives a program a NIC of the form that it needs, or says why not.
type Open = dyn Fn(InterfaceConfig) -> Result<Access, String> + Send + Sync;

struct Shared {
    open: Box<Open>,
    limits: Limits,
    /// What all programs lend.
    quota: Arc<Quota>,
    clients: Mutex<Clients>,
    /// One has gone.
    gone: Condvar,
}

#[derive(Default)]
struct Clients {
    next: u32,
    ready: usize,
    closed: bool,
    connected: BTreeMap<u32, Connected>,
}

/// A program's connection, or that of somebody who has not said hello yet.
struct Connected {
    socket: Arc<UnixStream>,
    /// How many came before it.
    age: u64,
    is_program: bool,
    /// Since when a program has had nothing of the NIC; `None` while it has something.
    bare: Option<Instant>,
    /// Whether its place is another's now.
    evicted: bool,
}

impl Connected {
    /// Whether it is a program that was given time enough to attach something.
    fn is_overdue(&self, timeout: Duration) -> bool {
        let overdue = self.bare.is_some_and(|since| since.elapsed() >= timeout);
        self.is_program && overdue
    }

    /// Its thread says why, and ends.
    fn evict(&mut self) {
        (self.is_program, self.evicted) = (false, true);
        let _ = self.socket.shutdown(Shutdown::Read);
    }
}

impl Server {
    /// Waits for programs at a path. `open` is asked for a NIC whenever one says what form it needs.
    ///
    /// # Errors
    /// If another NIC or a file is there, or the system refuses.
    pub fn open(
        path: &Path,
        limits: Limits,
        open: impl Fn(InterfaceConfig) -> Result<Access, String> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let failed = |why| ServerError::System(path.to_path_buf(), why);
        let (listener, socket_path) = SocketPath::listen(path)?;
        let quota = Quota::new(limits.all, "of all programs");
        let (clients, gone) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { open: Box::new(open), limits, quota, clients, gone });
        let (accepting, all) = (listener.try_clone().map_err(failed)?, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("nic-server".into())
            .spawn(move || accept(&accepting, &all))
            .map_err(failed)?;
        Ok(Self { shared, listener, _path: socket_path, thread: Some(thread) })
    }

    /// How many programs have said that packets may come, and have not gone.
    pub fn ready(&self) -> usize {
        self.shared.clients().ready
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.clients().closed = true;
        // SAFETY: the descriptor is the listener's; who waits at it is told that nobody comes any more.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let clients = self.shared.clients();
        for one in clients.connected.values() {
            let _ = one.socket.shutdown(Shutdown::Both);
        }
        let are_there = |clients: &mut Clients| !clients.connected.is_empty();
        let _gone = self.shared.gone.wait_timeout_while(clients, END, are_there);
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for age in 0_u64.. {
        let accepted = listener.accept();
        if shared.clients().closed {
            return;
        }
        match accepted {
            Ok((socket, _)) => {
                begin(socket, age, shared);
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Serves whoever connected, or says why not.
fn begin(socket: UnixStream, age: u64, shared: &Arc<Shared>) {
    let socket = Arc::new(socket);
    if let Err(why) = admit(&socket, age, shared) {
        // An empty socket takes it at once.
        let _ = Reply::Refused(why).send(&socket, None::<OwnedFd>, shared.limits.timeout);
    }
}

fn admit(socket: &Arc<UnixStream>, age: u64, shared: &Arc<Shared>) -> Result<(), String> {
    let mut clients = shared.clients();
    if clients.connected.len() >= MAX_THREADS {
        return Err("too many connect at once; try again".into());
    }
    let strangers = || clients.connected.values().filter(|one| !one.is_program);
    let oldest = strangers().min_by_key(|one| one.age);
    if let Some(oldest) = oldest.filter(|_| strangers().count() >= MAX_STRANGERS) {
        // Its thread says why, and ends.
        let _ = oldest.socket.shutdown(Shutdown::Read);
    }
    let number = clients.unused();
    let (all, own) = (Arc::clone(shared), Arc::clone(socket));
    let serve = move || {
        // It goes last, also where the thread panics.
        let _place = Place { shared: &all, number };
        One { shared: &all, number, serving: None, ready: false }.serve(&own);
    };
    let socket = Arc::clone(socket);
    let connected = Connected { socket, age, is_program: false, bare: None, evicted: false };
    clients.connected.insert(number, connected);
    let thread = std::thread::Builder::new().name("nic-program".into()).spawn(serve);
    if let Err(why) = thread {
        clients.connected.remove(&number);
        return Err(format!("no thread for another program ({why}); end one"));
    }
    Ok(())
}

/// The place of a connection among those that are served.
struct Place<'a> {
    shared: &'a Shared,
    number: u32,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.clients().connected.remove(&self.number);
        self.shared.gone.notify_all();
    }
}

impl Clients {
    /// A number that no program has. 0 is the NIC's own process, and the last is nobody's.
    fn unused(&mut self) -> u32 {
        loop {
            self.next = (self.next % (u32::MAX - 1)).saturating_add(1);
            if !self.connected.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// How many are programs.
    fn taken(&self) -> usize {
        self.connected.values().filter(|one| one.is_program).count()
    }

    /// Ends programs that attached nothing in time; how many there were.
    fn evict_overdue(&mut self, timeout: Duration) -> usize {
        let overdue = self.connected.values_mut().filter(|one| one.is_overdue(timeout));
        overdue.map(Connected::evict).count()
    }

    /// A program has nothing of the NIC, or has something.
    fn note(&mut self, number: u32, is_bare: bool) {
        if let Some(one) = self.connected.get_mut(&number)
            && one.bare.is_some() != is_bare
        {
            one.bare = is_bare.then(Instant::now);
        }
    }
}

/// One program.
struct One<'a> {
    shared: &'a Shared,
    number: u32,
    serving: Option<Serving>,
    ready: bool,
}

impl One<'_> {
    /// Does what it asks until it goes, says what makes no sense, or is silent where it must not be.
    fn serve(&mut self, socket: &UnixStream) {
        let within = self.shared.limits.timeout;
        let hello = Timeout::within(within);
        loop {
            let is_program = self.serving.is_some();
            let timeout = if is_program { Timeout::at_any_time(within) } else { hello };
            let answer = match Request::receive(socket, timeout) {
                Ok(Some((request, fd))) => self.answer(request, fd),
                Ok(None) | Err(_) if !is_program => {
                    let why = "no hello came in time; start the program again";
                    let _ = Reply::Refused(why.into()).send(socket, None::<OwnedFd>, within);
                    return;
                }
                Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                    let why = "half of a message came; start the program again";
                    let _ = Reply::Refused(why.into()).send(socket, None::<OwnedFd>, within);
                    return;
                }
                Ok(None) | Err(_) => {
                    if self.is_evicted() {
                        let why = "it attached nothing in time, and another client came; start the \
                                   client again";
                        let _ = Reply::Refused(why.into()).send(socket, None::<OwnedFd>, within);
                    }
                    return;
                }
            };
            let sent = match answer {
                Ok((reply, fd)) => reply.send(socket, fd, within),
                Err(why) => Reply::Refused(why).send(socket, None::<OwnedFd>, within),
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
            (None, Request::Hello(version, config)) => self.hello(version, config),
            (None, _) => Err("say hello first: start the program from the same tollgate".into()),
            (Some(serving), request) => {
                let answer = serving.answer(request, fd);
                let is_bare = serving.is_bare();
                self.shared.clients().note(self.number, is_bare);
                let answer = answer.map_err(|why: SysError| why.to_string())?;
                if request == Request::Ready && !self.ready {
                    self.ready = true;
                    let mut clients = self.shared.clients();
                    clients.ready = clients.ready.saturating_add(1);
                }
                Ok(answer)
            }
        }
    }

    fn hello(
        &mut self,
        version: u64,
        config: Option<InterfaceConfig>,
    ) -> Result<(Reply, Option<Memfd>), String> {
        if version != VERSION {
            return Err(format!(
                "the NIC speaks version {VERSION} and the client version {version}: start both \
                 from the same tollgate"
            ));
        }
        let config =
            config.ok_or("no NIC has that form: ask for rings of a power of two of bytes")?;
        self.become_client()?;
        let Access { nic, cpu } = self.open(config).inspect_err(|_| self.count_stranger())?;
        let Limits { each, pairs, .. } = self.shared.limits;
        let quotas = [Quota::new(each, "of one program"), Arc::clone(&self.shared.quota)];
        self.serving = Some(Serving::new(nic, ClientId(self.number), pairs, quotas));
        Ok((Reply::Welcome(cpu as u64), None))
    }

    /// It takes the place of a program, if there is one.
    fn become_client(&self) -> Result<(), String> {
        let mut clients = self.shared.clients();
        if clients.taken() >= MAX_CLIENTS {
            clients.evict_overdue(self.shared.limits.timeout);
        }
        let taken = clients.taken();
        if taken >= MAX_CLIENTS {
            return Err(format!("it serves {taken} programs and takes no more; end one"));
        }
        if let Some(one) = clients.connected.get_mut(&self.number) {
            (one.is_program, one.bare) = (true, Some(Instant::now()));
        }
        Ok(())
    }

    /// The NIC, which programs that attached nothing in time do not keep from having this form.
    fn open(&self, config: InterfaceConfig) -> Result<Access, String> {
        let open = &self.shared.open;
        let refused = match open(config) {
            Ok(access) => return Ok(access),
            Err(why) => why,
        };
        let timeout = self.shared.limits.timeout;
        let mut clients = self.shared.clients();
        if clients.evict_overdue(timeout) == 0 {
            return Err(refused);
        }
        let are_there = |clients: &mut Clients| clients.connected.values().any(|one| one.evicted);
        drop(self.shared.gone.wait_timeout_while(clients, timeout, are_there));
        open(config)
    }

    fn count_stranger(&self) {
        if let Some(one) = self.shared.clients().connected.get_mut(&self.number) {
            (one.is_program, one.bare) = (false, None);
        }
    }

    fn is_evicted(&self) -> bool {
        self.shared.clients().connected.get(&self.number).is_some_and(|one| one.evicted)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        if self.ready {
            let mut clients = self.shared.clients();
            clients.ready = clients.ready.saturating_sub(1);
        }
    }
}
