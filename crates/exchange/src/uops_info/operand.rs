//! Operands of our forms as uops.info describes them.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

use crate::form::FormKey;

/// Whether an operand is read, and whether it is written.
pub type Role = (bool, bool);

/// Operand of a written form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) kind: Kind,
    pub(super) role: Role,
    /// Whether it is the mask of the first operand.
    pub(super) is_mask: bool,
    /// Whether the assembler text does not have it.
    is_suppressed: bool,
}

/// Kind of an operand, with its name in strings such as `ADD (R64, R64)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Register(String),
    Memory(String),
    Immediate(String),
    /// Parts of a computed address.
    Address(String),
    Flags,
}

impl Operand {
    fn new(kind: Kind, role: Role) -> Self {
        Self { kind, role, is_mask: false, is_suppressed: false }
    }

    /// Returns the flags, read and written.
    pub(super) fn flags() -> Self {
        Self { is_suppressed: true, ..Self::new(Kind::Flags, (true, true)) }
    }

    /// Returns a register that the form does not name, read and written.
    pub(super) fn implicit() -> Self {
        let kind = Kind::Register(String::new());
        Self { is_suppressed: true, ..Self::new(kind, (true, true)) }
    }

    pub(super) fn is_register(&self) -> bool {
        matches!(self.kind, Kind::Register(_)) && !self.is_mask
    }

    pub(super) fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// Returns the name in strings; `None` if it has none.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Register(name) | Kind::Memory(name) | Kind::Immediate(name) => {
                Some(name.as_str()).filter(|_| !self.is_suppressed)
            }
            Kind::Address(_) | Kind::Flags => None,
        }
    }

    /// Returns the parts of a computed address.
    pub(super) fn address(&self) -> Option<&str> {
        match &self.kind {
            Kind::Address(parts) => Some(parts),
            Kind::Register(_) | Kind::Memory(_) | Kind::Immediate(_) | Kind::Flags => None,
        }
    }

    /// Writes the element of the operand with an index, from 1.
    pub(super) fn write(&self, index: usize, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut element = BytesStart::new("operand");
        element.push_attribute(("idx", index.to_string().as_str()));
        let (kind, start) = match &self.kind {
            Kind::Register(_) => ("reg", "REG"),
            Kind::Memory(_) => ("mem", "MEM"),
            Kind::Immediate(_) => ("imm", "IMM"),
            Kind::Address(_) => ("agen", "AGEN"),
            Kind::Flags => ("flags", "FLAGS"),
        };
        element.push_attribute(("name", format!("{start}{}", index - 1).as_str()));
        let flags = [
            ("opmask", self.is_mask),
            ("r", self.role.0),
            ("suppressed", self.is_suppressed),
            ("w", self.role.1),
        ];
        for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            element.push_attribute((name, "1"));
        }
        element.push_attribute(("type", kind));
        if let Some(width) = self.width() {
            element.push_attribute(("width", width.to_string().as_str()));
        }
        let text = self.text();
        if text.is_empty() {
            return writer.write_event(Event::Empty(element));
        }
        writer.write_event(Event::Start(element))?;
        writer.write_event(Event::Text(BytesText::new(&text)))?;
        writer.write_event(Event::End(BytesEnd::new("operand")))
    }

    /// Returns the width in bits, if it has one.
    fn width(&self) -> Option<u32> {
        match &self.kind {
            Kind::Register(name) => match name.as_str() {
                "CL" => Some(8),
                "AX" => Some(16),
                "MM" | "K" => Some(64),
                "XMM" | "BND" => Some(128),
                "YMM" => Some(256),
                "ZMM" => Some(512),
                name => name.strip_prefix('R')?.parse().ok(),
            },
            Kind::Memory(name) => name.strip_prefix('M')?.parse().ok(),
            Kind::Immediate(name) => {
                Some(name.strip_prefix('I').map_or(Some(8), |it| it.parse().ok())?)
            }
            Kind::Address(_) | Kind::Flags => None,
        }
    }

    /// Returns the names of the registers, or an immediate that is part of the form.
    fn text(&self) -> String {
        match &self.kind {
            Kind::Register(name) => registers(name),
            Kind::Immediate(name) if name == "1" => name.clone(),
            Kind::Immediate(_) | Kind::Memory(_) | Kind::Address(_) | Kind::Flags => String::new(),
        }
    }
}

/// Returns the registers of a class, separated by commas.
fn registers(class: &str) -> String {
    const OLD: [&str; 7] = ["A", "C", "D", "B", "SI", "DI", "BP"];
    let general = |bits: u32| {
        let old = OLD.iter().enumerate().map(|(at, name)| match (bits, at) {
            (8, _) => format!("{name}L"),
            (16, 0..4) => format!("{name}X"),
            (16, _) => (*name).to_owned(),
            (32, 0..4) => format!("E{name}X"),
            (32, _) => format!("E{name}"),
            (_, 0..4) => format!("R{name}X"),
            (_, _) => format!("R{name}"),
        });
        let suffix = match bits {
            8 => "B",
            16 => "W",
            32 => "D",
            _ => "",
        };
        let new = (8..16).map(|number| format!("R{number}{suffix}"));
        old.chain(new).collect::<Vec<_>>().join(",")
    };
    let numbered = |name: &str, numbers: std::ops::Range<u32>| {
        numbers.map(|number| format!("{name}{number}")).collect::<Vec<_>>().join(",")
    };
    match class {
        "R8" => general(8),
        "R16" => general(16),
        "R32" => general(32),
        "R64" => general(64),
        "MM" => numbered("MM", 0..8),
        "XMM" | "YMM" => numbered(class, 0..16),
        "ZMM" => numbered(class, 0..32),
        "K" => numbered("K", 1..8),
        "BND" => numbered("BND", 0..4),
        other => other.to_owned(),
    }
}

/// Returns the operands of a form. `roles` are those of its registers and memory, in their order. `None` if the format or
/// its readers have no such operand.
pub(super) fn operands(key: &FormKey, roles: Option<&[Role]>) -> Option<Vec<Operand>> {
    let mut roles = roles.unwrap_or_default().iter().copied();
    let mut next = || roles.next().unwrap_or((false, false));
    let mut operands = Vec::new();
    for word in key.operands() {
        let (name, suffix) = word.split_at(word.find('{').unwrap_or(word.len()));
        if let Some(parts) = name.strip_prefix("AGEN:") {
            let registers = parts.split('_').filter(|part| *part != "D8").count();
            for _ in 0..registers {
                next();
            }
            operands.push(Operand::new(Kind::Address(parts.into()), (true, false)));
            continue;
        }
        let operand = match name {
            "CL" => Operand::new(Kind::Register(name.into()), (true, false)),
            // On the stack of x87, positions are not registers.
            "ST" | "ST0" | "AX" => return None,
            "1" => Operand::new(Kind::Immediate(name.into()), (true, false)),
            _ if name.starts_with('I') => Operand::new(Kind::Immediate(name.into()), (true, false)),
            _ if name.starts_with('M') && name != "MM" => {
                Operand::new(Kind::Memory(name.into()), next())
            }
            _ => Operand::new(Kind::Register(name.into()), next()),
        };
        operands.push(operand);
        if !suffix.is_empty() {
            let mask = Operand::new(Kind::Register("K".into()), next());
            operands.push(Operand { is_mask: true, role: (true, false), ..mask });
        }
    }
    Some(operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(level: &str, roles: &[Role]) -> Vec<Operand> {
        operands(&FormKey::of_level(level)[0], Some(roles)).unwrap()
    }

    #[test]
    fn operands_have_names_roles_and_widths() {
        let add = of("add R64 1", &[(true, true)]);
        let names: Vec<_> =
            add.iter().map(|it| (it.name().unwrap(), it.role, it.width())).collect();
        assert_eq!(names, [("R64", (true, true), Some(64)), ("I8", (true, false), Some(8))]);
        let masked = of(
            "vpaddd ZMM{K} ZMM ZMM",
            &[(true, true), (true, false), (true, false), (true, false)],
        );
        let names: Vec<_> = masked.iter().map(|it| it.name().unwrap()).collect();
        assert_eq!(names, ["ZMM", "K", "ZMM", "ZMM"]);
        assert!(masked[1].is_mask && !masked[1].is_register());
        let lea = of("lea R64 [R64+R64*4+8]", &[(false, true), (true, false), (true, false)]);
        assert_eq!(lea[1].address(), Some("B_IS_D8"));
        let shift = of("shl R32 1", &[(true, true)]);
        assert_eq!((shift[1].text(), shift[1].name()), ("1".into(), Some("1")));
        assert!(operands(&FormKey::of_level("fadd ST st(0)")[0], None).is_none());
    }

    #[test]
    fn registers_have_their_names() {
        assert!(registers("R8").starts_with("AL,CL,DL,BL,SIL,DIL,BPL,R8B"));
        assert!(registers("R32").starts_with("EAX,ECX,EDX,EBX,ESI,EDI,EBP,R8D"));
        assert!(registers("R64").ends_with("R14,R15"));
        assert_eq!(registers("K"), "K1,K2,K3,K4,K5,K6,K7");
    }
}
