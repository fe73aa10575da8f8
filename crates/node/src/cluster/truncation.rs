//! Queries to the members about remaining data after a truncation.
//!
//! Each member empties its shards when it applies the entry of the metadata log, and gossip reports
//! that it has applied it. Only the member knows whether a file could not be removed, so it is
//! asked.

use std::cell::RefCell;
use std::time::Duration;

use codec::{DecodeError, Reader, Writer};
use cql_server::CqlServer;
use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing, Request, Responder};
use stdx::{HostId, ShardId, TableId, Uuid, WallMicros};
use truncation::{TruncationState, Truncations};

use super::member::ClusterShard;

/// Timeout of an answer; a member that does not answer is asked again.
const ANSWER: Duration = Duration::from_secs(2);

/// The part of the node that knows how truncations went, once there is one. Shard 0 only.
#[derive(Default)]
pub(crate) struct OwnTruncations(RefCell<Option<Truncations>>);

impl ClusterShard {
    /// Lets the server ask the others how truncations went, and the others this node. Shard 0 only.
    pub(crate) fn tell_of_truncations(&self, server: &CqlServer) {
        let asking = self.clone();
        server.truncations().set_states_of_others(move |host, table, at| {
            let asking = asking.clone();
            async move { asking.truncation_of(host, table, at).await }
        });
        *self.truncations.0.borrow_mut() = Some(server.truncations().clone());
        // They hold each other.
        let ending = self.truncations.clone();
        self.rt.at_end(move || drop(ending.0.take()));
    }

    async fn truncation_of(
        &self,
        host: HostId,
        table: TableId,
        at: WallMicros,
    ) -> Option<TruncationState> {
        let deadline = self.rt.now() + ANSWER;
        let to = Outgoing { host, shard: ShardId(0), verb: Verb::Truncate, deadline, trace: None };
        let answer = self.messaging.request(&to, |out| put_question(table, at, out)).await;
        match answer {
            Ok(answer) => match answer.payload.as_slice() {
                [code] => TruncationState::from_code(*code),
                _ => None,
            },
            // An older build does not know the verb: it counts as done once it has applied the
            // entry.
            Err(MessagingError::Remote(ErrorReply::UnknownVerb(_))) => Some(TruncationState::Done),
            Err(error) => {
                tracing::debug!(%host, %error, "no answer of a member about a truncation");
                None
            }
        }
    }

    /// Answers the verb `Truncate`.
    pub(crate) fn serve_truncation(&self, request: &Request<'_>, responder: Responder) {
        let (table, at) = match read_question(request.payload) {
            Ok(question) => question,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        let own = self.truncations.0.borrow().clone();
        let state = own.map_or(TruncationState::Pending, |own| own.state(table, at));
        responder.respond(|out| out.put_u8(state.code()));
    }
}

fn put_question(table: TableId, at: WallMicros, out: &mut Vec<u8>) {
    out.put_bytes(table.0.as_bytes());
    out.put_u64(at.0.cast_unsigned());
}

fn read_question(payload: &[u8]) -> Result<(TableId, WallMicros), DecodeError> {
    let r = &mut Reader::new(payload, "question of a truncation");
    let table = TableId(Uuid::from_bytes(r.array::<16>()?));
    let at = WallMicros(r.u64()?.cast_signed());
    r.finish()?;
    Ok((table, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_reads_back_and_any_other_length_is_refused() {
        let question = (TableId(Uuid::from_u128(7)), WallMicros(-5));
        let mut bytes = Vec::new();
        put_question(question.0, question.1, &mut bytes);
        assert_eq!(read_question(&bytes).unwrap(), question);
        for cut in 0..bytes.len() {
            assert!(read_question(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes.push(0);
        assert!(read_question(&bytes).is_err());
    }
}
