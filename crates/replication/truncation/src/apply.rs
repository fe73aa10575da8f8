//! The entry of the metadata log on each node: its shards are emptied, and that is recorded.

use crate::records::{self, Records, Runs};
use crate::shards::{ShardRequest, join_all};
use crate::state::{Inner, Truncations};
use cluster::ClusterSnapshot;
use rt::{Fs, Group};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use stdx::{TableId, WallMicros};
use store::StoreError;

/// Interval between attempts to complete a truncation of this node.
const RETRY: Duration = Duration::from_secs(1);

impl Truncations {
    /// Empties a table on all shards of this node, durably.
    ///
    /// # Errors
    /// Why a shard could not.
    async fn empty(&self, table: TableId, at: WallMicros) -> Result<(), String> {
        let mut calls: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
        for shard in self.other_shards() {
            let this = self.clone();
            calls.push(Box::pin(async move { this.empty_on(shard, table, at).await }));
        }
        let here = self.clone();
        calls.push(Box::pin(async move { here.empty_here(table, at).await }));
        join_all(calls).await.into_iter().collect()
    }

    /// Carries out the truncations of the metadata that this node has not carried out yet, on all
    /// shards, and records them. Must be called on shard 0: at the start when the shards serve each
    /// other and nothing is written yet, and at each change of the metadata before it is
    /// acknowledged. Truncations that cannot be completed are retried in the background. `work_dir`
    /// is the directory above the metadata log.
    ///
    /// # Errors
    /// `Corrupt`: `metadata/truncated` is damaged; `Io`: it cannot be read. Only the first call, at
    /// the start, reads it.
    pub async fn apply(
        &self,
        work_dir: &str,
        snapshot: &ClusterSnapshot,
    ) -> Result<(), StoreError> {
        let inner = &*self.inner;
        let _one = inner.applying.acquire(1).await;
        let known = inner.carried_out.borrow().clone();
        let (mut records, is_first) = match known {
            Some(records) => (records, false),
            None => (records::load(&inner.rt.fs(), &path(work_dir), snapshot).await?, true),
        };
        if is_first {
            inner.began.set(inner.rt.wall());
            let due = records.is_due_at_start(snapshot);
            records.skip_all_but(snapshot, due);
        }
        for (table, at) in records.due(snapshot) {
            if inner.is_late(at, inner.rt.wall()) {
                inner.note_expired(table, at);
                records.note(table, at);
                continue;
            }
            match self.empty(table, at).await {
                Ok(()) => records.note(table, at),
                // The next start carries it out: nothing is written until then.
                Err(_) if inner.is_stopping.get() => break,
                Err(why) => {
                    let why = format!("cannot remove the data of a shard, which is retried: {why}");
                    inner.note_failure(table, at, why);
                }
            }
        }
        records.reflect(snapshot);
        *inner.carried_out.borrow_mut() = Some(records.clone());
        self.record_durably(work_dir, &records).await;
        inner.failed.borrow_mut().retain(|table, _| Inner::has_table(snapshot, *table));
        if !inner.failed.borrow().is_empty() {
            self.retry(work_dir);
        }
        Ok(())
    }

    /// Replaces the file when it lacks something; then the shards may drop the records in their logs.
    async fn record_durably(&self, work_dir: &str, records: &Records) {
        let inner = &*self.inner;
        if records.is_durable() {
            // At a start: the replayed logs have records of earlier runs.
            if *inner.recorded.borrow() != *records.known() {
                self.announce_recorded(records).await;
            }
            return;
        }
        match records::store(&inner.rt.fs(), &path(work_dir), records).await {
            Ok(()) => {
                if let Some(records) = inner.carried_out.borrow_mut().as_mut() {
                    records.set_durable();
                }
                self.announce_recorded(records).await;
            }
            Err(error) => {
                let why = format!("the truncation cannot be recorded, which is retried: {error}");
                let missing: Vec<(TableId, WallMicros)> = {
                    let recorded = inner.recorded.borrow();
                    let known = records.known().iter();
                    known
                        .filter(|(t, at)| recorded.get(*t) != Some(*at))
                        .map(|(t, at)| (*t, *at))
                        .collect()
                };
                for (table, at) in missing {
                    inner.note_failure(table, at, why.clone());
                }
            }
        }
    }

    async fn announce_recorded(&self, records: &Records) {
        let inner = &*self.inner;
        let known = records.known().clone();
        inner
            .failed
            .borrow_mut()
            .retain(|table, (at, _)| known.get(table).is_none_or(|done| *done < *at));
        *inner.recorded.borrow_mut() = known.clone();
        self.recorded_here(&known);
        let known = Arc::new(known);
        for shard in self.other_shards() {
            // A shard that does not hear it keeps the log record until the next start.
            let _ = (inner.ask)(shard, ShardRequest::Recorded(known.clone())).await;
        }
    }

    /// Completes what failed, until nothing is left or the node stops.
    fn retry(&self, work_dir: &str) {
        if self.inner.is_retrying.replace(true) {
            return;
        }
        let (this, work_dir) = (self.clone(), work_dir.to_owned());
        let task = async move {
            let inner = &*this.inner;
            loop {
                let next = inner.rt.now() + RETRY;
                let is_stopped = inner.rt.timeout(next, inner.rt.stop_requested()).await.is_ok();
                if is_stopped || inner.is_stopping.get() {
                    break;
                }
                let snapshot = inner.membership.snapshot();
                // The file was read by then.
                let _ = this.apply(&work_dir, &snapshot).await;
                if inner.failed.borrow().is_empty() {
                    tracing::info!("retried truncations are complete");
                    break;
                }
            }
            inner.is_retrying.set(false);
        };
        // A closed gate: the node stops.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "truncate-retry", task);
    }
}

impl Inner {
    fn note_expired(&self, table: TableId, at: WallMicros) {
        tracing::error!(
            table = %table.0,
            "TRUNCATE skipped on this node: it was decided or arrived too late, and rows may \
            have been written since; if old rows are shown, run TRUNCATE again"
        );
        self.expired.borrow_mut().insert(table, at);
        self.failed.borrow_mut().remove(&table);
    }

    fn note_failure(&self, table: TableId, at: WallMicros, why: String) {
        let mut failed = self.failed.borrow_mut();
        if failed.get(&table).is_none_or(|(of, before)| *of != at || *before != why) {
            tracing::error!(table = %table.0, "TRUNCATE is not complete on this node: {why}");
        }
        failed.insert(table, (at, why));
    }
}

/// Rewrites `metadata/truncated` for the run that begins, before `metadata/run` gets its number: a
/// crash between the two must not leave a file that looks like an older copy. A file of an earlier
/// run than [`Runs::last`] is an older copy and is not trusted: every truncation of the metadata
/// counts as carried out. `work_dir` is the directory above the metadata log.
///
/// # Errors
/// `Corrupt`: the file is damaged; any other when it cannot be read or written.
pub async fn begin_truncations(
    fs: &Fs,
    work_dir: &str,
    snapshot: &ClusterSnapshot,
    runs: Runs,
) -> Result<(), StoreError> {
    Ok(records::begin_run(fs, &path(work_dir), snapshot, runs).await?)
}

fn path(work_dir: &str) -> String {
    format!("{work_dir}/{}/truncated", membership::log::DIRECTORY)
}
