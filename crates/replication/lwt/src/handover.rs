//! Handover of registers: a node that will own ranges takes over what their acceptors know, and
//! completes rounds that their proposers left unfinished.
//!
//! Owns: the verb `PaxosRepair` of both sides (`docs/formats/internode.md`). Never: which movement is
//! under way (`node`), the merge of registers (`paxos::AcceptorState::merge`).
//!
//! INV-serial-5: a source reads the registers that it hands over at the epoch in which the newcomer is
//! pending, or later. From that epoch on it votes in no round of the previous electorate, because an
//! acceptor's turn checks the epoch again. So the registers contain everything that an old quorum
//! promised or accepted, and the newcomer itself takes part in every later round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::ranges::WholeCluster;
use cluster::topology::{finished, unmoved};
use cluster::{ClusterSnapshot, PlacementKey, TokenRange, movements};
use codec::{DecodeError, Reader, Writer};
use data::command::{KeyRange, Partitions, ReadCommand, RingBound};
use data::{ColumnRef, RowRef};
use internode::{ErrorReply, Verb};
use messaging::{Outgoing, Request as PeerRequest, Responder};
use paxos::acceptor::cells::Column;
use paxos::acceptor::{Permit, Promise, Reply};
use paxos::wire::Answer;
use paxos::{Accepted, AcceptorState, Ballot, Commit, Scope};
use stdx::{HostId, Instant, ShardId, TableId, Token, Uuid};
use store::{Flow, RowSink, StoreError};

use crate::Lwt;
use crate::acceptors::Ask;
use crate::paxos_cleanup::Nothing;
use crate::paxos_row::{Partition, PaxosTable, Payload};
use crate::serve::is_sound;
use crate::shards::Shards;
use crate::{SKEW_MAX, SerialRead, ballot_floor};

/// 2: pages of registers begin with what every partition has been promised.
const VERSION: u8 = 2;
const REGISTERS: u8 = 1;
const FINISH: u8 = 2;
/// Rows of `system.paxos` in one answer; a partition's are never parted.
const PAGE_ROWS: usize = 256;
/// Bytes of values after which an answer ends.
const PAGE_BYTES: usize = 4 << 20;

/// Why registers could not be taken over, or rounds not be finished.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HandoverError {
    /// A source did not answer; nothing is lost, it can be tried again.
    #[error("the acceptors of host {host} cannot be asked: {why}")]
    Source {
        /// Who.
        host: HostId,
        /// In its words.
        why: String,
    },
    /// Fewer replicas are alive than know together of every round.
    #[error(
        "too few replicas are alive to fetch the Paxos state of the tokens from {} to {}",
        range.start.0,
        range.end.0
    )]
    TooFewReplicas {
        /// The range.
        range: TokenRange,
    },
    /// This node's store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Outcome of a search for unfinished rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Partitions with rounds that were not known to be finished.
    pub found: u64,
    /// The part of `found` that could not be finished: too few replicas, too much contention.
    pub failed: u64,
}

/// Registers of one partition.
pub(crate) type Row = (Partition, AcceptorState<Payload>);

/// Selects the rows to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of this node.
    Node,
    /// Those of this shard.
    Shard,
}

/// A request, and where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    kind: u8,
    range: TokenRange,
    /// Begin after this key.
    after: Option<Vec<u8>>,
}

impl Wanted {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_u8(self.kind);
        out.put_i64(self.range.start.0);
        out.put_i64(self.range.end.0);
        out.put_bytes_vint(self.after.as_deref().unwrap_or_default());
    }

    fn decode(bytes: &[u8]) -> Result<Wanted, DecodeError> {
        let mut r = Reader::new(bytes, "paxos repair");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let kind = r.u8()?;
        if kind != REGISTERS && kind != FINISH {
            return Err(r.invalid(i64::from(kind)));
        }
        let range = TokenRange { start: Token(r.i64()?), end: Token(r.i64()?) };
        let after = r.bytes_vint()?;
        let after = (!after.is_empty()).then(|| after.to_vec());
        r.finish()?;
        Ok(Wanted { kind, range, after })
    }
}

fn encode_page(promised: Ballot, rows: &[Row], is_last: bool, out: &mut Vec<u8>) {
    out.put_u8(VERSION);
    out.put_u64(promised.micros());
    out.put_bool(is_last);
    out.put_u32(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    for (partition, state) in rows {
        out.put_bytes(partition.table.0.as_bytes());
        out.put_bytes_vint(&partition.key);
        let AcceptorState { promised, promised_write, accepted, committed } = state.clone();
        let promise = Promise {
            ballot: promised,
            permit: Permit::Promised,
            accepted,
            committed,
            promised_write,
        };
        let mut bytes = Vec::new();
        Answer::Reply { reply: Reply::Promise(promise), page: Vec::new() }.encode(&mut bytes);
        out.put_bytes_vint(&bytes);
    }
}

/// Decodes the source's promise to every partition, the rows, and whether this is the last page.
fn decode_page(bytes: &[u8]) -> Result<(Ballot, Vec<Row>, bool), DecodeError> {
    let mut r = Reader::new(bytes, "paxos registers");
    let version = r.u8()?;
    if version != VERSION {
        return Err(r.invalid(i64::from(version)));
    }
    let promised = r.u64()?;
    let promised = if promised == 0 { Ballot::ZERO } else { ballot_floor::at(promised) };
    let is_last = r.bool()?;
    let count = usize::try_from(r.u32()?).unwrap_or(usize::MAX);
    let mut rows = Vec::with_capacity(r.check_count(count, 20)?);
    for _ in 0..count {
        let table = TableId(Uuid::from_bytes(r.array()?));
        let key: Arc<[u8]> = r.bytes_vint()?.into();
        let Answer::Reply { reply: Reply::Promise(promise), .. } =
            Answer::<Payload>::decode(r.bytes_vint()?)?
        else {
            return Err(r.invalid(0));
        };
        let Promise { ballot: promised, promised_write, accepted, committed, .. } = promise;
        let state = AcceptorState { promised, promised_write, accepted, committed };
        rows.push((Partition { table, key }, state));
    }
    r.finish()?;
    Ok((promised, rows, is_last))
}

/// A range of tokens as ranges of keys that do not wrap.
fn key_ranges(range: TokenRange) -> Vec<KeyRange> {
    let bound = |token| RingBound::Token { token, after: true };
    let whole = KeyRange::all();
    if range.start < range.end {
        return vec![KeyRange { start: bound(range.start), end: bound(range.end) }];
    }
    vec![
        KeyRange { start: bound(range.start), end: whole.end },
        KeyRange { start: whole.start, end: bound(range.end) },
    ]
}

/// Takes rows of `system.paxos`.
struct Rows<'t> {
    table: &'t PaxosTable,
    key: Arc<[u8]>,
    rows: Vec<Row>,
    bytes: usize,
    /// Number of unreadable rows, for example of Cassandra: they are left unmodified.
    unreadable: usize,
    is_full: bool,
}

impl RowSink for Rows<'_> {
    fn partition(&mut self, _: Token, key: &[u8], _: Option<RowRef<'_>>) -> Flow {
        self.key = key.into();
        Flow::Continue
    }

    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        let Some(table) = table_of(clustering) else { return Flow::Continue };
        let mut cells: Vec<(Column, &[u8])> = Vec::new();
        for (column, id) in self.table.columns() {
            if let Some(ColumnRef::Simple(cell)) = row.column(*id) {
                self.bytes = self.bytes.saturating_add(cell.value.len());
                cells.push((*column, cell.value));
            }
        }
        let cell = |column| cells.iter().find(|(c, _)| *c == column).map(|(_, value)| *value);
        match AcceptorState::from_row(cell) {
            Ok(state) => self.rows.push((Partition { table, key: self.key.clone() }, state)),
            Err(_) => self.unreadable += 1,
        }
        Flow::Continue
    }

    fn partition_end(&mut self) -> Flow {
        self.is_full = self.rows.len() >= PAGE_ROWS || self.bytes >= PAGE_BYTES;
        if self.is_full { Flow::Stop } else { Flow::Continue }
    }
}

fn table_of(clustering: &[u8]) -> Option<TableId> {
    let id = data::clustering::components(clustering).next()??;
    Some(TableId(Uuid::from_bytes(id.try_into().ok()?)))
}

impl<N: Shards> Lwt<N> {
    /// Returns a page of the registers of a range's partitions, after a key, and whether it is the
    /// last one.
    pub(crate) async fn registers(
        &self,
        snapshot: &ClusterSnapshot,
        range: TokenRange,
        after: Option<&[u8]>,
        reach: Reach,
    ) -> Result<(Vec<Row>, bool), StoreError> {
        let Some(table) = PaxosTable::of(&snapshot.schema) else { return Ok((Vec::new(), true)) };
        let start = after.map(|key| (codec::token_of(key), key));
        let mut sink = Rows {
            table: &table,
            key: Arc::from(&[][..]),
            rows: Vec::new(),
            bytes: 0,
            unreadable: 0,
            is_full: false,
        };
        let mut ranges = key_ranges(range);
        if let Some((token, key)) = start {
            // Ranges before the one that contains the key are done.
            let holds = |r: &KeyRange| match (&r.start, &r.end) {
                (RingBound::Token { token: a, after }, RingBound::Token { token: b, .. }) => {
                    (*a < token || !*after && *a == token) && token <= *b
                }
                _ => false,
            };
            let at = ranges.iter().position(holds).unwrap_or(ranges.len());
            ranges.drain(..at);
            if let Some(first) = ranges.first_mut() {
                first.start = RingBound::Key { token, key: key.to_vec(), after: true };
            }
        }
        for range in ranges {
            let command = ReadCommand::whole(
                table.id(),
                Partitions::Range(range),
                self.env().rt.wall().seconds(),
            );
            match reach {
                Reach::Node => self.inner.node.read(&command, &mut sink).await?,
                Reach::Shard => self.env().store.read(&command, &mut sink).await?,
            };
            if sink.is_full {
                break;
            }
        }
        if sink.unreadable > 0 {
            tracing::warn!(rows = sink.unreadable, "leaving unreadable rows in system.paxos");
        }
        Ok((sink.rows, !sink.is_full))
    }

    /// Takes over the registers of the present owners for the ranges that this node will own when
    /// the movement of `moving` (itself, or a node that leaves) is finished, durably. Returns the
    /// number of partitions.
    ///
    /// Must be called when every live member has applied the epoch at which this node became
    /// pending, and before the step after which it counts as a natural replica. May be repeated.
    /// With `as_many_as_live` the registers of dead replicas are abandoned, as their data is.
    /// `dead` is a node that is known to be dead, whatever this node has seen of it so far.
    ///
    /// # Errors
    /// See [`HandoverError`].
    pub async fn take_over_registers(
        &self,
        moving: HostId,
        dead: Option<HostId>,
        as_many_as_live: bool,
        patience: std::time::Duration,
    ) -> Result<u64, HandoverError> {
        let Some(cluster) = self.cluster() else { return Ok(0) };
        let snapshot = (cluster.parts.snapshot)();
        let me = snapshot.local.host_id;
        let is_alive = |host: HostId| Some(host) != dead && (cluster.parts.is_alive)(host);
        let (before, after) = (unmoved(&snapshot), finished(&snapshot, moving));
        // True if user tables are replicated so: system tables do not hold a movement up.
        let mut keys: BTreeMap<PlacementKey, bool> = BTreeMap::new();
        for keyspace in snapshot.schema.keyspaces.values() {
            let key = PlacementKey::of_keyspace(&snapshot, keyspace);
            if !key.is_local() && !keyspace.tables.is_empty() {
                let is_users = !keyspace.name.starts_with("system");
                *keys.entry(key).or_default() |= is_users;
            }
        }
        let mut taken = 0;
        for (key, is_users) in keys {
            let (before, after) = (key.placements_among(&before), key.placements_among(&after));
            for movement in movements(&before, &after).iter().filter(|m| m.to == me) {
                if movement.from.is_empty() {
                    continue;
                }
                let sources = match movement.sources(is_alive, WholeCluster::Yes) {
                    Some(sources) => sources.to_vec(),
                    None if as_many_as_live || !is_users => {
                        movement.from.iter().copied().filter(|h| is_alive(*h)).collect()
                    }
                    None => return Err(HandoverError::TooFewReplicas { range: movement.range }),
                };
                for source in sources {
                    taken += self.take_over_from(source, movement.range, None, patience).await?;
                }
            }
        }
        Ok(taken)
    }

    /// Like [`Lwt::take_over_registers`], for the present stage of the handover of a keyspace
    /// that has got other replicas: from all old ones that are alive.
    ///
    /// # Errors
    /// See [`HandoverError`].
    pub async fn inherit_registers(
        &self,
        keyspace: &str,
        patience: std::time::Duration,
    ) -> Result<u64, HandoverError> {
        let Some(cluster) = self.cluster() else { return Ok(0) };
        let snapshot = (cluster.parts.snapshot)();
        let me = snapshot.local.host_id;
        let is_alive = |host: HostId| host == me || (cluster.parts.is_alive)(host);
        let Some(found) = snapshot.schema.keyspace(keyspace) else { return Ok(0) };
        let tables = found.tables.values().map(|t| t.id).collect();
        let mut taken = 0;
        for inherited in snapshot.inherits(keyspace, me) {
            let range = inherited.range;
            if !snapshot.knows_all(&inherited.from, is_alive) {
                return Err(HandoverError::TooFewReplicas { range });
            }
            for source in inherited.from.into_iter().filter(|h| *h != me && is_alive(*h)) {
                taken += self.take_over_from(source, range, Some(&tables), patience).await?;
            }
        }
        Ok(taken)
    }

    /// `only`: of these tables.
    async fn take_over_from(
        &self,
        host: HostId,
        range: TokenRange,
        only: Option<&BTreeSet<TableId>>,
        patience: std::time::Duration,
    ) -> Result<u64, HandoverError> {
        let mut ask = Wanted { kind: REGISTERS, range, after: None };
        let mut taken = 0;
        loop {
            let payload = self.ask_host(host, &ask, patience).await?;
            let unusable =
                |error: DecodeError| HandoverError::Source { host, why: error.to_string() };
            let (promised, mut rows, is_last) = decode_page(&payload).map_err(unusable)?;
            // Before the rows: the promise also covers partitions without a row.
            self.promise_to_all(host, promised).await?;
            ask.after = rows.last().map(|(partition, _)| partition.key.to_vec());
            rows.retain(|(partition, _)| only.is_none_or(|only| only.contains(&partition.table)));
            taken += u64::try_from(rows.len()).unwrap_or(u64::MAX);
            self.adopt(rows).await?;
            if is_last || ask.after.is_none() {
                return Ok(taken);
            }
        }
    }

    /// Takes over what another replica has promised to every partition.
    async fn promise_to_all(&self, host: HostId, promised: Ballot) -> Result<(), HandoverError> {
        let now = self.env().rt.wall();
        let max_micros = u64::try_from(SKEW_MAX.as_micros()).unwrap_or(u64::MAX);
        paxos::ballot::check_skew(promised, now, max_micros)
            .map_err(|error| HandoverError::Source { host, why: error.to_string() })?;
        self.inner.acceptors.show_promises(promised).await?;
        Ok(())
    }

    async fn ask_host(
        &self,
        host: HostId,
        ask: &Wanted,
        patience: std::time::Duration,
    ) -> Result<Vec<u8>, HandoverError> {
        let Some(cluster) = self.cluster() else { return Err(StoreError::Stopping.into()) };
        let outgoing = Outgoing {
            host,
            shard: ShardId(0),
            verb: Verb::PaxosRepair,
            deadline: self.env().rt.now() + patience,
            trace: None,
        };
        let answer = cluster.parts.messaging.request(&outgoing, |out| ask.encode(out)).await;
        let source = |why: String| HandoverError::Source { host, why };
        Ok(answer.map_err(|error| source(error.to_string()))?.payload)
    }

    /// Merges registers into this node's acceptors, durably.
    async fn adopt(&self, rows: Vec<Row>) -> Result<(), StoreError> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let snapshot = (cluster.parts.snapshot)();
        let Some(table) = PaxosTable::of(&snapshot.schema) else { return Ok(()) };
        let mut answers = Vec::new();
        for (partition, state) in rows {
            // The table was dropped.
            let Some(facts) = self.env().facts(&snapshot, partition.table) else {
                continue;
            };
            let accepted = state.accepted.as_ref().and_then(|a| a.value.as_ref());
            let committed = state.committed.as_ref().and_then(|c| c.value.as_ref());
            let mut values = accepted.into_iter().chain(committed);
            if !values.all(|value| is_sound(&facts.table, &partition, value)) {
                return Err(StoreError::Invalid(
                    "a value of a fetched Paxos round is not a mutation of its \
                    partition"
                        .to_owned(),
                ));
            }
            let truncated_at = snapshot.truncations.get(&partition.table).map(|t| t.truncated_at);
            let durable = facts.durable;
            answers.push(self.inner.acceptors.ask(Ask::adopt(
                partition,
                state,
                durable,
                truncated_at,
                table,
            )));
        }
        for answer in answers {
            answer.await?;
        }
        Ok(())
    }

    /// Finishes the rounds of a range that this node knows to have begun and not to have ended, each
    /// by a serial read. With all live replicas of the range doing so, or a quorum of them, no
    /// accepted value of a round before is left uncommitted.
    ///
    /// # Errors
    /// The store's.
    pub async fn finish_rounds(
        &self,
        range: TokenRange,
        deadline: Instant,
    ) -> Result<Finished, StoreError> {
        let Some(cluster) = self.cluster() else { return Ok(Finished::default()) };
        let mut done = Finished::default();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let snapshot = (cluster.parts.snapshot)();
            let (rows, is_last) =
                self.registers(&snapshot, range, after.as_deref(), Reach::Node).await?;
            after = rows.last().map(|(partition, _)| partition.key.to_vec());
            for (partition, state) in &rows {
                if !is_unfinished(state) || self.is_dropped(&snapshot, partition) {
                    continue;
                }
                done.found += 1;
                if !self.finish_partition(&snapshot, partition, deadline).await {
                    done.failed += 1;
                }
            }
            if is_last || after.is_none() {
                return Ok(done);
            }
        }
    }

    fn is_dropped(&self, snapshot: &ClusterSnapshot, partition: &Partition) -> bool {
        self.env().facts(snapshot, partition.table).is_none()
    }

    async fn finish_partition(
        &self,
        snapshot: &Arc<ClusterSnapshot>,
        partition: &Partition,
        deadline: Instant,
    ) -> bool {
        let command = ReadCommand::whole(
            partition.table,
            Partitions::Key(partition.key.to_vec()),
            self.env().rt.wall().seconds(),
        );
        let order = SerialRead {
            snapshot: snapshot.clone(),
            scope: Scope::Global,
            deadline,
            rows_wanted: 1,
            rows_per_partition: 1,
            trace: None,
        };
        // It completes the rounds that it finds; the rows are not needed.
        let mut nothing = Nothing::default();
        self.read_serial(&command, &order, &mut nothing).await.is_ok()
    }

    /// Has another node, or this one, finish the rounds that it knows of in a range
    /// ([`Lwt::finish_rounds`]).
    ///
    /// # Errors
    /// See [`HandoverError`].
    pub async fn finish_rounds_at(
        &self,
        host: HostId,
        range: TokenRange,
        patience: std::time::Duration,
    ) -> Result<Finished, HandoverError> {
        let Some(cluster) = self.cluster() else { return Ok(Finished::default()) };
        if (cluster.parts.snapshot)().local.host_id == host {
            let deadline = self.env().rt.now() + patience;
            return Ok(self.finish_rounds(range, deadline).await?);
        }
        let ask = Wanted { kind: FINISH, range, after: None };
        let payload = self.ask_host(host, &ask, patience).await?;
        let read = || -> Result<Finished, DecodeError> {
            let mut r = Reader::new(&payload, "paxos repair answer");
            let version = r.u8()?;
            if version != VERSION {
                return Err(r.invalid(i64::from(version)));
            }
            let finished = Finished { found: r.u64()?, failed: r.u64()? };
            r.finish()?;
            Ok(finished)
        };
        read().map_err(|error| HandoverError::Source { host, why: error.to_string() })
    }

    /// Serves the verb `PaxosRepair`.
    pub fn serve_handover(&self, request: &PeerRequest<'_>, responder: Responder) {
        let ask = match Wanted::decode(request.payload) {
            Ok(ask) => ask,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let (epoch, deadline) = (request.epoch, request.deadline);
        let this = self.clone();
        self.env().spawn_or_drop("paxos-handover", async move {
            let Some(cluster) = this.cluster() else {
                return responder.fail(&ErrorReply::Stopping);
            };
            cluster.wait_for(epoch, deadline).await;
            let snapshot = (cluster.parts.snapshot)();
            if snapshot.epoch < epoch {
                return responder.fail(&ErrorReply::EpochTooNew { known: snapshot.epoch });
            }
            if ask.kind == FINISH {
                return match this.finish_rounds(ask.range, deadline).await {
                    Ok(Finished { found, failed }) => responder.respond(|out| {
                        out.put_u8(VERSION);
                        out.put_u64(found);
                        out.put_u64(failed);
                    }),
                    Err(error) => responder.fail(&replica::error_reply(&error)),
                };
            }
            let page = async {
                let promised = this.inner.acceptors.show_promises(Ballot::ZERO).await?;
                let after = ask.after.as_deref();
                let (rows, is_last) =
                    this.registers(&snapshot, ask.range, after, Reach::Node).await?;
                Ok::<_, StoreError>((promised, rows, is_last))
            };
            match page.await {
                Ok((promised, rows, is_last)) => {
                    responder.respond(|out| encode_page(promised, &rows, is_last, out));
                }
                Err(error) => responder.fail(&replica::error_reply(&error)),
            }
        });
    }
}

/// Returns true if a round may have accepted a value that is not known to be committed.
fn is_unfinished(state: &AcceptorState<Payload>) -> bool {
    let committed = state.committed.as_ref().map(|c: &Commit<Payload>| c.ballot);
    let is_newer = |a: &Accepted<Payload>| committed.is_none_or(|c| a.ballot.is_newer_than(c));
    state.accepted.as_ref().is_some_and(|a| !a.is_empty() && is_newer(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_pages_come_back_and_damaged_ones_are_refused() {
        let range = TokenRange { start: Token(5), end: Token(-5) };
        for after in [None, Some(vec![1, 2])] {
            let ask = Wanted { kind: REGISTERS, range, after };
            let mut bytes = Vec::new();
            ask.encode(&mut bytes);
            assert_eq!(Wanted::decode(&bytes).unwrap(), ask);
            for length in 0..bytes.len() {
                assert!(Wanted::decode(&bytes[..length]).is_err());
            }
            bytes[1] = 3;
            assert!(Wanted::decode(&bytes).is_err());
        }
        let at = |micros| Ballot::new(micros, Scope::Global, 1 << 63);
        let state = AcceptorState {
            promised: at(9),
            promised_write: at(8),
            accepted: Some(Accepted::first(at(7), Some(Payload::from(vec![1])))),
            committed: Some(Commit { ballot: at(3), origin: at(2), value: None }),
        };
        let partition =
            Partition { table: TableId(Uuid::from_bytes([7; 16])), key: Arc::from(&[4, 5][..]) };
        let rows = vec![(partition, state)];
        let mut bytes = Vec::new();
        encode_page(ballot_floor::at(5), &rows, true, &mut bytes);
        assert_eq!(decode_page(&bytes).unwrap(), (ballot_floor::at(5), rows, true));
        for length in 0..bytes.len() {
            assert!(decode_page(&bytes[..length]).is_err());
        }
    }
}
