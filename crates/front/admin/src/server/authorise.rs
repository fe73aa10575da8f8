//! The one place where each request passes: its login, its permission, its record.
//!
//! A login is checked before the body is read, and only where the request needs one. A request without a row in the
//! tables of routes needs the operator's scope (INV-scope-1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admin_access::{Decision, Need, Principal, decide};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::access::{Access, Identified, Unchecked};
use super::api::{Api, ApiError, BODY_BYTES_MAX};
use super::connections::{Connection, OfConnection, Working};
use super::route::{Guard, Route};
use super::{ROUTES, SCYLLA};
use crate::actions::{ApiAction, ApiOutcome};
use crate::model::{ErrorKind, LOAD_BYTES_MAX};
use crate::operation::{Class, CommandRow};

/// Methods of login that a refusal names.
const CHALLENGES: [&str; 2] =
    ["Basic realm=\"helenus\", charset=\"UTF-8\"", "Bearer realm=\"helenus\""];

/// Scope that an operation of a class needs.
pub(super) const fn need_of(class: Class) -> Need {
    match class {
        Class::Open => Need::Nothing,
        Class::Reads => Need::Read,
        Class::Changes | Class::Destroys => Need::Operate,
    }
}

/// Scope that a request needs before its body is read.
fn need_of_row(row: Option<&Route>) -> Need {
    row.map_or(Need::Operate, |row| need_of(row.class))
}

/// Returns the row of a request: that of its path, with any names in it, and of its method.
pub(super) fn row_of(method: &str, path: &str) -> Option<&'static Route> {
    // The server answers HEAD as it answers GET.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut rows = ROUTES.iter().chain(SCYLLA);
    rows.find(|row| row.method.name() == method && row.paths().any(|known| known == path))
}

/// The command in a body of JSON.
#[derive(Deserialize)]
struct OfCommand {
    command: String,
}

fn command_of(row: &Route, body: &Bytes) -> Option<&'static CommandRow> {
    if row.commands.is_empty() {
        return None;
    }
    let named = serde_json::from_slice::<OfCommand>(body).ok()?;
    row.commands.iter().find(|command| command.name == named.command)
}

/// Record of one request: written when it ends, however that is.
struct Recorded {
    access: Arc<Access>,
    client: SocketAddr,
    method: String,
    path: String,
    user: String,
    command: &'static str,
    class: Class,
    outcome: ApiOutcome,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let refusals = &self.access.refusals;
        match self.outcome {
            ApiOutcome::Unauthenticated => refusals.unauthenticated.fetch_add(1, Ordering::Relaxed),
            ApiOutcome::Forbidden => refusals.forbidden.fetch_add(1, Ordering::Relaxed),
            ApiOutcome::Completed(_) | ApiOutcome::Abandoned => 0,
        };
        if let Some(actions) = &self.access.actions {
            actions.record(&ApiAction {
                user: &self.user,
                client: self.client,
                method: &self.method,
                path: &self.path,
                command: self.command,
                class: self.class,
                outcome: self.outcome,
            });
        }
    }
}

/// Refuses a request or has it carried out.
pub(super) async fn authorise(
    State(api): State<Api>,
    ConnectInfo(OfConnection(connection)): ConnectInfo<OfConnection>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().as_str().to_owned();
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let row = matched.and_then(|path: String| row_of(&method, &path));
    let mut record = Recorded {
        access: api.access.clone(),
        client: connection.peer(),
        path: request.uri().path().to_owned(),
        method,
        user: String::new(),
        command: "",
        class: row.map_or(Class::Reads, |row| row.class),
        outcome: ApiOutcome::Abandoned,
    };
    let response = answer(&api, row, &connection, request, next, &mut record).await;
    let response = response.unwrap_or_else(IntoResponse::into_response);
    if record.outcome == ApiOutcome::Abandoned {
        record.outcome = ApiOutcome::Completed(response.status().as_u16());
    }
    response
}

async fn answer(
    api: &Api,
    row: Option<&'static Route>,
    connection: &Arc<Connection>,
    request: Request,
    next: Next,
    record: &mut Recorded,
) -> Result<Response, ApiError> {
    let need = need_of_row(row);
    // Probes of health get their answer also when shard 0 is busy.
    let client = match need == Need::Nothing && row.is_some_and(|row| row.commands.is_empty()) {
        true => Identified::anonymous(String::new()),
        false => identified(api, connection, request.headers(), record).await?,
    };
    if let Some(refusal) = refusal(api, need, &client, record).await {
        return Ok(refusal);
    }
    let max = match row.map(Route::guard) {
        Some(Guard::Bytes) => LOAD_BYTES_MAX,
        _ => BODY_BYTES_MAX,
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, max).await else {
        let text = format!("the body is longer than {max} bytes or was cut off");
        return Err(ApiError(ErrorKind::TooLarge, text));
    };
    if let Some(command) = row.and_then(|row| command_of(row, &body)) {
        (record.command, record.class) = (command.name, command.class);
        if let Some(refusal) = refusal(api, need_of(command.class), &client, record).await {
            return Ok(refusal);
        }
    }
    if !connection.begin() {
        let text = "the connection was closed to make room for another one".to_owned();
        return Err(ApiError(ErrorKind::Busy, text));
    }
    let _working = Working(connection.clone());
    Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
}

/// Finds out who the client is. A check of its login that does not end, because the client disconnects or the time is
/// over, is recorded as a failed one.
async fn identified(
    api: &Api,
    connection: &Connection,
    headers: &HeaderMap,
    record: &mut Recorded,
) -> Result<Identified, ApiError> {
    let (certificate, address) = (connection.certificate(), connection.peer().ip());
    record.user = api.access.claimed(address, headers, certificate);
    record.outcome = ApiOutcome::Unauthenticated;
    let found = api.access.identify(&api.caller, address, headers, certificate).await;
    match found {
        Ok(client) => {
            record.outcome = ApiOutcome::Abandoned;
            record.user.clone_from(&client.user);
            Ok(client)
        }
        Err(Unchecked::TimedOut) => Err(Unchecked::TimedOut.into()),
        Err(unchecked) => {
            record.outcome = ApiOutcome::Abandoned;
            Err(unchecked.into())
        }
    }
}

/// The answer to a client that may not do it; `None`: it may.
async fn refusal(
    api: &Api,
    need: Need,
    client: &Identified,
    record: &mut Recorded,
) -> Option<Response> {
    let refused = |kind| ApiError(kind, client.refusal.clone()).into_response();
    match decide(need, &client.principal) {
        Decision::Allow => None,
        Decision::Forbidden => {
            record.outcome = ApiOutcome::Forbidden;
            Some(refused(ErrorKind::Forbidden))
        }
        Decision::Unauthenticated => {
            record.outcome = ApiOutcome::Unauthenticated;
            if client.principal == Principal::Rejected {
                api.access.slow_down(record.client.ip(), client.slowing).await;
            }
            let mut response = refused(ErrorKind::Unauthenticated);
            for challenge in CHALLENGES {
                let value = HeaderValue::from_static(challenge);
                response.headers_mut().append(header::WWW_AUTHENTICATE, value);
            }
            Some(response)
        }
    }
}
