//! The lab's hand on a worker: a pipe to a process that dies with the lab.

use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::message::{Answer, Answered, Hello, Outbox, Request, receive};
use crate::worker::WORKER;

/// What a worker's pipe gave.
pub(super) enum Heard {
    Answer(Answer),
    Nonsense(String),
    Gone,
}

/// A worker's answer with the hand that heard it.
pub(super) struct Said {
    pub(super) hand: u64,
    pub(super) heard: Heard,
}

/// A worker under way.
pub(super) struct Hand {
    pub(super) number: u64,
    pub(super) hello: Hello,
    child: Child,
    input: Option<Outbox>,
    /// The id of its environment.
    environment: String,
}

/// How long a worker may take to say hello.
const HELLO: Duration = Duration::from_secs(20);
/// How long a worker may take to end with what it started.
const GRACE: Duration = Duration::from_secs(3);

impl Hand {
    /// Starts a worker on this host and waits for its hello.
    pub(super) fn start(number: u64, said: SyncSender<Said>) -> Result<Self, String> {
        let mut command = Command::new("/proc/self/exe");
        command.args(WORKER).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own: Ctrl-C is the lab's to handle.
        // It sees by its closed input when the lab dies, and then ends all that it started.
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no pipes".into());
        };
        let (hello_sender, hello) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let first = receive(&mut output).and_then(|first| first.ok_or("it ended".into()));
            let ended = first.is_err();
            if hello_sender.send(first).is_err() || ended {
                return;
            }
            while let Some(answer) = receive(&mut output).transpose() {
                // Behind nonsense nothing can be trusted, and a line may have no end.
                let last = answer.is_err();
                let heard = answer.map_or_else(Heard::Nonsense, Heard::Answer);
                if said.send(Said { hand: number, heard }).is_err() || last {
                    return;
                }
            }
            let _ = said.send(Said { hand: number, heard: Heard::Gone });
        });
        match hello.recv_timeout(HELLO) {
            Ok(Ok(Answer::Hello(hello))) => {
                let (environment, input) = (hello.environment.id(), Some(Outbox::new(input)));
                Ok(Self { number, hello: *hello, child, input, environment })
            }
            Ok(Ok(_)) => Err("it did not say hello".into()),
            Ok(Err(nonsense)) => Err(nonsense),
            Err(_) => Err("it said nothing for 20 s".into()),
        }
    }

    /// Says something; a worker that is gone is seen by its closed output.
    ///
    /// # Errors
    /// One line, where it is too long or the worker reads nothing.
    pub(super) fn tell(&mut self, request: &Request) -> Result<(), String> {
        self.input.as_ref().map_or(Ok(()), |input| input.tell(request))
    }

    /// The id of the environment in which it started.
    pub(super) fn environment(&self) -> &str {
        &self.environment
    }

    /// Whether a sample is of the host and environment that the worker named at first.
    ///
    /// # Errors
    /// One line: what it says instead.
    pub(super) fn is_own(&self, answered: &Answered) -> Result<(), String> {
        let (sample, own) = (&answered.sample, &self.hello.environment.hostname);
        if sample.host == *own && sample.environment == self.environment {
            return Ok(());
        }
        let (host, environment) = (&sample.host, &sample.environment);
        Err(format!("it answered for {host} {environment} where it is {own} {}", self.environment))
    }

    /// Lets the worker end by itself, then ends it.
    pub(super) fn end(&mut self) {
        self.input = None;
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill();
    }

    /// Kills the worker.
    pub(super) fn kill(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it was ended or killed.
    pub(super) fn is_gone(&self) -> bool {
        self.input.is_none()
    }

    /// The worker's process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.end();
    }
}
