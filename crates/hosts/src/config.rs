//! `tollgate.toml`: the hosts that a user names, with what is particular to each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::data::{DataError, MAX_FILE, SourceLocation, Spanned, is_plain_name, line_of, read_toml};
use lab::quantity;
use lab::terminal::{UsageError, one_line};
use serde::Deserialize;

/// The file in the working directory that is read by default.
pub const CONFIG: &str = "tollgate.toml";
/// The maximum length of a name, in bytes: that of a host name in Linux, and that of a domain name.
const MAX_NAME: usize = 64;
const MAX_SSH_NAME: usize = 255;
/// The maximum number of a CPU, exclusive: the limit of `sched_setaffinity(2)`.
const MAX_CPUS: usize = rustix::thread::CpuSet::MAX_CPU;
/// The maximum length of a quoted list, in characters.
const MAX_SHOWN: usize = 60;
/// The name of a file that `ssh` takes for none, in upper or lower case.
const NO_FILE: &str = "none";
/// How long the lab tries to reach a host again after a connection was lost, by default.
const RECONNECT: Duration = Duration::from_secs(300);

/// The name of a host on the command line, and in names of files and variables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct HostName(String);

impl HostName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HostName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if is_plain_name(&name) && !name.starts_with('-') && name.len() <= MAX_NAME {
            return Ok(Self(name));
        }
        let shown = one_line(&name);
        Err(format!(
            "host name '{shown}': use at most {MAX_NAME} letters, digits, '.', '-' and '_', and no '-' or '.' at the start"
        ))
    }
}

/// The name of a host for `ssh`: a name of the user's `~/.ssh/config`, a domain name or an address, perhaps with a user.
///
/// A shell or `ssh` could take other characters, and `-` at the start, for something else than a name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SshName(String);

impl SshName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SshName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@:%+".contains(c);
        let starts_plainly = |part: &str| !part.is_empty() && !part.starts_with('-');
        let host = name.rsplit_once('@').map_or(name.as_str(), |(_, host)| host);
        if name.len() <= MAX_SSH_NAME
            && name.chars().all(is_plain)
            && starts_plainly(&name)
            && !name.starts_with('@')
            && starts_plainly(host)
        {
            return Ok(Self(name));
        }
        let shown = one_line(&name);
        Err(format!(
            "ssh name '{shown}': only letters, digits and . _ - @ : % + may be in it, and '-' not at the start; for \
             anything else add a Host to ~/.ssh/config and use its name"
        ))
    }
}

/// A list of CPUs, e.g. `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct CpuList {
    text: String,
    cpus: Vec<usize>,
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|cpu: &usize| *cpu < MAX_CPUS);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(first..=last)
        };
        let mut is_listed = [false; MAX_CPUS];
        let mut ranges = text.split(',').map(range);
        let is_valid = ranges.by_ref().take(MAX_CPUS).all(|range| {
            range.is_some_and(|range| {
                is_listed[range].fill(true);
                true
            })
        });
        if !is_valid || ranges.next().is_some() {
            let shown: String = text.chars().take(MAX_SHOWN).collect();
            let shown = one_line(&shown);
            return Err(format!(
                "'{shown}' is not a list of at most {MAX_CPUS} CPUs below {MAX_CPUS}, e.g. '0-3,8'"
            ));
        }
        let cpus = (0..MAX_CPUS).filter(|cpu| is_listed[*cpu]).collect();
        Ok(Self { text, cpus })
    }
}

/// The path of a file or folder on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct LocalPath(PathBuf);

impl TryFrom<String> for LocalPath {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        match path.is_empty() {
            true => Err("an empty path; omit it, or name a file or folder, e.g. '.'".into()),
            false => Ok(Self(path.into())),
        }
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct VariableName(String);

impl TryFrom<String> for VariableName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.chars().all(is_word) && name.starts_with(|c: char| !c.is_ascii_digit()) {
            return Ok(Self(name));
        }
        let shown = one_line(&name);
        Err(format!("variable '{shown}': use letters, digits and '_', and no digit at the start"))
    }
}

/// A text that can be a word of a remote shell's command line, once quoted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Word(String);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // Some shells end a quoted text at the end of a line.
        match text.contains(char::is_control) {
            true => Err(format!("'{}' contains a control character", one_line(&text))),
            false => Ok(Self(text)),
        }
    }
}

/// The path of a program on a host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Word")]
struct ProgramPath(String);

impl TryFrom<Word> for ProgramPath {
    type Error = String;

    fn try_from(Word(path): Word) -> Result<Self, String> {
        match path.starts_with('/') {
            true => Ok(Self(path)),
            false => Err(format!("program '{path}': not an absolute path")),
        }
    }
}

/// A time to reach a host again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        quantity::duration(&text).map(Self).map_err(|why| why.to_string())
    }
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    config: Option<LocalPath>,
    #[serde(default)]
    host: BTreeMap<HostName, HostTable>,
}

/// The table `[host.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    ssh: Option<SshName>,
    config: Option<LocalPath>,
    results: Option<LocalPath>,
    cpus: Option<CpuList>,
    #[serde(default)]
    environment: BTreeMap<VariableName, Word>,
    #[serde(default)]
    set: BTreeMap<Spanned<String>, String>,
    reconnect: Option<Time>,
    program: Option<ProgramPath>,
}

/// A host with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name on the command line.
    pub name: String,
    /// The name for `ssh`.
    pub ssh: String,
    /// The configuration of `ssh` in place of the user's.
    pub ssh_config: Option<PathBuf>,
    /// The results folder of its runs, on this machine; `None` for the default.
    pub results: Option<PathBuf>,
    /// The CPUs on which its workers may run, as written; `None` for all.
    pub cpu_list: Option<String>,
    /// The same, one by one; empty for all.
    pub cpus: Vec<usize>,
    /// The environment variables of all programs there.
    pub environment: BTreeMap<String, String>,
    /// Options of suites, as by `--set`.
    pub set: BTreeMap<String, String>,
    /// How long to try to reach it again after a connection was lost.
    pub reconnect: Duration,
    /// The program there, instead of one that is installed.
    pub program: Option<String>,
}

/// The hosts of `tollgate.toml`.
#[derive(Debug, Default)]
pub struct Config {
    /// The name of the file in errors, and its text.
    name: String,
    text: String,
    /// The folder to which its paths are relative.
    folder: PathBuf,
    file: File,
}

impl Config {
    /// Reads a file, or [`CONFIG`] in the working directory if that exists.
    ///
    /// # Errors
    /// Returns an error with the line if the file cannot be read or is not valid.
    pub fn load(path: Option<&Path>) -> Result<Self, DataError> {
        let named = path.unwrap_or(Path::new(CONFIG));
        let name = named.display().to_string();
        let text = match machine::file::read_input_text(named, MAX_FILE) {
            Ok(text) => text,
            Err(why) if path.is_none() && why.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(why) => return Err(DataError::of_file(&name, why.to_string())),
        };
        let folder = named.parent().map(Path::to_owned).unwrap_or_default();
        let file = read_toml(&name, &text)?;
        Ok(Self { name, text, folder, file })
    }

    /// Checks each option in a `set` of the file, given its name and value.
    ///
    /// # Errors
    /// Returns the first error with the line and the host.
    pub fn check_options(
        &self,
        check: impl Fn(&str, &str) -> Result<(), String>,
    ) -> Result<(), DataError> {
        for (host, table) in &self.file.host {
            for (option, value) in &table.set {
                check(option.get_ref(), value).map_err(|why| {
                    let line = line_of(&self.text, option.span().start);
                    let location = SourceLocation { file: self.name.clone(), line };
                    location.error(format!("host '{}': {why}", host.as_str()))
                })?;
            }
        }
        Ok(())
    }

    /// Returns the names of all hosts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.file.host.keys().map(HostName::as_str)
    }

    /// Returns a host of the file. A name that the file does not have is one for `ssh`.
    ///
    /// # Errors
    /// Returns one line if it is not such a name.
    pub fn host(&self, name: &str) -> Result<Host, UsageError> {
        let named = HostName::try_from(name.to_owned()).map_err(UsageError::new)?;
        let unnamed = HostTable::default();
        let table = self.file.host.get(&named).unwrap_or(&unnamed);
        let HostTable { ssh, config, results, cpus, environment, set, reconnect, program } = table;
        let in_folder = |path: &LocalPath| self.folder.join(&path.0);
        // A file of this name, and not no file.
        let is_none = |path: &PathBuf| path.as_os_str().eq_ignore_ascii_case(NO_FILE);
        let config_file = |path: &LocalPath| match in_folder(path) {
            path if is_none(&path) => Path::new(".").join(path),
            path => path,
        };
        let variable = |(name, value): (&VariableName, &Word)| (name.0.clone(), value.0.clone());
        Ok(Host {
            name: named.0,
            ssh: ssh.as_ref().map_or_else(|| name.to_owned(), |ssh| ssh.0.clone()),
            ssh_config: config.as_ref().or(self.file.config.as_ref()).map(config_file),
            results: results.as_ref().map(in_folder),
            cpu_list: cpus.as_ref().map(|list| list.text.clone()),
            cpus: cpus.as_ref().map(|list| list.cpus.clone()).unwrap_or_default(),
            environment: environment.iter().map(variable).collect(),
            set: set.iter().map(|(name, value)| (name.get_ref().clone(), value.clone())).collect(),
            reconnect: reconnect.as_ref().map_or(RECONNECT, |time| time.0),
            program: program.as_ref().map(|path| path.0.clone()),
        })
    }

    /// Returns the named hosts, or without names all of the file.
    ///
    /// # Errors
    /// Returns one line if there is none, or a name is not one for `ssh`.
    pub fn hosts(&self, names: &[String]) -> Result<Vec<Host>, UsageError> {
        if !names.is_empty() {
            return names.iter().map(|name| self.host(name)).collect();
        }
        let all: Result<Vec<_>, _> = self.names().map(|name| self.host(name)).collect();
        match all {
            Ok(all) if all.is_empty() => {
                Err(UsageError::new(format!("no host: name one, or write [host.NAME] to {CONFIG}")))
            }
            all => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.toml");
        std::fs::write(&path, text).unwrap();
        let loaded = Config::load(Some(&path)).map_err(|why| why.to_string());
        loaded.map_err(|why| why.replace(&path.display().to_string(), "hosts.toml"))
    }

    #[test]
    fn a_host_has_what_its_table_states_and_defaults() {
        let text = "config = 'ssh_config'\n[host.dut]\nssh = 'me@10.0.0.2'\ncpus = '0-2,8'\nresults = '/data'\n\
                    environment = { GLIBC_TUNABLES = 'a=b' }\nset = { x = 'y' }\nreconnect = '10 s'\n\
                    program = '/opt/tollgate'\n[host.b]\n";
        let config = config(text).unwrap();
        assert_eq!(config.names().collect::<Vec<_>>(), ["b", "dut"]);
        let dut = config.host("dut").unwrap();
        assert_eq!(dut.ssh, "me@10.0.0.2");
        assert_eq!(dut.cpus, [0, 1, 2, 8]);
        assert_eq!(dut.cpu_list.as_deref(), Some("0-2,8"));
        assert_eq!(dut.ssh_config, Some(config.folder.join("ssh_config")));
        assert_eq!(dut.results.as_deref(), Some(Path::new("/data")));
        assert_eq!(dut.environment["GLIBC_TUNABLES"], "a=b");
        assert_eq!(dut.reconnect, Duration::from_secs(10));
        assert_eq!(dut.program.as_deref(), Some("/opt/tollgate"));
        let other = config.host("b").unwrap();
        assert_eq!((other.ssh.as_str(), other.reconnect), ("b", RECONNECT));
        assert!(other.cpus.is_empty() && other.program.is_none());
        assert_eq!(config.host("unlisted").unwrap().ssh, "unlisted");
        assert_eq!(config.hosts(&[]).unwrap().len(), 2);
    }

    #[test]
    fn without_a_file_there_are_no_hosts_but_names_for_ssh() {
        let config = Config::default();
        assert_eq!(config.host("10.0.0.2").unwrap().ssh, "10.0.0.2");
        let why = config.hosts(&[]).unwrap_err().to_string();
        assert_eq!(why, "no host: name one, or write [host.NAME] to tollgate.toml");
        let absent = Config::load(Some(Path::new("/nonexistent/tollgate.toml")));
        let why = absent.unwrap_err().to_string();
        assert!(why.starts_with("/nonexistent/tollgate.toml: "), "{why}");
    }

    #[test]
    fn wrong_files_are_errors_of_one_line_with_its_number() {
        for (text, line, what) in [
            ("[host.dut]\nspeed = 1\n", 2, "unknown field `speed`"),
            ("[hosts.dut]\n", 1, "unknown field `hosts`"),
            ("[host.dut]\nssh = 'a;reboot'\n", 2, "ssh name 'a;reboot'"),
            ("[host.dut]\nssh = '-oProxyCommand=x'\n", 2, "ssh name"),
            ("[host.dut]\nssh = 'me@-x'\n", 2, "ssh name"),
            ("[host.'a b']\n", 1, "host name 'a b'"),
            ("[host.dut]\ncpus = '3-1'\n", 2, "is not a list of at most 1024 CPUs"),
            ("[host.dut]\ncpus = '0-99999999999'\n", 2, "is not a list of at most 1024 CPUs"),
            ("[host.dut]\ncpus = '0,'\n", 2, "is not a list of at most 1024 CPUs"),
            ("[host.dut]\nresults = ''\n", 2, "an empty path; omit it"),
            ("config = ''\n", 1, "an empty path; omit it"),
            ("[host.dut]\nreconnect = 'soon'\n", 2, "'soon' is not a time"),
            ("[host.dut]\nprogram = 'tollgate'\n", 2, "not an absolute path"),
            ("[host.dut]\nenvironment = { '1X' = 'y' }\n", 2, "variable '1X'"),
            ("[host.dut]\nenvironment = { X = \"a\\nb\" }\n", 2, "control character"),
        ] {
            let why = config(text).unwrap_err();
            assert!(why.starts_with(&format!("hosts.toml:{line}: ")), "{why}");
            assert!(why.contains(what) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_list_of_cpus_has_each_once() {
        let of = |list: &str| {
            let config = config(&format!("[host.dut]\ncpus = '{list}'\n"))?;
            Ok::<_, String>(config.host("dut").unwrap().cpus)
        };
        assert_eq!(of("3,0-2,1-3,3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(of(&["0-1023"; 1024].join(",")).unwrap().len(), 1024);
        let why = of(&"0-1023,".repeat(100_000)).unwrap_err();
        assert!(why.contains("is not a list of at most 1024 CPUs") && why.len() < 300, "{why}");
    }

    #[test]
    fn an_option_that_is_refused_has_its_line_and_host() {
        let config = config("[host.a]\n\n[host.dut]\nset = { x = 'y' }\n").unwrap();
        let check = |known: &str| {
            config.check_options(|name, value| match (name == known, value) {
                (true, "y") => Ok(()),
                _ => Err(format!("no option '{name}'")),
            })
        };
        assert!(check("x").is_ok());
        let why = check("z").unwrap_err().to_string();
        assert!(why.ends_with("hosts.toml:4: host 'dut': no option 'x'"), "{why}");
    }

    #[test]
    fn a_configuration_named_none_is_a_file() {
        for name in ["none", "NONE"] {
            let file = File { config: Some(LocalPath(name.into())), ..File::default() };
            let config = Config { file, ..Config::default() };
            let path = config.host("dut").unwrap().ssh_config.unwrap();
            assert_eq!(path.to_str(), Some(format!("./{name}").as_str()));
        }
    }

    #[test]
    fn names_with_shell_characters_are_refused() {
        let config = Config::default();
        for name in
            ["", "-oProxyCommand=reboot", "a;b", "a b", "$(x)", "a`b`", "a|b", "a\nb", "../a", ".a"]
        {
            let why = config.host(name).unwrap_err().to_string();
            assert!(why.starts_with("host name '") && !why.contains('\n'), "{why}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_hosts_or_refused_in_one_line(text in "\\PC{0,80}|(\\[host\\.[a-z-]{0,4}\\]\n[a-z]{1,8} = '\\PC{0,8}'\n)") {
            match config(&text) {
                Ok(config) => prop_assert!(config.names().all(|name| config.host(name).is_ok())),
                Err(why) => prop_assert!(!why.contains('\n'), "{}", why),
            }
        }

        #[test]
        fn any_name_for_ssh_is_one_plain_word_or_refused(name in "\\PC{0,20}|[a-z@:.;$-]{0,10}") {
            if let Ok(SshName(name)) = SshName::try_from(name) {
                let is_word = !name.is_empty() && !name.starts_with('-');
                prop_assert!(is_word);
                let special = |c: char| c.is_whitespace() || "'\"`$\\;&|<>(){}[]*?!#~/".contains(c);
                let has_special = name.contains(special);
                prop_assert!(!has_special);
            }
        }
    }
}
