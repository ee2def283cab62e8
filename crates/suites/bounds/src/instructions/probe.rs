//! Measures one form after another.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lab::experiment::DataError;
use lab::measure::{Context, Measurement};
use lab::point::Point;
use lab::sample::Failure;
use lab::suite::Probe;

use super::artefact;
use super::chain::Chased;
use super::counted::{Counted, Counting};
use super::list::{Form, List, OWN};
use super::plan::{Share, memory};
use super::prepared::{Prepared, prepare_with};
use super::sibling::Sibling;
use crate::assembler::Code;
use crate::bounds_registers::BoundsRegisters;
use crate::looped::{Body, Data, Looped, State, Stopped, Timed};

/// Copies of a form in a loop: as many as the branch around them may not be felt, as few as any
/// processor's cache of decoded instructions holds.
const COPIES: usize = 200;
/// Copies of what takes microseconds.
const FEW: usize = 10;
/// Loops of a few copies that take longer than this are not of many.
const LONG: u64 = 20_000;
/// What is timed one after another within the budget: a chain, and copies in two ways, taken again where
/// the core clock moved.
const BODIES: u32 = 6;
/// The option that holds a person's own list.
pub(crate) const LIST: &str = "instructions";

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

/// The forms as machine code, each once it is asked for.
#[derive(Default)]
pub(super) struct Forms {
    known: Option<Result<Known, Failure>>,
    prepared: BTreeMap<usize, Result<Prepared, Failure>>,
}

/// A list with the code of its lines.
struct Known {
    list: Cow<'static, List>,
    code: Code,
}

impl Forms {
    /// A form of the list that the context names.
    ///
    /// # Errors
    /// Where the list has none of this name, it does not assemble or this CPU lacks it.
    pub(super) fn find(
        &mut self,
        context: &Context,
        level: &str,
    ) -> Result<(&Form, &Prepared), Failure> {
        let known = self.known.get_or_insert_with(|| known(context));
        let Known { list, code } = known.as_mut().map_err(|failure| failure.clone())?;
        let missing = || Failure::failed(format!("{} has no form '{level}'", list.file));
        let at = list.find(level).ok_or_else(missing)?;
        let form = &list.forms[at];
        let absent = || Failure::failed(format!("'{level}' was not prepared"));
        let prepared = self.prepared.entry(at).or_insert_with(|| {
            let one = prepare_with(&list.file, std::slice::from_ref(form), code).pop();
            one.unwrap_or_else(|| Err(absent()))
        });
        Ok((form, prepared.as_ref().map_err(|failure| failure.clone())?))
    }
}

impl Probe for Instructions {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let (form, prepared) = self.forms.find(context, point.text("form"))?;
        let data = Data::new().map_err(refused)?;
        // Switched off, MPX would run as NOP.
        let _registers = BoundsRegisters::for_code(&prepared.plan.effects().features, &data)?;
        let timed = Timed::new(tsc, &data, context.budget / BODIES)?;
        let counting = self.counting.get_or_insert_with(|| Counting::open().ok()).as_ref();
        let form = Measured { form, prepared, data: &data, timed, counting };
        let begun = Instant::now();
        let measurement = form.measure(point.text("sibling") == "busy")?;
        Ok(measurement.value("measuring", begun.elapsed().as_nanos() as f64))
    }
}

/// A person's own list, assembled here; or the suite's, which is assembled once a host.
fn known(context: &Context) -> Result<Known, Failure> {
    let failed = |fault: &DataError| Failure::failed(fault.to_string());
    let Some(text) = context.options.get(LIST) else {
        let list = Cow::Borrowed(OWN.as_ref().map_err(failed)?);
        return Ok(Known { list, code: artefact::read(context.artefact(artefact::NAME)?)? });
    };
    let (file, text) = text.split_once('\n').unwrap_or((LIST, text));
    let list = List::read(file, text).map_err(|fault| failed(&fault))?;
    let mut code = Code::new();
    prepare_with(&list.file, &list.forms, &mut code);
    Ok(Known { list: Cow::Owned(list), code })
}

pub(crate) fn refused(refusal: machine::Refusal) -> Failure {
    Failure::failed(refusal.to_string())
}

/// One form under measurement.
struct Measured<'a> {
    form: &'a Form,
    prepared: &'a Prepared,
    data: &'a Data,
    timed: Timed<'a>,
    counting: Option<&'a Counting>,
}

impl Measured<'_> {
    fn measure(&self, sibling_busy: bool) -> Result<Measurement, Failure> {
        if sibling_busy && self.form.afresh {
            let why = "what its registers point to is this thread's alone";
            return Err(Failure::unavailable(why, "measure it with the sibling idle"));
        }
        let copies = self.copies().map_err(Stopped::from)?;
        let state = || self.prepared.plan.state(self.form, self.data, Share::Whole);
        let breakers = self.prepared.plan.breakers(&state());
        let mut bodies = Vec::new();
        if !self.form.afresh {
            bodies.push(self.body(&self.independent(copies, &[]), copies, state())?);
        }
        if !breakers.is_empty() || self.form.afresh {
            bodies.push(self.body(&self.independent(copies, &breakers), copies, state())?);
        }
        let throughputs = bodies.len();
        let chain = self.chain(copies)?;
        let feeding = chain.as_ref().map(|(feeding, _)| feeding.clone()).map_err(String::clone);
        bodies.extend(chain.map(|(_, body)| body));
        if let Some(code) = &self.prepared.round_trip {
            let body = self.body(&code.repeat(copies / 2), copies / 2, state())?;
            bodies.push(body);
        }
        let bodies: Vec<&Body> = bodies.iter().collect();
        let beside = || sibling_busy.then(|| self.sibling(copies)).transpose();
        let cycles = self.timed.cycles_beside(&bodies, beside)?;
        let measurement = self.measurement(&cycles, throughputs, feeding);
        // Where registers are set anew, what sets them would be counted too.
        match self.counting.filter(|_| !sibling_busy && !self.form.afresh) {
            Some(counting) => {
                let instructions = self.prepared.plan.effects().instructions;
                let counted = counting.of(bodies[0], self.data, cycles[0], instructions)?;
                Ok(with(measurement, &counted, cycles[0]))
            }
            None => Ok(measurement),
        }
    }

    fn measurement(
        &self,
        cycles: &[f64],
        throughputs: usize,
        feeding: Result<String, String>,
    ) -> Measurement {
        let throughput = cycles[..throughputs].iter().copied().fold(f64::INFINITY, f64::min);
        let mut rest = cycles[throughputs..].iter().copied();
        let mut measurement = Measurement::default().value("throughput", throughput);
        match feeding {
            Ok(feeding) => {
                if let Some(latency) = rest.next() {
                    measurement = measurement.value("latency", latency);
                    if self.form.integer {
                        measurement = measurement.value("off_integer", off_integer(latency));
                    }
                }
                measurement = measurement.covariate("chain", feeding.as_str());
            }
            Err(why) => measurement = measurement.covariate("chain", why.as_str()),
        }
        if let (Some(_), Some(both)) = (&self.prepared.round_trip, rest.next()) {
            measurement = measurement.value("round_trip", both);
        }
        measurement
    }

    /// Many, unless a few take long. The first run of a form: what faults does so here.
    fn copies(&self) -> Result<usize, crate::looped::Fault> {
        let state = self.prepared.plan.state(self.form, self.data, Share::Whole);
        let breakers = self.prepared.plan.breakers(&state);
        let few = Looped::new(&self.independent(FEW, &breakers), self.moves_stack());
        let Ok(few) = few else { return Ok(FEW) };
        let mut least = u64::MAX;
        for _ in 0..2 {
            self.data.fill(memory(self.form));
            least = least.min(few.ticks(&mut state.clone(), 1)?);
        }
        Ok(if least > LONG { FEW } else { COPIES })
    }

    fn moves_stack(&self) -> bool {
        self.prepared.plan.effects().moves_stack
    }

    fn independent(&self, copies: usize, breakers: &[u8]) -> Vec<u8> {
        let all = self.prepared.independent.iter().cycle().take(copies);
        all.flat_map(|code| breakers.iter().chain(code)).copied().collect()
    }

    fn body(&self, code: &[u8], copies: usize, state: State) -> Result<Body<'_>, Failure> {
        let looped = Looped::new(code, self.moves_stack()).map_err(refused)?;
        let fill = memory(self.form);
        Ok(Body { looped, copies, state, fill: Box::new(move |data| data.fill(fill)) })
    }

    /// The chain, with what its copies feed one another by; or why there is none.
    fn chain(&self, copies: usize) -> Result<Result<(String, Body<'_>), String>, Failure> {
        let (feeding, links) = match &self.prepared.chain {
            Ok(chain) => chain,
            Err(why) => return Ok(Err(why.clone())),
        };
        for link in links {
            let mut state = self.prepared.plan.state(self.form, self.data, Share::Whole);
            let fill = memory(self.form);
            let Some(chased) = link.chased else {
                let body = self.body(&link.code.repeat(copies), copies, state)?;
                return Ok(Ok((feeding.to_string(), body)));
            };
            begin(&mut state, &chased, self.data);
            if self.holds_still(&link.code, &chased, &state)? {
                let body = Body {
                    looped: Looped::new(&link.code.repeat(copies), self.moves_stack())
                        .map_err(refused)?,
                    copies,
                    state,
                    fill: Box::new(move |data| {
                        data.fill(fill);
                        data.set(0, chased.memory(data));
                    }),
                };
                return Ok(Ok((feeding.to_string(), body)));
            }
        }
        Ok(Err("what it loads cannot be made the address of the next load".into()))
    }

    /// Whether a link of a pointer chase leaves the chased register as it was.
    fn holds_still(&self, code: &[u8], chased: &Chased, state: &State) -> Result<bool, Failure> {
        let mut state = state.clone();
        let before = state.general(chased.register);
        self.data.fill(memory(self.form));
        self.data.set(0, chased.memory(self.data));
        let once = Looped::new(code, self.moves_stack()).map_err(refused)?;
        Ok(once.run(&mut state, 1).is_ok() && state.general(chased.register) == before)
    }

    /// The other thread of this core, running the same independent copies.
    fn sibling(&self, copies: usize) -> Result<Sibling, Failure> {
        let code = self.independent(copies, &[]);
        let looped = Looped::new(&code, self.moves_stack()).map_err(refused)?;
        let (form, plan) = (self.form.clone(), self.prepared.plan.clone());
        Sibling::start(looped, move |data| {
            data.fill(memory(&form));
            plan.state(&form, data, Share::Whole)
        })
    }
}

/// What was counted of copies that take so many core cycles each.
fn with(measurement: Measurement, counted: &Counted, cycles: f64) -> Measurement {
    let measurement = measurement.value("uops", counted.uops);
    let measurement = measurement.covariate("uops_event", counted.event);
    let ports = counted.ports.iter();
    ports.fold(measurement, |told, (port, uops)| told.value(port, uops / cycles))
}

fn begin(state: &mut State, chased: &Chased, data: &Data) {
    state.set_general(chased.register, if chased.holds_address { data.address() } else { 0 });
}

impl Chased {
    /// What the memory holds at first.
    fn memory(&self, data: &Data) -> u64 {
        if self.memory_holds_address { data.address() } else { 0 }
    }
}

/// How far a value is from a whole number, over what is allowed: 0.05 cycles or 0.5%, the larger.
fn off_integer(cycles: f64) -> f64 {
    let whole = cycles.round().max(1.0);
    (cycles - whole).abs() / f64::max(0.05, 0.005 * whole)
}

/// How long a sample takes.
pub(super) fn expected(budget: Duration) -> Duration {
    // Three calibrated bodies, and what stands around them.
    budget + Duration::from_millis(2)
}

#[cfg(test)]
mod tests {
    use super::super::prepared::prepare;
    use super::*;

    fn one_form<'a>(
        list: &'a List,
        prepared: &'a Prepared,
        data: &'a Data,
        timed: Timed<'a>,
    ) -> Measured<'a> {
        Measured { form: &list.forms[0], prepared, data, timed, counting: None }
    }

    /// A form's throughput and latency, the least of some tries: other processes only add.
    fn measured(text: &str) -> (f64, f64) {
        let tsc = machine::tsc::Tsc::get().unwrap();
        let list = List::of_text("mine", text).unwrap();
        let prepared = prepare(&list).remove(0).unwrap();
        let data = Data::new().unwrap();
        let timed = Timed::new(tsc, &data, Duration::from_millis(2)).unwrap();
        let form = one_form(&list, &prepared, &data, timed);
        let least = |least: (f64, f64), _| {
            let values = form.measure(false).unwrap().values;
            let latency = values.get("latency").copied().unwrap_or(f64::NAN);
            (least.0.min(values["throughput"]), least.1.min(latency))
        };
        (0..5).fold((f64::INFINITY, f64::INFINITY), least)
    }

    /// What is known of every processor of 64 bits of the last ten years.
    #[test]
    fn latencies_are_what_is_known_of_them() {
        if let Err(why) = machine::tsc::Tsc::get() {
            return machine::untested::note("bounds: latencies that are known", &why);
        }
        machine::pin::pin_to(machine::pin::current_cpu()).unwrap();
        let (add_throughput, add) = measured("add R64, R64");
        let ratio = |text| measured(text).1 / add;
        let load = ratio("mov R64, M64");
        println!("add {add:.3} {add_throughput:.3}, load {load:.3}");
        assert!((add - 1.0).abs() < 0.1, "{add}");
        assert!(add_throughput < 0.6 * add, "additions are made side by side: {add_throughput}");
        assert!((ratio("imul R64, R64") - 3.0).abs() < 0.15);
        assert!((load - 4.0).abs() < 0.2 || (load - 5.0).abs() < 0.25, "{load}");
        assert!((ratio("paddd XMM, XMM") - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_fault_is_unsupported_and_the_next_form_is_measured() {
        if machine::tsc::Tsc::get().is_err() {
            return;
        }
        let text = "[[class]]\nname = \"mine\"\nforms = [{ form = \"ud2\", bytes = \"0F 0B\" }]";
        let list = List::read("mine.toml", text).unwrap();
        let prepared = prepare(&list).remove(0).unwrap();
        let data = Data::new().unwrap();
        let tsc = machine::tsc::Tsc::get().unwrap();
        let timed = Timed::new(tsc, &data, Duration::from_millis(2)).unwrap();
        let form = one_form(&list, &prepared, &data, timed);
        let failure = form.measure(false).unwrap_err();
        assert_eq!(failure.kind, lab::sample::FailureKind::Unsupported);
        assert!(failure.why.contains("SIGILL"), "{failure}");
        assert!(measured("add R64, R64").0 > 0.0);
    }

    #[test]
    fn what_is_off_an_integer_is_told_by_what_is_allowed() {
        assert!((off_integer(3.05) - 1.0).abs() < 1e-9);
        assert!((off_integer(19.9) - 1.0).abs() < 1e-9);
        assert!(off_integer(4.002) < 0.05 && off_integer(0.5) > 5.0);
    }
}
