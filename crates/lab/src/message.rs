//! What lab, worker and probe say to each other: JSON lines.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artefact::Artefacts;
use crate::plan::Item;
use crate::point::Point;
use crate::sample::{Failure, Sample};

/// What a worker is asked to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Tells answers apart.
    pub id: u64,
    /// The suite that measures.
    pub suite: String,
    /// The experiment's name without its suite.
    pub experiment: String,
    /// The suite's experiment whose way of measuring it takes.
    pub measured_as: String,
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
        !self.role.is_empty() || sample.stands()
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
    Sample(Box<Sample>),
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

/// The first line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The program's version.
    pub version: String,
    /// Where it runs.
    pub environment: machine::environment::Environment,
}

/// Writes one message as one line, at once.
///
/// # Errors
/// When the other side is gone.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; nothing at the end of the stream.
///
/// # Errors
/// With the beginning of the line, when it is not a message.
pub fn receive<T: for<'de> Deserialize<'de>>(from: &mut impl BufRead) -> Result<Option<T>, String> {
    let mut line = String::new();
    match from.read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => parse(&line).map(Some),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a message from its line.
///
/// # Errors
/// With the beginning of the line, when it is not a message.
pub fn parse<T: for<'de> Deserialize<'de>>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|_| {
        let start: String = line.trim_end().chars().take(60).collect();
        format!("it wrote '{start}' where an answer was due")
    })
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
