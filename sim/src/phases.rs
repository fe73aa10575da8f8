//! Surveys of all nodes that several phases of a run use.

use std::time::Duration;

use crate::nodes::name;
use crate::run::Run;
use crate::survey;

/// Longest time of one survey after healing.
pub const SURVEY_MAX: Duration = Duration::from_secs(300);

/// Returns each node's own data.
pub fn look(run: &mut Run) -> Result<survey::Looks, String> {
    let name_and_address = |n| (name(n), run.nodes.address(&name(n)));
    let nodes: Vec<_> = run.nodes.staying().into_iter().map(name_and_address).collect();
    let scenario = run.nodes.scenario.clone();
    run.nodes.ask("looking at each node", SURVEY_MAX, move |rt| {
        survey::look_at_each(rt, nodes, scenario)
    })?
}

/// Reads every key through every node; the results belong to the history.
pub fn read_at_quorum(run: &mut Run) -> Result<(), String> {
    let (shared, nodes) = (run.clients.shared.clone(), run.nodes.staying_addresses());
    let keys = run.clients.shared.borrow().keys();
    run.nodes.ask("reading everything at QUORUM", SURVEY_MAX, move |rt| {
        survey::read_at_quorum(rt, nodes, keys, shared)
    })?
}
