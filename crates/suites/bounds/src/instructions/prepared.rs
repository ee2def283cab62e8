//! The forms of a list as machine code.

use lab::sample::Failure;

use super::chain::{Chain, Chased, Feeding};
use super::effects::Effects;
use super::feature;
use super::list::{InstructionForm, List};
use super::operand::BETWEEN;
use super::plan::{Line, Plan, first_look};
use super::register_set::RegisterSet;
use crate::assembler::{self, Code};

/// A form as machine code, for each way in which it is measured.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// Copies that do not wait for one another.
    pub(crate) independent: Vec<Vec<u8>>,
    /// The feeding and the links of a chain, each with how it begins; or why there is none.
    pub(crate) chain: Result<(Feeding, Vec<Link>), String>,
    /// The form and the one that leads back.
    pub(crate) round_trip: Option<Vec<u8>>,
}

/// A link of a chain, as machine code.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) code: Vec<u8>,
    /// How many copies of the form it is.
    pub(crate) copies: usize,
    pub(crate) chased: Option<Chased>,
}

/// The machine code of lines, in their order; those of text in one run.
pub(crate) fn assembled(lines: impl IntoIterator<Item = Line>) -> Vec<Result<Vec<u8>, Failure>> {
    completed(lines, &mut Code::new())
}

/// The same; what is not among known code is assembled and added to it.
fn completed(
    lines: impl IntoIterator<Item = Line>,
    code: &mut Code,
) -> Vec<Result<Vec<u8>, Failure>> {
    let lines: Vec<Line> = lines.into_iter().collect();
    let texts = lines.iter().flat_map(|line| match line {
        Line::Text(text) => text.split(BETWEEN).collect(),
        Line::Bytes(_) => Vec::new(),
    });
    let texts = texts.filter(|text| !code.contains_key(*text));
    let unknown: Vec<String> = texts.map(str::to_owned).collect();
    code.extend(assembler::assemble(unknown));
    let one = |line: Line| match line {
        Line::Bytes(bytes) => Ok(bytes),
        Line::Text(text) => {
            let parts: Result<Vec<_>, _> = text.split(BETWEEN).map(|it| code[it].clone()).collect();
            Ok(parts?.concat())
        }
    };
    lines.into_iter().map(one).collect()
}

/// Prepares all forms of a list.
pub(crate) fn prepare(list: &List) -> Vec<Result<Prepared, Failure>> {
    prepare_with(&list.file, &list.forms, &mut Code::new())
}

/// Prepares some forms of a file. What is not among known code is assembled in two runs, one to look at each
/// form and one with the registers that its copies get, and added.
pub(crate) fn prepare_with(
    file: &str,
    forms: &[InstructionForm],
    code: &mut Code,
) -> Vec<Result<Prepared, Failure>> {
    let looks = completed(forms.iter().map(first_look), code);
    let forms = || forms.iter();
    let planned: Vec<Result<Planned, Failure>> = forms()
        .zip(looks)
        .map(|(form, code)| {
            let planned = code.and_then(|code| Planned::new(form, &code));
            planned.map_err(|failure| placed(file, form, failure))
        })
        .collect();
    let lines = planned.iter().flatten().flat_map(Planned::lines);
    let mut codes = completed(lines, code).into_iter();
    let with_code = |(form, planned): (&InstructionForm, Result<Planned, Failure>)| {
        // Whatever becomes of a form, its codes are taken from the row.
        let planned = planned?;
        let own: Vec<_> = codes.by_ref().take(planned.lines().count()).collect();
        let own = own.into_iter().collect::<Result<Vec<_>, _>>();
        own.map(|codes| planned.prepared(codes)).map_err(|failure| placed(file, form, failure))
    };
    forms().zip(planned).map(with_code).collect()
}

/// A failure with the file and line of the form that it is about; what this CPU lacks is no fault of theirs.
fn placed(file: &str, form: &InstructionForm, failure: Failure) -> Failure {
    if failure.kind.is_fault() {
        let (line, text) = (form.line, &form.text);
        return Failure {
            why: format!("{file}: line {line}: '{text}': {}", failure.why),
            ..failure
        };
    }
    failure
}

/// A form before its copies are assembled.
struct Planned {
    plan: Plan,
    independent: Vec<Line>,
    chain: Result<Chain, String>,
    round_trip: Option<[Line; 2]>,
}

impl Planned {
    fn new(form: &InstructionForm, code: &[u8]) -> Result<Self, Failure> {
        let effects = Effects::of(code).map_err(Failure::failed)?;
        feature::all_here(&effects.features)?;
        let plan = Plan::new(form, effects);
        let independent = plan.independent(form, RegisterSet::Whole).map_err(Failure::failed)?;
        let chain = plan.chain(form);
        let round_trip = plan.round_trip(form);
        Ok(Self { plan, independent, chain, round_trip })
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let tries = self.chain.iter().flat_map(|chain| chain.tries.iter().map(|it| &it.line));
        self.independent.iter().chain(tries).chain(self.round_trip.iter().flatten()).cloned()
    }

    fn prepared(self, mut codes: Vec<Vec<u8>>) -> Prepared {
        let mut rest = codes.split_off(self.independent.len());
        let chain = self.chain.map(|chain| {
            let links = rest.drain(..chain.tries.len()).zip(&chain.tries);
            let links = links
                .map(|(code, it)| Link { code, copies: it.copies, chased: it.chased })
                .collect();
            (chain.feeding, links)
        });
        let round_trip = self.round_trip.map(|_| rest.concat());
        Prepared { plan: self.plan, independent: codes, chain, round_trip }
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::BUILT_IN;
    use super::*;

    #[test]
    fn every_form_of_the_suites_own_list_assembles_or_this_cpu_lacks_it() {
        if let Err(failure) = assembler::AS.find() {
            return machine::untested::note("bounds: the whole list assembles", &failure);
        }
        let list = BUILT_IN.as_ref().unwrap();
        let begun = std::time::Instant::now();
        let prepared = prepare(list);
        println!("prepared in {:?}", begun.elapsed());
        let faults: Vec<_> = prepared
            .iter()
            .filter_map(|one| one.as_ref().err())
            .filter(|failure| failure.kind.is_fault())
            .map(ToString::to_string)
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        let chains = prepared.iter().flatten().filter(|one| one.chain.is_ok()).count();
        println!("{} here, {chains} with a chain", prepared.iter().flatten().count());
        for (form, one) in list.forms.iter().zip(&prepared) {
            let has_chain = one.as_ref().map_or(true, |one| one.chain.is_ok());
            assert!(
                has_chain || !form.integer,
                "{} is marked integer and has no chain",
                form.level
            );
        }
    }

    #[test]
    fn bad_text_gives_its_line_and_reason() {
        if let Err(failure) = assembler::AS.find() {
            return machine::untested::note("bounds: bad assembly text", &failure);
        }
        let text = "[[class]]\nname = \"mine\"\nforms = [\n{ form = \"add R64, R64\" },\n{ form = \"frob R64\" },\n]\n";
        let list = List::read("mine.toml", text).unwrap();
        let [good, bad] = &prepare(&list)[..] else { panic!("two forms") };
        assert!(good.is_ok());
        let why = bad.as_ref().unwrap_err().to_string();
        assert!(why.contains("mine.toml: line 5: 'frob R64': no such instruction"), "{why}");
    }

    #[test]
    fn the_crate_and_the_system_assemble_the_same() {
        let Ok(_) = assembler::AS.find() else {
            let why = assembler::AS.absent();
            return machine::untested::note("bounds: two assemblers agree", &why);
        };
        let list = BUILT_IN.as_ref().unwrap();
        let lines = list.forms.iter().map(first_look).flat_map(|line| match line {
            Line::Text(text) => text.split(BETWEEN).map(str::to_owned).collect(),
            Line::Bytes(_) => Vec::new(),
        });
        let differing = assembler::disagreements(lines.collect());
        // The same instruction may have several encodings; what it does must be the same.
        for (line, own, system) in differing {
            let effects =
                |code: &[u8]| Effects::of(code).unwrap_or_else(|why| panic!("{line}: {why}"));
            assert_eq!(effects(&own), effects(&system), "{line}: {own:02X?} {system:02X?}");
        }
    }
}
