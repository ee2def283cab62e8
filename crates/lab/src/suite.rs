//! Suites: what the lab requires of each boundary that it measures.

use std::collections::BTreeSet;
use std::error::Error;

pub use crate::terminal::UsageError;

use crate::capability::Capability;
use crate::journal::Run;
use crate::method::AnyMethod;
use crate::metric::Metric;
use crate::schema::OutputSchema;
use crate::terminal::one_line;

/// The TOML files of a suite, embedded in the program.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    /// `experiments.toml`
    pub experiments: &'static str,
    /// `claims.toml`: published claims.
    pub claims: &'static str,
    /// `promises.toml`: claims of tollgate.
    pub promises: &'static str,
    /// `figures.toml`
    pub figures: &'static str,
    /// `headlines.toml`
    pub headlines: &'static str,
}

impl Data {
    /// No files, for tests.
    pub const EMPTY: Self =
        Self { experiments: "", claims: "", promises: "", figures: "", headlines: "" };
}

/// Embeds the TOML files in the folder of the suite's crate.
#[macro_export]
macro_rules! suite_data {
    () => {
        $crate::suite::Data {
            experiments: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments.toml")),
            claims: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/claims.toml")),
            promises: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/promises.toml")),
            figures: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/figures.toml")),
            headlines: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/headlines.toml")),
        }
    };
}

/// The purpose of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measures a boundary.
    Boundary,
    /// Tests the instrument: runs only if it is named.
    SelfTest,
}

/// An option of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteOption {
    /// The key in the map of options: `allow-physical` for `--allow physical`, `dax-device` for
    /// `--set dax-device=VALUE`.
    pub name: &'static str,
    /// Description of the feature or value, in one line.
    pub enables: &'static str,
    /// The type of the value of `--set`; unused by `--allow`.
    pub value: OptionValue,
}

/// The type of the value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionValue {
    /// Any text that is not empty, e.g. a path.
    Text,
    /// The path of a folder; the temporary folder by default.
    Folder,
    /// An unsigned integer.
    Number,
    /// A physical address; see [`option::address`](crate::option::address).
    Address,
    /// The path of a text file, whose content is the value that probes receive and a run records.
    Content,
}

/// The suites and the version of the program.
#[derive(Clone, Copy)]
pub struct Lab<'a> {
    /// All suites.
    pub suites: &'a [&'a Suite],
    /// The program's version.
    pub version: &'a str,
}

/// The error of a suite's command: one line, `what: cause; fix`.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// A suite's command, e.g. `tollgate copy`.
#[derive(Clone, Copy)]
pub struct SuiteCommand {
    /// Returns the clap command, named after the suite.
    pub command: fn() -> clap::Command,
    /// Runs the command and returns the exit status. The program exits with 2 for a [`UsageError`] or a
    /// [`clap::Error`], and with 1 for any other error.
    pub run: fn(&clap::ArgMatches, &Lab) -> Result<i32, CommandError>,
}

/// One boundary: its methods, options, data and command.
pub struct Suite {
    name: &'static str,
    about: &'static str,
    purpose: Purpose,
    data: Data,
    methods: &'static [&'static dyn AnyMethod],
    options: &'static [SuiteOption],
    capabilities: fn() -> Vec<Capability>,
    inconsistencies: fn(&Run) -> Vec<String>,
    command: Option<SuiteCommand>,
    outputs: &'static [OutputSchema],
}

impl Suite {
    /// Creates a suite that measures a boundary, with its name on the command line and a one-line description.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        data: Data,
        methods: &'static [&'static dyn AnyMethod],
    ) -> Self {
        Self {
            name,
            about,
            purpose: Purpose::Boundary,
            data,
            methods,
            options: &[],
            capabilities: Vec::new,
            inconsistencies: |_| Vec::new(),
            command: None,
            outputs: &[],
        }
    }

    /// Makes it a suite that tests the instrument.
    #[must_use]
    pub const fn self_test(mut self) -> Self {
        self.purpose = Purpose::SelfTest;
        self
    }

    /// Adds options that a user may enable or set, in addition to those of the lab.
    #[must_use]
    pub const fn with_options(mut self, options: &'static [SuiteOption]) -> Self {
        self.options = options;
        self
    }

    /// Adds what the suite requires in addition to the capabilities of `machine`.
    #[must_use]
    pub const fn with_capabilities(mut self, detect: fn() -> Vec<Capability>) -> Self {
        self.capabilities = detect;
        self
    }

    /// Adds a check for contradictions between the results of a run, e.g. a part that is larger than its whole; one
    /// line each.
    #[must_use]
    pub const fn with_inconsistencies(mut self, find: fn(&Run) -> Vec<String>) -> Self {
        self.inconsistencies = find;
        self
    }

    /// Adds a command.
    #[must_use]
    pub const fn with_command(mut self, command: SuiteCommand) -> Self {
        self.command = Some(command);
        self
    }

    /// Adds the JSON that its command prints, in addition to
    /// [`MeasuredOutput`](crate::adhoc::MeasuredOutput).
    #[must_use]
    pub const fn with_outputs(mut self, outputs: &'static [OutputSchema]) -> Self {
        self.outputs = outputs;
        self
    }

    /// Returns the name on the command line, e.g. `copy`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns a one-line description.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Returns the purpose.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns the embedded TOML files.
    pub fn data(&self) -> Data {
        self.data
    }

    /// Returns the methods.
    pub fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        self.methods
    }

    /// Returns the options of the suite.
    pub fn options(&self) -> &'static [SuiteOption] {
        self.options
    }

    /// Detects what the suite requires in addition to the capabilities of `machine`.
    pub fn capabilities(&self) -> Vec<Capability> {
        (self.capabilities)()
    }

    /// Returns contradictions between the results of a run, one line each.
    pub fn inconsistencies(&self, run: &Run) -> Vec<String> {
        (self.inconsistencies)(run)
    }

    /// Returns the schemas of the JSON that only its command prints.
    pub fn outputs(&self) -> &'static [OutputSchema] {
        self.outputs
    }

    /// Returns the command.
    pub fn command(&self) -> Option<SuiteCommand> {
        self.command
    }
}

/// Finds a suite by its name.
pub fn find<'a>(suites: &[&'a Suite], name: &str) -> Option<&'a Suite> {
    suites.iter().copied().find(|suite| suite.name() == name)
}

/// Finds a method of a suite by its name.
///
/// # Errors
/// Returns one line with the suite's methods if there is no such method.
pub fn method(suite: &Suite, name: &str) -> Result<&'static dyn AnyMethod, String> {
    suite.methods().iter().copied().find(|method| method.name() == name).ok_or_else(|| {
        let known: Vec<_> = suite.methods().iter().map(|method| method.name()).collect();
        let (name, known) = (one_line(name), known.join(", "));
        format!("unknown method '{name}' of suite '{}'; expected one of {known}", suite.name())
    })
}

/// Finds a method by its name and the name of its suite.
///
/// # Errors
/// Returns one line if there is no such suite or method.
pub fn find_method(
    suites: &[&Suite],
    suite: &str,
    name: &str,
) -> Result<&'static dyn AnyMethod, String> {
    let suite = find(suites, suite).ok_or_else(|| format!("unknown suite '{suite}'"))?;
    method(suite, name)
}

/// Returns the metrics of all methods of a suite, without duplicates.
pub fn metrics(suite: &Suite) -> Vec<Metric> {
    let all = suite.methods().iter().flat_map(|method| method.metrics());
    let mut seen = BTreeSet::new();
    all.filter(|metric| seen.insert(metric.name)).copied().collect()
}
