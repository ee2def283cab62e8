//! What an application counts in a trial, compared with what it was sent: an application that does nothing, or not everything,
//! must not pass.

use applications::application::Count;
use lab::sample::Failure;

use super::testbed_config::TestbedConfig;
use crate::generator::{Expectation, Report};
use crate::steering::Steering;
use crate::workload::log_lines::MatchingLines;

/// What the application of a testbed should count.
#[derive(Debug, Clone, Default)]
pub(super) struct ExpectedCounts {
    /// The lines that a log monitor finds; `None` of other applications, or if the segments of a stream may overtake each
    /// other on several pipes.
    matching: Option<MatchingLines>,
    /// Whether nothing but the generator's packets can reach the application.
    is_only_sender: bool,
}

impl ExpectedCounts {
    /// Returns what the application counts in traffic with these matching lines.
    pub(super) fn new(config: &TestbedConfig, matching: Option<MatchingLines>) -> Self {
        let is_in_order = config.steering != Steering::RoundRobin || config.pipes == 1;
        Self {
            matching: matching.filter(|_| is_in_order),
            is_only_sender: config.interface.link().is_none(),
        }
    }

    /// Checks the counts of a trial, summed over cores. An application without a count of packets, the echo or testpmd, is known
    /// by what it returns only.
    ///
    /// # Errors
    /// Returns `check` with the count that is wrong.
    pub(super) fn check(
        &self,
        report: &Report,
        is_closed: bool,
        counts: &[Count],
    ) -> Result<(), Failure> {
        let count = |name| counts.iter().find(|count| count.name == name).map(|it| it.value);
        let Some(packets) = count("packets") else { return Ok(()) };
        let accepted = report.sent.saturating_sub(report.dropped);
        let returned = match report.expectation {
            Expectation::Nothing => 0,
            Expectation::Same | Expectation::Byte | Expectation::Images | Expectation::Answers => {
                report.received
            }
        };
        // After an offered load that lost packets, the application may count some of them in the next trial.
        let is_exact = is_closed && self.is_only_sender;
        if packets < returned || (is_exact && packets > accepted) {
            return Err(Failure::check(format!(
                "the application counted {packets} packets of {accepted}, of which {returned} returned"
            )));
        }
        if let Some(failed @ 1..) = count("failed-scans") {
            return Err(Failure::check(format!("{failed} scans of the log monitor failed")));
        }
        let is_whole = packets == report.sent && report.dropped == 0;
        let is_known = is_whole && count("replaced-streams") == Some(0);
        match (&self.matching, count("matching-lines")) {
            (Some(matching), Some(found)) if is_known => check_lines(matching, packets, found),
            _ => Ok(()),
        }
    }
}

/// Checks the lines that a log monitor has found in the first packets of the traffic.
fn check_lines(matching: &MatchingLines, packets: u64, found: u64) -> Result<(), Failure> {
    let expected = matching.found_in(packets);
    match expected.contains(&found) {
        true => Ok(()),
        false => Err(Failure::check(format!(
            "the log monitor found {found} matching lines in {packets} packets, which have {} to {}",
            expected.start(),
            expected.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::*;
    use crate::workload::log_lines::{LogLines, LogTraffic};

    fn counts(named: &[(&'static str, u64)]) -> Vec<Count> {
        named.iter().map(|(name, value)| Count { name, value: *value }).collect()
    }

    /// Checks that a failure is one line with these words.
    fn refused(result: Result<(), Failure>, words: &str) {
        let failure = result.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Check);
        assert!(failure.why.contains(words) && !failure.why.contains('\n'), "{failure}");
    }

    #[test]
    fn an_application_counts_what_it_returns() {
        let of = ExpectedCounts { is_only_sender: true, ..ExpectedCounts::default() };
        let expectation = Expectation::Same;
        let report =
            Report { sent: 100, dropped: 10, received: 80, expectation, ..Report::default() };
        let check = |closed, packets| of.check(&report, closed, &counts(&[("packets", packets)]));
        for packets in [80, 85, 90] {
            check(true, packets).unwrap();
        }
        refused(check(true, 0), "counted 0 packets of 90, of which 80 returned");
        refused(check(false, 79), "counted 79 packets");
        refused(check(true, 91), "counted 91 packets");
        check(false, 91).unwrap();
        let linked = ExpectedCounts::default();
        linked.check(&report, true, &counts(&[("packets", 91)])).unwrap();
        of.check(&report, true, &[]).unwrap();
    }

    #[test]
    fn a_monitor_that_finds_too_few_or_too_many_lines_fails() {
        let lines = LogLines { matching: 0.1, streams: 2 };
        let LogTraffic { matching, .. } = lines.traffic().unwrap();
        let (sent, expected) = (5000, matching.ended_in(5000));
        let of = ExpectedCounts { matching: Some(matching), is_only_sender: true };
        let expectation = Expectation::Nothing;
        let report = Report { sent, expectation, ..Report::default() };
        let check_of = |report: &Report, packets, found, replaced, failed| {
            let named = [
                ("packets", packets),
                ("matching-lines", found),
                ("replaced-streams", replaced),
                ("failed-scans", failed),
            ];
            of.check(report, false, &counts(&named))
        };
        let check = |packets, found| check_of(&report, packets, found, 0, 0);
        for found in [expected - 2, expected, expected + 4] {
            check(sent, found).unwrap();
        }
        refused(check(sent, 0), "found 0 matching lines in 5000 packets, which have");
        refused(check(sent, expected - 3), "matching lines");
        refused(check(sent, expected + 5), "matching lines");
        // Nothing is known of streams with gaps, but a scan never fails.
        check(sent - 1, 0).unwrap();
        check_of(&Report { dropped: 1, ..report.clone() }, sent, 0, 0, 0).unwrap();
        check_of(&report, sent, 0, 1, 0).unwrap();
        refused(check_of(&report, sent - 1, 0, 1, 7), "7 scans");
    }
}
