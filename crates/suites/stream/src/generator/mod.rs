//! The generator at the other end of the wire: it sends packets at a given pace and verifies the returned ones.
//!
//! Each packet has a [mark](crate::wire::mark) by which it is recognised: its index in the traffic, its number in its sequence
//! (its flow, unless the traffic states another one), and its sending time. The expected content of a returned packet
//! follows from the traffic and the [expectation](Expectation) of the trial, never from returned packets.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod answers;
mod burst;
mod checked;
#[cfg(test)]
mod expectation_tests;
mod iteration_times;
mod pace;
mod packet_checker;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod tests;
mod times;
mod trial;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use machine::Unavailable;
use machine::tsc::TickRate;

use crate::iterations::{LoopTimes, PacketCost};
use crate::nic::ticks;
use crate::wire::traffic::{Packet, Traffic};
use crate::wire::{Flow, PacketRef, TxCount, Wire};
use burst::{Burst, Position};
use checked::Checked;
use iteration_times::IterationTimes;
pub use pace::Pace;
use pace::Paced;
pub use packet_checker::{Check, Expectation, TOUCHED};
pub(crate) use packet_checker::{TOUCH, WORD};
use times::{Numbering, Timing};
pub use trial::{CounterSnapshot, LiveCounters, Report, Trial};

/// Interval at which the live counters are updated.
const UPDATE_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum wait for packets of the previous trial. Packets that come even later disturb the next one.
const MAX_LEFT_OVER_WAIT: Duration = Duration::from_millis(250);

/// A command to the generator.
pub enum GeneratorCommand {
    /// Replaces the traffic.
    Send(Arc<Traffic>),
    /// Starts a trial, whose report is sent when it ends.
    Start(Trial, SyncSender<Report>),
    /// Ends the running trial early.
    Stop,
}

/// A packet of the traffic, prepared for sending.
#[derive(Debug, Clone, Copy)]
struct Template {
    source: *const u8,
    flits: u32,
    wire_bytes: u32,
    /// Its number in its sequence in the first round, and the packets of its sequence per round.
    numbering: Numbering,
}

/// State of the generator.
enum State {
    Idle,
    /// Waiting until this time before a trial starts.
    Waiting(u64),
    Sending,
    /// Everything is sent; packets may be echoed until this time.
    Draining(u64),
}

/// A traffic generator and verifier.
pub struct Generator {
    traffic: Arc<Traffic>,
    epoch: u64,
    templates: Vec<Template>,
    position: Position,
    paced: Paced,
    state: State,
    trial: Trial,
    answer: Option<SyncSender<Report>>,
    /// Packets received when the wait for the trial was last checked.
    received_before: u64,
    start: u64,
    iterations: IterationTimes,
    /// Iterations up to the last sent packet.
    sending: LoopTimes,
    /// See [`Report::empty_iteration`].
    empty_iteration: Option<f64>,
    ended_sending: u64,
    /// Time of the last packets that returned or were freed, and their number by then, once all are sent.
    last_received: (u64, u64),
    sent: u64,
    /// Bytes of the sent packets on the wire.
    sent_bytes: u64,
    dropped: u64,
    /// Flits of packets that the application has not freed; `None` if the NIC does not know.
    unread: Option<u64>,
    checked: Checked,
    timing: Timing,
    /// Size of the packets before each packet of a round on the wire, and of the whole round, in bytes.
    wire_before: Vec<u64>,
    /// Mean size of a packet on the wire, in bytes.
    wire_bytes: f64,
    /// Packets per flit of the traffic.
    per_flit: f64,
    ticks_per_second: f64,
    live: Arc<LiveCounters>,
    /// Time of the next update of the live counters, and the interval, in ticks.
    next_update: u64,
    update_interval: u64,
    /// Maximum wait for packets of the previous trial, in ticks.
    left_over: u64,
}

// SAFETY: the templates' pointers refer to the traffic, which is immutable and kept by the generator.
unsafe impl Send for Generator {}

impl Generator {
    /// Creates a generator without a trial. Its progress is published in `live`.
    ///
    /// # Errors
    /// Returns why there is no time-stamp counter.
    pub fn new(traffic: Arc<Traffic>, live: Arc<LiveCounters>) -> Result<Self, Unavailable> {
        let rate = TickRate::get()?;
        let mut generator = Self {
            traffic: Arc::clone(&traffic),
            epoch: 0,
            templates: Vec::new(),
            position: Position::default(),
            paced: Paced::default(),
            state: State::Idle,
            trial: Trial::default(),
            answer: None,
            received_before: 0,
            start: 0,
            iterations: IterationTimes::from(0, PacketCost::known()),
            sending: LoopTimes::default(),
            empty_iteration: None,
            ended_sending: 0,
            last_received: (0, 0),
            sent: 0,
            sent_bytes: 0,
            dropped: 0,
            unread: None,
            checked: Checked::default(),
            timing: Timing::of_none(),
            wire_before: Vec::new(),
            wire_bytes: 0.0,
            per_flit: 0.0,
            ticks_per_second: rate.hertz,
            live,
            next_update: 0,
            update_interval: rate.ticks(UPDATE_INTERVAL),
            left_over: rate.ticks(MAX_LEFT_OVER_WAIT),
        };
        generator.load(traffic);
        Ok(generator)
    }

    fn load(&mut self, traffic: Arc<Traffic>) {
        let sequences = trial::sequences(&traffic);
        let each = traffic.packets().iter().enumerate().zip(&sequences.of_packet);
        let mut before = vec![0; sequences.count];
        self.templates = each
            .map(|((index, packet), sequence)| {
                before[*sequence as usize] += 1;
                Template {
                    source: traffic.lines(index).as_ptr().cast(),
                    flits: traffic.lines(index).len() as u32,
                    wire_bytes: packet.wire_bytes(),
                    numbering: Numbering { first: before[*sequence as usize] - 1, each: 0 },
                }
            })
            .collect();
        for (template, sequence) in self.templates.iter_mut().zip(&sequences.of_packet) {
            template.numbering.each = before[*sequence as usize];
        }
        let each = traffic.packets().iter().map(|packet| u64::from(packet.wire_bytes()));
        let ends = each.scan(0, |end, bytes| {
            *end += bytes;
            Some(*end)
        });
        self.wire_before = std::iter::once(0).chain(ends).collect();
        self.checked = Checked::new(&traffic, &sequences);
        self.wire_bytes = traffic.total_wire_bytes() as f64 / traffic.len() as f64;
        let flits: u64 = self.templates.iter().map(|template| u64::from(template.flits)).sum();
        self.per_flit = traffic.len() as f64 / flits as f64;
        self.epoch += 1;
        self.position = Position::default();
        self.traffic = traffic;
    }

    fn start(&mut self, trial: Trial, answer: SyncSender<Report>) {
        let numbering = self.templates.iter().map(|template| template.numbering);
        self.checked.prepare(&trial, &self.traffic, numbering);
        self.trial = trial;
        self.answer = Some(answer);
        self.received_before = self.checked.received();
        let now = ticks();
        self.iterations = IterationTimes::from(now, PacketCost::known());
        self.state = State::Waiting(now + trial.wait);
    }

    /// Starts sending once the wait is over and packets of the previous trial have returned. Each that returns extends the
    /// wait, because others may follow it: a thread that has lost its CPU finds them all when it continues.
    #[inline(never)]
    fn begin_after(&mut self, waiting: u64, now: u64) {
        let received = self.checked.received();
        if received != self.received_before {
            self.received_before = received;
            self.state = State::Waiting(waiting.max(now + self.trial.wait));
            return;
        }
        // Of descriptors that an application consumes it is unknown, so nothing would end the wait.
        let is_known = self.trial.expectation != Expectation::Nothing || self.unread.is_some();
        let left_over = is_known && self.in_flight() > 0 && now < waiting + self.left_over;
        if now < waiting || left_over {
            return;
        }
        self.begin();
    }

    /// Starts sending. Packets received before are ignored.
    fn begin(&mut self) {
        (self.sent, self.sent_bytes, self.dropped) = (0, 0, 0);
        self.position = Position::default();
        self.start = ticks();
        self.checked.begin(self.start);
        self.timing = self.timed_every().map_or(Timing::of_none(), Timing::of_every);
        self.empty_iteration = self.iterations.times.empty_iteration();
        let cost = if self.trial.learns { PacketCost::learning() } else { PacketCost::known() };
        self.paced = Paced::new(self.trial.pace, self.start);
        self.iterations = IterationTimes::from(self.start, cost);
        self.state = State::Sending;
    }

    /// Returns the timing interval in packets, or `None` if round-trip times are not measured.
    fn timed_every(&self) -> Option<u32> {
        let (packets, pace) = (self.traffic.len(), self.trial.pace);
        let every = || times::interval(pace, self.wire_bytes, packets, self.ticks_per_second);
        self.trial.times.then(every)
    }

    fn stop_sending(&mut self, now: u64) {
        self.end_iteration_at(now);
        self.sending = self.iterations.times;
        self.ended_sending = now;
        self.last_received = (now, self.finished());
        self.state = State::Draining(now + self.trial.drain);
    }

    fn finish(&mut self) {
        self.state = State::Idle;
        let report = Report {
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            dropped: self.dropped,
            consumed: self.unread.map(|_| self.finished()),
            start: self.start,
            ended_sending: self.ended_sending,
            ended: self.last_received.0,
            iterations: self.sending,
            empty_iteration: self.empty_iteration,
            packet_cost: self.iterations.cost.typical(),
            core_hertz: machine::core_clock::hertz().ok(),
            timed_every: self.timed_every().unwrap_or_default(),
            expectation: self.trial.expectation,
            ..self.checked.report()
        };
        self.live.publish(self.snapshot());
        if let Some(answer) = self.answer.take() {
            // The receiver may have gone.
            let _ = answer.send(report);
        }
    }

    fn snapshot(&self) -> CounterSnapshot {
        let (sent, sent_bytes) = (self.sent, self.sent_bytes);
        CounterSnapshot { sent, sent_bytes, ..self.checked.snapshot() }
    }

    #[inline(always)]
    fn end_iteration_at(&mut self, now: u64) {
        self.iterations.end_iteration(now, self.sent + self.checked.received(), &self.trial);
    }

    /// Returns the number of packets that the NIC has accepted and that have not returned or, if none is expected to, that the
    /// application has not freed.
    fn in_flight(&self) -> u64 {
        let accepted = self.sent - self.dropped;
        match (self.trial.expectation, self.unread) {
            (Expectation::Nothing, Some(flits)) => {
                ((flits as f64 * self.per_flit).ceil() as u64).min(accepted)
            }
            (Expectation::Nothing, None) => accepted,
            (
                Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers,
                _,
            ) => accepted.saturating_sub(self.checked.received()),
        }
    }

    /// Returns the number of packets that have returned or been freed, as far as it is known.
    fn finished(&self) -> u64 {
        match self.trial.expectation {
            Expectation::Nothing => (self.sent - self.dropped) - self.in_flight(),
            Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers => {
                self.checked.received()
            }
        }
    }

    /// Returns whether the duration of sending is over, without the time of stalls: the packets of a time in which the host
    /// ran something else are sent afterwards, not lost.
    #[cold]
    fn is_over(&mut self, now: u64) -> bool {
        self.end_iteration_at(now);
        now >= self.start + self.trial.duration + self.iterations.times.stalled
    }

    /// Returns the number of packets to send by now, at most `max`.
    #[inline(always)]
    fn packets_due(&mut self, now: u64, max: u32) -> u32 {
        match self.state {
            State::Sending => {}
            State::Waiting(until) => {
                self.begin_after(until, now);
                return 0;
            }
            State::Idle | State::Draining(_) => return 0,
        }
        let left = self.trial.count - self.sent;
        if left == 0 || (now >= self.start + self.trial.duration && self.is_over(now)) {
            self.stop_sending(now);
            return 0;
        }
        let max = u64::from(max).min(left);
        match self.paced.window() {
            Some(window) => max.min(window.saturating_sub(self.in_flight())) as u32,
            None => {
                let wire_bytes = self.templates[self.position.index as usize].wire_bytes;
                self.paced.packets_due(now, max as u32, wire_bytes)
            }
        }
    }
}

impl Wire for Generator {
    type Command = GeneratorCommand;
    type RxBurst<'a> = Burst<'a>;

    fn command(&mut self, command: GeneratorCommand) {
        match command {
            GeneratorCommand::Send(traffic) => self.load(traffic),
            GeneratorCommand::Start(trial, answer) => self.start(trial, answer),
            GeneratorCommand::Stop => {
                if let State::Waiting(_) = self.state {
                    self.begin();
                }
                if let State::Sending = self.state {
                    self.stop_sending(ticks());
                }
            }
        }
    }

    fn packets(&self) -> (u64, &[Packet]) {
        (self.epoch, self.traffic.packets())
    }

    fn returning_flows(&self) -> Vec<Flow> {
        self.traffic.returning_flows()
    }

    #[inline(always)]
    fn next_burst(&mut self, now: u64, max: u32) -> Burst<'_> {
        let count = self.packets_due(now, max);
        Burst { count, generator: self }
    }

    #[inline(always)]
    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: the caller guarantees the same.
        unsafe { self.checked.take(start, bytes) }
    }

    #[inline(always)]
    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: the caller guarantees the same.
        unsafe { self.checked.take_scattered(packets) };
    }

    #[inline(always)]
    fn on_unread(&mut self, flits: u64) {
        self.unread = Some(flits);
    }

    #[inline(always)]
    fn end_iteration(&mut self, now: u64) {
        self.end_iteration_at(now);
        self.checked.end_iteration(now, self.position);
        if let State::Draining(until) = self.state {
            let finished = self.finished();
            if finished != self.last_received.1 {
                self.last_received = (ticks(), finished);
            }
            if self.in_flight() == 0 || now >= until {
                self.finish();
            }
        }
        if now >= self.next_update {
            self.next_update = now + self.update_interval;
            self.live.publish(self.snapshot());
        }
    }
}
