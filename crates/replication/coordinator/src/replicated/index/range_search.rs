//! Drives the machine of one search of a sub-range: asks replicas, and unites the matches of enough of them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use data::ClusteringComparator;
use data::command::Partitions;
use index_format::{IndexSearch, Matches};
use internode::{ErrorReply, Verb, decode_matches, encode_index_search};
use messaging::{MessagingError, Outgoing};
use replica::{of_store, replica_error, search_node};
use request::{
    Outputs, ReadPlan, ReplicaError, ReplicaInfo, RequestError, SearchConfig, SearchInput,
    SearchOutput, SearchRequest, Target,
};
use stdx::{Epoch, Instant, ShardId};

use super::{IndexOrder, IndexReads};
use crate::replicated::read::plan::Plan;
use crate::shared::ReplicatedRead;

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
    pub(super) order: &'a IndexOrder<'a>,
    pub(super) replicas: &'a ReplicatedRead,
    pub(super) plan: &'a Plan,
    /// The plan's.
    pub(super) epoch: Epoch,
    pub(super) comparator: ClusteringComparator,
}

type Answer = Pin<Box<dyn Future<Output = Result<Matches, ReplicaError>>>>;

/// The requests in flight of one search, and its timer.
#[derive(Default)]
struct Calls {
    running: Vec<(Target, Answer)>,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

enum Event {
    Answer(Target, Result<Matches, ReplicaError>),
    Tick,
}

impl Calls {
    /// The next event. The timer guarantees that there is one until the search is done.
    async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
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

    /// Searches a sub-range on as many of its replicas as the level needs.
    ///
    /// # Errors
    /// See [`SearchError`].
    pub(super) async fn run(
        &self,
        replicas: ReadPlan,
        search: IndexSearch,
    ) -> Result<Matches, SearchError> {
        let is_range = matches!(search.command.partitions, Partitions::Range(_));
        let config = self.plan.config(self.now(), self.replicas, 1, is_range);
        let config = SearchConfig { deadline: config.deadline, speculate: config.speculate };
        let mut request = SearchRequest::new(replicas, config);
        let needed = Rc::new(Cell::new(self.epoch));
        let search = Rc::new(search);
        let (mut calls, mut answers) = (Calls::default(), Vec::new());
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
                        SearchOutput::Done(Ok(_)) => {
                            return Ok(index_read::unite(
                                answers,
                                &self.comparator,
                                &search.limits,
                            ));
                        }
                        SearchOutput::Done(Err(error)) => return Err(SearchError::Failed(error)),
                    }
                }
            }
            inputs.push_back(match calls.next().await {
                Event::Tick => SearchInput::Tick,
                Event::Answer(from, Ok(matches)) => {
                    answers.push(matches);
                    SearchInput::Answer { from }
                }
                Event::Answer(from, Err(reason)) => SearchInput::Failed { from, reason },
            });
            if needed.get() > self.epoch {
                return Err(SearchError::Outdated(needed.get()));
            }
        }
    }

    fn ask(
        &self,
        replica: &ReplicaInfo,
        search: &Rc<IndexSearch>,
        needed: &Rc<Cell<Epoch>>,
        deadline: Instant,
    ) -> Answer {
        if let Some(trace) = self.order.trace {
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

    fn ask_here(&self, search: &Rc<IndexSearch>) -> Answer {
        let (this, search) = (self.this.clone(), search.clone());
        let comparator = self.comparator.clone();
        Box::pin(async move {
            let local = this.local();
            let matches = search_node(local, IndexSearch::clone(&search), &comparator).await;
            matches.map_err(|error| {
                local.env().store.note_failure(&error);
                tracing::warn!(%error, "this node failed as a replica of an index search");
                of_store(&error)
            })
        })
    }

    fn ask_there(
        &self,
        replica: &ReplicaInfo,
        search: &Rc<IndexSearch>,
        needed: &Rc<Cell<Epoch>>,
        deadline: Instant,
    ) -> Answer {
        let (host, cluster) = (replica.host, self.plan.cluster.clone());
        let shard = match &search.command.partitions {
            Partitions::Key(key) => {
                let map = cluster.shard_map_of(host);
                map.shard_of(search.command.table, codec::token_of(key))
            }
            // All shards of the replica take part; any of them asks the others.
            Partitions::Range(_) => {
                let own = self.this.local().env().rt.shard().0;
                ShardId(own.checked_rem(self.plan.shards_of(host)).unwrap_or(0))
            }
        };
        let trace = self.order.trace.map(|trace| trace.id());
        let outgoing = Outgoing { host, shard, verb: Verb::IndexSearch, deadline, trace };
        let answer =
            cluster.parts.messaging.request(&outgoing, |out| encode_index_search(out, search));
        let (search, needed) = (search.clone(), needed.clone());
        let comparator = self.comparator.clone();
        Box::pin(async move {
            let response = answer.await.map_err(|error| failed(host, &error, &needed))?;
            cluster.latencies.note(host, response.elapsed);
            let matches = decode_matches(&response.payload).map_err(|error| error.to_string());
            let checked = matches.and_then(|matches| {
                index_read::check(&matches, &search, &comparator)?;
                Ok(matches)
            });
            checked.map_err(|error| {
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
