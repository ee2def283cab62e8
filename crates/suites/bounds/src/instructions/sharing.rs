//! `bounds/sharing`: which units a form shares, inferred by contention with blockers of known kinds.
//!
//! Two streams that need different units take as long together as the longer one alone; two that need the
//! same take as long as both. What all share is the front end: as many NOPs in the blocker's place show how
//! much of the hindrance it explains, which lowers the confidence.

use std::time::Duration;

use lab::experiment::read_toml;
use lab::measure::{Context, Measurement};
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;
use serde::Deserialize;

use super::list::{Form, List};
use super::plan::{Plan, Share, memory};
use super::prepared::{Prepared, assembled, prepare};
use super::probe::{Forms, refused};
use crate::bounds_registers::BoundsRegisters;
use crate::looped::{Body, Data, Looped, State, Timed};
use crate::way::Way;

pub(crate) static WAY: Way = Way {
    name: "sharing",
    factors: super::FACTORS,
    metrics: METRICS,
    available: |_| Ok(()),
    expected: |_, budget| budget + Duration::from_millis(6),
    artefacts: |_| vec![super::artefact::recipe()],
    probe: || Box::new(Sharing::default()),
};

const fn inferred(name: &'static str, about: &'static str) -> Metric {
    Metric::new(name, "share", Better::Neither, about)
}

const METRICS: &[Metric] = &[
    inferred("shares_integer", "inferred: how much integer additions hinder it, 0 to 100%"),
    inferred("shares_shift", "inferred: how much rotations hinder it"),
    inferred("shares_multiply", "inferred: how much integer multiplications hinder it"),
    inferred("shares_divide", "inferred: how much integer divisions hinder it"),
    inferred("shares_fp_add", "inferred: how much additions of numbers hinder it"),
    inferred("shares_fp_multiply", "inferred: how much multiplications of numbers hinder it"),
    inferred("shares_fp_divide", "inferred: how much divisions of numbers hinder it"),
    inferred("shares_vector_integer", "inferred: how much vector integer additions hinder it"),
    inferred("shares_shuffle", "inferred: how much shuffles hinder it"),
    inferred("shares_load", "inferred: how much loads hinder it"),
    inferred("shares_store", "inferred: how much stores hinder it"),
    inferred(
        "confidence",
        "of what is inferred: 1 less the most that the front end alone explains, with any blocker",
    ),
];

/// The most copies of the one for one of the other.
const MOST: f64 = 24.0;
/// Copies of both in a loop, about.
const COPIES: usize = 120;
/// What takes longer than this cannot be kept balanced, cycles.
const LONG: f64 = 200.0;
/// Bodies that are timed for each form, about, taken again where the core clock moved.
const BODIES: u32 = 48;
const NOP: u8 = 0x90;
/// What vectors of blockers hold: 1.0 twice.
const ONE: u64 = 0x3FF0_0000_0000_0000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    blocker: Vec<Declared>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    against: String,
    form: String,
}

/// A blocker as machine code.
struct Blocker {
    against: String,
    names_general: bool,
    copies: Vec<Vec<u8>>,
    /// Instructions of a copy, with those that make it independent.
    instructions: usize,
    /// Core cycles of a copy alone, once it is measured.
    alone: Option<f64>,
}

impl Blocker {
    /// Nothing where this CPU lacks it.
    fn new(declared: &Declared, data: &Data) -> Result<Option<Self>, Failure> {
        let failed = |why| Failure::failed(format!("blockers.toml: '{}': {why}", declared.form));
        let list = List::of_text("blockers.toml", &declared.form).map_err(failed)?;
        let Some(Ok(prepared)) = prepare(&list).pop() else { return Ok(None) };
        let (form, plan) = (&list.forms[0], &prepared.plan);
        let mut state = plan.state(form, data, Share::Second);
        // The upper half of a dividend.
        state.set_general(2, 0);
        let breakers = plan.breakers(&state);
        let copies = codes(form, plan, Share::Second)?;
        let copies: Vec<Vec<u8>> =
            copies.into_iter().map(|code| [breakers.clone(), code].concat()).collect();
        let named = if breakers.is_empty() { 0 } else { 2 };
        Ok(Some(Self {
            against: declared.against.clone(),
            names_general: plan.names_general(),
            copies,
            instructions: 1 + named,
            alone: None,
        }))
    }
}

/// The independent copies of a form within a share of the registers.
fn codes(form: &Form, plan: &Plan, share: Share) -> Result<Vec<Vec<u8>>, Failure> {
    let lines = plan.independent(form, share).map_err(Failure::unsupported)?;
    assembled(lines).into_iter().collect()
}

/// What measures the points of one order.
#[derive(Default)]
struct Sharing {
    forms: Forms,
    blockers: Vec<Blocker>,
}

impl Probe for Sharing {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let (form, prepared) = self.forms.find(context, point.text("form"))?;
        let data = Data::new().map_err(refused)?;
        let timed = Timed::new(tsc, &data, context.budget / BODIES)?;
        if self.blockers.is_empty() {
            self.blockers = blockers(&data, &timed)?;
        }
        let _registers = BoundsRegisters::for_code(&prepared.plan.effects().features, &data)?;
        let beside = Beside::new(form, prepared, &data, &timed)?;
        // Two that name registers by themselves would write the same ones.
        let apart = |blocker: &&Blocker| !(blocker.names_general && prepared.plan.names_general());
        let blockers: Vec<&Blocker> = self.blockers.iter().filter(apart).collect();
        let mut measurement = Measurement::default();
        let mut confidence: f64 = 1.0;
        for (blocker, (shares, front)) in blockers.iter().zip(beside.blocked(&blockers)?) {
            measurement = measurement.value(&blocker.against, shares);
            confidence = confidence.min(1.0 - front);
        }
        Ok(measurement.value("confidence", confidence))
    }
}

/// The blockers that this CPU has, with what each takes alone.
fn blockers(data: &Data, timed: &Timed) -> Result<Vec<Blocker>, Failure> {
    let file: File = read_toml("blockers.toml", include_str!("../../blockers.toml"))
        .map_err(|fault| Failure::failed(fault.to_string()))?;
    let mut blockers = Vec::new();
    for declared in &file.blocker {
        blockers.extend(Blocker::new(declared, data)?);
    }
    for blocker in &mut blockers {
        let code: Vec<u8> = blocker.copies.iter().cycle().take(COPIES).flatten().copied().collect();
        let mut state = State::new(data);
        prepare_second(&mut state);
        let looped = Looped::new(&code, false).map_err(refused)?;
        let fill = Box::new(|data: &Data| data.fill(1));
        let body = Body { looped, copies: COPIES, state, fill };
        blocker.alone = timed.cycles(&[&body])?.first().copied();
    }
    Ok(blockers)
}

/// The second share of the registers as blockers want it.
fn prepare_second(state: &mut State) {
    (9..16).for_each(|number| state.set_vector(number, ONE));
    (8..13).for_each(|number| state.set_general(number, 1));
}

/// A form among blockers.
struct Beside<'a> {
    form: &'a Form,
    prepared: &'a Prepared,
    timed: &'a Timed<'a>,
    state: State,
    copies: Vec<Vec<u8>>,
    /// Core cycles of a copy alone.
    alone: f64,
}

impl<'a> Beside<'a> {
    fn new(
        form: &'a Form,
        prepared: &'a Prepared,
        data: &'a Data,
        timed: &'a Timed<'a>,
    ) -> Result<Self, Failure> {
        let plan = &prepared.plan;
        let mut state = plan.state(form, data, Share::First);
        let breakers = plan.breakers(&state);
        prepare_second(&mut state);
        let copies = codes(form, plan, Share::First)?;
        let copies = copies.into_iter().map(|code| [breakers.clone(), code].concat()).collect();
        let mut beside = Self { form, prepared, timed, state, copies, alone: f64::NAN };
        // A few first: some take microseconds.
        if beside.by_itself(10)? > LONG {
            let remedy = "look at its throughput: it uses more than one unit for long";
            return Err(Failure::unavailable(
                "it takes too long to be balanced by a blocker",
                remedy,
            ));
        }
        beside.alone = beside.by_itself(COPIES)?;
        Ok(beside)
    }

    /// How much each blocker hinders the form, and how much of that the front end alone explains.
    fn blocked(&self, blockers: &[&Blocker]) -> Result<Vec<(f64, f64)>, Failure> {
        let mixtures: Vec<Mixture> =
            blockers.iter().map(|it| Mixture::new(self.alone, it)).collect();
        let mut bodies = Vec::new();
        for (mixture, blocker) in mixtures.iter().zip(blockers) {
            let nops = [vec![NOP; blocker.instructions]];
            bodies.push(self.body(&mixture.unit(&blocker.copies), mixture.times())?);
            bodies.push(self.body(&mixture.unit(&nops), mixture.times())?);
        }
        // Between one pair of calibrations: they take longer than the bodies.
        let cycles = self.timed.cycles(&bodies.iter().collect::<Vec<_>>())?;
        let hindered = |(mixture, pair): (&Mixture, &[f64])| {
            (mixture.hindered(pair[0]), mixture.hindered(pair[1]))
        };
        Ok(mixtures.iter().zip(cycles.chunks_exact(2)).map(hindered).collect())
    }

    /// Core cycles of a copy of the form among nothing.
    fn by_itself(&self, times: usize) -> Result<f64, Failure> {
        let body = self.body(&Unit { forms: 1, blockers: 0, copies: &[] }, times)?;
        Ok(self.timed.cycles(&[&body])?.first().copied().unwrap_or(f64::NAN))
    }

    fn body(&self, unit: &Unit, times: usize) -> Result<Body<'_>, Failure> {
        let code = unit.code(&self.copies, times);
        let moves_stack = self.prepared.plan.effects().moves_stack;
        let looped = Looped::new(&code, moves_stack).map_err(refused)?;
        let (state, fill) = (self.state.clone(), memory(self.form));
        Ok(Body { looped, copies: times, state, fill: Box::new(move |data| data.fill(fill)) })
    }
}

/// As many copies of a form and of a blocker as take about as long.
struct Mixture {
    forms: usize,
    blockers: usize,
    /// Core cycles of the slower of the two parts alone, and of the faster.
    longer: f64,
    shorter: f64,
}

impl Mixture {
    fn new(alone: f64, blocker: &Blocker) -> Self {
        let other = blocker.alone.unwrap_or(f64::NAN);
        let ratio = (alone / other).clamp(1.0 / MOST, MOST);
        let (forms, blockers) = match ratio >= 1.0 {
            true => (1, ratio.round() as usize),
            false => (ratio.recip().round() as usize, 1),
        };
        let (own, others) = (forms as f64 * alone, blockers as f64 * other);
        Self { forms, blockers, longer: own.max(others), shorter: own.min(others) }
    }

    fn unit<'a>(&self, copies: &'a [Vec<u8>]) -> Unit<'a> {
        Unit { forms: self.forms, blockers: self.blockers, copies }
    }

    fn times(&self) -> usize {
        (COPIES / (self.forms + self.blockers)).max(1)
    }

    /// 0 where both together take as long as the slower alone, 1 where as long as one after the other.
    fn hindered(&self, cycles: f64) -> f64 {
        ((cycles - self.longer) / self.shorter).clamp(0.0, 1.0)
    }
}

/// So many copies of a form and so many of something else.
struct Unit<'a> {
    forms: usize,
    blockers: usize,
    copies: &'a [Vec<u8>],
}

impl Unit<'_> {
    /// The unit so many times, its two parts mixed evenly.
    fn code(&self, forms: &[Vec<u8>], times: usize) -> Vec<u8> {
        let mut own = forms.iter().cycle();
        let mut others = self.copies.iter().cycle();
        let (mut code, mut due) = (Vec::new(), 0);
        for _ in 0..self.forms * times {
            code.extend(own.next().into_iter().flatten());
            due += self.blockers;
            while due >= self.forms {
                due -= self.forms;
                code.extend(others.next().into_iter().flatten());
            }
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_blocker_has_its_metric_and_assembles() {
        let data = Data::new().unwrap();
        let file: File = read_toml("blockers.toml", include_str!("../../blockers.toml")).unwrap();
        assert_eq!(file.blocker.len() + 1, METRICS.len());
        for declared in &file.blocker {
            assert!(METRICS.iter().any(|metric| metric.name == declared.against));
            let blocker = Blocker::new(declared, &data).unwrap();
            assert!(blocker.is_none_or(|it| it.instructions >= 1 && it.copies.len() >= 4));
        }
    }

    #[test]
    fn what_takes_as_long_as_both_shares_all() {
        let blocker = |alone| Blocker {
            against: String::new(),
            names_general: false,
            copies: Vec::new(),
            instructions: 1,
            alone: Some(alone),
        };
        let mixture = Mixture::new(3.0, &blocker(0.5));
        assert_eq!((mixture.forms, mixture.blockers), (1, 6));
        assert!((mixture.hindered(6.0) - 1.0).abs() < 1e-9);
        assert!(mixture.hindered(2.9) < 1e-9 && (mixture.hindered(4.5) - 0.5).abs() < 1e-9);
        assert_eq!(Mixture::new(0.25, &blocker(1.0)).forms, 4);
    }

    #[test]
    fn parts_are_mixed_evenly() {
        let other = [vec![2]];
        let unit = |forms, blockers| Unit { forms, blockers, copies: &other };
        assert_eq!(unit(1, 2).code(&[vec![1]], 2), [1, 2, 2, 1, 2, 2]);
        assert_eq!(unit(2, 1).code(&[vec![1]], 2), [1, 1, 2, 1, 1, 2]);
        assert_eq!(unit(1, 0).code(&[vec![1], vec![3]], 3), [1, 3, 1]);
    }
}
