//! `bounds/sharing`: which units a form shares, inferred by contention with blockers of known kinds.
//!
//! Two streams that need different units take as long together as the longer one alone; two that need the
//! same take as long as both. What all share is the front end: as many NOPs in the blocker's place show how
//! much of the hindrance it explains, which lowers the confidence.

mod blocker;
mod mixture;

use std::time::Duration;

use lab::artefact::Recipe;
use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;

use super::FormParams;
use super::forms::Forms;
use super::list::InstructionForm;
use super::plan::{Plan, memory};
use super::prepared::{Prepared, assembled};
use super::register_set::RegisterSet;
use crate::bounds_registers::BoundsRegisters;
use crate::timing::{Body, Data, LoopTimer, State, unroll};
use blocker::{Blocker, prepare_second};
use mixture::{Mixture, Unit};

/// Times instruction forms mixed with blockers.
pub(crate) struct Sharing;

impl Method for Sharing {
    type Params = FormParams;

    fn name(&self) -> &'static str {
        "sharing"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn expected(&self, _: &FormParams, budget: Duration) -> Duration {
        budget + Duration::from_millis(6)
    }

    fn artefacts(&self, _: &FormParams) -> Vec<Recipe> {
        vec![super::artefact::recipe()]
    }

    fn probe(&self) -> Result<Box<dyn Probe<FormParams>>, Failure> {
        Ok(Box::new(SharingProbe::default()))
    }
}

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

/// What takes longer than this cannot be kept balanced, cycles.
const LONG: f64 = 200.0;
/// Bodies that are timer for each form, about, taken again where the core clock moved.
const BODIES: u32 = 48;
const NOP: u8 = 0x90;

/// The copies of a form within a share of the registers, each behind what makes it independent.
fn copies(
    form: &InstructionForm,
    plan: &Plan,
    share: RegisterSet,
    breakers: &[u8],
) -> Result<Vec<Vec<u8>>, Failure> {
    let lines = plan.independent(form, share).map_err(Failure::unsupported)?;
    let codes = assembled(lines).into_iter();
    codes.map(|code| Ok([breakers, &code?].concat())).collect()
}

#[derive(Default)]
struct SharingProbe {
    forms: Forms,
    blockers: Vec<Blocker>,
}

impl Probe<FormParams> for SharingProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &FormParams,
    ) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let (form, prepared) = self.forms.find(context, &params.form)?;
        let data = Data::new()?;
        let timer = LoopTimer::new(tsc, &data, context.budget / BODIES);
        let measurement = measure(form, prepared, &mut self.blockers, (&data, &timer));
        if timer.is_void() {
            // The invalid times may be those of the blockers.
            self.blockers.clear();
        }
        timer.judged(measurement)
    }
}

/// How much blockers hinder a form; they are measured first where there are none.
fn measure(
    form: &InstructionForm,
    prepared: &Prepared,
    known: &mut Vec<Blocker>,
    (data, timer): (&Data, &LoopTimer),
) -> Result<Measurement, Failure> {
    if known.is_empty() {
        *known = blocker::all(data, timer)?;
    }
    let _registers = BoundsRegisters::for_code(&prepared.plan.effects().features, data)?;
    let beside = Beside::new(form, prepared, data, timer)?;
    // Two that name registers by themselves would write the same ones.
    let apart = |blocker: &&Blocker| !(blocker.names_general && prepared.plan.names_general());
    let blockers: Vec<&Blocker> = known.iter().filter(apart).collect();
    let mut measurement = Measurement::default();
    let mut confidence: f64 = 1.0;
    for (blocker, (shares, front)) in blockers.iter().zip(beside.blocked(&blockers)?) {
        measurement = measurement.value(&blocker.against, shares);
        confidence = confidence.min(1.0 - front);
    }
    Ok(measurement.value("confidence", confidence))
}

/// A form among blockers.
struct Beside<'a> {
    form: &'a InstructionForm,
    prepared: &'a Prepared,
    timer: &'a LoopTimer<'a>,
    state: State,
    copies: Vec<Vec<u8>>,
    /// Core cycles of a copy alone.
    alone: f64,
}

impl<'a> Beside<'a> {
    fn new(
        form: &'a InstructionForm,
        prepared: &'a Prepared,
        data: &'a Data,
        timer: &'a LoopTimer<'a>,
    ) -> Result<Self, Failure> {
        let plan = &prepared.plan;
        let mut state = plan.state(form, data, RegisterSet::First);
        let breakers = plan.breakers(&state);
        prepare_second(&mut state);
        let copies = copies(form, plan, RegisterSet::First, &breakers)?;
        let mut beside = Self { form, prepared, timer, state, copies, alone: f64::NAN };
        // A few first: some take microseconds.
        if beside.by_itself(10)? > LONG {
            let remedy = "look at its throughput: it uses more than one unit for long";
            return Err(Failure::unavailable(
                "it takes too long to be balanced by a blocker",
                remedy,
            ));
        }
        beside.alone = beside.by_itself(mixture::times(1, unroll::instructions()?))?;
        Ok(beside)
    }

    /// How much each blocker hinders the form, and how much of that the front end alone explains.
    fn blocked(&self, blockers: &[&Blocker]) -> Result<Vec<(f64, f64)>, Failure> {
        let mixtures: Vec<Mixture> =
            blockers.iter().map(|it| Mixture::new(self.alone, it.alone)).collect();
        let mut bodies = Vec::new();
        let fits = unroll::instructions()?;
        for (mixture, blocker) in mixtures.iter().zip(blockers) {
            let (nops, times) = ([vec![NOP; blocker.instructions]], mixture.times(fits));
            bodies.push(self.body(&mixture.unit(&blocker.copies), times)?);
            bodies.push(self.body(&mixture.unit(&nops), times)?);
        }
        // Between one pair of calibrations: they take longer than the bodies.
        let cycles = self.timer.cycles(&bodies.iter().collect::<Vec<_>>())?;
        let hindered = |(mixture, pair): (&Mixture, &[f64])| {
            (mixture.hindered(pair[0]), mixture.hindered(pair[1]))
        };
        Ok(mixtures.iter().zip(cycles.chunks_exact(2)).map(hindered).collect())
    }

    /// Core cycles of a copy of the form among nothing.
    fn by_itself(&self, times: usize) -> Result<f64, Failure> {
        let body = self.body(&Unit { forms: 1, blockers: 0, copies: &[] }, times)?;
        Ok(self.timer.cycles_of(&body)?)
    }

    fn body(&self, unit: &Unit, times: usize) -> Result<Body<'_>, Failure> {
        let moves_stack = self.prepared.plan.effects().moves_stack;
        let fill = memory(self.form);
        let fill = move |data: &Data| data.fill(fill);
        let code = |times| Ok(unit.code(&self.copies, times));
        Body::new(times, moves_stack, self.state.clone(), fill, code)
    }
}
