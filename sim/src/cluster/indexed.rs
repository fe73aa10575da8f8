//! The indexed table of a run: its creation, its clients, and what it must show after healing.

use std::net::SocketAddr;

use cql_wire::Consistency;

use super::START_MAX;
use crate::indexes::{self, IndexClients};
use crate::phases::SURVEY_MAX;
use crate::run::Run;
use crate::scenario::Scenario;

/// Number of clients of the indexed table, with the administrator of its indexes.
pub(super) fn clients(scenario: &Scenario) -> usize {
    match scenario.indexing {
        0 => 0,
        clients => clients as usize + 1,
    }
}

/// Creates the table.
pub(super) fn create(run: &mut Run) -> Result<(), String> {
    if run.nodes.scenario.indexing == 0 {
        return Ok(());
    }
    let (address, indexes) = (run.nodes.address("n1"), run.clients.indexes.clone());
    run.nodes.ask("CREATE INDEX", START_MAX, move |rt| indexes::create(rt, address, indexes))?
}

/// Starts the clients and the administrator of the indexes.
pub(super) fn start_clients(run: &Run, addresses: &[SocketAddr]) {
    let clients = run.nodes.scenario.indexing as i32;
    if clients == 0 {
        return;
    }
    let level = match run.nodes.sabotage.weak_levels {
        true => Consistency::One,
        false => Consistency::Quorum,
    };
    let all = IndexClients {
        addresses: addresses.to_vec(),
        level,
        clients,
        nearest: run.nodes.scenario.nearest as usize,
        progress: run.clients.progress.clone(),
        indexes: run.clients.indexes.clone(),
    };
    for number in 0..clients {
        let client = all.clone();
        run.nodes.world.client(&format!("x{number}"), move |rt| client.run(rt, number));
    }
    run.nodes.world.client("indexes", |rt| all.administer(rt));
}

/// Compares indexed reads with scans.
pub(super) fn look(run: &mut Run) -> Result<(), String> {
    if run.nodes.scenario.indexing == 0 {
        return Ok(());
    }
    let addresses = run.nodes.staying_addresses().into_iter().map(|(_, a)| a).collect();
    let indexes = run.clients.indexes.clone();
    run.nodes
        .ask("reading by indexes", SURVEY_MAX, move |rt| indexes::look(rt, addresses, indexes))??;
    for (name, count) in run.clients.indexes.borrow().counts() {
        run.nodes.probes.bump(name, count);
    }
    Ok(())
}
