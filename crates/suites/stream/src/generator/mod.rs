//! The generator at the other end of the wire: it sends packets at a given pace and verifies the echoed ones.
//!
//! The Ethernet addresses of each packet identify it: the first four bytes are its number in its sequence (its flow, unless
//! the traffic states another one), the next four its index in the traffic, the last four its sending time, or 0 if it is not
//! timed. A link between two machines needs no addresses, and everything from the IPv4 header on is as in the file.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

mod burst;
mod checked;
mod iteration_times;
mod pace;
mod packet_checker;
#[cfg(test)]
mod read_tests;
mod times;
mod trial;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use machine::Unavailable;
use machine::tsc::Tsc;

use crate::iterations::{LoopTimes, PacketCost};
use crate::nic::ticks;
use crate::wire::traffic::{Packet, Traffic};
use crate::wire::{PacketRef, TxCount, Wire};
use burst::{Burst, Position};
use checked::Checked;
use iteration_times::IterationTimes;
pub use pace::Pace;
use pace::Paced;
pub use packet_checker::{Check, Modification, TOUCHED};
pub(crate) use packet_checker::{TOUCH, WORD};
use times::Timing;
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
    /// Number in its sequence in the first round.
    first: u32,
    /// Packets of its sequence per round.
    each: u32,
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
    /// Time of the last received packets, and their number by then, once all are sent.
    last_received: (u64, u64),
    sent: u64,
    /// Bytes of the sent packets on the wire.
    sent_bytes: u64,
    dropped: u64,
    checked: Checked,
    timing: Timing,
    /// Mean size of a packet on the wire, in bytes.
    wire_bytes: f64,
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
    /// Returns why the time-stamp counter cannot be used.
    pub fn new(traffic: Arc<Traffic>, live: Arc<LiveCounters>) -> Result<Self, Unavailable> {
        let tsc = Tsc::get()?;
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
            checked: Checked::default(),
            timing: Timing::of_none(),
            wire_bytes: 0.0,
            ticks_per_second: tsc.hertz,
            live,
            next_update: 0,
            update_interval: tsc.ticks(UPDATE_INTERVAL),
            left_over: tsc.ticks(MAX_LEFT_OVER_WAIT),
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
                    first: before[*sequence as usize] - 1,
                    each: 0,
                }
            })
            .collect();
        for (template, sequence) in self.templates.iter_mut().zip(&sequences.of_packet) {
            template.each = before[*sequence as usize];
        }
        self.checked = Checked::new(&traffic, &sequences);
        self.wire_bytes = traffic.total_wire_bytes() as f64 / traffic.len() as f64;
        self.epoch += 1;
        self.position = Position::default();
        self.traffic = traffic;
    }

    fn start(&mut self, trial: Trial, answer: SyncSender<Report>) {
        self.checked.prepare(&trial);
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
        let left_over = self.in_flight() > 0 && now < waiting + self.left_over;
        if now < waiting || left_over {
            return;
        }
        self.begin();
    }

    /// Starts sending. Packets received before are ignored.
    fn begin(&mut self) {
        (self.sent, self.sent_bytes, self.dropped) = (0, 0, 0);
        self.position = Position::default();
        self.checked.begin();
        self.timing = self.timed_every().map_or(Timing::of_none(), Timing::of_every);
        self.empty_iteration = self.iterations.times.empty_iteration();
        let cost = if self.trial.learns { PacketCost::learning() } else { PacketCost::known() };
        self.start = ticks();
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
        self.last_received = (now, self.checked.received());
        self.state = State::Draining(now + self.trial.drain);
    }

    fn finish(&mut self) {
        self.state = State::Idle;
        let report = Report {
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            dropped: self.dropped,
            start: self.start,
            ended_sending: self.ended_sending,
            ended: self.last_received.0,
            iterations: self.sending,
            empty_iteration: self.empty_iteration,
            packet_cost: self.iterations.cost.typical(),
            core_hertz: machine::core_clock::hertz().ok(),
            timed_every: self.timed_every().unwrap_or_default(),
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

    /// Returns the number of packets that the NIC has accepted and that have not been echoed.
    fn in_flight(&self) -> u64 {
        (self.sent - self.dropped).saturating_sub(self.checked.received())
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
    fn end_iteration(&mut self, now: u64) {
        self.end_iteration_at(now);
        if let State::Draining(until) = self.state {
            let received = self.checked.received();
            if received != self.last_received.1 {
                self.last_received = (ticks(), received);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::iterations::StallThreshold;
    use crate::nic::layout::FLIT;
    use crate::wire::sample::{SampleTraffic, Sizes};
    use crate::wire::traffic::CacheLine;
    use crate::wire::vector::Plain;
    use crate::wire::{List, PacketRun, RxBurst};

    const COUNT: usize = 16;

    fn wait(time: Duration) {
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn only_a_stall_extends_the_duration_of_sending() {
        const STALL: u64 = 100_000;
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let trial = Trial {
            pace: Pace::packets(1e6, 88.0, 1e9),
            duration: 10 * STALL,
            threshold: StallThreshold::of_ticks(STALL, 0),
            ..Trial::default()
        };
        let due_after = |step: u64| {
            let (answer, _report) = sync_channel(1);
            let live = Arc::new(LiveCounters::default());
            let mut generator = Generator::new(Arc::clone(&traffic), live).unwrap();
            generator.command(GeneratorCommand::Start(trial, answer));
            generator.next_burst(ticks(), 0);
            let (start, end) = (generator.start, generator.start + trial.duration);
            let mut now = start;
            while now < end {
                generator.next_burst(now, 0);
                generator.end_iteration(now);
                now += step;
            }
            generator.next_burst(now, 8).count()
        };
        assert_eq!(due_after(STALL / 2), 0);
        assert_eq!(due_after(3 * STALL), 8);
    }

    #[test]
    fn a_late_packet_of_the_previous_trial_extends_the_wait() {
        const WAIT: u64 = 1 << 40;
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let live = Arc::new(LiveCounters::default());
        let mut generator = Generator::new(Arc::clone(&traffic), live).unwrap();
        let trial = Trial { wait: WAIT, duration: WAIT, ..Trial::default() };
        let (answer, _report) = sync_channel(1);
        generator.command(GeneratorCommand::Start(trial, answer));
        let State::Waiting(until) = generator.state else { panic!("it waits") };
        // SAFETY: the traffic's packet is a whole flit.
        unsafe { generator.on_transmit(traffic.lines(0).as_ptr().cast(), FLIT) };
        let mut is_waiting_at = |now| {
            generator.next_burst(now, 0);
            matches!(generator.state, State::Waiting(_))
        };
        assert!(is_waiting_at(until), "a packet has returned");
        assert!(is_waiting_at(until + WAIT - 1));
        assert!(!is_waiting_at(until + WAIT));
    }

    #[test]
    fn packets_of_a_burst_have_separate_round_trip_times() {
        let late = Duration::from_millis(30);
        let Some(tsc) = machine::untested::tsc("stream: round trips of a burst") else {
            return;
        };
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let mut generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let (answer, report) = sync_channel(1);
        let trial = Trial {
            pace: Pace::packets(1e6, 88.0, tsc.hertz),
            count: COUNT as u64,
            duration: u64::MAX / 4,
            modification: Modification::None,
            times: true,
            ..Trial::default()
        };
        generator.command(GeneratorCommand::Start(trial, answer));
        generator.next_burst(ticks(), 0);
        // All packets become due.
        wait(Duration::from_millis(1));
        let mut memory = [CacheLine([0; FLIT]); COUNT];
        let start = memory.as_mut_ptr().cast::<u8>();
        let burst = generator.next_burst(ticks(), COUNT as u32);
        assert_eq!(burst.count() as usize, COUNT);
        let list = List { start: 0, len: 1 };
        let run = PacketRun { place: start, count: COUNT as u32, list, at: 0 };
        // SAFETY: the local memory has space for all packets.
        unsafe { burst.deliver::<Plain>(&[0], &[run]) };
        for half in 0..2 {
            let bytes = COUNT / 2 * FLIT;
            // SAFETY: the memory contains this many bytes of whole flits.
            let taken = unsafe { generator.on_transmit(start.wrapping_add(half * bytes), bytes) };
            assert_eq!(taken.bytes, bytes);
            wait(late);
        }
        generator.next_burst(ticks(), 1);
        generator.end_iteration(ticks());
        let report = report.try_recv().unwrap();
        assert_eq!((report.received, report.corrupted, report.timed_every), (16, 0, 1));
        let times = report.times.unwrap();
        let late = (tsc.ticks(late) as f64 * 0.998) as u64;
        // The first half returned immediately, or as late as the host allowed, but before the second.
        assert!(times.len() == 16 && times.count_between(late, u64::MAX / 2) >= 8);
        assert!(times.min() + late <= times.max() + late / 100, "{} {}", times.min(), times.max());
    }
}
