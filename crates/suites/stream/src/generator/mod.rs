//! The generator: it sits at the other end of the wire, sends packets at a rate and checks what comes back.
//!
//! Each packet says in its Ethernet addresses which it is: the first four bytes count the packets of its
//! flow, the next four say which packet of the traffic it is, the last four when it was sent, or 0 where
//! round-trip times are taken and not this packet's. A link between
//! two machines needs no addresses, and everything from the IPv4 header on is as in the file.

mod burst;
mod checked;
mod iteration_times;
mod pace;
mod packet_checker;
mod times;
mod trial;

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use machine::tsc::{Tsc, Unavailable};

use crate::nic::ticks;
use crate::wire::traffic::{Packet, Traffic};
use crate::wire::{PacketRef, TxCount, Wire};
use burst::{Burst, Position};
use checked::Checked;
use iteration_times::IterationTimes;
pub use pace::Pace;
use pace::Paced;
pub use packet_checker::{Check, TOUCHED};
pub(crate) use packet_checker::{TOUCH, WORD};
use times::Timing;
pub use trial::{CounterSnapshot, LiveCounters, Report, Trial};

/// How often others see how far it is.
const SHOWN_EVERY: Duration = Duration::from_millis(1);

/// How long a trial waits at most for packets of the one before. Those that come later still are of no
/// trial, and disturb this one.
const LEFT_OVER: Duration = Duration::from_millis(250);

/// What the generator is told.
pub enum GeneratorCommand {
    /// Sends this from now on.
    Send(Arc<Traffic>),
    /// Starts a trial; its report comes when it is over.
    Start(Trial, SyncSender<Report>),
    /// Ends the trial under way early.
    Stop,
}

/// What a packet looks like before it is sent.
#[derive(Debug, Clone, Copy)]
struct Template {
    source: *const u8,
    flits: u32,
    wire_bytes: u32,
    /// The number that the packet has in its flow in the first round of the traffic.
    first: u32,
    /// How many packets of its flow each round has.
    each: u32,
}

/// What the generator is doing.
enum State {
    Idle,
    /// A trial begins then.
    Waiting(u64),
    Sending,
    /// Everything is sent; what is under way may still come back, until then.
    Draining(u64),
}

/// The generator.
pub struct Generator {
    traffic: Arc<Traffic>,
    epoch: u64,
    templates: Vec<Template>,
    position: Position,
    paced: Paced,
    state: State,
    trial: Trial,
    answer: Option<SyncSender<Report>>,
    start: u64,
    turns: IterationTimes,
    /// The turns while packets were sent.
    sending: IterationTimes,
    ended_sending: u64,
    sent: u64,
    dropped: u64,
    checked: Checked,
    timing: Timing,
    /// Bytes of a packet on the wire, in the mean.
    wire_bytes: f64,
    ticks_per_second: f64,
    live: Arc<LiveCounters>,
    /// When it is shown next, and how often, ticks.
    show: u64,
    showing: u64,
    /// How long the next trial waits at most for what is left over, ticks.
    left_over: u64,
}

// SAFETY: the templates' pointers lead into the traffic, which nobody changes and this holds.
unsafe impl Send for Generator {}

impl Generator {
    /// One that has this traffic and waits for orders. What it is doing is shown in `live`.
    ///
    /// # Errors
    /// Where no time can be told.
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
            start: 0,
            turns: IterationTimes::default(),
            sending: IterationTimes::default(),
            ended_sending: 0,
            sent: 0,
            dropped: 0,
            checked: Checked::default(),
            timing: Timing::of_none(),
            wire_bytes: 0.0,
            ticks_per_second: tsc.hertz,
            live,
            show: 0,
            showing: tsc.ticks(SHOWN_EVERY),
            left_over: tsc.ticks(LEFT_OVER),
        };
        generator.load(traffic);
        Ok(generator)
    }

    fn load(&mut self, traffic: Arc<Traffic>) {
        let flows = trial::flows(&traffic);
        let each = traffic.packets().iter().enumerate().zip(&flows.of_packet);
        let mut before = vec![0; flows.count];
        self.templates = each
            .map(|((index, packet), flow)| {
                before[*flow as usize] += 1;
                Template {
                    source: traffic.lines(index).as_ptr().cast(),
                    flits: traffic.lines(index).len() as u32,
                    wire_bytes: packet.wire_bytes(),
                    first: before[*flow as usize] - 1,
                    each: 0,
                }
            })
            .collect();
        for (template, flow) in self.templates.iter_mut().zip(&flows.of_packet) {
            template.each = before[*flow as usize];
        }
        self.checked = Checked::new(&traffic, &flows);
        self.wire_bytes = traffic.total_wire_bytes() as f64 / traffic.len() as f64;
        self.epoch += 1;
        self.position = Position::default();
        self.traffic = traffic;
    }

    fn start(&mut self, trial: Trial, answer: SyncSender<Report>) {
        self.checked.prepare(&trial);
        self.trial = trial;
        self.answer = Some(answer);
        self.state = State::Waiting(ticks() + trial.wait);
    }

    /// Begins to send where it has waited long enough, and what was under way has come.
    #[inline(never)]
    fn begin_after(&mut self, waiting: u64, now: u64) {
        let left_over = self.under_way() > 0 && now < waiting + self.left_over;
        if now < waiting || left_over {
            return;
        }
        self.begin();
    }

    /// Begins to send. What came until now is of no trial.
    fn begin(&mut self) {
        (self.sent, self.dropped, self.position) = (0, 0, Position::default());
        self.checked.begin();
        self.timing = self.timed_every().map_or(Timing::of_none(), Timing::of_every);
        self.start = ticks();
        self.paced = Paced::new(self.trial.pace, self.start);
        self.turns = IterationTimes::from(self.start);
        self.state = State::Sending;
    }

    /// Of how many packets one is timed; none where none is.
    fn timed_every(&self) -> Option<u32> {
        let (packets, pace) = (self.traffic.len(), self.trial.pace);
        let every = || times::interval(pace, self.wire_bytes, packets, self.ticks_per_second);
        self.trial.times.then(every)
    }

    fn stop_sending(&mut self, now: u64) {
        self.end_iteration_at(now);
        self.sending = self.turns;
        self.ended_sending = now;
        self.state = State::Draining(now + self.trial.drain);
    }

    fn finish(&mut self, now: u64) {
        self.state = State::Idle;
        let report = Report {
            sent: self.sent,
            dropped: self.dropped,
            start: self.start,
            ended_sending: self.ended_sending,
            ended: now,
            gap: self.sending.longest,
            stalled: self.sending.stalled,
            timed_every: self.timed_every().unwrap_or_default(),
            ..self.checked.report()
        };
        self.live.publish(self.seen());
        if let Some(answer) = self.answer.take() {
            // Nobody waits any more: then nobody wants it.
            let _ = answer.send(report);
        }
    }

    fn seen(&self) -> CounterSnapshot {
        let (received, corrupted) = (self.checked.received(), self.checked.corrupted());
        CounterSnapshot { sent: self.sent, received, corrupted }
    }

    #[inline(always)]
    fn end_iteration_at(&mut self, now: u64) {
        self.turns.end_iteration(now, self.sent + self.checked.received(), &self.trial);
    }

    /// Packets that the NIC took and that have not come back.
    fn under_way(&self) -> u64 {
        (self.sent - self.dropped).saturating_sub(self.checked.received())
    }

    /// How many packets are to be sent by now.
    #[inline(always)]
    fn packets_due(&mut self, now: u64, most: u32) -> u32 {
        match self.state {
            State::Sending => {}
            State::Waiting(until) => {
                self.begin_after(until, now);
                return 0;
            }
            State::Idle | State::Draining(_) => return 0,
        }
        let left = self.trial.count - self.sent;
        if now >= self.start + self.trial.duration || left == 0 {
            self.stop_sending(now);
            return 0;
        }
        let most = u64::from(most).min(left);
        match self.paced.window() {
            Some(window) => most.min(window.saturating_sub(self.under_way())) as u32,
            None => {
                let wire_bytes = self.templates[self.position.index as usize].wire_bytes;
                self.paced.packets_due(now, most as u32, wire_bytes)
            }
        }
    }
}

impl Wire for Generator {
    type Command = GeneratorCommand;
    type RxBurst<'a> = Burst<'a>;

    fn command(&mut self, order: GeneratorCommand) {
        match order {
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
    fn next_burst(&mut self, now: u64, most: u32) -> Burst<'_> {
        let count = self.packets_due(now, most);
        Burst { count, generator: self }
    }

    #[inline(always)]
    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount {
        // SAFETY: by the caller's word.
        unsafe { self.checked.take(start, bytes) }
    }

    #[inline(always)]
    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]) {
        // SAFETY: by the caller's word.
        unsafe { self.checked.take_scattered(packets) };
    }

    #[inline(always)]
    fn end_iteration(&mut self, now: u64) {
        self.end_iteration_at(now);
        if let State::Draining(until) = self.state
            && (self.under_way() == 0 || now >= until)
        {
            self.finish(now);
        }
        if now >= self.show {
            self.show = now + self.showing;
            self.live.publish(self.seen());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::nic::layout::FLIT;
    use crate::wire::sample::{SampleTraffic, Sizes};
    use crate::wire::traffic::CacheLine;
    use crate::wire::vector::Plain;
    use crate::wire::{List, PacketRun, RxBurst};

    const TOGETHER: usize = 16;

    fn wait(time: Duration) {
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn of_packets_sent_together_each_has_its_own_round_trip_time() {
        let late = Duration::from_millis(30);
        let Some(tsc) = machine::untested::tsc("round trips of packets sent together") else {
            return;
        };
        let sample =
            SampleTraffic { packets: 1, size: Sizes::One(64), sources: 1, destinations: 1 };
        let traffic = Arc::new(sample.traffic().unwrap());
        let mut generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
        let (answer, report) = sync_channel(1);
        let trial = Trial {
            pace: Pace::packets(1e6, 88.0, tsc.hertz),
            count: TOGETHER as u64,
            duration: u64::MAX / 4,
            touched: false,
            times: true,
            ..Trial::default()
        };
        generator.command(GeneratorCommand::Start(trial, answer));
        generator.next_burst(ticks(), 0);
        // All are due.
        wait(Duration::from_millis(1));
        let mut memory = [CacheLine([0; FLIT]); TOGETHER];
        let start = memory.as_mut_ptr().cast::<u8>();
        let next_burst = generator.next_burst(ticks(), TOGETHER as u32);
        assert_eq!(next_burst.count() as usize, TOGETHER);
        let list = List { start: 0, len: 1 };
        let run = PacketRun { place: start, count: TOGETHER as u32, list, at: 0 };
        // SAFETY: there is room for them all, and nobody else has it.
        unsafe { next_burst.deliver::<Plain>(&[0], &[run]) };
        for half in 0..2 {
            let bytes = TOGETHER / 2 * FLIT;
            // SAFETY: so many bytes of whole flits lie there.
            let left = unsafe { generator.on_transmit(start.wrapping_add(half * bytes), bytes) };
            assert_eq!(left.bytes, bytes);
            wait(late);
        }
        generator.next_burst(ticks(), 1);
        generator.end_iteration(ticks());
        let report = report.try_recv().unwrap();
        assert_eq!((report.received, report.corrupted, report.timed_every), (16, 0, 1));
        let times = report.times.unwrap();
        let late = (tsc.ticks(late) as f64 * 0.998) as u64;
        // The first half came at once, or as late as the host let it, but before the other.
        assert!(times.len() == 16 && times.count_between(late, u64::MAX / 2) >= 8);
        assert!(times.min() + late <= times.max() + late / 100, "{} {}", times.min(), times.max());
    }
}
