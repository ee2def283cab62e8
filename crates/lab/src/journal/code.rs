//! `code.jsonl`: the generated code that a run timed, one point per line. It is not part of the journal: no value depends
//! on it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::read::complete_lines;
use super::written::{Key, key_of};
use super::{JournalError, UNREADABLE, system};
use crate::terminal;
use crate::timed_code::{TimedCode, check_loops};

/// The name of the file of generated code.
pub const CODE: &str = "code.jsonl";

/// Reads the generated code of a run; empty if the run recorded none.
///
/// # Errors
/// Returns an error if the file cannot be read or is damaged.
pub fn open_code(folder: &Path) -> Result<Vec<TimedCode>, JournalError> {
    let path = folder.join(CODE);
    let mut read = Vec::new();
    match machine::file::open(&path) {
        Ok(file) => each_line(&path, file, |code| read.push(code)).map(|_| read),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(read),
        Err(why) => Err(system(&path, UNREADABLE)(why)),
    }
}

/// Passes the code of each line; returns the offset of the end of the last complete line.
fn each_line(
    path: &Path,
    file: File,
    mut each: impl FnMut(TimedCode),
) -> Result<u64, JournalError> {
    complete_lines(path, file, RESTORE, |number, line| {
        let code = serde_json::from_slice::<TimedCode>(line).map_err(|why| why.to_string());
        let code = code.and_then(|code| check_loops(&code.loops).map(|()| code));
        each(code.map_err(|why| {
            let why = terminal::one_line(&why);
            let what = format!("line {number} is not the code of a point ({why}); {RESTORE}");
            JournalError::Damaged { path: path.into(), what }
        })?);
        Ok(())
    })
}

/// The remedy for a damaged line.
const RESTORE: &str = "restore the file, or remove it and measure again with --fresh";

/// The file while a session writes it. It is created with the first line.
#[derive(Debug)]
pub(crate) struct CodeLog {
    path: PathBuf,
    file: Option<File>,
    known: HashSet<Key>,
}

impl CodeLog {
    /// Opens the file in the folder of a journal that this process has locked, and removes an incomplete last line.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub(crate) fn open(folder: &Path) -> Result<Self, JournalError> {
        let mut log = Self { path: folder.join(CODE), file: None, known: HashSet::new() };
        let reading = match machine::file::open(&log.path) {
            Ok(file) => file,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(log),
            Err(why) => return Err(system(&log.path, UNREADABLE)(why)),
        };
        let whole = each_line(&log.path, reading, |code| {
            log.known.insert(key(&code));
        })?;
        let file = machine::file::append(&log.path).map_err(system(&log.path, UNREADABLE))?;
        let length = file.metadata().map_err(system(&log.path, UNREADABLE))?.len();
        if length > whole {
            file.set_len(whole).map_err(system(&log.path, UNREADABLE))?;
        }
        log.file = Some(file);
        Ok(log)
    }

    /// Appends the code of a point unless the file has it for the same environment.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn add(&mut self, code: &TimedCode) -> Result<(), JournalError> {
        if !self.known.insert(key(code)) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(code).map_err(|why| JournalError::Damaged {
            path: self.path.clone(),
            what: format!("code cannot be written as JSON: {why}; report this fault"),
        })?;
        line.push(b'\n');
        let remedy = "free space and run again";
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = machine::file::append(&self.path);
                self.file.insert(file.map_err(system(&self.path, remedy))?)
            }
        };
        file.write_all(&line).map_err(system(&self.path, remedy))
    }
}

/// Returns the key of a point in an environment.
fn key(code: &TimedCode) -> Key {
    let TimedCode { experiment, point, role, environment, .. } = code;
    key_of(&format!("{experiment}\n{point}\n{role}\n{environment}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;
    use crate::timed_code::encode;
    use machine::timed_code::{Collected, TimedLoop};

    fn code(level: &str, environment: &str, byte: u8) -> TimedCode {
        let one = TimedLoop { name: "copies".into(), page_offset: 0, code: vec![byte; 9] };
        let (loops, omitted) = encode(&Collected { loops: vec![one], omitted: 0 });
        TimedCode {
            experiment: "toy/one".into(),
            point: Point::from([("length", level)]),
            role: String::new(),
            environment: environment.into(),
            session: 1,
            loops,
            omitted,
        }
    }

    #[test]
    fn the_code_of_a_point_is_written_once_per_environment() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = CodeLog::open(folder.path()).unwrap();
        assert!(!folder.path().join(CODE).exists());
        assert_eq!(open_code(folder.path()).unwrap(), []);
        let (first, second) = (code("1 B", "a", 0x90), code("2 B", "a", 0x90));
        log.add(&first).unwrap();
        log.add(&code("1 B", "a", 0xC3)).unwrap();
        log.add(&second).unwrap();
        drop(log);
        // A lab that was killed leaves half a line.
        let mut file = machine::file::append(&folder.path().join(CODE)).unwrap();
        file.write_all(b"{\"experiment\":\"to").unwrap();
        assert_eq!(open_code(folder.path()).unwrap(), [first.clone(), second.clone()]);
        let mut log = CodeLog::open(folder.path()).unwrap();
        log.add(&code("2 B", "a", 0xC3)).unwrap();
        let third = code("2 B", "b", 0xC3);
        log.add(&third).unwrap();
        assert_eq!(open_code(folder.path()).unwrap(), [first, second, third]);
    }

    #[test]
    fn a_damaged_line_is_one_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut wrong = code("1 B", "a", 0x90);
        wrong.loops[0].bytes = 8;
        let line = serde_json::to_string(&wrong).unwrap();
        std::fs::write(folder.path().join(CODE), format!("{line}\n")).unwrap();
        let opened =
            [open_code(folder.path()).unwrap_err(), CodeLog::open(folder.path()).unwrap_err()];
        for why in opened {
            let why = why.to_string();
            assert!(
                why.contains("line 1 is not the code of a point (a loop does not have"),
                "{why}"
            );
            assert_eq!(why.lines().count(), 1);
        }
    }
}
