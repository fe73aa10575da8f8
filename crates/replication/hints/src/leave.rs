//! Replicas that left the cluster: their hints are handed to the present owners, or dropped.
//!
//! Order:
//!
//! 1. Hand on every hint of a file.
//! 2. Sync the hints that this stored ([`Inner::flush_all`]).
//! 3. Remove the file.
//!
//! A crash before step 3 hands hints on again.

use codec::murmur::token_of;
use data::MutationRef;
use stdx::{HostId, IoError};

use crate::delivery::Ended;
use crate::format::FileId;
use crate::hints::{Inner, Missed, Redistribute};
use crate::policy::Dropped;
use crate::walk::{Found, Step};

impl Inner {
    /// Hands on or drops what is kept for a replica that left.
    pub(crate) async fn clear_departed(&self, host: HostId) {
        let redistribute = self.redistribute.borrow().clone();
        let Some(redistribute) = redistribute else {
            let _permit = self.writer.acquire(1).await;
            tracing::info!(host = %host.0, "dropping the hints for a node that left");
            if let Err(error) = self.drop_all(host, Dropped::NoReplica).await {
                tracing::warn!(%error, "cannot remove the hints for a node that left");
            }
            self.show();
            return;
        };
        self.flush_and_seal(host).await;
        while let Some(id) = self.first_file(host) {
            if self.is_closed() {
                break;
            }
            let ended = match self.hand_on(id, &redistribute).await {
                Ok(ended) => ended,
                Err(error) => self.read_failed(id, &error).await,
            };
            self.save_progress(id, true).await;
            self.show();
            if ended == Ended::Later {
                break;
            }
        }
    }

    async fn hand_on(&self, id: FileId, redistribute: &Redistribute) -> Result<Ended, IoError> {
        let Some((mut window, mut walker)) = self.begin_file(id).await? else {
            return Ok(Ended::Through);
        };
        let mut plain = Vec::new();
        loop {
            if self.is_closed() || self.state.borrow().file(id).is_none() {
                return Ok(Ended::Later);
            }
            match walker.step(&window.buf, window.start) {
                Step::Record(found) => {
                    let cipher = window.cipher.as_ref();
                    let Some(found) = self.opened(id, cipher, found, &mut plain) else { continue };
                    if let Some(missed) = self.missed(id, &found)
                        && !redistribute(missed).await
                    {
                        return Ok(Ended::Later);
                    }
                }
                Step::Read { from, bytes } => {
                    if let Some(end) = window.load(from, bytes).await? {
                        walker.cut(end);
                    }
                }
                Step::End => break,
            }
            self.rt.yield_if_due().await;
        }
        self.report(id, &walker);
        if let Err(error) = self.flush_all().await {
            tracing::warn!(%error, "hints that were handed over are not synced yet");
            return Ok(Ended::Later);
        }
        Ok(self.finish(id).await)
    }

    fn missed(&self, id: FileId, found: &Found<'_>) -> Option<Missed> {
        self.place_if_deliverable(id, found)?;
        let mutation = MutationRef::open(found.hint.mutation)?;
        self.counters.handed_on.inc();
        Some(Missed {
            target: id.target,
            table: mutation.table,
            token: token_of(mutation.key),
            written_at: found.hint.written_at,
            mutation: found.hint.mutation.to_vec(),
        })
    }
}
