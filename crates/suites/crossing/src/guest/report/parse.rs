//! Reads what the guest printed.

use lab::factor::LevelType;
use std::collections::{BTreeMap, BTreeSet};

use super::line::{AGAIN, Line, lines, number};
use super::{Clocks, Processor, Report, ReportError, Sample};
use crate::guest::kind::Kind;
use crate::guest::layout::{BINS_LAST, EMPTY_LAST, EMPTY_PAIRS};
use crate::guest::tally::{Counts, Tally};

/// The version of the format.
const VERSION: u64 = 2;
/// The most samples a round.
const A_ROUND: u64 = 2 * Kind::ALL.len() as u64;

/// Reads one whole report; lines of others are skipped.
///
/// # Errors
/// One line: where it is damaged, cut off, doubled or from a newer guest, and what to do.
pub fn parse(text: &str) -> Result<Report, ReportError> {
    let mut lines = Lines { lines: lines(text), last: text.split('\n').count() };
    let begin = Begin::read(&lines.next("begin")?)?;
    let vendor = lines.next("vendor")?.rest.to_owned();
    let brand = lines.next("brand")?.rest.trim().to_owned();
    let signed = lines.next("hypervisor")?.rest.to_owned();
    let processor = processor(&lines.next("cpu")?, vendor, brand, signed)?;
    let clocks = clocks(&lines.next("clock")?)?;
    let mut samples = Vec::new();
    let mut seen = BTreeSet::new();
    for position in 0..begin.samples {
        let line = lines.next("sample")?;
        let sample = sample(&line, position, &begin)?;
        if !seen.insert((sample.round, sample.kind, sample.isolation)) {
            let kind = sample.kind.name();
            return Err(line.wrong(format!("round {} has {kind} twice", sample.round)));
        }
        samples.push(sample);
    }
    let end = lines.next("end")?;
    let mut fields = end.fields();
    if fields.number::<u64>("samples")? != begin.samples {
        return Err(end.wrong(format!("{} samples were announced", begin.samples)));
    }
    fields.end()?;
    if let Some(more) = lines.lines.next() {
        let more = more?;
        let what = "more follows the report's end";
        return Err(ReportError { remedy: "import one report at a time", ..more.wrong(what) });
    }
    let Begin { rounds, crossings, warmup, seed, .. } = begin;
    Ok(Report { rounds, crossings, warmup, seed, processor, clocks, samples })
}

/// The guest's lines in their order.
struct Lines<I> {
    lines: I,
    last: usize,
}

impl<'a, I: Iterator<Item = Result<Line<'a>, ReportError>>> Lines<I> {
    /// The next line, which begins with this word.
    fn next(&mut self, word: &str) -> Result<Line<'a>, ReportError> {
        let Some(line) = self.lines.next() else {
            let what = format!("the text ends before the guest's line '{word}'");
            return Err(ReportError { line: self.last, what, remedy: AGAIN });
        };
        let line = line?;
        match line.word {
            found if found == word => Ok(line),
            "fault" => Err(ReportError {
                remedy: "run the guest again; if it comes again, this machine cannot run it",
                ..line.wrong(format!(
                    "the guest met an exception that it did not expect ({})",
                    line.rest
                ))
            }),
            found => Err(line.wrong(format!("'{word}' should come next, not '{found}'"))),
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
            let what =
                format!("the report's version is {version}, and this program reads {VERSION}");
            let remedy = "use the tollgate that wrote the guest";
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
        let most = begin.rounds.saturating_mul(A_ROUND);
        if begin.samples == 0 || begin.samples > most {
            let what = format!("{} rounds cannot have {} samples", begin.rounds, begin.samples);
            return Err(line.wrong(what));
        }
        Ok(begin)
    }
}

fn processor(
    line: &Line,
    vendor: String,
    brand: String,
    signed: String,
) -> Result<Processor, ReportError> {
    let mut fields = line.fields();
    let signature = fields.number("signature")?;
    let hypervisor = fields.either("hypervisor", "yes", "no")?.then_some(signed);
    let pcid = fields.either("pcid", "yes", "no")?;
    fields.end()?;
    Ok(Processor { vendor, brand, signature, hypervisor, pcid })
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
        return Err(line.wrong(format!("sample {position} should come next, not {found}")));
    }
    let round: u64 = fields.number("round")?;
    let kind = fields.text("kind")?;
    let kind = Kind::from_level(kind)
        .ok_or_else(|| line.wrong(format!("'{kind}' is no kind of crossing")))?;
    let isolation = fields.either("isolation", "on", "off")?;
    let mut tally = Tally {
        made: fields.number("made")?,
        stamped: fields.number("stamped")?,
        cs: fields.number("cs")?,
        floor_user: fields.number("floor-user")?,
        floor_handler: fields.number("floor-handler")?,
        ..Tally::default()
    };
    let adds = [fields.number("adds-before")?, fields.number("adds-after")?];
    let multiplies = [fields.number("multiplies-before")?, fields.number("multiplies-after")?];
    let longest = longest(line, fields.text("longest")?)?;
    tally.empty = counts(line, fields.text("empty")?, longest[0], EMPTY_LAST)?;
    tally.u2k = counts(line, fields.text("u2k")?, longest[1], BINS_LAST)?;
    tally.k2u = counts(line, fields.text("k2u")?, longest[2], BINS_LAST)?;
    fields.end()?;
    if round >= begin.rounds || tally.made != begin.crossings || tally.stamped > tally.made {
        let what = "its round, crossings and stamps do not fit what was announced";
        return Err(line.wrong(what));
    }
    let counted = [tally.empty.count(), tally.u2k.count(), tally.k2u.count()];
    if counted != [EMPTY_PAIRS, tally.stamped, tally.stamped] {
        return Err(line.wrong("its bins do not add up to what was counted"));
    }
    Ok(Sample { round, kind, isolation, tally, adds, multiplies })
}

fn longest(line: &Line, text: &str) -> Result<[u64; 3], ReportError> {
    let numbers: Option<Vec<u64>> = text.split(',').map(number).collect();
    let wrong = || line.wrong(format!("longest={text} is not three numbers"));
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(wrong)
}

fn counts(line: &Line, text: &str, longest: u64, last: usize) -> Result<Counts, ReportError> {
    let mut bins = BTreeMap::new();
    let mut before: Option<u32> = None;
    for bin in text.split(',').filter(|_| text != "-") {
        let wrong = || line.wrong(format!("'{bin}' is no bin, or not in its place"));
        let (ticks, count) = bin.split_once(':').ok_or_else(wrong)?;
        let ticks: u32 = number(ticks).ok_or_else(wrong)?;
        let count: u32 = number(count).filter(|count| *count > 0).ok_or_else(wrong)?;
        if ticks as usize > last || before.is_some_and(|before| before >= ticks) {
            return Err(wrong());
        }
        before = Some(ticks);
        bins.insert(ticks, u64::from(count));
    }
    // The longest is known where, and only where, the last bin was used.
    let used = before.is_some_and(|ticks| ticks as usize == last);
    let fits = if used { longest >= last as u64 } else { longest == 0 };
    if !fits {
        return Err(line.wrong(format!("the longest, {longest}, does not fit its bins")));
    }
    Ok(Counts { bins, longest })
}
