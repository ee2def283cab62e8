//! Machine code of the forms of a list.

use lab::sample::Failure;

use super::chain::{Chain, Chased, Dependency};
use super::effects::Effects;
use super::feature;
use super::list::{InstructionForm, List};
use super::operand::BETWEEN;
use super::plan::{Line, Plan, analysis_line};
use super::register_set::RegisterSet;
use crate::assembler::{self, Code};

/// Machine code of a form, for each of its measurements.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// Independent copies.
    pub(crate) independent: Vec<Vec<u8>>,
    /// Dependency and alternative links of a chain, or the reason why there is none.
    pub(crate) chain: Result<(Dependency, Vec<Link>), String>,
    /// The form and the one that moves its output back.
    pub(crate) round_trip: Option<Vec<u8>>,
}

/// Machine code of a link of a chain.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) code: Vec<u8>,
    /// Number of copies of the form.
    pub(crate) copies: usize,
    pub(crate) chased: Option<Chased>,
}

/// Assembles lines, the textual ones in one run.
pub(crate) fn assembled(lines: impl IntoIterator<Item = Line>) -> Vec<Result<Vec<u8>, Failure>> {
    assembled_with(lines, &mut Code::new())
}

/// Returns the code of lines; assembles unknown lines and adds them to `code`.
fn assembled_with(
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

/// Prepares forms of a file. Assembles unknown lines in two runs, first the forms to analyse their effects, then their
/// copies, and adds them to `code`.
pub(crate) fn prepare_with(
    file: &str,
    forms: &[InstructionForm],
    code: &mut Code,
) -> Vec<Result<Prepared, Failure>> {
    let analysed = assembled_with(forms.iter().map(analysis_line), code);
    let forms = || forms.iter();
    let planned: Vec<Result<Planned, Failure>> = forms()
        .zip(analysed)
        .map(|(form, code)| {
            let planned = code.and_then(|code| Planned::new(form, &code));
            planned.map_err(|failure| located(file, form, failure))
        })
        .collect();
    let lines = planned.iter().flatten().flat_map(Planned::lines);
    let mut codes = assembled_with(lines, code).into_iter();
    let with_code = |(form, planned): (&InstructionForm, Result<Planned, Failure>)| {
        // The codes of a form are consumed even if one of them is an error.
        let planned = planned?;
        let codes: Vec<_> = codes.by_ref().take(planned.lines().count()).collect();
        let codes = codes.into_iter().collect::<Result<Vec<_>, _>>();
        codes.map(|codes| planned.prepared(codes)).map_err(|failure| located(file, form, failure))
    };
    forms().zip(planned).map(with_code).collect()
}

/// Adds file, line and text of the form to a failure, unless this CPU does not support the form.
fn located(file: &str, form: &InstructionForm, failure: Failure) -> Failure {
    if failure.kind.is_fault() {
        let (line, text) = (form.line, &form.text);
        let why = format!("{file}: line {line}: '{text}': {}", failure.why);
        return failure.with_details(why);
    }
    failure
}

/// Form whose copies are not assembled yet.
struct Planned {
    plan: Plan,
    independent: Vec<Line>,
    chain: Result<Chain, String>,
    round_trip: Option<[Line; 2]>,
}

impl Planned {
    fn new(form: &InstructionForm, code: &[u8]) -> Result<Self, Failure> {
        let effects = Effects::of(code).map_err(Failure::failed)?;
        feature::check_features(&effects.features)?;
        let plan = Plan::new(form, effects);
        let independent = plan.independent(form, RegisterSet::Whole).map_err(Failure::failed)?;
        let chain = plan.chain(form);
        let round_trip = plan.round_trip(form);
        Ok(Self { plan, independent, chain, round_trip })
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let links = self.chain.iter().flat_map(|chain| chain.links.iter().map(|it| &it.line));
        self.independent.iter().chain(links).chain(self.round_trip.iter().flatten()).cloned()
    }

    fn prepared(self, mut codes: Vec<Vec<u8>>) -> Prepared {
        let mut rest = codes.split_off(self.independent.len());
        let chain = self.chain.map(|chain| {
            let links = rest.drain(..chain.links.len()).zip(&chain.links);
            let links = links
                .map(|(code, it)| Link { code, copies: it.copies, chased: it.chased })
                .collect();
            (chain.dependency, links)
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
    fn every_supported_form_of_the_built_in_list_assembles() {
        if let Err(failure) = assembler::AS.find() {
            return machine::untested::note("bounds: the whole list assembles", &failure);
        }
        let list = BUILT_IN.as_ref().unwrap();
        let start = std::time::Instant::now();
        let prepared = prepare(list);
        println!("prepared in {:?}", start.elapsed());
        let faults: Vec<_> = prepared
            .iter()
            .filter_map(|one| one.as_ref().err())
            .filter(|failure| failure.kind.is_fault())
            .map(ToString::to_string)
            .collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        let chains = prepared.iter().flatten().filter(|one| one.chain.is_ok()).count();
        println!("{} supported, {chains} with a chain", prepared.iter().flatten().count());
        for (form, one) in list.forms.iter().zip(&prepared) {
            let has_chain = one.as_ref().map_or(true, |one| one.chain.is_ok());
            assert!(
                has_chain || !form.integer,
                "{} is marked integer but has no chain",
                form.level
            );
        }
    }

    #[test]
    fn a_form_that_does_not_assemble_is_reported_with_its_line() {
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
    fn both_assemblers_encode_the_same_instructions() {
        let Ok(_) = assembler::AS.find() else {
            let why = assembler::AS.absent();
            return machine::untested::note("bounds: two assemblers agree", &why);
        };
        let list = BUILT_IN.as_ref().unwrap();
        let lines = list.forms.iter().map(analysis_line).flat_map(|line| match line {
            Line::Text(text) => text.split(BETWEEN).map(str::to_owned).collect(),
            Line::Bytes(_) => Vec::new(),
        });
        let differing = assembler::disagreements(lines.collect());
        // An instruction may have several encodings, but its effects must be the same.
        for (line, by_crate, system) in differing {
            let effects =
                |code: &[u8]| Effects::of(code).unwrap_or_else(|why| panic!("{line}: {why}"));
            assert_eq!(
                effects(&by_crate),
                effects(&system),
                "{line}: {by_crate:02X?} {system:02X?}"
            );
        }
    }
}
