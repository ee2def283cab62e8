//! Why a host cannot be used, from what `ssh` and the host report.

use lab::host::ConnectError;
use lab::terminal::one_line;

use crate::config::Host;

/// The maximum length of a quoted line, in characters.
const MAX_QUOTED: usize = 200;

/// Why a host cannot be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host '{host}': {why}")]
pub struct HostError {
    /// The host's name on the command line.
    pub host: String,
    /// Cause and fix.
    pub why: String,
    /// Whether a later attempt may succeed, e.g. after a break of the network.
    pub is_temporary: bool,
}

impl HostError {
    /// Creates an error that another attempt does not change.
    pub(crate) fn new(host: &Host, why: impl Into<String>) -> Self {
        Self { host: host.name.clone(), why: why.into(), is_temporary: false }
    }

    /// Creates an error of `ssh` from its standard error.
    pub(crate) fn of_ssh(host: &Host, errors: &str) -> Self {
        let by_hand = by_hand(host);
        let line = last_line(errors);
        let has = |text: &str| errors.contains(text);
        let refused = |why: String| Self::new(host, why);
        if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            refused(format!(
                "its host key is not the one that is known, so another machine may answer; if it was installed again, \
                 remove the old key with 'ssh-keygen -R', then check the new one with '{by_hand}'"
            ))
        } else if has("Host key verification failed") {
            refused(format!(
                "its host key is unknown; connect once with '{by_hand}' and compare the fingerprint"
            ))
        } else if has("Permission denied") {
            refused(format!(
                "it refuses the login ({line}); add the key to ssh-agent, or try '{by_hand}'"
            ))
        } else if has("Bad configuration option") || has("Can't open user config file") {
            refused(format!("{line}; correct the configuration of ssh"))
        } else {
            let why = match line.as_str() {
                "" => format!("the connection was closed; try '{by_hand}'"),
                line => format!("{line}; check the name, the network and its SSH server"),
            };
            Self { is_temporary: true, ..Self::new(host, why) }
        }
    }
}

impl From<HostError> for ConnectError {
    fn from(error: HostError) -> Self {
        Self { why: error.to_string(), is_temporary: error.is_temporary }
    }
}

/// Returns the command with which the user connects.
fn by_hand(host: &Host) -> String {
    match &host.ssh_config {
        Some(config) => format!("ssh -F {} {}", config.display(), host.ssh),
        None => format!("ssh {}", host.ssh),
    }
}

/// Returns the last line of a text that is not empty.
pub(crate) fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    one_line(&line.chars().take(MAX_QUOTED).collect::<String>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use proptest::prelude::*;

    fn error(errors: &str) -> HostError {
        HostError::of_ssh(&Config::default().host("dut").unwrap(), errors)
    }

    #[test]
    fn what_ssh_reports_becomes_a_cause_and_a_fix() {
        for (errors, expected, is_temporary) in [
            (
                "No ED25519 host key is known for x.\nHost key verification failed.\r\n",
                "unknown; connect once with 'ssh dut'",
                false,
            ),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "is not the one that is known",
                false,
            ),
            (
                "me@dut: Permission denied (publickey).\n",
                "refuses the login (me@dut: Permission denied (publickey).)",
                false,
            ),
            (
                "/x: line 1: Bad configuration option: y\n",
                "correct the configuration of ssh",
                false,
            ),
            (
                "ssh: connect to host dut port 22: Connection refused\n",
                "Connection refused; check",
                true,
            ),
            (
                "ssh: Could not resolve hostname dut: Name or service not known\n",
                "Could not resolve",
                true,
            ),
            ("", "the connection was closed", true),
        ] {
            let error = error(errors);
            assert!(error.to_string().starts_with("host 'dut': "), "{error}");
            assert!(error.why.contains(expected), "{error}");
            assert_eq!(error.is_temporary, is_temporary, "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_output_of_ssh_is_one_line(errors in "(\\PC|\\n|\\r|\u{1b}){0,300}") {
            let line = error(&errors).to_string();
            prop_assert!(!line.contains(|c: char| c.is_control()), "{}", line);
        }
    }
}
