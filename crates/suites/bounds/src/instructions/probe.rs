//! Measures one form after another.

use std::time::{Duration, Instant};

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;

use super::counted::Counting;
use super::forms::Forms;
use super::measured::Measured;
use crate::bounds_registers::BoundsRegisters;
use crate::looped::{Data, Timed};

/// What is timed one after another within the budget: a chain, and copies in two ways, taken again where
/// the core clock moved.
const BODIES: u32 = 6;

/// What measures the points of one order.
pub(super) fn probe() -> Box<dyn Probe> {
    Box::new(Instructions::default())
}

#[derive(Default)]
struct Instructions {
    forms: Forms,
    /// Opened by the first form; nothing where there are none, of which the capability tells.
    counting: Option<Option<Counting>>,
}

impl Probe for Instructions {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let (form, prepared) = self.forms.find(context, point.text("form"))?;
        let data = Data::new()?;
        // Switched off, MPX would run as NOP.
        let _registers = BoundsRegisters::for_code(&prepared.plan.effects().features, &data)?;
        let timed = Timed::new(tsc, &data, context.budget / BODIES);
        let counting = self.counting.get_or_insert_with(|| Counting::open().ok()).as_ref();
        let form = Measured { form, prepared, data: &data, timed, counting };
        let begun = Instant::now();
        let measurement = form.measure(point.text("sibling") == "busy");
        let measurement = form.timed.judged(measurement)?;
        Ok(measurement.value("measuring", begun.elapsed().as_nanos() as f64))
    }
}

/// How long a sample takes.
pub(super) fn expected(budget: Duration) -> Duration {
    // The bodies, and what stands around them.
    budget + Duration::from_millis(2)
}
