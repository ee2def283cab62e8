//! The timed code of a run in its bundle: generated loops as the run recorded them, and the functions of the program that
//! read the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use lab::journal::Run;
use lab::timed_code::TimedCode;

use super::listing::{Code, Symbols, difference, listing};
use super::program::{Program, is_of_module};
use super::{BundleError, Entries};

/// Folder of the timed code in a bundle.
const FOLDER: &str = "code";
/// Modules of the instrument that read the clock around samples.
const INSTRUMENT: [&str; 2] = ["machine", "applications"];

/// Where the timed code of an experiment is.
#[derive(Debug, Clone, Default)]
pub struct MethodCode {
    /// The experiment's ID.
    pub experiment: String,
    /// The suite, whose crate has its name.
    pub suite: String,
    /// The path of the method's module, e.g. `copy::frames`.
    pub module: String,
    /// Further modules with timed functions.
    pub timed_modules: Vec<String>,
    /// Artefacts that the measuring host made, e.g. compiled programs, whose code is not part of the program.
    pub artefacts: BTreeSet<String>,
    /// Files with code of the user.
    pub files: BTreeSet<String>,
}

/// Sources of the listings.
pub struct CodeSources<'a> {
    /// The run.
    pub run: &'a Run,
    /// The generated loops that it recorded.
    pub generated: &'a [TimedCode],
    /// The running program, or the reason why it cannot be listed.
    pub program: Result<Program, String>,
    /// The BLAKE3 hash of the running program.
    pub program_hash: Option<&'a str>,
    /// The code of each measured experiment.
    pub methods: &'a [MethodCode],
}

/// Adds the listings, and `code/README.md`, which describes them.
///
/// # Errors
/// Returns an error if a recorded loop is damaged.
pub fn add_code(entries: &mut Entries, sources: &CodeSources<'_>) -> Result<(), BundleError> {
    let mut generated: BTreeMap<&str, Vec<&TimedCode>> = BTreeMap::new();
    for code in sources.generated {
        generated.entry(&code.experiment).or_default().push(code);
    }
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (experiment, codes) in &generated {
        let text = generated_text(experiment, codes).map_err(BundleError::Entry)?;
        let name = generated_file(experiment);
        let about = format!("Disassembly of the generated loops of {experiment}, as executed");
        entries.add(name.as_str(), about, text.into_bytes());
        files.insert((*experiment).to_owned(), name);
    }
    let listed = listed_program(sources);
    let mut modules = Vec::new();
    if let Ok(program) = &listed {
        let crates: BTreeSet<&str> =
            sources.methods.iter().map(|one| one.suite.as_str()).chain(INSTRUMENT).collect();
        let declared = sources.methods.iter().flat_map(|one| one.timed_modules.iter().cloned());
        let listings = program.timed(&Vec::from_iter(crates), &declared.collect());
        for (module, text) in listings {
            let about = format!("Disassembly of the timed functions of {module} in the program");
            entries.add(program_file(&module), about, text.into_bytes());
            modules.push(module);
        }
    }
    let text = readme(sources, &files, &modules, listed.err().as_deref());
    let about = "Which code each experiment timed, where its disassembly is, and what is missing";
    entries.add(format!("{FOLDER}/README.md"), about, text.into_bytes());
    Ok(())
}

fn generated_file(experiment: &str) -> String {
    format!("{FOLDER}/generated/{}.txt", experiment.replace('/', "."))
}

fn program_file(module: &str) -> String {
    format!("{FOLDER}/program/{module}.txt")
}

/// Returns the program if it measured the run, or the reason why it is not listed.
fn listed_program<'s>(sources: &'s CodeSources<'_>) -> Result<&'s Program, String> {
    let hashes = measuring_hashes(sources.run);
    let is_measuring = sources.program_hash.is_some_and(|hash| hashes.contains(hash));
    if !is_measuring {
        return Err("another build of tollgate wrote this bundle than measured the run; write it with the program of the \
                    run, whose hash is in `run.json`"
            .into());
    }
    sources
        .program
        .as_ref()
        .map_err(|why| format!("the file of the program cannot be listed: {why}"))
}

/// Returns the hashes of the programs that measured samples of a run.
fn measuring_hashes(run: &Run) -> BTreeSet<&str> {
    let measured: BTreeSet<&str> = run.samples.iter().map(|one| one.environment.as_str()).collect();
    let environments = measured.iter().filter_map(|id| run.record.environments.get(*id));
    environments.filter_map(|environment| environment.program_hash.as_deref()).collect()
}

/// Returns the loops of an experiment as text. A loop with the bytes of an earlier one is not printed again.
fn generated_text(experiment: &str, codes: &[&TimedCode]) -> Result<String, String> {
    let mut text = format!(
        "Generated loops of {experiment}, as its processes executed them in the first round.\n\
         Offsets and targets of branches are relative to the first byte of a loop.\n"
    );
    let symbols = Symbols::default();
    let mut printed: BTreeMap<Rc<[u8]>, usize> = BTreeMap::new();
    for TimedCode { point, role, environment, session, loops, omitted, .. } in codes {
        let role = if role.is_empty() { String::new() } else { format!(", role {role}") };
        let _ = writeln!(text, "\n=== {point}\nenvironment {environment}, session {session}{role}");
        let mut earlier: Option<(usize, Rc<[u8]>)> = None;
        for one in loops {
            let bytes: Rc<[u8]> = one.decode()?.into();
            let number = printed.len() + 1;
            let (name, length, offset) = (&one.name, one.bytes, one.page_offset);
            let known = *printed.entry(Rc::clone(&bytes)).or_insert(number);
            let _ = writeln!(
                text,
                "\n--- loop {known}: {name}; {length} bytes, in this sample at {offset:#x} of a page"
            );
            if known == number {
                let same = earlier
                    .as_ref()
                    .and_then(|(number, earlier)| Some((*number, difference(&bytes, earlier)?)));
                // The loop over half of the copies is the start of that over all.
                if let Some((number, from)) = same {
                    let _ =
                        writeln!(text, "0x0000  ... the bytes of loop {number}, up to {from:#06x}");
                }
                let from = same.map_or(0, |(_, from)| from);
                let code = Code { bytes: &bytes, address: 0, symbols: &symbols, from };
                text.push_str(&listing(&code));
            } else {
                let _ = writeln!(text, "the bytes of loop {known}");
            }
            earlier = Some((known, bytes));
        }
        if *omitted > 0 {
            let _ =
                writeln!(text, "\n{omitted} more loops were too many or too large to be recorded");
        }
    }
    Ok(text)
}

fn readme(
    sources: &CodeSources<'_>,
    generated: &BTreeMap<String, String>,
    modules: &[String],
    not_listed: Option<&str>,
) -> String {
    let mut text = String::from(
        "# Timed code of this run\n\n\
         The disassembly of what was timed: offset from the first byte, bytes, instruction in Intel's syntax. Repeated copies\n\
         are stated, not printed.\n\n",
    );
    let recorded = match generated.is_empty() {
        true => {
            "The run recorded no generated loop: it has none, or an earlier version of tollgate measured it."
        }
        false => {
            "Loops that are made at run time are in `generated`, one file per experiment. The process that timed them\n\
             recorded their bytes in its first round; `code.jsonl` has them. They are at another address in each round; the text\n\
             states that of the recorded sample."
        }
    };
    let _ = writeln!(text, "{recorded}\n");
    let hash = sources.program_hash.unwrap_or("unknown");
    let _ = match not_listed {
        Some(why) => writeln!(text, "Functions of the program are not included: {why}.\n"),
        None => writeln!(
            text,
            "Functions that are compiled into the program are in `program`, one file per module, with their addresses in the\n\
             program's file with the BLAKE3 hash `{hash}`,\n\
             which measured the run and wrote this bundle. They are those that read the time-stamp counter, those of modules that\n\
             are declared as timed, and the functions of the suites that these call, or whose address they take, up to two calls\n\
             away. Which of them ran depends on the point. `other.txt` has functions whose names state no module: the compiler\n\
             names code that it inlines into generic functions after those.\n",
        ),
    };
    text.push_str("| experiment | generated loops | functions of the program | not included |\n| --- | --- | --- | --- |\n");
    for method in sources.methods {
        let generated =
            generated.get(&method.experiment).map_or_else(|| "none".into(), |file| code(file));
        let is_its = |file: &&String| {
            let declared = method.timed_modules.iter();
            declared.chain([&method.module]).any(|module| is_of_module(file, module))
        };
        let functions: Vec<_> =
            modules.iter().filter(is_its).map(|file| code(&program_file(file))).collect();
        let functions = if functions.is_empty() { "none".into() } else { functions.join(", ") };
        let missing = missing(method);
        let experiment = &method.experiment;
        let _ = writeln!(text, "| {experiment} | {generated} | {functions} | {missing} |");
    }
    text.push_str(
        "\nThe C library, the kernel and firmware are not included; `environments.json` states their versions. Code of a guest\n\
         is that of the same program, or of an artefact.\n",
    );
    text
}

/// States the code of an experiment that is not in the program.
fn missing(method: &MethodCode) -> String {
    let artefacts: Vec<_> = method.artefacts.iter().map(|name| code(name)).collect();
    let files: Vec<_> = method.files.iter().map(|file| code(file)).collect();
    let mut parts = Vec::new();
    if !artefacts.is_empty() {
        parts.push(format!("made on the measuring host: {}", artefacts.join(", ")));
    }
    if !files.is_empty() {
        parts.push(format!("of the author, with its digest in `run.json`: {}", files.join(", ")));
    }
    parts.join("; ")
}

/// Returns a text as code of Markdown in a cell of a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace(['`', '|', '\n', '\r'], "?"))
}
