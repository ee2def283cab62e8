//! `bounds/instructions`: latency and reciprocal throughput of instruction forms that are given as text.

mod artefact;
pub(crate) mod audit;
mod chain;
pub(crate) mod cli;
pub(crate) mod counted;
mod effects;
mod events;
mod executed;
mod feature;
mod forms;
pub(crate) mod list;
mod measured;
mod operand;
mod plan;
mod prepared;
mod register_set;
mod roles;
pub(crate) mod sharing;
mod sibling;
mod value;

use std::time::{Duration, Instant};

use lab::artefact::Recipe;
use lab::factor::{Factor, LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::point::Point;
use lab::sample::Failure;

pub use roles::{OperandRole, operand_roles};

use crate::bounds_registers::BoundsRegisters;
use crate::timing::{Data, LoopTimer};
use counted::Counting;
use forms::Forms;
use measured::Measured;

/// Form of a point.
#[derive(Debug, Clone)]
pub(crate) struct FormParams {
    form: String,
}

/// Not derived, because a user's list (`--list`) contains forms that are not levels of the built-in list.
impl Params for FormParams {
    const FACTORS: &'static [Factor] = &[Factor {
        name: "form",
        about: "an instruction with its operands; also 'all', 'class mpx', 'marked integer'",
        unit: "",
        levels: Levels::Listed(levels_of),
        default: "add R64 R64",
    }];

    fn from_point(point: &Point) -> Result<Self, Failure> {
        let form = point.get("form").map(|level| level.as_str().to_owned());
        let form = form.ok_or_else(|| Failure::failed("the point has no factor 'form'"))?;
        Ok(Self { form })
    }
}

/// Returns the levels of the built-in list that a word names.
fn levels_of(word: &str) -> Vec<String> {
    // If the list is invalid, measuring reports the fault with its line.
    list::BUILT_IN.as_ref().map(|list| list.levels_of(word)).unwrap_or_default()
}

/// Load of the core's other hardware thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum SiblingLoad {
    Idle,
    Busy,
}

/// Params of `instructions`.
#[derive(Debug, Clone, Params)]
pub(crate) struct InstructionParams {
    #[factor(flatten)]
    form: FormParams,
    /// the load of the core's other hardware thread: none, or the same instructions
    #[factor(default = "idle")]
    sibling: SiblingLoad,
}

/// Times instruction forms.
pub(crate) struct Instructions;

impl Method for Instructions {
    type Params = InstructionParams;

    fn name(&self) -> &'static str {
        "instructions"
    }

    fn how(&self) -> &'static str {
        "Loops over copies of the instruction and over half of them alternate; the difference of their \
         minimum times, in core cycles, is that of the other half: of dependent copies for the latency, else \
         for the throughput. A second repeat must confirm each minimum within 5%, and the core clock within \
         0.5%."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &InstructionParams) -> Result<(), Failure> {
        match params.sibling {
            SiblingLoad::Busy => sibling::cpu().map(drop),
            SiblingLoad::Idle => Ok(()),
        }
    }

    fn expected(&self, _: &InstructionParams, budget: Duration) -> Duration {
        // The timed loops, and the overhead around them.
        budget + Duration::from_millis(2)
    }

    fn artefacts(&self, _: &InstructionParams) -> Vec<Recipe> {
        vec![artefact::recipe()]
    }

    fn group(&self, params: &InstructionParams) -> Option<String> {
        let list = list::BUILT_IN.as_ref().ok()?;
        Some(list.forms.get(list.find(&params.form.form)?)?.class.clone())
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["bounds::timing"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<InstructionParams>>, Failure> {
        Ok(Box::new(InstructionProbe::default()))
    }
}

/// Returns the metric of a port. Ports that a CPU counts together are one metric.
const fn port(name: &'static str) -> Metric {
    let about = "micro-operations per core cycle on the port (or ports), if the CPU counts them";
    Metric::new(name, "1", Better::Neither, about).from_time()
}

const METRICS: &[Metric] = &[
    Metric::new(
        "throughput",
        "cycles",
        Better::Lower,
        "core cycles per instruction of independent copies (reciprocal throughput)",
    ),
    Metric::new(
        "latency",
        "cycles",
        Better::Lower,
        "core cycles per instruction of copies that depend on each other; 'chain' names the dependency",
    ),
    Metric::new(
        "round_trip",
        "cycles",
        Better::Lower,
        "core cycles of the form and of the form that moves its output back to its input",
    ),
    Metric::count(
        "off_integer",
        "deviation of a latency from the expected whole number, relative to max(0.05 cycle, 0.5%)",
    )
    .signed()
    .from_time(),
    Metric::count("uops", "micro-operations per instruction, by performance counters"),
    port("port_0"),
    port("port_1"),
    port("port_2"),
    port("port_3"),
    port("port_4"),
    port("port_5"),
    port("port_6"),
    port("port_7"),
    port("port_2_3"),
    port("port_2_3_10"),
    port("port_4_9"),
    port("port_5_11"),
    port("port_7_8"),
    Metric::count(
        executed::COPIES,
        "copies executed once on an emulated CPU, which has no time; the effects of MPX forms are checked",
    ),
    Metric::time("measuring", "time to measure the form, without preparation"),
];

/// Number of loops that are timed within the budget: a chain and two kinds of copies, with repeats when the core clock
/// moved.
const BODIES: u32 = 6;

#[derive(Default)]
struct InstructionProbe {
    forms: Forms,
    /// Opened for the first form; the inner option is `None` if there are no counters, which the capability reports.
    counting: Option<Option<Counting>>,
}

impl Probe<InstructionParams> for InstructionProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &InstructionParams,
    ) -> Result<Measurement, Failure> {
        // An emulated CPU has no time, but executes.
        let tsc = match context.tsc() {
            Err(_) if machine::cpu::lacks_time() => None,
            tsc => Some(tsc?),
        };
        let (form, prepared) = self.forms.find(context, &params.form.form)?;
        let data = Data::new()?;
        // MPX instructions would run as NOP if the registers were off.
        let registers = BoundsRegisters::for_code(&prepared.plan.effects().features, &data)?;
        let Some(tsc) = tsc else {
            return executed::execute(form, prepared, &data, registers.as_ref(), params.sibling);
        };
        let timer = LoopTimer::new(tsc, &data, context.budget / BODIES, context.seed);
        let counting = self.counting.get_or_insert_with(|| Counting::open().ok()).as_ref();
        let form = Measured { form, prepared, data: &data, timer, counting };
        let start = Instant::now();
        let measurement = form.measure(params.sibling == SiblingLoad::Busy);
        let measurement = form.timer.judged(measurement)?;
        Ok(measurement.value("measuring", start.elapsed().as_nanos() as f64))
    }
}
