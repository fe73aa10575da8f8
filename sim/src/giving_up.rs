//! An administrator who gives up what he has ordered: leaving, taking another token, joining, the removal
//! of a dead node, a rebuild.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use admin::model::ClusterCommand;
use admin::{AdminReply, AdminRequest};
use rt::ShardId;

use crate::cluster::Run;
use crate::nemesis::name;
use crate::operator::{Movement, Pending, Reply};

/// How long what was given up may take to end.
const AFTER_GIVING_UP: Duration = Duration::from_secs(60);

impl Run {
    /// Gives up what a node does: leaving, taking another token, joining.
    pub fn give_up(&mut self, number: usize) {
        let of_node = |pending: &Pending| match pending {
            Pending::Decommission(n) if *n == number => Some(Movement::Leaving),
            Pending::Move(n) if *n == number => Some(Movement::Moving),
            _ => None,
        };
        let found = self.pending.iter().enumerate().find_map(|(at, p)| Some((at, of_node(p)?)));
        let is_newcomer = self.members.get(number).is_some_and(|m| m.is_newcomer && !m.has_left);
        let (what, at, command) = match found {
            Some((at, what)) => {
                self.pending.remove(at);
                (what, number, ClusterCommand::AbortMovement {})
            }
            None if is_newcomer => {
                let node = self.world.ip(&name(number)).to_string();
                (Movement::Joining, 0, ClusterCommand::AbortBootstrap { node })
            }
            None => return,
        };
        let reply = self.order_to_give_up(at, command);
        self.pending.push(Pending::GivenUp(number, what, reply));
    }

    /// What was given up is not done, if the node said so; else it is ended as if nothing had been
    /// given up.
    pub fn finish_given_up(
        &mut self,
        number: usize,
        what: Movement,
        reply: &Reply,
    ) -> Result<(), String> {
        self.world.run_for(AFTER_GIVING_UP);
        let is_given_up = matches!(*reply.borrow(), Some(AdminReply::Done));
        if is_given_up {
            self.bump(match what {
                Movement::Leaving => "decommission given up",
                Movement::Moving => "move given up",
                Movement::Joining => "joining given up",
            });
        }
        let member = self.members.get(number);
        let is_alive = member.is_some_and(|m| self.world.is_alive(&m.life));
        let is_newcomer = member.is_some_and(|m| m.is_newcomer);
        match what {
            Movement::Joining if is_given_up && is_alive && is_newcomer => {
                Err(format!("{} goes on although its joining was given up", name(number)))
            }
            Movement::Joining => {
                if !is_alive {
                    // As an administrator does it: the disk is emptied first.
                    self.ended(number);
                    self.wipe(number);
                    self.restart(number);
                }
                if let Some(member) = self.members.get_mut(number) {
                    member.may_end = false;
                }
                Ok(())
            }
            Movement::Leaving if is_given_up && self.is_out(number) => {
                Err(format!("{} left although its decommission was given up", name(number)))
            }
            Movement::Leaving if is_given_up => {
                if let Some(member) = self.members.get_mut(number) {
                    member.may_end = false;
                }
                self.finish_move(number)
            }
            Movement::Leaving => {
                self.pending.push(Pending::Decommission(number));
                self.finish_operations()
            }
            Movement::Moving => self.finish_move(number),
        }
    }

    fn order_to_give_up(&mut self, at: usize, command: ClusterCommand) -> Reply {
        match self.sabotage.no_aborts {
            true => Rc::new(RefCell::new(Some(AdminReply::Done))),
            false => self.admin(at, ShardId(0), AdminRequest::Command(command)),
        }
    }

    /// Has a node take out another one that is dead for good; without waiting.
    pub fn order_removal(&mut self, at: usize, host_id: &str) {
        let command = ClusterCommand::RemoveNode { host_id: host_id.to_owned() };
        let _ = self.admin(at, ShardId(0), AdminRequest::Command(command));
    }

    /// Gives that up, at the node that carries it out, or at another one by the host that goes.
    pub fn give_up_removal(&mut self, at: usize, host_id: &str, by_host: bool) {
        let host = by_host.then(|| host_id.to_owned());
        let reply = self.order_to_give_up(at, ClusterCommand::AbortRemoval { host_id: host });
        // Before the order that takes it out in the end.
        self.pending.insert(0, Pending::RemovalGivenUp(host_id.to_owned(), reply));
    }

    /// Gives up what a node copies; what came stays.
    pub fn give_up_rebuild(&mut self, number: usize) {
        let command = AdminRequest::Command(ClusterCommand::AbortRebuild {});
        let _ = self.admin(number, ShardId(0), command);
    }

    /// A removal that was given up, if the node said so, is not done: who was to go is a member still.
    ///
    /// # Errors
    /// It was taken out.
    pub fn finish_removal_given_up(&mut self, host_id: &str, reply: &Reply) -> Result<(), String> {
        self.world.run_for(AFTER_GIVING_UP);
        if !matches!(*reply.borrow(), Some(AdminReply::Done)) {
            return Ok(());
        }
        self.bump("removal given up");
        let AdminReply::Node(node) = self.admin_now(0, AdminRequest::Node)? else { return Ok(()) };
        match node.nodes.iter().any(|member| member.host_id == host_id) {
            true => Ok(()),
            false => Err(format!("{host_id} was taken out although its removal was given up")),
        }
    }
}
