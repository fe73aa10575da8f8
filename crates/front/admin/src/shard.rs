//! Requests that each shard answers, on its own thread, through the mesh.
//!
//! Owns: [`serve_shard`]. Questions are answered at once, commands in a task of the shard's gate. Reading order:
//! this file, `reports`, `samples`.

mod indexes;
mod logins;
mod reports;
mod samples;

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use membership::Membership;
use rt::{Gate, Group, Reply, Rt};
use store::Store;

use crate::cluster_command::ClusterCommand;
use crate::commands::{self, selection};
use crate::members::SchemaVersions;
use crate::request::{ActionError, AdminMesh, AdminReply, AdminRequest};
use crate::shard_actions::{NodeFacts, ShardActions};

/// The parts of a shard that administration accesses.
pub struct ShardParts {
    /// The shard.
    pub rt: Rt,
    /// Its tables.
    pub store: Store,
    /// The schema and the members.
    pub membership: Membership,
    /// Actions of the shard.
    pub actions: Rc<dyn ShardActions>,
    /// The node.
    pub facts: Arc<NodeFacts>,
    /// Owner of commands in progress: closing it waits for them.
    pub gate: Gate,
}

/// Serves `mesh` on this shard from now on.
pub fn serve_shard(mesh: &AdminMesh, parts: ShardParts) {
    let rt = parts.rt.clone();
    let versions = SchemaVersions::follow(&parts.membership);
    let parts = Rc::new(Served { parts, versions });
    mesh.serve(&rt, move |request, reply| serve(&parts, request, reply));
}

/// A shard's parts and a history of its schema.
struct Served {
    parts: ShardParts,
    versions: SchemaVersions,
}

impl std::ops::Deref for Served {
    type Target = ShardParts;

    fn deref(&self) -> &ShardParts {
        &self.parts
    }
}

fn serve(parts: &Rc<Served>, request: AdminRequest, reply: Reply<AdminReply>) {
    match parts.answer(request) {
        ControlFlow::Break(answer) => reply.send(answer),
        ControlFlow::Continue(command) => {
            let of_task = parts.clone();
            let task = async move {
                let answer = of_task.carry_out(command).await;
                reply.send(answer.unwrap_or_else(AdminReply::Failed));
            };
            // A closed gate means that the node stops: the dropped reply tells the caller.
            let _ = parts.gate.spawn(&parts.rt, Group::Admin, "admin-command", task);
        }
    }
}

fn or_failed<T>(result: Result<T, ActionError>, reply: fn(T) -> AdminReply) -> AdminReply {
    result.map_or_else(AdminReply::Failed, reply)
}

impl Served {
    /// Answers a question at once; gives a command back, which takes longer.
    fn answer(&self, request: AdminRequest) -> ControlFlow<AdminReply, AdminRequest> {
        ControlFlow::Break(match request {
            AdminRequest::Node => AdminReply::Node(Box::new(self.node())),
            AdminRequest::Tables => AdminReply::Tables(self.tables()),
            AdminRequest::Indexes => AdminReply::Indexes(self.indexes()),
            AdminRequest::Compactions => AdminReply::Compactions(Box::new(self.compactions())),
            AdminRequest::CompactionPlan => AdminReply::Planned(self.planned()),
            AdminRequest::Metrics => AdminReply::Metrics(self.rt.telemetry().snapshot()),
            AdminRequest::Sample(command) => or_failed(self.sample(&command), AdminReply::Samples),
            AdminRequest::Clients => AdminReply::Clients(self.actions.clients()),
            AdminRequest::CachedCredentials => {
                AdminReply::Credentials(self.actions.cached_credentials())
            }
            AdminRequest::ForgetCredentials(role) => {
                let found = self.actions.forget_credentials(role.as_deref());
                let forgotten = found.then(|| role.unwrap_or_default());
                AdminReply::Credentials(forgotten.into_iter().collect())
            }
            AdminRequest::CidrGroups(address) => AdminReply::CidrGroups(self.cidr_groups(address)),
            AdminRequest::Guardrails => AdminReply::Guardrails(self.actions.guardrails()),
            AdminRequest::Participations => {
                AdminReply::Participations(self.actions.participations())
            }
            AdminRequest::AutoRepair(enabled) => {
                or_failed(self.actions.auto_repair(enabled), AdminReply::AutoRepair)
            }
            AdminRequest::RepairSummary(query) => {
                or_failed(self.actions.repair_summary(&query), AdminReply::RepairSummary)
            }
            AdminRequest::Repair(command) => {
                or_failed(self.actions.repair(command), AdminReply::Repairs)
            }
            AdminRequest::Cluster => AdminReply::Cluster(Box::new(self.cluster())),
            AdminRequest::Endpoints { keyspace, table, key } => {
                let snapshot = self.membership.snapshot();
                let found = commands::endpoints(&snapshot, &keyspace, &table, &key);
                or_failed(found, AdminReply::Endpoints)
            }
            AdminRequest::KeySamples => AdminReply::KeySamples(self.key_samples()),
            AdminRequest::Estimates(ranges) => AdminReply::Estimates(self.estimates(&ranges)),
            command => return ControlFlow::Continue(command),
        })
    }

    async fn command(&self, command: ClusterCommand) -> Result<(), ActionError> {
        let gossip = self.cluster().gossip;
        let snapshot = self.membership.snapshot();
        let action = commands::resolve(command, &snapshot, gossip.as_ref())?;
        self.actions.cluster_command(action).await
    }

    async fn carry_out(&self, command: AdminRequest) -> Result<AdminReply, ActionError> {
        let schema = self.membership.snapshot().schema.clone();
        match command {
            AdminRequest::Flush(selection) => {
                self.actions.flush(selection::selected(&schema, &selection)?).await?;
            }
            AdminRequest::Compact(selection) => {
                self.actions.compact(selection::selected(&schema, &selection)?).await?;
            }
            AdminRequest::Upgrade { selection, all, written_by } => {
                let tables = selection::selected(&schema, &selection)?;
                self.actions.upgrade(tables, all, written_by).await?;
            }
            AdminRequest::Upkeep(request) => {
                let action = commands::upkeep::resolve(request, &schema)?;
                return Ok(AdminReply::Upkeep(self.actions.upkeep(action).await?));
            }
            AdminRequest::Drain => self.actions.drain().await?,
            AdminRequest::SetGuardrail(change) => self.actions.set_guardrail(change).await?,
            AdminRequest::TakeSnapshot { tag, selection, skip_flush, ttl_seconds } => {
                selection::check_tag(&tag)?;
                let tables = selection::selected(&schema, &selection)?;
                self.actions.take_snapshot((tag, ttl_seconds), tables, skip_flush).await?;
            }
            AdminRequest::ClearSnapshots(which) => {
                if let Some(tag) = &which.tag {
                    selection::check_tag(tag)?;
                }
                self.actions.clear_snapshots(which).await?;
            }
            AdminRequest::AbandonSnapshot { tag, selection } => {
                selection::check_tag(&tag)?;
                self.actions
                    .abandon_snapshot(tag, selection::selected(&schema, &selection)?)
                    .await?;
            }
            AdminRequest::CompactionHistory => {
                return Ok(AdminReply::History(self.actions.compaction_history().await?));
            }
            AdminRequest::Command(command) => self.command(command).await?,
            AdminRequest::LogIn(login) => return Ok(AdminReply::Login(self.log_in(login).await?)),
            AdminRequest::ListSnapshots => {
                return Ok(AdminReply::Snapshots(self.actions.list_snapshots().await?));
            }
            AdminRequest::Node
            | AdminRequest::Tables
            | AdminRequest::Indexes
            | AdminRequest::Compactions
            | AdminRequest::CompactionPlan
            | AdminRequest::Cluster
            | AdminRequest::Clients
            | AdminRequest::Sample(_)
            | AdminRequest::Guardrails
            | AdminRequest::CachedCredentials
            | AdminRequest::ForgetCredentials(_)
            | AdminRequest::CidrGroups(_)
            | AdminRequest::Repair(_)
            | AdminRequest::Participations
            | AdminRequest::AutoRepair(_)
            | AdminRequest::RepairSummary(_)
            | AdminRequest::Endpoints { .. }
            | AdminRequest::Estimates(_)
            | AdminRequest::KeySamples
            | AdminRequest::Metrics => {
                stdx::invariant::broken(format_args!("admin: a question is treated as a command"))
            }
        }
        Ok(AdminReply::Done)
    }
}
