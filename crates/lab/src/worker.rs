//! The worker: a process that executes orders of the lab, each in a fresh probe, so that a fault costs one sample.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::cpu::CpuClock;
use machine::environment::Environment;

use crate::answer::{Permitted, checked};
use crate::artefact::{self, Artefacts, Recipe};
use crate::descendants;
use crate::guest::{Guest, IN_GUEST};
use crate::host::RemoteOptions;
use crate::link::{Build, Link, LinkOutput, Origin, local_probe};
use crate::message::{
    Answer, Counter, Greeting, Order, QUEUE_LENGTH, Request, SampleAnswer, receive, send,
};
use crate::method::AnyMethod;
use crate::option;
use crate::order_progress::OrderProgress;
use crate::point::Point;
use crate::probe::empty_sample;
use crate::run::MachineLock;
use crate::sample::{Failure, GUEST, Part, Sample};
use crate::suite::Suite;
use crate::terminal;

mod remote;

pub use crate::link::WORKER;

/// The time for a probe to end.
const PROBE_GRACE: Duration = Duration::from_millis(500);
/// The time for a worker to end with all that it started, after its input closed.
pub(crate) const WORKER_GRACE: Duration = Duration::from_secs(3);
/// The time after which a worker whose input closed kills what it started, before the lab kills the worker.
const EXIT_LIMIT: Duration = Duration::from_secs(2);
const _: () = assert!(EXIT_LIMIT.as_millis() < WORKER_GRACE.as_millis());

/// An input of the worker.
enum Event {
    Request(Request),
    LabGone,
    /// An output of a probe, or of an earlier one that was killed.
    Probe(LinkOutput),
}

impl From<LinkOutput> for Event {
    fn from(output: LinkOutput) -> Self {
        Self::Probe(output)
    }
}

/// Executes orders from standard input until it closes; returns the exit status. `remote` is for a worker on another host
/// than the lab: [`RemoteOptions`] in JSON.
pub fn main(suites: &[&Suite], remote: Option<&str>) -> i32 {
    // Held until all that the worker started has ended.
    let mut lock = None;
    let result = serve(suites, remote, &mut lock);
    descendants::end(&[]);
    match result {
        Ok(()) | Err(Ended::LabGone) => 0,
        Err(Ended::Failed(error)) => {
            let _ = writeln!(terminal::stderr(), "worker: {error}");
            1
        }
    }
}

fn serve(
    suites: &[&Suite],
    remote: Option<&str>,
    lock: &mut Option<MachineLock>,
) -> Result<(), Ended> {
    descendants::adopt()?;
    let remote = remote.map(remote::parse).transpose()?;
    Worker::start(suites, remote, lock)?.serve()
}

/// Why the worker ends.
enum Ended {
    LabGone,
    Failed(std::io::Error),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
}

struct Worker<'a> {
    suites: &'a [&'a Suite],
    build: Build,
    origin: Origin,
    /// The ID of this boot; empty within a guest.
    boot_id: String,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    /// The number of probes started so far.
    probes: u64,
    output: std::io::Stdout,
    /// The failures of artefacts, by their hash.
    failed_artefacts: HashMap<String, Failure>,
    /// The experiment and round of the last order that was logged; `None` on the host of the lab, which logs nothing.
    logged: Option<(String, u32)>,
    /// On another host than the lab: its options.
    remote: Option<RemoteOptions>,
    /// The lock of the machine on another host than the lab, unless another worker of the run has it.
    lock: &'a mut Option<MachineLock>,
}

impl<'a> Worker<'a> {
    fn start(
        suites: &'a [&'a Suite],
        remote: Option<RemoteOptions>,
        lock: &'a mut Option<MachineLock>,
    ) -> Result<Self, Ended> {
        let (sender, events) = sync_channel(QUEUE_LENGTH);
        if let Some(options) = &remote {
            // Before threads start, which inherit it.
            remote::set_scheduling(options)?;
        }
        let max_silence = remote.as_ref().map(|one| Duration::from_millis(one.max_silence));
        read_requests(sender.clone(), max_silence);
        if let Some(options) = &remote {
            *lock = remote::prepare(options)?;
        }
        let mut environment = Environment::capture();
        if std::env::var_os(IN_GUEST).is_some() {
            environment.boot_id.clear();
        }
        let mut worker = Self {
            suites,
            build: Build::of(&environment),
            origin: Origin::of(&environment),
            boot_id: environment.boot_id.clone(),
            events,
            sender,
            probes: 0,
            output: std::io::stdout(),
            failed_artefacts: HashMap::new(),
            logged: remote.as_ref().map(|_| Default::default()),
            remote,
            lock,
        };
        worker.answer(&Answer::Greeting(Box::new(Greeting::of(environment))))?;
        Ok(worker)
    }

    fn answer(&mut self, answer: &Answer) -> std::io::Result<()> {
        send(&mut self.output, answer)
    }

    fn serve(&mut self) -> Result<(), Ended> {
        loop {
            match self.events.recv() {
                Ok(Event::Request(Request::Order(order))) => self.execute(*order)?,
                Ok(Event::LabGone) | Err(_) => return Err(Ended::LabGone),
                // Late messages for an order that is done.
                Ok(Event::Request(_) | Event::Probe(_)) => {}
            }
        }
    }

    fn execute(&mut self, mut order: Order) -> Result<(), Ended> {
        let id = order.id;
        if let Some(options) = &self.remote {
            remote::keep_lock(options, self.lock)?;
        }
        self.log(&order);
        order.host.artefacts = self.prepare(&order)?;
        let counter = order.host.counter.take().filter(|counter| counter.is_of(&self.boot_id));
        order.host.counter = counter.or_else(|| Counter::calibrate(self.boot_id.clone()));
        for (guest, part) in split_by_guest(order, |order, point| self.guest(order, point)) {
            self.execute_in(guest.as_ref(), part)?;
        }
        Ok(self.answer(&Answer::Done { id })?)
    }

    /// Logs the first order of a round on standard error, which the lab writes to a file. Further lines would disturb the
    /// measurements.
    fn log(&mut self, order: &Order) {
        let Some(logged) = &mut self.logged else { return };
        let of_order = (format!("{}/{}", order.suite, order.experiment), order.round);
        if *logged != of_order {
            remote::log(&format!("{}, round {}", of_order.0, of_order.1 + 1));
            *logged = of_order;
        }
    }

    fn method(&self, order: &Order) -> Option<&'static dyn AnyMethod> {
        crate::suite::find_method(self.suites, &order.suite, &order.method).ok()
    }

    /// Returns the guest of a point; `None` if the point needs none, its method is unknown, or this worker is inside it.
    fn guest(&self, order: &Order, point: &Point) -> Option<Guest> {
        let method = self.method(order)?;
        (!order.inside).then(|| method.guest(point))?
    }

    /// Executes an order in one place. After a fault the point fails, and a new probe (or a new start of the guest)
    /// measures the remaining points.
    fn execute_in(&mut self, guest: Option<&Guest>, mut order: Order) -> Result<(), Ended> {
        while !order.points.is_empty() {
            let mut progress = OrderProgress::of_probe(&order);
            let result = self.run_child(guest, &order, &mut progress)?;
            let Err(failure) = result else { break };
            let Some(point) = progress.point(&order) else { break };
            let mut sample = empty_sample(&order, point, progress.attempt);
            sample.error = Some(failure);
            let answer = SampleAnswer { order: order.id, role: order.role.clone(), sample };
            self.forward_sample(None, answer)?;
            order.points.drain(..=progress.answered);
        }
        Ok(())
    }

    /// Makes the artefacts that the points need. A failure affects only the points that need the artefact.
    fn prepare(&mut self, order: &Order) -> std::io::Result<Artefacts> {
        let mut artefacts = Artefacts::new();
        let Some(method) = self.method(order) else {
            return Ok(artefacts);
        };
        // Inside a point's guest, its host has made them.
        let points = if order.inside { &[] } else { &order.points[..] };
        for ordered in points {
            for recipe in option::recipes(method, &ordered.point, &order.options) {
                if !artefacts.contains_key(&recipe.name) {
                    let path = self.make(&recipe)?;
                    artefacts.insert(recipe.name.clone(), path);
                }
            }
        }
        if !artefacts.is_empty() {
            self.answer(&Answer::Prepared)?;
        }
        Ok(artefacts)
    }

    /// Makes an artefact unless it is in the cache. An artefact that failed is not tried again, because that may take
    /// minutes.
    fn make(&mut self, recipe: &Recipe) -> std::io::Result<Result<PathBuf, Failure>> {
        let hash = recipe.hash();
        if let Some(failure) = self.failed_artefacts.get(&hash) {
            return Ok(Err(failure.clone()));
        }
        if !artefact::is_cached(recipe) {
            self.answer(&Answer::Preparing { artefact: recipe.name.clone() })?;
        }
        let path = artefact::prepare(recipe);
        if let Err(failure) = &path {
            self.failed_artefacts.insert(hash, failure.clone());
        }
        Ok(path)
    }

    /// Forwards a sample as one of this host. A guest's sample keeps what the guest reported in the part `guest`.
    fn forward_sample(
        &mut self,
        guest_environment: Option<&str>,
        mut answer: SampleAnswer,
    ) -> std::io::Result<()> {
        let sample = &mut answer.sample;
        if let Some(environment) = guest_environment {
            let part = Part {
                host: std::mem::take(&mut sample.host),
                environment: environment.into(),
                values: sample.values.clone(),
                noise: sample.noise,
                // The sample keeps it.
                clock: None,
                covariates: sample.covariates.clone(),
            };
            sample.parts.insert(GUEST.into(), part);
        }
        sample.host.clone_from(&self.origin.host);
        sample.environment.clone_from(&self.origin.environment);
        self.answer(&Answer::Sample(Box::new(answer)))
    }

    /// Starts a probe on this host, or a guest with a worker inside, and gives it the order. The worker ends if it
    /// cannot start processes on this host.
    fn start_child(
        &mut self,
        guest: Option<&Guest>,
        order: &Order,
    ) -> Result<Result<Link, Failure>, Ended> {
        let command = match guest.map(|guest| (guest.start)(&order.host.artefacts)) {
            Some(Ok(command)) => command,
            Some(Err(failure)) => return Ok(Err(failure)),
            None => local_probe().into(),
        };
        self.probes += 1;
        let name = if guest.is_some() { "the guest" } else { "the probe" };
        let mut link = match Link::start(self.probes, name, command, self.sender.clone()) {
            Ok(link) => link,
            Err(why) if guest.is_none() => return Err(Ended::Failed(why)),
            Err(why) => {
                return Ok(Err(Failure::failed(format!("the guest does not start: {why}"))));
            }
        };
        let sent = link.send(&Request::Order(Box::new(order.clone())));
        Ok(match sent {
            Ok(()) => Ok(link),
            Err(failure) => {
                kill(&mut link);
                Err(failure)
            }
        })
    }

    /// Runs one probe, or one guest, over the points of an order and forwards its samples. Returns the fault that ended it
    /// early.
    fn run_child(
        &mut self,
        guest: Option<&Guest>,
        order: &Order,
        progress: &mut OrderProgress,
    ) -> Result<Result<(), Failure>, Ended> {
        let mut start = Instant::now();
        let mut link = match self.start_child(guest, order)? {
            Ok(link) => link,
            Err(failure) => return Ok(Err(failure)),
        };
        // A role that is ready waits for the others, e.g. while one of them makes an artefact. The lab watches them.
        let mut waits_for_start = false;
        while let Some(point) = progress.point(order) {
            let limit = if waits_for_start { Duration::MAX } else { link.remaining(point.limit) };
            let output = match self.events.recv_timeout(limit) {
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let failure = link.timeout(point.limit);
                    return Ok(fail(&mut link, failure));
                }
                Ok(Event::LabGone) => {
                    end(&mut link, guest.is_some());
                    return Err(Ended::LabGone);
                }
                Ok(Event::Request(request)) => {
                    if waits_for_start && matches!(request, Request::Start | Request::Cancel) {
                        waits_for_start = false;
                        link.beat();
                    }
                    match link.send(&request) {
                        Ok(()) => continue,
                        Err(failure) => return Ok(fail(&mut link, failure)),
                    }
                }
                Ok(Event::Probe(output)) if output.link != link.id() => continue,
                Ok(Event::Probe(output)) => output.output,
            };
            // A refused message must not count as an answer.
            let accepted = link.answer(output).and_then(|answer| {
                self.check(&mut link, guest.is_some(), &answer)?;
                progress.accept(order, &answer).map_err(|why| link.failure(why))?;
                Ok(answer)
            });
            let answer = match accepted {
                Ok(answer) => answer,
                Err(failure) => return Ok(fail(&mut link, failure)),
            };
            link.beat();
            waits_for_start |= matches!(answer, Answer::Ready);
            match answer {
                Answer::Sample(mut answer) => {
                    let time = std::mem::replace(&mut start, Instant::now()).elapsed();
                    if let Some(guest) = guest {
                        answer.sample = self.of_guest(guest, order, time, answer.sample);
                    }
                    let guest_environment = link.origin().map(|origin| origin.environment.clone());
                    self.forward_sample(guest_environment.as_deref(), *answer)?;
                }
                // Also the greeting of a guest.
                answer => self.answer(&answer)?,
            }
        }
        end(&mut link, guest.is_some());
        Ok(Ok(()))
    }

    /// Returns a guest's sample with its duration on this host; without times if the guest's CPU has none.
    fn of_guest(&self, guest: &Guest, order: &Order, time: Duration, mut sample: Sample) -> Sample {
        // A guest's clock is not that of the host, which forecasts the run. The first sample includes the start of the guest,
        // like all preparation.
        sample.seconds = time.as_secs_f64();
        if guest.clock != CpuClock::Untimed {
            return sample;
        }
        let metrics = self.method(order).map_or(&[][..], |method| method.metrics());
        let may_be_empty = !order.role.is_empty();
        checked(sample, Permitted { metrics, lacks_time: true, may_be_empty })
    }

    /// Checks what only a probe, or only a guest, may send.
    fn check(&self, link: &mut Link, is_guest: bool, answer: &Answer) -> Result<(), Failure> {
        match answer {
            Answer::Greeting(greeting) if is_guest => {
                link.accept_greeting(greeting, Some(&self.build))
            }
            _ if is_guest && link.origin().is_none() => Err(link.failure("no greeting")),
            Answer::Greeting(_)
            | Answer::Preparing { .. }
            | Answer::Prepared
            | Answer::Waiting { .. } => {
                Err(link.failure("it sent a message that only a worker may send"))
            }
            Answer::Sample(_)
            | Answer::Code(_)
            | Answer::Ready
            | Answer::Stop
            | Answer::Message(_)
            | Answer::Done { .. } => Ok(()),
        }
    }
}

/// Splits an order into runs of consecutive points in the same guest, or on the host.
fn split_by_guest(
    order: Order,
    guest_of: impl Fn(&Order, &Point) -> Option<Guest>,
) -> Vec<(Option<Guest>, Order)> {
    let mut parts: Vec<(Option<Guest>, Order)> = Vec::new();
    let name = |guest: &Option<Guest>| guest.as_ref().map(|guest| guest.name.clone());
    for ordered in &order.points {
        let guest = guest_of(&order, &ordered.point);
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

/// Reads requests of the lab in a thread. When the input closes, or nothing arrives for `max_silence`, the worker and all
/// that it started end, regardless of what it is doing.
fn read_requests(sender: SyncSender<Event>, max_silence: Option<Duration>) {
    let last = Arc::new(Mutex::new(Instant::now()));
    if let Some(max) = max_silence {
        let (last, sender) = (Arc::clone(&last), sender.clone());
        std::thread::spawn(move || {
            remote::wait_for_silence(&last, max);
            end_without_lab(&sender);
        });
    }
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        while let Ok(Some(request)) = receive(&mut input) {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            if request != Request::Heartbeat && sender.send(Event::Request(request)).is_err() {
                return;
            }
        }
        end_without_lab(&sender);
    });
}

/// Ends the worker and all that it started, after a time in which it may do so itself.
fn end_without_lab(sender: &SyncSender<Event>) {
    let exit = std::thread::spawn(|| {
        std::thread::sleep(EXIT_LIMIT);
        descendants::end(&[]);
        std::process::exit(1);
    });
    let _ = sender.send(Event::LabGone);
    let _ = exit.join();
}

/// Ends a probe that is done, with all that it started. A guest is not waited for: it has nothing to end in order.
fn end(link: &mut Link, is_guest: bool) {
    match is_guest {
        true => link.end(Duration::ZERO, PROBE_GRACE),
        false => link.end(PROBE_GRACE / 2, PROBE_GRACE / 2),
    }
    descendants::end(&[]);
}

fn kill(link: &mut Link) {
    link.kill();
    descendants::end(&[]);
}

/// Kills a probe because of a fault.
fn fail(link: &mut Link, failure: Failure) -> Result<(), Failure> {
    kill(link);
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scripted;

    /// Returns the guest of a point: its level, unless that is `host`.
    fn guest_of(_: &Order, point: &Point) -> Option<Guest> {
        let place = point.text("place");
        let guests = scripted::guests(&[(place, CpuClock::Untimed)]);
        (place != "host").then(|| guests.hosts[0].guest.clone())
    }

    #[test]
    fn consecutive_points_in_one_guest_share_it() {
        let mut order = scripted::order("dut");
        let ordered = order.points.remove(0);
        let places = ["host", "host", "one", "one", "two", "host", "two"];
        order.points = (0..)
            .zip(places)
            .map(|(position, place)| crate::message::OrderedPoint {
                position,
                point: Point::from([("place", place)]),
                ..ordered.clone()
            })
            .collect();
        let parts = split_by_guest(order.clone(), guest_of);
        let described: Vec<_> = parts
            .iter()
            .map(|(guest, part)| {
                let name = guest.as_ref().map_or("host", |guest| guest.name.as_str());
                let positions = part.points.iter().map(|one| one.position).collect::<Vec<_>>();
                (name, part.inside, positions)
            })
            .collect();
        let expected = [
            ("host", false, vec![0, 1]),
            ("one", true, vec![2, 3]),
            ("two", true, vec![4]),
            ("host", false, vec![5]),
            ("two", true, vec![6]),
        ];
        assert_eq!(described, expected);
        assert!(parts.iter().all(|(_, part)| part.role == "dut" && part.id == order.id));
        let none = split_by_guest(Order { points: Vec::new(), ..order }, guest_of);
        assert!(none.is_empty());
    }
}
