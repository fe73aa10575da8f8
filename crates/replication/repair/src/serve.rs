//! The other side: digests and pages of stretches for repairs of other nodes.

use data::MutationRef;
use data::command::{Partitions, ReadCommand, RingBound};
use data::replica_page::ReplicaPage;
use internode::{ErrorReply, ReadRequest, Verb};
use messaging::{Request, Responder};
use rt::Group;
use stdx::{Epoch, HostId, Instant, Token, Uuid};
use store::{ReadScope, StoreError};

use crate::participation::ReadCount;
use crate::repair::Repair;
use crate::wire::{self, Digest};

/// A question of a peer.
enum Question {
    Hashes(ReadScope, Vec<ReadRequest>),
    Rows(ReadScope, Box<ReadRequest>),
    Apply(Uuid, Vec<u8>),
}

impl Repair {
    /// Serves a peer's request of the verbs `Repair…`; gives the responder back when it is another
    /// one.
    pub fn serve_peer(&self, request: Request<'_>, responder: Responder) -> Option<Responder> {
        if !matches!(request.verb, Verb::RepairHashes | Verb::RepairRows | Verb::RepairApply) {
            return self.serve_session(&request, responder);
        }
        match self.admit(&request) {
            Ok(question) => {
                let serving = Serving::begin(self.clone());
                let (epoch, deadline) = (request.epoch, request.deadline);
                let task = serving.answer((request.from, question), (epoch, deadline), responder);
                let inner = &self.inner;
                // A closed gate: the responder is dropped and says that this node is stopping.
                let _ = inner.gate.spawn(&inner.rt, Group::Stream, "repair-serve", task);
            }
            Err(error) => responder.fail(&error),
        }
        None
    }

    fn admit(&self, request: &Request<'_>) -> Result<Question, ErrorReply> {
        let inner = &self.inner;
        if inner.stopping.get() {
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
                // It is bounded by who sends it, and must not stand behind questions.
                return Ok(Question::Apply(session, mutation.to_vec()));
            }
            _ => {
                let (scope, read) = wire::decode_rows(request.payload).map_err(invalid)?;
                Question::Rows(scope, Box::new(read))
            }
        };
        if inner.serving.get() >= inner.settings.serving_max {
            return Err(ErrorReply::Overloaded);
        }
        Ok(question)
    }

    fn check_mutation(&self, bytes: &[u8]) -> Result<(), ErrorReply> {
        let invalid = || ErrorReply::Invalid("not a mutation".to_owned());
        let id = MutationRef::open(bytes).ok_or_else(invalid)?.table;
        let snapshot = (self.inner.snapshot)();
        let table = snapshot.schema.table_by_id(id).ok_or(ErrorReply::UnknownTable(id))?;
        MutationRef::parse(bytes, table.clustering_count).ok_or_else(invalid).map(|_| ())
    }

    async fn digests(
        &self,
        from: HostId,
        (scope, reads): (ReadScope, Vec<ReadRequest>),
        (epoch, deadline): (Epoch, Instant),
        responder: &Responder,
    ) -> Result<Vec<Digest>, ErrorReply> {
        let inner = &self.inner;
        let mut digests = Vec::with_capacity(reads.len());
        let about = reads.first().map(|read| (read.command.table, token_of(&read.command)));
        let mut count = ReadCount::default();
        for read in reads {
            if responder.is_cancelled() || inner.rt.now() >= deadline || inner.stopping.get() {
                return Err(ErrorReply::Timeout);
            }
            let begins = read.command.slices.0.first().is_none_or(|s| !s.start_after);
            let _running = inner.counts.validation.run();
            let page = inner
                .coordinator
                .replica_reads()
                .read_as_replica(read, epoch, deadline, scope)
                .await?;
            inner.counts.served.inc();
            let page = ReplicaPage::open(&page)
                .map_err(|error| ErrorReply::Internal(error.to_string()))?;
            count = count.and(ReadCount::of_page(&page, begins));
            digests.push(wire::digest_of_page(&page));
        }
        if let Some(about) = about {
            inner.note_read(from, about, count).await;
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
struct Serving(Repair);

impl Serving {
    fn begin(repair: Repair) -> Serving {
        repair.inner.serving.set(repair.inner.serving.get() + 1);
        Serving(repair)
    }

    async fn answer(
        self,
        (from, question): (HostId, Question),
        times: (Epoch, Instant),
        responder: Responder,
    ) {
        match question {
            Question::Hashes(scope, reads) => {
                match self.0.digests(from, (scope, reads), times, &responder).await {
                    Ok(digests) => responder.respond(|out| wire::encode_digests(out, &digests)),
                    Err(error) => responder.fail(&error),
                }
            }
            Question::Apply(session, mutation) => {
                match self.0.inner.take_in(session, mutation).await {
                    Ok(()) => responder.respond(|_| {}),
                    Err(StoreError::Stopping) => responder.fail(&ErrorReply::Stopping),
                    Err(StoreError::QueueFull) => responder.fail(&ErrorReply::Overloaded),
                    Err(StoreError::DiskFull { .. }) => responder.fail(&ErrorReply::DiskFull),
                    Err(error) => responder.fail(&ErrorReply::Invalid(error.to_string())),
                }
            }
            Question::Rows(scope, read) => {
                let (epoch, deadline) = times;
                self.0.inner.counts.served.inc();
                let coordinator = &self.0.inner.coordinator;
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
        let serving = &self.0.inner.serving;
        serving.set(serving.get().saturating_sub(1));
    }
}
