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
            | "NODE_FAIL" | "PREEMPTED" | "REVOKED" => Outcome::Failed,
            _ => Outcome::Pending,
        }
    }
}

/// Parses the tasks of an array, one per line. Tasks that have not started may share a line; they are pending.
pub(super) fn parse(text: &str, array: u32, nodes: &[String]) -> Vec<Job> {
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
    let of_task = |(task, node): (usize, &String)| {
        let found = known.iter().find(|job| job.task == task).cloned();
        found.unwrap_or_else(|| Job {
            array,
            task,
            node: node.clone(),
            state: "PENDING".into(),
            exit: String::new(),
        })
    };
    nodes.iter().enumerate().map(of_task).collect()
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
        let jobs = parse(text, 4, &nodes);
        let states: Vec<_> = jobs.iter().map(|job| (job.node.as_str(), job.outcome())).collect();
        assert_eq!(
            states,
            [("n1", Outcome::Completed), ("n2", Outcome::Failed), ("n3", Outcome::Pending)]
        );
        assert_eq!((jobs[1].exit.as_str(), jobs[1].array), ("1:0", 4));
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
            let read: Vec<String> = parse(&text, 1, &nodes).into_iter().map(|job| job.state).collect();
            prop_assert_eq!(read, states);
        }
    }
}
