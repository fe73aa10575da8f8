//! Actions of an administrator on a running cluster: repair, decommission, removal, replacement of
//! a dead node, restarts one after the other, two nodes that swap their addresses.

pub mod giving_up;

use std::time::Duration;

use admin::model::{ClusterCommand, RepairCommand, RepairOrder, RepairReport};
use admin::{AdminReply, AdminRequest};
use rt::ShardId;
use stdx::Instant;

use crate::client::{Answer, Client};
use crate::nodes::{Arrival, OPERATION_MAX, name};
use crate::run::{Pending, Run};
use crate::survey;

/// Longest time of an orderly stop before the node is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Time for nodes to report their epochs.
const EPOCH_SAID: Duration = Duration::from_millis(400);
/// Interval and number of the polls for moving nodes.
const MOVEMENT_LOOK: Duration = Duration::from_millis(50);
const MOVEMENT_LOOKS: usize = 400;
/// How often an operation is ordered again when it failed although everything is healed.
const TRIES: u32 = 12;

/// Starts the nodes that join.
pub fn join(run: &mut Run) {
    for _ in 0..run.nodes.scenario.joining {
        run.nodes.add_member(Arrival::Joining);
    }
    if run.nodes.scenario.joining > 1 {
        watch_movements(run);
    }
}

/// Orders a node to leave; this continues during other faults.
pub fn begin_decommission(run: &mut Run, number: usize) {
    let command = ClusterCommand::Decommission { force: false };
    let _ = run.nodes.admin(number, ShardId(0), AdminRequest::Command(command));
    run.operations.pending.push(Pending::Decommission(number));
    if let Some(member) = run.nodes.members.get_mut(number) {
        member.may_end = true;
    }
}

/// A node is dead for good; it is taken out when everything else is healed.
pub fn begin_removal(run: &mut Run, number: usize) -> bool {
    let address = run.nodes.address(&name(number));
    let known = run
        .nodes
        .ask("the host id", OPERATION_MAX, move |rt| survey::host_id(rt, address))
        .unwrap_or(None);
    let Some(host_id) = known else { return false };
    retire(run, number);
    run.operations.pending.push(Pending::Remove(host_id));
    true
}

/// Orders a node to take another token; false: it has several.
pub fn begin_move(run: &mut Run, number: usize) -> bool {
    if run.nodes.members.get(number).is_none_or(|m| m.tokens() != 1) {
        return false;
    }
    let token = (run.nodes.world.random_u64() as i64).to_string();
    let command = ClusterCommand::Move { token };
    let _ = run.nodes.admin(number, ShardId(0), AdminRequest::Command(command));
    run.operations.pending.push(Pending::Move(number));
    true
}

/// Gives the keyspace another number of replicas through a node; without waiting.
pub fn change_replicas(run: &mut Run, number: usize, replicas: u64) {
    let (address, caller) = (run.nodes.address(&name(number)), run.nodes.new_name());
    let text = alter_text(run, replicas);
    run.operations.has_altered = true;
    run.nodes.world.client(&caller, |rt| async move {
        if let Ok(mut client) = Client::connect(&rt, address).await {
            // Refused while it is handed over, or in doubt: the next one may do it.
            let _ = client.query(&text).await;
        }
    });
}

fn alter_text(run: &Run, replicas: u64) -> String {
    let replication = run.nodes.scenario.replicated(replicas);
    format!("ALTER KEYSPACE ks WITH replication = {replication}")
}

/// The keyspace has as many replicas as in the beginning.
fn restore_keyspace(run: &mut Run) -> Result<(), String> {
    if !std::mem::take(&mut run.operations.has_altered) {
        return Ok(());
    }
    let (address, text) =
        (run.nodes.address(&name(0)), alter_text(run, run.nodes.scenario.replication));
    let mut last = None;
    for _ in 0..TRIES {
        let text = text.clone();
        let asked = run.nodes.ask("ALTER KEYSPACE", OPERATION_MAX, move |rt| async move {
            let mut client = survey::connect(&rt, address).await;
            client.set_answer_timeout(OPERATION_MAX);
            client.query(&text).await
        })?;
        if asked == Ok(Answer::Done) {
            run.nodes.bump("replicas of a keyspace changed");
            return Ok(());
        }
        last = Some(asked);
        run.nodes.world.run_for(Duration::from_secs(30));
    }
    Err(format!("{text} is not done although everything is healed: {last:?}"))
}

/// Records epoch and schema of each node that reports them now.
pub fn note_epochs(run: &mut Run) {
    if !run.nodes.scenario.changes_schema() {
        return;
    }
    let mut replies = Vec::new();
    for number in 0..run.nodes.members.len() {
        let member = run.nodes.members.get(number);
        if member.is_some_and(|m| m.is_up && run.nodes.world.is_alive(&m.life)) {
            replies.push((number, run.nodes.admin(number, ShardId(0), AdminRequest::Node)));
        }
    }
    run.nodes.world.run_for(EPOCH_SAID);
    for (number, reply) in replies {
        if let Some(AdminReply::Node(node)) = reply.borrow_mut().take() {
            run.evidence.epochs.push((number, node.epoch, node.schema_version));
        }
    }
}

/// Polls for a while, often, for several nodes that move at once.
pub fn watch_movements(run: &mut Run) {
    let admins: Vec<_> = run.nodes.members.iter().map(|m| m.admin.clone()).collect();
    let (together, caller) = (run.operations.together.clone(), run.nodes.new_name());
    run.nodes.world.client(&caller, |rt| async move {
        for admin in admins.iter().cycle().take(MOVEMENT_LOOKS) {
            rt.sleep(MOVEMENT_LOOK).await;
            let asked = admin.call(&rt, ShardId(0), AdminRequest::Node);
            let answer = rt.timeout(rt.now() + MOVEMENT_LOOK, asked).await;
            if let Ok(Ok(AdminReply::Node(node))) = answer {
                let moving = node.nodes.iter().filter(|m| m.state != "Normal").count();
                together.set(together.get() + u64::from(moving > 1));
            }
        }
    });
}

/// Orders a node to copy its data from the others; without waiting.
pub fn begin_rebuild(run: &mut Run, number: usize) {
    let command = ClusterCommand::Rebuild {
        datacenter: None,
        keyspace: None,
        tokens: None,
        sources: None,
        exclude_local_dc: false,
    };
    let _ = run.nodes.admin(number, ShardId(0), AdminRequest::Command(command));
}

/// Waits until a node no longer moves.
pub fn finish_move(run: &mut Run, number: usize) -> Result<(), String> {
    let limit = run.nodes.world.now() + OPERATION_MAX;
    // It was ordered to leave too, and that came first.
    let may_leave = run.nodes.members.get(number).is_some_and(|m| m.may_end || m.has_left);
    loop {
        if may_leave && is_out(run, number) {
            return Ok(());
        }
        let answer = run.nodes.admin_now(number, AdminRequest::Cluster)?;
        match answer {
            AdminReply::Cluster(report) if report.operation_mode == "NORMAL" => return Ok(()),
            AdminReply::Cluster(report)
                if may_leave && report.operation_mode == "DECOMMISSIONED" =>
            {
                return Ok(());
            }
            other if run.nodes.world.now() > limit => {
                return Err(format!("{} does not end its move: {other:?}", name(number)));
            }
            _ => run.nodes.world.run_for(Duration::from_secs(2)),
        }
    }
}

/// Ends a node for good.
pub fn retire(run: &mut Run, number: usize) {
    let Some(member) = run.nodes.members.get_mut(number) else { return };
    member.has_left = true;
    let life = member.life.clone();
    if member.is_up {
        run.nodes.world.kill(&life);
        run.nodes.ended(number);
    }
}

/// Completes the ordered operations.
///
/// # Errors
/// An operation that does not end although everything is healed.
pub fn finish_operations(run: &mut Run) -> Result<(), String> {
    restore_keyspace(run)?;
    for pending in std::mem::take(&mut run.operations.pending) {
        match pending {
            Pending::Decommission(number) => {
                // One that had left before it was killed does not start again.
                if !is_out(run, number) {
                    let command = ClusterCommand::Decommission { force: false };
                    order_until_done(run, number, &command)?;
                }
                retire(run, number);
            }
            Pending::Remove(host_id) => {
                order_until_done(run, 0, &ClusterCommand::RemoveNode { host_id })?;
            }
            Pending::Move(number) => finish_move(run, number)?,
            Pending::GivenUp(number, what, reply) => {
                giving_up::finish_given_up(run, number, what, &reply)?;
            }
            Pending::RemovalGivenUp(host_id, reply) => {
                giving_up::finish_removal_given_up(run, &host_id, &reply)?;
            }
        }
    }
    Ok(())
}

/// Orders a node to do something until it is done.
fn order_until_done(run: &mut Run, at: usize, command: &ClusterCommand) -> Result<(), String> {
    let leaves = matches!(command, ClusterCommand::Decommission { .. });
    let mut last = String::new();
    for _ in 0..TRIES {
        let answer = run.nodes.admin_now(at, AdminRequest::Command(command.clone()));
        if answer.is_err() && leaves && is_out(run, at) {
            // It had left before it was killed, and noticed while it was asked.
            return Ok(());
        }
        match answer? {
            AdminReply::Done => return Ok(()),
            // An order before this one was carried out meanwhile.
            AdminReply::Failed(error) if is_over(&error.to_string()) => return Ok(()),
            other => last = format!("{other:?}"),
        }
        run.nodes.world.run_for(Duration::from_secs(30));
    }
    let mut modes = Vec::new();
    for number in 0..run.nodes.members.len() {
        if run.nodes.members.get(number).is_some_and(|m| run.nodes.world.is_alive(&m.life))
            && let Ok(AdminReply::Cluster(report)) =
                run.nodes.admin_now(number, AdminRequest::Cluster)
        {
            modes.push(format!("{} is {}", name(number), report.operation_mode));
        }
    }
    Err(format!("{command:?} fails although everything is healed: {last} ({})", modes.join(", ")))
}

/// Returns true if a node did not start because it is no longer a member.
pub fn is_out(run: &Run, number: usize) -> bool {
    run.nodes.members.get(number).is_some_and(|member| {
        !run.nodes.world.is_alive(&member.life)
            && member.ending().contains("no member of the cluster")
    })
}

/// Full repair of every node, one after the other; then a look whether any node would still
/// repair something.
///
/// # Errors
/// Which one failed, or found something after the repair.
pub fn repair_all(run: &mut Run) -> Result<(), String> {
    for preview in [false, true] {
        for number in 0..run.nodes.members.len() {
            if run.nodes.members.get(number).is_none_or(|m| m.has_left) {
                continue;
            }
            let order = RepairOrder { preview, ..of_keyspace() };
            let report = repair_one(run, number, order)?;
            if let Some(report) = report.filter(|r| preview && r.differing > 0) {
                return Err(format!(
                    "replicas differ after a full repair, seen by {}: {report:?}",
                    name(number)
                ));
            }
        }
    }
    run.nodes.bump("repair");
    Ok(())
}

/// Orders a repair without waiting.
pub fn order_repair(run: &mut Run, number: usize, order: RepairOrder) {
    let order = AdminRequest::Repair(RepairCommand::Start(order));
    let _ = run.nodes.admin(number, ShardId(0), order);
}

/// A repair through one node; its report, if there was anything to repair.
///
/// # Errors
/// That it failed or does not end.
pub fn repair_one(
    run: &mut Run,
    number: usize,
    order: RepairOrder,
) -> Result<Option<RepairReport>, String> {
    let order = AdminRequest::Repair(RepairCommand::Start(order));
    let id = match run.nodes.admin_now(number, order)? {
        AdminReply::Repairs(list) => list.first().map_or(0, |report| report.id),
        other => return Err(format!("repair of {}: {other:?}", name(number))),
    };
    let limit = run.nodes.world.now() + OPERATION_MAX;
    if id == 0 {
        return Ok(None);
    }
    loop {
        let status = AdminRequest::Repair(RepairCommand::Status { id, from: 0 });
        let AdminReply::Repairs(list) = run.nodes.admin_now(number, status)? else {
            return Err(format!("repair {id} of {} has no status", name(number)));
        };
        let Some(report) = list.into_iter().next() else { return Ok(None) };
        match report.state.as_str() {
            "SUCCESSFUL" => return Ok(Some(report)),
            "RUNNING" if run.nodes.world.now() < limit => {}
            _ => return Err(format!("repair of {}: {report:?}", name(number))),
        }
        run.nodes.world.run_for(Duration::from_millis(500));
    }
}

/// Flushes all tables of a node, then merges their files; without waiting.
pub fn begin_compaction(run: &mut Run, number: usize) {
    let shards = run.nodes.members.get(number).map_or(0, |m| m.shards());
    let all = admin::Selection::default;
    for shard in (0..shards).map(ShardId) {
        let _ = run.nodes.admin(number, shard, AdminRequest::Flush(all()));
        let _ = run.nodes.admin(number, shard, AdminRequest::Compact(all()));
    }
}

/// One node loses half of its files of the workload, as when they rot and are taken away.
///
/// # Errors
/// That it does not flush, or serve afterwards.
pub fn lose_files(run: &mut Run) -> Result<(), String> {
    let staying: Vec<usize> = (0..run.nodes.members.len())
        .filter(|n| run.nodes.members.get(*n).is_some_and(|m| !m.has_left))
        .collect();
    let drawn = run.nodes.world.random_u64() as usize % staying.len().max(1);
    let Some(number) = staying.get(drawn).copied() else { return Ok(()) };
    lose_files_of(run, number, staying.len() - 1)
}

/// Like [`lose_files`], for a given node, which then waits for that many others.
///
/// # Errors
/// See [`lose_files`].
pub fn lose_files_of(run: &mut Run, number: usize, others: usize) -> Result<(), String> {
    run.nodes.flush(number)?;
    let Some(life) = run.nodes.members.get(number).map(|m| m.life.clone()) else { return Ok(()) };
    run.nodes.world.kill(&life);
    run.nodes.ended(number);
    let disk = run.nodes.world.disk(&name(number));
    let files = disk.list();
    let is_data = |path: &&String| path.contains("/ks/") && path.ends_with("-Data.db");
    for data in files.iter().filter(is_data) {
        let Some(stem) = data.strip_suffix("Data.db") else { continue };
        if run.nodes.world.random_u64().is_multiple_of(2) {
            continue;
        }
        for path in files.iter().filter(|path| path.starts_with(stem)) {
            disk.remove(path);
        }
        run.nodes.bump("rotten file taken away");
    }
    run.nodes.restart(number);
    let address = run.nodes.address(&name(number));
    let what = format!("the start of {} without some files", name(number));
    run.nodes.ask(&what, OPERATION_MAX, move |rt| survey::serves(rt, address, others))
}

/// Stops and starts the nodes one after the other.
pub fn rolling_restart(run: &mut Run) {
    for number in 0..run.nodes.members.len() {
        let Some(member) = run.nodes.members.get(number) else { return };
        if !member.is_up || member.has_left {
            continue;
        }
        let life = member.life.clone();
        let from = run.nodes.world.now();
        life.request_stop();
        if run.nodes.world.run_until(|| !run.nodes.world.is_alive(&life), STOP_MAX).is_err() {
            run.nodes.bump("orderly stop took too long");
        }
        run.nodes.world.kill(&life);
        run.nodes.ended(number);
        run.nodes.restart(number);
        run.nodes.world.run_for(Duration::from_millis(1_500));
        note_trouble(run, number, from);
    }
}

/// Two nodes end and start again, each at the other's address.
pub fn swap_addresses(run: &mut Run, a: usize, b: usize) {
    let from = run.nodes.world.now();
    for number in [a, b] {
        let Some(member) = run.nodes.members.get(number) else { return };
        let life = member.life.clone();
        if member.is_up {
            run.nodes.world.kill(&life);
            run.nodes.ended(number);
        }
    }
    let (of_a, of_b) = (run.nodes.world.disk(&name(a)), run.nodes.world.disk(&name(b)));
    let contents = |disk: &rt::sim::DiskControl| -> Vec<(String, Vec<u8>)> {
        let files = disk.list();
        files.into_iter().filter_map(|path| Some((path.clone(), disk.read(&path)?))).collect()
    };
    let (files_a, files_b) = (contents(&of_a), contents(&of_b));
    for (disk, old, new) in [(&of_a, &files_a, &files_b), (&of_b, &files_b, &files_a)] {
        for (path, _) in old {
            disk.remove(path);
        }
        for (path, content) in new {
            disk.write(path, content);
        }
    }
    run.nodes.swap_options(a, b);
    for number in [a, b] {
        run.nodes.restart(number);
        note_trouble(run, number, from);
    }
}

/// A node may have been late since then, and for a while after now.
pub fn note_trouble(run: &mut Run, node: usize, from: Instant) {
    let until = run.nodes.world.now() + Duration::from_secs(5);
    run.trouble(node, from, until);
}

/// Returns true if an order fails because it is carried out already.
fn is_over(text: &str) -> bool {
    [
        "no member",
        "not a member",
        "already left",
        "is not in the cluster",
        "unknown host",
        "Host ID not found",
        "has left",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// A repair of the keyspace of the workload.
pub fn of_keyspace() -> RepairOrder {
    RepairOrder {
        keyspace: "ks".to_owned(),
        ignore_unreplicated: true,
        job_threads: 1,
        ..RepairOrder::default()
    }
}
