//! What performance counters counted of each form's ports, as text.

use lab::capability::State;

use super::print::{Samples, figure, named};
use crate::hand::text::wrapped;
use crate::instructions::{METRICS, counted};

/// Columns of a form's name, and of a port.
const NAME: usize = 36;
const PORT: usize = 8;

/// The micro-operations that each port gets in a cycle; or why none were counted.
pub(super) fn table(samples: &Samples, levels: &[String]) -> String {
    if !samples.have("uops") {
        let State::Absent { reason, remedy } = counted::capability().state else {
            return String::new();
        };
        let why = format!("Micro-operations and ports are not counted: {reason}; {remedy}");
        return format!("\n{}\n", wrapped(&why));
    }
    let ports = METRICS.iter().map(|it| it.name).filter(|it| it.starts_with("port_"));
    let ports: Vec<&str> = ports.filter(|port| samples.have(port)).collect();
    let mut text = String::new();
    if ports.is_empty() {
        return text;
    }
    let heads = ports.iter().map(|port| port.replacen("port_", "P", 1).replace('_', ","));
    let heads: String = heads.map(|head| format!("{head:>PORT$}")).collect();
    text +=
        &format!("\nMicro-operations that each port gets in a core cycle\n{:NAME$}{heads}\n", "");
    for level in levels {
        let cell = |port: &&str| format!("{:>PORT$}", figure(samples.median(level, port)));
        let cells: String = ports.iter().map(cell).collect();
        text += &format!("{}{cells}\n", named(level, NAME));
    }
    text
}
