//! The server of a NIC: one thread per connection.

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
use super::client_resources::ClientResources;
use super::fds::Timeout;
use super::limits::{Limits, Quota};
use super::message::{Reply, Request, VERSION};
use super::socket_path::{ServerError, SocketPath};

/// Maximum number of clients.
pub(crate) const MAX_CLIENTS: usize = 64;
/// Maximum number of connections without a hello; one more ends the oldest.
pub(crate) const MAX_STRANGERS: usize = 64;
/// Maximum number of threads: for clients, for connections without a hello, and for connections about to end.
const MAX_THREADS: usize = MAX_CLIENTS + 2 * MAX_STRANGERS;
/// Wait after a connection that could not be accepted, usually for lack of a file descriptor.
const RETRY: Duration = Duration::from_millis(20);
/// Time limit for connections' threads to end with the server. Closing a descriptor that a client sent may block.
const END: Duration = Duration::from_secs(5);

/// A server that gives other processes access to a NIC until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listener: UnixListener,
    // Dropped last, when no connection is served any more.
    _path: SocketPath,
    thread: Option<JoinHandle<()>>,
}

/// Returns access to a NIC with a given configuration, or why there is none.
type Open = dyn Fn(InterfaceConfig) -> Result<Access, String> + Send + Sync;

struct Shared {
    open: Box<Open>,
    limits: Limits,
    /// Memory of all clients.
    quota: Arc<Quota>,
    clients: Mutex<Clients>,
    /// Notified when a connection ends.
    gone: Condvar,
}

#[derive(Default)]
struct Clients {
    next: u32,
    ready: usize,
    closed: bool,
    connected: BTreeMap<u32, Connected>,
}

/// A connection, of a client or without a hello so far.
struct Connected {
    socket: Arc<UnixStream>,
    /// Number of connections before this one.
    age: u64,
    is_client: bool,
    /// Since when a client has no resources of the NIC; `None` while it has some.
    idle_since: Option<Instant>,
    /// Whether the connection was evicted for another client.
    evicted: bool,
}

impl Connected {
    /// Returns whether this is a client that had enough time to allocate something.
    fn is_overdue(&self, timeout: Duration) -> bool {
        let overdue = self.idle_since.is_some_and(|since| since.elapsed() >= timeout);
        self.is_client && overdue
    }

    /// Evicts the connection, whose thread then sends the reason and ends.
    fn evict(&mut self) {
        (self.is_client, self.evicted) = (false, true);
        let _ = self.socket.shutdown(Shutdown::Read);
    }
}

impl Server {
    /// Listens at a path. Calls `open` for access to the NIC whenever a client requests a configuration.
    ///
    /// # Errors
    /// Returns an error if the path is in use or cannot be listened at.
    pub fn open(
        path: &Path,
        limits: Limits,
        open: impl Fn(InterfaceConfig) -> Result<Access, String> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let failed = |why| ServerError::System(path.to_path_buf(), why);
        let (listener, socket_path) = SocketPath::listen(path)?;
        let quota = Quota::new(limits.all, "for all programs");
        let (clients, gone) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { open: Box::new(open), limits, quota, clients, gone });
        let (accepting, all) = (listener.try_clone().map_err(failed)?, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("nic-server".into())
            .spawn(move || accept(&accepting, &all))
            .map_err(failed)?;
        Ok(Self { shared, listener, _path: socket_path, thread: Some(thread) })
    }

    /// Returns the number of connected clients that are ready to receive packets.
    pub fn ready(&self) -> usize {
        self.shared.clients().ready
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.clients().closed = true;
        // SAFETY: the descriptor is the listener's; this wakes the accepting thread.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let clients = self.shared.clients();
        for one in clients.connected.values() {
            let _ = one.socket.shutdown(Shutdown::Both);
        }
        let has_connections = |clients: &mut Clients| !clients.connected.is_empty();
        let _gone = self.shared.gone.wait_timeout_while(clients, END, has_connections);
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

/// Serves a connection, or sends why it cannot be served.
fn begin(socket: UnixStream, age: u64, shared: &Arc<Shared>) {
    let socket = Arc::new(socket);
    if let Err(why) = admit(&socket, age, shared) {
        // Does not block: the socket's buffer is empty.
        let _ = Reply::Refused(why).send(&socket, None::<OwnedFd>, shared.limits.timeout);
    }
}

fn admit(socket: &Arc<UnixStream>, age: u64, shared: &Arc<Shared>) -> Result<(), String> {
    let mut clients = shared.clients();
    if clients.connected.len() >= MAX_THREADS {
        return Err("too many connections; try again".into());
    }
    let strangers = || clients.connected.values().filter(|one| !one.is_client);
    let oldest = strangers().min_by_key(|one| one.age);
    if let Some(oldest) = oldest.filter(|_| strangers().count() >= MAX_STRANGERS) {
        // Its thread sends the reason and ends.
        let _ = oldest.socket.shutdown(Shutdown::Read);
    }
    let number = clients.unused();
    let (all, served) = (Arc::clone(shared), Arc::clone(socket));
    let serve = move || {
        // Dropped last, also after a panic.
        let _guard = ConnectionGuard { shared: &all, number };
        Session { shared: &all, number, resources: None, ready: false }.serve(&served);
    };
    let socket = Arc::clone(socket);
    let connected = Connected { socket, age, is_client: false, idle_since: None, evicted: false };
    clients.connected.insert(number, connected);
    let thread = std::thread::Builder::new().name("nic-connection".into()).spawn(serve);
    if let Err(why) = thread {
        clients.connected.remove(&number);
        return Err(format!("no thread for another program ({why}); end one of them"));
    }
    Ok(())
}

/// Removes a connection from the table when its thread ends.
struct ConnectionGuard<'a> {
    shared: &'a Shared,
    number: u32,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.shared.clients().connected.remove(&self.number);
        self.shared.gone.notify_all();
    }
}

impl Clients {
    /// Returns an unused client number. 0 is the NIC's own process, and the last number means no client.
    fn unused(&mut self) -> u32 {
        loop {
            self.next = (self.next % (u32::MAX - 1)).saturating_add(1);
            if !self.connected.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Returns the number of clients.
    fn taken(&self) -> usize {
        self.connected.values().filter(|one| one.is_client).count()
    }

    /// Evicts clients that allocated nothing in time. Returns their number.
    fn evict_overdue(&mut self, timeout: Duration) -> usize {
        let overdue = self.connected.values_mut().filter(|one| one.is_overdue(timeout));
        overdue.map(Connected::evict).count()
    }

    /// Records whether a client has resources of the NIC.
    fn note(&mut self, number: u32, is_idle: bool) {
        if let Some(one) = self.connected.get_mut(&number)
            && one.idle_since.is_some() != is_idle
        {
            one.idle_since = is_idle.then(Instant::now);
        }
    }
}

/// The thread of one connection.
struct Session<'a> {
    shared: &'a Shared,
    number: u32,
    resources: Option<ClientResources>,
    ready: bool,
}

impl Session<'_> {
    /// Serves requests until the client disconnects, sends an invalid message, or times out.
    fn serve(&mut self, socket: &UnixStream) {
        let within = self.shared.limits.timeout;
        let hello = Timeout::within(within);
        loop {
            let is_client = self.resources.is_some();
            let timeout = if is_client { Timeout::at_any_time(within) } else { hello };
            let answer = match Request::receive(socket, timeout) {
                Ok(Some((request, fd))) => self.answer(request, fd),
                Ok(None) | Err(_) if !is_client => {
                    let why = "no hello in time; start the program again";
                    let _ = Reply::Refused(why.into()).send(socket, None::<OwnedFd>, within);
                    return;
                }
                Err(why) if why.kind() == io::ErrorKind::TimedOut => {
                    let why = "incomplete message; start the program again";
                    let _ = Reply::Refused(why.into()).send(socket, None::<OwnedFd>, within);
                    return;
                }
                Ok(None) | Err(_) => {
                    if self.is_evicted() {
                        let why = "no device was created in time and another program needed the \
                                   slot; restart the program";
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
        match (&mut self.resources, request) {
            (None, Request::Hello(version, config)) => self.hello(version, config),
            (None, _) => Err("no hello; start the program from the same tollgate".into()),
            (Some(resources), request) => {
                let answer = resources.answer(request, fd);
                let is_idle = resources.is_idle();
                self.shared.clients().note(self.number, is_idle);
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
                "the NIC has version {VERSION} and the program version {version}; start both from the \
                 same tollgate"
            ));
        }
        let config = config
            .ok_or("no NIC can have that configuration; use rings of a power of two of bytes")?;
        self.become_client()?;
        let Access { nic, cpu } = self.open(config).inspect_err(|_| self.become_stranger())?;
        let Limits { each, pairs, .. } = self.shared.limits;
        let quotas = [Quota::new(each, "for one program"), Arc::clone(&self.shared.quota)];
        self.resources = Some(ClientResources::new(nic, ClientId(self.number), pairs, quotas));
        Ok((Reply::Welcome(cpu as u64), None))
    }

    /// Counts the connection as a client, if there is space.
    fn become_client(&self) -> Result<(), String> {
        let mut clients = self.shared.clients();
        if clients.taken() >= MAX_CLIENTS {
            clients.evict_overdue(self.shared.limits.timeout);
        }
        let taken = clients.taken();
        if taken >= MAX_CLIENTS {
            return Err(format!("the limit is {taken} programs; end one"));
        }
        if let Some(one) = clients.connected.get_mut(&self.number) {
            (one.is_client, one.idle_since) = (true, Some(Instant::now()));
        }
        Ok(())
    }

    /// Returns access to the NIC. Clients that allocated nothing in time do not keep it from taking a configuration.
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
        let has_evicted = |clients: &mut Clients| clients.connected.values().any(|one| one.evicted);
        drop(self.shared.gone.wait_timeout_while(clients, timeout, has_evicted));
        open(config)
    }

    fn become_stranger(&self) {
        if let Some(one) = self.shared.clients().connected.get_mut(&self.number) {
            (one.is_client, one.idle_since) = (false, None);
        }
    }

    fn is_evicted(&self) -> bool {
        self.shared.clients().connected.get(&self.number).is_some_and(|one| one.evicted)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.ready {
            let mut clients = self.shared.clients();
            clients.ready = clients.ready.saturating_sub(1);
        }
    }
}
