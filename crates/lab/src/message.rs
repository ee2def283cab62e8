//! The messages between lab, worker and probe: JSON lines.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use machine::environment::Environment;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::artefact::Artefacts;
use crate::point::Point;
use crate::sample::{Failure, Item, Sample};
use crate::terminal::one_line;
use crate::timed_code::EncodedLoop;

/// A batch of points for a worker to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The id, which the answers repeat.
    pub id: u64,
    /// The suite.
    pub suite: String,
    /// The experiment's name without its suite.
    pub experiment: String,
    /// The method of the suite that measures the points.
    pub method: String,
    /// The round, from 0.
    pub round: u32,
    /// The points, in the order in which they are measured.
    pub points: Vec<OrderedPoint>,
    /// Measured time per sample.
    pub budget: Duration,
    /// The role of the worker; empty if the experiment has no roles.
    pub role: String,
    /// The number of the first attempt, from 1.
    pub attempt: u32,
    /// The run's seed.
    pub seed: u64,
    /// The options that the user enabled or set.
    pub options: BTreeMap<String, String>,
    /// Facts that the worker adds about its host.
    #[serde(default)]
    pub host: HostData,
    /// Whether the worker runs inside the guest of the points.
    #[serde(default)]
    pub inside: bool,
}

impl Order {
    /// Returns whether a sample is the last of its point. A void sample is repeated; the lab repeats those of roles,
    /// because all roles must repeat together.
    pub fn is_last(&self, sample: &Sample) -> bool {
        !self.role.is_empty() || sample.is_final()
    }
}

/// Properties of a host that are determined once for all probes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostData {
    /// The paths of the artefacts that the worker prepared.
    pub artefacts: Artefacts,
    /// The time-stamp counter, if it is usable.
    pub counter: Option<Counter>,
}

/// A calibrated time-stamp counter. Two calibrations differ by about 50 parts per billion, which a comparison of two
/// exact times would show as a difference. Thus all workers in the lab's boot use the lab's calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The ID of the boot in which it was calibrated; empty within a guest.
    pub boot_id: String,
    /// Its properties.
    pub tsc: machine::tsc::Tsc,
}

impl Counter {
    /// Calibrates the counter in a boot; `None` if it is unusable.
    pub fn calibrate(boot_id: String) -> Option<Self> {
        let tsc = *machine::tsc::Tsc::get().ok()?;
        Some(Self { boot_id, tsc })
    }

    /// Returns whether it is valid for processes of a boot.
    pub fn is_of(&self, boot_id: &str) -> bool {
        !boot_id.is_empty() && self.boot_id == boot_id
    }
}

/// A point of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrderedPoint {
    /// The index in the round's order.
    pub position: u32,
    /// One level per factor.
    pub point: Point,
    /// Whether this is the second sample of the point.
    pub twin: bool,
    /// The time limit of a sample, after which the process is killed.
    pub limit: Duration,
}

impl OrderedPoint {
    /// Returns the item of the plan.
    pub fn item(&self) -> Item {
        Item { point: self.point.clone(), twin: self.twin }
    }
}

/// The version of the messages. Raise it with every change of a message, of a sample or of an environment: programs of
/// different builds can measure in one run only if their versions are equal.
pub const PROTOCOL: u64 = 6;

/// The first message of a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Greeting {
    /// The version of the messages that it exchanges; 0 if it states none.
    pub protocol: u64,
    /// Its environment; empty if the version differs from [`PROTOCOL`].
    pub environment: Environment,
}

impl Greeting {
    /// Returns the greeting of a process of this program.
    pub fn of(environment: Environment) -> Self {
        Self { protocol: PROTOCOL, environment }
    }
}

impl<'de> Deserialize<'de> for Greeting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut greeting = serde_json::Value::deserialize(deserializer)?;
        let protocol = greeting.get("protocol").and_then(serde_json::Value::as_u64).unwrap_or(0);
        // Another version may describe the environment differently.
        let environment = match greeting.get_mut("environment") {
            Some(environment) if protocol == PROTOCOL => {
                Environment::deserialize(environment.take()).map_err(de::Error::custom)?
            }
            Some(_) | None => Environment::default(),
        };
        Ok(Self { protocol, environment })
    }
}

/// A message from the lab to a worker, or from a worker to a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Measure these points.
    Order(Box<Order>),
    /// All roles are ready.
    Start,
    /// Another role has asked all roles to stop.
    Stop,
    /// Another role failed: there will be no start.
    Cancel,
    /// Values from another role.
    Message(RoleMessage),
    /// The lab is alive. Only a worker on another host receives it, and it passes it to no probe.
    Heartbeat,
}

/// A message from a worker to the lab, or from a probe to its worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The first message of a worker. A later greeting is that of a guest which the worker started.
    Greeting(Box<Greeting>),
    /// A worker on another host waits before its greeting, because another run measures there.
    Waiting {
        /// The process, start and folder of the other run.
        holder: String,
    },
    /// A sample, or the failure in its place.
    Sample(Box<SampleAnswer>),
    /// The generated code of the sample that follows.
    Code(Box<CodeAnswer>),
    /// The host starts to make an artefact, which may take minutes.
    Preparing {
        /// The artefact's name.
        artefact: String,
    },
    /// All artefacts are made.
    Prepared,
    /// The role is ready to start.
    Ready,
    /// The role asks the other roles to stop.
    Stop,
    /// The role sends values to the other roles.
    Message(RoleMessage),
    /// The order is finished.
    Done {
        /// The order's id.
        id: u64,
    },
}

/// Values that one role sends to all others, e.g. its counts in a trial of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleMessage {
    /// The sender.
    pub role: String,
    /// The values, by a name that sender and receivers agree on; all finite.
    pub values: BTreeMap<String, f64>,
}

/// A sample and the order that it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleAnswer {
    /// The order's id.
    pub order: u64,
    /// The order's role.
    pub role: String,
    /// The sample.
    pub sample: Sample,
}

/// The generated code of a point, before its sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodeAnswer {
    /// The order's id.
    pub order: u64,
    /// The order's role.
    pub role: String,
    /// The point.
    pub point: Point,
    /// The loops, each once.
    pub loops: Vec<EncodedLoop>,
    /// The number of loops that are missing.
    pub omitted: usize,
}

/// The maximum length of a line in either direction, in bytes. The longest lines are orders of thousands of points.
pub const MAX_LINE: usize = 4 << 20;
/// The capacity of message queues.
pub(crate) const QUEUE_LENGTH: usize = 16;

/// Writes one message as one line and flushes it.
///
/// # Errors
/// Returns an error if the other side is gone or the line is longer than [`MAX_LINE`].
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    to.write_all(&line_of(message)?)?;
    to.flush()
}

fn line_of<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > MAX_LINE {
        let why = format!("the message has {} bytes, over the limit of {MAX_LINE}", line.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(line)
}

/// Reads one message; returns `None` at the end of the stream. After an error the stream is unusable.
///
/// # Errors
/// Returns one line with the start of the message if it is malformed or longer than [`MAX_LINE`].
pub fn receive<T: for<'de> Deserialize<'de>>(from: &mut impl BufRead) -> Result<Option<T>, String> {
    let mut line = Vec::new();
    let limit = MAX_LINE as u64 + 1;
    match io::Read::take(from, limit).read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(_) if line.len() > MAX_LINE => {
            Err(format!("it wrote a line of over {MAX_LINE} bytes: '{}...'", start_of(&line)))
        }
        // The process died while it wrote.
        Ok(_) if line.last() != Some(&b'\n') => Ok(None),
        Ok(_) => {
            let unexpected =
                |_| format!("unexpected output '{}'; expected a JSON message", start_of(&line));
            serde_json::from_slice(&line).map(Some).map_err(unexpected)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the start of a line, without control characters.
fn start_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(240)]);
    let start: String = text.trim_end().chars().take(60).collect();
    one_line(&start).into_owned()
}

/// The queue of requests to a process, written by a thread, so that a process that does not read blocks no other
/// thread. Closes the process's input when dropped.
pub(crate) struct Outbox(SyncSender<Vec<u8>>);

impl Outbox {
    pub(crate) fn new(to: impl Write + Send + 'static) -> Self {
        Self::start(to, |lines| lines.recv().ok())
    }

    /// Creates a queue that writes a heartbeat whenever there is no request for this time.
    pub(crate) fn with_heartbeat(to: impl Write + Send + 'static, interval: Duration) -> Self {
        let heartbeat = line_of(&Request::Heartbeat).unwrap_or_default();
        Self::start(to, move |lines| match lines.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => Some(heartbeat.clone()),
            line => line.ok(),
        })
    }

    /// Starts the thread that writes what `next` returns, until it returns `None`.
    fn start(
        mut to: impl Write + Send + 'static,
        next: impl Fn(&Receiver<Vec<u8>>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        let (sender, lines) = sync_channel::<Vec<u8>>(QUEUE_LENGTH);
        std::thread::spawn(move || {
            // The reader of the process's output detects that the process is gone.
            while let Some(line) = next(&lines)
                && to.write_all(&line).and_then(|()| to.flush()).is_ok()
            {}
        });
        Self(sender)
    }

    /// Queues a request. Succeeds if the process is gone.
    ///
    /// # Errors
    /// Returns one line if the request is too long or the queue is full.
    pub(crate) fn send(&self, request: &Request) -> Result<(), String> {
        let line = line_of(request).map_err(|why| match why.kind() {
            io::ErrorKind::FileTooLarge => format!("{why}; lower 'batch'"),
            _ => why.to_string(),
        })?;
        match self.0.try_send(line) {
            Err(TrySendError::Full(_)) => {
                Err(format!("it does not read its requests: {QUEUE_LENGTH} are waiting"))
            }
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }
}

/// A probe's connection to its worker, and through it to the other roles.
pub struct Rendezvous {
    requests: Receiver<Request>,
    answers: Box<dyn Write>,
    messages: VecDeque<RoleMessage>,
    is_stopped: bool,
    is_cancelled: bool,
}

impl Rendezvous {
    /// Connects the receiver of requests and the stream for answers.
    pub fn new(requests: Receiver<Request>, answers: Box<dyn Write>) -> Self {
        Self {
            requests,
            answers,
            messages: VecDeque::new(),
            is_stopped: false,
            is_cancelled: false,
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// Returns `failed` if the worker has exited.
    pub fn answer(&mut self, answer: &Answer) -> Result<(), Failure> {
        send(&mut self.answers, answer)
            .map_err(|e| Failure::failed(format!("the worker has exited: {e}")))
    }

    /// Waits for the next request; returns `None` if the worker has exited.
    pub fn request(&mut self) -> Option<Request> {
        self.requests.recv().ok()
    }

    pub(crate) fn ready(&mut self) -> Result<(), Failure> {
        if self.is_cancelled {
            return Err(Failure::failed("another role ended before the start"));
        }
        self.is_stopped = false;
        self.answer(&Answer::Ready)?;
        loop {
            match self.requests.recv() {
                Ok(Request::Start) => {
                    // Messages before the start are of the previous trial, as is a stop.
                    self.messages.clear();
                    return Ok(());
                }
                Ok(Request::Message(_) | Request::Stop | Request::Heartbeat) => {}
                Ok(Request::Cancel | Request::Order(_)) => {
                    self.is_cancelled = true;
                    return Err(Failure::failed("another role ended before the start"));
                }
                Err(_) => return Err(Failure::failed("the lab has exited")),
            }
        }
    }

    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.answer(&Answer::Stop)
    }

    pub(crate) fn stopped(&mut self) -> bool {
        while !self.is_stopped {
            match self.requests.try_recv() {
                Ok(request) => self.note(request),
                Err(TryRecvError::Disconnected) => self.is_stopped = true,
                Err(TryRecvError::Empty) => break,
            }
        }
        self.is_stopped
    }

    pub(crate) fn message(&mut self) -> Option<RoleMessage> {
        while self.messages.is_empty() && !self.is_stopped {
            match self.requests.recv() {
                Ok(request) => self.note(request),
                Err(_) => self.is_stopped = true,
            }
        }
        self.messages.pop_front()
    }

    fn note(&mut self, request: Request) {
        match request {
            Request::Stop => self.is_stopped = true,
            Request::Cancel => (self.is_stopped, self.is_cancelled) = (true, true),
            Request::Message(message) => self.messages.push_back(message),
            Request::Start | Request::Order(_) | Request::Heartbeat => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(value: f64) -> RoleMessage {
        RoleMessage { role: "generator".into(), values: [("lost".to_owned(), value)].into() }
    }

    #[test]
    fn an_incomplete_last_line_is_the_end_of_the_stream() {
        let line = line_of(&message(1.0)).unwrap();
        let mut cut = &line[..line.len() - 1];
        assert_eq!(receive::<RoleMessage>(&mut cut), Ok(None));
        assert_eq!(receive(&mut line.as_slice()), Ok(Some(message(1.0))));
    }

    #[test]
    fn a_greeting_of_another_protocol_is_read_without_its_environment() {
        let greeting = Greeting::of(Environment::capture());
        let line = line_of(&greeting).unwrap();
        assert_eq!(receive(&mut line.as_slice()), Ok(Some(greeting)));
        for (line, protocol) in [
            (r#"{"protocol":99,"environment":{"host":"renamed"}}"#, 99),
            (r#"{"hostname":"before there were protocols"}"#, 0),
        ] {
            let greeting: Greeting = serde_json::from_str(line).unwrap();
            assert_eq!(greeting, Greeting { protocol, environment: Environment::default() });
        }
        let damaged = format!(r#"{{"protocol":{PROTOCOL},"environment":{{}}}}"#);
        assert!(serde_json::from_str::<Greeting>(&damaged).is_err());
    }

    #[test]
    fn a_heartbeat_is_written_only_without_requests() {
        let (reader, writer) = std::io::pipe().unwrap();
        let outbox = Outbox::with_heartbeat(writer, Duration::from_millis(20));
        outbox.send(&Request::Start).unwrap();
        let mut reader = io::BufReader::new(reader);
        let mut next = || receive::<Request>(&mut reader).unwrap();
        assert_eq!([next(), next()], [Some(Request::Start), Some(Request::Heartbeat)]);
        drop(outbox);
        while let Some(request) = next() {
            assert_eq!(request, Request::Heartbeat);
        }
    }

    #[test]
    fn messages_of_roles_arrive_in_order_and_before_the_stop() {
        let (sender, requests) = sync_channel(QUEUE_LENGTH);
        let mut role = Rendezvous::new(requests, Box::new(Vec::new()));
        for request in [
            Request::Stop,
            Request::Message(message(1.0)),
            Request::Start,
            Request::Message(message(2.0)),
            Request::Stop,
        ] {
            sender.send(request).unwrap();
        }
        assert_eq!(role.ready(), Ok(()), "a late stop does not end the next trial");
        assert!(role.stopped());
        assert_eq!(role.message(), Some(message(2.0)), "a message of the trial before is dropped");
        assert_eq!(role.message(), None);
        sender.send(Request::Cancel).unwrap();
        assert!(role.ready().unwrap_err().why.contains("another role ended"));
    }
}
