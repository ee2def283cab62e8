//! Reading of `instructions.xml` as a stream: the real file has over 100 MB.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use crate::error::ExchangeError;
use crate::form::{FormKey, Registers, UopsAttributes};
use crate::input::{Digest, DigestingReader};
use crate::instructions::{ForeignForm, Latencies};
use crate::source::Stated;

/// Maximum size of the file.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum size of an element's tag or text. The longest known tag has 2 KB.
const MAX_PART: usize = 1 << 20;
/// Maximum depth of elements; the real file has 6.
const MAX_DEPTH: usize = 16;
/// Maximum number of instructions; the real file has about 15,000.
const MAX_INSTRUCTIONS: usize = 200_000;
/// Maximum number of operands of an instruction, and of architectures.
const MAX_LISTED: usize = 1000;

/// Forms of one architecture.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) forms: Vec<ForeignForm>,
    /// Number of instructions in the file.
    pub(super) instructions: usize,
    /// Architectures with measurements.
    pub(super) architectures: BTreeSet<String>,
    /// Date of the file, if it has one.
    pub(super) date: Option<String>,
    pub(super) digest: Digest,
}

/// Kind of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperandKind {
    Register,
    Memory,
    Flags,
    /// Address that is computed, not accessed.
    Address,
    Other,
}

/// Instruction that is being read.
#[derive(Debug, Default)]
struct Instruction {
    key: Option<FormKey>,
    string: String,
    /// Index and kind of each operand.
    operands: Vec<(u32, OperandKind)>,
    latencies: Latencies,
    throughput: Option<f64>,
    is_measured: bool,
}

/// State of the reading.
struct Reading<'a> {
    file: &'a str,
    architecture: &'a str,
    forms: Vec<ForeignForm>,
    instructions: usize,
    architectures: BTreeSet<String>,
    date: Option<String>,
    instruction: Option<Instruction>,
    /// Name of the architecture whose element is open.
    open_architecture: Option<String>,
    /// Whether the element `measurement` of the wanted architecture is open.
    is_measurement: bool,
    depth: usize,
}

/// Reads the forms that an architecture measured.
///
/// # Errors
/// Returns an error if the file is not such a table, or if it is larger or deeper than any real one.
pub(super) fn read(
    input: impl Read,
    file: &str,
    architecture: &str,
) -> Result<Table, ExchangeError> {
    let digesting = DigestingReader::new(input, MAX_BYTES, b'>', MAX_PART);
    let mut reader = Reader::from_reader(BufReader::new(digesting));
    let mut reading = Reading {
        file,
        architecture,
        forms: Vec::new(),
        instructions: 0,
        architectures: BTreeSet::new(),
        date: None,
        instruction: None,
        open_architecture: None,
        is_measurement: false,
        depth: 0,
    };
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        match event.map_err(|why| reading.error(format!("not an XML file of uops.info: {why}")))? {
            Event::Start(tag) => {
                reading.depth += 1;
                if reading.depth > MAX_DEPTH {
                    return Err(reading.error(format!("more than {MAX_DEPTH} nested elements")));
                }
                reading.start(&tag)?;
            }
            Event::Empty(tag) => {
                reading.start(&tag)?;
                reading.end(tag.name().into_inner());
            }
            Event::End(tag) => {
                reading.depth = reading.depth.saturating_sub(1);
                reading.end(tag.name().into_inner());
            }
            Event::DocType(_) => {
                return Err(reading.error("it has a document type, which uops.info's file has not"));
            }
            Event::Eof => break,
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::GeneralRef(_) => {}
        }
    }
    if reading.depth > 0 {
        return Err(reading.error("it ends within an element; download it again"));
    }
    if reading.instructions == 0 {
        return Err(reading.error("no instructions; pass instructions.xml of uops.info"));
    }
    let digest = reader.into_inner().get_ref().digest();
    let Reading { forms, instructions, architectures, date, .. } = reading;
    Ok(Table { forms, instructions, architectures, date, digest })
}

impl Reading<'_> {
    fn error(&self, what: impl Into<String>) -> ExchangeError {
        ExchangeError::content(self.file, what)
    }

    /// Takes the start of an element.
    fn start(&mut self, tag: &BytesStart<'_>) -> Result<(), ExchangeError> {
        match tag.name().into_inner() {
            "root" => self.date = self.attribute(tag, "date")?,
            "instruction" => self.start_instruction(tag)?,
            "operand" => self.operand(tag)?,
            "architecture" => self.open_architecture = self.attribute(tag, "name")?,
            "measurement" => self.measurement(tag)?,
            "latency" if self.is_measurement => self.latency(tag)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes the end of an element.
    fn end(&mut self, name: &str) {
        match name {
            "instruction" => {
                if let Some(form) = self.instruction.take().and_then(Instruction::form) {
                    self.forms.push(form);
                }
            }
            "architecture" => self.open_architecture = None,
            "measurement" => self.is_measurement = false,
            _ => {}
        }
    }

    fn start_instruction(&mut self, tag: &BytesStart<'_>) -> Result<(), ExchangeError> {
        self.instructions += 1;
        if self.instructions > MAX_INSTRUCTIONS {
            return Err(self.error(format!("more than {MAX_INSTRUCTIONS} instructions")));
        }
        let text = |name| self.attribute(tag, name);
        let is_set = |name| Ok::<_, ExchangeError>(text(name)?.as_deref() == Some("1"));
        let (asm, string) = (text("asm")?.unwrap_or_default(), text("string")?.unwrap_or_default());
        let address = text("agen")?.filter(|it| !it.is_empty() && it != "0");
        let attributes = UopsAttributes {
            is_masked: is_set("mask")?,
            is_zeroing: is_set("zeroing")?,
            address: address.as_deref(),
        };
        // Embedded rounding and suppressed exceptions are separate forms.
        let is_plain = !is_set("roundc")? && !is_set("sae")? && !string.contains("_SAE");
        let key = FormKey::of_uops_info(&asm, &string, attributes).filter(|_| is_plain);
        self.instruction = Some(Instruction { key, string, ..Instruction::default() });
        Ok(())
    }

    fn operand(&mut self, tag: &BytesStart<'_>) -> Result<(), ExchangeError> {
        let index = self.number::<u32>(tag, "idx")?;
        let kind = match self.attribute(tag, "type")?.as_deref() {
            Some("reg") => OperandKind::Register,
            Some("mem") => OperandKind::Memory,
            Some("flags") => OperandKind::Flags,
            Some("agen") => OperandKind::Address,
            _ => OperandKind::Other,
        };
        let Some(instruction) = &mut self.instruction else { return Ok(()) };
        if instruction.operands.len() == MAX_LISTED {
            return Err(self.error(format!("an instruction has more than {MAX_LISTED} operands")));
        }
        instruction.operands.extend(index.map(|index| (index, kind)));
        Ok(())
    }

    fn measurement(&mut self, tag: &BytesStart<'_>) -> Result<(), ExchangeError> {
        let Some(architecture) = self.open_architecture.clone() else { return Ok(()) };
        self.is_measurement = architecture == self.architecture;
        if self.architectures.len() < MAX_LISTED {
            self.architectures.insert(architecture);
        }
        if !self.is_measurement {
            return Ok(());
        }
        let mut throughput: Option<f64> = None;
        for name in ["TP_unrolled", "TP_loop", "TP"] {
            if let Some(value) = self.number::<f64>(tag, name)? {
                throughput = Some(throughput.map_or(value, |known| known.min(value)));
            }
        }
        if let Some(instruction) = &mut self.instruction {
            instruction.is_measured = true;
            instruction.throughput = throughput;
        }
        Ok(())
    }

    fn latency(&mut self, tag: &BytesStart<'_>) -> Result<(), ExchangeError> {
        let ends = [self.number::<u32>(tag, "start_op")?, self.number::<u32>(tag, "target_op")?];
        for suffix in ["", "_addr", "_addr_index", "_mem"] {
            let Some(stated) = self.cycles(tag, suffix)? else { continue };
            let Some(instruction) = &mut self.instruction else { return Ok(()) };
            let kind = |index: Option<u32>| {
                let known = instruction.operands.iter().find(|(one, _)| Some(*one) == index);
                known.map(|(_, kind)| *kind)
            };
            let [Some(start), Some(target)] = ends.map(kind) else { return Ok(()) };
            let latencies = &mut instruction.latencies;
            let field = match (start, target, suffix) {
                (OperandKind::Register, OperandKind::Register, "") => &mut latencies.register,
                (OperandKind::Address, OperandKind::Register, _) => &mut latencies.register,
                (OperandKind::Flags, OperandKind::Flags, "") => &mut latencies.flags,
                (OperandKind::Memory, OperandKind::Register, "_addr" | "_addr_index") => {
                    &mut latencies.address
                }
                (OperandKind::Memory, OperandKind::Memory, "_mem") => &mut latencies.memory,
                _ => continue,
            };
            *field = Some(field.map_or(stated, |known| union(&known, &stated)));
        }
        Ok(())
    }

    /// Returns the cycles of one kind: one number, or the smallest and the largest of several chains.
    fn cycles(&self, tag: &BytesStart<'_>, suffix: &str) -> Result<Option<Stated>, ExchangeError> {
        let number = |name: &str| self.number::<f64>(tag, &format!("{name}{suffix}"));
        let one = number("cycles")?;
        let low = number("min_cycles")?.or(one);
        let high = number("max_cycles")?.or(one);
        let (Some(low), Some(high)) = (low.or(high), high.or(low)) else { return Ok(None) };
        let is_bound = |name: &str| {
            Ok::<_, ExchangeError>(
                self.attribute(tag, &format!("{name}{suffix}_is_upper_bound"))?.as_deref()
                    == Some("1"),
            )
        };
        let is_upper_bound = is_bound("cycles")? || is_bound("min_cycles")?;
        let (low, high) = (low.min(high), low.max(high));
        Ok(Some(Stated { value: (low + high) / 2.0, low, high, runs: None, is_upper_bound }))
    }

    /// Returns the value of an attribute.
    fn attribute(&self, tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, ExchangeError> {
        let wrong = |why: String| self.error(format!("attribute '{name}': {why}"));
        let attribute = tag.try_get_attribute(name).map_err(|why| wrong(why.to_string()))?;
        let value = attribute.map(|one| one.normalized_value(XmlVersion::Implicit1_0));
        let value = value.transpose().map_err(|why| wrong(why.to_string()))?;
        Ok(value.map(std::borrow::Cow::into_owned))
    }

    /// Returns the number of an attribute.
    fn number<N: Number>(
        &self,
        tag: &BytesStart<'_>,
        name: &str,
    ) -> Result<Option<N>, ExchangeError> {
        let Some(text) = self.attribute(tag, name)? else { return Ok(None) };
        let number = N::parse(&text);
        let of = self.instruction.as_ref().map_or("", |instruction| instruction.string.as_str());
        let wrong =
            || self.error(format!("attribute '{name}' of '{of}': '{text}' is not a number"));
        number.map(Some).ok_or_else(wrong)
    }
}

/// Number of an attribute.
trait Number: Sized {
    fn parse(text: &str) -> Option<Self>;
}

impl Number for u32 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Number for f64 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
    }
}

impl Instruction {
    /// Returns the form, if it has a key and was measured.
    fn form(self) -> Option<ForeignForm> {
        let key = self.key.filter(|_| self.is_measured)?;
        Some(ForeignForm {
            key,
            has_long_encoding: self.string.contains("_EVEX"),
            name: self.string,
            // Latencies of equal registers are separate.
            registers: Registers::Distinct,
            latencies: self.latencies,
            throughput: self.throughput.map(Stated::exact),
        })
    }
}

/// Returns the smallest range that contains two.
fn union(a: &Stated, b: &Stated) -> Stated {
    let (low, high) = (a.low.min(b.low), a.high.max(b.high));
    let is_upper_bound = a.is_upper_bound || b.is_upper_bound;
    Stated { value: (low + high) / 2.0, low, high, runs: None, is_upper_bound }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table in the form of uops.info's, with invented values.
    const XML: &str = r#"<?xml version="1.0" ?>
<root date="2020-01-01">
  <extension name="BASE">
    <instruction asm="{load} ADD" category="BINARY" extension="BASE" iclass="ADD" iform="ADD_GPRv_GPRv_03" isa-set="I86" string="ADD_03 (R64, R64)">
      <operand idx="1" name="REG0" r="1" type="reg" w="1" width="64">RAX,RCX,RDX</operand>
      <operand idx="2" name="REG1" r="1" type="reg" width="64">RAX,RCX,RDX</operand>
      <operand flag_AF="w" idx="3" name="REG2" suppressed="1" type="flags" w="1"/>
      <architecture name="SKL">
        <IACA version="2.3" ports="1*p0156"/>
        <measurement TP_loop="0.25" TP_ports="0.25" TP_unrolled="0.27" ports="1*p0156" uops="1">
          <latency cycles="1" cycles_same_reg="1" start_op="1" target_op="1"/>
          <latency min_cycles="1" max_cycles="2" start_op="2" target_op="1"/>
          <latency cycles="9" start_op="2" target_op="3"/>
        </measurement>
      </architecture>
      <architecture name="ZEN2">
        <measurement TP_loop="0.40" uops="1"/>
        <doc latency="1"/>
      </architecture>
    </instruction>
    <instruction asm="ADD" string="ADD (R64, M64)">
      <operand idx="1" r="1" type="reg" w="1"/>
      <operand idx="2" r="1" type="mem" width="64"/>
      <architecture name="SKL">
        <measurement TP_unrolled="0.50">
          <latency cycles="1" start_op="1" target_op="1"/>
          <latency cycles_addr="6" cycles_addr_index="6" cycles_mem="5" cycles_mem_is_upper_bound="1" start_op="2" target_op="1"/>
        </measurement>
      </architecture>
    </instruction>
    <instruction asm="VADDPD" roundc="1" sae="1" string="VADDPD_ER (ZMM, ZMM, ZMM)">
      <architecture name="SKL"><measurement TP_unrolled="7.00"/></architecture>
    </instruction>
    <instruction asm="VPADDD" mask="1" string="VPADDD_Z (ZMM, K, ZMM, ZMM)" zeroing="1">
      <architecture name="SKL"><measurement TP_unrolled="0.50"/></architecture>
    </instruction>
  </extension>
</root>
"#;

    fn table(text: &str, architecture: &str) -> Result<Table, String> {
        read(text.as_bytes(), "uops.xml", architecture).map_err(|why| why.to_string())
    }

    #[test]
    fn forms_have_the_values_of_one_architecture() {
        let skylake = table(XML, "SKL").unwrap();
        assert_eq!((skylake.instructions, skylake.date.as_deref()), (4, Some("2020-01-01")));
        assert_eq!(skylake.architectures.iter().collect::<Vec<_>>(), ["SKL", "ZEN2"]);
        assert_eq!(skylake.digest.bytes, XML.len() as u64);
        let [add, load, masked] = &skylake.forms[..] else { panic!("{:?}", skylake.forms) };
        assert_eq!(add.throughput, Some(Stated::exact(0.25)));
        let register = add.latencies.register.unwrap();
        assert_eq!((register.low, register.high, register.is_upper_bound), (1.0, 2.0, false));
        assert_eq!(add.latencies.flags, None);
        assert_eq!(load.latencies.register.unwrap().value, 1.0);
        assert_eq!(load.latencies.address.unwrap().value, 6.0);
        assert_eq!(load.latencies.memory, None);
        assert_eq!(masked.key.as_str(), "VPADDD ZMM{K}{Z},ZMM,ZMM");
        let zen = table(XML, "ZEN2").unwrap();
        assert_eq!(zen.forms.len(), 1);
        assert_eq!(zen.forms[0].throughput, Some(Stated::exact(0.4)));
        assert!(table(XML, "NHM").unwrap().forms.is_empty());
    }

    #[test]
    fn faults_are_one_line() {
        let nested = "<a>".repeat(17);
        let doctype = "<!DOCTYPE a [<!ENTITY b \"c\">]><root/>";
        for (text, expected) in [
            ("", "no instructions"),
            ("<root></root>", "no instructions"),
            ("<root><instruction>", "it ends within an element"),
            ("<root></extension>", "not an XML file"),
            ("no XML at all", "no instructions"),
            (doctype, "it has a document type"),
            (nested.as_str(), "more than 16 nested elements"),
            (
                &XML.replace("0.25", "x"),
                "attribute 'TP_loop' of 'ADD_03 (R64, R64)': 'x' is not a number",
            ),
            (&XML.replace("ZEN2", "&lol;"), "attribute 'name'"),
        ] {
            let error = table(text, "SKL").unwrap_err();
            assert!(error.starts_with("uops.xml: ") && error.contains(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let long = format!("<root a=\"{}\"/>", "x".repeat(MAX_PART + 1));
        assert!(table(&long, "SKL").unwrap_err().contains("has no '>' within 1024 KiB"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes[..], "uops.xml", "SKL");
        }

        #[test]
        fn no_text_panics(position in 0usize..2600, length in 0usize..40, text in "[<>/a-z\"=& ]{0,20}") {
            let mut changed: Vec<char> = XML.chars().collect();
            let position = position.min(changed.len());
            let end = (position + length).min(changed.len());
            changed.splice(position..end, text.chars());
            let changed: String = changed.into_iter().collect();
            if let Err(error) = table(&changed, "SKL") {
                prop_assert!(!error.contains('\n'), "{error}");
            }
        }
    }
}
