//! A guest that is no more than another worker on this host: what a real one is to the lab.

use std::process::Command;
use std::sync::Arc;

use lab::artefact::{Artefacts, find};
use lab::guest::{Guest, Start};
use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;

use crate::parts::recipe;

/// What makes a guest that never starts: a command that ends at once, with these last words.
const PANIC: &str = "echo 'Kernel panic - not syncing: planted' >&2; echo 'reboot: later' >&2";

/// The guest that a point asks for; none where it stays on the host.
pub(crate) fn of(point: &Point) -> Option<Guest> {
    let place = point.text("place").to_owned();
    if place == "host" {
        return None;
    }
    let artefact = if place == "unmakeable" { "impossible" } else { "table" };
    let artefacts = vec![recipe(artefact)];
    let name = place.clone();
    let start = move |made: &Artefacts| {
        find(made, &recipe(artefact).name)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(lab::worker::WORKER);
        if place == "panic" {
            command = Command::new("sh");
            command.args(["-c", PANIC]);
        }
        Ok(Start { command, held: Vec::new() })
    };
    Some(Guest { name, artefacts, start: Arc::new(start) })
}

pub(crate) struct Place;

impl Probe for Place {
    fn measure(&mut self, context: &mut Context, _: &Point) -> Result<Measurement, Failure> {
        let inside = f64::from(u8::from(context.inside));
        Ok(Measurement::default().value("inside", inside))
    }
}
