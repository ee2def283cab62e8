//! Micro-operations and ports of a form, by performance counters where there are any.

use lab::capability::{Capability, State};
use lab::sample::Failure;
use machine::counters::{Counters, Event, Mode};

use super::events::{self, Processor};
use crate::timing::{Body, Data, State as Registers, TimingError, TimingLoop};

/// How often each event is counted; the least counts, for what interrupts only adds.
const REPEATS: usize = 5;
/// Core cycles that a count takes, about.
const LENGTH: f64 = 50_000.0;
/// The most loops of a count.
const MOST: u64 = 100;

/// The counters of this processor's events.
pub(super) struct Counting {
    processor: &'static Processor,
    /// One for the micro-operations, one for each port: not every processor has as many as there are ports.
    pairs: Vec<Pair>,
}

/// One event and instructions, counted together, with how many of the event the loop itself makes.
struct Pair {
    counters: Counters,
    of_loop: f64,
}

/// What was counted of a body.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counted {
    /// Which event counted the micro-operations.
    pub(super) event: &'static str,
    /// Micro-operations of a copy.
    pub(super) uops: f64,
    /// Those of a copy that each port got, by its metric.
    pub(super) ports: Vec<(&'static str, f64)>,
}

impl Counting {
    /// Opens them on this thread.
    ///
    /// # Errors
    /// Where the processor or who is above it has none, or its events are not known.
    pub(super) fn open() -> Result<Self, Failure> {
        let processor = events::of_this_processor()?;
        let ports = processor.ports.iter().map(|port| port.event());
        let pairs = std::iter::once(processor.uops.event()).chain(ports).map(Pair::open);
        Ok(Self { processor, pairs: pairs.collect::<Result<_, _>>()? })
    }

    /// Counts a body whose copies take so many core cycles and hold so many instructions each.
    ///
    /// # Errors
    /// Where other instructions were counted than were executed.
    pub(super) fn of(
        &self,
        body: &Body,
        data: &Data,
        cycles: f64,
        instructions: u64,
    ) -> Result<Counted, TimingError> {
        let copies = body.copies as f64;
        let loops = (LENGTH / (cycles * copies)).clamp(1.0, MOST as f64) as u64;
        let in_loop = body.copies as u64 * instructions + body.looped.closing();
        let one = |pair: &Pair| {
            let run = |loops| {
                let mut state = body.state.clone();
                (body.fill)(data);
                body.looped.run(&mut state, loops)
            };
            let each = pair.each(loops, in_loop, run)?;
            Ok::<f64, TimingError>(((each - pair.of_loop) / copies).max(0.0))
        };
        let mut all = self.pairs.iter().map(one).collect::<Result<Vec<f64>, _>>()?.into_iter();
        let uops = all.next().unwrap_or_default();
        let metrics = self.processor.ports.iter().map(|port| port.metric.as_str());
        Ok(Counted { event: &self.processor.uops.name, uops, ports: metrics.zip(all).collect() })
    }
}

impl Pair {
    fn open(event: Event) -> Result<Self, Failure> {
        let counters = Counters::open(&[event, Event::INSTRUCTIONS], Mode::User).map_err(|it| {
            Failure::unavailable(format!("{}: {}", it.attempt, it.source), it.remedy)
        })?;
        let mut pair = Self { counters, of_loop: 0.0 };
        let data = Data::new()?;
        let nothing = TimingLoop::new(&[], false)?;
        let run = |loops| nothing.run(&mut Registers::new(&data), loops);
        pair.of_loop = pair.each(1000, nothing.closing(), run).map_err(Failure::from)?;
        Ok(pair)
    }

    /// How many of the event each of so many loops makes, of which each holds so many instructions: what
    /// twice as many loops add, so that entering, leaving and reading the counters are not in it.
    fn each(
        &self,
        loops: u64,
        in_loop: u64,
        mut run: impl FnMut(u64) -> Result<(), crate::timing::RaisedSignal>,
    ) -> Result<f64, TimingError> {
        let mut counts = Vec::new();
        for _ in 0..REPEATS {
            let once = self.count(|| run(loops))?;
            let twice = self.count(|| run(2 * loops))?;
            counts.push([0, 1].map(|at| twice[at].saturating_sub(once[at])));
        }
        least(&counts, loops * in_loop)
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
        Ok([0, 1].map(|at| after[at].saturating_sub(before[at])))
    }
}

/// The least count of an event beside which as many instructions were counted as were executed.
fn least(counts: &[[u64; 2]], executed: u64) -> Result<u64, Failure> {
    let right = counts.iter().filter(|[_, instructions]| *instructions == executed);
    right.map(|[event, _]| *event).min().ok_or_else(|| {
        let counted: Vec<_> = counts.iter().map(|[_, it]| it.to_string()).collect();
        let counted = counted.join(", ");
        Failure::check(format!("{executed} instructions were executed and {counted} counted"))
    })
}

/// Whether micro-operations can be counted, for those who ask what this machine can measure.
pub(crate) fn capability() -> Capability {
    let state = match Counting::open() {
        Ok(Counting { processor, .. }) => State::Present {
            detail: format!("{}, {} events of ports", processor.uops.name, processor.ports.len()),
        },
        Err(failure) => {
            State::Absent { reason: failure.why, remedy: failure.remedy.unwrap_or_default() }
        }
    };
    Capability {
        name: "micro-operations".into(),
        about: "micro-operations and ports of instructions, counted".into(),
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_taken_only_beside_the_instructions_that_were_executed() {
        assert_eq!(least(&[[7, 100], [3, 101], [6, 100]], 100), Ok(6));
        let failure = least(&[[3, 101], [3, 99]], 100).unwrap_err();
        assert_eq!(failure.kind, lab::sample::FailureKind::Check);
        assert!(failure.why.contains("100 instructions were executed and 101, 99 counted"));
    }

    /// Counted in the kernel's own events: the way from a body to a figure, where there is no PMU.
    #[test]
    fn what_a_loop_makes_is_what_twice_as_many_add() {
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
        // No page is touched for the first time: none is expected, and nanoseconds are counted.
        let each = pair.each(10_000, 0, run).unwrap();
        assert!(each > 5.0 && each < 10_000.0, "{each} ns for 100 additions in a row");
    }

    #[test]
    fn known_instructions_have_the_micro_operations_that_are_known() {
        let counting = match Counting::open() {
            Ok(counting) => counting,
            Err(why) => return machine::untested::note("bounds: micro-operations counted", &why),
        };
        let data = Data::new().unwrap();
        // add rax, rbx: one on any processor; a wrong count of instructions fails.
        let code = |copies| Ok([0x48, 0x01, 0xD8].repeat(copies));
        let add = Body::new(192, false, Registers::new(&data), |_| (), code).unwrap();
        let counted = counting.of(&add, &data, 1.0, 1).unwrap();
        assert!((counted.uops - 1.0).abs() < 0.05, "{counted:?}");
        assert!(counting.of(&add, &data, 1.0, 2).is_err());
    }
}
