//! A NIC that takes the form that its first program needs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until there is a NIC.
    generator: Option<Generator>,
    nic: Option<(Nic<Order>, Form)>,
}

impl Stand {
    /// Without a NIC as yet. Doorbells and transfers are modelled to take so long.
    pub(super) fn new(
        traffic: Arc<Traffic>,
        live: Arc<Live>,
        (doorbell, transfer): (Duration, Duration),
    ) -> Result<Self, Error> {
        let cpu = Cpus::of(&machine::topology::allowed_cpus(), 1)?.nic;
        let generator = Some(Generator::new(traffic, live)?);
        let state = Mutex::new(State { generator, nic: None });
        Ok(Self { settings: Settings { cpu, doorbell, transfer }, state })
    }

    /// Gives a program the NIC: it has the form that the first program needed.
    pub(super) fn open(&self, form: Form) -> Result<Access, String> {
        let mut state = self.state();
        if let Some(generator) = state.generator.take() {
            let nic = match form {
                Form::Pipes { notify, ring, notifications } => {
                    let engine = Pipes::new(notify, (ring / FLIT) as u32, notifications);
                    Nic::start(self.settings, engine, generator)
                }
                Form::Descriptors { rx, tx } => {
                    Nic::start(self.settings, Descriptors::new(rx, tx), generator)
                }
            };
            state.nic = Some((nic.map_err(|why| why.to_string())?, form));
        }
        match &state.nic {
            Some((nic, has)) if *has == form => Ok(nic.access()),
            Some((_, has)) => {
                Err(format!("it has {has} and cannot have {form}; start another NIC"))
            }
            None => Err("it did not start; start it again".into()),
        }
    }

    /// The form of the NIC, where there is one.
    pub(super) fn form(&self) -> Option<Form> {
        self.state().nic.as_ref().map(|(_, form)| *form)
    }

    pub(super) fn order(&self, order: Order) {
        if let Some((nic, _)) = &self.state().nic {
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
