//! `tollgate logs`: the logs of the hosts of a run, which the lab writes while it measures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::host::LOGS;
use lab::journal;
use lab::terminal::one_line;

use crate::arguments::Logs;
use crate::error::CliError;
use crate::output::output_error;

/// How often logs are read with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the logs of the newest run, or of one that is named.
pub(crate) fn logs(args: &Logs) -> Result<u8, CliError> {
    let run = journal::newest(&args.results.folder)?;
    let folder = run.join(LOGS);
    let mut reader = LogReader { folder, hosts: &args.hosts, offsets: BTreeMap::new() };
    reader.check(&run, args.follow)?;
    loop {
        // A reader that closes the pipe has all that it requires.
        if !write(&reader.new_lines()?)? || !args.follow {
            return Ok(0);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Reads what logs have that was not read before.
struct LogReader<'a> {
    folder: PathBuf,
    /// The hosts whose logs are read; empty for all.
    hosts: &'a [String],
    /// By host: how much of its log was read.
    offsets: BTreeMap<String, u64>,
}

impl LogReader<'_> {
    /// Returns the hosts that have a log, and its path.
    fn files(&self) -> Vec<(String, PathBuf)> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let file = |path: PathBuf| {
            let host = path.file_name()?.to_str()?.strip_suffix(".log")?.to_owned();
            Some((host, path))
        };
        let mut files: Vec<_> = entries.filter_map(|entry| file(entry.path())).collect();
        files.sort();
        files
    }

    /// Checks that the run has the logs. One that is followed may get them yet.
    fn check(&self, run: &Path, follows: bool) -> Result<(), CliError> {
        let (run, files) = (run.display(), self.files());
        if files.is_empty() && !follows {
            let why = "no logs; only runs on other hosts ('tollgate run --host HOST') have them";
            return Err(CliError::failed(format!("{run}: {why}")));
        }
        let known: Vec<_> = files.iter().map(|(host, _)| host.as_str()).collect();
        match self.hosts.iter().find(|host| !known.contains(&host.as_str())) {
            Some(unknown) if !follows => {
                let known = known.join(", ");
                let line = format!("{run}: no log of '{unknown}'; available: {known}");
                Err(CliError::usage(line))
            }
            _ => Ok(()),
        }
    }

    /// Returns the new lines of all logs by time, with the host if there are several.
    fn new_lines(&mut self) -> Result<String, CliError> {
        let mut files = self.files();
        files.retain(|(host, _)| self.hosts.is_empty() || self.hosts.contains(host));
        let names_host = files.len() > 1;
        let mut lines = Vec::new();
        for (host, path) in files {
            let failed =
                |why: std::io::Error| CliError::failed(format!("{}: {why}", path.display()));
            let offset = self.offsets.entry(host.clone()).or_default();
            let text = complete_lines(&path, *offset).map_err(failed)?;
            *offset += text.len() as u64;
            for line in String::from_utf8_lossy(&text).lines() {
                let host = if names_host { format!("{host}: ") } else { String::new() };
                let time = line.split(' ').next().unwrap_or_default().to_owned();
                lines.push((time, format!("{host}{}\n", one_line(line))));
            }
        }
        // Stable: lines of one host stay in their order.
        lines.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }
}

/// Reads the complete lines of a file from an offset on.
fn complete_lines(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file: File = machine::file::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    text.truncate(end);
    Ok(text)
}

/// Writes to standard output; returns `false` if its reader is gone.
fn write(text: &str) -> Result<bool, CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(output_error(&why)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn new_lines_of_all_hosts_are_in_the_order_of_their_times() {
        let folder = tempfile::tempdir().unwrap();
        let at = |host: &str| folder.path().join(format!("{host}.log"));
        std::fs::write(at("a"), "2026-01-01T00:00:02Z two\n2026-01-01T00:00:02Z again\n").unwrap();
        std::fs::write(at("b"), "2026-01-01T00:00:01Z one\n2026-01-01T00:00:03Z partial").unwrap();
        let mut reader =
            LogReader { folder: folder.path().into(), hosts: &[], offsets: BTreeMap::new() };
        let expected = "b: 2026-01-01T00:00:01Z one\na: 2026-01-01T00:00:02Z two\na: 2026-01-01T00:00:02Z again\n";
        assert_eq!(reader.new_lines().unwrap(), expected);
        assert_eq!(reader.new_lines().unwrap(), "");
        std::fs::write(at("b"), "2026-01-01T00:00:01Z one\n2026-01-01T00:00:03Z partial\u{7}\n")
            .unwrap();
        assert_eq!(reader.new_lines().unwrap(), "b: 2026-01-01T00:00:03Z partial\u{fffd}\n");
    }
}
