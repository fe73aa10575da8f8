//! Incremental repair on the coordinating node: it opens a session on all replicas, compares the data
//! that they set apart, and closes the session.
//!
//! Order:
//!
//! 1. Every replica sets apart the data that no repair has covered (`RepairOpen`).
//! 2. That data is compared; data that a replica lacks goes into files of the session.
//! 3. Every replica makes these files durable.
//! 4. Every replica marks its files as repaired.
//!
//! A failure before step 4 aborts the session everywhere. In step 4 a replica that cannot be reached
//! keeps its files until it aborts the session automatically. The next repair compares them with
//! nothing on the other side and sends them again; no data is lost.

use internode::Verb;
use messaging::Outgoing;
use stdx::{HostId, Instant, ShardId, TableId, Token, Uuid};

use crate::error::RepairError;
use crate::exchange::{Destination, Work, all};
use crate::shards::Order;
use crate::wire::{self, Close, CloseKind, Open, Opened};

use super::part::Part;

impl Part<'_> {
    pub(super) fn ranges(&self) -> Vec<(Token, Token)> {
        self.session.ranges.iter().map(|r| (r.start, r.end)).collect()
    }

    fn order(&self, order: impl Fn(TableId) -> Order) -> Order {
        order(self.table.id)
    }

    /// Step 1, on all replicas at the same time.
    pub(super) async fn open_session(&self, session: Uuid) -> Result<(), RepairError> {
        self.drive.sessions.begin_own(session);
        let until = self.env.rt.now() + self.env.settings.open_timeout;
        // Start opening on all peers before waiting for any of them.
        for host in &self.session.peers {
            self.ask_open(*host, session, false).await?;
        }
        let ranges = self.ranges();
        let begin = self.order(|table| Order::Begin { table, session, ranges: ranges.clone() });
        self.env.unless_ended(self.job, self.drive.shards.on_all(&begin)).await??;
        let work =
            self.session.peers.iter().map(|host| -> Work<'_, ()> {
                Box::pin(self.wait_for_open(*host, session, until))
            });
        all(work.collect(), usize::MAX).await?;
        Ok(())
    }

    async fn wait_for_open(
        &self,
        host: HostId,
        session: Uuid,
        until: Instant,
    ) -> Result<(), RepairError> {
        let mut pause = self.env.settings.retry_pause / 4;
        loop {
            let address = self.env.address(host);
            match self.ask_open(host, session, true).await? {
                Opened::Ready => return Ok(()),
                Opened::Failed(error) => return Err(RepairError::Peer { address, error }),
                Opened::Working if self.env.rt.now() >= until => {
                    let error = "it still sets files apart".to_owned();
                    return Err(RepairError::Peer { address, error });
                }
                Opened::Working => {}
            }
            self.env.unless_ended(self.job, self.env.rt.sleep(pause)).await?;
            pause = (pause * 2).min(self.env.settings.session_idle / 16);
        }
    }

    async fn ask_open(
        &self,
        host: HostId,
        session: Uuid,
        again: bool,
    ) -> Result<Opened, RepairError> {
        let mut payload = Vec::new();
        let open = Open { again, session, table: self.table.id, ranges: self.ranges() };
        wire::encode_open(&mut payload, &open);
        let answer = self
            .drive
            .exchange
            .ask(self.job, Destination::node(host), Verb::RepairOpen, &payload)
            .await?;
        let address = self.env.address(host);
        let malformed =
            |e: codec::DecodeError| RepairError::Malformed { address, error: e.to_string() };
        wire::decode_opened(&answer).map_err(malformed)
    }

    /// Notifies all replicas that the session is still in use.
    pub(super) async fn keep_open(&self, session: Uuid) -> Result<(), RepairError> {
        let soon = self.env.rt.now();
        let work = self
            .session
            .peers
            .iter()
            .map(|host| -> Work<'_, ()> { Box::pin(self.wait_for_open(*host, session, soon)) });
        all(work.collect(), usize::MAX).await?;
        Ok(())
    }

    /// Steps 3 and 4.
    pub(super) async fn settle(&self, session: Uuid) -> Result<(), RepairError> {
        self.close_all(CloseKind::Flush, session).await?;
        let flush = self.order(|table| Order::Flush { table, session });
        self.drive.shards.on_all(&flush).await?;
        let at = self.env.rt.wall().millis();
        self.close_all(CloseKind::Repaired(at), session).await?;
        let end = self.order(|table| Order::End { table, session, repaired_at: Some(at) });
        self.drive.shards.on_all(&end).await?;
        self.drive.sessions.end_own(session);
        self.job.repaired_at.set(at);
        Ok(())
    }

    /// Ends the session without a result, as far as replicas can be reached now.
    pub(super) async fn give_up(&self, session: Uuid) {
        stdx::reached!("repair-session-given-up");
        let close =
            Close { kind: CloseKind::GiveUp, session, table: self.table.id, ranges: Vec::new() };
        let mut payload = Vec::new();
        wire::encode_close(&mut payload, &close);
        for host in &self.session.peers {
            let outgoing = Outgoing {
                host: *host,
                shard: ShardId(0),
                verb: Verb::RepairClose,
                deadline: self.env.rt.now() + self.env.settings.retry_pause * 8,
                trace: None,
            };
            let messaging = &self.env.messaging;
            if let Err(error) =
                messaging.request(&outgoing, |out| out.extend_from_slice(&payload)).await
            {
                tracing::debug!(
                    %host,
                    %error,
                    "cannot close the repair session at a replica; it times out there"
                );
            }
        }
        let end = self.order(|table| Order::End { table, session, repaired_at: None });
        if let Err(error) = self.drive.shards.on_all(&end).await {
            tracing::warn!(
                %session,
                %error,
                "cannot release the files of a repair session; the next check retries"
            );
        }
        self.drive.sessions.end_own(session);
    }

    /// Has all other replicas do it; all of them must.
    pub(super) async fn close_all(
        &self,
        kind: CloseKind,
        session: Uuid,
    ) -> Result<(), RepairError> {
        let close = Close { kind, session, table: self.table.id, ranges: self.ranges() };
        let mut payload = Vec::new();
        wire::encode_close(&mut payload, &close);
        let payload = &payload;
        let work = self.session.peers.iter().map(|host| -> Work<'_, ()> {
            Box::pin(async move {
                let to = Destination::node(*host);
                let asked = self.drive.exchange.ask(self.job, to, Verb::RepairClose, payload);
                asked.await.map(|_| ())
            })
        });
        all(work.collect(), usize::MAX).await?;
        Ok(())
    }

    /// Keeps in mind, here and on the other replicas, that the ranges were repaired, once all of them
    /// have everything on the disk.
    pub(super) async fn note_repaired(&self) -> Result<(), RepairError> {
        stdx::invariant!(
            self.job.options.is_global() && self.session.peers == self.session.others,
            "INV-repair-5: {} of {} replicas took part, tombstones may not go for that",
            self.session.peers.len(),
            self.session.others.len()
        );
        self.close_all(CloseKind::Sync, Uuid::nil()).await?;
        self.drive.shards.on_all(&Order::Sync { table: self.table.id }).await?;
        let seconds = self.job.started_at.seconds().0;
        if let Err(error) = self.close_all(CloseKind::Noted(seconds), Uuid::nil()).await {
            // The tombstones of that replica wait for the next repair.
            tracing::info!(%error, "cannot notify a replica that its ranges were repaired");
        }
        if let Err(error) =
            self.drive.shards.note_repaired(self.table.id, &self.ranges(), seconds).await
        {
            tracing::warn!(error = ?error, "cannot record that ranges were repaired");
        }
        Ok(())
    }
}
