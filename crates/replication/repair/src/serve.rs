//! The other side: digests and pages of segments for repairs of other nodes.

use std::cell::Cell;
use std::rc::Rc;

use data::MutationRef;
use data::command::{Partitions, ReadCommand, RingBound};
use data::replica_page::ReplicaPage;
use internode::{ErrorReply, ReadRequest, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{Epoch, HostId, Instant, ShardId, Token, Uuid};
use store::{ReadScope, StoreError};

use crate::env::Env;
use crate::exchange::Exchange;
use crate::participation::ReadCount;
use crate::sessions::Sessions;
use crate::shards::{Order, Shards};
use crate::wire::{self, Digest};

/// Sender of a request, with its epoch and the deadline of the answer.
#[derive(Clone, Copy)]
struct Asker {
    host: HostId,
    epoch: Epoch,
    deadline: Instant,
}

/// A question of a peer.
enum Question {
    Hashes(ReadScope, Vec<ReadRequest>),
    Rows(ReadScope, Box<ReadRequest>),
    Apply(Uuid, Vec<u8>),
}

/// Answers peers.
pub(crate) struct Server {
    env: Rc<Env>,
    shards: Rc<Shards>,
    exchange: Rc<Exchange>,
    sessions: Rc<Sessions>,
    /// Questions that are being answered.
    serving: Cell<usize>,
}

impl Server {
    pub(crate) fn new(
        env: Rc<Env>,
        shards: Rc<Shards>,
        exchange: Rc<Exchange>,
        sessions: Rc<Sessions>,
    ) -> Server {
        Server { env, shards, exchange, sessions, serving: Cell::new(0) }
    }

    /// Serves a peer's request of the verbs `Repair…`; gives the responder back when it is another
    /// one.
    pub(crate) fn serve(
        self: &Rc<Server>,
        request: Request<'_>,
        responder: Responder,
    ) -> Option<Responder> {
        if !matches!(request.verb, Verb::RepairHashes | Verb::RepairRows | Verb::RepairApply) {
            return self.sessions.serve(&request, responder);
        }
        match self.admit(&request) {
            Ok(question) => {
                let serving = Serving::begin(self.clone());
                let (host, epoch, deadline) = (request.from, request.epoch, request.deadline);
                let asker = Asker { host, epoch, deadline };
                let task = serving.answer(asker, question, responder);
                // A closed gate means that this node stops: the dropped responder notifies the
                // peer.
                let env = &self.env;
                let _ = env.gate.spawn(&env.rt, Group::Stream, "repair-serve", task);
            }
            Err(error) => responder.fail(&error),
        }
        None
    }

    fn admit(&self, request: &Request<'_>) -> Result<Question, ErrorReply> {
        if self.env.stopping.get() {
            return Err(ErrorReply::Stopping);
        }
        let invalid = |error: codec::DecodeError| ErrorReply::Invalid(error.to_string());
        let question = match request.verb {
            Verb::RepairHashes => {
                let (scope, reads) = wire::decode_hashes(request.payload).map_err(invalid)?;
                Question::Hashes(scope, reads)
            }
            Verb::RepairApply => {
                let (session, mutation) = wire::decode_apply(request.payload).map_err(invalid)?;
                self.check_mutation(mutation)?;
                // Its senders limit their rate, and it must not queue after page requests.
                return Ok(Question::Apply(session, mutation.to_vec()));
            }
            _ => {
                let (scope, read) = wire::decode_rows(request.payload).map_err(invalid)?;
                Question::Rows(scope, Box::new(read))
            }
        };
        if self.serving.get() >= self.env.settings.serving_max {
            return Err(ErrorReply::Overloaded);
        }
        Ok(question)
    }

    fn check_mutation(&self, bytes: &[u8]) -> Result<(), ErrorReply> {
        let invalid = || ErrorReply::Invalid("not a mutation".to_owned());
        let id = MutationRef::open(bytes).ok_or_else(invalid)?.table;
        let snapshot = (self.env.snapshot)();
        let table = snapshot.schema.table_by_id(id).ok_or(ErrorReply::UnknownTable(id))?;
        MutationRef::parse(bytes, table.clustering_count).ok_or_else(invalid).map(|_| ())
    }

    async fn digests(
        &self,
        asker: Asker,
        scope: ReadScope,
        reads: Vec<ReadRequest>,
        responder: &Responder,
    ) -> Result<Vec<Digest>, ErrorReply> {
        let (env, Asker { host, epoch, deadline }) = (&self.env, asker);
        let mut digests = Vec::with_capacity(reads.len());
        let about = reads.first().map(|read| (read.command.table, token_of(&read.command)));
        let mut count = ReadCount::default();
        for read in reads {
            if responder.is_cancelled() || env.rt.now() >= deadline || env.stopping.get() {
                return Err(ErrorReply::Timeout);
            }
            let begins = read.command.slices.0.first().is_none_or(|s| !s.start_after);
            let _running = env.counts.validation.run();
            let page = env
                .coordinator
                .replica_reads()
                .read_as_replica(read, epoch, deadline, scope)
                .await?;
            env.counts.served.inc();
            let page = ReplicaPage::open(&page)
                .map_err(|error| ErrorReply::Internal(error.to_string()))?;
            count = count.and(ReadCount::of_page(&page, begins));
            digests.push(wire::digest_of_page(&page));
        }
        if let Some((table, token)) = about {
            let order = Order::Count { from: host, table, token, read: count };
            // One that is missed is missing in a table only.
            let _ = self.shards.on_one(ShardId(0), order).await;
        }
        Ok(digests)
    }
}

/// A token that a command is about.
fn token_of(command: &ReadCommand) -> Token {
    match &command.partitions {
        Partitions::Key(key) => codec::token_of(key),
        Partitions::Range(range) => match &range.start {
            RingBound::Token { token, after } => Token(token.0.saturating_add(i64::from(*after))),
            RingBound::Key { token, .. } => *token,
        },
    }
}

/// A question being answered; counted until it is dropped.
struct Serving(Rc<Server>);

impl Serving {
    fn begin(server: Rc<Server>) -> Serving {
        server.serving.set(server.serving.get() + 1);
        Serving(server)
    }

    async fn answer(self, asker: Asker, question: Question, responder: Responder) {
        match question {
            Question::Hashes(scope, reads) => {
                match self.0.digests(asker, scope, reads, &responder).await {
                    Ok(digests) => responder.respond(|out| wire::encode_digests(out, &digests)),
                    Err(error) => responder.fail(&error),
                }
            }
            Question::Apply(session, mutation) => {
                match self.0.exchange.take_in(session, mutation).await {
                    Ok(()) => responder.respond(|_| {}),
                    Err(StoreError::Stopping) => responder.fail(&ErrorReply::Stopping),
                    Err(StoreError::QueueFull) => responder.fail(&ErrorReply::Overloaded),
                    Err(StoreError::DiskFull { .. }) => responder.fail(&ErrorReply::DiskFull),
                    Err(error) => responder.fail(&ErrorReply::Invalid(error.to_string())),
                }
            }
            Question::Rows(scope, read) => {
                let Asker { epoch, deadline, .. } = asker;
                self.0.env.counts.served.inc();
                let coordinator = &self.0.env.coordinator;
                match coordinator
                    .replica_reads()
                    .read_as_replica(*read, epoch, deadline, scope)
                    .await
                {
                    Ok(page) => responder.respond(|out| out.extend_from_slice(&page)),
                    Err(error) => responder.fail(&error),
                }
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let serving = &self.0.serving;
        serving.set(serving.get().saturating_sub(1));
    }
}
