//! The manifest of compilers and mechanisms, `mechanisms.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::read_toml;
use lab::factor::{LevelType, Levels};
use lab::sample::Failure;
use serde::Deserialize;

use super::programs::{Bug, Kernel};

const FILE: &str = "mechanisms.toml";

/// Compilers and mechanisms, in file order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    #[serde(rename = "compiler")]
    pub(super) compilers: Vec<Compiler>,
    #[serde(rename = "mechanism")]
    pub(super) mechanisms: Vec<Mechanism>,
}

/// Language of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Language {
    #[serde(rename = "c")]
    C,
    #[serde(rename = "c++")]
    Cpp,
    #[serde(rename = "rust")]
    Rust,
}

/// Compiler and how to find it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Compiler {
    pub(super) name: String,
    pub(super) language: Language,
    /// Names of the program: the first on the search path is used.
    pub(super) programs: Vec<String>,
    /// First arguments of every command.
    #[serde(default)]
    pub(super) first: Vec<String>,
    /// Flags for every program.
    pub(super) flags: Vec<String>,
    /// Package that contains it.
    pub(super) package: String,
}

/// Mechanism that enforces bounds in a program, or a baseline without one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mechanism {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) compiler: String,
    /// Mechanism that its overhead is relative to; `None` for a baseline.
    pub(super) baseline: Option<String>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// Library of the compiler whose folder is added to the run path of its programs.
    pub(super) run_path_of: Option<String>,
    /// Environment variables of its programs.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) needs: Needs,
    /// Command that runs its programs.
    #[serde(default)]
    pub(super) runner: Vec<String>,
    #[serde(default)]
    pub(super) runner_package: String,
    /// Texts of which its report of a bug contains at least one.
    #[serde(default)]
    pub(super) reports: Vec<String>,
    /// Whether it ends a program by an illegal instruction when it detects a bug.
    #[serde(default)]
    pub(super) traps: bool,
    /// Bug for which its compiler rejects the program.
    pub(super) rejects: Option<RejectedBug>,
    /// Bugs that it is expected to catch.
    #[serde(default)]
    pub(super) catches: Vec<Bug>,
    /// Ratios published in Intel MPX Explained.
    #[serde(default)]
    pub(super) published: BTreeMap<Kernel, f64>,
    /// Maximum bytes of memory per byte of data.
    #[serde(default = "default_memory")]
    pub(super) memory: f64,
    /// The same if the data are pointers.
    pub(super) pointer_memory: Option<f64>,
    /// Maximum slowdown relative to the plain program, for time limits.
    #[serde(default = "default_slowdown")]
    pub(super) slowdown: f64,
    /// Start-up time of a program, for time limits.
    #[serde(default = "default_start")]
    pub(super) start: String,
}

/// Requirements of a mechanism in addition to its compiler.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Needs {
    /// File that the compiler must find. `{major}` in the package is the compiler's major version.
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) package: String,
    /// Minimum major version of the compiler.
    pub(super) major: Option<u32>,
    /// Capability of the machine.
    pub(super) machine: Option<String>,
}

/// Bug that does not compile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectedBug {
    pub(super) bug: Bug,
    pub(super) flags: Vec<String>,
    /// Text in the compiler's diagnostic.
    pub(super) diagnostic: String,
}

fn default_memory() -> f64 {
    1.2
}

fn default_slowdown() -> f64 {
    2.0
}

fn default_start() -> String {
    "5 ms".into()
}

/// Returns the manifest.
///
/// # Errors
/// Returns `failed` with the fault in the file.
pub(super) fn manifest() -> Result<&'static Manifest, Failure> {
    static READ: LazyLock<Result<Manifest, String>> = LazyLock::new(|| {
        read_toml(FILE, include_str!("../../mechanisms.toml")).map_err(|fault| fault.to_string())
    });
    READ.as_ref().map_err(|fault| Failure::failed(fault.clone()))
}

/// Finds a mechanism by its name.
///
/// # Errors
/// Returns `failed` with the known names if there is none.
pub(super) fn mechanism(name: &str) -> Result<&'static Mechanism, Failure> {
    let all = &manifest()?.mechanisms;
    all.iter().find(|one| one.name == name).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        Failure::failed(format!(
            "unknown mechanism '{name}'; expected one of {FILE}: {}",
            names.join(", ")
        ))
    })
}

/// Returns the canonical spelling of a mechanism's name.
///
/// # Errors
/// Lists the known names if there is none.
pub(super) fn canonical(name: &str) -> Result<String, String> {
    mechanism(name).map(|one| one.name.clone()).map_err(|failure| failure.why)
}

impl LevelType for &'static Mechanism {
    const LEVELS: Levels = Levels::Checked(canonical);

    fn from_level(level: &str) -> Option<Self> {
        mechanism(level).ok()
    }
}

impl Mechanism {
    /// Returns its compiler.
    ///
    /// # Errors
    /// Returns `failed` if the manifest does not contain it.
    pub(super) fn compiler(&self) -> Result<&'static Compiler, Failure> {
        let found = manifest()?.compilers.iter().find(|one| one.name == self.compiler);
        found.ok_or_else(|| Failure::failed(format!("{FILE} has no compiler '{}'", self.compiler)))
    }

    /// Returns whether the standard error output of a program contains its report of a bug.
    pub(super) fn reports(&self, errors: &str) -> bool {
        self.reports.iter().any(|words| errors.contains(words))
    }
}

#[cfg(test)]
mod tests {
    use lab::catalogue::Catalogue;
    use lab::point::Level;

    use super::*;

    #[test]
    fn mechanisms_are_consistent_with_their_compilers_and_baselines() {
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
                assert!(one.catches.is_empty(), "{}: a baseline catches nothing", one.name);
            }
            assert!(lab::quantity::duration(&one.start).is_ok(), "{}: {}", one.name, one.start);
            assert_eq!(one.runner.is_empty(), one.runner_package.is_empty(), "{}", one.name);
        }
        let mut names: Vec<_> = manifest.mechanisms.iter().map(|one| &one.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), manifest.mechanisms.len(), "a mechanism is listed twice");
    }

    #[test]
    fn an_unknown_mechanism_is_an_error_with_the_known_names() {
        let error = canonical("warp").unwrap_err();
        let expected = "unknown mechanism 'warp'; expected one of mechanisms.toml: gcc, clang";
        assert!(error.starts_with(expected), "{error}");
    }

    /// Figures plot mechanisms relative to their baselines, that of overheads and bugs all of them.
    #[test]
    fn each_figure_group_is_a_baseline_with_its_mechanisms() {
        let figures = Catalogue::of_suite(&crate::SUITE).unwrap().figures().unwrap();
        let figures = figures.iter().map(|one| &one.figure);
        let of_mechanisms = figures.filter(|it| it.series.as_deref() == Some("mechanism"));
        let mut shown = Vec::new();
        for (id, group) in
            of_mechanisms.flat_map(|it| it.groups.iter().map(|group| (&it.id, group)))
        {
            let names: Vec<_> = group.iter().map(Level::as_str).collect();
            assert_eq!(mechanism(names[0]).unwrap().baseline, None, "{}", names[0]);
            for name in &names[1..] {
                let baseline = mechanism(name).unwrap().baseline.as_deref();
                assert_eq!(baseline, Some(names[0]), "{name}");
            }
            if id == "bounds-kernels" {
                shown.extend(names.into_iter().map(str::to_owned));
            }
        }
        shown.sort();
        let mut all: Vec<_> =
            manifest().unwrap().mechanisms.iter().map(|it| it.name.clone()).collect();
        all.sort();
        assert_eq!(shown, all);
    }
}
