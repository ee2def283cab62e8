//! A monitor of logs: finds lines that report failures in streams of log lines, by [rule files](filter) in fail2ban's format,
//! with [Hyperscan](hyperscan) in streaming mode, as in Ensō's evaluation.
//!
//! The payload of each flow, TCP or UDP, is a stream; a match may extend over packets. A line counts once, for the first rule
//! that matches; see [`lines`]. A datagram ends its last line. Segments of TCP are expected in order, as in Ensō's version.
//! There are as many streams as entries in the cache of flows; a flow without entry replaces the oldest of its set. A
//! TCP segment with SYN begins a stream again. All packets are consumed.
//!
//! The ten rule files are our own; [`filter`] also reads others, and says what it lacks.

pub mod filter;
pub mod hyperscan;
pub mod lines;
pub mod pattern;

use std::sync::Arc;

use crate::application::{Access, Application, Count, Decision, Finding, Subject};
use crate::flow_cache::FlowCache;
use crate::hash;
use crate::packet::{Headers, Malformed, MalformedCounts, TCP, UDP};
use filter::{Filter, FilterError};
use hyperscan::{Database, Hyperscan, HyperscanError, Scanner};
use lines::LineState;

macro_rules! rule_files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("rules/", $name, ".conf")))),*]
    };
}

/// Our rule files: service and text.
pub const RULE_FILES: [(&str, &str); 10] = rule_files![
    "apache" "asterisk" "dovecot" "mysqld" "named" "nginx" "postfix" "proftpd" "sshd" "vsftpd"
];

const COMMON: &str = include_str!("rules/common.conf");

macro_rules! sample_files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("samples/", $name, ".log")))),*]
    };
}

/// Our sample lines: service and text. Each line starts with `+` if it reports a failure, or else `-`, and a space.
pub const SAMPLE_FILES: [(&str, &str); 10] = sample_files![
    "apache" "asterisk" "dovecot" "mysqld" "named" "nginx" "postfix" "proftpd" "sshd" "vsftpd"
];

/// Returns our sample lines of all services, each with whether a rule matches it because it reports a failure.
pub fn samples() -> impl Iterator<Item = (bool, &'static str)> {
    let lines = SAMPLE_FILES.iter().flat_map(|(_, text)| text.lines());
    lines.filter_map(|line| line.split_once(' ')).map(|(sign, line)| (sign == "+", line))
}

/// Parses our rule files.
///
/// # Errors
/// Returns why one cannot be used.
pub fn filters() -> Result<Vec<Filter>, FilterError> {
    let parse = |(name, text): (&str, &str)| {
        Filter::parse(&format!("{name}.conf"), text, &|_| Ok(COMMON.into()))
    };
    RULE_FILES.into_iter().map(parse).collect()
}

/// Compiled rules, which several cores can share.
#[derive(Debug)]
pub struct Rules {
    database: Arc<Database>,
    /// Names of the rule files.
    names: Vec<String>,
    /// Number of the rule file of each pattern.
    file_of: Vec<usize>,
}

impl Rules {
    /// Compiles the patterns of rule files.
    ///
    /// # Errors
    /// Returns the first pattern that cannot be compiled.
    pub fn new(library: &Arc<Hyperscan>, filters: &[Filter]) -> Result<Arc<Self>, HyperscanError> {
        let (mut patterns, mut file_of) = (Vec::new(), Vec::new());
        for (file, filter) in filters.iter().enumerate() {
            patterns.extend_from_slice(&filter.patterns);
            file_of.resize(patterns.len(), file);
        }
        let database = Database::new(library, &patterns)?;
        let names = filters.iter().map(|filter| filter.name.clone()).collect();
        Ok(Arc::new(Self { database, names, file_of }))
    }

    /// Returns the number of rule files.
    pub fn files(&self) -> usize {
        self.names.len()
    }

    /// Returns the compiled patterns.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

const SETS: usize = 1024;
/// Number of streams.
pub const STREAMS: usize = FlowCache::<SETS>::ENTRIES;

/// The monitor of one core.
#[derive(Debug)]
pub struct LogMonitor {
    rules: Arc<Rules>,
    scanner: Scanner,
    flows: FlowCache<SETS>,
    lines: Vec<LineState>,
    /// Matching lines by rule file.
    matches: Vec<u64>,
    packets: u64,
    bytes: u64,
    replaced: u64,
    failed: u64,
    malformed: MalformedCounts,
}

impl LogMonitor {
    /// Creates a monitor.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(rules: &Arc<Rules>) -> Result<Self, HyperscanError> {
        Ok(Self {
            rules: Arc::clone(rules),
            scanner: Scanner::new(&rules.database, STREAMS)?,
            flows: FlowCache::default(),
            lines: vec![LineState::default(); STREAMS],
            matches: vec![0; rules.names.len()],
            packets: 0,
            bytes: 0,
            replaced: 0,
            failed: 0,
            malformed: MalformedCounts::default(),
        })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Returns the number of matching lines by rule file.
    pub fn matches(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rules.names.iter().map(String::as_str).zip(self.matches.iter().copied())
    }

    /// Scans a packet's payload.
    fn scan(&mut self, packet: &[u8]) {
        let parsed = match Headers::plain(packet) {
            Some(headers) => Ok(headers),
            None => Headers::parse(packet),
        };
        let headers = match parsed {
            Ok(headers) if headers.has_ports() => headers,
            Ok(_) => return self.malformed.add(Malformed::Payload),
            Err(kind) => return self.malformed.add(kind),
        };
        let begins = headers.protocol == TCP && packet[headers.transport + 13] & 2 != 0;
        let payload = headers.payload_of(packet);
        if payload.is_empty() && !begins {
            return;
        }
        let result = self.stream(&headers, packet, begins).and_then(|stream| {
            self.bytes += payload.len() as u64;
            self.scan_bytes(stream, payload)?;
            let is_cut = headers.protocol == UDP && payload.last() != Some(&b'\n');
            if is_cut { self.scan_bytes(stream, b"\n") } else { Ok(()) }
        });
        // Only an error in the use of Hyperscan leads here.
        self.failed += u64::from(result.is_err());
    }

    /// Returns the stream of a packet's flow.
    fn stream(
        &mut self,
        headers: &Headers,
        packet: &[u8],
        begins: bool,
    ) -> Result<usize, HyperscanError> {
        let flow = headers.flow(packet);
        let hash = hash::of_flow(flow);
        let (stream, is_new) = match self.flows.find(flow, hash) {
            Some(entry) => (entry.number, begins),
            None => (self.flows.insert(flow, hash, 0), true),
        };
        if is_new && self.lines[stream].position() > 0 {
            self.replaced += 1;
            self.scanner.reset(stream)?;
            self.lines[stream] = LineState::default();
        }
        Ok(stream)
    }

    #[inline(always)]
    fn scan_bytes(&mut self, stream: usize, bytes: &[u8]) -> Result<(), HyperscanError> {
        let Self { scanner, lines, matches, rules, .. } = self;
        let mut packet = lines[stream].start(bytes);
        let result = scanner.scan(stream, bytes, |pattern, end| {
            if packet.is_new_line(end)
                && let Some(file) = rules.file_of.get(pattern as usize)
            {
                matches[*file] += 1;
            }
        });
        lines[stream] = packet.end();
        result
    }
}

/// Packets whose lines are prefetched while one is scanned, which takes a thousand cycles and more.
const AHEAD: usize = 2;

impl Application for LogMonitor {
    const ACCESS: Access = Access::Whole { ahead: AHEAD };

    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        for packet in packets {
            self.packets += 1;
            self.scan(packet);
            done(packet, Decision::Consume);
        }
    }

    fn counts(&self) -> Vec<Count> {
        let named = [
            ("packets", self.packets),
            ("scanned-bytes", self.bytes),
            ("matching-lines", self.matches.iter().sum()),
            ("replaced-streams", self.replaced),
            ("failed-scans", self.failed),
        ];
        let named = named.map(|(name, value)| Count { name, value });
        named.into_iter().chain(self.malformed.counts()).collect()
    }

    fn findings(&self) -> Vec<Finding> {
        let of_file = |(name, lines): (&str, u64)| Finding {
            subject: Subject::RuleFile(name.to_owned()),
            value: lines,
        };
        self.matches().map(of_file).collect()
    }
}

#[cfg(test)]
mod tests;
