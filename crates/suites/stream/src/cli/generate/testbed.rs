//! A NIC that takes the configuration of its first program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::tsc::Tsc;

use crate::cli::Error;
use crate::generator::{Generator, GeneratorCommand, LiveCounters};
use crate::link::{Link, LinkEngine, LinkStatus};
use crate::nic::descriptor::{Descriptor, LongDescriptor, RxSize};
use crate::nic::descriptors::Descriptors;
use crate::nic::layout::FLIT;
use crate::nic::pcie::PcieModel;
use crate::nic::pipes::Pipes;
use crate::nic::vhost::{VhostControl, VirtioNet};
use crate::nic::{Access, Counters, InterfaceConfig, Nic, NicParams};
use crate::wire::traffic::Traffic;

/// A generator and its NIC.
pub(super) struct Testbed {
    params: NicParams,
    traffic: Arc<Traffic>,
    live: Arc<LiveCounters>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` until a program has connected.
    nic: Option<(Nic<GeneratorCommand>, InterfaceConfig)>,
    /// Whether a trial has started; from then on the configuration is fixed.
    started: bool,
}

impl Testbed {
    /// Creates a testbed without a NIC, which will run on `cpu`.
    pub(super) fn new(
        cpu: usize,
        traffic: Arc<Traffic>,
        live: Arc<LiveCounters>,
        pcie: PcieModel,
    ) -> Result<Self, Error> {
        // A missing time-stamp counter is reported now, not to the first program.
        Tsc::get()?;
        let params = NicParams { cpu, pcie, ..NicParams::default() };
        Ok(Self { params, traffic, live, state: Mutex::default() })
    }

    /// Creates a testbed whose NIC sends and receives through a link.
    pub(super) fn with_link(
        cpu: usize,
        traffic: Arc<Traffic>,
        live: Arc<LiveCounters>,
        link: Box<dyn Link>,
        status: Arc<LinkStatus>,
    ) -> Result<Self, Error> {
        let testbed = Self::new(cpu, traffic, live, PcieModel::default())?;
        let generator = Generator::new(Arc::clone(&testbed.traffic), Arc::clone(&testbed.live))?;
        let config = InterfaceConfig::Link(link.mode());
        let nic = Nic::start(testbed.params, LinkEngine::new(link, status), generator)?;
        testbed.state().nic = Some((nic, config));
        Ok(testbed)
    }

    /// Gives a program access to the NIC. A program with another configuration replaces the NIC if no program uses
    /// it and no trial has started.
    ///
    /// # Errors
    /// Returns why the NIC cannot have the configuration.
    pub(super) fn open(&self, config: InterfaceConfig) -> Result<Access, String> {
        let mut state = self.state();
        match &state.nic {
            Some((nic, has)) if *has == config => return Ok(nic.access()),
            Some((nic, has)) if state.started || nic.is_used() => {
                return Err(format!("it has {has} and cannot have {config}; start another NIC"));
            }
            _ => {}
        }
        // Both NICs use the same CPU, on which the old thread would continue to poll.
        state.nic = None;
        let nic = self.start(config).map_err(|why| why.to_string())?;
        let access = nic.access();
        state.nic = Some((nic, config));
        Ok(access)
    }

    fn start(&self, config: InterfaceConfig) -> Result<Nic<GeneratorCommand>, Error> {
        let generator = Generator::new(Arc::clone(&self.traffic), Arc::clone(&self.live))?;
        let nic = match config {
            InterfaceConfig::Pipes { notify, ring, notifications } => {
                let engine = Pipes::new(notify, (ring / FLIT) as u32, notifications);
                Nic::start(self.params, engine, generator)
            }
            InterfaceConfig::Descriptors { rx, tx, size: RxSize::Short } => {
                Nic::start(self.params, Descriptors::<Descriptor>::new(rx, tx), generator)
            }
            InterfaceConfig::Descriptors { rx, tx, size: RxSize::Long } => {
                Nic::start(self.params, Descriptors::<LongDescriptor>::new(rx, tx), generator)
            }
            InterfaceConfig::Virtio { queues } => {
                let engine = VirtioNet::new(queues, Arc::new([]), VhostControl::default());
                Nic::start(self.params, engine, generator)
            }
            InterfaceConfig::Link(_) => {
                return Err("no program attaches to a link; use pipes".into());
            }
        };
        Ok(nic?)
    }

    /// Returns the configuration of the NIC, if there is one.
    pub(super) fn config(&self) -> Option<InterfaceConfig> {
        self.state().nic.as_ref().map(|(_, config)| *config)
    }

    pub(super) fn command(&self, command: GeneratorCommand) {
        let mut state = self.state();
        state.started = true;
        if let Some((nic, _)) = &state.nic {
            nic.command(command);
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
    use crate::wire::sample::{SampleTraffic, Sizes};

    const PIPES: InterfaceConfig =
        InterfaceConfig::Pipes { notify: Notify::Reactively, ring: 64 << 10, notifications: 64 };
    const DESCRIPTORS: InterfaceConfig =
        InterfaceConfig::Descriptors { rx: 64, tx: 64, size: RxSize::Long };

    fn testbed() -> Option<Testbed> {
        let sample = SampleTraffic { packets: 7, size: Sizes::Imix, sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let cpu = machine::topology::allowed_cpus()[0];
        let testbed = Testbed::new(cpu, traffic, Arc::default(), PcieModel::default());
        testbed.inspect_err(|why| machine::untested::note("stream: a generator's NIC", why)).ok()
    }

    #[test]
    fn the_configuration_is_dropped_with_its_last_program() {
        let Some(testbed) = testbed() else { return };
        let one = testbed.open(PIPES).unwrap();
        let other = testbed.open(PIPES).unwrap();
        drop(one);
        let why = testbed.open(DESCRIPTORS).map(|_| ()).unwrap_err();
        assert!(why.contains("start another NIC") && why.lines().count() == 1, "{why}");
        drop(other);
        let access = testbed.open(DESCRIPTORS).unwrap();
        assert_eq!(testbed.config(), Some(DESCRIPTORS));
        assert!(testbed.open(PIPES).is_err());
        drop(access);
    }

    #[test]
    fn the_configuration_is_fixed_once_a_trial_has_started() {
        let Some(testbed) = testbed() else { return };
        drop(testbed.open(PIPES).unwrap());
        let (answer, _reports) = std::sync::mpsc::sync_channel(1);
        testbed.command(GeneratorCommand::Start(Trial::default(), answer));
        assert!(testbed.open(DESCRIPTORS).is_err());
        assert_eq!(testbed.config(), Some(PIPES));
        testbed.open(PIPES).unwrap();
    }
}
