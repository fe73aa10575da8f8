//! Record of what clients do through the API.

use std::net::SocketAddr;

use crate::operation::Class;

/// End of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiOutcome {
    /// It was carried out; the status of its answer.
    Completed(u16),
    /// The client disconnected before the answer. A command is carried out nevertheless.
    Abandoned,
    /// Its login is missing or failed, or its check did not end: in time, or before the client disconnected.
    Unauthenticated,
    /// Its login lacks the scope.
    Forbidden,
}

/// A request after its end: allowed or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiAction<'a> {
    /// Role, or `token:NAME`; empty: the client has no login. With `Unauthenticated` the name that the client claims.
    pub user: &'a str,
    /// Address of the client.
    pub client: SocketAddr,
    /// Method.
    pub method: &'a str,
    /// Path without its query.
    pub path: &'a str,
    /// Name of the command on a path that takes several; else empty.
    pub command: &'a str,
    /// Class of the operation; a path without a row counts as `Reads`, because it does nothing.
    pub class: Class,
    /// End of the request.
    pub outcome: ApiOutcome,
}

/// Receiver of all requests, on the thread of the HTTP server: it must not block.
pub trait ActionLog: Send + Sync {
    /// Takes note of a request.
    fn record(&self, action: &ApiAction<'_>);
}
