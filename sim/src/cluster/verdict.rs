//! The end of a run: surveys all nodes, then runs the checkers.

use std::time::Duration;

use super::{QUIET, indexed};
use crate::cells;
use crate::checks;
use crate::counts;
use crate::damaged_start;
use crate::encrypted;
use crate::folded;
use crate::inverted;
use crate::key_provider;
use crate::large;
use crate::leaks;
use crate::lwt;
use crate::nodes::name;
use crate::operator;
use crate::phases::{self, SURVEY_MAX};
use crate::rotting;
use crate::run::Run;
use crate::scenario::Fault;
use crate::survey;

const LEAK_TRIES: u32 = 12;
const UNEVEN: Duration = Duration::from_millis(337);
/// Links between two shards in one direction: requests, and streams.
const LINK_CLASSES: u64 = 2;

/// Surveys all nodes and runs the checkers.
pub(super) fn verdict(run: &mut Run) -> Result<(), String> {
    let first = run.nodes.address("n1");
    if run.nodes.scenario.repairs && run.nodes.scenario.has(Fault::BitRot) {
        match (run.nodes.mends_by_itself, run.nodes.world.random_u64() % 3) {
            (false, 0) => operator::lose_files(run)?,
            (_, 1) => run.rotten = rotting::rot_files(run)?,
            (_, _) => run.rotten = damaged_start::start_on_damaged_files(run)?,
        }
    }
    if !run.nodes.sabotage.unrepaired {
        repair(run)?;
    }
    if run.nodes.scenario.inverted > 0 {
        let addresses = run.nodes.staying_addresses().into_iter().map(|(_, a)| a).collect();
        let inverted = run.clients.inverted.clone();
        run.nodes.ask("reading what is known", SURVEY_MAX, move |rt| {
            inverted::look(rt, addresses, inverted)
        })??;
        let reads = run.clients.inverted.borrow().reads();
        run.nodes.probes.bump("read whose answer is known", reads);
    }
    if run.nodes.scenario.folding > 0 {
        let addresses = run.nodes.staying_addresses().into_iter().map(|(_, a)| a).collect();
        let folded = run.clients.folded.clone();
        run.nodes.ask("folding what is known", SURVEY_MAX, move |rt| {
            folded::look(rt, addresses, folded)
        })??;
        let answers = run.clients.folded.borrow().answers();
        run.nodes.probes.bump("scan whose answer is known", answers);
    }
    indexed::look(run)?;
    let found = run
        .nodes
        .ask("reading the batches", SURVEY_MAX, move |rt| survey::read_batches(rt, first))??;
    let (tables, views) = phases::look(run)?;
    let large = tables.iter().filter_map(|(node, of)| Some((node, of.get("large")?)));
    large.into_iter().try_for_each(|(node, rows)| large::complete(node, rows))?;
    no_leaks(run)?;
    encrypted::check(run)?;
    key_provider::check(run)?;

    let shared = run.clients.shared.borrow();
    let history = &shared.history;
    checks::answers(history)?;
    checks::registers(history, &run.evidence.losses)?;
    lwt::linearizable(&shared.transactions)?;
    cells::newest(&shared.cells)?;
    counts::within(&shared.counts)?;
    run.clients.inverted.borrow().verdict()?;
    run.clients.folded.borrow().verdict()?;
    run.clients.indexes.borrow().verdict()?;
    checks::batches(history, &found)?;
    checks::converged(&tables)?;
    checks::schema(history, &views)?;
    if run.nodes.scenario.changes_schema() && run.evidence.epochs.is_empty() {
        return Err("no node ever said at which epoch it is".to_owned());
    }
    checks::epochs(&run.evidence.epochs)?;
    checks::deadlines(history, &run.evidence.troubles, run.nodes.scenario.lateness)
}

/// Lets hints and replays come, then repairs or reads everything at ALL, then at QUORUM.
fn repair(run: &mut Run) -> Result<(), String> {
    run.nodes.world.run_for(run.nodes.scenario.settle);
    if run.nodes.scenario.even {
        // A write while a replica was away is on two of three. Only a copy that should have been
        // made can be missing here, and no repair has restored it yet.
        phases::read_at_quorum(run)?;
    }
    if run.nodes.scenario.repairs {
        operator::repair_all(run)?;
        if let Some(node) = run.rotten {
            rotting::let_go_of_damaged(run, node)?;
        }
        // Before any read repairs something.
        let (tables, _) = phases::look(run)?;
        checks::converged(&tables).map_err(|what| format!("after repair: {what}"))?;
    }
    let first = run.nodes.address("n1");
    let (keys, scenario) = (run.clients.shared.borrow().keys(), run.nodes.scenario.clone());
    run.nodes.ask("reading everything at ALL", SURVEY_MAX, move |rt| {
        survey::read_at_all(rt, first, keys, scenario)
    })??;
    // Read repairs that no client waited for.
    run.nodes.world.run_for(Duration::from_secs(3));
    phases::read_at_quorum(run)?;
    let (shared, scenario) = (run.clients.shared.clone(), run.nodes.scenario.clone());
    let addresses = run.nodes.staying_addresses();
    run.nodes.ask("reading everything at SERIAL", SURVEY_MAX, move |rt| {
        survey::read_at_serial(rt, addresses, scenario, shared)
    })?
}

/// Checks, without requests, that nodes soon hold no more resources than in the beginning.
fn no_leaks(run: &mut Run) -> Result<(), String> {
    let mut last = Ok(());
    for attempt in 0..LEAK_TRIES {
        // Not always at the same moment of what nodes do by themselves, such as repairs by schedule.
        run.nodes.world.run_for(QUIET + UNEVEN * attempt);
        last = run.nodes.staying().into_iter().try_for_each(|number| {
            // A newcomer has nothing to be compared with.
            let is_resharded = run.nodes.members.get(number).is_some_and(|m| m.is_resharded);
            let Some(before) = run.evidence.holdings.get(number).filter(|_| !is_resharded) else {
                return Ok(());
            };
            let shards = |n: usize| run.nodes.members.get(n).map_or(0, |m| u64::from(m.shards()));
            let others = run.nodes.staying().into_iter().filter(|n| *n != number);
            let links = shards(number) * others.map(shards).sum::<u64>() * LINK_CLASSES;
            let before = before.clone().with_links(links);
            leaks::none(&before, &run.nodes.holdings_of(number))
                .map_err(|what| format!("{} leaks: {what}", name(number)))
        });
        if last.is_ok() {
            break;
        }
    }
    last
}
