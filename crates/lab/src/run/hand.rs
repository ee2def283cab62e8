//! The lab's hand on a worker: a pipe to a process that dies with the lab.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::message::{Answer, Hello, Request, parse, send};
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
    input: Option<ChildStdin>,
}

/// How long a worker may take to say hello.
const HELLO: Duration = Duration::from_secs(20);
/// How long a worker may take to end with what it started.
const GRACE: Duration = Duration::from_secs(3);

impl Hand {
    /// Starts a worker on this host and waits for its hello.
    pub(super) fn start(number: u64, said: Sender<Said>) -> Result<Self, String> {
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
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            if hello_sender.send(parse(&first)).is_err() {
                return;
            }
            for line in lines {
                let heard = parse(&line).map_or_else(Heard::Nonsense, Heard::Answer);
                if said.send(Said { hand: number, heard }).is_err() {
                    return;
                }
            }
            let _ = said.send(Said { hand: number, heard: Heard::Gone });
        });
        match hello.recv_timeout(HELLO) {
            Ok(Ok(Answer::Hello(hello))) => {
                Ok(Self { number, hello: *hello, child, input: Some(input) })
            }
            Ok(Ok(_)) => Err("it did not say hello".into()),
            Ok(Err(nonsense)) => Err(nonsense),
            Err(_) => Err("it said nothing for 20 s".into()),
        }
    }

    /// Says something; a worker that is gone is seen by its closed output.
    pub(super) fn tell(&mut self, request: &Request) {
        if let Some(input) = &mut self.input {
            let _ = send(input, request);
        }
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
        let _ = self.child.kill();
        let _ = self.child.wait();
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
