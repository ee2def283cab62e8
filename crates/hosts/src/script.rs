//! Commands for the shell of a host. `ssh` passes one text to the login shell of the user there, which may be any: all
//! that is needed of it is that it takes texts in single quotes literally.

use std::collections::BTreeMap;

/// The mark of lines that a script prints for this program: a shell's start-up files may print others.
pub(crate) const MARK: &str = "tollgate-host:";

/// Quotes a text as one word.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the text for `ssh` that runs a script of `/bin/sh` with these environment variables.
pub(crate) fn command(environment: &BTreeMap<String, String>, script: &str) -> String {
    let export = |(name, value): (&String, &String)| format!("export {name}={}; ", quoted(value));
    let exports: String = environment.iter().map(export).collect();
    format!("/bin/sh -c {}", quoted(&format!("{exports}{script}")))
}

/// Returns the script that sets `folder` to the folder of programs in the user's cache.
pub(crate) fn set_folder() -> &'static str {
    // Relative values are ignored, as the XDG specification requires.
    r#"case ${XDG_CACHE_HOME:-} in /*) folder=$XDG_CACHE_HOME;; *) folder=$HOME/.cache;; esac; folder=$folder/tollgate/programs"#
}

/// Returns the values that a script printed with the mark, by name.
pub(crate) fn values(output: &str) -> BTreeMap<&str, &str> {
    let marked = output.lines().filter_map(|line| line.split_once(MARK));
    marked.filter_map(|(_, marked)| marked.trim().split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// Runs the text as a login shell does.
    fn output(text: &str) -> String {
        let output = Command::new("bash").args(["-c", text]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn marked_values_are_found_among_other_lines() {
        let output =
            "Welcome!\ntollgate-host:folder=/a=b\n\rtollgate-host:system=Linux x86_64\nx=y\n";
        assert_eq!(
            values(output),
            BTreeMap::from([("folder", "/a=b"), ("system", "Linux x86_64")])
        );
    }

    #[test]
    fn programs_are_in_the_cache_folder() {
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            output(&command(&variables.collect(), &format!("{}; echo \"$folder\"", set_folder())))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "/my cache")]), "/my cache/tollgate/programs\n");
        assert_eq!(
            of(&[home, ("XDG_CACHE_HOME", "relative")]),
            "/home/me/.cache/tollgate/programs\n"
        );
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "")]), "/home/me/.cache/tollgate/programs\n");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_value_reaches_the_script_unchanged(value in "[ -~äλ]{0,40}") {
            let environment = BTreeMap::from([("VALUE".to_owned(), value.clone())]);
            prop_assert_eq!(output(&command(&environment, "printf %s \"$VALUE\"")), value);
        }
    }
}
