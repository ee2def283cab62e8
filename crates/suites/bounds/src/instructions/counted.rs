//! Micro-operations and ports of a form, by performance counters.

use lab::capability::{self, Capability};
use lab::sample::Failure;
use machine::counters::{Counters, Event, Mode};

use super::events::{self, CpuEvents};
use crate::timing::{Body, Data, State as Registers, TimingError, TimingLoop};

/// Number of counts per event. The minimum is used, because interruptions only add events.
const REPEATS: usize = 5;
/// Approximate core cycles per count.
const CYCLES_PER_COUNT: f64 = 50_000.0;
/// Maximum number of loops per count.
const MAX_LOOPS: u64 = 100;

/// Counters of this CPU's events.
pub(super) struct Counting {
    cpu: &'static CpuEvents,
    /// One for the micro-operations and one per port: not every CPU can count all ports at once.
    pairs: Vec<Pair>,
}

/// Counters of one event and of instructions, with the events per pass of the loop itself.
struct Pair {
    counters: Counters,
    of_loop: f64,
}

/// Counts of a body.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counted {
    /// Name of the event that counts micro-operations.
    pub(super) event: &'static str,
    /// Micro-operations per copy.
    pub(super) uops: f64,
    /// Micro-operations per copy on each port, by metric.
    pub(super) ports: Vec<(&'static str, f64)>,
}

impl Counting {
    /// Opens the counters of this thread.
    ///
    /// # Errors
    /// Returns `unavailable` if the CPU or the hypervisor provides no counters, or if the CPU's events are unknown.
    pub(super) fn open() -> Result<Self, Failure> {
        let cpu = events::of_this_cpu()?;
        let ports = cpu.ports.iter().map(|port| port.event());
        let pairs = std::iter::once(cpu.uops.event()).chain(ports).map(Pair::open);
        Ok(Self { cpu, pairs: pairs.collect::<Result<_, _>>()? })
    }

    /// Counts the events of a body, given the core cycles and instructions per copy.
    ///
    /// # Errors
    /// Returns a failed check if the number of counted instructions is not that of executed ones.
    pub(super) fn of(
        &self,
        body: &Body,
        data: &Data,
        cycles: f64,
        instructions: u64,
    ) -> Result<Counted, TimingError> {
        let copies = body.copies as f64;
        let loops = (CYCLES_PER_COUNT / (cycles * copies)).clamp(1.0, MAX_LOOPS as f64) as u64;
        let in_loop = body.copies as u64 * instructions + body.whole.closing();
        let one = |pair: &Pair| {
            let run = |loops| {
                let mut state = body.state.clone();
                (body.fill)(data);
                body.whole.run(&mut state, loops)
            };
            let events = pair.events_per_loop(loops, in_loop, run)?;
            Ok::<f64, TimingError>(((events - pair.of_loop) / copies).max(0.0))
        };
        let mut all = self.pairs.iter().map(one).collect::<Result<Vec<f64>, _>>()?.into_iter();
        let uops = all.next().unwrap_or_default();
        let metrics = self.cpu.ports.iter().map(|port| port.metric.as_str());
        Ok(Counted { event: &self.cpu.uops.name, uops, ports: metrics.zip(all).collect() })
    }
}

impl Pair {
    fn open(event: Event) -> Result<Self, Failure> {
        let counters =
            Counters::open(&[event, Event::INSTRUCTIONS], Mode::User).map_err(Failure::refused)?;
        let mut pair = Self { counters, of_loop: 0.0 };
        let data = Data::new()?;
        let nothing = TimingLoop::new(&[], false)?;
        let run = |loops| nothing.run(&mut Registers::new(&data), loops);
        pair.of_loop = pair.events_per_loop(1000, nothing.closing(), run).map_err(Failure::from)?;
        Ok(pair)
    }

    /// Returns the events per loop of `in_loop` instructions: the difference between two and one times `loops`, which
    /// excludes entry, exit and reading the counters.
    fn events_per_loop(
        &self,
        loops: u64,
        in_loop: u64,
        mut run: impl FnMut(u64) -> Result<(), crate::timing::RaisedSignal>,
    ) -> Result<f64, TimingError> {
        let mut counts = Vec::new();
        for _ in 0..REPEATS {
            let once = self.count(|| run(loops))?;
            let twice = self.count(|| run(2 * loops))?;
            counts.push([0, 1].map(|i| twice[i].saturating_sub(once[i])));
        }
        minimum(&counts, loops * in_loop)
            .map(|count| count as f64 / loops as f64)
            .map_err(TimingError::Failure)
    }

    fn count(
        &self,
        run: impl FnOnce() -> Result<(), crate::timing::RaisedSignal>,
    ) -> Result<[u64; 2], TimingError> {
        let now = || {
            let counts = self.counters.now();
            counts.map_err(|e| TimingError::Failure(Failure::failed(format!("counting: {e}"))))
        };
        let before = now()?;
        run()?;
        let after = now()?;
        Ok([0, 1].map(|i| after[i].saturating_sub(before[i])))
    }
}

/// Returns the minimum count of the event among the counts with the executed number of instructions.
fn minimum(counts: &[[u64; 2]], executed: u64) -> Result<u64, Failure> {
    let valid = counts.iter().filter(|[_, instructions]| *instructions == executed);
    valid.map(|[event, _]| *event).min().ok_or_else(|| {
        let counted: Vec<_> = counts.iter().map(|[_, it]| it.to_string()).collect();
        let counted = counted.join(", ");
        Failure::check(format!("{executed} instructions were executed, {counted} counted"))
    })
}

/// Returns the counting of micro-operations as a capability of this machine.
pub(crate) fn capability() -> Capability {
    let opened = Counting::open()
        .map(|Counting { cpu, .. }| format!("{}, {} port events", cpu.uops.name, cpu.ports.len()));
    let about = "counts micro-operations and ports of instructions";
    capability::checked("micro-operations", about, opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Placement;

    #[test]
    fn only_counts_with_the_executed_number_of_instructions_are_valid() {
        assert_eq!(minimum(&[[7, 100], [3, 101], [6, 100]], 100), Ok(6));
        let failure = minimum(&[[3, 101], [3, 99]], 100).unwrap_err();
        assert_eq!(failure.kind, lab::sample::FailureKind::Check);
        assert!(failure.why.contains("100 instructions were executed, 101, 99 counted"));
    }

    /// Uses software events, which exist without a PMU.
    #[test]
    fn events_per_loop_are_the_difference_of_two_counts() {
        let opened = Counters::open(&[Event::TASK_CLOCK, Event::PAGE_FAULTS], Mode::Both);
        let counters = match opened {
            Ok(counters) => counters,
            Err(why) => return machine::untested::note("bounds: counters of the kernel", &why),
        };
        let pair = Pair { counters, of_loop: 0.0 };
        let add = TimingLoop::new(&[0x48, 0xFF, 0xC0].repeat(100), false).unwrap();
        let data = Data::new().unwrap();
        let run = |loops| add.run(&mut Registers::new(&data), loops);
        run(1).unwrap();
        // The second event counts page faults, of which there are none; the first counts nanoseconds. On a busy machine a
        // disturbance can make the shorter run last longer.
        let tries: Vec<_> =
            (0..20).map(|_| pair.events_per_loop(10_000, 0, run).unwrap()).collect();
        let is_of_additions = |events: &f64| (5.0..10_000.0).contains(events);
        assert!(tries.iter().any(is_of_additions), "{tries:?} ns for 100 additions");
    }

    #[test]
    fn an_addition_is_one_micro_operation() {
        let counting = match Counting::open() {
            Ok(counting) => counting,
            Err(why) => return machine::untested::note("bounds: micro-operations counted", &why),
        };
        let data = Data::new().unwrap();
        // add rax, rbx is one micro-operation on any CPU; a wrong number of instructions fails.
        let code = |copies| Ok([0x48, 0x01, 0xD8].repeat(copies));
        let add = Body::new(Placement::default(), 192, false, Registers::new(&data), |_| (), code)
            .unwrap();
        let counted = counting.of(&add, &data, 1.0, 1).unwrap();
        assert!((counted.uops - 1.0).abs() < 0.05, "{counted:?}");
        assert!(counting.of(&add, &data, 1.0, 2).is_err());
    }
}
