//! Workers that are shell scripts, for tests of what the lab does with the messages of a worker.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machine::cpu::CpuClock;
use machine::environment::Environment;

use super::supervisor::{Processes, Supervisor};
use super::{Delay, RunError};
use crate::guest::{Guest, GuestHost, Guests};
use crate::message::{Answer, Greeting, HostData, Order, OrderedPoint, SampleAnswer};
use crate::point::Point;
use crate::sample::Failure;
use crate::side::Side;

/// Time limit of the point of [`order`].
pub(crate) const POINT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns a message as the command that sends it.
pub(crate) fn say(answer: &Answer) -> String {
    let mut line = Vec::new();
    crate::message::send(&mut line, answer).unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(!line.contains('\''));
    format!("printf '%s\\n' '{}'", line.trim_end())
}

/// Returns the command that greets from an environment.
pub(crate) fn greet(environment: Environment) -> String {
    say(&Answer::Greeting(Box::new(Greeting::of(environment))))
}

/// Returns a supervisor of workers that send their greeting and then run these scripts.
pub(super) fn supervisor(scripts: &[String]) -> Supervisor<'static> {
    let greeting = greet(Environment::capture());
    without_greeting(
        &scripts.iter().map(|script| format!("{greeting}; {script}")).collect::<Vec<_>>(),
    )
}

/// Returns a supervisor of workers that run these scripts.
pub(super) fn without_greeting(scripts: &[String]) -> Supervisor<'static> {
    let mut supervisor = Supervisor::new(&INTERRUPTED, Side::default(), Processes::default());
    // The tests share a process, and with it their descendants.
    supervisor.kill_descendants = |_| {};
    for script in scripts {
        let script = script.clone();
        supervisor.add(move || {
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            Ok(command.into())
        });
    }
    supervisor
}

/// Handles the report of a delay, of which there is none.
pub(crate) fn unreported(delay: Delay) -> Result<(), RunError> {
    panic!("a start was delayed: {delay:?}")
}

/// Returns guests `mine` of these hosts, which nothing can boot.
pub(crate) fn guests(hosts: &[(&str, CpuClock)]) -> Guests {
    let host = |(name, clock): &(&str, CpuClock)| GuestHost {
        name: (*name).into(),
        guest: Guest {
            name: (*name).into(),
            artefacts: Vec::new(),
            clock: *clock,
            cpus: 1,
            start: Arc::new(|_| Err(Failure::failed("no kernel"))),
            check: Arc::new(|| Ok(())),
        },
    };
    Guests {
        name: "mine".into(),
        declaration: "about = 'a test'".into(),
        accelerator: "tcg".into(),
        clock: CpuClock::Untimed,
        hosts: hosts.iter().map(host).collect(),
        roles_remedy: "use --guest pair".into(),
        console: "tollgate guest ./mine.toml -- list".into(),
    }
}

/// Returns guests whose stores are no longer forwarded.
pub(crate) fn unforwarded(mut guests: Guests) -> Guests {
    for host in &mut guests.hosts {
        host.guest.check = Arc::new(|| Err(Failure::failed("stores are no longer forwarded")));
    }
    guests
}

/// Returns an order of one point.
pub(crate) fn order(role: &str) -> Order {
    let ordered = OrderedPoint {
        position: 0,
        point: Point::from([("length", "1 B")]),
        twin: false,
        limit: POINT_LIMIT,
    };
    Order {
        id: 77,
        suite: "toy".into(),
        experiment: "one".into(),
        method: "one".into(),
        round: 0,
        points: vec![ordered],
        budget: Duration::from_millis(1),
        role: role.into(),
        attempt: 1,
        seed: 0,
        options: Default::default(),
        host: HostData::default(),
        inside: false,
    }
}

/// Returns the command that sends the sample of a role, measured on this host.
pub(crate) fn sample(role: &str, host: Option<&str>) -> String {
    let (order, here) = (order(role), Environment::capture());
    let mut sample = crate::probe::empty_sample(&order, &order.points[0], 1);
    sample.environment = here.id();
    sample.host = host.map_or(here.hostname, str::to_owned);
    say(&Answer::Sample(Box::new(SampleAnswer { order: order.id, role: role.into(), sample })))
}

/// Returns the command that reports that a role is ready.
pub(crate) fn ready() -> String {
    say(&Answer::Ready)
}

/// Returns the command that ends the order.
pub(crate) fn done() -> String {
    say(&Answer::Done { id: 77 })
}
