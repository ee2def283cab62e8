//! The process that carries orders out, each in a fresh probe; what goes wrong costs one sample.

mod process;

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use machine::environment::Environment;
use machine::tsc::Tsc;

use crate::answer::Due;
use crate::artefact::{self, Artefacts, Recipe};
use crate::descendants;
use crate::guest::Guest;
use crate::message::{Answer, Answered, Hello, Order, Request, WAITING, receive, send};
use crate::method::AnyMethod;
use crate::option;
use crate::point::Point;
use crate::probe::blank;
use crate::sample::{Failure, FailureKind, Part};
use crate::suite::Suite;
use crate::terminal;
use process::ProbeProcess;

/// The words after the program's name that make it a worker.
pub const WORKER: [&str; 1] = ["worker"];
/// The words after the program's name that make it a probe.
pub const PROBE: [&str; 2] = ["worker", "--probe"];
/// How long a probe may take to end after it was asked to.
const GRACE: Duration = Duration::from_millis(500);

enum Event {
    Lab(Request),
    LabGone,
    /// What a probe said, by its number: one that was ended may still have had something to say.
    Probe(u64, Result<Answer, String>),
    ProbeGone(u64),
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
            let _ = writeln!(terminal::stderr(), "worker: {error}");
            1
        }
    }
}

struct Worker<'a> {
    suites: &'a [&'a dyn Suite],
    environment: String,
    host: String,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    /// How many probes were started.
    probes: u64,
    output: std::io::Stdout,
    /// The artefacts that could not be made, by their hash.
    unmade: HashMap<String, Failure>,
}

impl<'a> Worker<'a> {
    fn new(suites: &'a [&'a dyn Suite], version: &str) -> std::io::Result<Self> {
        let environment = Environment::capture();
        let (sender, events) = sync_channel(WAITING);
        let mut worker = Self {
            suites,
            environment: environment.id(),
            host: environment.hostname.clone(),
            events,
            sender,
            probes: 0,
            output: std::io::stdout(),
            unmade: HashMap::new(),
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
            // Whatever the worker is busy with, and whoever floods it, it does not outlive the lab.
            let end = std::thread::spawn(|| {
                std::thread::sleep(GRACE * 4);
                descendants::end(&[]);
                std::process::exit(1);
            });
            let _ = sender.send(Event::LabGone);
            let _ = end.join();
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
                Ok(Event::Lab(_) | Event::Probe(..) | Event::ProbeGone(_)) => {}
            }
        }
    }

    /// Carries one order out; false when the lab is gone.
    fn carry_out(&mut self, mut order: Order) -> std::io::Result<bool> {
        let id = order.id;
        order.host.artefacts = self.prepare(&order)?;
        order.host.tsc = Tsc::get().ok().copied();
        for (guest, part) in self.by_guest(order) {
            if !self.carry_out_in(guest.as_ref(), part)? {
                return Ok(false);
            }
        }
        self.say(&Answer::Done { id })?;
        Ok(true)
    }

    fn method(&self, order: &Order) -> Option<&'static dyn AnyMethod> {
        crate::suite::find_method(self.suites, &order.suite, &order.method).ok()
    }

    /// The guest of a point, unless this worker is that guest's own.
    fn guest(&self, order: &Order, point: &Point) -> Option<Guest> {
        let method = self.method(order)?;
        (!order.inside).then(|| method.guest(point))?
    }

    /// The order in parts, each of points that follow each other in the same place.
    fn by_guest(&self, order: Order) -> Vec<(Option<Guest>, Order)> {
        let mut parts: Vec<(Option<Guest>, Order)> = Vec::new();
        let name = |guest: &Option<Guest>| guest.as_ref().map(|guest| guest.name.clone());
        for ordered in &order.points {
            let guest = self.guest(&order, &ordered.point);
            match parts.last_mut() {
                Some((last, part)) if name(last) == name(&guest) => {
                    part.points.push(ordered.clone());
                }
                _ => {
                    let points = vec![ordered.clone()];
                    let inside = order.inside || guest.is_some();
                    parts.push((guest, Order { points, inside, ..order.clone() }));
                }
            }
        }
        parts
    }

    /// Carries out what is measured in one place, with a new probe (a guest: a new start) after
    /// each fault; false when the lab is gone.
    fn carry_out_in(&mut self, guest: Option<&Guest>, mut order: Order) -> std::io::Result<bool> {
        while !order.points.is_empty() {
            match self.one_probe(guest, &order)? {
                Some((due, fault)) => {
                    if let Some(failure) = fault {
                        self.report(&order, &due, failure)?;
                        order.points.drain(..=due.answered);
                    } else {
                        order.points.clear();
                    }
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Makes what the points need. What cannot be made fails only the points that ask for it.
    fn prepare(&mut self, order: &Order) -> std::io::Result<Artefacts> {
        let mut made = Artefacts::new();
        let Some(method) = self.method(order) else {
            return Ok(made);
        };
        let may_be_made = |point| option::check_point(method, point, &order.options).is_ok();
        for ordered in order.points.iter().filter(|ordered| may_be_made(&ordered.point)) {
            let guest = self.guest(order, &ordered.point);
            let inside = guest.map(|guest| guest.artefacts).unwrap_or_default();
            let own = match order.inside {
                true => Vec::new(),
                false => method.artefacts(&ordered.point),
            };
            for recipe in own.into_iter().chain(inside) {
                if !made.contains_key(&recipe.name) {
                    let lies = self.made(&recipe)?;
                    made.insert(recipe.name.clone(), lies);
                }
            }
        }
        if !made.is_empty() {
            self.say(&Answer::Prepared)?;
        }
        Ok(made)
    }

    /// An artefact, made now if it is not in the cache. One that could not be made is not tried again:
    /// that may take minutes each time.
    fn made(&mut self, recipe: &Recipe) -> std::io::Result<Result<PathBuf, Failure>> {
        let hash = recipe.hash();
        if let Some(failure) = self.unmade.get(&hash) {
            return Ok(Err(failure.clone()));
        }
        self.say(&Answer::Preparing { artefact: recipe.name.clone() })?;
        let made = artefact::prepare(recipe);
        if let Err(failure) = &made {
            self.unmade.insert(hash, failure.clone());
        }
        Ok(made)
    }

    fn report(&mut self, order: &Order, due: &Due, failure: Failure) -> std::io::Result<()> {
        let Some(point) = due.point(order) else { return Ok(()) };
        let mut sample = blank(order, point, due.attempt);
        sample.error = Some(failure);
        self.deliver(None, Answered { order: order.id, role: order.role.clone(), sample })
    }

    /// Hands a sample on as this host's. What a guest says of itself becomes a part of it.
    fn deliver(&mut self, guest: Option<&str>, mut answered: Answered) -> std::io::Result<()> {
        let sample = &mut answered.sample;
        if let Some(environment) = guest {
            let part = Part {
                host: std::mem::take(&mut sample.host),
                environment: environment.into(),
                values: sample.values.clone(),
                noise: sample.noise,
                covariates: sample.covariates.clone(),
            };
            sample.parts.insert("guest".into(), part);
        }
        sample.host.clone_from(&self.host);
        sample.environment.clone_from(&self.environment);
        self.say(&Answer::Sample(Box::new(answered)))
    }

    /// Runs one probe over the order's points. Gives what is still due and the fault that ended it early,
    /// or nothing when the lab is gone.
    fn one_probe(
        &mut self,
        guest: Option<&Guest>,
        order: &Order,
    ) -> std::io::Result<Option<(Due, Option<Failure>)>> {
        let mut begun = Instant::now();
        let mut due = Due::of_probe(order);
        self.probes += 1;
        let number = self.probes;
        let started = ProbeProcess::start(guest, order, number, self.sender.clone())?;
        let mut process = match started {
            Ok(process) => process,
            Err(failure) => return Ok(Some((due, Some(failure)))),
        };
        let mut guest_environment = None;
        loop {
            let Some(current) = due.point(order) else {
                process.end();
                return Ok(Some((due, None)));
            };
            let fault = match self.events.recv_timeout(process.left(current.limit)) {
                Ok(Event::Probe(from, _) | Event::ProbeGone(from)) if from != number => continue,
                Ok(Event::Probe(_, Ok(Answer::Sample(mut answered)))) => {
                    match due.take(order, &answered) {
                        Ok(()) => {
                            // A guest's start is part of its first sample, as all that a sample prepares.
                            if guest.is_some() {
                                answered.sample.seconds = begun.elapsed().as_secs_f64();
                            }
                            begun = Instant::now();
                            process.heard = begun;
                            self.deliver(guest_environment.as_deref(), *answered)?;
                            continue;
                        }
                        Err(why) => Failure::failed(format!("the probe: {why}")),
                    }
                }
                Ok(Event::Probe(_, Ok(Answer::Hello(mut hello))))
                    if guest.is_some() && guest_environment.is_none() =>
                {
                    process.heard = Instant::now();
                    // Every start of a guest is another boot: that tells nothing.
                    hello.environment.boot_id.clear();
                    guest_environment = Some(hello.environment.id());
                    self.say(&Answer::Hello(hello))?;
                    continue;
                }
                Ok(Event::Probe(_, Ok(answer @ (Answer::Ready | Answer::Stop)))) => {
                    match due.message() {
                        Ok(()) => {
                            process.heard = Instant::now();
                            self.say(&answer)?;
                            continue;
                        }
                        Err(why) => Failure::failed(format!("the probe: {why}")),
                    }
                }
                Ok(Event::Lab(request)) => match process.tell(&request) {
                    Ok(()) => continue,
                    Err(why) => Failure::failed(format!("the probe: {why}")),
                },
                Ok(Event::LabGone) => {
                    process.end();
                    return Ok(None);
                }
                Ok(Event::Probe(_, Ok(_))) => Failure::failed("the probe ended before its order"),
                Ok(Event::Probe(_, Err(nonsense))) => {
                    Failure::failed(format!("the probe: {nonsense}"))
                }
                Ok(Event::ProbeGone(_)) => process.cause_of_death(),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Failure::new(
                    FailureKind::Timeout,
                    format!("no answer within {}", crate::quantity::format_duration(current.limit)),
                ),
            };
            process.kill();
            return Ok(Some((due, Some(fault))));
        }
    }
}
