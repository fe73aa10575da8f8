//! Which statements of clients are begun: limits of what is in flight and of requests per second.
//!
//! A statement is refused before it is planned, with Cassandra's OVERLOADED.

use crate::request_rates::{Exceeded, Requester};
use crate::server::Server;
use cql_wire::{BatchQuery, Request};
use query::{ClientState, ConnectionLoad, Failure, Result, term_bytes};
use stdx::Instant;

/// The plan of a shorter text is not counted: the request itself is.
const PLANNED_TEXT_BYTES: usize = 1024;

/// State of a connection that decides whether it may begin another request.
pub(crate) struct Load {
    /// Requests that are not answered.
    pub(crate) waiting: usize,
    /// Those of them that do not wait for the commit of this turn.
    pub(crate) pending: usize,
    /// Bytes of these.
    pub(crate) pending_bytes: usize,
    /// Memory of the connection that is charged to the account of its shard.
    pub(crate) held_bytes: usize,
    /// Answers of this turn exist.
    pub(crate) has_answers: bool,
}

/// Bytes that a waiting request is charged; includes its plan where that is worth counting.
pub(crate) fn weight(request: &Request<'_>, bytes: usize) -> usize {
    if bytes < PLANNED_TEXT_BYTES {
        return bytes;
    }
    let of_plans = match request {
        Request::Query { query, .. } => term_bytes(query),
        Request::Batch(batch) => batch.statements.iter().fold(0, |sum: usize, statement| {
            let of_one = match statement.query {
                BatchQuery::Text(text) => term_bytes(text),
                BatchQuery::Prepared(_) => 0,
            };
            sum.saturating_add(of_one)
        }),
        _ => 0,
    };
    bytes.saturating_add(of_plans)
}

/// Admits a request whose acceptance cannot make memory grow beyond the limits.
///
/// # Errors
/// The request is too large, the limits are reached, or the node stops.
pub(crate) fn admit(server: &Server, bytes: usize, load: &Load) -> Result<()> {
    let settings = &server.settings;
    if server.is_draining() {
        return Err(Failure::overloaded("the node is stopping"));
    }
    let most = server.query.account.max().max(settings.frame_bytes_max.saturating_mul(2));
    if bytes > most {
        return Err(Failure::invalid(format!(
            "Request has too many terms: its plan would take about {bytes} bytes of memory, more than the \
             {most} that the requests of a shard have"
        )));
    }
    let Load { waiting, pending, pending_bytes, held_bytes, has_answers } = *load;
    let refused = if waiting >= settings.requests_per_connection_max {
        Some(format!("{waiting} requests of this connection wait already"))
    } else if pending_bytes.saturating_add(bytes)
        > settings.request_bytes_per_connection_max.max(bytes.saturating_add(1))
        && pending > 0
    {
        Some("the requests of this connection that wait take too many bytes".to_owned())
    } else {
        let load = match waiting == 0 && !has_answers {
            true => ConnectionLoad::Idle,
            false => ConnectionLoad::Busy,
        };
        server.refuses(bytes, load, held_bytes)
    };
    match refused {
        Some(cause) => {
            server.query.counters.overloaded.inc();
            Err(Failure::overloaded(format!(
                "Request breached limit on requests in flight: {cause}. Server is currently in an overloaded \
                 state and cannot accept more requests."
            )))
        }
        None => Ok(()),
    }
}

/// Counts a statement that began at that time.
///
/// # Errors
/// Too many statements of its client, or of all clients, began within the last second.
#[cold]
pub(crate) fn admit_rate(server: &Server, client: &ClientState, began: Instant) -> Result<()> {
    let (limits, role) = (server.rate_limits.get(), client.user());
    let requester = Requester { address: client.peer.ip(), role: role.as_deref() };
    let Err(exceeded) = server.mesh.rates.admit(&limits, &requester, began) else {
        return Ok(());
    };
    server.query.counters.overloaded.inc();
    let (counter, breached) = match exceeded {
        Exceeded::All(rate) => {
            (&server.counters.rate_of_all, format!("global limit of {rate} requests/second"))
        }
        Exceeded::Address(rate) => (
            &server.counters.rate_of_address,
            format!("limit of {rate} requests/second of address {}", requester.address),
        ),
        Exceeded::Role(rate) => (
            &server.counters.rate_of_role,
            format!(
                "limit of {rate} requests/second of role {}",
                role.as_deref().unwrap_or_default()
            ),
        ),
    };
    counter.inc();
    Err(Failure::overloaded(format!(
        "Request breached {breached}. Server is currently in an overloaded state and cannot accept more \
         requests."
    )))
}
