//! The process that carries orders out, each in a fresh probe; what goes wrong costs one sample.

mod process;

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use machine::environment::Environment;
use machine::tsc::Tsc;

use crate::artefact;
use crate::descendants;
use crate::message::{Answer, Hello, Order, Request, receive, send};
use crate::probe::blank;
use crate::sample::{Failure, FailureKind, Sample};
use crate::suite::Suite;
use process::ProbeProcess;

/// The words after the program's name that make it a worker.
pub const WORKER: [&str; 1] = ["worker"];
/// The words after the program's name that make it a probe.
pub const PROBE: [&str; 2] = ["worker", "--probe"];
/// How long a probe may take to end after it was asked to.
const GRACE: Duration = Duration::from_millis(500);

type Artefacts = BTreeMap<String, Result<PathBuf, Failure>>;

enum Event {
    Lab(Request),
    LabGone,
    Probe(Result<Answer, String>),
    ProbeGone,
}

/// Serves orders from standard input until it closes; gives the exit status.
pub fn main(suites: &[&dyn Suite], version: &str) -> i32 {
    let serve = || {
        descendants::adopt()?;
        Worker::new(suites, version)?.serve()
    };
    let served = serve();
    descendants::end(&[]);
    match served {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "worker: {error}");
            1
        }
    }
}

struct Worker<'a> {
    suites: &'a [&'a dyn Suite],
    environment: String,
    host: String,
    events: Receiver<Event>,
    sender: Sender<Event>,
    output: std::io::Stdout,
}

impl<'a> Worker<'a> {
    fn new(suites: &'a [&'a dyn Suite], version: &str) -> std::io::Result<Self> {
        let environment = Environment::capture();
        let (sender, events) = channel();
        let mut worker = Self {
            suites,
            environment: environment.id(),
            host: environment.hostname.clone(),
            events,
            sender,
            output: std::io::stdout(),
        };
        worker.listen();
        worker.say(&Answer::Hello(Box::new(Hello { version: version.into(), environment })))?;
        Ok(worker)
    }

    fn listen(&self) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let mut input = BufReader::new(std::io::stdin());
            while let Ok(Some(request)) = receive(&mut input) {
                if sender.send(Event::Lab(request)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Event::LabGone);
            // Whatever the worker is busy with, it does not outlive the lab.
            std::thread::sleep(GRACE * 4);
            descendants::end(&[]);
            std::process::exit(1);
        });
    }

    fn say(&mut self, answer: &Answer) -> std::io::Result<()> {
        send(&mut self.output, answer)
    }

    fn serve(&mut self) -> std::io::Result<()> {
        loop {
            match self.events.recv() {
                Ok(Event::Lab(Request::Order(order))) => {
                    if !self.carry_out(*order)? {
                        return Ok(());
                    }
                }
                Ok(Event::LabGone) | Err(_) => return Ok(()),
                // A start or stop that came after its order ended.
                Ok(Event::Lab(_) | Event::Probe(_) | Event::ProbeGone) => {}
            }
        }
    }

    /// Carries one order out, with a new probe after each fault; false when the lab is gone.
    fn carry_out(&mut self, mut order: Order) -> std::io::Result<bool> {
        let id = order.id;
        order.host.artefacts = self.prepare(&order)?;
        order.host.tsc = Tsc::get().ok().copied();
        while !order.points.is_empty() {
            match self.one_probe(&order)? {
                Some((answered, fault)) => {
                    if let Some(failure) = fault {
                        self.report(&order, answered, failure)?;
                        order.points.drain(..=answered);
                    } else {
                        order.points.clear();
                    }
                }
                None => return Ok(false),
            }
        }
        self.say(&Answer::Done { id })?;
        Ok(true)
    }

    /// Makes what the points need. What cannot be made fails only the points that ask for it.
    fn prepare(&mut self, order: &Order) -> std::io::Result<Artefacts> {
        let mut made = Artefacts::new();
        let Some(suite) = crate::suite::find(self.suites, &order.suite) else {
            return Ok(made);
        };
        for ordered in &order.points {
            for recipe in suite.artefacts(&order.measured_as, &ordered.point) {
                if !made.contains_key(&recipe.name) {
                    self.say(&Answer::Preparing { artefact: recipe.name.clone() })?;
                    made.insert(recipe.name.clone(), artefact::prepare(&recipe));
                }
            }
        }
        if !made.is_empty() {
            self.say(&Answer::Prepared)?;
        }
        Ok(made)
    }

    fn report(&mut self, order: &Order, at: usize, failure: Failure) -> std::io::Result<()> {
        let mut sample = blank(order, &order.points[at], order.attempt);
        sample.error = Some(failure);
        self.deliver(sample)
    }

    fn deliver(&mut self, mut sample: Sample) -> std::io::Result<()> {
        sample.host.clone_from(&self.host);
        sample.environment.clone_from(&self.environment);
        self.say(&Answer::Sample(Box::new(sample)))
    }

    /// Runs one probe over the order's points. Gives how many were answered and the fault that
    /// ended it early, or nothing when the lab is gone.
    fn one_probe(&mut self, order: &Order) -> std::io::Result<Option<(usize, Option<Failure>)>> {
        let mut process = ProbeProcess::start(order, self.sender.clone())?;
        let mut answered = 0;
        loop {
            let Some(current) = order.points.get(answered) else {
                process.end();
                self.drain(&process);
                return Ok(Some((answered, None)));
            };
            let fault = match self.events.recv_timeout(process.left(current.limit)) {
                Ok(Event::Probe(Ok(Answer::Sample(sample)))) => {
                    process.heard = Instant::now();
                    let last = order.is_last(&sample);
                    answered += usize::from(last);
                    self.deliver(*sample)?;
                    continue;
                }
                Ok(Event::Probe(Ok(answer @ (Answer::Ready | Answer::Stop)))) => {
                    process.heard = Instant::now();
                    self.say(&answer)?;
                    continue;
                }
                Ok(Event::Lab(request)) => {
                    process.tell(&request);
                    continue;
                }
                Ok(Event::LabGone) => {
                    process.end();
                    return Ok(None);
                }
                Ok(Event::Probe(Ok(_))) => Failure::failed("the probe ended before its order"),
                Ok(Event::Probe(Err(nonsense))) => {
                    Failure::failed(format!("the probe: {nonsense}"))
                }
                Ok(Event::ProbeGone) => process.cause_of_death(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Failure::new(
                    FailureKind::Timeout,
                    format!("no answer within {}", crate::quantity::format_duration(current.limit)),
                ),
            };
            process.kill();
            self.drain(&process);
            return Ok(Some((answered, Some(fault))));
        }
    }

    /// Forgets what an ended probe still had to say, so that the next is not blamed for it.
    fn drain(&self, process: &ProbeProcess) {
        let deadline = Instant::now() + GRACE;
        while !process.silent() && Instant::now() < deadline {
            match self.events.recv_timeout(GRACE) {
                Ok(Event::LabGone) => {
                    let _ = self.sender.send(Event::LabGone);
                    return;
                }
                Ok(Event::ProbeGone) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
