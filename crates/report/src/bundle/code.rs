//! The timed code of a run in its bundle: loops and functions as the run recorded them, and the functions of the program and
//! of its images that are timed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use lab::journal::Run;
use lab::method::EmbeddedImage;
use lab::timed_code::TimedCode;

use super::listing::{Code, Symbols, difference, listing};
use super::program::{Program, is_of_module};
use super::{BundleError, Entries};

/// Folder of the timed code in a bundle.
const FOLDER: &str = "code";
/// Modules of the instrument that read the clock around samples.
const INSTRUMENT: [&str; 2] = ["machine", "applications"];

/// Reason of a row without code if the compiler inlined all timed functions into functions without a module.
pub const NO_FUNCTION: &str = "no timed function states its module: see `code/program/other.txt`";

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
    /// Whether a sample of the run has a value.
    pub is_measured: bool,
    /// Whether its values may be times.
    pub is_timed: bool,
    /// Images within the program that its points executed, each once.
    pub images: Vec<EmbeddedImage>,
    /// Code of others that its points timed, with the reason why it is not listed.
    pub foreign: BTreeSet<String>,
    /// Artefacts that the measuring host made, e.g. compiled programs, whose code is not part of the program.
    pub artefacts: BTreeSet<String>,
    /// Files with code of the user.
    pub files: BTreeSet<String>,
}

/// Sources of the listings.
pub struct CodeSources<'a> {
    /// The BLAKE3 hashes of the programs that measured the run.
    pub measuring_hashes: BTreeSet<&'a str>,
    /// The loops and functions that it recorded.
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
        let about =
            format!("Disassembly of the recorded loops and functions of {experiment}, as executed");
        entries.add(name.as_str(), about, text.into_bytes());
        files.insert((*experiment).to_owned(), name);
    }
    let program = listed_program(sources);
    let mut listed = ListedFiles::default();
    if let Ok(program) = &program {
        let measured = || sources.methods.iter().filter(|one| one.is_measured);
        let crates: BTreeSet<&str> =
            measured().map(|one| one.suite.as_str()).chain(INSTRUMENT).collect();
        let declared = measured().flat_map(|one| one.timed_modules.iter().cloned());
        let listings = program.timed(&Vec::from_iter(crates), &declared.collect());
        for (module, text) in listings {
            let about = format!("Disassembly of the timed functions of {module} in the program");
            entries.add(program_file(&module), about, text.into_bytes());
            listed.modules.push(module);
        }
        add_images(entries, measured().flat_map(|one| &one.images), &mut listed);
    }
    let text = readme(sources, &files, &listed, program.err().as_deref());
    let about = "Which code each experiment timed, where its disassembly is, and what is missing";
    entries.add(format!("{FOLDER}/README.md"), about, text.into_bytes());
    Ok(())
}

/// Adds the functions of images of the program, each once.
fn add_images<'a>(
    entries: &mut Entries,
    images: impl Iterator<Item = &'a EmbeddedImage>,
    listed: &mut ListedFiles,
) {
    let images: BTreeMap<_, _> = images.map(|image| (image.name, image)).collect();
    for (name, image) in images {
        match Program::read(image.file).map(|program| program.reached(image.timed)) {
            Ok(text) if !text.is_empty() => {
                let about = format!(
                    "Disassembly of the timed functions of the image {name} in the program"
                );
                entries.add(image_file(name), about, text.into_bytes());
                listed.images.push(name.into());
            }
            Ok(_) => drop(listed.missing.insert(name.into(), "it has no timed function".into())),
            Err(why) => drop(listed.missing.insert(name.into(), why)),
        }
    }
}

fn image_file(name: &str) -> String {
    format!("{FOLDER}/images/{name}.txt")
}

fn generated_file(experiment: &str) -> String {
    format!("{FOLDER}/generated/{}.txt", experiment.replace('/', "."))
}

fn program_file(module: &str) -> String {
    format!("{FOLDER}/program/{module}.txt")
}

/// Returns the program if it measured the run, or the reason why it is not listed.
fn listed_program<'s>(sources: &'s CodeSources<'_>) -> Result<&'s Program, String> {
    let hashes = &sources.measuring_hashes;
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

/// Returns the BLAKE3 hashes of the programs that measured samples of a run.
pub fn measuring_hashes(run: &Run) -> BTreeSet<&str> {
    let measured: BTreeSet<&str> = run.samples.iter().map(|one| one.environment.as_str()).collect();
    let environments = measured.iter().filter_map(|id| run.record.environments.get(*id));
    environments.filter_map(|environment| environment.program_hash.as_deref()).collect()
}

/// Returns the loops of an experiment as text. A loop with the bytes of an earlier one is not printed again.
fn generated_text(experiment: &str, codes: &[&TimedCode]) -> Result<String, String> {
    let mut text = format!(
        "Loops and functions outside of the program that {experiment} executed in its first round.\n\
         Offsets and targets of branches are relative to the first byte of each.\n"
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
                "\n--- code {known}: {name}; {length} bytes, in this sample at {offset:#x} of a page"
            );
            if known == number {
                let same = earlier
                    .as_ref()
                    .and_then(|(number, earlier)| Some((*number, difference(&bytes, earlier)?)));
                // The loop over half of the copies is the start of that over all.
                if let Some((number, from)) = same {
                    let _ =
                        writeln!(text, "0x0000  ... the bytes of code {number}, up to {from:#06x}");
                }
                let from = same.map_or(0, |(_, from)| from);
                let code = Code { bytes: &bytes, address: 0, symbols: &symbols, from };
                text.push_str(&listing(&code));
            } else {
                let _ = writeln!(text, "the bytes of code {known}");
            }
            earlier = Some((known, bytes));
        }
        if *omitted > 0 {
            let _ = writeln!(
                text,
                "\n{omitted} more loops and functions were too many or too large to be recorded"
            );
        }
    }
    Ok(text)
}

fn readme(
    sources: &CodeSources<'_>,
    recorded: &BTreeMap<String, String>,
    listed: &ListedFiles,
    not_listed: Option<&str>,
) -> String {
    let mut text = String::from(
        "# Timed code of this run\n\n\
         The disassembly of what was timed: offset from the first byte, bytes, instruction in Intel's syntax. Repeated copies\n\
         are stated, not printed.\n\n",
    );
    text.push_str(match recorded.is_empty() {
        true => {
            "The run recorded no code: it has none outside of the program, or an earlier version of tollgate measured it.\n\n"
        }
        false => {
            "Loops that are made at run time, functions of libraries that timed loops call by their address, e.g. `memcpy` of the\n\
             C library, and timed functions of programs that the measuring host compiled are in `generated`, one file per\n\
             experiment. The process that timed them recorded their bytes in its first round; `code.jsonl` has them. Loops are at\n\
             another address in each round; the text states that of the recorded sample.\n\n"
        }
    });
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
             names code that it inlines into generic functions after those. `machine.*.txt` has the functions of the instrument\n\
             that read the counter, and `applications.*.txt` those of the applications that process packets.\n",
        ),
    };
    if !listed.images.is_empty() {
        text.push_str(
            "Images that run inside enclaves are embedded in the program. Their functions are in `images`, one file per allocator:\n\
             the implementation of the calls, and what it calls, up to two calls away.\n\n",
        );
    }
    text.push_str("| experiment | recorded as executed | functions of the program and its images | not included |\n| --- | --- | --- | --- |\n");
    let mut methods: Vec<_> = sources.methods.iter().collect();
    methods.sort_unstable_by_key(|method| &method.experiment);
    for method in methods {
        let row = Row::new(method, recorded, listed, not_listed.is_some());
        let _ = writeln!(text, "{}", row.text(&method.experiment));
    }
    text.push_str(
        "\nThe kernel, firmware, and functions of the C library that no timed loop calls by its address are not included;\n\
         `environments.json` states their versions. Code of a guest is that of the same program, or of an artefact.\n",
    );
    text
}

/// Files with functions of the program and of its images.
#[derive(Debug, Default)]
struct ListedFiles {
    /// Modules, e.g. `copy.faults`.
    modules: Vec<String>,
    /// Names of images.
    images: Vec<String>,
    /// Why images are not listed, by their name.
    missing: BTreeMap<String, String>,
}

/// The cells of an experiment.
#[derive(Debug)]
struct Row {
    recorded: Option<String>,
    functions: Vec<String>,
    missing: Vec<String>,
}

impl Row {
    fn new(
        method: &MethodCode,
        recorded: &BTreeMap<String, String>,
        listed: &ListedFiles,
        is_another_program: bool,
    ) -> Self {
        let recorded = recorded.get(&method.experiment).map(|file| code(file));
        if !method.is_measured {
            let missing = vec!["not measured in this run: no sample has a value".into()];
            return Self { recorded, functions: Vec::new(), missing };
        }
        let is_its = |file: &&String| {
            let declared = method.timed_modules.iter();
            declared.chain([&method.module]).any(|module| is_of_module(file, module))
        };
        let its: Vec<_> = listed.modules.iter().filter(is_its).collect();
        let mut functions = file_patterns(&listed.modules, &its, program_file);
        let names: Vec<_> = method.images.iter().map(|image| image.name).collect();
        let images: Vec<_> =
            listed.images.iter().filter(|name| names.contains(&name.as_str())).collect();
        functions.extend(match images.len() == listed.images.len() && images.len() > 1 {
            true => vec![code(&image_file("*"))],
            false => images.iter().map(|name| code(&image_file(name))).collect(),
        });
        let mut missing = missing(method, recorded.is_some());
        let without = names.iter().filter_map(|name| Some((name, listed.missing.get(*name)?)));
        missing.extend(without.map(|(name, why)| format!("the image {}: {why}", code(name))));
        if is_another_program {
            missing.push("functions of the program, as stated above".into());
        } else if its.is_empty() && recorded.is_none() && missing.is_empty() {
            missing.push(NO_FUNCTION.into());
        }
        Self { recorded, functions, missing }
    }

    fn text(&self, experiment: &str) -> String {
        let recorded = self.recorded.as_deref().unwrap_or("none");
        let functions = match self.functions.is_empty() {
            true => "none".into(),
            false => self.functions.join(", "),
        };
        format!("| {experiment} | {recorded} | {functions} | {} |", self.missing.join("; "))
    }
}

/// Returns the names of files in a cell. A pattern stands for all files of a crate.
fn file_patterns(all: &[String], its: &[&String], path: impl Fn(&str) -> String) -> Vec<String> {
    let crate_of = |file: &str| file.split('.').next().unwrap_or_default().to_owned();
    let count = |name: &str, files: &mut dyn Iterator<Item = &String>| {
        files.filter(|file| crate_of(file) == name).count()
    };
    let mut names = Vec::new();
    for file in its {
        let name = crate_of(file);
        let several = count(&name, &mut its.iter().copied());
        let is_whole = several > 1 && several == count(&name, &mut all.iter());
        let pattern = if is_whole { path(&format!("{name}.*")) } else { path(file) };
        let pattern = code(&pattern);
        if !names.contains(&pattern) {
            names.push(pattern);
        }
    }
    names
}

/// States the code of an experiment that is not in the program, and what it has instead of times.
fn missing(method: &MethodCode, is_recorded: bool) -> Vec<String> {
    /// Maximum number of artefacts that are named.
    const NAMED: usize = 3;
    let artefacts: Vec<_> = method.artefacts.iter().take(NAMED).map(|name| code(name)).collect();
    let files: Vec<_> = method.files.iter().map(|file| code(file)).collect();
    let mut parts = Vec::new();
    if !method.is_timed {
        parts.push("no time is measured, only counts".into());
    }
    if !artefacts.is_empty() {
        let what = match is_recorded {
            true => "made on the measuring host, apart from what is recorded",
            false => "made on the measuring host",
        };
        let more = match method.artefacts.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts.push(format!("{what}: {}{more}", artefacts.join(", ")));
    }
    if !files.is_empty() {
        parts.push(format!("of the author, with its digest in `run.json`: {}", files.join(", ")));
    }
    parts.extend(method.foreign.iter().cloned());
    parts
}

/// Returns a text as code of Markdown in a cell of a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace(['`', '|', '\n', '\r'], "?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method() -> MethodCode {
        MethodCode {
            experiment: "copy/frames".into(),
            suite: "copy".into(),
            module: "copy::frames".into(),
            is_measured: true,
            is_timed: true,
            ..MethodCode::default()
        }
    }

    fn listed() -> ListedFiles {
        let modules = ["copy.faults", "copy.frames", "stream.nic", "stream.suite"];
        let images = vec!["dlmalloc".into(), "talc".into()];
        ListedFiles { modules: modules.map(String::from).into(), images, ..ListedFiles::default() }
    }

    fn row(method: &MethodCode) -> String {
        let recorded =
            BTreeMap::from([("copy/sizes".into(), "code/generated/copy.sizes.txt".into())]);
        Row::new(method, &recorded, &listed(), false).text(&method.experiment)
    }

    #[test]
    fn a_row_has_code_or_a_reason() {
        let image = |name| EmbeddedImage { name, file: &[], timed: &[] };
        let frames = "| copy/frames | none |";
        for (change, expected) in [
            (method(), format!("{frames} `code/program/copy.frames.txt` |  |")),
            (
                MethodCode { timed_modules: vec!["stream".into()], ..method() },
                format!(
                    "{frames} `code/program/copy.frames.txt`, `code/program/stream.*.txt` |  |"
                ),
            ),
            (
                MethodCode {
                    experiment: "copy/sizes".into(),
                    module: "copy::sizes".into(),
                    ..method()
                },
                "| copy/sizes | `code/generated/copy.sizes.txt` | none |  |".into(),
            ),
            (
                MethodCode { images: vec![image("talc"), image("dlmalloc")], ..method() },
                format!("{frames} `code/program/copy.frames.txt`, `code/images/*.txt` |  |"),
            ),
            (
                MethodCode { images: vec![image("talc")], is_timed: false, ..method() },
                format!(
                    "{frames} `code/program/copy.frames.txt`, `code/images/talc.txt` | no time is measured, only counts |"
                ),
            ),
            (
                MethodCode { is_measured: false, ..method() },
                format!("{frames} none | not measured in this run: no sample has a value |"),
            ),
            (
                MethodCode { module: "copy::fram".into(), ..method() },
                format!("{frames} none | {NO_FUNCTION} |"),
            ),
            (
                MethodCode {
                    module: "copy::fram".into(),
                    foreign: BTreeSet::from(["mbw".into()]),
                    artefacts: ["a", "b", "c", "d", "e"].map(String::from).into(),
                    ..method()
                },
                format!(
                    "{frames} none | made on the measuring host: `a`, `b`, `c` and 2 more; mbw |"
                ),
            ),
        ] {
            assert_eq!(row(&change), expected);
        }
        let another = Row::new(&method(), &BTreeMap::new(), &ListedFiles::default(), true);
        assert_eq!(another.missing, ["functions of the program, as stated above"]);
    }
}
