//! A NIC that takes the form that programs need.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machine::tsc::Tsc;

use crate::generator::{Generator, Live, Order};
use crate::hand::Error;
use crate::nic::descriptors::Descriptors;
use crate::nic::layout::FLIT;
use crate::nic::pipes::Pipes;
use crate::nic::{Access, Counters, Form, Nic, Settings};
use crate::suite::setting::Cpus;
use crate::wire::traffic::Traffic;

/// A generator, and the NIC at whose wire it is.
pub(super) struct Stand {
    settings: Settings,
    traffic: Arc<Traffic>,
    live: Arc<Live>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None until a program has come.
    nic: Option<(Nic<Order>, Form)>,
    /// Whether a trial has begun: from then on the NIC stays what it is.
    begun: bool,
}

impl Stand {
    /// Without a NIC as yet. Doorbells and transfers are modelled to take so long.
    pub(super) fn new(
        traffic: Arc<Traffic>,
        live: Arc<Live>,
        (doorbell, transfer): (Duration, Duration),
    ) -> Result<Self, Error> {
        let cpu = Cpus::of(&machine::topology::allowed_cpus(), 1)?.nic;
        // Without the counter there is no NIC: that is said at once, not to the first program.
        Tsc::get()?;
        let settings = Settings { cpu, doorbell, transfer };
        Ok(Self { settings, traffic, live, state: Mutex::default() })
    }

    /// Gives a program the NIC. It has the form that the first program needed; another one where all that
    /// had it are gone and no trial has begun.
    pub(super) fn open(&self, form: Form) -> Result<Access, String> {
        let mut state = self.state();
        match &state.nic {
            Some((nic, has)) if *has == form => return Ok(nic.access()),
            Some((nic, has)) if state.begun || nic.is_used() => {
                return Err(format!("it has {has} and cannot have {form}; start another NIC"));
            }
            _ => {}
        }
        // Both are on one CPU, which the old one's thread would not leave by itself.
        state.nic = None;
        let nic = self.start(form).map_err(|why| why.to_string())?;
        let access = nic.access();
        state.nic = Some((nic, form));
        Ok(access)
    }

    fn start(&self, form: Form) -> Result<Nic<Order>, Error> {
        let generator = Generator::new(Arc::clone(&self.traffic), Arc::clone(&self.live))?;
        let nic = match form {
            Form::Pipes { notify, ring, notifications } => {
                let engine = Pipes::new(notify, (ring / FLIT) as u32, notifications);
                Nic::start(self.settings, engine, generator)
            }
            Form::Descriptors { rx, tx } => {
                Nic::start(self.settings, Descriptors::new(rx, tx), generator)
            }
        };
        Ok(nic?)
    }

    /// The form of the NIC, where there is one.
    pub(super) fn form(&self) -> Option<Form> {
        self.state().nic.as_ref().map(|(_, form)| *form)
    }

    pub(super) fn order(&self, order: Order) {
        let mut state = self.state();
        state.begun = true;
        if let Some((nic, _)) = &state.nic {
            nic.order(order);
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.state().nic.as_ref().map(|(nic, _)| nic.counters()).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Trial;
    use crate::nic::pipes::Notify;
    use crate::wire::sample::{Sample, Sizes};

    const PIPES: Form =
        Form::Pipes { notify: Notify::Reactively, ring: 64 << 10, notifications: 64 };
    const DESCRIPTORS: Form = Form::Descriptors { rx: 64, tx: 64 };

    fn stand() -> Option<Stand> {
        let sample = Sample { packets: 7, size: Sizes::Mixed, sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let stand = Stand::new(traffic, Arc::default(), (Duration::ZERO, Duration::ZERO));
        stand.inspect_err(|why| machine::untested::note("stream: a generator's NIC", why)).ok()
    }

    #[test]
    fn the_form_is_forgotten_with_the_last_program_that_had_it() {
        let Some(stand) = stand() else { return };
        let one = stand.open(PIPES).unwrap();
        let other = stand.open(PIPES).unwrap();
        drop(one);
        let why = stand.open(DESCRIPTORS).map(|_| ()).unwrap_err();
        assert!(why.contains("start another NIC") && why.lines().count() == 1, "{why}");
        drop(other);
        let access = stand.open(DESCRIPTORS).unwrap();
        assert_eq!(stand.form(), Some(DESCRIPTORS));
        assert!(stand.open(PIPES).is_err());
        drop(access);
    }

    #[test]
    fn the_form_stays_once_a_trial_has_begun() {
        let Some(stand) = stand() else { return };
        drop(stand.open(PIPES).unwrap());
        let (answer, _reports) = std::sync::mpsc::sync_channel(1);
        stand.order(Order::Start(Trial::default(), answer));
        assert!(stand.open(DESCRIPTORS).is_err());
        assert_eq!(stand.form(), Some(PIPES));
        stand.open(PIPES).unwrap();
    }
}
