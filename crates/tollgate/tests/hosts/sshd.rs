//! A real SSH server on loopback, with its own keys and configuration, whose hosts run the program under test.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Bench, Started, TIMEOUT};

/// The variable that names a server which is not installed, e.g. unpacked by `scripts/test`.
const SSHD: &str = "TOLLGATE_SSHD";

/// Prepares what the server needs as root, in a mount namespace: its user and its folder, which an installed server has; and
/// a small file system at `$SMALL`. Then becomes the server.
const START: &str = r#"
set -eu
if [ "$(id -u)" = 0 ]; then
    if ! grep -q ^sshd: /etc/passwd; then
        cp /etc/passwd "$FOLDER/passwd"
        echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >> "$FOLDER/passwd"
        mount --bind "$FOLDER/passwd" /etc/passwd
    fi
    if ! [ -d /run/sshd ]; then
        mount -t tmpfs -o mode=755 tmpfs /run
        mkdir -m 755 /run/sshd
    fi
    [ -z "${SMALL:-}" ] || mount -t tmpfs -o size=1m tmpfs "$SMALL"
fi
exec "$SSHD" -D -e -f "$FOLDER/sshd_config"
"#;

/// Differences between servers.
#[derive(Default)]
pub(crate) struct Options<'a> {
    /// The name of its folder in the bench; `None` for `ssh`.
    pub(crate) folder: Option<&'a str>,
    /// Lines of its configuration.
    pub(crate) config: &'a str,
    /// Environment variables of its sessions.
    pub(crate) variables: &'a [(&'a str, &'a str)],
    /// A folder on which a file system of 1 MiB is mounted.
    pub(crate) small: Option<&'a Path>,
    /// A network namespace and the address there.
    pub(crate) namespace: Option<(&'a str, &'a str)>,
}

/// A running server. It is killed when dropped.
pub(crate) struct Sshd {
    folder: PathBuf,
    pub(crate) port: u16,
    server: Started,
}

impl Sshd {
    /// Starts a server in the folder of a bench and writes `tollgate.toml` with the host `dut`; `None`, with a note, if
    /// there is no server.
    pub(crate) fn start(bench: &Bench, test: &str) -> Option<Self> {
        Self::start_with(bench, test, &Options::default())
    }

    pub(crate) fn start_with(bench: &Bench, test: &str, options: &Options) -> Option<Self> {
        let note = |why: &str| machine::untested::note(test, &why);
        let sshd = std::env::var_os(SSHD).map_or_else(|| "/usr/sbin/sshd".into(), PathBuf::from);
        if !sshd.exists() {
            note("no SSH server; scripts/test unpacks one");
            return None;
        }
        let folder = bench.path().join(options.folder.unwrap_or("ssh"));
        fs::create_dir(&folder).unwrap();
        for name in ["host_key", "key"] {
            keygen(&folder.join(name));
        }
        fs::copy(folder.join("key.pub"), folder.join("authorized_keys")).unwrap();
        // Another test may take the port between its choice and the start of the server.
        for _ in 0..5 {
            let port = free_port();
            write_configuration(bench, &folder, port, options);
            let mut server = server(&sshd, &folder, options);
            if is_listening(&mut server, port, options) {
                return Some(Self { folder, port, server });
            }
            let mut errors = String::new();
            let _ = server.stderr.take().unwrap().read_to_string(&mut errors);
            if errors.contains("mount") || errors.contains("unshare") {
                note(&format!("no mount namespace: {errors}"));
                return None;
            }
            assert!(errors.contains("Address already in use"), "{errors}");
        }
        panic!("no free port");
    }

    /// Returns a file of the server or of its clients.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the processes that serve one connection each.
    pub(crate) fn connections(&self) -> Vec<u32> {
        children(self.server.id())
    }

    /// Ends all connections as a break of the network does: without a message to the other side's program.
    pub(crate) fn break_connections(&self) {
        self.connections().iter().for_each(|process| signal(*process, libc::SIGKILL));
    }

    /// Returns the root of the remote cache of programs.
    pub(crate) fn cache(bench: &Bench) -> PathBuf {
        bench.path().join("remote-cache")
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u32, signal: i32) {
    // SAFETY: `kill` takes numbers only; the process is one that this test started.
    unsafe { libc::kill(process.try_into().unwrap(), signal) };
}

/// Returns the children of a process, and theirs.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let list = fs::read_to_string(path).unwrap_or_default();
    let children = list.split_whitespace().map(|word| word.parse().unwrap());
    children.flat_map(|child| [vec![child], children_of(child)].concat()).collect()
}

fn children_of(process: u32) -> Vec<u32> {
    // Only those that are servers: what they started must notice the end by itself.
    let is_server = |child: &u32| {
        let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        name.starts_with("sshd")
    };
    children(process).into_iter().filter(is_server).collect()
}

fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(command.status().unwrap().success());
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn write_configuration(bench: &Bench, folder: &Path, port: u16, options: &Options) {
    let at = folder.display();
    let address = options.namespace.map_or("127.0.0.1", |(_, address)| address);
    let bench_path = bench.path().display();
    let mut variables = format!(
        "TOLLGATE_TEST={bench_path} XDG_CACHE_HOME={} TOLLGATE_LOCK={bench_path}/remote-lock",
        Sshd::cache(bench).display()
    );
    for (name, value) in options.variables {
        variables += &format!(" {name}={value}");
    }
    let config = format!(
        "ListenAddress {address}\nPort {port}\nHostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized_keys\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin yes\nPidFile none\nLogLevel ERROR\nSetEnv {variables}\n{}\n",
        options.config
    );
    fs::write(folder.join("sshd_config"), config).unwrap();
    let client = format!(
        "Host *\n HostName {address}\n Port {port}\n IdentityFile {at}/key\n IdentitiesOnly yes\n\
         \x20UserKnownHostsFile {at}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
    );
    fs::write(folder.join("ssh_config"), client).unwrap();
    let key = fs::read_to_string(folder.join("host_key.pub")).unwrap();
    fs::write(folder.join("known_hosts"), format!("[{address}]:{port} {key}")).unwrap();
    fs::write(bench.path().join("tollgate.toml"), "config = \"ssh/ssh_config\"\n[host.dut]\n")
        .unwrap();
}

fn server(sshd: &Path, folder: &Path, options: &Options) -> Started {
    // SAFETY: `geteuid` has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let namespace = options.namespace.map(|(name, _)| ["ip", "netns", "exec", name]);
    let mut words: Vec<&str> = namespace.iter().flatten().copied().collect();
    if is_root {
        words.extend(["unshare", "--mount", "--propagation", "private"]);
    }
    words.extend(["sh", "-c", START]);
    let mut command = Command::new(words[0]);
    // An unpacked server has its libraries beside it.
    let libraries = sshd.parent().unwrap().join("../lib/x86_64-linux-gnu");
    command.args(&words[1..]).env("SSHD", sshd).env("FOLDER", folder);
    command.env("LD_LIBRARY_PATH", libraries).env("SMALL", options.small.unwrap_or(Path::new("")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Started::new(command)
}

/// Waits until the server listens; returns `false` if it ended.
fn is_listening(server: &mut Started, port: u16, options: &Options) -> bool {
    let start = Instant::now();
    loop {
        if server.try_wait().unwrap().is_some() {
            return false;
        }
        let listens = match options.namespace {
            None => TcpStream::connect(("127.0.0.1", port)).is_ok(),
            Some((name, _)) => {
                let mut list = Command::new("ip");
                list.args(["netns", "exec", name, "ss", "-Hltn", &format!("sport = :{port}")]);
                !list.output().unwrap().stdout.is_empty()
            }
        };
        if listens {
            return true;
        }
        assert!(start.elapsed() < TIMEOUT, "the SSH server does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
