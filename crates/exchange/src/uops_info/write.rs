//! Writing of our instruction table in uops.info's format.

use std::collections::BTreeMap;

use lab::journal::Run;
use lab::summary::{Row, Summary};
use lab::terminal::one_line;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::Architectures;
use super::operand::{Operand, Role, operands};
use crate::error::ExchangeError;
use crate::form::FormKey;
use crate::instructions::{EXPERIMENT, FORM, chain, rows};
use crate::ours::OurValues;

/// Start of the names of metrics of ports.
const PORT: &str = "port_";
/// Largest distance from a whole number of cycles, and the same as a share, at which a latency is that number.
const WHOLE: (f64, f64) = (0.05, 0.02);
/// Largest distance from one at which an instruction has one micro-operation, and smallest share of it that a port executes.
const ONE_UOP: f64 = 0.05;
/// Largest distance of the sum of all shares from one.
const ALL_SHARES: f64 = 0.1;

/// A written table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedTable {
    /// The XML document.
    pub text: String,
    /// Number of forms in it.
    pub forms: usize,
    /// Number of forms with values that the format or its readers cannot express.
    pub left_out: usize,
}

/// Form that is written.
struct Form<'a> {
    key: FormKey,
    level: &'a str,
    operands: Vec<Operand>,
    latency: Option<LatencyElement>,
    throughput: f64,
    uops: Option<u64>,
    /// Ports of a single micro-operation, one character each, e.g. `0156`.
    ports: Option<String>,
}

/// Latency between two operands, by their indices.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LatencyElement {
    start: usize,
    target: usize,
    /// End of the names of its attributes.
    suffix: &'static str,
    cycles: f64,
}

/// Writes the instruction table of a run. `roles` are those of the operands of each level; of other levels no latency is
/// written, because it could not be attributed. Without an architecture, that of the run's CPU is named.
///
/// # Errors
/// Returns an error if the run has no throughput of instructions or if its CPU has no known architecture.
pub fn export_uops_info(
    run: &Run,
    roles: &BTreeMap<String, Vec<Role>>,
    architecture: Option<&str>,
) -> Result<ExportedTable, ExchangeError> {
    let mut ours = OurValues::new(run);
    let throughput = ours.summary(EXPERIMENT, "throughput").ok_or_else(|| {
        let name = &run.record.name;
        let line = format!(
            "{name}: no throughput of instructions; measure with 'tollgate run {EXPERIMENT}'"
        );
        ExchangeError::Option(line)
    })?;
    let cpu = run.record.environments.get(&throughput.environment).map(|it| &it.cpu);
    let by_cpu = match cpu {
        Some(cpu) => Architectures::built_in()?.of(cpu),
        None => None,
    };
    let brand = cpu.map_or("unknown", |cpu| cpu.brand.as_str());
    let same = by_cpu.filter(|known| known.is_same).map(|known| known.name);
    let architecture = architecture.or(same).ok_or_else(|| {
        let line = format!(
            "uops.info has no name for the architecture of this run's CPU ({brand}); name one with --arch"
        );
        ExchangeError::Option(line)
    })?;
    let latencies = values(ours.summary(EXPERIMENT, "latency").as_deref());
    let uops = values(ours.summary(EXPERIMENT, "uops").as_deref());
    let ports = port_values(run, &mut ours);
    let (mut forms, mut left_out) = (Vec::new(), 0);
    for row in rows(&throughput) {
        let Some(estimate) = row.estimate else { continue };
        let level = row.point.text(FORM);
        let key = FormKey::of_level(level).into_iter().next();
        let operands =
            key.as_ref().and_then(|key| operands(key, roles.get(level).map(Vec::as_slice)));
        let (Some(key), Some(mut operands)) = (key, operands) else {
            left_out += 1;
            continue;
        };
        let latency =
            latencies.get(level).and_then(|cycles| latency(chain(row)?, &mut operands, *cycles));
        let uops = uops.get(level).copied();
        forms.push(Form {
            key,
            level,
            operands,
            latency,
            throughput: estimate.median,
            uops: uops.map(|uops| uops.round() as u64),
            ports: uops.and_then(|uops| port_usage(uops, estimate.median, level, &ports)),
        });
    }
    let about = format!(
        "Measured by tollgate {} on {brand}, run {}. Not data of uops.info: iforms are not XED's, and each latency is that of one chain.",
        run.record.program, run.record.name
    );
    let date = run.record.start.split('T').next().unwrap_or_default();
    let text = document(&forms, architecture, date, &about);
    let text = text.map_err(|why| ExchangeError::Write(why.to_string()))?;
    Ok(ExportedTable { text, forms: forms.len(), left_out })
}

/// Returns the medians of a metric by form.
fn values(summary: Option<&Summary>) -> BTreeMap<String, f64> {
    let value = |row: &Row| Some((row.point.text(FORM).to_owned(), row.estimate?.median));
    summary.into_iter().flat_map(rows).filter_map(value).collect()
}

/// Returns the micro-operations per cycle by port and form.
fn port_values(run: &Run, ours: &mut OurValues<'_>) -> BTreeMap<String, BTreeMap<String, f64>> {
    let metrics = run.record.metrics.get("bounds").into_iter().flat_map(BTreeMap::keys);
    let ports = metrics.filter_map(|metric| Some((metric, metric.strip_prefix(PORT)?)));
    let name = |port: &str| -> String {
        let letter = |number: &str| match number {
            "10" => "A".into(),
            "11" => "B".into(),
            _ => number.to_owned(),
        };
        port.split('_').map(letter).collect()
    };
    let ports: Vec<_> = ports.map(|(metric, port)| (metric.clone(), name(port))).collect();
    let mut all = BTreeMap::new();
    for (metric, port) in ports {
        let values = values(ours.summary(EXPERIMENT, &metric).as_deref());
        if !values.is_empty() {
            all.insert(port, values);
        }
    }
    all
}

/// Returns the ports of an instruction with one micro-operation, e.g. `0156`. Of others the counts per port do not tell
/// which ports each micro-operation may use.
fn port_usage(
    uops: f64,
    throughput: f64,
    level: &str,
    ports: &BTreeMap<String, BTreeMap<String, f64>>,
) -> Option<String> {
    if (uops - 1.0).abs() > ONE_UOP {
        return None;
    }
    let share = |values: &BTreeMap<String, f64>| Some(values.get(level)? * throughput);
    let shares = ports.iter().filter_map(|(port, values)| Some((port, share(values)?)));
    let used: Vec<(&String, f64)> = shares.filter(|(_, share)| *share > ONE_UOP).collect();
    let sum: f64 = used.iter().map(|(_, share)| share).sum();
    let mut names: Vec<char> = used.iter().flat_map(|(port, _)| port.chars()).collect();
    names.sort_unstable();
    let is_complete = !names.is_empty() && (sum - 1.0).abs() <= ALL_SHARES;
    is_complete.then(|| names.into_iter().collect())
}

/// Attributes the latency of a chain to operands; adds an operand that the form does not name, if it is one of the chain.
/// `None` if the operands of the chain are not known.
fn latency(chain: &str, operands: &mut Vec<Operand>, cycles: f64) -> Option<LatencyElement> {
    let index = |is: &dyn Fn(&Operand) -> bool| operands.iter().position(is);
    let written = index(&|operand| operand.is_register() && operand.role.1);
    let memory = index(&Operand::is_memory);
    let (start, target, suffix) = match chain {
        "register" => {
            let target = written?;
            let output = &operands[target];
            let same = |operand: &Operand| operand.kind == output.kind && operand.role.0;
            (if output.role.0 { target } else { index(&same)? }, target, "")
        }
        "pointer-chase" => (memory?, written?, "_addr"),
        "store-forwarding" => (memory?, memory?, "_mem"),
        "implicit-register" | "flags" => {
            operands.push(if chain == "flags" { Operand::flags() } else { Operand::implicit() });
            let last = operands.len() - 1;
            (last, last, "")
        }
        _ => return None,
    };
    Some(LatencyElement { start, target, suffix, cycles })
}

/// Writes the document.
fn document(
    forms: &[Form<'_>],
    architecture: &str,
    date: &str,
    about: &str,
) -> std::io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", None, None)))?;
    // Two hyphens would end the comment.
    let about = one_line(about).replace("--", "- -");
    writer.write_event(Event::Comment(BytesText::from_escaped(about)))?;
    let mut root = BytesStart::new("root");
    root.push_attribute(("date", date));
    writer.write_event(Event::Start(root))?;
    let mut extension = BytesStart::new("extension");
    extension.push_attribute(("name", "tollgate"));
    writer.write_event(Event::Start(extension))?;
    for form in forms {
        form.write(&mut writer, architecture)?;
    }
    for name in ["extension", "root"] {
        writer.write_event(Event::End(BytesEnd::new(name)))?;
    }
    let text = String::from_utf8(writer.into_inner());
    text.map(|text| text + "\n").map_err(std::io::Error::other)
}

impl Form<'_> {
    fn write(&self, writer: &mut Writer<Vec<u8>>, architecture: &str) -> std::io::Result<()> {
        writer.write_event(Event::Start(self.instruction()))?;
        for (at, operand) in self.operands.iter().enumerate() {
            operand.write(at + 1, writer)?;
        }
        let mut element = BytesStart::new("architecture");
        element.push_attribute(("name", &*one_line(architecture)));
        writer.write_event(Event::Start(element))?;
        let measurement = self.measurement();
        match self.latency {
            None => writer.write_event(Event::Empty(measurement))?,
            Some(latency) => {
                writer.write_event(Event::Start(measurement))?;
                writer.write_event(Event::Empty(latency.element()))?;
                writer.write_event(Event::End(BytesEnd::new("measurement")))?;
            }
        }
        for name in ["architecture", "instruction"] {
            writer.write_event(Event::End(BytesEnd::new(name)))?;
        }
        Ok(())
    }

    fn instruction(&self) -> BytesStart<'static> {
        let mnemonic = self.key.mnemonic();
        let (prefix, class) = mnemonic.rsplit_once(' ').unwrap_or(("", mnemonic));
        let is_masked = self.operands.iter().any(|operand| operand.is_mask);
        let is_zeroing = self.key.as_str().contains("{Z}");
        let address = self.operands.iter().find_map(Operand::address);
        let class = match prefix {
            "" => class.to_owned(),
            prefix => format!("{class}_{prefix}"),
        };
        let zeroing = if is_zeroing { "_Z" } else { "" };
        let suffix = address.map(|address| format!("_{address}")).unwrap_or_default();
        let named: Vec<&str> = self.operands.iter().filter_map(Operand::name).collect();
        let arguments = match named.is_empty() {
            true => String::new(),
            false => format!(" ({})", named.join(", ")),
        };
        let mut element = BytesStart::new("instruction");
        element.push_attribute(("asm", mnemonic));
        element.push_attribute(("category", ""));
        element.push_attribute(("cpl", "3"));
        element.push_attribute(("extension", "tollgate"));
        element.push_attribute(("iclass", class.as_str()));
        let iform =
            std::iter::once(class.as_str()).chain(named.iter().copied()).collect::<Vec<_>>();
        element.push_attribute(("iform", iform.join("_").as_str()));
        if let Some(address) = address {
            element.push_attribute(("agen", address));
        }
        if is_masked {
            element.push_attribute(("mask", "1"));
            element.push_attribute(("zeroing", if is_zeroing { "1" } else { "0" }));
        }
        element.push_attribute(("string", format!("{class}{zeroing}{suffix}{arguments}").as_str()));
        // Which form of tollgate's list it is.
        element.push_attribute(("summary", &*one_line(self.level)));
        element
    }

    fn measurement(&self) -> BytesStart<'static> {
        let mut element = BytesStart::new("measurement");
        // The copies are unrolled within a loop, whose own time is subtracted, so both ways to measure have one value. `TP` is
        // the name in older files.
        let throughput = format!("{:.2}", self.throughput);
        for name in ["TP", "TP_loop", "TP_unrolled"] {
            element.push_attribute((name, throughput.as_str()));
        }
        if let Some(ports) = &self.ports {
            // The throughput that these ports permit.
            let permitted = 1.0 / ports.chars().count().max(1) as f64;
            element.push_attribute(("TP_ports", format!("{permitted:.2}").as_str()));
            element.push_attribute(("ports", format!("1*p{ports}").as_str()));
        }
        if let Some(uops) = self.uops {
            element.push_attribute(("uops", uops.to_string().as_str()));
        }
        element
    }
}

impl LatencyElement {
    fn element(&self) -> BytesStart<'static> {
        let mut element = BytesStart::new("latency");
        let mut attribute = |name: &str, value: String| {
            element.push_attribute((name, value.as_str()));
        };
        attribute("start_op", (self.start + 1).to_string());
        attribute("target_op", (self.target + 1).to_string());
        let suffix = self.suffix;
        let whole = self.cycles.round();
        let tolerance = WHOLE.0.max(WHOLE.1 * self.cycles);
        if (self.cycles - whole).abs() <= tolerance {
            attribute(&format!("cycles{suffix}"), format!("{whole:.0}"));
        } else {
            // The format has whole numbers only.
            attribute(&format!("min_cycles{suffix}"), format!("{:.0}", self.cycles.floor()));
            attribute(&format!("max_cycles{suffix}"), format!("{:.0}", self.cycles.ceil()));
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use super::super::operand::Kind;
    use super::*;

    fn form(level: &str, roles: &[Role]) -> Vec<Operand> {
        operands(&FormKey::of_level(level)[0], Some(roles)).unwrap()
    }

    #[test]
    fn a_latency_is_attributed_to_the_operands_of_its_chain() {
        let (read, written, both) = ((true, false), (false, true), (true, true));
        let ends = |chain: &str, level: &str, roles: &[Role]| {
            let mut operands = form(level, roles);
            let latency = latency(chain, &mut operands, 3.0)?;
            Some((latency.start + 1, latency.target + 1, latency.suffix, operands.len()))
        };
        assert_eq!(ends("register", "add R64 R64", &[both, read]), Some((1, 1, "", 2)));
        assert_eq!(ends("register", "popcnt R64 R64", &[written, read]), Some((2, 1, "", 2)));
        assert_eq!(
            ends("register", "vaddpd YMM YMM YMM", &[written, read, read]),
            Some((2, 1, "", 3))
        );
        assert_eq!(
            ends("pointer-chase", "mov R64 M64", &[written, read]),
            Some((2, 1, "_addr", 2))
        );
        assert_eq!(ends("store-forwarding", "add M64 R64", &[both, read]), Some((1, 1, "_mem", 2)));
        assert_eq!(ends("implicit-register", "mul R64", &[read]), Some((2, 2, "", 2)));
        assert_eq!(ends("flags", "cmc", &[]), Some((1, 1, "", 1)));
        // Without roles, nothing is known.
        assert_eq!(ends("register", "add R64 R64", &[]), None);
        assert_eq!(ends("", "nop", &[]), None);
    }

    #[test]
    fn cycles_are_whole_numbers_or_a_range_between_two() {
        let attributes = |cycles| {
            let element = LatencyElement { start: 0, target: 0, suffix: "_mem", cycles }.element();
            let text = (*element).to_owned();
            text.split_once("target_op=\"1\" ").unwrap().1.to_owned()
        };
        assert_eq!(attributes(2.997), "cycles_mem=\"3\"");
        assert_eq!(attributes(18.3), "cycles_mem=\"18\"");
        assert_eq!(attributes(2.5), "min_cycles_mem=\"2\" max_cycles_mem=\"3\"");
        assert_eq!(attributes(0.4), "min_cycles_mem=\"0\" max_cycles_mem=\"1\"");
    }

    #[test]
    fn ports_are_written_for_one_micro_operation() {
        let ports = |shares: &[(&str, f64)]| {
            let of = |(port, share): &(&str, f64)| {
                ((*port).to_owned(), BTreeMap::from([("add R64 R64".to_owned(), *share)]))
            };
            shares.iter().map(of).collect::<BTreeMap<_, _>>()
        };
        let usage = |uops, throughput, shares: &[(&str, f64)]| {
            port_usage(uops, throughput, "add R64 R64", &ports(shares))
        };
        let quarter = [("0", 1.0), ("1", 1.0), ("5", 1.0), ("6", 1.0), ("23", 0.0)];
        assert_eq!(usage(1.01, 0.25, &quarter).as_deref(), Some("0156"));
        assert_eq!(usage(1.0, 0.5, &[("23A", 2.0), ("0", 0.0)]).as_deref(), Some("23A"));
        // Two micro-operations, and shares that do not add up.
        assert_eq!(usage(2.0, 1.0, &[("0", 1.0), ("1", 1.0)]), None);
        assert_eq!(usage(1.0, 1.0, &[("0", 0.5)]), None);
        assert_eq!(usage(1.0, 1.0, &[]), None);
    }

    #[test]
    fn a_document_is_read_back() {
        let key = |level: &str| FormKey::of_level(level).remove(0);
        let roles = [(true, true), (true, false), (true, false), (true, false)];
        let forms: Vec<Form<'_>> =
            ["lock add M64 R64", "vpaddd ZMM{K}{z} ZMM ZMM", "lea R64 [R64+R64*4]", "nop"]
                .into_iter()
                .map(|level| Form {
                    key: key(level),
                    level,
                    operands: form(level, &roles),
                    latency: None,
                    throughput: 1.25,
                    uops: Some(2),
                    ports: Some("015".into()),
                })
                .collect();
        let text = document(&forms, "A<B", "2026-01-01", "a -- b <c> & d").unwrap();
        assert!(text.contains("<!--a - - b <c> & d-->"), "{text}");
        assert!(
            text.contains(
                r#"TP="1.25" TP_loop="1.25" TP_unrolled="1.25" TP_ports="0.33" ports="1*p015""#
            ),
            "{text}"
        );
        let table = super::super::read::read(text.as_bytes(), "x.xml", "A<B").unwrap();
        let keys: Vec<&FormKey> = table.forms.iter().map(|form| &form.key).collect();
        assert_eq!(keys, forms.iter().map(|form| &form.key).collect::<Vec<_>>());
        assert!(table.forms.iter().all(|form| form.throughput.unwrap().value == 1.25));
        assert_eq!(table.architectures.iter().collect::<Vec<_>>(), ["A<B"]);
        assert!(forms[0].operands.iter().any(|one| matches!(one.kind, Kind::Memory(_))));
    }
}
