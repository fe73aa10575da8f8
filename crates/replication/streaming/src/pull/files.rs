//! Whole files from a source: its offer, and the transfer of their bytes.
//!
//! A source is asked to hold its data for a pass. It offers the files that lie completely in the
//! ranges, if they would be complete at this shard too: both nodes have equally many shards, or this
//! one has one. Their components are fetched one after the other, with several chunks in flight; the
//! rest of the hold is sent as pages. All of it becomes visible together, at the end of the pass.
//!
//! A chunk that does not arrive is requested again, also after the connection broke. A restarted source
//! has lost its holds: the pass restarts.

use std::collections::VecDeque;

use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing, RequestFuture};
use stdx::{HostId, ShardId};
use store::{AttachedTaken, Component, TakenForms};

use super::{Pull, Puller, Trouble, lost_ingest, stored, trouble_of};
use crate::source::file_name;
use crate::stats::SessionKey;
use crate::wire::{
    ChunkRequest, FileOffer, OPEN_VERSION, OpenAnswer, OpenRequest, RANGES_MAX, put_close,
    read_chunk,
};

/// Data that a source holds for a pass.
pub(super) struct Offer {
    hold: Option<u64>,
    files: VecDeque<FileOffer>,
    /// Progress of the first of `files`: whether it has begun, the component in transfer, and the
    /// bytes of it that have arrived.
    begun: bool,
    component: usize,
    offset: u64,
}

impl Offer {
    /// Number of the hold; `None`: everything is sent as rows.
    pub(super) fn hold(&self) -> Option<u64> {
        self.hold
    }

    /// Returns true if files are still to be fetched.
    pub(super) fn has_more(&self) -> bool {
        !self.files.is_empty()
    }

    fn rows_only() -> Offer {
        Offer { hold: None, files: VecDeque::new(), begun: false, component: 0, offset: 0 }
    }
}

/// A chunk in flight.
struct Asked {
    component: Component,
    bytes: u64,
    answer: RequestFuture,
}

impl Puller {
    /// Asks a source to hold what it has of the pass.
    pub(super) async fn ask_offer(
        &self,
        source: HostId,
        shard: u16,
        pull: &mut Pull<'_>,
    ) -> Result<(), Trouble> {
        let env = &self.env;
        let shards = env.rt.shard_count();
        let alike = pull.shards == 0 || pull.shards == shards || shards == 1;
        if !env.settings.whole_files || !alike || pull.ranges.len() > RANGES_MAX {
            pull.offer = Some(Offer::rows_only());
            return Ok(());
        }
        let open = OpenRequest {
            table: pull.order.table,
            plan: pull.order.plan,
            operation: pull.order.operation.to_string(),
            peer_shards: pull.shards,
            ranges: pull.ranges.clone(),
            taken: TakenForms {
                versions: env.store.transfer().whole_versions(pull.order.table),
                attached: AttachedTaken::Yes,
            },
            version: OPEN_VERSION,
        };
        let to = self.to_source(source, shard, Verb::StreamOpen);
        let response = env.messaging.request(&to, |out| open.encode(out));
        let response = env.unless_aborted(pull.order.plan, response).await;
        let response = response.map_err(Trouble::Fatal)?;
        if let Err(MessagingError::Remote(ErrorReply::Invalid(_))) = &response {
            // The source's build knows another version of the request. If the cause is another one,
            // the page requests will report it.
            pull.offer = Some(Offer::rows_only());
            return Ok(());
        }
        let response = response.map_err(trouble_of)?;
        let answer = OpenAnswer::decode(&response.payload)
            .map_err(|error| Trouble::Source(error.to_string()))?;
        if answer.shards != pull.shards {
            pull.set_shards(answer.shards, env.own_shard());
            return Err(Trouble::Again("the source has another number of shards".to_owned()));
        }
        let (count, bytes) = (answer.files.len() as u64, answer.files.iter().map(FileOffer::bytes));
        let bytes: u64 = bytes.sum();
        self.note(source, pull, |session| {
            session.files += count;
            session.file_bytes += bytes;
        });
        pull.offer = Some(Offer {
            hold: (answer.hold != 0).then_some(answer.hold),
            files: answer.files.into(),
            ..Offer::rows_only()
        });
        Ok(())
    }

    /// Fetches the rest of the file that is the next one.
    pub(super) async fn pull_file(
        &self,
        source: HostId,
        shard: u16,
        pull: &mut Pull<'_>,
    ) -> Result<(), Trouble> {
        self.begin_ingest(pull).await?;
        let (Some(offer), Some(ingest)) = (&mut pull.offer, &mut pull.ingest) else {
            return Err(lost_ingest());
        };
        let Some(file) = offer.files.front().cloned() else { return Ok(()) };
        if !offer.begun {
            ingest.begin_whole(file.version, file.components.clone()).await.map_err(stored)?;
            offer.begun = true;
        }
        self.pull_chunks(source, shard, pull, &file).await?;
        let Some(ingest) = &mut pull.ingest else { return Err(lost_ingest()) };
        stdx::invariant!(
            pull.offer.as_ref().is_some_and(|offer| offer.component == file.components.len()),
            "INV-stream-1: file {} ends, though not all of its {} components are here",
            file.generation.0,
            file.components.len()
        );
        ingest.end_whole().await.map_err(stored)?;
        pull.report.whole_files += 1;
        self.env.counts.received_files.inc();
        if let Some(offer) = &mut pull.offer {
            offer.files.pop_front();
            (offer.begun, offer.component, offer.offset) = (false, 0, 0);
        }
        Ok(())
    }

    /// Fetches the chunks of a file that are not here; where it stopped is kept.
    async fn pull_chunks(
        &self,
        source: HostId,
        shard: u16,
        pull: &mut Pull<'_>,
        file: &FileOffer,
    ) -> Result<(), Trouble> {
        let env = &self.env;
        let Some(offer) = &pull.offer else { return Ok(()) };
        let Some(hold) = offer.hold else { return Ok(()) };
        let mut chunk = env.settings.chunk_bytes as u64;
        let mut next = (offer.component, offer.offset);
        let mut asked: VecDeque<Asked> = VecDeque::new();
        loop {
            while asked.len() < env.settings.chunks_in_flight.max(1)
                && let Some((component, length)) = file.components.get(next.0).copied()
            {
                let bytes = chunk.min(length.saturating_sub(next.1));
                let (generation, offset) = (file.generation, next.1);
                let request = ChunkRequest { hold, generation, component, offset, bytes };
                let to = self.to_source(source, shard, Verb::StreamChunk);
                let answer = env.messaging.request(&to, |out| request.encode(out));
                asked.push_back(Asked { component, bytes, answer });
                next.1 += bytes;
                if next.1 >= length {
                    next = (next.0 + 1, 0);
                }
            }
            let Some(Asked { component, bytes, answer }) = asked.pop_front() else { return Ok(()) };
            let response = env.unless_aborted(pull.order.plan, answer).await;
            let response = response.map_err(Trouble::Fatal)?;
            let response = response.map_err(trouble_of)?;
            let answer = read_chunk(&response.payload)
                .map_err(|error| Trouble::Source(error.to_string()))?;
            let Some(piece) = answer else {
                stdx::reached!("stream-hold-gone");
                let what = "the source no longer holds the file".to_owned();
                return Err(Trouble::Anew(what));
            };
            let got = piece.len() as u64;
            if got > bytes || (got == 0 && bytes > 0) {
                return Err(Trouble::Source("a file has not the announced length".to_owned()));
            }
            let Some(ingest) = &mut pull.ingest else { return Err(lost_ingest()) };
            ingest.whole_bytes(component, piece).await.map_err(stored)?;
            pull.report.bytes += got;
            env.counts.received_bytes.add(got);
            let name = file_name(&env.table_name(pull.order.table), file.generation.0);
            self.note(source, pull, |session| session.note_file(&name, file.bytes(), got));
            let Some(offer) = &mut pull.offer else { return Ok(()) };
            offer.offset += got;
            let length = file.components.get(offer.component).map_or(0, |(_, length)| *length);
            stdx::invariant!(
                offer.offset <= length,
                "INV-stream-1: {} bytes of component {component:?} fetched, it has {length}",
                offer.offset
            );
            if offer.offset >= length {
                (offer.component, offer.offset) = (offer.component + 1, 0);
            } else if got < bytes {
                stdx::reached!("stream-short-chunk");
                // A slow source sends smaller chunks: those in flight have the wrong offsets.
                asked.clear();
                chunk = got;
                next = (offer.component, offer.offset);
            }
        }
    }

    /// Tells a source that nothing more is fetched of what it holds.
    pub(super) fn end_hold(&self, source: HostId, shard: u16, pull: &Pull<'_>) {
        let Some(hold) = pull.offer.as_ref().and_then(Offer::hold) else { return };
        let to = self.to_source(source, shard, Verb::StreamClose);
        // One that does not hear of it ends the hold after a while.
        let _ = self.env.messaging.send_one_way(&to, |out| put_close(out, hold));
    }

    fn to_source(&self, host: HostId, shard: u16, verb: Verb) -> Outgoing {
        let deadline = self.env.rt.now() + self.env.settings.page_timeout;
        Outgoing { host, shard: ShardId(shard), verb, deadline, trace: None }
    }

    fn note(&self, source: HostId, pull: &Pull<'_>, change: impl FnOnce(&mut crate::SessionStats)) {
        let id = SessionKey { plan: pull.order.plan, host: source };
        let now = self.env.rt.now();
        self.env.counts.receiving(id, &pull.order.operation, now, change);
    }
}
