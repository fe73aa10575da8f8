//! Aborts by an administrator: leaving, taking another token, joining, the removal of a dead node,
//! a rebuild.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use admin::model::ClusterCommand;
use admin::{AdminReply, AdminRequest};
use rt::ShardId;

use super::{finish_move, finish_operations, is_out};
use crate::nodes::{Reply, name};
use crate::run::{Movement, Pending, Run};

/// Time for an aborted operation to end.
const AFTER_GIVING_UP: Duration = Duration::from_secs(60);

/// Abort of the removal of a dead host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalAbort {
    /// The dead host.
    pub host_id: String,
    /// The order names the host: it is sent to another node than the one that carries the removal
    /// out.
    pub names_host: bool,
}

/// Aborts an operation of a node: leaving, taking another token, joining.
pub fn give_up(run: &mut Run, number: usize) {
    let of_node = |pending: &Pending| match pending {
        Pending::Decommission(n) if *n == number => Some(Movement::Leaving),
        Pending::Move(n) if *n == number => Some(Movement::Moving),
        _ => None,
    };
    let found =
        run.operations.pending.iter().enumerate().find_map(|(at, p)| Some((at, of_node(p)?)));
    let is_newcomer = run.nodes.members.get(number).is_some_and(|m| m.is_newcomer && !m.has_left);
    let (what, at, command) = match found {
        Some((at, what)) => {
            run.operations.pending.remove(at);
            (what, number, ClusterCommand::AbortMovement {})
        }
        None if is_newcomer => {
            let node = run.nodes.world.ip(&name(number)).to_string();
            (Movement::Joining, 0, ClusterCommand::AbortBootstrap { node })
        }
        None => return,
    };
    let reply = order_to_give_up(run, at, command);
    run.operations.pending.push(Pending::GivenUp(number, what, reply));
}

/// Checks that an aborted operation had no effect, if the node confirmed the abort; else completes
/// it as if it had not been aborted.
pub fn finish_given_up(
    run: &mut Run,
    number: usize,
    what: Movement,
    reply: &Reply,
) -> Result<(), String> {
    run.nodes.world.run_for(AFTER_GIVING_UP);
    let is_given_up = matches!(*reply.borrow(), Some(AdminReply::Done));
    if is_given_up {
        run.nodes.bump(match what {
            Movement::Leaving => "decommission given up",
            Movement::Moving => "move given up",
            Movement::Joining => "joining given up",
        });
    }
    let member = run.nodes.members.get(number);
    let is_alive = member.is_some_and(|m| run.nodes.world.is_alive(&m.life));
    let is_newcomer = member.is_some_and(|m| m.is_newcomer);
    match what {
        Movement::Joining if is_given_up && is_alive && is_newcomer => {
            Err(format!("{} goes on although its joining was given up", name(number)))
        }
        Movement::Joining => {
            if !is_alive {
                // An administrator does the same: the disk is emptied first.
                run.nodes.ended(number);
                run.nodes.wipe(number);
                run.nodes.restart(number);
            }
            if let Some(member) = run.nodes.members.get_mut(number) {
                member.may_end = false;
            }
            Ok(())
        }
        Movement::Leaving if is_given_up && is_out(run, number) => {
            Err(format!("{} left although its decommission was given up", name(number)))
        }
        Movement::Leaving if is_given_up => {
            if let Some(member) = run.nodes.members.get_mut(number) {
                member.may_end = false;
            }
            finish_move(run, number)
        }
        Movement::Leaving => {
            run.operations.pending.push(Pending::Decommission(number));
            finish_operations(run)
        }
        Movement::Moving => finish_move(run, number),
    }
}

fn order_to_give_up(run: &mut Run, at: usize, command: ClusterCommand) -> Reply {
    match run.nodes.sabotage.no_aborts {
        true => Rc::new(RefCell::new(Some(AdminReply::Done))),
        false => run.nodes.admin(at, ShardId(0), AdminRequest::Command(command)),
    }
}

/// Has a node take out another one that is dead for good; without waiting.
pub fn order_removal(run: &mut Run, at: usize, host_id: &str) {
    let command = ClusterCommand::RemoveNode { host_id: host_id.to_owned() };
    let _ = run.nodes.admin(at, ShardId(0), AdminRequest::Command(command));
}

/// Aborts the removal, at the node that carries it out, or at another one by naming the host.
pub fn give_up_removal(run: &mut Run, at: usize, by: RemovalAbort) {
    let RemovalAbort { host_id, names_host } = by;
    let host = names_host.then(|| host_id.clone());
    let reply = order_to_give_up(run, at, ClusterCommand::AbortRemoval { host_id: host });
    // Before the order that removes the node in the end.
    run.operations.pending.insert(0, Pending::RemovalGivenUp(host_id, reply));
}

/// Aborts the rebuild of a node; received data stays.
pub fn give_up_rebuild(run: &mut Run, number: usize) {
    let command = AdminRequest::Command(ClusterCommand::AbortRebuild {});
    let _ = run.nodes.admin(number, ShardId(0), command);
}

/// Checks that an aborted removal, if the node confirmed the abort, had no effect: the node is
/// still a member.
///
/// # Errors
/// It was removed.
pub fn finish_removal_given_up(run: &mut Run, host_id: &str, reply: &Reply) -> Result<(), String> {
    run.nodes.world.run_for(AFTER_GIVING_UP);
    if !matches!(*reply.borrow(), Some(AdminReply::Done)) {
        return Ok(());
    }
    run.nodes.bump("removal given up");
    let AdminReply::Node(node) = run.nodes.admin_now(0, AdminRequest::Node)? else { return Ok(()) };
    match node.nodes.iter().any(|member| member.host_id == host_id) {
        true => Ok(()),
        false => Err(format!("{host_id} was taken out although its removal was given up")),
    }
}
