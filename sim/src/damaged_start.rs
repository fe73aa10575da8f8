//! A node that starts on files which cannot be opened: it must give no answers without their data,
//! and a full repair must restore the data and remove the files.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use conf::DiskFailurePolicy;

use crate::by_itself::{self, Right};
use crate::nodes::{OPERATION_MAX, name};
use crate::phases;
use crate::rotting::{self, BEHIND_COPIES};
use crate::run::Run;
use crate::survey::{self, Reads};

/// Damage to one component of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// A bit of it flips.
    Flip,
    /// Its end is gone.
    Cut,
    /// Nothing is in it.
    Empty,
    /// It is gone.
    Lose,
}

/// Returns true if this harm to a component counts as damage. Without its TOC.txt a file was never
/// complete: that is no damage but an interrupted write.
fn is_damage(component: &str, harm: Harm) -> bool {
    component != "TOC.txt" || harm != Harm::Lose
}

/// Damages components of a stopped node's files of the workload. The node starts nevertheless, with
/// `disk_failure_policy` `best_effort` or `ignore`. Returns the node, unless it has no file.
///
/// # Errors
/// The node does not start; an answer is incomplete or wrong; the node does not copy readable data.
pub fn start_on_damaged_files(run: &mut Run) -> Result<Option<usize>, String> {
    let staying = run.nodes.staying();
    let drawn = run.nodes.world.random_u64() as usize % staying.len().max(1);
    let Some(number) = staying.get(drawn).copied() else { return Ok(None) };
    let right = Rc::new(by_itself::make_right(run, number)?);
    run.nodes.flush(number)?;
    // Let compactions remove their inputs: no check reads those files.
    run.nodes.world.run_for(Duration::from_secs(2));
    run.nodes.stop(number);
    let harmed = harm_files(run, number);
    let draw = run.nodes.world.random_u64();
    let policy = match draw.is_multiple_of(2) {
        true => DiskFailurePolicy::BestEffort,
        false => DiskFailurePolicy::Ignore,
    };
    if let Some(member) = run.nodes.members.get_mut(number) {
        member.start_with_damaged_files(policy);
    }
    // The mark of the first start must be good for the second one.
    for _ in 0..1 + draw / 2 % 2 {
        run.nodes.stop(number);
        run.nodes.restart(number);
        run.nodes.serve_again(number)?;
        read_damaged(run, number, &right).map_err(|what| format!("{what} ({harmed:?})"))?;
    }
    for _ in &harmed {
        run.nodes.bump("file damaged before a start");
    }
    // Beside one damaged replica two others are enough.
    phases::read_at_quorum(run)?;
    // Otherwise the damage of an unread index is found after the repair.
    rotting::verify_files(run, number)?;
    rotting::wait_for_copies(run, number)?;
    read_damaged(run, number, &right).map_err(|what| format!("{what} ({harmed:?})"))?;
    match run.nodes.mends_by_itself {
        true => by_itself::mend_by_itself(run, number, &right)?,
        false => run.nodes.world.run_for(BEHIND_COPIES),
    }
    Ok(Some(number))
}

/// Checks that every read of it is correct, or fails.
fn read_damaged(run: &mut Run, number: usize, right: &Rc<Right>) -> Result<(), String> {
    let (address, scenario) = (run.nodes.address(&name(number)), run.nodes.scenario.clone());
    let right = right.clone();
    let reads: Reads = run.nodes.ask("reading damaged files", OPERATION_MAX, move |rt| {
        survey::right_or_failed(rt, address, scenario, right)
    })??;
    for (count, what) in [
        (reads.right, "node with damaged files answered right"),
        (reads.failed, "node with damaged files answered with an error"),
    ] {
        if count > 0 {
            run.nodes.bump(what);
        }
    }
    Ok(())
}

/// Damages about half of the files of a stopped node; returns the files and their damage.
fn harm_files(run: &mut Run, number: usize) -> Vec<(String, Harm)> {
    let disk = run.nodes.world.disk(&name(number));
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in disk.list() {
        let is_used = |part: &str| !path.contains(part);
        if path.contains("/ks/")
            && ["/snapshots/", "/backups/", "helenus-", "-Released."].into_iter().all(is_used)
            && let Some((stem, component)) = path.rsplit_once('-')
        {
            sets.entry(stem.to_owned()).or_default().push(component.to_owned());
        }
    }
    let mut harmed = Vec::new();
    for (stem, components) in sets {
        if run.nodes.world.random_u64().is_multiple_of(2) {
            continue;
        }
        if run.nodes.sabotage.unseen_damage {
            for component in &components {
                disk.remove(&format!("{stem}-{component}"));
            }
            continue;
        }
        // Seldom more than one.
        for _ in 0..1 + u64::from(run.nodes.world.random_u64().is_multiple_of(4)) {
            let drawn = run.nodes.world.random_u64() as usize % components.len().max(1);
            let Some(component) = components.get(drawn) else { continue };
            let harms = [Harm::Flip, Harm::Cut, Harm::Empty, Harm::Lose];
            let harm = harms[(run.nodes.world.random_u64() % 4) as usize];
            let path = format!("{stem}-{component}");
            let Some(bytes) = disk.read(&path).filter(|_| is_damage(component, harm)) else {
                continue;
            };
            let place = run.nodes.world.random_u64() % (bytes.len() as u64).max(1);
            match harm {
                Harm::Flip => {
                    disk.flip_bit(&path, 8 * place + run.nodes.world.random_u64() % 8);
                }
                Harm::Cut => {
                    disk.write(&path, bytes.get(..place as usize).unwrap_or(&[]));
                }
                Harm::Empty => disk.write(&path, &[]),
                Harm::Lose => disk.remove(&path),
            }
            harmed.push((path, harm));
        }
    }
    harmed
}
