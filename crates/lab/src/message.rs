//! What lab, worker and probe say to each other: JSON lines.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artefact::Artefacts;
use crate::plan::Item;
use crate::point::Point;
use crate::sample::{Failure, Sample};
use crate::terminal::one_line;

/// What a worker is asked to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Tells answers apart.
    pub id: u64,
    /// The suite that measures.
    pub suite: String,
    /// The experiment's name without its suite.
    pub experiment: String,
    /// The suite's method by which the points are measured.
    pub method: String,
    /// The round.
    pub round: u32,
    /// The points, in the order in which they are measured.
    pub points: Vec<Ordered>,
    /// Time measured in each sample.
    pub budget: Duration,
    /// The role that the worker plays; empty where there are none.
    pub role: String,
    /// The number of the first try, from 1.
    pub attempt: u32,
    /// The run's seed.
    pub seed: u64,
    /// What the person allowed or set by name.
    pub options: BTreeMap<String, String>,
    /// What the worker adds about its host.
    #[serde(default)]
    pub host: HostData,
    /// Whether the worker runs inside the guest that the points ask for.
    #[serde(default)]
    pub inside: bool,
}

impl Order {
    /// Whether a sample is the last of its point. A void one is tried again; roles must try again
    /// together, which the lab sees to.
    pub fn is_last(&self, sample: &Sample) -> bool {
        !self.role.is_empty() || sample.is_final()
    }
}

/// What a worker knows of its host, so that no probe has to find it out again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostData {
    /// Where prepared artefacts lie, or why they could not be made.
    pub artefacts: Artefacts,
    /// The time-stamp counter, where it can be used.
    pub tsc: Option<machine::tsc::Tsc>,
}

/// A point in an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ordered {
    /// Its place in the round.
    pub position: u32,
    /// One level for every factor.
    pub point: Point,
    /// The second sample of the same point.
    pub twin: bool,
    /// The process is killed when the sample takes longer.
    pub limit: Duration,
}

impl Ordered {
    /// What is measured.
    pub fn item(&self) -> Item {
        Item { point: self.point.clone(), twin: self.twin }
    }
}

/// What the lab says to a worker, and a worker to a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Measure these points.
    Order(Box<Order>),
    /// All roles are ready.
    Start,
    /// Another role said stop.
    Stop,
}

/// What a worker says to the lab, and a probe to its worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// A worker is there; from a worker that serves already: the guest that it started is there.
    Hello(Box<Hello>),
    /// A sample, or what stands in its place.
    Sample(Box<Answered>),
    /// The host makes an artefact, which may take minutes.
    Preparing {
        /// The artefact's name.
        artefact: String,
    },
    /// The artefacts are there.
    Prepared,
    /// The role is ready.
    Ready,
    /// The role tells the others to stop.
    Stop,
    /// The order is carried out.
    Done {
        /// The order's id.
        id: u64,
    },
}

/// A sample with what it answers, so that no other is taken for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The order's id.
    pub order: u64,
    /// The order's role.
    pub role: String,
    /// The sample.
    pub sample: Sample,
}

/// The first line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The program's version.
    pub version: String,
    /// Where it runs.
    pub environment: machine::environment::Environment,
}

/// Bytes of one line, in either direction. The longest is an order of thousands of points.
pub const MAX_LINE: usize = 4 << 20;
/// Messages that wait for whoever reads them; whoever writes more waits.
pub(crate) const WAITING: usize = 16;

/// Writes one message as one line, at once.
///
/// # Errors
/// When the other side is gone, or the line would be longer than [`MAX_LINE`].
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&line_of(message)?)?;
    to.flush()
}

fn line_of<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > MAX_LINE {
        let why = format!("a message of {} bytes, and {MAX_LINE} can be sent", line.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(line)
}

/// Reads one message; nothing at the end of the stream. After an error the stream is of no more use.
///
/// # Errors
/// With the beginning of the line, when it is not a message or is longer than [`MAX_LINE`].
pub fn receive<T: for<'de> Deserialize<'de>>(from: &mut impl BufRead) -> Result<Option<T>, String> {
    let mut line = Vec::new();
    let limit = MAX_LINE as u64 + 1;
    match io::Read::take(from, limit).read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(_) if line.len() > MAX_LINE => {
            Err(format!("it wrote a line of over {MAX_LINE} bytes: '{}...'", start_of(&line)))
        }
        Ok(_) => parse(&line).map(Some),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a message from its line.
///
/// # Errors
/// With the beginning of the line, when it is not a message.
pub fn parse<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Result<T, String> {
    let not_due = |_| format!("it wrote '{}' where an answer was due", start_of(line));
    serde_json::from_slice(line).map_err(not_due)
}

/// The beginning of a line for an error, which is one line itself.
fn start_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(240)]);
    let start: String = text.trim_end().chars().take(60).collect();
    one_line(&start).into_owned()
}

/// Requests on their way to a process, written by a thread of their own: one that reads nothing holds
/// nobody up. Closes its input when dropped.
pub(crate) struct Outbox(SyncSender<Vec<u8>>);

impl Outbox {
    pub(crate) fn new(mut to: impl Write + Send + 'static) -> Self {
        let (sender, lines) = sync_channel::<Vec<u8>>(WAITING);
        std::thread::spawn(move || {
            // One that is gone is seen by its closed output.
            while let Ok(line) = lines.recv()
                && to.write_all(&line).and_then(|()| to.flush()).is_ok()
            {}
        });
        Self(sender)
    }

    /// Has a request sent.
    ///
    /// # Errors
    /// One line, where it is too long or the process has read none of the last. That it is gone is none.
    pub(crate) fn tell(&self, request: &Request) -> Result<(), String> {
        let line = line_of(request).map_err(|why| format!("{why}; lower 'batch'"))?;
        match self.0.try_send(line) {
            Err(TrySendError::Full(_)) => {
                Err(format!("it read none of the last {WAITING} requests"))
            }
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }
}

/// A probe's side of `ready`, `start`, `stop`.
pub struct Rendezvous {
    requests: Receiver<Request>,
    answers: Box<dyn Write>,
    stopped: bool,
}

impl Rendezvous {
    /// Between the requests that come in and the stream that answers go to.
    pub fn new(requests: Receiver<Request>, answers: Box<dyn Write>) -> Self {
        Self { requests, answers, stopped: false }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// When the worker is gone.
    pub fn answer(&mut self, answer: &Answer) -> Result<(), Failure> {
        send(&mut self.answers, answer)
            .map_err(|e| Failure::failed(format!("the worker is gone: {e}")))
    }

    /// Waits for the next request; nothing when the worker is gone.
    pub fn request(&mut self) -> Option<Request> {
        self.requests.recv().ok()
    }

    pub(crate) fn ready(&mut self) -> Result<(), Failure> {
        self.stopped = false;
        self.answer(&Answer::Ready)?;
        match self.requests.recv() {
            Ok(Request::Start) => Ok(()),
            Ok(_) => Err(Failure::failed("another role ended before the start")),
            Err(_) => Err(Failure::failed("the lab is gone")),
        }
    }

    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.answer(&Answer::Stop)
    }

    pub(crate) fn stopped(&mut self) -> bool {
        match self.requests.try_recv() {
            Ok(Request::Stop) | Err(TryRecvError::Disconnected) => self.stopped = true,
            Ok(_) | Err(TryRecvError::Empty) => {}
        }
        self.stopped
    }
}
