//! What an administrator does to a running cluster: repair, decommission, removal, replacement of a
//! dead node, restarts one after the other, two nodes that swap their addresses.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use admin::model::{ClusterCommand, RepairCommand, RepairOrder, RepairReport};
use admin::{AdminReply, AdminRequest};
use rt::ShardId;
use stdx::Instant;

use crate::checks::Trouble;
use crate::client::{Answer, Client};
use crate::cluster::Run;
use crate::nemesis::name;
use crate::schedule;
use crate::survey;

/// Longest time of one operation when everything is healed.
pub const OPERATION_MAX: Duration = Duration::from_secs(600);
/// Longest time of an orderly stop before the node is killed.
const STOP_MAX: Duration = Duration::from_secs(30);
/// How long nodes are given to say at which epoch they are.
const EPOCH_SAID: Duration = Duration::from_millis(400);
/// How often, and how many times, it is looked who moves.
const MOVEMENT_LOOK: Duration = Duration::from_millis(50);
const MOVEMENT_LOOKS: usize = 400;
/// How often an operation is ordered again when it failed although everything is healed.
const TRIES: u32 = 12;

/// Something ordered that may take until everything is healed.
#[derive(Clone, Debug)]
pub enum Pending {
    /// That node leaves.
    Decommission(usize),
    /// That node takes another token.
    Move(usize),
    /// That node is dead for good and is to be taken out.
    Remove(String),
    /// What one of the above is given up by, of a node that leaves, moves or joins.
    GivenUp(usize, Movement, Reply),
    /// What the removal of a dead node is given up by; it is removed in the end.
    RemovalGivenUp(String, Reply),
}

/// What can be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// A node leaves.
    Leaving,
    /// It takes another token.
    Moving,
    /// It joins.
    Joining,
}

/// The answer to an order, when it is there.
pub type Reply = Rc<RefCell<Option<AdminReply>>>;

impl Pending {
    /// Whether that node may end because of it.
    pub fn may_end(&self, number: usize) -> bool {
        match self {
            Pending::Decommission(n) => *n == number,
            Pending::GivenUp(n, what, _) => *n == number && *what != Movement::Moving,
            Pending::Move(_) | Pending::Remove(_) | Pending::RemovalGivenUp(..) => false,
        }
    }
}

impl Run {
    /// Asks a shard of a node.
    pub fn admin(&mut self, number: usize, shard: ShardId, request: AdminRequest) -> Reply {
        let reply = Reply::default();
        let Some(member) = self.members.get(number) else { return reply };
        let (out, admin) = (reply.clone(), member.admin.clone());
        let caller = self.new_name();
        self.world.client(&caller, |rt| async move {
            if let Ok(answer) = admin.call(&rt, shard, request).await {
                *out.borrow_mut() = Some(answer);
            }
        });
        reply
    }

    /// As [`Run::admin`] at shard 0, waiting for the answer.
    ///
    /// # Errors
    /// That it does not come.
    pub fn admin_now(
        &mut self,
        number: usize,
        request: AdminRequest,
    ) -> Result<AdminReply, String> {
        self.admin_at(number, ShardId(0), request)
    }

    /// As [`Run::admin_now`] at any shard.
    ///
    /// # Errors
    /// As there.
    pub fn admin_at(
        &mut self,
        number: usize,
        shard: ShardId,
        request: AdminRequest,
    ) -> Result<AdminReply, String> {
        let reply = self.admin(number, shard, request.clone());
        let done = self.world.run_until(|| reply.borrow().is_some(), OPERATION_MAX);
        let answer = reply.borrow_mut().take();
        match (done, answer) {
            (Ok(()), Some(answer)) => Ok(answer),
            _ => {
                let state = self.members.get(number).map_or_else(String::new, |member| match self
                    .world
                    .is_alive(&member.life)
                {
                    true => "it runs".to_owned(),
                    false => format!("it has ended: {}", member.ending()),
                });
                Err(format!("{request:?} at {} did not end: {state}", name(number)))
            }
        }
    }

    /// Orders a node to leave; it goes on while other things break.
    pub fn begin_decommission(&mut self, number: usize) {
        let command = ClusterCommand::Decommission { force: false };
        let _ = self.admin(number, ShardId(0), AdminRequest::Command(command));
        self.pending.push(Pending::Decommission(number));
        if let Some(member) = self.members.get_mut(number) {
            member.may_end = true;
        }
    }

    /// A node is dead for good; it is taken out when everything else is healed.
    pub fn begin_removal(&mut self, number: usize) -> bool {
        let address = self.address(&name(number));
        let known = self
            .ask("the host id", OPERATION_MAX, move |rt| survey::host_id(rt, address))
            .unwrap_or(None);
        let Some(host_id) = known else { return false };
        self.retire(number);
        self.pending.push(Pending::Remove(host_id));
        true
    }

    /// Orders a node to take another token; false: it has several.
    pub fn begin_move(&mut self, number: usize) -> bool {
        if self.members.get(number).is_none_or(|m| m.tokens() != 1) {
            return false;
        }
        let token = (self.world.random_u64() as i64).to_string();
        let command = ClusterCommand::Move { token };
        let _ = self.admin(number, ShardId(0), AdminRequest::Command(command));
        self.pending.push(Pending::Move(number));
        true
    }

    /// Gives the keyspace another number of replicas through a node; without waiting.
    pub fn change_replicas(&mut self, number: usize, replicas: u64) {
        let (address, caller) = (self.address(&name(number)), self.new_name());
        let text = self.alter_text(replicas);
        self.has_altered = true;
        self.world.client(&caller, |rt| async move {
            if let Ok(mut client) = Client::connect(&rt, address).await {
                // Refused while it is handed over, or in doubt: the next one may do it.
                let _ = client.query(&text).await;
            }
        });
    }

    fn alter_text(&self, replicas: u64) -> String {
        let replication = self.scenario.replicated(replicas);
        format!("ALTER KEYSPACE ks WITH replication = {replication}")
    }

    /// The keyspace has as many replicas as in the beginning.
    fn restore_keyspace(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.has_altered) {
            return Ok(());
        }
        let (address, text) = (self.address(&name(0)), self.alter_text(self.scenario.replication));
        let mut last = None;
        for _ in 0..TRIES {
            let text = text.clone();
            let asked = self.ask("ALTER KEYSPACE", OPERATION_MAX, move |rt| async move {
                let mut client = survey::connect(&rt, address).await;
                client.set_answer_timeout(OPERATION_MAX);
                client.query(&text).await
            })?;
            if asked == Ok(Answer::Done) {
                self.bump("replicas of a keyspace changed");
                return Ok(());
            }
            last = Some(asked);
            self.world.run_for(Duration::from_secs(30));
        }
        Err(format!("{text} is not done although everything is healed: {last:?}"))
    }

    /// Notes at which epoch with which schema each node is that says so now.
    pub fn note_epochs(&mut self) {
        if !self.scenario.changes_schema() {
            return;
        }
        let mut replies = Vec::new();
        for number in 0..self.members.len() {
            let member = self.members.get(number);
            if member.is_some_and(|m| m.is_up && self.world.is_alive(&m.life)) {
                replies.push((number, self.admin(number, ShardId(0), AdminRequest::Node)));
            }
        }
        self.world.run_for(EPOCH_SAID);
        for (number, reply) in replies {
            if let Some(AdminReply::Node(node)) = reply.borrow_mut().take() {
                self.epochs.push((number, node.epoch, node.schema_version));
            }
        }
    }

    /// Looks for a while, often, whether several nodes move at once.
    pub fn watch_movements(&mut self) {
        let admins: Vec<_> = self.members.iter().map(|m| m.admin.clone()).collect();
        let (together, caller) = (self.together.clone(), self.new_name());
        self.world.client(&caller, |rt| async move {
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

    /// Orders a node to copy what it owns from the others; without waiting.
    pub fn begin_rebuild(&mut self, number: usize) {
        let command = ClusterCommand::Rebuild {
            datacenter: None,
            keyspace: None,
            tokens: None,
            sources: None,
            exclude_local_dc: false,
        };
        let _ = self.admin(number, ShardId(0), AdminRequest::Command(command));
    }

    /// Waits until a node does not move any more.
    pub fn finish_move(&mut self, number: usize) -> Result<(), String> {
        let limit = self.world.now() + OPERATION_MAX;
        // It was ordered to leave too, and that came first.
        let may_leave = self.members.get(number).is_some_and(|m| m.may_end || m.has_left);
        loop {
            if may_leave && self.is_out(number) {
                return Ok(());
            }
            let answer = self.admin_now(number, AdminRequest::Cluster)?;
            match answer {
                AdminReply::Cluster(report) if report.operation_mode == "NORMAL" => return Ok(()),
                AdminReply::Cluster(report)
                    if may_leave && report.operation_mode == "DECOMMISSIONED" =>
                {
                    return Ok(());
                }
                other if self.world.now() > limit => {
                    return Err(format!("{} does not end its move: {other:?}", name(number)));
                }
                _ => self.world.run_for(Duration::from_secs(2)),
            }
        }
    }

    /// Ends a node for good.
    pub fn retire(&mut self, number: usize) {
        let Some(member) = self.members.get_mut(number) else { return };
        member.has_left = true;
        let life = member.life.clone();
        if member.is_up {
            self.world.kill(&life);
            self.ended(number);
        }
    }

    /// Carries out what was ordered and is not done.
    ///
    /// # Errors
    /// What does not end although everything is healed.
    pub fn finish_operations(&mut self) -> Result<(), String> {
        self.restore_keyspace()?;
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Decommission(number) = pending
                && self.is_out(number)
            {
                // It had left before it was killed; it does not start again.
                self.retire(number);
                continue;
            }
            if let Pending::Move(number) = pending {
                self.finish_move(number)?;
                continue;
            }
            if let Pending::GivenUp(number, what, reply) = &pending {
                self.finish_given_up(*number, *what, reply)?;
                continue;
            }
            if let Pending::RemovalGivenUp(host_id, reply) = &pending {
                self.finish_removal_given_up(host_id, reply)?;
                continue;
            }
            let (at, command) = match &pending {
                Pending::Move(_) | Pending::GivenUp(..) | Pending::RemovalGivenUp(..) => continue,
                Pending::Decommission(number) => {
                    (*number, ClusterCommand::Decommission { force: false })
                }
                Pending::Remove(host_id) => {
                    (0, ClusterCommand::RemoveNode { host_id: host_id.clone() })
                }
            };
            let mut last = String::new();
            let mut is_done = false;
            for _ in 0..TRIES {
                let answer = self.admin_now(at, AdminRequest::Command(command.clone()));
                if answer.is_err() && matches!(pending, Pending::Decommission(_)) && self.is_out(at)
                {
                    // It had left before it was killed, and noticed while it was asked.
                    is_done = true;
                    break;
                }
                match answer? {
                    AdminReply::Done => is_done = true,
                    // An order before this one was carried out meanwhile.
                    AdminReply::Failed(error) if is_over(&error.to_string()) => is_done = true,
                    other => last = format!("{other:?}"),
                }
                if is_done {
                    break;
                }
                self.world.run_for(Duration::from_secs(30));
            }
            if !is_done {
                let mut modes = Vec::new();
                for number in 0..self.members.len() {
                    if self.members.get(number).is_some_and(|m| self.world.is_alive(&m.life))
                        && let Ok(AdminReply::Cluster(report)) =
                            self.admin_now(number, AdminRequest::Cluster)
                    {
                        modes.push(format!("{} is {}", name(number), report.operation_mode));
                    }
                }
                return Err(format!(
                    "{command:?} fails although everything is healed: {last} ({})",
                    modes.join(", ")
                ));
            }
            if let Pending::Decommission(number) = pending {
                self.retire(number);
            }
        }
        Ok(())
    }

    /// Whether a node did not start because it is no member any more.
    pub fn is_out(&self, number: usize) -> bool {
        self.members.get(number).is_some_and(|member| {
            !self.world.is_alive(&member.life)
                && member.ending().contains("no member of the cluster")
        })
    }

    /// Full repair of every node, one after the other; then a look whether any node would still
    /// repair something.
    ///
    /// # Errors
    /// Which one failed, or found something after the repair.
    pub fn repair_all(&mut self) -> Result<(), String> {
        for preview in [false, true] {
            for number in 0..self.members.len() {
                if self.members.get(number).is_none_or(|m| m.has_left) {
                    continue;
                }
                let order = RepairOrder { preview, ..schedule::of_keyspace() };
                let report = self.repair_one(number, order)?;
                if let Some(report) = report.filter(|r| preview && r.differing > 0) {
                    return Err(format!(
                        "replicas differ after a full repair, seen by {}: {report:?}",
                        name(number)
                    ));
                }
            }
        }
        self.bump("repair");
        Ok(())
    }

    /// Orders a repair without waiting.
    pub fn order_repair(&mut self, number: usize, order: RepairOrder) {
        let order = AdminRequest::Repair(RepairCommand::Start(order));
        let _ = self.admin(number, ShardId(0), order);
    }

    /// A repair through one node; its report, if there was anything to repair.
    ///
    /// # Errors
    /// That it failed or does not end.
    pub fn repair_one(
        &mut self,
        number: usize,
        order: RepairOrder,
    ) -> Result<Option<RepairReport>, String> {
        let order = AdminRequest::Repair(RepairCommand::Start(order));
        let id = match self.admin_now(number, order)? {
            AdminReply::Repairs(list) => list.first().map_or(0, |report| report.id),
            other => return Err(format!("repair of {}: {other:?}", name(number))),
        };
        let limit = self.world.now() + OPERATION_MAX;
        if id == 0 {
            return Ok(None);
        }
        loop {
            let status = AdminRequest::Repair(RepairCommand::Status { id, from: 0 });
            let AdminReply::Repairs(list) = self.admin_now(number, status)? else {
                return Err(format!("repair {id} of {} has no status", name(number)));
            };
            let Some(report) = list.into_iter().next() else { return Ok(None) };
            match report.state.as_str() {
                "SUCCESSFUL" => return Ok(Some(report)),
                "RUNNING" if self.world.now() < limit => {}
                _ => return Err(format!("repair of {}: {report:?}", name(number))),
            }
            self.world.run_for(Duration::from_millis(500));
        }
    }

    /// Flushes all tables of a node.
    ///
    /// # Errors
    /// That it does not.
    pub fn flush(&mut self, number: usize) -> Result<(), String> {
        let shards = self.members.get(number).map_or(0, |m| m.shards());
        for shard in (0..shards).map(ShardId) {
            self.admin_at(number, shard, AdminRequest::Flush(admin::Selection::default()))?;
        }
        Ok(())
    }

    /// Flushes all tables of a node, then merges their files; without waiting.
    pub fn begin_compaction(&mut self, number: usize) {
        let shards = self.members.get(number).map_or(0, |m| m.shards());
        let all = admin::Selection::default;
        for shard in (0..shards).map(ShardId) {
            let _ = self.admin(number, shard, AdminRequest::Flush(all()));
            let _ = self.admin(number, shard, AdminRequest::Compact(all()));
        }
    }

    /// One node loses half of its files of the workload, as when they rot and are taken away.
    ///
    /// # Errors
    /// That it does not flush, or serve afterwards.
    pub fn lose_files(&mut self) -> Result<(), String> {
        let staying: Vec<usize> = (0..self.members.len())
            .filter(|n| self.members.get(*n).is_some_and(|m| !m.has_left))
            .collect();
        let drawn = self.world.random_u64() as usize % staying.len().max(1);
        let Some(number) = staying.get(drawn).copied() else { return Ok(()) };
        self.lose_files_of(number, staying.len() - 1)
    }

    /// As [`Run::lose_files`] of a certain node, which then waits for so many others.
    ///
    /// # Errors
    /// As there.
    pub fn lose_files_of(&mut self, number: usize, others: usize) -> Result<(), String> {
        self.flush(number)?;
        let Some(life) = self.members.get(number).map(|m| m.life.clone()) else { return Ok(()) };
        self.world.kill(&life);
        self.ended(number);
        let disk = self.world.disk(&name(number));
        let files = disk.list();
        let is_data = |path: &&String| path.contains("/ks/") && path.ends_with("-Data.db");
        for data in files.iter().filter(is_data) {
            let Some(stem) = data.strip_suffix("Data.db") else { continue };
            if self.world.random_u64().is_multiple_of(2) {
                continue;
            }
            for path in files.iter().filter(|path| path.starts_with(stem)) {
                disk.remove(path);
            }
            self.bump("rotten file taken away");
        }
        self.restart(number);
        let address = self.address(&name(number));
        let what = format!("the start of {} without some files", name(number));
        self.ask(&what, OPERATION_MAX, move |rt| survey::serves(rt, address, others))
    }

    /// Stops and starts the nodes one after the other.
    pub fn rolling_restart(&mut self) {
        for number in 0..self.members.len() {
            let Some(member) = self.members.get(number) else { return };
            if !member.is_up || member.has_left {
                continue;
            }
            let life = member.life.clone();
            let from = self.world.now();
            life.request_stop();
            if self.world.run_until(|| !self.world.is_alive(&life), STOP_MAX).is_err() {
                self.bump("orderly stop took too long");
            }
            self.world.kill(&life);
            self.ended(number);
            self.restart(number);
            self.world.run_for(Duration::from_millis(1_500));
            self.note_trouble(number, from);
        }
    }

    /// Two nodes end and start again, each at the other's address.
    pub fn swap_addresses(&mut self, a: usize, b: usize) {
        let from = self.world.now();
        for number in [a, b] {
            let Some(member) = self.members.get(number) else { return };
            let life = member.life.clone();
            if member.is_up {
                self.world.kill(&life);
                self.ended(number);
            }
        }
        let (of_a, of_b) = (self.world.disk(&name(a)), self.world.disk(&name(b)));
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
        self.swap_options(a, b);
        for number in [a, b] {
            self.restart(number);
            self.note_trouble(number, from);
        }
    }

    /// The disk of a dead node is empty from now on.
    pub fn wipe(&self, number: usize) {
        let disk = self.world.disk(&name(number));
        for path in disk.list() {
            disk.remove(&path);
        }
    }

    /// A node may have been late since then, and for a while after now.
    pub fn note_trouble(&mut self, node: usize, from: Instant) {
        let until = self.world.now() + Duration::from_secs(5);
        self.troubles.push(Trouble { node, from, until });
    }
}

/// Whether an order fails because it is carried out already.
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
