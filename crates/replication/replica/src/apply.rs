//! The one door to a shard's data.
//!
//! Owns: admission and the application of a mutation on the shard that owns its token, and reads as a replica
//! there. Every writer (a client, a peer, hints, repair, Paxos, the node itself) calls [`Replica::admit`] and
//! [`Replica::apply`], so a step that every write needs is added here. Never: which replicas a write is sent to,
//! durability (that is `Store::commit`), rows of whole files (those are of `store::files::row_ingest`).
//!
//! The effects of an application, in their order: 1. the checks of what can be written; 2. the commit log; 3.
//! the cache of counters; 4. the memtable. [`Store::apply`] keeps that order.
//!
//! INV-replica-1: nothing is applied whose bytes do not open as a mutation.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use data::{MutationRef, RowFilter};
use index_format::{IndexSearch, Matches, Neighbours, VectorSearch};
use stdx::{ShardId, ShardMap, TableId, Token};
use store::{ReadScope, ReplicaRead, ReplicaShown, Store, StoreError};

use crate::replica_query::ReplicaQuery;

/// One mutation for one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaMutation<B = Vec<u8>> {
    /// Token of its partition.
    pub token: Token,
    /// The encoded mutation.
    pub bytes: B,
    /// False: its keyspace has `durable_writes = false`, so it is not logged.
    pub durable: bool,
}

impl<B: AsRef<[u8]>> ReplicaMutation<B> {
    /// One whose keyspace logs its writes.
    pub fn durable(token: Token, bytes: B) -> ReplicaMutation<B> {
        ReplicaMutation { token, bytes, durable: true }
    }

    /// The same, borrowed.
    pub fn as_slice(&self) -> ReplicaMutation<&[u8]> {
        self.with_bytes(self.bytes.as_ref())
    }

    /// Another mutation of the same partition.
    pub fn with_bytes<C>(&self, bytes: C) -> ReplicaMutation<C> {
        ReplicaMutation { token: self.token, bytes, durable: self.durable }
    }

    /// The same with bytes of its own.
    pub fn to_owned(&self) -> ReplicaMutation {
        self.with_bytes(self.bytes.as_ref().to_vec())
    }

    /// The shard that owns its partition on a node with such a map.
    #[inline]
    pub fn owner(&self, map: ShardMap) -> ShardId {
        map.shard_of_lazy(self.token, || match self.table() {
            Some(table) => table,
            None => stdx::invariant::broken(format_args!(
                "INV-replica-1: a mutation made by this node does not open"
            )),
        })
    }

    /// Its table; `None`: the bytes are no mutation.
    pub fn table(&self) -> Option<TableId> {
        Some(MutationRef::open(self.bytes.as_ref())?.table)
    }
}

/// Source of a write. It decides how the write is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client's statement, of a node that is alone.
    Client,
    /// A coordinator: this one, another shard's or a peer's.
    Coordinator,
    /// Read repair: a coordinator found this replica outdated when it read.
    ReadRepair,
    /// A repair.
    Repair,
    /// Hints that are handed to the present replicas.
    Hint,
    /// The log of batches: its entries.
    BatchLog,
    /// The log of batches: that an entry is over. Never refused, or the batch is replayed for nothing.
    BatchDone,
    /// Batches of the log that are replayed.
    BatchReplay,
    /// Rows that an operator loads.
    Load,
    /// Increments, admitted before the count was read.
    Counter,
    /// State of a Paxos partition or what it decided, admitted when the proposal was.
    Paxos,
    /// Removal of unused rows of Paxos state.
    PaxosCleanup,
    /// The node's own tables.
    System,
}

impl Origin {
    /// Returns true if the write was admitted earlier, so that it must not be refused now for want
    /// of room.
    fn is_admitted(self) -> bool {
        matches!(self, Origin::BatchDone | Origin::Counter | Origin::Paxos)
    }
}

/// Proof that writes were admitted, for as long as nothing is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Admitted(());

/// See the module.
pub struct Replica {
    store: Store,
    /// Searches in the store's place, in tests.
    searcher: OnceCell<IndexSearcher>,
    vector_searcher: OnceCell<VectorSearcher>,
}

/// Searches in the place of a shard's store, for tests.
pub type IndexSearcher =
    Rc<dyn Fn(IndexSearch) -> Pin<Box<dyn Future<Output = Result<Matches, StoreError>>>>>;

/// The same of searches by vectors.
pub type VectorSearcher =
    Rc<dyn Fn(VectorSearch) -> Pin<Box<dyn Future<Output = Result<Neighbours, StoreError>>>>>;

impl Replica {
    pub(crate) fn new(store: Store) -> Replica {
        Replica { store, searcher: OnceCell::new(), vector_searcher: OnceCell::new() }
    }

    /// Checks that there is room for writes of this origin. Tables whose rows show metadata have a
    /// reserve.
    ///
    /// # Errors
    /// Those of [`Store::admit_write`].
    #[inline]
    pub fn admit(&self, origin: Origin, table: Option<TableId>) -> Result<Admitted, StoreError> {
        match (origin.is_admitted(), table) {
            (true, _) => {}
            (false, Some(table)) => self.store.writer().admit_write_of(table)?,
            (false, None) => self.store.writer().admit_write()?,
        }
        Ok(Admitted(()))
    }

    /// Waits for room, at most `room_wait_max` of the store's options.
    ///
    /// # Errors
    /// Those of [`Store::wait_for_room`].
    pub async fn wait_for_room(&self) -> Result<Admitted, StoreError> {
        self.store.writer().wait_for_room().await?;
        Ok(Admitted(()))
    }

    /// Applies a mutation whose token this shard owns. Synchronous; the answer may be sent only after
    /// [`Store::commit`].
    ///
    /// # Errors
    /// Those of [`Store::apply`]; nothing was applied then.
    #[inline]
    pub fn apply<B: AsRef<[u8]>>(
        &self,
        mutation: &ReplicaMutation<B>,
        _admitted: Admitted,
    ) -> Result<(), StoreError> {
        // INV-replica-1.
        let Some(opened) = MutationRef::open(mutation.bytes.as_ref()) else {
            stdx::invariant::broken(format_args!(
                "INV-replica-1: a mutation made by this node does not open"
            ))
        };
        self.store.apply(&opened, mutation.durable)
    }

    /// Admits and applies one mutation.
    ///
    /// # Errors
    /// Those of [`Replica::admit`] and [`Replica::apply`].
    pub fn admit_and_apply<B: AsRef<[u8]>>(
        &self,
        mutation: &ReplicaMutation<B>,
        origin: Origin,
    ) -> Result<(), StoreError> {
        let admitted = self.admit(origin, mutation.table())?;
        self.apply(mutation, admitted)
    }

    /// Has this search in the place of the store. For tests; once.
    pub fn search_with(&self, searcher: IndexSearcher) {
        let _ = self.searcher.set(searcher);
    }

    /// Searches this shard's indexes. What is found must still be read and filtered.
    ///
    /// # Errors
    /// Those of the store's searches; `IndexNotAvailable` for an index that is unknown here or not built yet.
    pub async fn search(&self, search: &IndexSearch) -> Result<Matches, StoreError> {
        if let Some(searcher) = self.searcher.get() {
            return searcher(search.clone()).await;
        }
        self.store.reader().search_index(search).await
    }

    /// See [`Replica::search_with`].
    pub fn search_vectors_with(&self, searcher: VectorSearcher) {
        let _ = self.vector_searcher.set(searcher);
    }

    /// Searches the rows of this shard whose vectors are nearest, best first.
    ///
    /// # Errors
    /// Those of the store's searches; `IndexNotAvailable` for an index that is unknown here or not built yet.
    pub async fn search_vectors(&self, search: &VectorSearch) -> Result<Neighbours, StoreError> {
        if let Some(searcher) = self.vector_searcher.get() {
            return searcher(search.clone()).await;
        }
        self.store.reader().search_vectors(search).await
    }

    /// Reads this shard's data as a replica: with tombstones, for a coordinator that merges. With a
    /// filter, also returns the rows of the page that pass it.
    ///
    /// # Errors
    /// Those of the store's reads.
    pub async fn read(
        &self,
        query: &ReplicaQuery,
        filter: Option<&dyn RowFilter>,
    ) -> Result<ReplicaRead, StoreError> {
        let ReplicaQuery { command, limits, purge_before, scope } = query;
        let store = &self.store;
        if *scope != ReadScope::All {
            return store.reader().read_for_repair(command, *limits, *purge_before, *scope).await;
        }
        let shown =
            ReplicaShown { counts_static: command.wants_static, purge_before: *purge_before };
        store.reader().read_replica_filtered(command, *limits, shown, filter).await
    }
}
