//! Damaged files that no operator repairs. The node itself must begin the repair that restores
//! their lost data, and then remove them, while a replica is dead at first and the node ends in the
//! middle.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::checks::{self, Rows};
use crate::nodes::{OPERATION_MAX, name};
use crate::operator;
use crate::phases;
use crate::rotting;
use crate::run::Run;
use crate::survey;

/// Longest time until a node reports that a repair waits for a dead replica. A repair that began
/// before the death was noticed fails first, and backs off.
const WAITS: Patience = Patience { most: Duration::from_secs(240), look: Duration::from_secs(1) };
/// Longest time until a repair runs, and the interval of polls.
const RUNS: Patience = Patience { most: Duration::from_secs(240), look: Duration::from_millis(50) };
/// Longest time until damaged files are removed. After three failures the node waits four minutes,
/// and other nodes treat a repair whose coordinator was killed as running for ten minutes.
const MENDED_MAX: Duration = Duration::from_secs(1_000);

/// How long something may take, and how often it is checked.
#[derive(Clone, Copy)]
struct Patience {
    most: Duration,
    look: Duration,
}

/// Rows that a node shows at ONE, by table.
pub type Right = BTreeMap<String, Rows>;

/// Makes every replica complete, so that the expected rows are known; returns the rows that a node
/// shows then.
///
/// # Errors
/// A repair fails, or the node does not answer.
pub fn make_right(run: &mut Run, number: usize) -> Result<Right, String> {
    run.nodes.world.run_for(run.nodes.scenario.settle);
    operator::repair_all(run)?;
    shown_by(run, number)
}

fn shown_by(run: &mut Run, number: usize) -> Result<Right, String> {
    let (address, scenario) = (run.nodes.address(&name(number)), run.nodes.scenario.clone());
    run.nodes
        .ask("what is right", OPERATION_MAX, move |rt| survey::look_at_one(rt, address, scenario))?
}

/// Waits until a node, whose damaged files have just been copied, has removed all of them, and
/// checks that all data is present. Perhaps another node is down at first; perhaps the node itself
/// ends in the middle.
///
/// # Errors
/// The node does not remove them, or data is missing.
pub fn mend_by_itself(run: &mut Run, number: usize, right: &Right) -> Result<(), String> {
    let draw = run.nodes.world.random_u64();
    let others: Vec<usize> = run.nodes.staying().into_iter().filter(|n| *n != number).collect();
    let other = others.get((draw / 4) as usize % others.len().max(1)).copied();
    let files = rotting::damaged(run, number)?.len();
    if let Some(other) = other.filter(|_| draw.is_multiple_of(2) && files > 0) {
        run.nodes.stop(other);
        if wait_for_words(run, number, "not alive", WAITS)? {
            run.nodes.bump("repair for a damaged file waited for a dead node");
        }
        run.nodes.restart(other);
        run.nodes.serve_again(other)?;
    }
    if (draw / 2).is_multiple_of(2) && wait_for_words(run, number, "of its ranges runs", RUNS)? {
        run.nodes.stop(number);
        run.nodes.bump("node ended while it repaired for a damaged file");
        run.nodes.restart(number);
        run.nodes.serve_again(number)?;
    }
    let keeps = "keeps, although it should repair what is lost of";
    rotting::wait_for_damaged(run, number, MENDED_MAX, keeps, |_| false)?;
    for _ in 0..files {
        run.nodes.bump("damaged file let go of without being asked");
    }
    // Before anything else repairs something.
    let shown = shown_by(run, number)?;
    let was = [("what was".to_owned(), right.clone()), (name(number), shown)];
    checks::converged(&was).map_err(|what| format!("let go of damaged files: {what}"))?;
    let (tables, _) = phases::look(run)?;
    checks::converged(&tables).map_err(|what| format!("let go of damaged files: {what}"))
}

/// Waits until a node reports this state of the repair for a corrupt file; false: it has no corrupt
/// file left.
fn wait_for_words(
    run: &mut Run,
    number: usize,
    words: &str,
    patience: Patience,
) -> Result<bool, String> {
    let limit = run.nodes.world.now() + patience.most;
    loop {
        let files = rotting::damaged(run, number)?;
        let says = |file: &admin::model::DamagedReport| {
            file.repair.as_ref().is_some_and(|repair| repair.contains(words))
        };
        if files.is_empty() || files.iter().any(says) {
            return Ok(!files.is_empty());
        }
        if run.nodes.world.now() > limit {
            let name = name(number);
            return Err(format!("{name} does not say \"{words}\" of damaged files: {files:?}"));
        }
        run.nodes.world.run_for(patience.look);
    }
}
