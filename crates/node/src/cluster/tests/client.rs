//! One statement over simulated sockets, protocol v4.

use std::net::SocketAddr;
use std::time::Duration;

use cql_wire::query::QueryParameters;
use cql_wire::request::{Request, RequestOptions, encode_request};
use cql_wire::response::{Response, ResponseBody};
use cql_wire::{Consistency, FrameDecoder, Negotiated, ProtocolVersion, Side};
use rt::{Conn, Rt};

/// Rows of nullable values, or the error's text.
pub(super) type Rows = Result<Vec<Vec<Option<Vec<u8>>>>, String>;

async fn exchange(conn: &Conn, request: &Request<'_>, options: RequestOptions<'_>) -> Rows {
    let negotiated = Negotiated::plain(ProtocolVersion::V4);
    let mut out = Vec::new();
    encode_request(request, negotiated, &options, &mut out).unwrap();
    conn.write_all(&out).await.map_err(|e| e.to_string())?;
    let mut decoder = FrameDecoder::new(Side::Client, 64 << 20);
    let mut input = Vec::new();
    loop {
        let mut rest = input.as_slice();
        if let Some(frame) = decoder.next(&mut rest).map_err(|e| format!("{e:?}"))? {
            let response = Response::decode(&frame, negotiated).map_err(|e| e.to_string())?;
            return match response.body {
                ResponseBody::Error { message, .. } => Err(message.to_owned()),
                ResponseBody::Rows(rows) => {
                    let width = rows.metadata.column_count.max(1) as usize;
                    let values: Vec<_> = rows.values().map(|v| v.map(<[u8]>::to_vec)).collect();
                    Ok(values.chunks(width).map(<[_]>::to_vec).collect())
                }
                _ => Ok(Vec::new()),
            };
        }
        let used = input.len() - rest.len();
        input.drain(..used);
        match conn.read(&mut input, 1 << 16).await {
            Ok(0) => return Err("end of stream".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
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

/// As [`query`]; the server is asked to trace it.
pub(super) async fn query_with(
    rt: &Rt,
    address: SocketAddr,
    (text, consistency): (&str, Consistency),
    tracing: bool,
) -> Rows {
    let options = || RequestOptions { tracing, ..RequestOptions::default() };
    let work = async {
        let conn = rt.connect(address).await.map_err(|e| e.to_string())?;
        let mut body = Vec::new();
        cql_wire::StringMap::encode(&mut body, &[("CQL_VERSION", "3.0.0")]).unwrap();
        let mut reader = codec::Reader::new(&body, "startup");
        let startup = cql_wire::StringMap::decode(&mut reader).unwrap();
        exchange(&conn, &Request::Startup(startup), RequestOptions::default()).await?;
        let parameters = QueryParameters::new(consistency);
        exchange(&conn, &Request::Query { query: text, parameters }, options()).await
    };
    let deadline = rt.now() + Duration::from_secs(30);
    rt.timeout(deadline, work).await.unwrap_or(Err("no answer".to_owned()))
}

/// As [`query`] at ONE, by a user with its password.
pub(super) async fn query_as(
    rt: &Rt,
    address: SocketAddr,
    (user, password): (&str, &str),
    text: &str,
) -> Rows {
    let options = RequestOptions::default;
    let work = async {
        let conn = rt.connect(address).await.map_err(|e| e.to_string())?;
        let mut body = Vec::new();
        cql_wire::StringMap::encode(&mut body, &[("CQL_VERSION", "3.0.0")]).unwrap();
        let mut reader = codec::Reader::new(&body, "startup");
        let startup = cql_wire::StringMap::decode(&mut reader).unwrap();
        exchange(&conn, &Request::Startup(startup), options()).await?;
        let token = format!("\0{user}\0{password}");
        let response = Request::AuthResponse(Some(token.as_bytes()));
        exchange(&conn, &response, options()).await?;
        let parameters = QueryParameters::new(Consistency::One);
        exchange(&conn, &Request::Query { query: text, parameters }, options()).await
    };
    let deadline = rt.now() + Duration::from_secs(30);
    rt.timeout(deadline, work).await.unwrap_or(Err("no answer".to_owned()))
}
