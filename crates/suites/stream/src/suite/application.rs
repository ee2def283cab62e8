//! One core of the application, and what its loop says of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;

use super::setting::Setting;
use super::stall::Patience;
use crate::echo::{Interface, work};
use crate::nic::{Port, ticks};
use crate::wire::flow::Flow;

/// Said instead of a number: the loop ends.
const END: u32 = u32::MAX;

/// What one core's loop did since it was last asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Figures {
    /// Packets echoed in turns in which the loop did not stand still.
    pub worked: u64,
    /// Ticks of those of these turns that brought packets.
    pub busy: u64,
    /// The longest turn, ticks.
    pub gap: u64,
    /// Ticks of all turns in which the loop stood still and packets came: they show in that turn or in
    /// the next.
    pub stood: u64,
    /// Those of the last turn, where it stood still.
    standing: u64,
    /// The core clock when this was asked, Hz.
    pub core_hertz: f64,
}

/// What the loop answers.
type Answer = Result<Figures, Failure>;

/// One core of the application.
pub(super) struct Application {
    said: Arc<AtomicU32>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Application {
    /// Starts one, with a pipe for each flow, and waits until it runs.
    ///
    /// # Errors
    /// Where it cannot be set up.
    pub(super) fn start(
        cpu: usize,
        port: Port,
        setting: &Setting,
        flows: Arc<[Flow]>,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let said = Arc::new(AtomicU32::new(0));
        let (answer, answers) = sync_channel(1);
        let setting = setting.clone();
        let run = Loop {
            said: Arc::clone(&said),
            answer: answer.clone(),
            cycles: setting.cycles,
            patience,
        };
        let body = move || {
            if let Err(why) = setting.interface.run(&port, &setting, &flows, run) {
                // Who started it waits for this.
                let _ = answer.send(Err(why.into()));
            }
        };
        let thread = spawn_pinned(cpu, body).map_err(|why| {
            Failure::failed(format!("run the application on CPU {cpu}: {why}; name an allowed CPU"))
        })?;
        let application = Self { said, answers, thread: Some(thread) };
        application.heard()?;
        Ok(application)
    }

    /// What its loop did since this was last asked. It answers in a turn in which nothing has come.
    ///
    /// # Errors
    /// Where it has ended.
    pub(super) fn figures(&self) -> Result<Figures, Failure> {
        self.said.fetch_add(1, Ordering::Relaxed);
        self.heard()
    }

    fn heard(&self) -> Result<Figures, Failure> {
        let gone = || Failure::failed("the application ended before its time");
        self.answers.recv().map_err(|_| gone())?
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.said.store(END, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and shows as an answer that never came.
            let _ = thread.join();
        }
    }
}

/// The loop of one core.
pub(super) struct Loop {
    said: Arc<AtomicU32>,
    answer: SyncSender<Answer>,
    cycles: u32,
    patience: Patience,
}

impl Loop {
    /// Echoes until it is told to end.
    pub(super) fn run(self, mut echo: impl Interface) {
        let Self { said, answer, cycles, patience } = self;
        let mut known = 0;
        // That it runs.
        if answer.send(Ok(Figures::default())).is_err() {
            return;
        }
        let mut figures = Figures::default();
        let mut last = ticks();
        loop {
            let word = said.load(Ordering::Relaxed);
            let Ok(packets) = echo.turn(|packet| work(packet, cycles)) else { return };
            let now = ticks();
            let took = now - last;
            last = now;
            figures.turned(took, packets, &patience);
            if word != known && (packets == 0 || word == END) {
                std::hint::cold_path();
                known = word;
                let asked = figures.taken();
                if word == END || answer.send(asked).is_err() {
                    return;
                }
                last = ticks();
            }
        }
    }
}

impl Figures {
    #[inline(always)]
    fn turned(&mut self, took: u64, packets: u64, patience: &Patience) {
        let standing = if patience.ends(took, packets) { took } else { 0 };
        if packets > 0 {
            self.stood += self.standing + standing;
            if standing == 0 {
                self.worked += packets;
                self.busy += took;
            }
        }
        self.standing = standing;
        if took > self.gap {
            self.gap = took;
        }
    }

    /// What stands here, from which all begins anew.
    fn taken(&mut self) -> Answer {
        let core_hertz = machine::core_clock::hertz()?;
        let taken = Self { core_hertz, ..*self };
        *self = Self::default();
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_turns_with_packets_are_work() {
        let patience = Patience { stall: 1000, allowed: 10 };
        let mut figures = Figures::default();
        figures.turned(50, 0, &patience);
        figures.turned(80, 4, &patience);
        figures.turned(1500, 100, &patience);
        figures.turned(1500, 10, &patience);
        let Figures { worked, busy, gap, stood, .. } = figures;
        assert_eq!((worked, busy, gap, stood), (104, 1580, 1500, 1500));
    }

    #[test]
    fn a_loop_that_stood_still_while_nothing_came_lost_nothing() {
        let patience = Patience { stall: 1000, allowed: 10 };
        let mut figures = Figures::default();
        figures.turned(5000, 0, &patience);
        figures.turned(20, 0, &patience);
        figures.turned(20, 3, &patience);
        assert_eq!((figures.gap, figures.stood), (5000, 0));
        figures.turned(5000, 0, &patience);
        figures.turned(20, 3, &patience);
        figures.turned(20, 3, &patience);
        assert_eq!(figures.stood, 5000, "what came meanwhile was there in the next turn");
    }
}
