//! A guest that is another worker on this host: to the lab it looks like a virtual machine.

use std::process::Command;
use std::sync::Arc;

use lab::artefact::{Artefacts, find};
use lab::factor::LevelType;
use lab::guest::{BootCommand, Guest, IN_GUEST};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use machine::cpu::CpuClock;

use crate::parts::{Artefact, recipe};

/// Command of a guest that fails to boot: it prints a panic and exits.
const PANIC: &str = "echo 'Kernel panic - not syncing: planted' >&2; echo 'reboot: later' >&2";

/// Location in which a point is measured.
#[derive(Clone, Copy, LevelType)]
pub(crate) enum Location {
    /// On the host.
    Host,
    /// In a guest.
    Guest,
    /// In a guest whose kernel panics as it boots.
    Panic,
    /// In a guest that needs an artefact that cannot be made.
    Unmakeable,
}

/// Params of `guest`.
#[derive(Params)]
pub(crate) struct GuestParams {
    /// where the point runs: on the host, in a guest, or in a guest that does not start
    #[factor(default = "host")]
    place: Location,
}

/// The method `guest`: measures in a guest.
pub(crate) struct InGuest;

impl Method for InGuest {
    type Params = GuestParams;

    fn name(&self) -> &'static str {
        "guest"
    }

    fn how(&self) -> &'static str {
        "A point is measured by a worker inside a guest. Its value is known."
    }

    fn metrics(&self) -> &'static [Metric] {
        const METRICS: &[Metric] = &[Metric::count("inside", "1 in a guest, 0 on the host")];
        METRICS
    }

    fn guest(&self, params: &GuestParams) -> Option<Guest> {
        let artefact = match params.place {
            Location::Host => return None,
            Location::Guest | Location::Panic => Artefact::Table,
            Location::Unmakeable => Artefact::Impossible,
        };
        let place = params.place;
        let start = move |made: &Artefacts| {
            find(made, &recipe(artefact).name)?;
            Ok(BootCommand::of_guest(command(place), Vec::new(), "it has no KVM"))
        };
        let artefacts = vec![recipe(artefact)];
        Some(Guest {
            name: place.name().into(),
            artefacts,
            clock: CpuClock::Real,
            cpus: 1,
            start: Arc::new(start),
            check: Arc::new(|| Ok(())),
        })
    }

    fn probe(&self) -> Result<Box<dyn Probe<GuestParams>>, Failure> {
        Ok(Box::new(measure))
    }
}

/// Returns the command that starts a guest.
fn command(place: Location) -> Command {
    match place {
        Location::Panic => {
            let mut command = Command::new("sh");
            command.args(["-c", PANIC]);
            command
        }
        Location::Host | Location::Guest | Location::Unmakeable => {
            let mut command = Command::new("/proc/self/exe");
            command.args(lab::worker::WORKER).env(IN_GUEST, "yes");
            command
        }
    }
}

fn measure(context: &mut Context, _: &GuestParams) -> Result<Measurement, Failure> {
    let inside = f64::from(u8::from(context.inside));
    Ok(Measurement::default().value("inside", inside))
}
