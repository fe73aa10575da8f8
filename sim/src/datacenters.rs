//! A datacenter that is added to a running cluster and, with some seeds, taken out again: nothing is
//! streamed unless the keyspaces ask for it.

use std::time::Duration;

use admin::model::ClusterCommand;
use admin::{AdminReply, AdminRequest};

use crate::checks::{self, Verdict};
use crate::nodes::{name, streamed};
use crate::operator;
use crate::phases;
use crate::run::Run;
use crate::survey;

/// Longest time of a change of the keyspace.
const ALTER_MAX: Duration = Duration::from_secs(120);
/// Time for data that is no longer replicated here to be removed, and for handovers to end.
const AFTER_ALTER: Duration = Duration::from_secs(40);

/// Checks that nodes outside the replica set received nothing: by name the amounts before and now.
fn nothing_came(what: &str, nodes: &[(String, u64, u64)]) -> Verdict {
    match nodes.iter().find(|(_, before, after)| before != after) {
        Some((node, before, after)) => Err(format!(
            "{what}: {node} got {} partitions and files that no keyspace asked for",
            after.saturating_sub(*before)
        )),
        None => Ok(()),
    }
}

/// Returns the partitions and files that a node received in all its lives.
fn streamed_of(run: &Run, number: usize) -> u64 {
    let member = run.nodes.members.get(number);
    member.map_or(0, |m| m.streamed + streamed(&m.life.telemetry()))
}

fn have_got(run: &Run, numbers: &[usize]) -> Vec<u64> {
    numbers.iter().map(|n| streamed_of(run, *n)).collect()
}

fn compared(run: &Run, numbers: &[usize], before: &[u64]) -> Vec<(String, u64, u64)> {
    let of = |(n, before): (&usize, &u64)| (name(*n), *before, streamed_of(run, *n));
    numbers.iter().zip(before).map(of).collect()
}

/// Gives the keyspace replicas in the datacenter of the newcomers, which copy them from the first
/// one; with every second seed they are removed again.
///
/// # Errors
/// Data was streamed without an order, is missing, or the operation does not end.
pub fn use_new_datacenter(run: &mut Run) -> Result<(), String> {
    let first = run.nodes.scenario.nodes as usize;
    let (old, new): (Vec<usize>, Vec<usize>) =
        (0..run.nodes.members.len()).partition(|number| *number < first);
    let nothing: Vec<u64> = new.iter().map(|_| 0).collect();
    nothing_came("a datacenter joined", &compared(run, &new, &nothing))?;
    // All replicas are equal before they are copied.
    run.nodes.world.run_for(run.nodes.scenario.settle);
    operator::repair_all(run)?;
    let (own, its) =
        (run.nodes.scenario.replication, run.nodes.scenario.replication.min(new.len() as u64));
    alter_keyspace(run, "ks", &format!("'dc1': {own}, 'dc2': {its}"))?;
    let skipped = run.nodes.sabotage.unbuilt.then_some(new.last()).flatten();
    for number in new.iter().filter(|number| Some(*number) != skipped) {
        let command = ClusterCommand::Rebuild {
            datacenter: Some("dc1".to_owned()),
            keyspace: Some("ks".to_owned()),
            tokens: None,
            sources: None,
            exclude_local_dc: false,
        };
        match run.nodes.admin_now(*number, AdminRequest::Command(command))? {
            AdminReply::Done => {}
            other => return Err(format!("rebuild of {}: {other:?}", name(*number))),
        }
    }
    if let Some(number) = skipped {
        // The keyspace's change has let it copy everything already.
        operator::lose_files_of(run, *number, run.nodes.members.len() - 1)?;
    }
    let (tables, _) = phases::look(run)?;
    checks::converged(&tables).map_err(|what| format!("after rebuild: {what}"))?;
    run.nodes.bump("datacenter added");
    if run.nodes.world.random_u64().is_multiple_of(2) {
        return Ok(());
    }
    // The repair history has replicas everywhere else, which would have to move.
    for keyspace in ["ks", "system_distributed"] {
        alter_keyspace(run, keyspace, &format!("'dc1': {own}"))?;
    }
    run.nodes.world.run_for(AFTER_ALTER);
    let before = have_got(run, &old);
    for number in new {
        let command = ClusterCommand::Decommission { force: false };
        match run.nodes.admin_now(number, AdminRequest::Command(command))? {
            AdminReply::Done => operator::retire(run, number),
            other => return Err(format!("decommission of {}: {other:?}", name(number))),
        }
    }
    nothing_came("a datacenter left", &compared(run, &old, &before))?;
    run.nodes.bump("datacenter removed");
    Ok(())
}

fn alter_keyspace(run: &mut Run, keyspace: &str, replication: &str) -> Result<(), String> {
    let address = run.nodes.address("n1");
    let text = format!(
        "ALTER KEYSPACE {keyspace} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', {replication}}}"
    );
    run.nodes.ask("ALTER KEYSPACE", ALTER_MAX, move |rt| async move {
        let mut client = survey::connect(&rt, address).await;
        client.set_answer_timeout(Duration::from_secs(60));
        survey::create_one(&mut client, &text).await
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_unasked_is_noticed() {
        let node = |before, after| ("n4".to_owned(), before, after);
        assert_eq!(nothing_came("x", &[node(0, 0), node(7, 7)]), Ok(()));
        let error = nothing_came("x", &[node(0, 0), node(7, 9)]).unwrap_err();
        assert!(error.contains("n4 got 2 partitions"), "{error}");
    }

    #[test]
    fn partitions_and_files_count() {
        let shard = telemetry::Shard::new();
        shard.counter("stream_received_partitions_total", "", &[]).add(2);
        shard.counter("stream_received_files_total", "", &[]).add(3);
        shard.counter("stream_received_bytes_total", "", &[]).add(100);
        assert_eq!(streamed(&shard.snapshot()), 5);
    }
}
