//! How many of a model's predictions agree with what was measured, and which do not, as text.

use super::print::{figure, named};
use crate::instructions::audit::{Prediction, agree};

/// Columns of a form's name, and of a pair of figures.
const NAME: usize = 40;
const PAIR: usize = 10;

/// A form of which something disagrees: its level and, of latency and throughput, ours and the model's.
type Disagreement = (String, [Option<(f64, f64)>; 2]);

/// What was compared so far.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Of latencies and of throughputs: how many agree, of how many.
    agreed: [(usize, usize); 2],
    disagreed: Vec<Disagreement>,
}

impl Agreement {
    /// Compares latency and throughput of a form, as far as they are there.
    pub(super) fn add(&mut self, level: &str, ours: [Option<f64>; 2], theirs: &Prediction) {
        let mut apart = [None; 2];
        let pairs = ours.into_iter().zip([theirs.latency, theirs.throughput]);
        for ((count, apart), (ours, theirs)) in self.agreed.iter_mut().zip(&mut apart).zip(pairs) {
            let Some(ours) = ours else { continue };
            count.1 += 1;
            if agree(ours, theirs) {
                count.0 += 1;
            } else {
                *apart = Some((ours, theirs));
            }
        }
        if apart.iter().any(Option::is_some) {
            self.disagreed.push((level.into(), apart));
        }
    }

    /// The count, and those that disagree.
    pub(super) fn table(&self, cpu: &str) -> String {
        let [(latency, latencies), (throughput, throughputs)] = self.agreed;
        let mut text = format!(
            "\nllvm-mca by its model of {cpu} agrees on {latency} of {latencies} latencies and \
             {throughput} of {throughputs} throughputs\n(within 0.1 cycle or 5%)\n"
        );
        if self.disagreed.is_empty() {
            return text;
        }
        let two = 2 * PAIR;
        text += &format!("\n{:NAME$}{:>two$}{:>two$}\n", "They disagree on", "latency", "tput");
        let pair = format!("{:>PAIR$}{:>PAIR$}", "measured", "llvm-mca");
        text += &format!("{:NAME$}{pair}{pair}\n", "");
        for (level, pairs) in &self.disagreed {
            let cell = |pair: &Option<(f64, f64)>| match pair {
                Some((ours, theirs)) => {
                    format!("{:>PAIR$}{:>PAIR$}", figure(Some(*ours)), figure(Some(*theirs)))
                }
                None => " ".repeat(two),
            };
            let cells: String = pairs.iter().map(cell).collect();
            text += format!("{}{cells}", named(level, NAME)).trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agrees_is_counted_and_what_does_not_is_listed() {
        let mut agreement = Agreement::default();
        let theirs = Prediction { latency: 3.0, throughput: 1.0 };
        agreement.add("imul R64 R64", [Some(3.0), Some(1.02)], &theirs);
        agreement.add("bsf R64 R64", [Some(4.0), Some(1.0)], &theirs);
        agreement.add("mov M64 R64", [None, Some(0.5)], &theirs);
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
