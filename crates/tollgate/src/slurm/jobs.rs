//! States of jobs, as `scontrol show job --oneliner` prints them.

/// A task of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// ID of the array.
    pub(crate) array: u32,
    /// Number of the task.
    pub(crate) task: usize,
    pub(crate) node: String,
    /// State, e.g. `RUNNING`.
    pub(crate) state: String,
    /// Exit status and signal, e.g. `1:0`.
    pub(crate) exit: String,
}

/// Outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not ended.
    Pending,
    /// Its run succeeded.
    Completed,
    /// It ended otherwise.
    Failed,
}

impl Job {
    /// Returns what became of it. A job that is requeued is pending.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.state.as_str() {
            "COMPLETED" => Outcome::Completed,
            "FAILED" | "CANCELLED" | "TIMEOUT" | "OUT_OF_MEMORY" | "BOOT_FAIL" | "DEADLINE"
            | "NODE_FAIL" | "PREEMPTED" | "REVOKED" | UNKNOWN => Outcome::Failed,
            _ => Outcome::Pending,
        }
    }
}

/// State of a task that Slurm does not know, or no longer.
const UNKNOWN: &str = "UNKNOWN";

/// Parses the tasks of an array, one per line. Tasks that have not started may share a line; they are pending. `None` for a
/// task that is not listed: Slurm forgets tasks some time after their end.
fn parse(text: &str, array: u32, nodes: &[String]) -> Vec<Option<Job>> {
    let job = |line: &str| {
        let value = |name: &str| {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let task: usize = value("ArrayTaskId")?.parse().ok()?;
        Some(Job {
            array,
            task,
            node: nodes.get(task)?.clone(),
            state: value("JobState")?.to_owned(),
            exit: value("ExitCode").unwrap_or_default().to_owned(),
        })
    };
    let known: Vec<Job> = text.lines().filter_map(job).collect();
    let is_range = |word: &str| {
        word.strip_prefix("ArrayTaskId=").is_some_and(|ids| ids.parse::<usize>().is_err())
    };
    let is_shared = text.split_whitespace().any(is_range);
    let of_task = |(task, node): (usize, &String)| {
        let found = known.iter().find(|job| job.task == task).cloned();
        found.or_else(|| {
            let (state, exit) = ("PENDING".into(), String::new());
            is_shared.then(|| Job { array, task, node: node.clone(), state, exit })
        })
    };
    nodes.iter().enumerate().map(of_task).collect()
}

/// Returns the tasks of an array, each in the state that is listed, or else that it had `before`, or with the status that its
/// script wrote when it ended.
pub(super) fn with_ended(
    text: &str,
    array: u32,
    nodes: &[String],
    before: &[Job],
    status: impl Fn(&str) -> Option<i32>,
) -> Vec<Job> {
    let of_task = |((task, node), listed): ((usize, &String), Option<Job>)| {
        let last = || before.iter().find(|job| (job.array, job.task) == (array, task));
        let has_ended = |job: &&Job| job.outcome() != Outcome::Pending;
        let of_script = |status: i32| Job {
            array,
            task,
            node: node.clone(),
            state: if status == 0 { "COMPLETED" } else { "FAILED" }.into(),
            exit: format!("{status}:0"),
        };
        listed
            .or_else(|| status(node).map(of_script))
            .or_else(|| last().filter(has_ended).cloned())
            .unwrap_or_else(|| Job {
                array,
                task,
                node: node.clone(),
                state: UNKNOWN.into(),
                exit: String::new(),
            })
    };
    nodes.iter().enumerate().zip(parse(text, array, nodes)).map(of_task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_node_has_the_state_of_its_task() {
        let text = "JobId=5 ArrayJobId=4 ArrayTaskId=1 JobName=tollgate JobState=FAILED Reason=x ExitCode=1:0 NodeList=n2\n\
                    JobId=4 ArrayJobId=4 ArrayTaskId=0 JobName=tollgate JobState=COMPLETED ExitCode=0:0\n\
                    JobId=6 ArrayJobId=4 ArrayTaskId=2-9 JobState=PENDING\n";
        let nodes: Vec<String> = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let jobs: Vec<Job> = parse(text, 4, &nodes).into_iter().flatten().collect();
        let states: Vec<_> = jobs.iter().map(|job| (job.node.as_str(), job.outcome())).collect();
        assert_eq!(
            states,
            [("n1", Outcome::Completed), ("n2", Outcome::Failed), ("n3", Outcome::Pending)]
        );
        assert_eq!((jobs[1].exit.as_str(), jobs[1].array), ("1:0", 4));
    }

    #[test]
    fn a_task_that_slurm_forgot_has_ended() {
        let nodes: Vec<String> = ["n1", "n2", "n3", "n4"].map(str::to_owned).to_vec();
        let line = |task: usize, state: &str| {
            format!("ArrayTaskId={task} JobState={state} ExitCode=0:0\n")
        };
        let none = |_: &str| None;
        let text =
            [line(0, "COMPLETED"), line(1, "RUNNING"), line(2, "RUNNING"), line(3, "RUNNING")];
        let before = with_ended(&text.concat(), 4, &nodes, &[], none);
        let status = |node: &str| match node {
            "n2" => Some(0),
            "n3" => Some(7),
            _ => None,
        };
        let jobs = with_ended("", 4, &nodes, &before, status);
        let outcomes: Vec<_> = jobs.iter().map(Job::outcome).collect();
        let (completed, failed) = (Outcome::Completed, Outcome::Failed);
        assert_eq!(outcomes, [completed, completed, failed, failed]);
        assert_eq!((jobs[2].exit.as_str(), jobs[3].state.as_str()), ("7:0", "UNKNOWN"));
        // A requeued task is listed: what its script wrote before does not count.
        let jobs = with_ended(&line(2, "PENDING"), 4, &nodes, &before, status);
        assert_eq!(jobs[2].outcome(), Outcome::Pending);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            prop_assert_eq!(parse(&text, 1, &["n1".to_owned()]).len(), 1);
        }

        #[test]
        fn any_states_are_read(states in prop::collection::vec("[A-Z_]{1,12}", 1..9)) {
            let line = |(task, state): (usize, &String)| format!("ArrayTaskId={task} JobState={state}\n");
            let text: String = states.iter().enumerate().map(line).collect();
            let nodes: Vec<String> = (0..states.len()).map(|node| format!("n{node}")).collect();
            let read: Vec<String> =
                parse(&text, 1, &nodes).into_iter().flatten().map(|job| job.state).collect();
            prop_assert_eq!(read, states);
        }
    }
}
