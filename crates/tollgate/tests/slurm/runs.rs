//! Runs on nodes: at the same time, each with its own journal, resumed after a failure.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use lab::journal::{self, Run};

use crate::cluster::{self, Cluster, NODES, wait_for};

/// Number of samples of a round: seven effects and one twin.
const ITEMS: usize = 8;

#[track_caller]
fn printed(output: Output, cluster: &Cluster) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_excused = || output.status.code() == Some(1) && cluster.is_busy();
    assert!(output.status.success() || is_excused(), "{errors}\n{}", cluster.logs());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the run of a node, which has one.
#[track_caller]
fn run_of(cluster: &Cluster, node: &str) -> Run {
    let runs = cluster::runs(&cluster.path("results"), node);
    assert_eq!(runs.len(), 1, "{node}: {runs:?}\n{}", cluster.logs());
    journal::open(&runs[0]).unwrap()
}

/// Returns how many complete samples each item has in each round.
fn complete(run: &Run) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    let of_delay = run.samples.iter().filter(|sample| sample.experiment == "planted/delay");
    for sample in of_delay.filter(|sample| sample.is_complete()) {
        let item = format!("{} {} {}", sample.point, sample.twin, sample.round);
        *times.entry(item).or_default() += 1;
    }
    times
}

/// Checks that every item of every round was measured, and at most those of one round twice.
#[track_caller]
fn is_complete(run: &Run, rounds: usize) {
    let times = complete(run);
    assert_eq!(times.len(), ITEMS * rounds, "{}", run.folder.display());
    let repeated: usize = times.values().map(|times| times - 1).sum();
    assert!(repeated < ITEMS, "{}: {repeated} samples were repeated", run.folder.display());
}

#[test]
fn nodes_measure_at_the_same_time_and_a_failed_one_resumes() {
    let Some(mut cluster) = cluster::start("runs on the nodes of a Slurm cluster") else { return };
    const ROUNDS: &str = "100";
    let words = ["run", "planted/delay", "--slurm", "--rounds", ROUNDS, "--seed", "5"];
    let mut command = cluster.tollgate(&words);
    // As within another job.
    command
        .env("SBATCH_PARTITION", "absent")
        .env("SLURM_JOB_ID", "1")
        .env("SBATCH_ARRAY_INX", "0-5");
    let text = printed(command.output().unwrap(), &cluster);
    for part in [": 2 nodes (n1, n2)", "squeue --jobs=", "scancel ", "tollgate fleet "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let job = Cluster::job_of(&text);
    let results = cluster.path("results");
    let has_samples = |node: &str| {
        let folder = cluster::runs(&results, node).pop();
        folder
            .and_then(|folder| journal::open(&folder).ok())
            .is_some_and(|run| run.samples.len() > ITEMS)
    };
    wait_for("samples of both nodes", || NODES.iter().all(|node| has_samples(node)));
    // In one look, because on an idle machine the run takes two seconds.
    let jobs = cluster.slurm("scontrol", &["show", "job", "--oneliner", &job]);
    let count = |word: &str| jobs.split_whitespace().filter(|one| *one == word).count();
    assert_eq!(count("JobState=RUNNING"), 2, "both at the same time: {jobs}");
    assert_eq!((count("NodeList=n1"), count("NodeList=n2")), (1, 1), "{jobs}");
    // The node loses power. Its controller notices that after a while; the administrator knows already.
    cluster.kill_node(0);
    let before = complete(&run_of(&cluster, "n1")).len();
    cluster.slurm("scontrol", &["update", "NodeName=n1", "State=DOWN", "Reason=power"]);
    wait_for("the requeued job", || cluster.field(&job, "Restarts").contains(&"1".to_owned()));
    cluster.start_node(0);
    cluster.wait_for_end(&job);
    let [first, second] = NODES.map(|node| run_of(&cluster, node));
    let rounds = ROUNDS.parse().unwrap();
    is_complete(&first, rounds);
    is_complete(&second, rounds);
    assert!((ITEMS..ITEMS * rounds).contains(&before), "{before}");
    assert_eq!((first.record.last_session(), second.record.last_session()), (2, 1));
    assert_eq!((first.record.host.as_str(), second.record.host.as_str()), ("n1", "n2"));
    // Both are in one fleet.
    let json = cluster.bench.json(&["fleet", "results", "--json"]);
    assert_eq!(json["nodes"], serde_json::json!(NODES));
    assert_eq!(json["runs"], 2);
}

#[test]
#[ignore = "a minute"]
fn long_a_node_that_dies_unnoticed_is_requeued_and_waited_for() {
    let Some(mut cluster) = cluster::start("a node that dies unnoticed") else { return };
    let words =
        ["run", "planted/delay", "--slurm", "--nodelist", "n[1-2]", "--rounds", "150", "--wait"];
    let mut command = cluster.tollgate(&words);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let waiting = command.spawn().unwrap();
    let results = cluster.path("results");
    wait_for("a run on n1", || !cluster::runs(&results, "n1").is_empty());
    wait_for("samples of n1", || !run_of(&cluster, "n1").samples.is_empty());
    cluster.kill_node(0);
    wait_for("a node that is down", || {
        cluster.slurm("sinfo", &["-h", "-N", "-p", "all", "-o", "%N %T"]).contains("n1 down")
    });
    cluster.start_node(0);
    let output = waiting.wait_with_output().unwrap();
    let text = printed(output, &cluster);
    assert!(text.contains(": 2 nodes (n1, n2)"), "{text}");
    for node in NODES {
        is_complete(&run_of(&cluster, node), 150);
    }
}

#[test]
#[ignore = "a minute"]
fn long_a_second_submission_resumes_and_a_fresh_one_does_not() {
    let Some(cluster) = cluster::start("a second submission") else { return };
    let words = ["run", "planted/delay", "--slurm", "--wait", "--rounds"];
    let run = |more: &[&str]| {
        let output = cluster.tollgate(&[&words[..], more].concat()).output().unwrap();
        printed(output, &cluster)
    };
    run(&["6"]);
    run(&["9"]);
    for node in NODES {
        is_complete(&run_of(&cluster, node), 9);
    }
    run(&["6", "--fresh", "--nodes", "1"]);
    let counts = NODES.map(|node| cluster::runs(&cluster.path("results"), node).len());
    assert_eq!(counts.iter().sum::<usize>(), 3, "{counts:?}");
    // More nodes than an array has tasks are several arrays: not here, with two nodes.
    let text = run(&["6", "--partition", "one"]);
    assert!(text.contains(": 1 node (n2)"), "{text}");
}

#[test]
#[ignore = "minutes"]
fn long_a_job_that_slurm_forgot_has_ended() {
    let Some(mut cluster) = cluster::start_with("jobs that Slurm forgets", "MinJobAge=2\n") else {
        return;
    };
    // The job of this node waits until it is back.
    cluster.kill_node(1);
    let words =
        ["run", "planted/delay", "--slurm", "--wait", "--rounds", "6", "--nodelist", "n1,n2"];
    let mut command = cluster.tollgate(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    let kept = cluster.path("results/slurm");
    let kept = || {
        std::fs::read_dir(&kept).is_ok_and(|mut entries| {
            entries.any(|it| it.unwrap().file_name().to_string_lossy().ends_with("-n1"))
        })
    };
    wait_for("the end on n1", kept);
    wait_for("Slurm to forget it", || {
        let jobs = cluster.slurm("scontrol", &["show", "job", "--oneliner"]);
        !jobs.contains("ArrayTaskId=0 ")
    });
    cluster.start_node(1);
    let output = run.wait_with_output().unwrap();
    printed(output, &cluster);
    for node in NODES {
        is_complete(&run_of(&cluster, node), 6);
    }
}
