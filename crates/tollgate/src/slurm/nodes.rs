//! Nodes of a partition, and those that are chosen.

use lab::format::count;

use super::client::{SlurmError, show, sinfo};

/// States in which a node runs jobs or will, in the order of preference.
const USABLE: [&str; 6] = ["idle", "planned", "completing", "mixed", "allocated", "reserved"];
/// Marks after a state with which a node does not run jobs: it does not respond, or is being switched off.
const UNUSABLE_MARKS: [char; 2] = ['*', '%'];
/// Maximum number of names in an error.
const MAX_NAMES: usize = 10;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// State as `sinfo` prints it, e.g. `idle~`.
    pub(super) state: String,
}

impl Node {
    /// Returns the position of its state in the order of preference; `None` if it cannot run jobs.
    fn preference(&self) -> Option<usize> {
        if self.state.contains(UNUSABLE_MARKS) {
            return None;
        }
        let state = self.state.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        USABLE.iter().position(|usable| *usable == state)
    }
}

/// Chosen nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) nodes: Vec<String>,
    /// Nodes that cannot run jobs now, with their states.
    pub(super) waiting: Vec<String>,
}

/// Returns the nodes of a partition, or of the default one.
pub(super) fn of_partition(partition: Option<&str>) -> Result<Vec<Node>, SlurmError> {
    let format = "--format=%P %N %T";
    let text = match partition {
        Some(name) => sinfo(&["--noheader", "--Node", format, &format!("--partition={name}")])?,
        None => sinfo(&["--noheader", "--Node", format])?,
    };
    let nodes = parse(&text, partition);
    if nodes.is_empty() {
        return Err(SlurmError::Nodes(match partition {
            Some(name) => format!("partition '{name}': no nodes; 'sinfo' lists the partitions"),
            None => "the cluster has no default partition; name one with --partition".into(),
        }));
    }
    Ok(nodes)
}

/// Parses lines of a partition, a node and its state. A `*` marks the default partition.
fn parse(text: &str, partition: Option<&str>) -> Vec<Node> {
    let node = |line: &str| {
        let mut words = line.split_whitespace();
        let (in_partition, name, state) = (words.next()?, words.next()?, words.next()?);
        let is_wanted = match partition {
            Some(_) => true,
            None => in_partition.ends_with('*'),
        };
        is_wanted.then(|| Node { name: name.to_owned(), state: state.to_owned() })
    };
    let mut nodes: Vec<Node> = Vec::new();
    for node in text.lines().filter_map(node) {
        // A node is listed for each partition of a list.
        if !nodes.iter().any(|known| known.name == node.name) {
            nodes.push(node);
        }
    }
    nodes
}

/// Returns the names of a list such as `n[1-8],n12`.
pub(super) fn expand(list: &str) -> Result<Vec<String>, SlurmError> {
    // As one word that is no option.
    if list.starts_with('-') || list.trim().is_empty() {
        return Err(SlurmError::Nodes(format!(
            "--nodelist: '{list}' names no node; use e.g. 'n[1-8]'"
        )));
    }
    let text = show(&["hostnames", list])?;
    let mut names: Vec<String> = Vec::new();
    for name in text.lines().map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Chooses the named nodes. Nodes that cannot run jobs get a job too, which waits for them.
pub(super) fn named(known: &[Node], names: &[String]) -> Result<Chosen, SlurmError> {
    let find = |name: &String| known.iter().find(|node| node.name == *name);
    let unknown: Vec<&str> =
        names.iter().filter(|name| find(name).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        let listed = unknown[..unknown.len().min(MAX_NAMES)].join(", ");
        let more = if unknown.len() > MAX_NAMES { ", ..." } else { "" };
        return Err(SlurmError::Nodes(format!(
            "--nodelist: the partition has no node {listed}{more}; 'sinfo --Node' lists its nodes"
        )));
    }
    let unusable = names.iter().filter_map(find).filter(|node| node.preference().is_none());
    let waiting = unusable.map(|node| format!("{} ({})", node.name, node.state)).collect();
    Ok(Chosen { nodes: names.to_vec(), waiting })
}

/// Chooses the nodes that can run jobs, idle ones first; all without a number.
pub(super) fn usable(known: &[Node], number: Option<usize>) -> Result<Chosen, SlurmError> {
    let mut usable: Vec<(usize, &Node)> =
        known.iter().filter_map(|node| Some((node.preference()?, node))).collect();
    let number = number.unwrap_or(usable.len());
    if number > usable.len() || usable.is_empty() {
        let (all, can) = (count(known.len(), "node"), usable.len());
        return Err(SlurmError::Nodes(format!(
            "{can} of {all} of the partition can run jobs; choose fewer with --nodes, another --partition, or wait for \
             the others with --nodelist"
        )));
    }
    usable.sort_by_key(|(preference, _)| *preference);
    usable.truncate(number);
    let nodes = usable.into_iter().map(|(_, node)| node.name.clone()).collect();
    Ok(Chosen { nodes, waiting: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LISTED: &str = "all* n1 allocated\nall* n2 idle\nall* n3 down*\nall* n4 idle~\nother n9 idle\nall* n2 idle\n";

    #[test]
    fn idle_nodes_are_first_and_failed_ones_are_left_out() {
        let nodes = parse(LISTED, None);
        assert_eq!(nodes.len(), 4, "of the default partition, each once");
        let chosen = |number| usable(&nodes, number).map(|chosen| chosen.nodes).ok();
        assert_eq!(chosen(None), Some(["n2", "n4", "n1"].map(str::to_owned).to_vec()));
        assert_eq!(chosen(Some(2)), Some(["n2", "n4"].map(str::to_owned).to_vec()));
        assert_eq!(chosen(Some(4)), None);
        let line = usable(&nodes, Some(4)).unwrap_err().to_string();
        assert!(line.starts_with("3 of 4 nodes of the partition can run jobs; "), "{line}");
    }

    #[test]
    fn a_named_node_may_wait_but_must_exist() {
        let nodes = parse(LISTED, None);
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|it| (*it).into()).collect() };
        let chosen = named(&nodes, &names(&["n3", "n1"])).unwrap();
        assert_eq!(chosen, Chosen { nodes: names(&["n3", "n1"]), waiting: names(&["n3 (down*)"]) });
        let line = named(&nodes, &names(&["n1", "n9"])).unwrap_err().to_string();
        assert!(line.contains("no node n9; "), "{line}");
        assert!(expand("--help").is_err() && expand(" ").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            for node in parse(&text, Some("p")) {
                let _ = node.preference();
            }
        }
    }
}
