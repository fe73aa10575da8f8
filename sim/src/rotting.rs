//! Files that rot for good: the node finds them, salvages their readable data, and a full repair
//! restores the rest.

use std::time::Duration;

use admin::model::{CompactionCommand, DamagedReport, VerifyRequest};
use admin::{AdminReply, AdminRequest, UpkeepReply, UpkeepRequest};

use crate::by_itself;
use crate::nodes::{Nodes, name};
use crate::run::Run;

/// Longest time until what can be read of damaged files is in others, and until a repair has let them go.
const HEALED_MAX: Duration = Duration::from_secs(300);
/// Delay from the copies to the earliest repair that counts: the product requires ten seconds.
pub const BEHIND_COPIES: Duration = Duration::from_secs(12);

/// Flips bits of a node's files of the workload for good, and orders the node to verify its files.
/// Returns the node, unless it has no file.
///
/// # Errors
/// The node does not find the damage, or does not copy the rest.
pub fn rot_files(run: &mut Run) -> Result<Option<usize>, String> {
    let staying: Vec<usize> = (0..run.nodes.members.len())
        .filter(|n| run.nodes.members.get(*n).is_some_and(|m| !m.has_left))
        .collect();
    let drawn = run.nodes.world.random_u64() as usize % staying.len().max(1);
    let Some(number) = staying.get(drawn).copied() else { return Ok(None) };
    let right = match run.nodes.mends_by_itself {
        true => Some(by_itself::make_right(run, number)?),
        false => None,
    };
    run.nodes.flush(number)?;
    // Let compactions remove their inputs: no check reads those files.
    run.nodes.world.run_for(Duration::from_secs(2));
    let bits = rot(&run.nodes, number);
    if bits.is_empty() {
        return Ok(None);
    }
    for _ in &bits {
        run.nodes.bump("file rotten for good");
    }
    verify_files(run, number)?;
    if damaged(run, number)?.is_empty() {
        return Err(format!("{} does not find what rotted: {bits:?}", name(number)));
    }
    wait_for_copies(run, number)?;
    match right {
        Some(right) => by_itself::mend_by_itself(run, number, &right)?,
        None => run.nodes.world.run_for(BEHIND_COPIES),
    }
    Ok(Some(number))
}

/// A node verifies its files of the workload, so that damage is known that no read has met.
///
/// # Errors
/// That it does not answer.
pub fn verify_files(run: &mut Run, number: usize) -> Result<(), String> {
    for shard in run.nodes.shards_of(number) {
        let verify = CompactionCommand::Verify {
            keyspaces: vec!["ks".to_owned()],
            tables: Vec::new(),
            how: VerifyRequest::default(),
        };
        // The answer names corrupt files.
        let verify = AdminRequest::Upkeep(UpkeepRequest::Compaction(verify));
        run.nodes.admin_at(number, shard, verify)?;
    }
    Ok(())
}

/// Checks, after a repair of everything, that no file is corrupt any more.
///
/// # Errors
/// The file that still is.
pub fn let_go_of_damaged(run: &mut Run, number: usize) -> Result<(), String> {
    wait_for_damaged(run, number, HEALED_MAX, "keeps after a repair", |_| false)
}

/// Waits until the readable data of all corrupt files of a node is in other files.
///
/// # Errors
/// The file whose data is not.
pub fn wait_for_copies(run: &mut Run, number: usize) -> Result<(), String> {
    let lacks = "has no copies of what can be read of";
    wait_for_damaged(run, number, HEALED_MAX, lacks, |file| file.salvaged)
}

/// Waits until all damaged files of a node are as they should be, or gone; for so long at most.
///
/// # Errors
/// Which one is not.
pub fn wait_for_damaged(
    run: &mut Run,
    number: usize,
    most: Duration,
    what: &str,
    is_right: impl Fn(&DamagedReport) -> bool,
) -> Result<(), String> {
    let limit = run.nodes.world.now() + most;
    loop {
        let damaged = damaged(run, number)?;
        let Some(wrong) = damaged.iter().find(|file| !is_right(file)) else { return Ok(()) };
        if run.nodes.world.now() > limit {
            return Err(format!("{} {what} {wrong:?}", name(number)));
        }
        run.nodes.world.run_for(Duration::from_secs(1));
    }
}

/// Returns the files that a node reports as damaged.
///
/// # Errors
/// That it does not answer.
pub fn damaged(run: &mut Run, number: usize) -> Result<Vec<DamagedReport>, String> {
    let mut all = Vec::new();
    for shard in run.nodes.shards_of(number) {
        let asked = AdminRequest::Upkeep(UpkeepRequest::Damaged);
        match run.nodes.admin_at(number, shard, asked)? {
            AdminReply::Upkeep(UpkeepReply::Damaged(files)) => all.extend(files),
            other => return Err(format!("damaged files of {}: {other:?}", name(number))),
        }
    }
    Ok(all)
}

/// Flips bits of data files of the workload's tables; which.
pub fn rot(nodes: &Nodes, node: usize) -> Vec<(String, u64)> {
    let disk = nodes.world.disk(&name(node));
    let of_data = |path: &String| path.contains("/ks/") && path.ends_with("-Data.db");
    let files: Vec<String> = disk.list().into_iter().filter(of_data).collect();
    let mut bits = Vec::new();
    for path in files {
        let bytes = disk.read(&path).map_or(0, |content| content.len() as u64);
        let bit = nodes.world.random_u64() % (8 * bytes).max(1);
        if nodes.world.random_u64().is_multiple_of(2) && disk.flip_bit(&path, bit) {
            bits.push((path, bit));
        }
    }
    bits
}
