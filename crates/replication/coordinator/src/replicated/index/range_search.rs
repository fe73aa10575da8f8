//! Drives the machine of one search of a sub-range: asks replicas, and collects the answers of enough of them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use data::ClusteringComparator;
use data::command::{Partitions, ReadCommand};
use index_format::{IndexSearch, Matches, Neighbours, VectorSearch};
use internode::{
    ErrorReply, Verb, decode_matches, decode_neighbours, encode_index_search, encode_vector_search,
};
use messaging::{MessagingError, Outgoing};
use replica::{has_moved, of_store, replica_error, search_node, search_vectors_node};
use request::{
    Outputs, ReadPlan, ReplicaError, ReplicaInfo, RequestError, SearchConfig, SearchInput,
    SearchOutput, SearchRequest, Target,
};
use stdx::{Epoch, Instant, ShardId};
use store::StoreError;

use super::IndexReads;
use crate::local::Local;
use crate::replicated::read::plan::Plan;
use crate::shared::{ReadTrace, ReplicatedRead};

/// A search of this node that runs.
type Here<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>>>>;

/// A search that replicas answer with keys of rows.
pub(super) trait KeySearch: 'static {
    /// Answer of a node.
    type Answer: 'static;

    /// Verb of a request for it.
    const VERB: Verb;

    /// The part of the table that is searched.
    fn command(&self) -> &ReadCommand;

    /// Searches the shards of this node.
    fn search_here(&self, local: Local, order: ClusteringComparator) -> Here<Self::Answer>;

    /// Appends a request for another node.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes and checks the answer of another node.
    ///
    /// # Errors
    /// What is wrong with it.
    fn decode(&self, payload: &[u8], order: &ClusteringComparator) -> Result<Self::Answer, String>;
}

impl KeySearch for IndexSearch {
    type Answer = Matches;

    const VERB: Verb = Verb::IndexSearch;

    fn command(&self) -> &ReadCommand {
        &self.command
    }

    fn search_here(&self, local: Local, order: ClusteringComparator) -> Here<Matches> {
        let search = self.clone();
        Box::pin(async move { search_node(&local, search, &order).await })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_index_search(out, self);
    }

    fn decode(&self, payload: &[u8], order: &ClusteringComparator) -> Result<Matches, String> {
        let matches = decode_matches(payload).map_err(|error| error.to_string())?;
        index_read::check(&matches, self, order)?;
        Ok(matches)
    }
}

impl KeySearch for VectorSearch {
    type Answer = Neighbours;

    const VERB: Verb = Verb::VectorSearch;

    fn command(&self) -> &ReadCommand {
        &self.command
    }

    fn search_here(&self, local: Local, order: ClusteringComparator) -> Here<Neighbours> {
        let search = self.clone();
        Box::pin(async move { search_vectors_node(&local, search, &order).await })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_vector_search(out, self);
    }

    fn decode(&self, payload: &[u8], order: &ClusteringComparator) -> Result<Neighbours, String> {
        let answer = decode_neighbours(payload).map_err(|error| error.to_string())?;
        index_read::check_neighbours(&answer, self, order)?;
        Ok(answer)
    }
}

/// Why a search of a sub-range gave nothing.
#[derive(Debug)]
pub(super) enum SearchError {
    /// A replica wants the coordinator to have this metadata first.
    Outdated(Epoch),
    /// Too few replicas answered.
    Failed(RequestError),
}

/// Searches of the sub-ranges of a read, with one plan.
#[derive(Clone)]
pub(super) struct RangeSearch<'a> {
    pub(super) this: &'a IndexReads,
    pub(super) trace: Option<&'a Rc<ReadTrace>>,
    pub(super) replicas: &'a ReplicatedRead,
    pub(super) plan: &'a Plan,
    /// The plan's.
    pub(super) epoch: Epoch,
    pub(super) comparator: ClusteringComparator,
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, ReplicaError>>>>;

/// The requests in flight of one search, and its timer.
struct Calls<T> {
    running: Vec<(Target, Answer<T>)>,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

enum Event<T> {
    Answer(Target, Result<T, ReplicaError>),
    Tick,
}

impl<T> Calls<T> {
    /// The next event. The timer guarantees that there is one until the search is done.
    async fn next(&mut self) -> Event<T> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
        for at in 0..self.running.len() {
            let Some((target, answer)) = self.running.get_mut(at) else { break };
            let Poll::Ready(answer) = answer.as_mut().poll(cx) else { continue };
            let target = *target;
            drop(self.running.remove(at));
            return Poll::Ready(Event::Answer(target, answer));
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| {
                self.timer = None;
                Event::Tick
            }),
            None => Poll::Pending,
        }
    }
}

impl RangeSearch<'_> {
    fn now(&self) -> Instant {
        self.this.local().env().rt.now()
    }

    /// Returns the metadata to plan with, if the rest of the read has other replicas than the plan lists. Messages carry the
    /// node's epoch, not the plan's, so replicas do not notice.
    pub(super) fn has_moved(&self, rest: &ReadCommand) -> Option<Epoch> {
        let cluster = &self.plan.cluster;
        let now = (cluster.parts.snapshot)();
        if now.epoch == self.epoch || now.places.last() <= self.epoch {
            return None;
        }
        let topology = cluster.topology(&now, rest.table);
        let is_moved =
            topology.is_none_or(|topology| has_moved(&topology, self.epoch, &rest.partitions));
        is_moved.then_some(now.epoch)
    }

    /// Searches a sub-range on as many of its replicas as the level needs, and unites their matches.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub(super) async fn matches(
        &self,
        replicas: ReadPlan,
        search: IndexSearch,
    ) -> Result<Matches, SearchError> {
        let limits = search.limits;
        let answers = self.run(replicas, search).await?;
        Ok(index_read::unite(answers, &self.comparator, &limits))
    }

    /// Searches a sub-range on as many of its replicas as the level needs.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub(super) async fn run<Q: KeySearch>(
        &self,
        replicas: ReadPlan,
        search: Q,
    ) -> Result<Vec<Q::Answer>, SearchError> {
        let is_range = matches!(search.command().partitions, Partitions::Range(_));
        let config = self.plan.config(self.now(), self.replicas, 1, is_range);
        let config = SearchConfig { deadline: config.deadline, speculate: config.speculate };
        let mut request = SearchRequest::new(replicas, config);
        let needed = Rc::new(Cell::new(self.epoch));
        let search = Rc::new(search);
        let mut calls: Calls<Q::Answer> = Calls { running: Vec::new(), timer: None };
        let mut answers = Vec::new();
        let mut inputs = VecDeque::from([SearchInput::Start]);
        loop {
            while let Some(input) = inputs.pop_front() {
                let mut outputs = Outputs::new();
                request.step(self.now(), input, &mut outputs);
                for output in outputs {
                    match output {
                        SearchOutput::Ask { to } => {
                            if input != SearchInput::Start {
                                self.this.inner.stand_ins.inc();
                            }
                            let Some(replica) = request.plan().replicas.get(to) else { continue };
                            let answer = self.ask(replica, &search, &needed, config.deadline);
                            calls.running.push((to, answer));
                        }
                        SearchOutput::WakeAt(at) => {
                            let rt = self.this.local().env().rt.clone();
                            calls.timer = Some(Box::pin(async move { rt.sleep_until(at).await }));
                        }
                        SearchOutput::Done(Ok(_)) => return Ok(answers),
                        SearchOutput::Done(Err(error)) => return Err(SearchError::Failed(error)),
                    }
                }
            }
            inputs.push_back(match calls.next().await {
                Event::Tick => SearchInput::Tick,
                Event::Answer(from, Ok(answer)) => {
                    answers.push(answer);
                    SearchInput::Answer { from }
                }
                Event::Answer(from, Err(reason)) => SearchInput::Failed { from, reason },
            });
            if needed.get() > self.epoch {
                return Err(SearchError::Outdated(needed.get()));
            }
        }
    }

    fn ask<Q: KeySearch>(
        &self,
        replica: &ReplicaInfo,
        search: &Rc<Q>,
        needed: &Rc<Cell<Epoch>>,
        deadline: Instant,
    ) -> Answer<Q::Answer> {
        if let Some(trace) = self.trace {
            let address = self.plan.cluster.shown(replica.host);
            trace.note(match replica.is_self {
                true => "searching indexes locally".to_owned(),
                false => format!("Enqueuing index search to {address}"),
            });
        }
        match replica.is_self {
            true => self.ask_here(search),
            false => self.ask_there(replica, search, needed, deadline),
        }
    }

    fn ask_here<Q: KeySearch>(&self, search: &Rc<Q>) -> Answer<Q::Answer> {
        let local = self.this.local().clone();
        let answer = search.search_here(local.clone(), self.comparator.clone());
        Box::pin(async move {
            answer.await.map_err(|error| {
                local.env().store.note_failure(&error);
                tracing::warn!(%error, "this node failed as a replica of an index search");
                of_store(&error)
            })
        })
    }

    fn ask_there<Q: KeySearch>(
        &self,
        replica: &ReplicaInfo,
        search: &Rc<Q>,
        needed: &Rc<Cell<Epoch>>,
        deadline: Instant,
    ) -> Answer<Q::Answer> {
        let (host, cluster) = (replica.host, self.plan.cluster.clone());
        let command = search.command();
        let shard = match &command.partitions {
            Partitions::Key(key) => {
                let map = cluster.shard_map_of(host);
                map.shard_of(command.table, codec::token_of(key))
            }
            // All shards of the replica take part; any of them asks the others.
            Partitions::Range(_) => {
                let own = self.this.local().env().rt.shard().0;
                ShardId(own.checked_rem(self.plan.shards_of(host)).unwrap_or(0))
            }
        };
        let trace = self.trace.map(|trace| trace.id());
        let outgoing = Outgoing { host, shard, verb: Q::VERB, deadline, trace };
        let answer = cluster.parts.messaging.request(&outgoing, |out| search.encode(out));
        let (search, needed) = (search.clone(), needed.clone());
        let comparator = self.comparator.clone();
        Box::pin(async move {
            let response = answer.await.map_err(|error| failed(host, &error, &needed))?;
            cluster.latencies.note(host, response.elapsed);
            search.decode(&response.payload, &comparator).map_err(|error| {
                tracing::warn!(%host, error, "discarding a replica's answer to an index search");
                ReplicaError::Unknown
            })
        })
    }
}

/// A request to a peer failed.
fn failed(host: stdx::HostId, error: &MessagingError, needed: &Cell<Epoch>) -> ReplicaError {
    match error {
        MessagingError::Remote(ErrorReply::EpochTooOld { needed: epoch }) => {
            needed.set(needed.get().max(*epoch));
        }
        MessagingError::Remote(ErrorReply::UnknownVerb(_)) => {
            tracing::warn!(%host, "peer cannot search indexes: it runs an earlier release");
            return ReplicaError::IndexNotAvailable;
        }
        _ => {}
    }
    replica_error(error)
}
