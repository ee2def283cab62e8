//! `bounds/sharing`: the execution units that a form uses, inferred from contention with blockers of known kinds.
//!
//! Two streams that need different units take as long together as the longer one; two that need the same unit take the
//! sum of both times. All streams share the front end: the same number of NOPs in place of the blocker shows how much of
//! the slowdown it explains, which lowers the confidence.

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

    fn how(&self) -> &'static str {
        "Copies of the instruction alone, with a blocker of one kind of execution unit, and with NOPs in its \
         place are timed in core cycles. A slowdown by the blocker suggests shared units; the slowdown by \
         NOPs, which only share the front end, lowers the confidence."
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

    fn group(&self, params: &FormParams) -> Option<String> {
        let list = super::list::BUILT_IN.as_ref().ok()?;
        Some(list.forms.get(list.find(&params.form)?)?.class.clone())
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["bounds::timing"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<FormParams>>, Failure> {
        Ok(Box::new(SharingProbe::default()))
    }
}

const fn inferred(name: &'static str, about: &'static str) -> Metric {
    // A slowdown is a difference of two times.
    Metric::new(name, "share", Better::Neither, about).signed().from_time()
}

const METRICS: &[Metric] = &[
    inferred("shares_integer", "inferred: slowdown by integer additions, 0 to 100%"),
    inferred("shares_shift", "inferred: slowdown by rotations"),
    inferred("shares_multiply", "inferred: slowdown by integer multiplications"),
    inferred("shares_divide", "inferred: slowdown by integer divisions"),
    inferred("shares_fp_add", "inferred: slowdown by floating-point additions"),
    inferred("shares_fp_multiply", "inferred: slowdown by floating-point multiplications"),
    inferred("shares_fp_divide", "inferred: slowdown by floating-point divisions"),
    inferred("shares_vector_integer", "inferred: slowdown by vector integer additions"),
    inferred("shares_shuffle", "inferred: slowdown by shuffles"),
    inferred("shares_load", "inferred: slowdown by loads"),
    inferred("shares_store", "inferred: slowdown by stores"),
    inferred(
        "confidence",
        "confidence: 1 minus the maximum slowdown that the front end explains, over all blockers",
    ),
];

/// Maximum cycles of a form that blockers can balance.
const MAX_CYCLES: f64 = 200.0;
/// Approximate number of loops that are timed per form, with repeats when the core clock changed.
const BODIES: u32 = 48;
const NOP: u8 = 0x90;

/// Returns the copies of a form within a set of registers, each after the code that makes it independent.
fn copies(
    form: &InstructionForm,
    plan: &Plan,
    registers: RegisterSet,
    breakers: &[u8],
) -> Result<Vec<Vec<u8>>, Failure> {
    let lines = plan.independent(form, registers).map_err(|why| {
        Failure::unsupported(
            why,
            "use a form with fewer registers, or measure it by bounds/instructions",
        )
    })?;
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
        let timer = LoopTimer::new(tsc, &data, context.budget / BODIES, context.seed);
        let measurement = measure(form, prepared, &mut self.blockers, (&data, &timer));
        if timer.is_void() {
            // The invalid times may be those of the blockers.
            self.blockers.clear();
        }
        timer.judged(measurement)
    }
}

/// Returns the slowdown of a form by each blocker. Measures the blockers first if `known` is empty.
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
    let contended = ContendedForm::new(form, prepared, data, timer)?;
    // Two instructions with implicit registers would write the same ones.
    let is_separate =
        |blocker: &&Blocker| !(blocker.names_general && prepared.plan.names_general());
    let blockers: Vec<&Blocker> = known.iter().filter(is_separate).collect();
    let mut measurement = Measurement::default();
    let mut confidence: f64 = 1.0;
    for (blocker, (slowdown, front_end)) in blockers.iter().zip(contended.slowdowns(&blockers)?) {
        measurement = measurement.value(&blocker.against, slowdown);
        confidence = confidence.min(1.0 - front_end);
    }
    Ok(measurement.value("confidence", confidence))
}

/// Form that is mixed with blockers.
struct ContendedForm<'a> {
    form: &'a InstructionForm,
    prepared: &'a Prepared,
    timer: &'a LoopTimer<'a>,
    state: State,
    copies: Vec<Vec<u8>>,
    /// Core cycles per copy without a blocker.
    alone: f64,
}

impl<'a> ContendedForm<'a> {
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
        let mut contended = Self { form, prepared, timer, state, copies, alone: f64::NAN };
        // Some forms take microseconds, so a few copies are measured first.
        if contended.cycles_alone(10)? > MAX_CYCLES {
            let remedy = "see its throughput: it occupies more than one unit";
            return Err(Failure::unavailable(
                "the form takes too long to be balanced by a blocker",
                remedy,
            ));
        }
        contended.alone = contended.cycles_alone(mixture::times(1, unroll::instructions()?))?;
        Ok(contended)
    }

    /// Returns the slowdown by each blocker, and the part that the front end explains.
    fn slowdowns(&self, blockers: &[&Blocker]) -> Result<Vec<(f64, f64)>, Failure> {
        let mixtures: Vec<Mixture> =
            blockers.iter().map(|it| Mixture::new(self.alone, it.alone)).collect();
        let mut bodies = Vec::new();
        let fits = unroll::instructions()?;
        for (mixture, blocker) in mixtures.iter().zip(blockers) {
            let (nops, times) = ([vec![NOP; blocker.instructions]], mixture.times(fits));
            let body = self.body(&mixture.unit(&blocker.copies), times)?;
            bodies.push(body.named(format!("mixed with the blocker of {}", blocker.against)));
            let body = self.body(&mixture.unit(&nops), times)?;
            bodies.push(body.named(format!("mixed with NOPs instead of {}", blocker.against)));
        }
        // All bodies share one pair of calibrations, which take longer than the bodies.
        let cycles = self.timer.cycles(&bodies.iter().collect::<Vec<_>>())?;
        let slowdown = |(mixture, pair): (&Mixture, &[f64])| {
            (mixture.slowdown(pair[0]), mixture.slowdown(pair[1]))
        };
        Ok(mixtures.iter().zip(cycles.chunks_exact(2)).map(slowdown).collect())
    }

    /// Returns the core cycles per copy of the form without a blocker.
    fn cycles_alone(&self, times: usize) -> Result<f64, Failure> {
        let body = self.body(&Unit { forms: 1, blockers: 0, copies: &[] }, times)?;
        Ok(self.timer.cycles_of(&body.named("without a blocker"))?)
    }

    fn body(&self, unit: &Unit, times: usize) -> Result<Body<'_>, Failure> {
        let moves_stack = self.prepared.plan.effects().moves_stack;
        let fill = memory(self.form);
        let fill = move |data: &Data| data.fill(fill);
        let code = |times| Ok(unit.code(&self.copies, times));
        Body::new(self.timer.placement, times, moves_stack, self.state.clone(), fill, code)
    }
}
