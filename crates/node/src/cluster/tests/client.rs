//! One statement over simulated sockets, protocol v4.

use std::net::SocketAddr;
use std::time::Duration;

use cql_client::{Answer, ClientError, ConnectOptions, Connection, Login};
use cql_wire::query::QueryParameters;
use cql_wire::request::{Request, RequestOptions};
use cql_wire::{Consistency, ProtocolVersion};
use rt::Rt;

/// Rows of nullable values, or the error's text.
pub(super) type Rows = Result<Vec<Vec<Option<Vec<u8>>>>, String>;

async fn ask(
    rt: &Rt,
    address: SocketAddr,
    login: Login,
    query: &str,
    (consistency, options): (Consistency, RequestOptions<'_>),
) -> Rows {
    let limit = Duration::from_secs(30);
    let connect = ConnectOptions {
        version: ProtocolVersion::V4,
        login,
        connect_timeout: limit,
        answer_timeout: limit,
        ..ConnectOptions::default()
    };
    let work = async {
        let mut connection = Connection::connect(rt, address, connect).await?;
        let request = Request::Query { query, parameters: QueryParameters::new(consistency) };
        let Answer::Rows(page) = connection.request_with(&request, &options).await?.answer else {
            return Ok(Vec::new());
        };
        let cell = |row, column| page.value(row, column).map(<[u8]>::to_vec);
        let row = |row| (0..page.width()).map(|column| cell(row, column)).collect();
        Ok((0..page.len()).map(row).collect())
    };
    let done = rt.timeout(rt.now() + limit, work).await;
    done.map_err(|_| "no answer".to_owned())?.map_err(|e: ClientError| e.to_string())
}

/// Runs `text` at `consistency` on a connection of its own.
pub(super) async fn query(
    rt: &Rt,
    address: SocketAddr,
    text: &str,
    consistency: Consistency,
) -> Rows {
    query_with(rt, address, (text, consistency), false).await
}

/// Like [`query`]; `tracing` asks the server to trace the request.
pub(super) async fn query_with(
    rt: &Rt,
    address: SocketAddr,
    (text, consistency): (&str, Consistency),
    tracing: bool,
) -> Rows {
    let options = RequestOptions { tracing, ..RequestOptions::default() };
    ask(rt, address, Login::plain(), text, (consistency, options)).await
}

/// Like [`query`] at ONE, by a user with its password.
pub(super) async fn query_as(
    rt: &Rt,
    address: SocketAddr,
    (user, password): (&str, &str),
    text: &str,
) -> Rows {
    let user = Some((user.to_owned(), password.to_owned()));
    let login = Login { user, ..Login::plain() };
    ask(rt, address, login, text, (Consistency::One, RequestOptions::default())).await
}
