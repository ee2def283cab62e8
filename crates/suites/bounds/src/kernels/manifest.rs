//! The manifest of mechanisms, `mechanisms.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::read_toml;
use lab::sample::Failure;
use serde::Deserialize;

const FILE: &str = "mechanisms.toml";

/// Compilers and mechanisms, in the order of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    #[serde(rename = "compiler")]
    pub(super) compilers: Vec<Compiler>,
    #[serde(rename = "mechanism")]
    pub(super) mechanisms: Vec<Mechanism>,
}

/// A language that the kernels are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Language {
    #[serde(rename = "c")]
    C,
    #[serde(rename = "c++")]
    Cpp,
    #[serde(rename = "rust")]
    Rust,
}

/// A compiler and how it is found.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compiler {
    pub(super) name: String,
    pub(super) language: Language,
    /// The first of these on the search path is taken.
    pub(super) programs: Vec<String>,
    /// Words before all others.
    #[serde(default)]
    pub(super) first: Vec<String>,
    /// Flags of every program that it makes.
    pub(super) flags: Vec<String>,
    /// What brings it, where it is missing.
    pub(super) package: String,
}

/// A mechanism that keeps a program inside its bounds, or none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mechanism {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) compiler: String,
    /// The mechanism that its overhead is against; none where it is itself one of those.
    pub(super) baseline: Option<String>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Variables that its programs run with.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) needs: Needs,
    /// The program that runs its programs.
    #[serde(default)]
    pub(super) runner: Vec<String>,
    #[serde(default)]
    pub(super) runner_package: String,
    /// Words of which one stands in its report of a bug.
    #[serde(default)]
    pub(super) reports: Vec<String>,
    /// Whether it ends a program that has a bug by an illegal instruction.
    #[serde(default)]
    pub(super) traps: bool,
    /// A bug for which its compiler refuses the program.
    pub(super) refuses: Option<Refusal>,
    /// The bugs that it is expected to catch.
    #[serde(default)]
    pub(super) catches: Vec<String>,
    /// What the source published: kernel to ratio.
    #[serde(default)]
    pub(super) published: BTreeMap<String, f64>,
    /// Bytes that a program holds for each byte of its data, at most.
    #[serde(default = "a_little_more")]
    pub(super) memory: f64,
    /// The same where the data are pointers.
    pub(super) pointer_memory: Option<f64>,
    /// How many times slower than the plain program it is at most, for limits of time alone.
    #[serde(default = "twice")]
    pub(super) slowdown: f64,
    /// How long a program takes to begin, for limits of time alone.
    #[serde(default = "at_once")]
    pub(super) start: String,
}

/// What a mechanism needs beside its compiler.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Needs {
    /// A file that the compiler must find, and its package; `{major}` is the compiler's version.
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) package: String,
    /// The least version of the compiler.
    pub(super) major: Option<u32>,
    /// A capability of the machine.
    pub(super) machine: Option<String>,
}

/// A bug that does not compile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusal {
    pub(super) bug: String,
    pub(super) flags: Vec<String>,
    /// What the compiler says.
    pub(super) says: String,
}

fn a_little_more() -> f64 {
    1.2
}

fn twice() -> f64 {
    2.0
}

fn at_once() -> String {
    "5 ms".into()
}

/// The manifest.
///
/// # Errors
/// What is wrong in the file.
pub(super) fn manifest() -> Result<&'static Manifest, Failure> {
    static READ: LazyLock<Result<Manifest, String>> = LazyLock::new(|| {
        read_toml(FILE, include_str!("../../mechanisms.toml")).map_err(|fault| fault.to_string())
    });
    READ.as_ref().map_err(|fault| Failure::failed(fault.clone()))
}

/// A mechanism by its name.
///
/// # Errors
/// There is none: which there are.
pub(super) fn mechanism(name: &str) -> Result<&'static Mechanism, Failure> {
    let all = &manifest()?.mechanisms;
    all.iter().find(|one| one.name == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        Failure::failed(format!("{FILE} has no mechanism '{name}'; it has {}", names.join(", ")))
    })
}

/// Reads a level of the factor `mechanism`.
pub(super) fn spelled(name: &str) -> Result<String, String> {
    mechanism(name).map(|one| one.name.clone()).map_err(|failure| failure.why)
}

impl Mechanism {
    /// Its compiler.
    ///
    /// # Errors
    /// The manifest has none of that name.
    pub(super) fn compiler(&self) -> Result<&'static Compiler, Failure> {
        let found = manifest()?.compilers.iter().find(|one| one.name == self.compiler);
        found.ok_or_else(|| Failure::failed(format!("{FILE} has no compiler '{}'", self.compiler)))
    }

    /// Whether it reports a bug in what a program wrote to its errors.
    pub(super) fn reports(&self, errors: &str) -> bool {
        self.reports.iter().any(|words| errors.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use super::super::detection::BUGS;
    use super::super::kernel::Kernel;
    use super::*;

    #[test]
    fn the_manifest_is_sound() {
        let manifest = manifest().unwrap();
        for one in &manifest.mechanisms {
            let compiler = one.compiler().unwrap();
            if let Some(baseline) = &one.baseline {
                let base = mechanism(baseline).unwrap();
                assert_eq!(base.baseline, None, "{}: a baseline has none", one.name);
                let language = base.compiler().unwrap().language;
                assert_eq!(compiler.language, language, "{}: another language", one.name);
                assert!(!one.reports.is_empty() || one.traps, "{} reports nothing", one.name);
            } else {
                assert!(one.catches.is_empty(), "{} has no mechanism to catch by", one.name);
            }
            for bug in one.catches.iter().chain(one.refuses.as_ref().map(|refused| &refused.bug)) {
                assert!(BUGS.contains(&bug.as_str()), "{}: no bug {bug}", one.name);
            }
            for kernel in one.published.keys() {
                assert!(Kernel::of(kernel).is_ok(), "{}: no kernel {kernel}", one.name);
            }
            assert!(lab::quantity::duration(&one.start).is_ok(), "{}: {}", one.name, one.start);
            assert_eq!(one.runner.is_empty(), one.runner_package.is_empty(), "{}", one.name);
        }
        let mut names: Vec<_> = manifest.mechanisms.iter().map(|one| &one.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), manifest.mechanisms.len(), "a mechanism stands twice");
    }

    #[test]
    fn a_mechanism_that_is_not_known_is_refused() {
        let told = spelled("warp").unwrap_err();
        assert!(told.contains("no mechanism 'warp'; it has gcc, clang"), "{told}");
    }

    /// The figure of costs and bugs shows each mechanism as a ratio to its own baseline.
    #[test]
    fn groups_of_figures_are_mechanisms_with_their_baseline() {
        #[derive(Deserialize)]
        struct Figures {
            figure: Vec<Figure>,
        }
        #[derive(Deserialize)]
        struct Figure {
            #[serde(default)]
            groups: Vec<Vec<String>>,
        }
        let figures: Figures = toml::from_str(include_str!("../../figures.toml")).unwrap();
        let groups: Vec<_> = figures.figure.into_iter().flat_map(|figure| figure.groups).collect();
        let mut shown = Vec::new();
        for group in &groups {
            assert_eq!(mechanism(&group[0]).unwrap().baseline, None, "{}", group[0]);
            for name in &group[1..] {
                let baseline = mechanism(name).unwrap().baseline.as_ref();
                assert_eq!(baseline, Some(&group[0]), "{name}");
            }
            shown.extend(group.iter().cloned());
        }
        shown.sort();
        let mut all: Vec<_> =
            manifest().unwrap().mechanisms.iter().map(|it| it.name.clone()).collect();
        all.sort();
        assert_eq!(shown, all);
    }
}
