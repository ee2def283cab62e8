//! Instruction forms of other sources: latency and throughput of each, and known reasons for differences.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use lab::summary::{Row, Summary};
use serde::Deserialize;

use crate::form::{FormKey, Registers};
use crate::source::{Format, Stated};

const FILE: &str = "exchange/instructions.toml";
static REASONS: LazyLock<Result<Reasons, DataError>> =
    LazyLock::new(|| read_toml(FILE, include_str!("../instructions.toml")));

/// Experiment with our values.
pub(crate) const EXPERIMENT: &str = "bounds/instructions";
/// Factor of the form.
pub(crate) const FORM: &str = "form";
/// Metrics that are compared, in cycles.
pub(crate) const METRICS: [&str; 2] = ["latency", "throughput"];
/// Covariate that names the dependency of our chain.
const CHAIN: &str = "chain";
/// Factor of the load of the core's other thread.
const SIBLING: &str = "sibling";

/// Returns the rows of forms that run alone on their core.
pub(crate) fn rows(summary: &Summary) -> impl Iterator<Item = &Row> {
    summary.rows.iter().filter(|row| matches!(row.point.text(SIBLING), "" | "idle"))
}

/// Returns the dependency of the chain of most rounds.
pub(crate) fn chain(row: &Row) -> Option<&str> {
    let levels = row.covariates.get(CHAIN).into_iter().flatten();
    levels.max_by_key(|(_, rounds)| *rounds).map(|(level, _)| level.as_str())
}

/// Form of another source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForeignForm {
    pub(crate) key: FormKey,
    /// Name in the file.
    pub(crate) name: String,
    pub(crate) registers: Registers,
    /// Whether it has the encoding of AVX-512, which is longer than others.
    pub(crate) has_long_encoding: bool,
    pub(crate) latencies: Latencies,
    /// Cycles per independent instruction.
    pub(crate) throughput: Option<Stated>,
}

/// Latencies by what depends on what, in cycles.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Latencies {
    /// From a register to a register.
    pub(crate) register: Option<Stated>,
    /// From the flags to the flags.
    pub(crate) flags: Option<Stated>,
    /// From the register of an address to the loaded register.
    pub(crate) address: Option<Stated>,
    /// From memory to the same memory.
    pub(crate) memory: Option<Stated>,
}

impl ForeignForm {
    /// Returns whether the source states the same number of cycles for latency and throughput, as of copies that depend on
    /// each other.
    fn is_chained(&self) -> bool {
        let cycles = |stated: Option<Stated>| stated.map(|it| it.value);
        let latency = cycles(self.latencies.register);
        latency.is_some() && latency == cycles(self.throughput)
    }
}

impl Latencies {
    /// Returns the latency of the dependency of our chain.
    pub(crate) fn of_chain(&self, chain: &str) -> Option<Stated> {
        match chain {
            "register" | "implicit-register" => self.register,
            "flags" => self.flags,
            "pointer-chase" => self.address,
            "store-forwarding" => self.memory,
            _ => None,
        }
    }
}

/// Forms of a source with one key: several encodings, and equal or distinct registers.
#[derive(Debug, Default)]
pub(crate) struct Variants<'a>(Vec<&'a ForeignForm>);

/// Returns the forms by key. Forms with a longer encoding are omitted if there are others, because ours have the shortest.
pub(crate) fn by_key(forms: &[ForeignForm]) -> BTreeMap<&FormKey, Variants<'_>> {
    let mut all: BTreeMap<&FormKey, Variants<'_>> = BTreeMap::new();
    for form in forms {
        all.entry(&form.key).or_default().0.push(form);
    }
    for Variants(variants) in all.values_mut() {
        if variants.iter().any(|form| !form.has_long_encoding) {
            variants.retain(|form| !form.has_long_encoding);
        }
    }
    all
}

impl<'a> Variants<'a> {
    /// Returns the form whose throughput counts: that with distinct registers, then the first.
    pub(crate) fn for_throughput(&self) -> Option<&'a ForeignForm> {
        self.0.iter().copied().min_by_key(|form| form.registers)
    }

    /// Returns the form whose latency counts: the longest one. A property that breaks a dependency, e.g. equal registers
    /// of `xor` or distinct ones of `movsx`, makes it shorter.
    pub(crate) fn for_latency(&self, chain: &str) -> Option<&'a ForeignForm> {
        let latency = |form: &ForeignForm| form.latencies.of_chain(chain).map(|stated| stated.high);
        let longest = |known: &'a ForeignForm, form: &'a ForeignForm| {
            if latency(form) > latency(known) { form } else { known }
        };
        self.0.iter().copied().reduce(longest)
    }

    /// Returns whether the source states several values of a form, e.g. because a dump contains it twice.
    pub(crate) fn are_several(
        &self,
        form: &ForeignForm,
        value: impl Fn(&ForeignForm) -> Option<Stated>,
    ) -> bool {
        self.0.iter().any(|other| other.name == form.name && value(other) != value(form))
    }
}

/// Known reasons for differences.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reasons {
    reason: Vec<Reason>,
}

/// Reason why values differ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    /// Format; any if missing.
    format: Option<String>,
    /// Metric; any if missing.
    metric: Option<String>,
    /// Levels of our factor `form`, each with `*` for any text.
    forms: Vec<String>,
    /// Whether it applies only if the source does not name distinct registers.
    #[serde(default)]
    same_registers: bool,
    /// Whether it applies only if the run's CPU is of another model.
    #[serde(default)]
    other_cpu: bool,
    /// Whether it applies only if the source states the same number of cycles for latency and throughput.
    #[serde(default)]
    as_latency: bool,
    because: String,
}

/// A difference whose reason is searched.
pub(crate) struct Difference<'a> {
    pub(crate) format: Format,
    pub(crate) metric: &'a str,
    pub(crate) level: &'a str,
    /// What the source states.
    pub(crate) form: &'a ForeignForm,
    pub(crate) is_other_cpu: bool,
}

impl Reasons {
    /// Returns the built-in data.
    ///
    /// # Errors
    /// Returns the first fault with its line.
    pub(crate) fn built_in() -> Result<&'static Self, DataError> {
        REASONS.as_ref().map_err(Clone::clone)
    }

    /// Returns the first reason that explains a difference.
    pub(crate) fn of(&self, difference: &Difference<'_>) -> Option<&str> {
        let applies = |reason: &&Reason| {
            let is = |name: &Option<String>, wanted: &str| {
                name.as_deref().is_none_or(|name| name == wanted)
            };
            is(&reason.format, difference.format.name())
                && is(&reason.metric, difference.metric)
                && reason.forms.iter().any(|pattern| matches(pattern, difference.level))
                && (!reason.same_registers || difference.form.registers != Registers::Distinct)
                && (!reason.other_cpu || difference.is_other_cpu)
                && (!reason.as_latency || difference.form.is_chained())
        };
        self.reason.iter().find(applies).map(|reason| reason.because.as_str())
    }
}

/// Returns whether a text matches a pattern in which `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|start| text.strip_prefix(start)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((end, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form(key: &str, registers: Registers, latency: f64, throughput: f64) -> ForeignForm {
        ForeignForm {
            key: FormKey::of_level(key).remove(0),
            name: key.into(),
            registers,
            has_long_encoding: false,
            latencies: Latencies { register: Some(Stated::exact(latency)), ..Latencies::default() },
            throughput: Some(Stated::exact(throughput)),
        }
    }

    #[test]
    fn variants_are_chosen_by_metric() {
        use Registers::{Distinct, Same, Unnamed};
        let mut forms = vec![
            form("sub R64 R64", Unnamed, 0.15, 0.15),
            form("sub R64 R64", Distinct, 1.0, 0.2),
            form("sub R64 R64", Distinct, 1.0, 0.3),
            form("movsx R64 R8", Unnamed, 1.0, 0.5),
            form("movsx R64 R8", Distinct, 0.33, 0.33),
            form("pxor XMM XMM", Same, 0.1, 0.1),
            form("vaddpd YMM YMM YMM", Unnamed, 4.0, 1.0),
            form("vaddpd YMM YMM YMM", Unnamed, 3.0, 0.5),
        ];
        forms[6].has_long_encoding = true;
        let all = by_key(&forms);
        let values = |level: &str| {
            let variants = &all[&FormKey::of_level(level)[0]];
            let latency = variants.for_latency("register").unwrap().latencies.register.unwrap();
            (latency.value, variants.for_throughput().unwrap().throughput.unwrap().value)
        };
        assert_eq!(values("sub R64 R64"), (1.0, 0.2));
        assert_eq!(values("movsx R64 R8"), (1.0, 0.33));
        assert_eq!(values("pxor XMM XMM"), (0.1, 0.1));
        assert_eq!(values("vaddpd YMM YMM YMM"), (3.0, 0.5));
        // A chain that the source does not have.
        let variants = &all[&FormKey::of_level("sub R64 R64")[0]];
        assert!(
            variants
                .for_latency("pointer-chase")
                .unwrap()
                .latencies
                .of_chain("pointer-chase")
                .is_none()
        );
    }

    #[test]
    fn patterns_match_whole_levels() {
        for (pattern, text, expected) in [
            ("add R64 R64", "add R64 R64", true),
            ("add R64 R64", "add R64 R64 R64", false),
            ("add *", "add R64 1", true),
            ("add *", "adc R64 1", false),
            ("*M64*", "mov R64 M64", true),
            ("* M64 *", "mov R64 M64", false),
            ("v*ps *", "vaddps YMM YMM YMM", true),
            ("*", "", true),
            ("", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_reasons_are_complete_and_apply_to_their_conditions() {
        let reasons = Reasons::built_in().unwrap();
        let formats = [Format::Instlatx64, Format::UopsInfo].map(Format::name);
        for reason in &reasons.reason {
            assert!(reason.format.as_deref().is_none_or(|format| formats.contains(&format)));
            assert!(reason.metric.as_deref().is_none_or(|metric| METRICS.contains(&metric)));
            assert!(!reason.forms.is_empty() && !reason.because.is_empty());
        }
        let of = |metric, level, registers, throughput| {
            let (format, is_other_cpu) = (Format::Instlatx64, false);
            let form = &form(level, registers, 1.0, throughput);
            reasons.of(&Difference { format, metric, level, form, is_other_cpu })
        };
        use Registers::{Distinct, Unnamed};
        assert!(of("latency", "xor R64 R64", Unnamed, 0.25).unwrap().contains("zero"));
        assert_eq!(of("latency", "xor R64 R64", Distinct, 1.0), None);
        // Copies that depend on each other take as long as their latency.
        for level in ["sub R64 R64", "and R32 R32", "or R64 R64", "xor R64 R64"] {
            let reason = of("throughput", level, Distinct, 1.0).unwrap();
            assert!(reason.contains("one register"), "{reason}");
            assert_eq!(of("throughput", level, Distinct, 0.5), None);
        }
        assert_eq!(of("throughput", "and R64 M64", Distinct, 1.0), None);
    }

    proptest! {
        #[test]
        fn any_text_matches_itself_and_a_star(text in "[a-zA-Z0-9 ]{0,20}", rest in "[a-z ]{0,5}") {
            prop_assert!(matches(&text, &text) && matches("*", &text));
            let pattern = format!("{text}*");
            let whole = format!("{text}{rest}");
            prop_assert!(matches(&pattern, &whole));
        }
    }
}
