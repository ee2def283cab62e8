//! Parser of the report.

use std::collections::{BTreeMap, BTreeSet};

use lab::factor::LevelType;

use super::line::{Line, REMEDY, lines, number};
use super::{Clocks, GuestCpu, Report, ReportError, Sample};
use crate::guest::counts::{SampleCounts, TickBins};
use crate::guest::layout::{BINS_LAST, EMPTY_LAST, EMPTY_PAIRS};
use crate::guest::{CrossingKind, GuestCrossing, Stamp};

/// Version of the format.
const VERSION: u64 = 3;
/// Maximum samples per round.
const MAX_SAMPLES_PER_ROUND: u64 = GuestCrossing::COUNT as u64;

/// Parses one complete report and skips other lines.
///
/// # Errors
/// Returns the first line that is damaged, cut off, repeated or from a newer guest, and the fix.
pub fn parse(text: &str) -> Result<Report, ReportError> {
    let mut lines = Lines { lines: lines(text), last: text.split('\n').count() };
    let begin = Begin::read(&lines.next("begin")?)?;
    let vendor = lines.next("vendor")?.rest.to_owned();
    let brand = lines.next("brand")?.rest.trim().to_owned();
    let hypervisor = lines.next("hypervisor")?.rest.to_owned();
    let cpu = cpu(&lines.next("cpu")?, vendor, brand, hypervisor)?;
    let clocks = clocks(&lines.next("clock")?)?;
    let mut samples = Vec::new();
    let mut seen = BTreeSet::new();
    for position in 0..begin.samples {
        let line = lines.next("sample")?;
        let sample = sample(&line, position, &begin)?;
        if !seen.insert((sample.round, sample.crossing)) {
            let kind = sample.crossing.kind.name();
            let what =
                format!("round {} has {kind} with this stamp and isolation twice", sample.round);
            return Err(line.wrong(what));
        }
        samples.push(sample);
    }
    let end = lines.next("end")?;
    let mut fields = end.fields();
    if fields.number::<u64>("samples")? != begin.samples {
        return Err(end.wrong(format!(
            "the report ends with another number of samples than {}",
            begin.samples
        )));
    }
    fields.end()?;
    if let Some(more) = lines.lines.next() {
        let more = more?;
        let what = "another report follows";
        return Err(ReportError { remedy: "import one report at a time", ..more.wrong(what) });
    }
    let Begin { rounds, crossings, warmup, seed, .. } = begin;
    Ok(Report { rounds, crossings, warmup, seed, cpu, clocks, samples })
}

/// The remaining lines of the report.
struct Lines<I> {
    lines: I,
    last: usize,
}

impl<'a, I: Iterator<Item = Result<Line<'a>, ReportError>>> Lines<I> {
    /// Returns the next line, which must start with `word`.
    fn next(&mut self, word: &str) -> Result<Line<'a>, ReportError> {
        let Some(line) = self.lines.next() else {
            let what = format!("the report ends before its line '{word}'");
            return Err(ReportError { line: self.last, what, remedy: REMEDY });
        };
        let line = line?;
        match line.word {
            found if found == word => Ok(line),
            "fault" => Err(ReportError {
                remedy: "run the guest again; if this repeats, the machine cannot run it",
                ..line.wrong(format!("unexpected exception in the guest ({})", line.rest))
            }),
            found => Err(line.wrong(format!("line '{found}'; expected '{word}'"))),
        }
    }
}

struct Begin {
    samples: u64,
    rounds: u64,
    crossings: u64,
    warmup: u64,
    seed: u64,
}

impl Begin {
    fn read(line: &Line) -> Result<Self, ReportError> {
        let mut fields = line.fields();
        let version: u64 = fields.number("version")?;
        if version != VERSION {
            let what = format!("version {version} of the report; this program reads {VERSION}");
            let remedy = "use the version of tollgate that wrote the guest";
            return Err(ReportError { remedy, ..line.wrong(what) });
        }
        let begin = Self {
            samples: fields.number("samples")?,
            rounds: fields.number("rounds")?,
            crossings: fields.number("crossings")?,
            warmup: fields.number("warmup")?,
            seed: fields.number("seed")?,
        };
        fields.end()?;
        let max = begin.rounds.saturating_mul(MAX_SAMPLES_PER_ROUND);
        if begin.samples == 0 || begin.samples > max {
            let what = format!("{} rounds cannot have {} samples", begin.rounds, begin.samples);
            return Err(line.wrong(what));
        }
        Ok(begin)
    }
}

fn cpu(
    line: &Line,
    vendor: String,
    brand: String,
    hypervisor: String,
) -> Result<GuestCpu, ReportError> {
    let mut fields = line.fields();
    let packed = fields.number("signature")?;
    let hypervisor = fields.either("hypervisor", "yes", "no")?.then_some(hypervisor);
    let pcid = fields.either("pcid", "yes", "no")?;
    fields.end()?;
    Ok(GuestCpu { vendor, brand, signature: packed, hypervisor, pcid })
}

fn clocks(line: &Line) -> Result<Clocks, ReportError> {
    let mut fields = line.fields();
    let clocks = Clocks {
        stated_hertz: fields.number("stated-hertz")?,
        pit_ticks: fields.number("pit-ticks")?,
        pit_count: fields.number("pit-count")?,
        adds: fields.number("adds")?,
        multiplies: fields.number("multiplies")?,
    };
    fields.end()?;
    Ok(clocks)
}

fn sample(line: &Line, position: u64, begin: &Begin) -> Result<Sample, ReportError> {
    let mut fields = line.fields();
    let found: u64 = fields.number("position")?;
    if found != position {
        return Err(line.wrong(format!("sample {found}; expected {position}")));
    }
    let round: u64 = fields.number("round")?;
    let kind = fields.text("kind")?;
    let kind = CrossingKind::from_level(kind)
        .ok_or_else(|| line.wrong(format!("unknown kind of crossing '{kind}'")))?;
    let stamp = fields.text("stamp")?;
    let stamp =
        Stamp::from_level(stamp).ok_or_else(|| line.wrong(format!("unknown stamp '{stamp}'")))?;
    let isolated = fields.either("isolation", "on", "off")?;
    let crossing = GuestCrossing { kind, stamp, isolated };
    crossing.variant().map_err(|why| line.wrong(why.why))?;
    let mut counts = SampleCounts {
        made: fields.number("made")?,
        stamped: fields.number("stamped")?,
        cs: fields.number("cs")?,
        floor_user: fields.number("floor-user")?,
        floor_handler: fields.number("floor-handler")?,
        ..SampleCounts::default()
    };
    let adds = [fields.number("adds-before")?, fields.number("adds-after")?];
    let multiplies = [fields.number("multiplies-before")?, fields.number("multiplies-after")?];
    let longest = longest(line, fields.text("longest")?)?;
    counts.empty = bins(line, fields.text("empty")?, longest[0], EMPTY_LAST)?;
    counts.u2k = bins(line, fields.text("u2k")?, longest[1], BINS_LAST)?;
    counts.k2u = bins(line, fields.text("k2u")?, longest[2], BINS_LAST)?;
    fields.end()?;
    if round >= begin.rounds || counts.made != begin.crossings || counts.stamped > counts.made {
        let what = "round, crossings or stamps contradict the first line";
        return Err(line.wrong(what));
    }
    let counted = [counts.empty.count(), counts.u2k.count(), counts.k2u.count()];
    if counted != [EMPTY_PAIRS, counts.stamped, counts.stamped] {
        return Err(line.wrong("the bins do not sum to the counts"));
    }
    Ok(Sample { round, crossing, counts, adds, multiplies })
}

fn longest(line: &Line, text: &str) -> Result<[u64; 3], ReportError> {
    let numbers: Option<Vec<u64>> = text.split(',').map(number).collect();
    let wrong = || line.wrong(format!("longest={text}; expected three numbers"));
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(wrong)
}

fn bins(line: &Line, text: &str, longest: u64, last: usize) -> Result<TickBins, ReportError> {
    let mut bins = BTreeMap::new();
    let mut previous: Option<u32> = None;
    for bin in text.split(',').filter(|_| text != "-") {
        let wrong = || line.wrong(format!("bin '{bin}' is malformed or out of order"));
        let (ticks, count) = bin.split_once(':').ok_or_else(wrong)?;
        let ticks: u32 = number(ticks).ok_or_else(wrong)?;
        let count: u32 = number(count).filter(|count| *count > 0).ok_or_else(wrong)?;
        if ticks as usize > last || previous.is_some_and(|previous| previous >= ticks) {
            return Err(wrong());
        }
        previous = Some(ticks);
        bins.insert(ticks, u64::from(count));
    }
    // The maximum is present if and only if the last bin was used.
    let used = previous.is_some_and(|ticks| ticks as usize == last);
    let is_consistent = if used { longest >= last as u64 } else { longest == 0 };
    if !is_consistent {
        return Err(line.wrong(format!("longest={longest} contradicts the bins")));
    }
    Ok(TickBins { bins, longest })
}
