//! Options of `sbatch` that the user adds: those that would change what tollgate relies on are refused.

use super::SlurmError;

/// Options that are refused, by their long and short names, with the fix.
const REFUSED: [(&[&str], &str, &str); 9] = [
    (&["--wrap", "--test-only"], "", "it replaces the job; omit it"),
    (
        &["--clusters"],
        "M",
        "the IDs and nodes of another cluster are not those of this one; submit where that cluster is the default",
    ),
    (
        &["--wait"],
        "W",
        "sbatch would wait for jobs that do not start before it ends; use --wait of tollgate",
    ),
    (&["--partition"], "p", "use --partition of tollgate"),
    (&["--nodelist", "--nodefile"], "wF", "use --nodelist of tollgate"),
    (&["--nodes"], "N", "each job has one node; use --nodes of tollgate for their number"),
    (
        &[
            "--array",
            "--hold",
            "--ntasks",
            "--exclusive",
            "--mem",
            "--requeue",
            "--no-requeue",
            "--job-name",
        ],
        "aHnJ",
        SET,
    ),
    (&["--chdir", "--output", "--open-mode", "--export", "--export-file", "--parsable"], "Do", SET),
    (&["--help", "--usage", "--version"], "huV", "it submits no job; omit it"),
];
/// The fix of an option that tollgate sets.
const SET: &str = "tollgate sets it; omit it";
/// Short options without a value: others may follow in the same word.
const FLAGS: &str = "hHOQsuvVW";

/// Checks that the options of the user are options, and that they do not replace the job or what tollgate sets: a word
/// without `-` would be another script.
///
/// # Errors
/// Returns [`SlurmError::Option`].
pub(super) fn check(options: &[String]) -> Result<(), SlurmError> {
    options.iter().try_for_each(|option| match fix(option) {
        None => Ok(()),
        Some(fix) => Err(SlurmError::Option(format!("--sbatch '{option}': {fix}"))),
    })
}

/// Returns how to correct an option; `None` for one that is passed on.
fn fix(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or_default();
    if name.len() < 2 || !name.starts_with('-') || name == "--" {
        return Some("not an option; write it as one word, e.g. --sbatch=--account=physics");
    }
    // sbatch accepts the start of a name, unless another option is named exactly so.
    let is_start_of = |long: &&str| name == *long || (name.len() > 3 && long.starts_with(name));
    let is_refused = |(long, short, _): &&(&[&str], &str, &str)| match name.starts_with("--") {
        true => long.iter().any(&is_start_of),
        false => shorts(name).any(|letter| short.contains(letter)),
    };
    REFUSED.iter().find(is_refused).map(|(.., fix)| *fix)
}

/// Returns the short options of a word: flags, and one with a value.
fn shorts(word: &str) -> impl Iterator<Item = char> {
    let mut is_value = false;
    word.chars().skip(1).take_while(move |letter| {
        let is_option = !is_value;
        is_value |= !FLAGS.contains(*letter);
        is_option
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_change_the_job_are_refused() {
        let check = |option: &str| check(&[option.to_owned()]).map_err(|it| it.to_string());
        for option in [
            "--account=x",
            "-Ax",
            "-A x",
            "-AW",
            "--time=30",
            "--wckey=x",
            "--tmp=1",
            "-Q",
            "-vQ",
            "-t5",
            "--exclude=n1",
            "--mem-bind=local",
            "--error=x",
            "--wait-all-nodes=1",
            "--cluster-constraint=x",
            "--ntasks-per-core=1",
            "-kW",
        ] {
            assert_eq!(check(option), Ok(()), "{option}");
        }
        for (options, part) in [
            (&["/path/x.sh", "x", "", "-", "--"][..], "not an option; "),
            (
                &["--wrap=true", "--wrap", "--wra=x", "--test-only", "--test", "--te"],
                "it replaces the job",
            ),
            (&["--clusters=x", "-Mx", "-M x", "-vM", "--cluster=x", "--clust"], "another cluster"),
            (&["--wait", "-W", "-QW", "--wai"], "use --wait of tollgate"),
            (&["--partition=x", "-px", "--part=x"], "use --partition of tollgate"),
            (&["--nodelist=x", "-wx", "--nodef=x"], "use --nodelist of tollgate"),
            (&["--nodes=2", "-N2"], "use --nodes of tollgate"),
            (
                &[
                    "--export=NONE",
                    "--export-file=x",
                    "--array=0-3",
                    "-a0-3",
                    "--chdir=/",
                    "-D/",
                    "--output=x",
                    "-ox",
                    "--no-requeue",
                    "--requeue",
                    "--hold",
                    "-H",
                    "--job-name=x",
                    "-Jx",
                    "--mem=1",
                    "--exclusive=user",
                    "--open-mode=truncate",
                    "--ntasks=2",
                    "-n2",
                    "--parsable",
                ],
                "tollgate sets it; omit it",
            ),
            (&["--help", "-h", "--version", "-V"], "it submits no job"),
        ] {
            for option in options {
                assert!(check(option).unwrap_err().contains(part), "{option}: {:?}", check(option));
            }
        }
    }
}
