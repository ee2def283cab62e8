//! A Slurm cluster on this machine. Its two nodes are namespaces with their own host names; all of it ends with the test.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use machine::untested;

use crate::harness::{Bench, is_busy};

/// Timeout of what takes seconds on an idle machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);
/// Names of the nodes.
pub(crate) const NODES: [&str; 2] = ["n1", "n2"];

/// A running cluster.
pub(crate) struct Cluster {
    pub(crate) bench: Bench,
    /// Folder of Slurm's packages.
    root: PathBuf,
    control: Vec<Child>,
    nodes: [Option<Child>; 2],
}

/// Returns a cluster; `None`, with a note, if Slurm is not available.
pub(crate) fn start(test: &str) -> Option<Cluster> {
    start_with(test, "")
}

/// Returns a cluster with further lines of its configuration.
pub(crate) fn start_with(test: &str, config: &str) -> Option<Cluster> {
    let Some(root) = std::env::var_os("TOLLGATE_SLURM").map(PathBuf::from) else {
        untested::note(test, &"TOLLGATE_SLURM names no folder with Slurm's packages");
        return None;
    };
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        untested::note(test, &"Slurm's daemons and host names of nodes need root");
        return None;
    }
    let mut cluster =
        Cluster { bench: Bench::new(), root, control: Vec::new(), nodes: [None, None] };
    cluster.configure(config);
    cluster.start_control();
    for node in 0..NODES.len() {
        cluster.start_node(node);
    }
    cluster.wait_for_nodes();
    Some(cluster)
}

/// Returns ports that no program listens on.
fn ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Cluster {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.bench.path().join(name)
    }

    /// Returns the path of a file of the packages.
    fn file(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// Adds what Slurm's programs need to the environment of a command.
    fn with_slurm<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        let path = format!("{}:{}", self.file("usr/bin"), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("SLURM_CONF", self.path("slurm.conf")).env(
            "LD_LIBRARY_PATH",
            format!("{}:{}", libraries.display(), libraries.join("slurm-wlm").display()),
        )
    }

    /// Returns a command of tollgate that finds the cluster.
    pub(crate) fn tollgate(&self, arguments: &[&str]) -> Command {
        let mut command = self.bench.command(arguments);
        self.with_slurm(&mut command);
        command
    }

    /// Runs a command of Slurm and returns what it printed.
    #[track_caller]
    pub(crate) fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(self.root.join("usr/bin").join(program));
        let output = self.with_slurm(&mut command).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn configure(&self, more: &str) {
        let folder = self.bench.path().display();
        fs::create_dir(self.path("state")).unwrap();
        let mut key = fs::OpenOptions::new();
        let mut key = key.write(true).create_new(true).mode(0o600).open(self.path("key")).unwrap();
        key.write_all(&rand::random::<[u8; 32]>().repeat(4)).unwrap();
        for name in ["lock", "n1.lock", "n2.lock"] {
            fs::write(self.path(name), "").unwrap();
        }
        let [control, first, second] = ports();
        let plugins = self.file("usr/lib/x86_64-linux-gnu/slurm-wlm");
        let text = format!(
            "ClusterName=test\nSlurmctldHost=ctl(127.0.0.1)\nSlurmctldPort={control}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=cred_expire=5,socket={folder}/munge.socket\n\
             PluginDir={plugins}\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/%n\n\
             SlurmctldPidFile={folder}/ctl.pid\nSlurmdPidFile={folder}/%n.pid\nSlurmctldLogFile={folder}/ctl.log\n\
             SlurmdLogFile={folder}/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             MpiDefault=none\nReturnToService=2\nSlurmdTimeout=6\nMaxArraySize=10\n\
             SchedulerParameters=sched_interval=2\n\
             NodeName=n1 NodeHostname=n1 NodeAddr=127.0.0.1 Port={first} CPUs=2\n\
             NodeName=n2 NodeHostname=n2 NodeAddr=127.0.0.1 Port={second} CPUs=2\n\
             PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n\
             PartitionName=one Nodes=n2 MaxTime=INFINITE State=UP\n{more}"
        );
        fs::write(self.path("slurm.conf"), text).unwrap();
    }

    fn start_control(&mut self) {
        let folder = self.bench.path().display().to_string();
        let mut munged = Command::new(self.file("usr/sbin/munged"));
        let at = |name: &str| format!("{folder}/{name}");
        munged.args(["--foreground", "--force"]).args([
            format!("--key-file={}", at("key")),
            format!("--socket={}", at("munge.socket")),
            format!("--pid-file={}", at("munge.pid")),
            format!("--log-file={}", at("munge.log")),
            format!("--seed-file={}", at("munge.seed")),
        ]);
        self.spawn_control(munged);
        let socket = self.path("munge.socket");
        wait_for("munge's socket", || socket.exists());
        let control = self.in_namespace(
            "ctl",
            "exec \"$@\"",
            &[&self.file("usr/sbin/slurmctld-wlm"), "-D", "-c"],
        );
        self.spawn_control(control);
    }

    fn spawn_control(&mut self, mut command: Command) {
        self.with_slurm(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.control.push(command.spawn().unwrap());
    }

    /// Returns a command that executes a script, with arguments, under a host name and in its own view of files. Its
    /// first process ends all others of it.
    fn in_namespace(&self, host: &str, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args([
                "--uts",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--propagation",
                "private",
            ])
            .args(["sh", "-euc", &format!("hostname {host}; {script}"), "sh"])
            .args(arguments);
        command
    }

    /// Starts a node, as a boot does.
    pub(crate) fn start_node(&mut self, node: usize) {
        let name = NODES[node];
        // As after a boot: its spool is in memory.
        let _ = fs::remove_dir_all(self.path(name));
        fs::create_dir(self.path(name)).unwrap();
        let (own, shared) = (self.path(&format!("{name}.lock")), self.path("lock"));
        // Both are one machine, of which only one run has the lock.
        let script = format!(
            "mount --bind '{}' '{}'; mount -t proc proc /proc; exec \"$@\"",
            own.display(),
            shared.display()
        );
        let mut command = self.in_namespace(
            name,
            &script,
            &[
                &self.file("usr/sbin/slurmd-wlm"),
                "-D",
                "-d",
                &self.file("usr/sbin/slurmstepd-wlm"),
                "-N",
                name,
            ],
        );
        self.with_slurm(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.nodes[node] = Some(command.spawn().unwrap());
    }

    /// Ends every process of a node at once, as a power failure does.
    pub(crate) fn kill_node(&mut self, node: usize) {
        kill(self.nodes[node].take().as_mut());
    }

    /// Waits until all nodes can run jobs.
    pub(crate) fn wait_for_nodes(&self) {
        wait_for("the nodes", || {
            let mut sinfo = Command::new(self.root.join("usr/bin/sinfo"));
            let output =
                self.with_slurm(&mut sinfo).args(["-h", "-N", "-p", "all", "-o", "%T"]).output();
            let text = String::from_utf8(output.unwrap().stdout).unwrap();
            text.lines().count() == 2 && text.lines().all(|state| state == "idle")
        });
    }

    /// Returns a field of each task of a job.
    pub(crate) fn field(&self, job: &str, name: &str) -> Vec<String> {
        let text = self.slurm("scontrol", &["show", "job", "--oneliner", job]);
        let value = |line: &str| {
            let mut words = line.split_whitespace();
            let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().to_owned()
        };
        text.lines().map(value).collect()
    }

    /// Waits until all tasks of a job have ended: with success, or because the machine was too busy for some points.
    #[track_caller]
    pub(crate) fn wait_for_end(&self, job: &str) {
        let start = Instant::now();
        loop {
            let states = self.field(job, "JobState");
            if !states.is_empty() && states.iter().all(|one| one == "COMPLETED") {
                return;
            }
            if states.iter().all(|one| one == "COMPLETED" || one == "FAILED") && self.is_busy() {
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "job {job}: {states:?}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns whether the only failures of the nodes are points that are void in every round.
    pub(crate) fn is_busy(&self) -> bool {
        let runs = NODES.iter().flat_map(|node| runs(&self.path("results"), node));
        let has_failed = |run: &PathBuf| {
            let samples = lab::journal::open(run).unwrap().samples;
            samples.iter().any(|sample| sample.error.is_some())
        };
        let failed: Vec<PathBuf> = runs.filter(has_failed).collect();
        !failed.is_empty() && failed.iter().all(|run| is_busy(run))
    }

    /// Returns the logs of jobs and daemons.
    pub(crate) fn logs(&self) -> String {
        let of_jobs = fs::read_dir(self.path("results/slurm")).into_iter().flatten().flatten();
        let daemons = ["ctl.log", "n1.log", "n2.log"].map(|name| self.path(name));
        let files = of_jobs.map(|entry| entry.path()).chain(daemons);
        let read = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let tail: Vec<_> = text.lines().rev().take(15).collect();
            let tail: String = tail.into_iter().rev().map(|line| format!("{line}\n")).collect();
            format!("{}:\n{tail}", path.display())
        };
        files.map(read).collect()
    }

    /// Returns the ID of the job that a command has submitted, from what it printed.
    #[track_caller]
    pub(crate) fn job_of(printed: &str) -> String {
        let id = printed.lines().find_map(|line| line.strip_prefix("job ")?.split(':').next());
        id.unwrap_or_else(|| panic!("no job: {printed}")).to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(|node| kill(node.as_mut()));
        self.control.iter_mut().rev().for_each(|child| kill(Some(child)));
    }
}

fn kill(child: Option<&mut Child>) {
    if let Some(child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Waits until something is true.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the runs of a node.
pub(crate) fn runs(results: &Path, node: &str) -> Vec<PathBuf> {
    lab::journal::runs(&results.join(node)).unwrap()
}
