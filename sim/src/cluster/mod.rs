//! Runs a [`Scenario`]: whole nodes in one simulated world, clients that write and read while things
//! break (safety), then everything healed (liveness), then what the checkers want to see.

mod found;
mod indexed;
mod verdict;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cql_wire::Consistency;
use rt::sim::SimNode;

use crate::datacenters;
use crate::encrypted;
use crate::folded;
use crate::inverted;
use crate::lwt;
use crate::nemesis::Nemesis;
use crate::nodes::{Member, name};
use crate::operator;
use crate::phases::SURVEY_MAX;
use crate::report::Report;
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::schedule;
use crate::survey;
use crate::workload;

/// Longest time until a node of an undisturbed cluster serves clients.
const START_MAX: Duration = Duration::from_secs(180);
/// Time without requests before resources of the nodes are compared, and the interval of retries.
const QUIET: Duration = Duration::from_secs(10);

/// A phase that only some scenarios have, between healing and the verdict.
struct Phase {
    /// Returns true if a scenario has it.
    wanted: fn(&Scenario) -> bool,
    /// Runs it.
    run: fn(&mut Run) -> Result<(), String>,
}

/// The phases in their order: one row each.
const PHASES: [Phase; 4] = [
    Phase { wanted: |s| s.encryption, run: encrypted::await_keys },
    Phase { wanted: |s| s.new_datacenter, run: datacenters::use_new_datacenter },
    Phase { wanted: |s| s.auto_repair, run: schedule::await_schedule },
    Phase { wanted: |s| s.auto_repair, run: schedule::repair_incrementally },
];

/// Runs a scenario from a seed.
///
/// # Errors
/// A violation that a checker found, or a step that did not complete in time.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Report, String> {
    run_with(scenario, seed, Sabotage::default())
}

/// Runs a scenario and returns what its clients saw of conditional writes.
///
/// # Errors
/// See [`run`].
pub fn transactions(scenario: &Scenario, seed: u64) -> Result<lwt::Transactions, String> {
    let run = carry_out(scenario, seed, Sabotage::default())?.0;
    Ok(run.clients.shared.borrow().transactions.clone())
}

fn run_with(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Result<Report, String> {
    let (run, faults) = carry_out(scenario, seed, sabotage)?;
    if sabotage.kept_world {
        Box::leak(Box::new(run.nodes.world.clone()));
    }
    Ok(report(run, faults))
}

type Faults = BTreeMap<&'static str, u64>;

fn carry_out(scenario: &Scenario, seed: u64, sabotage: Sabotage) -> Result<(Run, Faults), String> {
    let mut run = Run::new(scenario, seed, sabotage);
    found::found(&mut run)?;
    let faults = safety(&mut run)?;
    liveness(&mut run)?;
    for phase in PHASES.iter().filter(|phase| (phase.wanted)(scenario)) {
        (phase.run)(&mut run)?;
    }
    verdict::verdict(&mut run)?;
    Ok((run, faults))
}

/// Clients ask while the nemesis breaks things.
fn safety(run: &mut Run) -> Result<BTreeMap<&'static str, u64>, String> {
    let (scenario, addresses) = (run.nodes.scenario.clone(), run.nodes.addresses());
    let clients = (scenario.clients + scenario.inverted + scenario.folding) as usize;
    run.clients.progress.begin(scenario.operations, clients + indexed::clients(&scenario));
    indexed::start_clients(run, &addresses);
    for number in 0..scenario.folding {
        let (to, progress) = (addresses.clone(), run.clients.progress.clone());
        let folded = run.clients.folded.clone();
        let name = format!("f{number}");
        run.nodes.world.client(&name, |rt| folded::run(rt, to, progress, folded));
    }
    for partition in 0..scenario.inverted {
        let level = match run.nodes.sabotage.weak_levels {
            true => Consistency::One,
            false => Consistency::Quorum,
        };
        let to = inverted::Target { addresses: addresses.clone(), level };
        let (progress, state) = (run.clients.progress.clone(), run.clients.inverted.clone());
        let name = format!("i{partition}");
        run.nodes.world.client(&name, |rt| inverted::run(rt, partition, to, progress, state));
    }
    for number in 0..scenario.clients {
        let shared = run.clients.shared.clone();
        let (addresses, scenario) = (addresses.clone(), scenario.clone());
        let (sabotage, progress) = (run.nodes.sabotage, run.clients.progress.clone());
        let plan = workload::Plan { number, addresses, scenario, sabotage, progress };
        run.nodes.world.client(&format!("c{number}"), |rt| workload::run(rt, plan, shared));
    }
    let mut nemesis = Nemesis::new(run);
    nemesis.run(run)?;
    run.clients.progress.stop();
    let progress = run.clients.progress.clone();
    let ended = run.nodes.world.run_until(|| progress.is_over(), SURVEY_MAX);
    if !run.nodes.sabotage.unhealed {
        nemesis.heal(run);
    }
    ended.map_err(|stuck| format!("the clients do not end: {stuck}"))?;
    run.clients.asked = run.clients.shared.borrow().history.events.len();
    run.nodes.alive()?;
    Ok(nemesis.counts)
}

/// Every node answers QUORUM writes and reads soon.
fn liveness(run: &mut Run) -> Result<(), String> {
    operator::finish_operations(run)?;
    for number in run.nodes.staying() {
        let name = name(number);
        let (address, others) = (run.nodes.address(&name), run.nodes.staying().len() - 1);
        let what = format!("joining of {name}");
        run.nodes.ask(&what, START_MAX, move |rt| survey::serves(rt, address, others))?;
    }
    let done: Rc<RefCell<Vec<Option<String>>>> = Rc::default();
    let limit = run.nodes.scenario.liveness;
    for (number, member) in (0i32..).zip(run.nodes.staying()) {
        let address = run.nodes.address(&name(member));
        // Why it does not answer yet; `None` when it does.
        done.borrow_mut().push(Some("not asked yet".to_owned()));
        let state = done.clone();
        let tell = move |why: Option<String>| {
            if let Some(slot) = state.borrow_mut().get_mut(number as usize) {
                *slot = why;
            }
        };
        let name = run.nodes.new_name();
        run.nodes.world.client(&name, |rt| survey::answers_quorum(rt, address, number, tell));
    }
    let all = || done.borrow().iter().all(Option::is_none);
    let result = run.nodes.world.run_until(all, limit);
    run.nodes.alive()?;
    result.map_err(|_| {
        let done = done.borrow();
        let members = run.nodes.staying().into_iter().filter_map(|n| run.nodes.members.get(n));
        let why: Vec<String> =
            members.zip(done.iter()).filter_map(|(member, state)| why(member, state)).collect();
        format!("healed for {limit:?}, but {}", why.join("; "))
    })
}

fn report(mut run: Run, faults: BTreeMap<&'static str, u64>) -> Report {
    let lives: Vec<SimNode> = run.nodes.members.iter().map(|m| m.life.clone()).collect();
    for life in lives {
        run.nodes.probes.add_node(&life.telemetry());
    }
    let shared = run.clients.shared.borrow();
    let (acknowledged, refused, unknown) = shared.history.counts();
    run.nodes.probes.bump("several nodes moved at once", run.operations.together.get());
    run.nodes.probes.bump("client refused", refused as u64);
    run.nodes.probes.bump("client left in doubt", unknown as u64);
    Report {
        trace: run.nodes.world.trace_hash(),
        checkpoints: run.nodes.world.trace_checkpoints(),
        operations: run.clients.asked,
        acknowledged,
        faults,
        probes: run.nodes.probes.clone(),
    }
}

fn why(member: &Member, state: &Option<String>) -> Option<String> {
    state.as_ref().map(|why| format!("{} does not answer QUORUM requests: {why}", member.name))
}

#[cfg(test)]
#[path = "../cluster_tests.rs"]
mod tests;
