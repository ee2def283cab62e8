//! The agreement of measured and predicted values.

use super::samples::{name_cell, value_text};
use crate::instructions::audit::{Prediction, agree};

/// Width of a form's name and of a value.
const NAME_WIDTH: usize = 40;
const VALUE_WIDTH: usize = 10;

/// Form with a disagreement: its level, and the measured and predicted latency and throughput if they disagree.
type Disagreement = (String, [Option<(f64, f64)>; 2]);

/// Number of values that agree, and the forms that do not.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Agreeing values and all values, of latencies and of throughputs.
    agreed: [(usize, usize); 2],
    disagreed: Vec<Disagreement>,
}

impl Agreement {
    /// Compares the latency and throughput of a form.
    pub(super) fn add(&mut self, level: &str, measured: [Option<f64>; 2], predicted: &Prediction) {
        let mut different = [None; 2];
        let pairs = measured.into_iter().zip([predicted.latency, predicted.throughput]);
        let counts = self.agreed.iter_mut().zip(&mut different);
        for ((count, different), (measured, predicted)) in counts.zip(pairs) {
            let Some(measured) = measured else { continue };
            count.1 += 1;
            if agree(measured, predicted) {
                count.0 += 1;
            } else {
                *different = Some((measured, predicted));
            }
        }
        if different.iter().any(Option::is_some) {
            self.disagreed.push((level.into(), different));
        }
    }

    /// Returns the counts and the table of disagreements.
    pub(super) fn table(&self, cpu: &str) -> String {
        let [(latency, latencies), (throughput, throughputs)] = self.agreed;
        let mut text = format!(
            "\nllvm-mca with its model of {cpu} agrees on {latency} of {latencies} latencies and \
             {throughput} of {throughputs} throughputs\n(within 0.1 cycle or 5%)\n"
        );
        if self.disagreed.is_empty() {
            return text;
        }
        let two = 2 * VALUE_WIDTH;
        text += &format!("\n{:NAME_WIDTH$}{:>two$}{:>two$}\n", "Disagreements", "latency", "tput");
        let pair = format!("{:>VALUE_WIDTH$}{:>VALUE_WIDTH$}", "measured", "llvm-mca");
        text += &format!("{:NAME_WIDTH$}{pair}{pair}\n", "");
        for (level, pairs) in &self.disagreed {
            let cell = |pair: &Option<(f64, f64)>| match pair {
                Some((measured, predicted)) => {
                    let [measured, predicted] =
                        [measured, predicted].map(|value| value_text(Some(*value)));
                    format!("{measured:>VALUE_WIDTH$}{predicted:>VALUE_WIDTH$}")
                }
                None => " ".repeat(two),
            };
            let cells: String = pairs.iter().map(cell).collect();
            text += format!("{}{cells}", name_cell(level, NAME_WIDTH)).trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreeing_values_are_counted_and_the_others_listed() {
        let mut agreement = Agreement::default();
        let predicted = Prediction { latency: 3.0, throughput: 1.0 };
        agreement.add("imul R64 R64", [Some(3.0), Some(1.02)], &predicted);
        agreement.add("bsf R64 R64", [Some(4.0), Some(1.0)], &predicted);
        agreement.add("mov M64 R64", [None, Some(0.5)], &predicted);
        let text = agreement.table("znver4");
        assert!(
            text.contains("znver4 agrees on 1 of 2 latencies and 2 of 3 throughputs"),
            "{text}"
        );
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("  ") && line.contains("R64"))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows,
            [vec!["bsf", "R64", "R64", "4.00", "3.00"], vec!["mov", "M64", "R64", "0.50", "1.00"]]
        );
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
