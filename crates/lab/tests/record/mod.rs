//! The record of a run with three sessions and without experiments, for tests of the journal.

use std::collections::BTreeMap;

use lab::experiment::Profile;
use lab::journal::{FORMAT, RunRecord, SessionRecord};

pub(crate) fn record() -> RunRecord {
    RunRecord {
        format: FORMAT,
        program: "0".into(),
        name: "test".into(),
        host: "here".into(),
        profile: Profile::Quick,
        seed: 1,
        start: "2026-01-01T00:00:00Z".into(),
        options: BTreeMap::new(),
        nice: 0,
        code: BTreeMap::new(),
        sides: Vec::new(),
        guests: None,
        hosts: Vec::new(),
        sessions: vec![SessionRecord::starting("a boot".into()); 3],
        environments: BTreeMap::new(),
        experiments: BTreeMap::new(),
        metrics: BTreeMap::new(),
    }
}
