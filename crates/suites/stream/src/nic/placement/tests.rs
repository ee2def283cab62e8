//! The order in which packets are written, observed at each store, and what both orders have in common.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use proptest::prelude::*;

use super::*;
use crate::generator::{Generator, GeneratorCommand, LiveCounters, Pace, Trial};
use crate::nic::counters::Counters;
use crate::nic::flow_table::looked_up;
use crate::nic::layout::FLIT;
use crate::nic::region::{ClientId, Regions};
use crate::nic::steering::Steering;
use crate::nic::ticks;
use crate::wire::sample::{SampleTraffic, Sizes};
use crate::wire::traffic::{CacheLine, Traffic};
use crate::wire::vector::Plain;
use crate::wire::{BufferCursor, Flow, Mark, PacketRef, RingCursor, TxCount};

/// Number of queues.
const QUEUES: usize = 4;
/// Flits of the longest packet.
const LONGEST: usize = 24;
/// Maximum number of packets per queue.
const PACKETS: usize = 100;

thread_local! {
    /// Addresses of all stores, in order.
    static STORES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Copying that records where it stores, without timestamps.
enum Observed {}

impl Vector for Observed {
    type Flit = <Plain as Vector>::Flit;

    unsafe fn load(from: *const u8) -> Self::Flit {
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::load(from) }
    }

    unsafe fn store(flit: Self::Flit, to: *mut u8) {
        STORES.with_borrow_mut(|stores| stores.push(to.addr()));
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::store(flit, to) };
    }

    type Words = <Plain as Vector>::Words;

    unsafe fn words<const AT: usize>(words: [u32; 4]) -> Self::Words {
        words
    }

    unsafe fn sum(words: Self::Words, step: Self::Words) -> Self::Words {
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::sum(words, step) }
    }

    unsafe fn marked<const AT: usize>(
        flit: Self::Flit,
        [index, number, ..]: Self::Words,
    ) -> Self::Flit {
        let mark = Mark { index, number, stamp: 0 };
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::marked::<AT>(flit, mark.words()) }
    }

    unsafe fn write_words(words: &[u64; 4], to: *mut u8) {
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::write_words(words, to) };
    }

    unsafe fn write_words_apart(first: u64, second: u64, to: *mut u8) {
        // SAFETY: the caller guarantees the same.
        unsafe { Plain::write_words_apart(first, second, to) };
    }
}

/// A generator whose bursts have the sizes that the test determines.
struct Limited {
    generator: Generator,
    max: u32,
}

impl Wire for Limited {
    type Command = GeneratorCommand;
    type RxBurst<'a> = <Generator as Wire>::RxBurst<'a>;

    fn command(&mut self, command: GeneratorCommand) {
        self.generator.command(command);
    }

    fn packets(&self) -> (u64, &[Packet]) {
        self.generator.packets()
    }

    fn next_burst(&mut self, now: u64, _: u32) -> Self::RxBurst<'_> {
        self.generator.next_burst(now, self.max)
    }

    unsafe fn on_transmit(&mut self, _: *const u8, _: usize) -> TxCount {
        TxCount::default()
    }

    unsafe fn on_transmit_scattered(&mut self, _: &[PacketRef]) {}

    fn end_iteration(&mut self, now: u64) {
        self.generator.end_iteration(now);
    }
}

/// Queues with memory for any burst, of which a part is free.
struct Queues<C> {
    memory: Vec<CacheLine>,
    /// Free flits of each ring, or free buffers of each queue.
    free: Vec<u32>,
    /// Next flit of each ring, or next buffer.
    next: Vec<usize>,
    placement: Option<Placement<C>>,
}

impl<C: Cursor> Queues<C> {
    fn new(free: &[u32], placement: Placement<C>) -> Self {
        let memory = vec![CacheLine([0; FLIT]); QUEUES * PACKETS * LONGEST];
        let placement = Some(placement);
        Self { memory, free: free.to_vec(), next: vec![0; free.len()], placement }
    }

    /// Returns the address of a flit of a queue.
    fn address(&mut self, queue: usize, flit: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(queue * PACKETS * LONGEST + flit).cast()
    }
}

impl RxPlacement for Queues<RingCursor> {
    type Cursor = RingCursor;

    fn placement(&mut self) -> &mut Option<Placement<RingCursor>> {
        &mut self.placement
    }

    fn allocate(
        &mut self,
        FlowRun { queue, flits, run }: FlowRun,
        _: u64,
        _: &mut EngineContext,
        _: &impl RxBurst,
        _: &mut Places,
    ) -> (*mut u8, u32) {
        let queue = queue as usize;
        let Some(free) = self.free.get_mut(queue) else { return (std::ptr::null_mut(), 0) };
        let taken = run.count.min(*free / flits);
        *free -= taken * flits;
        let place = self.address(queue, self.next[queue]);
        self.next[queue] += (taken * flits) as usize;
        (place, taken)
    }
}

impl RxPlacement for Queues<BufferCursor> {
    type Cursor = BufferCursor;

    fn placement(&mut self) -> &mut Option<Placement<BufferCursor>> {
        &mut self.placement
    }

    fn allocate(
        &mut self,
        FlowRun { queue, run, .. }: FlowRun,
        _: u64,
        _: &mut EngineContext,
        _: &impl RxBurst,
        places: &mut Places,
    ) -> (*mut u8, u32) {
        let queue = queue as usize;
        let Some(free) = self.free.get_mut(queue) else { return (std::ptr::null_mut(), 0) };
        let taken = run.count.min(*free);
        *free -= taken;
        let first = places.count;
        for _ in 0..taken {
            // From the last buffer down, so that none follows the one before it.
            let buffer = PACKETS - 1 - self.next[queue];
            places.addresses[places.count] = self.address(queue, buffer * LONGEST);
            places.count += 1;
            self.next[queue] += 1;
        }
        (places.addresses[first], taken)
    }
}

/// Traffic, where its packets go, the free space, and the bursts in which they come.
#[derive(Debug, Clone)]
struct Case {
    traffic: SampleTraffic,
    /// Queue of each destination; those beyond the last queue have no rule.
    queues: Vec<usize>,
    free: Vec<u32>,
    bursts: Vec<u32>,
}

fn case() -> impl Strategy<Value = Case> {
    let size =
        prop_oneof![Just(Sizes::Imix), Just(Sizes::One(64)), (64u16..=1518).prop_map(Sizes::One)];
    let traffic = (1u32..=24, 1u32..=8, size).prop_map(|(packets, destinations, size)| {
        SampleTraffic { packets, size, sources: 1, destinations }
    });
    let queues = prop::collection::vec(0..=QUEUES, 8);
    let free = prop::collection::vec(prop_oneof![0u32..80, Just(PACKETS as u32)], QUEUES);
    (traffic, queues, free, prop::collection::vec(1u32..34, 1..4))
        .prop_map(|(traffic, queues, free, bursts)| Case { traffic, queues, free, bursts })
}

impl Case {
    fn traffic(&self) -> Arc<Traffic> {
        Arc::new(self.traffic.traffic().unwrap())
    }

    /// Returns the rules of the traffic: the flow and the queue of each destination.
    fn rules(&self, traffic: &Traffic) -> BTreeMap<Flow, usize> {
        let flows = traffic.packets().iter().map(|packet| looked_up(&packet.flow, packet.syn));
        flows.zip(self.queues.iter().copied().cycle()).collect()
    }
}

/// Result of a NIC with one of the orders.
#[derive(Debug, PartialEq)]
struct Outcome {
    memory: Vec<CacheLine>,
    /// Indices in the memory of the stored lines of each burst.
    stores: Vec<Vec<usize>>,
    sent: u64,
    dropped: u64,
}

/// Runs the bursts of a case.
fn run<C: Cursor>(mut queues: Queues<C>, order: PlacementOrder, case: &Case) -> Outcome
where
    Queues<C>: RxPlacement<Cursor = C>,
{
    let traffic = case.traffic();
    let mut nic = context(order);
    for (flow, queue) in case.rules(&traffic) {
        if queue < QUEUES {
            nic.steering.table.insert(flow, queue as u32).unwrap();
        }
    }
    let generator = Generator::new(traffic, Arc::new(LiveCounters::default())).unwrap();
    let mut wire = Limited { generator, max: 0 };
    let (answer, report) = sync_channel(1);
    let pace = Pace::Closed { window: 1 << 40 };
    let trial = Trial { pace, duration: u64::MAX / 4, ..Trial::default() };
    wire.command(GeneratorCommand::Start(trial, answer));
    // The trial starts.
    wire.next_burst(ticks(), 0);
    let mut stores = Vec::new();
    for burst in &case.bursts {
        wire.max = *burst;
        // SAFETY: all allocated addresses are in the memory of the queues; every CPU supports the instructions.
        unsafe { queues.take_packets::<Observed, _>(ticks(), &mut nic, &mut wire) };
        let start = queues.memory.as_ptr().addr();
        let line = |store: usize| (store - start) / FLIT;
        stores.push(STORES.take().into_iter().map(line).collect());
    }
    wire.command(GeneratorCommand::Stop);
    wire.end_iteration(ticks());
    let report = report.try_recv().unwrap();
    Outcome { memory: queues.memory, stores, sent: report.sent, dropped: report.dropped }
}

fn context(placement: PlacementOrder) -> EngineContext {
    EngineContext {
        counters: Counters::default(),
        regions: Regions::default(),
        clients: Vec::new(),
        owners: Arc::default(),
        refused_at: 0,
        fallback_client: ClientId::default(),
        limit: None,
        steering: Steering::default(),
        placement,
        doorbell: 0,
        transfer: 0,
        link: None,
        now: 0,
        ticks_per_second: 1e9,
    }
}

/// Model of the queues that takes one packet after the other.
struct Model<'a> {
    case: &'a Case,
    are_contiguous: bool,
    free: Vec<u32>,
    next: Vec<usize>,
}

impl Model<'_> {
    /// Returns the lines that a packet takes with its queue; `None` if it is dropped.
    fn put(&mut self, queue: usize, flits: usize) -> Option<Vec<usize>> {
        let needed = if self.are_contiguous { flits as u32 } else { 1 };
        let free = self.free.get_mut(queue).filter(|free| **free >= needed)?;
        *free -= needed;
        let next = self.next[queue];
        self.next[queue] += needed as usize;
        let in_queue = if self.are_contiguous { next } else { (PACKETS - 1 - next) * LONGEST };
        let first = queue * PACKETS * LONGEST + in_queue;
        Some((first..first + flits).collect())
    }

    /// Returns the queue and the lines of each packet of the bursts, in the order in which they arrive.
    fn arrivals(&mut self) -> Vec<Vec<(usize, Vec<usize>)>> {
        let traffic = self.case.traffic();
        let rules = self.case.rules(&traffic);
        let mut packets = (0..traffic.len()).cycle().map(|index| {
            let packet = traffic.packets()[index];
            (rules[&looked_up(&packet.flow, packet.syn)], traffic.lines(index).len())
        });
        let bursts = self.case.bursts.clone();
        let each = bursts.iter().map(|count| {
            let burst: Vec<_> = packets.by_ref().take(*count as usize).collect();
            burst
                .into_iter()
                .filter_map(|(queue, flits)| Some((queue, self.put(queue, flits)?)))
                .collect()
        });
        each.collect()
    }

    /// Returns whether a burst is written queue by queue if the order permits it.
    fn is_grouped(&self, count: u32) -> bool {
        let traffic = self.case.traffic();
        let rules = self.case.rules(&traffic);
        let mut flits = BTreeMap::new();
        for (index, packet) in traffic.packets().iter().enumerate() {
            let rule = rules[&looked_up(&packet.flow, packet.syn)];
            let lines = traffic.lines(index).len();
            if *flits.entry(rule).or_insert(lines) != lines {
                return false;
            }
        }
        count as usize > flits.len()
    }
}

/// Compares both orders with the model.
fn check<C: Cursor>(
    case: &Case,
    are_contiguous: bool,
    placement: fn() -> Placement<C>,
) -> Result<(), TestCaseError>
where
    Queues<C>: RxPlacement<Cursor = C>,
{
    let outcome = |order| run(Queues::new(&case.free, placement()), order, case);
    let (wire_order, by_pipe) =
        (outcome(PlacementOrder::WireOrder), outcome(PlacementOrder::ByPipe));
    let mut model = Model { case, are_contiguous, free: case.free.clone(), next: vec![0; QUEUES] };
    let arrivals = model.arrivals();
    for (number, arrived) in arrivals.iter().enumerate() {
        let lines = |packets: &[(usize, Vec<usize>)]| -> Vec<usize> {
            packets.iter().flat_map(|(_, lines)| lines.clone()).collect()
        };
        prop_assert_eq!(&wire_order.stores[number], &lines(arrived), "burst {}", number);
        let mut grouped = arrived.clone();
        if model.is_grouped(case.bursts[number]) {
            grouped.sort_by_key(|(queue, _)| *queue);
        }
        prop_assert_eq!(&by_pipe.stores[number], &lines(&grouped), "burst {}", number);
    }
    prop_assert!(wire_order.memory == by_pipe.memory, "other bytes");
    let (all, placed) =
        (case.bursts.iter().sum::<u32>(), arrivals.iter().map(Vec::len).sum::<usize>());
    for outcome in [wire_order, by_pipe] {
        prop_assert_eq!(outcome.sent, u64::from(all));
        prop_assert_eq!(outcome.dropped, u64::from(all) - placed as u64);
    }
    Ok(())
}

proptest! {
    #[test]
    fn rings_are_written_in_the_chosen_order_with_the_same_result(case in case()) {
        check(&case, true, Placement::<RingCursor>::contiguous)?;
    }

    #[test]
    fn buffers_are_written_in_the_chosen_order_with_the_same_result(case in case()) {
        check(&case, false, Placement::<BufferCursor>::scattered)?;
    }
}
