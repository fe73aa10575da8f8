//! Reaction of the node to a failed disk: `disk_failure_policy`, `commit_failure_policy`.
//!
//! Owns: the verdict of the settings on a failure, and carrying it out on all shards. Never:
//! detects failures (the store reports them) or repairs. Source: Cassandra's
//! `DefaultFSErrorHandler`, `CommitLog.handleCommitError`, `JVMStabilityInspector`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use conf::{CommitFailurePolicy, DiskFailurePolicy, Options};
use data::counter::CounterId;
use rt::{Gate, Group, Mesh, Rt};
use stdx::ShardId;
use store::StoreFailure;

use crate::actions::Actions;
use crate::{Outcome, StartError};

/// Message from one shard to all of them about serving clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Serving stops for good.
    Stop,
    /// Serving pauses until it is resumed.
    Pause,
    /// Clients are served again.
    Resume,
}

/// Channel to all shards.
pub type PolicyMesh = Mesh<Serving, ()>;

/// Consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The process ends.
    Die,
    /// Clients are no longer served; administration continues.
    StopServing,
    /// Only the request that met the failure fails.
    GoOn,
}

fn verdict(options: &Options, failure: &StoreFailure) -> Verdict {
    match failure {
        StoreFailure::CommitLog(_) => match options.commit_failure_policy {
            CommitFailurePolicy::Die => Verdict::Die,
            CommitFailurePolicy::Stop => Verdict::StopServing,
            // The store accepts no writes after a failed sync, whatever the setting.
            CommitFailurePolicy::StopCommit | CommitFailurePolicy::Ignore => Verdict::GoOn,
        },
        StoreFailure::Disk(_) => match options.disk_failure_policy {
            DiskFailurePolicy::Die => Verdict::Die,
            DiskFailurePolicy::StopParanoid | DiskFailurePolicy::Stop => Verdict::StopServing,
            DiskFailurePolicy::BestEffort | DiskFailurePolicy::Ignore => Verdict::GoOn,
        },
        StoreFailure::Corrupt(_) => match options.disk_failure_policy {
            DiskFailurePolicy::Die => Verdict::Die,
            DiskFailurePolicy::StopParanoid => Verdict::StopServing,
            DiskFailurePolicy::Stop | DiskFailurePolicy::BestEffort | DiskFailurePolicy::Ignore => {
                Verdict::GoOn
            }
        },
        // Reported with `best_effort` only.
        StoreFailure::NoDirectory(_) => Verdict::StopServing,
        StoreFailure::OutOfService(_)
        | StoreFailure::Backup(_)
        | StoreFailure::Archive(_)
        | StoreFailure::Found(_)
        | StoreFailure::Unflushable(_)
        | StoreFailure::SavedCache(_)
        | StoreFailure::Mark(_) => Verdict::GoOn,
    }
}

/// The policy of one shard.
pub(crate) struct Policy {
    pub(crate) rt: Rt,
    pub(crate) options: Arc<Options>,
    pub(crate) mesh: Arc<PolicyMesh>,
    pub(crate) actions: Rc<Actions>,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) gate: Gate,
}

impl Policy {
    /// Acts on failures that this shard's store reports from now on, and on decisions of other
    /// shards.
    pub(crate) fn install(self) {
        let actions = self.actions.clone();
        let (rt, gate) = (self.rt.clone(), self.gate.clone());
        self.mesh.serve(&self.rt, move |what, reply| {
            let actions = actions.clone();
            let task = async move {
                actions.serve(what).await;
                reply.send(());
            };
            // A closed gate: the node stops anyway.
            let _ = gate.spawn(&rt, Group::Admin, "serving", task);
        });
        let store = self.actions.store.clone();
        let acted = Cell::new(false);
        store.env().on_failure(move |failure| self.act(&failure, &acted));
    }

    /// Switches to a new counter id. The lost data may include this shard's own counts: a writer
    /// that continues from a smaller count than it had written would revert increments on other
    /// replicas.
    fn count_as_somebody_new(&self) {
        let halves = [self.rt.random_u64(), self.rt.random_u64()];
        let id = u128::from(halves[0]) << 64 | u128::from(halves[1]);
        self.actions.coordinator.counters().set_counter_id(CounterId(id.to_be_bytes()));
    }

    fn act(&self, failure: &StoreFailure, acted: &Cell<bool>) {
        let (policy, setting, what) = match failure {
            StoreFailure::CommitLog(what) => {
                (self.options.render("commit_failure_policy"), "commit_failure_policy", what)
            }
            StoreFailure::Disk(what)
            | StoreFailure::Corrupt(what)
            | StoreFailure::NoDirectory(what) => {
                (self.options.render("disk_failure_policy"), "disk_failure_policy", what)
            }
            StoreFailure::OutOfService(what) => {
                tracing::warn!(
                    %what,
                    "a data directory is out of service; replace the disk, or start the node again, and repair it"
                );
                self.count_as_somebody_new();
                return;
            }
            StoreFailure::Backup(what) => {
                tracing::error!(%what, "an incremental backup is not complete");
                return;
            }
            StoreFailure::Found(what) => {
                tracing::warn!(%what, "using SSTables found before their table's definition arrived");
                return;
            }
            StoreFailure::Unflushable(what) => {
                tracing::error!(%what, "rows cannot be written to an SSTable and stay in memory");
                return;
            }
            StoreFailure::SavedCache(what) => {
                tracing::warn!(%what, "a saved cache cannot be written or read");
                return;
            }
            StoreFailure::Mark(what) => {
                tracing::warn!(%what, "a small file of a table is damaged and is rebuilt");
                return;
            }
            StoreFailure::Archive(what) => {
                tracing::error!(
                    %what,
                    "a commit-log segment could not be archived; it is kept until it can be"
                );
                return;
            }
        };
        let verdict = verdict(&self.options, failure);
        if verdict == Verdict::GoOn || acted.replace(true) {
            return;
        }
        let policy = policy.unwrap_or_default();
        if verdict == Verdict::Die {
            tracing::error!(%what, "the node ends because {setting} is {policy}");
            self.outcome.fail(StartError::DiskFailure { setting, what: what.clone() });
            self.rt.request_stop();
            return;
        }
        tracing::error!(%what, "no longer serving clients because {setting} is {policy}");
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            let call = self.mesh.call(&self.rt, shard, Serving::Stop);
            let task = async move {
                if call.await.is_err() {
                    tracing::error!(shard = shard.0, "cannot notify a shard to stop serving");
                }
            };
            let _ = self.gate.spawn(&self.rt, Group::Admin, "tell-stop-serving", task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_cassandras() {
        use CommitFailurePolicy as C;
        use DiskFailurePolicy as D;
        let failures = || {
            [
                StoreFailure::CommitLog(String::new()),
                StoreFailure::Disk(String::new()),
                StoreFailure::Corrupt(String::new()),
                StoreFailure::Backup(String::new()),
                StoreFailure::OutOfService(String::new()),
                StoreFailure::NoDirectory(String::new()),
            ]
        };
        let of = |disk, commit| {
            let options = Options {
                disk_failure_policy: disk,
                commit_failure_policy: commit,
                ..Options::default()
            };
            failures().map(|f| match verdict(&options, &f) {
                Verdict::Die => 'd',
                Verdict::StopServing => 's',
                Verdict::GoOn => '-',
            })
        };
        assert_eq!(of(D::Die, C::Die), ['d', 'd', 'd', '-', '-', 's']);
        assert_eq!(of(D::StopParanoid, C::Stop), ['s', 's', 's', '-', '-', 's']);
        assert_eq!(of(D::Stop, C::StopCommit), ['-', 's', '-', '-', '-', 's']);
        assert_eq!(of(D::BestEffort, C::Ignore), ['-', '-', '-', '-', '-', 's']);
        assert_eq!(of(D::Ignore, C::Stop), ['s', '-', '-', '-', '-', 's']);
    }
}
