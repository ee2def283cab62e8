//! A running testpmd.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::sample::Failure;
use machine::child::Console;
use machine::pin::spawn_pinned;
use machine::tsc::TickRate;
use tempfile::TempDir;

use super::statistics::{ForwardStats, TestpmdStats};
use super::waiting::Workers;
use super::{DpdkParams, Forward, TESTPMD, Virtqueue};
use crate::nic::Pages;
use crate::nic::vhost::{VhostControl, VhostServer};
use crate::suite::testbed_config::TestbedConfig;

/// What testpmd prints when it waits for a command.
const PROMPT: &str = "testpmd> ";
/// Time limit of its start: it allocates and clears its memory.
const START: Duration = Duration::from_secs(60);
/// Time limit of a command, for which testpmd's main thread shares a CPU with the thread that forwards.
const COMMAND: Duration = Duration::from_secs(10);
/// Interval at which the rings are awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A socket at which one testpmd attaches to a NIC. Its folder belongs to this user only.
pub(in crate::suite) struct Socket {
    server: VhostServer,
    control: VhostControl,
    folder: TempDir,
}

impl Socket {
    /// Listens for a program with `queues` queues.
    ///
    /// # Errors
    /// Returns `failed` if no socket can be created.
    pub(in crate::suite) fn listen(queues: u32, control: VhostControl) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::failed(format!("vhost-user: {why}"));
        let folder = tempfile::Builder::new().prefix("tollgate-dpdk-").tempdir();
        let folder = folder.map_err(|why| failed(&why))?;
        let server = VhostServer::open(&folder.path().join("nic"), queues, control.clone());
        Ok(Self { server: server.map_err(|why| failed(&why))?, control, folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nic")
    }
}

/// A testpmd that forwards packets. Dropping it kills it.
pub(in crate::suite) struct Testpmd {
    // Dropped in this order: the program before the end of its connection.
    console: Console,
    _server: VhostServer,
    workers: Workers,
    /// What [`Workers::waited`] was when the statistics were set to zero.
    waited: Option<Duration>,
    /// Clock of the first application core, in Hz, before testpmd started there.
    core_hertz: f64,
    /// Number of cores that forward.
    cores: usize,
    /// Maximum number of packets that it takes at a time.
    burst: u32,
}

impl Testpmd {
    /// Starts testpmd on the application's CPUs, and waits until it forwards.
    ///
    /// # Errors
    /// Returns `unavailable` if it is not installed, and otherwise why it does not forward, with its last line.
    pub(in crate::suite) fn start(
        config: &TestbedConfig,
        pages: Pages,
        cpus: &[usize],
        socket: Socket,
    ) -> Result<Self, Failure> {
        let core_hertz = clock_of(*cpus.first().unwrap_or(&0))?;
        let mut command = Command::new(TESTPMD.find()?);
        command.args(arguments(config, pages, cpus, &socket.path()));
        // Where DPDK creates a folder, which it does not remove.
        command.env("RUNTIME_DIRECTORY", socket.folder.path());
        let failed = |why: &dyn std::fmt::Display| Failure::failed(format!("testpmd {why}"));
        let mut console = Console::start(&mut command)
            .map_err(|why| failed(&format!("does not start: {why}")))?;
        console.read_until(PROMPT, START).map_err(|why| failed(&why))?;
        let Socket { server, control, folder } = socket;
        let workers = Workers::of(console.id());
        let mut testpmd = Self {
            console,
            _server: server,
            workers,
            waited: None,
            core_hertz,
            cores: config.cores,
            burst: config.burst,
        };
        testpmd.await_rings(&control, config.pipes.saturating_mul(2))?;
        // From here on nothing is left behind, however this process ends. The socket's lock is in the folder too.
        folder.close().map_err(|why| failed(&format!("leaves its folder: {why}")))?;
        testpmd.command("start")?;
        Ok(testpmd)
    }

    /// Waits until the NIC serves all rings.
    fn await_rings(&mut self, control: &VhostControl, rings: u32) -> Result<(), Failure> {
        let start = Instant::now();
        while control.started() < rings {
            if start.elapsed() > START {
                let has = control.started();
                return Err(Failure::failed(format!("testpmd starts {has} of {rings} rings")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sets its statistics to zero.
    ///
    /// # Errors
    /// Returns `failed` if it has ended or does not answer.
    pub(in crate::suite) fn clear(&mut self) -> Result<(), Failure> {
        self.command("clear fwd stats all")?;
        // The thread that reads commands has had the CPU of one that forwards.
        std::thread::sleep(POLL_INTERVAL);
        self.waited = self.workers.waited();
        Ok(())
    }

    /// Returns its statistics since they were last set to zero.
    ///
    /// # Errors
    /// Returns `failed` if it has ended, does not answer, or prints something else.
    pub(in crate::suite) fn stats(&mut self, rate: TickRate) -> Result<TestpmdStats, Failure> {
        let (before, now) = (self.waited, self.workers.waited());
        let waited = now.zip(before).map(|(now, before)| rate.ticks(now.saturating_sub(before)));
        let text = self.command("show fwd stats all")?;
        let forward = ForwardStats::parse(&text, self.burst).ok_or_else(|| {
            Failure::failed("testpmd's statistics have another form than those of DPDK 22.11")
        })?;
        let Self { cores, core_hertz, .. } = *self;
        Ok(TestpmdStats { forward, waited, cores, core_hertz })
    }

    fn command(&mut self, line: &str) -> Result<String, Failure> {
        let answer = self.console.send(line);
        let answer = answer.and_then(|()| self.console.read_until(PROMPT, COMMAND));
        answer.map_err(|why| {
            let has_ended = why.kind() == ErrorKind::BrokenPipe;
            let why = if has_ended { "has ended".into() } else { why.to_string() };
            Failure::failed(format!("testpmd {why}"))
        })
    }
}

/// Returns the clock of a CPU, in Hz.
fn clock_of(cpu: usize) -> Result<f64, Failure> {
    let thread = spawn_pinned(cpu, machine::core_clock::hertz)
        .map_err(|why| Failure::failed(format!("run on CPU {cpu}: {why}; name an allowed CPU")))?;
    let hertz = thread.join().map_err(|_| Failure::failed("the clock's thread panicked"))?;
    Ok(hertz?)
}

/// Returns the number of used buffers from which testpmd refills a receive ring. Its vectorised driver refills this number per
/// burst, by default 32, so longer bursts would empty the ring.
fn refill(burst: u32, depth: u32) -> u32 {
    // A multiple of 4, as the driver requires, and less than the ring.
    burst.max(32).min(depth / 2).next_multiple_of(4).max(4)
}

/// Returns testpmd's arguments: those of DPDK's environment, and those of the program.
fn arguments(config: &TestbedConfig, pages: Pages, cpus: &[usize], socket: &Path) -> Vec<String> {
    let (params, queues, depth) = (&config.dpdk, config.pipes, config.depth);
    // Core 0 reads commands; it sleeps while packets are forwarded.
    let main = cpus.first().into_iter().map(|cpu| format!("0@{cpu}"));
    let forwarding = (1_usize..).zip(cpus).map(|(core, cpu)| format!("{core}@{cpu}"));
    let cores: Vec<String> = main.chain(forwarding).collect();
    let ring = match params.virtqueue {
        Virtqueue::PackedVectorised => ",packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1",
        Virtqueue::Packed => ",packed_vq=1,mrg_rxbuf=0,in_order=1",
        Virtqueue::Split => ",mrg_rxbuf=0,in_order=1",
        Virtqueue::Default => "",
    };
    let mut all: Vec<String> = vec!["--lcores".into(), cores.join(",")];
    match pages {
        Pages::Huge => all.extend(["--in-memory", "--single-file-segments"].map(String::from)),
        Pages::Small => all.extend(["--no-huge", "--no-shconf"].map(String::from)),
    }
    all.extend(["-m".into(), DpdkParams::mebibytes(config).to_string()]);
    all.extend(["--no-pci", "--no-telemetry", "--force-max-simd-bitwidth=512"].map(String::from));
    let path = socket.display();
    all.push(format!(
        "--vdev=net_virtio_user0,path={path},queues={queues},queue_size={depth}{ring}"
    ));
    all.push("--".into());
    let forward = match params.forward {
        Forward::Macswap => "macswap",
        Forward::Io => "io",
    };
    all.extend([
        "--interactive".into(),
        format!("--total-num-mbufs={}", DpdkParams::buffers(config)),
        format!("--forward-mode={forward}"),
        format!("--burst={}", config.burst),
        format!("--rxfreet={}", refill(config.burst, depth)),
        format!("--rxd={depth}"),
        format!("--txd={depth}"),
        format!("--rxq={queues}"),
        format!("--txq={queues}"),
        format!("--nb-cores={}", config.cores),
        // One port, which sends what it receives.
        "--port-topology=loop".into(),
        "--record-core-cycles".into(),
        "--record-burst-stats".into(),
        // Without this, `start` discards packets that have already arrived.
        "--no-flush-rx".into(),
    ]);
    all
}
