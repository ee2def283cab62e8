//! The script of a job, and the arguments of the run in it.

use std::path::Path;

use super::{Request, SlurmError};
use crate::arguments::{MeasureArgs, PointArgs, Run, SelectionArgs};
use crate::select::quoted;

/// Returns the name of the file in the folder of the logs to which the script of a node writes its exit status.
pub(super) fn status_file(array: &str, node: &str) -> String {
    format!("exit-{array}-{node}")
}

/// Returns the script, which each node executes. Its results are in the folder of its node.
///
/// # Errors
/// Returns [`SlurmError::Path`] for a path that is not UTF-8.
pub(super) fn of_job(request: &Request<'_>, logs: &Path) -> Result<String, SlurmError> {
    let quote = |path: &Path| match path.to_str() {
        Some(text) => Ok(quoted(text)),
        None => Err(SlurmError::Path(path.to_owned())),
    };
    // The working directory of the job.
    quote(&request.folder)?;
    let mut script = format!(
        "#!/bin/sh\n# Measures on one node, for 'tollgate run --slurm'.\nunset SLURM_JWT\nresults={}/\"$SLURMD_NODENAME\"\n\
         mkdir -p \"$results\" || exit 1\nfresh=\nended={}/{}\nrm -f \"$ended\"\n",
        quote(&request.results)?,
        quote(logs)?,
        status_file("\"$SLURM_ARRAY_JOB_ID\"", "\"$SLURMD_NODENAME\"")
    );
    if request.fresh {
        // A requeued job resumes the new run, if it had created it.
        script += &format!(
            "before={}/before-\"$SLURM_ARRAY_JOB_ID-$SLURMD_NODENAME\"\n\
             [ -e \"$before\" ] || {{ ls \"$results\" >\"$before.new\" && mv \"$before.new\" \"$before\"; }} || exit 1\n\
             [ \"$(ls \"$results\")\" != \"$(cat \"$before\")\" ] || fresh=--fresh\n",
            quote(logs)?
        );
    }
    let words: Vec<_> = request.arguments.iter().map(|word| quoted(word)).collect();
    // Slurm forgets jobs some time after their end, so the status is kept. A signal is for the program: the shell waits.
    script += &format!(
        "trap : HUP INT TERM\n{} {} --results \"$results\" $fresh\nstatus=$?\n\
         echo $status >\"$ended.new\" && mv \"$ended.new\" \"$ended\"\nexit $status\n",
        quote(&request.program)?,
        words.join(" ")
    );
    Ok(script)
}

/// Returns the arguments of the run on each node: those of the user without what concerns the submission.
pub(crate) fn run_arguments(args: &Run, absolute: impl Fn(&Path) -> String) -> Vec<String> {
    let SelectionArgs { names, points, claim } = &args.selection;
    let PointArgs { profile, filter, levels, each_level, files } = points;
    let MeasureArgs { results: _, rounds, time, fresh: _, seed, wait: _, allow, set } =
        &args.measure;
    let mut words = vec!["run".to_owned(), "--wait".to_owned()];
    let mut option = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    let milliseconds = |time: &std::time::Duration| format!("{}ms", time.as_millis());
    profile.iter().for_each(|profile| option("profile", profile.name()));
    filter.iter().for_each(|text| option("filter", text));
    levels.iter().for_each(|level| option("where", level));
    files.iter().for_each(|file| option("experiments", &absolute(file)));
    claim.iter().for_each(|claim| option("claim", claim));
    rounds.iter().for_each(|rounds| option("rounds", &rounds.to_string()));
    time.iter().for_each(|time| option("for", &milliseconds(time)));
    args.until_decided.iter().for_each(|time| option("until-decided", &milliseconds(time)));
    args.resolve.iter().for_each(|share| option("resolve", share));
    seed.iter().for_each(|seed| option("seed", &seed.to_string()));
    allow.iter().for_each(|feature| option("allow", feature));
    set.iter().for_each(|setting| option("set", setting));
    args.priority.iter().for_each(|nice| option("priority", &nice.to_string()));
    words.extend(each_level.then(|| "--each-level".to_owned()));
    words.extend(names.iter().cloned());
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use clap::FromArgMatches;
    use proptest::prelude::*;

    use crate::arguments::{self, Arguments};

    fn parsed(words: &[&str]) -> Run {
        let matches = arguments::command().try_get_matches_from(words).unwrap();
        match Arguments::from_arg_matches(&matches).unwrap().command {
            arguments::Command::Run(args) => args,
            _ => panic!("not a run: {words:?}"),
        }
    }

    #[test]
    fn a_node_runs_what_the_user_selected() {
        let words = [
            "tollgate",
            "run",
            "copy",
            "crossing/round-trips",
            "--slurm",
            "--nodes",
            "2",
            "--profile",
            "standard",
            "-f",
            "a b",
            "--where",
            "length=64 KiB",
            "-e",
            "mine.toml",
            "--rounds",
            "7",
            "--seed",
            "5",
            "--allow",
            "code",
            "--set",
            "file-folder=/x y",
            "--priority=-3",
            "--results",
            "my r",
            "--fresh",
            "--wait",
        ];
        let arguments = run_arguments(&parsed(&words), |path| format!("/abs/{}", path.display()));
        let again: Vec<&str> =
            std::iter::once("tollgate").chain(arguments.iter().map(String::as_str)).collect();
        let again = parsed(&again);
        assert_eq!(again.selection.names, ["copy", "crossing/round-trips"]);
        assert_eq!(again.selection.points.levels, ["length=64 KiB"]);
        assert_eq!(again.selection.points.files, [Path::new("/abs/mine.toml")]);
        assert_eq!((again.measure.rounds, again.measure.seed), (Some(7), Some(5)));
        assert_eq!(again.measure.set, ["file-folder=/x y"]);
        assert_eq!(again.priority, Some(-3));
        assert!(again.measure.wait && !again.measure.fresh && !again.slurm.slurm);
        let timed = parsed(&["tollgate", "run", "--slurm", "--for", "3m"]);
        let arguments = run_arguments(&timed, |path| path.display().to_string());
        assert_eq!(arguments, ["run", "--wait", "--for=180000ms"]);
        assert_eq!(parsed(&["tollgate", "run", "--for=180000ms"]).measure.time, timed.measure.time);
    }

    static INTERRUPTED: AtomicBool = AtomicBool::new(false);

    fn request(folder: &Path, arguments: Vec<String>, fresh: bool) -> Request<'static> {
        Request {
            program: "/usr/bin/printf".into(),
            arguments,
            fresh,
            results: folder.into(),
            folder: folder.into(),
            partition: None,
            count: None,
            nodelist: None,
            options: &[],
            interrupted: &INTERRUPTED,
        }
    }

    /// Executes the script as a job on node n1.
    fn execute(script: &str) -> String {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("SLURMD_NODENAME", "n1").env("SLURM_ARRAY_JOB_ID", "7");
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_requeued_job_resumes_its_new_run() {
        let folder = tempfile::tempdir().unwrap();
        let words = vec!["%s\\n".to_owned()];
        let script = of_job(&request(folder.path(), words, true), folder.path()).unwrap();
        std::fs::create_dir_all(folder.path().join("n1/n1-quick-1")).unwrap();
        let is_fresh = || execute(&script).lines().any(|line| line == "--fresh");
        assert!(is_fresh() && is_fresh(), "until it has created its run");
        std::fs::create_dir(folder.path().join("n1/n1-quick-2")).unwrap();
        assert!(!is_fresh());
    }

    #[test]
    fn the_exit_status_is_kept_also_after_a_signal() {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join(status_file("7", "n1"));
        for (program, expected) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $PPID; exit 4", 4)] {
            let program_file = folder.path().join("program");
            std::fs::write(&program_file, format!("#!/bin/sh\n{program}\n")).unwrap();
            std::fs::set_permissions(&program_file, std::fs::Permissions::from_mode(0o755))
                .unwrap();
            let request =
                Request { program: program_file, ..request(folder.path(), vec![], false) };
            let script = of_job(&request, folder.path()).unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).env("SLURMD_NODENAME", "n1").env("SLURM_ARRAY_JOB_ID", "7");
            assert_eq!(shell.status().unwrap().code(), Some(expected), "{program}");
            let kept = std::fs::read_to_string(&status).unwrap();
            assert_eq!(kept, format!("{expected}\n"));
        }
    }

    #[test]
    fn a_job_does_not_see_the_token_of_the_commands() {
        let folder = tempfile::tempdir().unwrap();
        let program = "/usr/bin/env".into();
        let words = vec!["sh".to_owned(), "-c".into(), "env".into()];
        let request = Request { program, ..request(folder.path(), words, false) };
        let script = of_job(&request, folder.path()).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("SLURMD_NODENAME", "n1").env("SLURM_ARRAY_JOB_ID", "7");
        let output = shell.env("SLURM_JWT", "secret").output().unwrap();
        let seen = String::from_utf8(output.stdout).unwrap();
        assert!(seen.contains("SLURMD_NODENAME=n1") && !seen.contains("SLURM_JWT"), "{seen}");
    }

    #[test]
    fn a_path_that_is_no_text_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/shared/\xff"));
        for request in [
            Request { results: path.into(), ..request(Path::new("/x"), vec![], false) },
            Request { program: path.into(), ..request(Path::new("/x"), vec![], false) },
        ] {
            let why = of_job(&request, Path::new("/x")).unwrap_err().to_string();
            assert!(why.starts_with("/shared/") && why.contains("not UTF-8"), "{why}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_argument_reaches_the_program(words in prop::collection::vec("[^\0]{0,12}", 0..4)) {
            let folder = tempfile::tempdir().unwrap();
            let mut arguments = vec!["%s\\1".to_owned()];
            arguments.extend(words.clone());
            let script = of_job(&request(folder.path(), arguments, false), folder.path()).unwrap();
            let printed = execute(&script);
            let results = folder.path().join("n1").display().to_string();
            let expected: String =
                words.iter().map(String::as_str).chain(["--results", &results]).map(|word| format!("{word}\u{1}")).collect();
            prop_assert_eq!(printed, expected);
        }
    }
}
