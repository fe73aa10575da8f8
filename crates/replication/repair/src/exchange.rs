//! Questions to replicas and mutations for them, asked again while that can help.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use coordinator::{Origin, ReplicaMutation};
use data::MutationRef;
use internode::{ErrorReply, Mutation, MutationFlags, Verb};
use messaging::{MessagingError, Outgoing};
use stdx::{HostId, ShardId, ShardMap, TableId, Token, Uuid};
use store::StoreError;

use crate::env::Env;
use crate::error::RepairError;
use crate::job::Job;
use crate::shards::{Order, Shards};

/// Work that is polled together with others.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, RepairError>> + 'a>>;

/// Runs all work, at most `at_once` at a time. Returns the results in order; the first error ends
/// it.
pub(crate) async fn all<T>(work: Vec<Work<'_, T>>, at_once: usize) -> Result<Vec<T>, RepairError> {
    let mut results: Vec<Option<T>> = work.iter().map(|_| None).collect();
    let mut waiting = work.into_iter().enumerate();
    let mut running: Vec<(usize, Work<'_, T>)> = Vec::new();
    poll_fn(|cx| {
        loop {
            while running.len() < at_once.max(1)
                && let Some(next) = waiting.next()
            {
                running.push(next);
            }
            let before = running.len();
            let mut failed = None;
            running.retain_mut(|(at, work)| match work.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Ok(result)) => {
                    match results.get_mut(*at) {
                        Some(slot) => *slot = Some(result),
                        None => stdx::invariant!(false, "repair: an answer has no place"),
                    }
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed = failed.take().or(Some(error));
                    false
                }
            });
            if let Some(error) = failed {
                return Poll::Ready(Err(error));
            }
            if running.is_empty() && waiting.len() == 0 {
                return Poll::Ready(Ok(()));
            }
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await?;
    let count = results.len();
    let results: Vec<T> = results.into_iter().flatten().collect();
    stdx::invariant!(
        results.len() == count,
        "INV-repair-1: {} results of {count}, those behind the gap would count for others",
        results.len()
    );
    Ok(results)
}

/// Failure of a request, by whether a retry can help.
enum Trouble {
    Again(String),
    Final(String),
    Stopping,
}

fn trouble_of(error: &MessagingError) -> Trouble {
    match error {
        MessagingError::Stopping => Trouble::Stopping,
        MessagingError::UnknownHost(_)
        | MessagingError::TooLarge { .. }
        | MessagingError::Refused { .. }
        | MessagingError::Malformed
        | MessagingError::Remote(
            ErrorReply::Corrupt
            | ErrorReply::DiskFull
            | ErrorReply::Invalid(_)
            | ErrorReply::TombstoneOverwhelming { .. }
            | ErrorReply::UnknownVerb(_),
        ) => Trouble::Final(error.to_string()),
        _ => Trouble::Again(error.to_string()),
    }
}

/// Destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    host: HostId,
    /// `None`: shard 0, which keeps sessions.
    partition: Option<(TableId, Token)>,
}

impl Destination {
    /// The shard of a node that has a table's token.
    pub(crate) fn owner(host: HostId, table: TableId, token: Token) -> Destination {
        Destination { host, partition: Some((table, token)) }
    }

    /// Shard 0 of a node.
    pub(crate) fn node(host: HostId) -> Destination {
        Destination { host, partition: None }
    }
}

/// The replicas of what is repaired: this node and its peers.
pub(crate) struct Exchange {
    env: Rc<Env>,
    shards: Rc<Shards>,
}

impl Exchange {
    pub(crate) fn new(env: Rc<Env>, shards: Rc<Shards>) -> Exchange {
        Exchange { env, shards }
    }

    /// Asks a replica until it answers.
    pub(crate) async fn ask(
        &self,
        job: &Job,
        to: Destination,
        verb: Verb,
        payload: &[u8],
    ) -> Result<Vec<u8>, RepairError> {
        let (env, host) = (&self.env, to.host);
        let mut pause = env.settings.retry_pause;
        let mut attempt = 0;
        loop {
            let shards = env.messaging.peer(host).map_or(1, |p| p.shard_count).max(1);
            let map = ShardMap::ByTokenHash { shards };
            let outgoing = Outgoing {
                host,
                shard: to.partition.map_or(ShardId(0), |(table, token)| map.shard_of(table, token)),
                verb,
                deadline: env.rt.now() + env.settings.answer_timeout,
                trace: None,
            };
            let asked = env.messaging.request(&outgoing, |out| out.extend_from_slice(payload));
            let error = match env.unless_ended(job, asked).await? {
                Ok(response) => return Ok(response.payload),
                Err(error) => error,
            };
            attempt += 1;
            let address = env.address(host);
            let error = match trouble_of(&error) {
                Trouble::Stopping => return Err(RepairError::Stopping),
                Trouble::Final(error) => return Err(RepairError::Peer { address, error }),
                Trouble::Again(error) => error,
            };
            if !(env.is_alive)(host) {
                return Err(RepairError::NotAlive(vec![address]));
            }
            if attempt >= env.settings.attempts {
                return Err(RepairError::Peer { address, error });
            }
            stdx::reached!("repair-asked-again");
            tracing::debug!(%host, error = error.as_str(), "retrying a request to a replica");
            env.unless_ended(job, env.rt.sleep(pause)).await?;
            pause *= 2;
        }
    }

    /// Applies a mutation on this node, or on another one, whichever misses it.
    pub(crate) async fn send(
        &self,
        job: &Job,
        to: Option<HostId>,
        mutation: &[u8],
        durable: bool,
    ) -> Result<(), RepairError> {
        let Some(opened) = MutationRef::open(mutation) else {
            stdx::invariant::broken(format_args!("mutation made by this node does not open"))
        };
        let token = codec::token_of(opened.key);
        let Some(host) = to else {
            let mutation = ReplicaMutation { token, bytes: mutation, durable };
            return self.apply(job, mutation).await;
        };
        let mut payload = Vec::with_capacity(mutation.len() + 1);
        Mutation { flags: MutationFlags::READ_REPAIR, bytes: mutation }.encode(&mut payload);
        let to = Destination::owner(host, opened.table, token);
        self.ask(job, to, Verb::Mutation, &payload).await.map(|_| ())
    }

    /// Sends data of a session that the replica lacks.
    pub(crate) async fn send_to_session(
        &self,
        job: &Job,
        to: Option<HostId>,
        mutation: &[u8],
        session: Uuid,
    ) -> Result<(), RepairError> {
        let Some(host) = to else { return Ok(self.take_in(session, mutation.to_vec()).await?) };
        let Some(opened) = MutationRef::open(mutation) else {
            stdx::invariant::broken(format_args!("mutation made by this node does not open"))
        };
        let mut payload = Vec::with_capacity(mutation.len() + 17);
        crate::wire::encode_apply(&mut payload, session, mutation);
        let to = Destination::owner(host, opened.table, codec::token_of(opened.key));
        self.ask(job, to, Verb::RepairApply, &payload).await.map(|_| ())
    }

    /// Gives a session's mutation to the shard that owns its partition.
    pub(crate) async fn take_in(&self, session: Uuid, mutation: Vec<u8>) -> Result<(), StoreError> {
        let Some(opened) = MutationRef::open(&mutation) else {
            return Err(StoreError::Invalid("not a mutation".to_owned()));
        };
        let map = self.env.coordinator.shard_map();
        let owner = map.shard_of(opened.table, codec::token_of(opened.key));
        self.shards.on_one(owner, Order::Apply { session, mutation }).await.map(|_| ())
    }

    async fn apply(&self, job: &Job, mutation: ReplicaMutation<&[u8]>) -> Result<(), RepairError> {
        let mut pause = self.env.settings.retry_pause;
        for _ in 1..self.env.settings.attempts {
            match self.env.coordinator.apply(mutation.to_owned(), Origin::Repair).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Overloaded { .. } | StoreError::QueueFull) => {}
                Err(error) => return Err(error.into()),
            }
            self.env.unless_ended(job, self.env.rt.sleep(pause)).await?;
            pause *= 2;
        }
        Ok(self.env.coordinator.apply(mutation.to_owned(), Origin::Repair).await?)
    }
}
